//! The agent that copies the log already has the entries that it sent up: the acting root sends it
//! only their indices.
//!
//! Responsible for: both halves of that. [`FollowerEntries`] is the acting root's: which entries
//! have come up over the link that the log is copied to, and in which batch. [`SentBatches`] is the
//! standby's: the batches that it has sent up and that are not in its copy yet. Both count the
//! batches of their link, from 1 on, so a batch needs no name. Not responsible for: the copy itself
//! ([`crate::node::role::standby`]).

use crate::frame::{Content, EntryRef, Item, UpBatch, UpItem};
use crate::numbers::LogIndex;
use std::collections::VecDeque;

/// Which entries of the log need not be sent, at the acting root.
#[derive(Default)]
pub(in crate::node) struct FollowerEntries {
    /// Batches from this one on are kept where they came from; `None`: none is.
    from: Option<u64>,
    /// What of them is in the log, rising. Not longer than the log behind the place up to which it
    /// was copied.
    places: VecDeque<EntryRef>,
    /// The last batch that has come.
    seen: u64,
    /// A batch without a logged entry has come: the other end must learn that.
    due: bool,
}

impl FollowerEntries {
    /// The other end keeps what it sends up, from that batch on; `None`: it does not.
    pub(in crate::node) fn begin(&mut self, from: Option<u64>) {
        self.from = self.from.or(from);
    }

    /// Whether a batch is kept at the other end.
    pub(in crate::node) fn wants(&self, batch: u64) -> bool {
        self.from.is_some_and(|from| batch >= from)
    }

    /// A batch that the other end keeps is in the log, at those positions. Says whether the other
    /// end must learn of it although nothing was logged.
    pub(in crate::node) fn on_batch(&mut self, batch: u64, places: Vec<EntryRef>) -> bool {
        self.seen = batch;
        self.due |= places.is_empty();
        self.places.extend(places);
        self.due
    }

    /// Whether the other end must learn of a batch although nothing was logged.
    pub(in crate::node) fn is_due(&self) -> bool {
        self.due
    }

    /// The first place after an index.
    pub(in crate::node) fn behind(&mut self, index: LogIndex) -> Option<&EntryRef> {
        while self.places.front().is_some_and(|entry_ref| entry_ref.index <= index) {
            self.places.pop_front();
        }
        self.places.front()
    }

    /// All entries are sent: up to which batch the other end may forget. 0: it keeps none.
    pub(in crate::node) fn all_sent(&mut self) -> u64 {
        self.due = false;
        self.seen
    }
}

/// Batches that were sent up and are not in the copy yet, at the standby.
#[derive(Default)]
pub(in crate::node) struct SentBatches {
    /// The first batch that was kept; `None`: none is.
    from: Option<u64>,
    /// The batch that is the first in `batches`.
    first: u64,
    batches: VecDeque<Vec<UpItem>>,
    bytes: u64,
}

impl SentBatches {
    /// Batches are kept from that one on.
    pub(in crate::node) fn begin(&mut self, from: u64) {
        *self = Self { from: Some(from), first: from, ..Self::default() };
    }

    /// From which batch on; `None`: none is kept.
    pub(in crate::node) fn from(&self) -> Option<u64> {
        self.from
    }

    /// Bytes of what is kept.
    pub(in crate::node) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next batch goes up.
    pub(in crate::node) fn push(&mut self, batch: &UpBatch) {
        if self.from.is_some() {
            self.bytes += batch.bytes();
            self.batches.push_back(batch.items.clone());
        }
    }

    /// Batches before that one are not needed any more.
    pub(in crate::node) fn forget_before(&mut self, batch: u64) {
        while self.first < batch
            && let Some(items) = self.batches.pop_front()
        {
            self.first += 1;
            self.bytes -= items.iter().map(|item| item.len() as u64).sum::<u64>();
        }
    }

    /// The entries of a reference; `None` where they were not kept.
    pub(in crate::node) fn entries(&mut self, entry_ref: &EntryRef) -> Option<Vec<Item>> {
        self.forget_before(entry_ref.batch);
        let items =
            self.batches.get(usize::try_from(entry_ref.batch.checked_sub(self.first)?).ok()?)?;
        let (mut skip, mut left) =
            (usize::try_from(entry_ref.skip).ok()?, entry_ref.count as usize);
        let mut index = entry_ref.index;
        let mut entries = Vec::new();
        for item in items {
            if skip >= item.count() || left == 0 {
                skip = skip.saturating_sub(item.count());
                continue;
            }
            let UpItem::Events(run) = item else { return None };
            let part = run.slice(skip..run.count().min(skip.saturating_add(left)))?;
            skip = 0;
            left -= part.count();
            let entry = Item { index, content: Content::Events(part) };
            index = entry.last().next();
            entries.push(entry);
        }
        (left == 0).then_some(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::OriginId;
    use crate::position::Epoch;
    use crate::run::Run;
    use crate::sealed::Sealed;
    use crate::testing::sealed;

    fn run(first: u64, count: u64) -> UpItem {
        let events: Vec<Sealed> = (first..first + count).map(|seq| sealed(1, seq)).collect();
        UpItem::Events(Run::collect(events.iter().map(Sealed::as_ref)).expect("some events"))
    }

    fn batch(items: Vec<UpItem>) -> UpBatch {
        let (base, first) = (1.into(), 1.into());
        UpBatch { origin: OriginId(1), run: 1, base, first, wants_disk: false, items }
    }

    fn entry_ref(index: u64, batch: u64, skip: u64, count: u32) -> EntryRef {
        EntryRef { index: index.into(), batch, skip, count }
    }

    /// Indices and sequences.
    fn found(kept: &mut SentBatches, entry_ref: &EntryRef) -> Option<Vec<(u64, u64)>> {
        let entries = kept.entries(entry_ref)?;
        let events = entries.iter().flat_map(|item| {
            let Content::Events(run) = &item.content else { panic!("no events") };
            run.iter().zip(item.index.get()..).map(|(event, index)| (index, event.id().seq.get()))
        });
        Some(events.collect())
    }

    #[test]
    fn an_echo_stands_for_what_was_sent() {
        let fork = UpItem::Fork { epoch: Epoch::ZERO, until: 1.into(), re_proposed: false };
        let mut kept = SentBatches::default();
        kept.push(&batch(vec![run(1, 3)]));
        assert_eq!(kept.bytes(), 0, "no child wants it yet");
        kept.begin(5);
        kept.push(&batch(vec![run(10, 3), fork, run(20, 2), run(30, 2)]));
        kept.push(&batch(vec![run(40, 1)]));
        assert_eq!(found(&mut kept, &entry_ref(7, 5, 1, 2)), Some(vec![(7, 11), (8, 12)]));
        let rest = vec![(9, 20), (10, 21), (11, 30)];
        assert_eq!(found(&mut kept, &entry_ref(9, 5, 4, 3)), Some(rest));
        assert_eq!(found(&mut kept, &entry_ref(12, 6, 0, 1)), Some(vec![(12, 40)]));
        assert_eq!(kept.batches.len(), 1, "those before are not needed any more");
        kept.forget_before(7);
        assert_eq!((kept.bytes(), kept.from()), (0, Some(5)));
    }

    #[test]
    fn an_echo_of_what_was_not_sent_is_none() {
        let fork = UpItem::Fork { epoch: Epoch::ZERO, until: 1.into(), re_proposed: false };
        let mut kept = SentBatches::default();
        kept.begin(2);
        kept.push(&batch(vec![run(10, 3), fork]));
        let wrong = [
            entry_ref(1, 2, 0, 4),
            entry_ref(1, 2, 1, 3),
            entry_ref(1, 2, u64::MAX, 1),
            entry_ref(1, 2, 4, 1),
            entry_ref(1, 1, 0, 1),
            entry_ref(1, 3, 0, 1),
        ];
        for entry_ref in wrong {
            assert_eq!(found(&mut kept, &entry_ref), None, "{entry_ref:?}");
        }
    }

    #[test]
    fn entry_references_go_out_once_and_so_do_batches_without_entries() {
        let mut entry_refs = FollowerEntries::default();
        assert!(!entry_refs.wants(1), "nothing is kept at the other end");
        entry_refs.begin(Some(3));
        entry_refs.begin(Some(9));
        assert!(!entry_refs.wants(2) && entry_refs.wants(3));
        assert!(!entry_refs.on_batch(3, vec![entry_ref(5, 3, 0, 2), entry_ref(9, 3, 2, 1)]));
        assert_eq!(entry_refs.behind(4.into()), Some(&entry_ref(5, 3, 0, 2)));
        assert_eq!(entry_refs.behind(6.into()), Some(&entry_ref(9, 3, 2, 1)));
        assert_eq!(entry_refs.behind(9.into()), None);
        assert!(entry_refs.on_batch(4, Vec::new()) && entry_refs.is_due());
        assert_eq!(entry_refs.all_sent(), 4);
        assert!(!entry_refs.is_due());
    }
}
