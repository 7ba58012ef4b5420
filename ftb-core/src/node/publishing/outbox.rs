//! The events of an agent's own clients on their way to the acting root: kept until confirmed, and
//! a while longer, sent again when the way up has changed.

use crate::epochs::EpochHistory;
use crate::frame::{UpBatch, UpItem};
use crate::ident::{EventId, OriginId};
use crate::log::entries::partition_point_from_end;
use crate::numbers::{LogIndex, OriginSeq};
use crate::position::{Epoch, Position};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
struct OutboxItem {
    /// Its first sequence.
    first: OriginSeq,
    item: UpItem,
    /// Where it is in the log at the latest, and since when that is known.
    confirmed: Option<(Position, u64)>,
    /// Its publisher wants it on disk, and it is not settled.
    wants_disk: bool,
}

/// Items with dense sequences. From the front: confirmed ones in their grace time, sent ones, and
/// ones to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    items: VecDeque<OutboxItem>,
    /// The sequence that comes after all of them.
    next: OriginSeq,
    /// Everything up to here is confirmed.
    confirmed: OriginSeq,
    /// Everything up to here was sent in this run.
    sent: OriginSeq,
    run: u64,
    base: OriginSeq,
    waiting_bytes: usize,
    grace_bytes: usize,
    /// Bytes of what is confirmed and not settled.
    unsettled_bytes: usize,
    /// The last sequences of confirmed items that are not settled, and since when.
    unsettled: VecDeque<(OriginSeq, u64)>,
}

/// A log that has lost.
pub(crate) struct LosingLog {
    /// What it has after the fork.
    pub(crate) items: Vec<UpItem>,
    /// It has all that waits here, and all that was confirmed here, but for the hole.
    pub(crate) has_all: bool,
    /// Up to this index it has only what passed by: what was confirmed there may be in no log.
    pub(crate) hole_until: LogIndex,
}

impl OutboxItem {
    fn last(&self) -> OriginSeq {
        (self.first + self.item.count() as u64).before()
    }
}

/// How many sequences lie before `seq` from `first` on.
fn place(seq: OriginSeq, first: OriginSeq) -> usize {
    usize::try_from(seq - first).unwrap_or(usize::MAX)
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            next: OriginSeq::default().next(),
            confirmed: OriginSeq::default(),
            sent: OriginSeq::default(),
            run: 1,
            base: OriginSeq::default().next(),
            waiting_bytes: 0,
            grace_bytes: 0,
            unsettled_bytes: 0,
            unsettled: VecDeque::new(),
        }
    }

    /// Bytes of what is not confirmed at the level that its publisher wants.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.unsettled_bytes
    }

    /// Bytes of everything that is kept.
    pub(super) fn bytes(&self) -> usize {
        self.waiting_bytes() + self.grace_bytes
    }

    /// Whether something is to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.last()
    }

    fn last(&self) -> OriginSeq {
        self.next.before()
    }

    /// The place of the item that has a sequence.
    fn at(&self, seq: OriginSeq) -> usize {
        partition_point_from_end(&self.items, |kept| kept.last() < seq)
    }

    /// Cuts the item that has a sequence behind it, so that an item ends there.
    fn split_after(&mut self, seq: OriginSeq) {
        let at = self.at(seq);
        let Some(kept) = self.items.get_mut(at) else { return };
        let count = place(seq.next(), kept.first);
        if let (Some(front), Some(rest)) = (kept.item.front(count), kept.item.behind(count)) {
            let rest = OutboxItem { first: seq.next(), item: rest, ..kept.clone() };
            kept.item = front;
            self.items.insert(at + 1, rest);
        }
    }

    pub(super) fn push(&mut self, item: UpItem) {
        self.push_wanted(item, false);
    }

    /// Adds an item that is kept until it is settled, if its publisher wants it on disk.
    pub(super) fn push_wanted(&mut self, item: UpItem, wants_disk: bool) {
        self.waiting_bytes += item.len();
        let first = self.next;
        self.next = self.next + item.count() as u64;
        self.items.push_back(OutboxItem { first, item, confirmed: None, wants_disk });
    }

    /// Begins a new run: everything that is not confirmed is sent again, and a copy of what is not
    /// settled. The acting root drops the copies, and says when they are on disk.
    pub(super) fn rewind(&mut self) {
        for item in self.take_unsettled(None) {
            self.push_wanted(item, true);
        }
        self.run += 1;
        self.sent = self.confirmed;
        self.base = self.confirmed.next();
    }

    /// The run that is being sent.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// Takes the next items to be sent, at least one if there is one.
    pub(super) fn take(
        &mut self,
        origin: OriginId,
        bytes_max: usize,
        items_max: usize,
    ) -> Option<UpBatch> {
        if !self.has_unsent() {
            return None;
        }
        let first = self.sent.next();
        let (bytes_max, items_max) = (bytes_max.max(1), items_max.max(1));
        let mut items = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        let mut wants_disk = false;
        for kept in self.items.range(self.at(first)..) {
            let Some(item) = kept.item.behind(place(first, kept.first)) else { continue };
            let fits = match &item {
                UpItem::Events(run) => run.fitting(bytes_max - bytes, items_max - count),
                UpItem::Gap(_) | UpItem::Loss(_) | UpItem::Fork { .. } => 1,
            };
            let part = item.front(fits).filter(|part| count + part.count() <= items_max);
            let Some(part) = part else { break };
            bytes += part.len();
            count += part.count();
            let all = part.count() == item.count();
            wants_disk |= kept.wants_disk;
            items.push(part);
            if !all || count >= items_max || bytes >= bytes_max {
                break;
            }
        }
        self.sent = self.sent + count as u64;
        Some(UpBatch { origin, run: self.run, base: self.base, first, wants_disk, items })
    }

    /// Everything up to `seq` is held by acting root and standby. Gives the last sequence of each
    /// publisher's events in a row that this is news for, in order.
    pub(super) fn confirm(
        &mut self,
        seq: OriginSeq,
        position: Position,
        now_ns: u64,
    ) -> Vec<EventId> {
        let seq = seq.min(self.sent);
        let mut ids = Vec::new();
        if seq <= self.confirmed {
            return ids;
        }
        self.split_after(seq);
        let from = self.at(self.confirmed.next());
        self.confirmed = seq;
        for kept in self.items.range_mut(from..) {
            if kept.first > seq {
                break;
            }
            kept.confirmed = Some((position, now_ns));
            self.waiting_bytes -= kept.item.len();
            if kept.wants_disk {
                self.unsettled_bytes += kept.item.len();
                self.unsettled.push_back((kept.last(), now_ns));
            } else {
                self.grace_bytes += kept.item.len();
            }
            if let UpItem::Events(run) = &kept.item {
                ids.extend(
                    run.stretches().map(|s| EventId { publisher: s.publisher, seq: s.last }),
                );
            }
        }
        ids
    }

    /// The log has another epoch history. Confirmed items that may be missing in it are unconfirmed
    /// again, with all items behind them. Only the memory of a root knows which epochs it waits
    /// for: the next root gets these items again. Says whether any item changed.
    pub(super) fn requeue(&mut self, epochs: &EpochHistory) -> bool {
        let lost = self
            .items
            .iter()
            .position(|kept| kept.confirmed.is_some_and(|(position, _)| !epochs.keeps(position)));
        if let Some(lost) = lost {
            let first = self.items.get(lost).map_or(self.next, |kept| kept.first);
            for kept in self.items.range_mut(lost..) {
                if kept.confirmed.take().is_some() {
                    match kept.wants_disk {
                        true => self.unsettled_bytes -= kept.item.len(),
                        false => self.grace_bytes -= kept.item.len(),
                    }
                    self.waiting_bytes += kept.item.len();
                }
            }
            self.unsettled.retain(|(last, _)| *last < first);
            self.confirmed = first.before();
        }
        let forks = self.forks_of_other_epochs(epochs.head());
        let any = lost.is_some() || !forks.is_empty();
        forks.into_iter().for_each(|fork| self.push(fork));
        any
    }

    /// What is kept of forks and was confirmed in other epochs only, each once, in order.
    fn forks_of_other_epochs(&self, head: Epoch) -> Vec<UpItem> {
        let mut furthest: BTreeMap<(Epoch, bool), (LogIndex, bool)> = BTreeMap::new();
        for kept in &self.items {
            let UpItem::Fork { epoch, until, re_proposed } = kept.item else { continue };
            let said = kept.confirmed.is_none_or(|(position, _)| position.epoch == head);
            let known = furthest.entry((epoch, re_proposed)).or_insert((until, said));
            *known = (known.0.max(until), known.1 || said);
        }
        let unsaid = furthest.into_iter().filter(|(_, (_, said))| !said);
        unsaid
            .map(|((epoch, re_proposed), (until, _))| UpItem::Fork { epoch, until, re_proposed })
            .collect()
    }

    /// Whether an event is kept, confirmed or not.
    pub(super) fn holds(&self, id: EventId) -> bool {
        self.items.iter().any(|kept| match &kept.item {
            UpItem::Events(run) => run.holds(id),
            UpItem::Gap(_) | UpItem::Loss(_) | UpItem::Fork { .. } => false,
        })
    }

    /// Forgets confirmed items whose grace time is over, or that are more than the bound.
    pub(super) fn expire(&mut self, before_ns: u64, bytes_max: usize) {
        while let Some(OutboxItem {
            item, confirmed: Some((_, since)), wants_disk: false, ..
        }) = self.items.front()
        {
            if *since > before_ns && self.grace_bytes <= bytes_max {
                break;
            }
            self.grace_bytes -= item.len();
            self.items.pop_front();
        }
    }

    /// When the oldest item that is kept for its grace time was confirmed.
    pub(super) fn oldest_confirmed_ns(&self) -> Option<u64> {
        let oldest = self.items.front().filter(|kept| !kept.wants_disk)?;
        oldest.confirmed.map(|(_, since)| since)
    }

    /// Since when the oldest confirmed item waits to be settled.
    pub(super) fn oldest_unsettled_ns(&self) -> Option<u64> {
        self.unsettled.front().map(|(_, since)| *since)
    }

    /// The last item that was confirmed at that time or before, and is not settled.
    pub(super) fn unsettled_since(&self, before_ns: u64) -> Option<OriginSeq> {
        let due = self.unsettled.iter().take_while(|(_, since)| *since <= before_ns);
        due.last().map(|(last, _)| *last)
    }

    /// Everything up to `seq` is settled: what is confirmed of it is kept for its grace time. Gives
    /// the last sequence of each publisher's events in a row that this is news for, in order.
    pub(super) fn settle(&mut self, seq: OriginSeq) -> Vec<EventId> {
        let runs = self.take_unsettled(Some(seq)).into_iter();
        let stretches = runs.flat_map(|item| match item {
            UpItem::Events(run) => run.stretches().collect(),
            UpItem::Gap(_) | UpItem::Loss(_) | UpItem::Fork { .. } => Vec::new(),
        });
        stretches.map(|s| EventId { publisher: s.publisher, seq: s.last }).collect()
    }

    /// The confirmed items up to `until` that are not settled do not wait for that any more.
    fn take_unsettled(&mut self, until: Option<OriginSeq>) -> Vec<UpItem> {
        let until = until.map_or(self.confirmed, |until| until.min(self.confirmed).min(self.sent));
        let Some((oldest, _)) = self.unsettled.front() else { return Vec::new() };
        let from = self.at(*oldest);
        if self.items.get(from).is_none_or(|kept| kept.first > until) {
            return Vec::new();
        }
        self.split_after(until);
        let mut taken = Vec::new();
        for kept in self.items.range_mut(from..) {
            if kept.first > until {
                break;
            }
            if kept.confirmed.is_some() && std::mem::take(&mut kept.wants_disk) {
                self.unsettled_bytes -= kept.item.len();
                self.grace_bytes += kept.item.len();
                taken.push(kept.item.clone());
            }
        }
        while self.unsettled.front().is_some_and(|(last, _)| *last <= until) {
            self.unsettled.pop_front();
        }
        taken
    }

    /// Puts the items of a losing log before everything that waits: under new sequences, which are
    /// never used twice. What was confirmed and is in the winning log stays so.
    /// `wants_disk`: whether a publisher here waits until an item is on disk.
    pub(super) fn re_propose(
        &mut self,
        losing: LosingLog,
        winning: &EpochHistory,
        wants_disk: impl Fn(&UpItem) -> bool,
    ) {
        self.next = self.last().max(self.confirmed).next();
        self.waiting_bytes = 0;
        self.grace_bytes = 0;
        self.unsettled_bytes = 0;
        self.unsettled.clear();
        let mut old = std::mem::take(&mut self.items).into_iter().peekable();
        let safe = |kept: &OutboxItem| kept.confirmed.is_some_and(|(at, _)| winning.keeps(at));
        while let Some(kept) = old.next_if(safe) {
            let (bytes, since_ns) = (kept.item.len(), kept.confirmed.map_or(0, |(_, since)| since));
            self.push_wanted(kept.item, kept.wants_disk);
            self.waiting_bytes -= bytes;
            if kept.wants_disk {
                self.unsettled_bytes += bytes;
                self.unsettled.push_back((self.last(), since_ns));
            } else {
                self.grace_bytes += bytes;
            }
            if let Some(last) = self.items.back_mut() {
                last.confirmed = kept.confirmed;
            }
        }
        self.confirmed = self.last();
        self.sent = self.last();
        let in_hole =
            |kept: &OutboxItem| kept.confirmed.is_some_and(|(at, _)| at.index <= losing.hole_until);
        let (older, newer): (Vec<OutboxItem>, Vec<OutboxItem>) = old.partition(in_hole);
        let newer = newer.into_iter().filter(|_| !losing.has_all);
        let (older, newer) = (older.into_iter().map(|k| k.item), newer.map(|k| k.item));
        for item in older.chain(losing.items).chain(newer) {
            let wants_disk = wants_disk(&item);
            self.push_wanted(item, wants_disk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::sealed::Sealed;
    use crate::testing::sealed;

    fn epoch(number: u64) -> Epoch {
        Epoch { number, root: OriginId(number) }
    }

    fn at(number: u64, index: u64) -> Position {
        Position { epoch: epoch(number), index: index.into() }
    }

    fn filled(count: u64) -> Outbox {
        let mut outbox = Outbox::new();
        for seq in 1..=count {
            outbox.push(UpItem::Events(sealed(1, seq).into()));
        }
        outbox
    }

    fn run(first: u64, count: u64) -> UpItem {
        let events: Vec<Sealed> = (first..first + count).map(|seq| sealed(1, seq)).collect();
        UpItem::Events(Run::collect(events.iter().map(Sealed::as_ref)).expect("some events"))
    }

    /// First sequence and number of sequences.
    fn taken(batch: Option<UpBatch>) -> Option<(u64, usize)> {
        batch.map(|b| (b.first.get(), b.items.iter().map(UpItem::count).sum()))
    }

    #[test]
    fn what_is_not_confirmed_is_sent_again_in_order_in_a_new_run() {
        let mut outbox = filled(10);
        assert_eq!(
            outbox.take(OriginId(1), usize::MAX, 6).map(|b| (b.first.get(), b.items.len())),
            Some((1, 6))
        );
        assert_eq!(outbox.confirm(4.into(), at(1, 4), 0).last().map(|id| id.seq.get()), Some(4));
        outbox.rewind();
        let batch = outbox.take(OriginId(1), usize::MAX, 100);
        assert_eq!(
            batch.map(|b| (b.run, b.base.get(), b.first.get(), b.items.len())),
            Some((2, 5, 5, 6))
        );
        assert!(outbox.take(OriginId(1), usize::MAX, 100).is_none());
        assert_eq!(outbox.confirm(99.into(), at(1, 10), 0).last().map(|id| id.seq.get()), Some(10));
        assert_eq!(outbox.waiting_bytes(), 0);
    }

    #[test]
    fn a_run_is_sent_and_confirmed_in_parts() {
        let mut outbox = Outbox::new();
        outbox.push(run(1, 10));
        outbox.push(run(11, 10));
        let one = outbox.waiting_bytes() / 20;
        assert_eq!(taken(outbox.take(OriginId(1), usize::MAX, 4)), Some((1, 4)));
        assert_eq!(taken(outbox.take(OriginId(1), 8 * one, 100)), Some((5, 8)));
        assert_eq!(outbox.confirm(7.into(), at(1, 7), 0).last().map(|id| id.seq.get()), Some(7));
        assert_eq!((outbox.waiting_bytes(), outbox.grace_bytes), (13 * one, 7 * one));
        assert_eq!(
            outbox.confirm(15.into(), at(1, 9), 0).last().map(|id| id.seq.get()),
            Some(12),
            "only sent"
        );
        outbox.expire(100, usize::MAX);
        assert_eq!((outbox.waiting_bytes(), outbox.bytes()), (8 * one, 8 * one));
        outbox.rewind();
        assert_eq!(taken(outbox.take(OriginId(1), usize::MAX, 100)), Some((13, 8)));
        assert!(!outbox.requeue(&EpochHistory::new()), "what was confirmed has expired");
    }

    #[test]
    fn what_is_to_be_on_disk_is_kept_and_sent_again_until_it_is_settled() {
        let mut outbox = Outbox::new();
        for seq in 1..=4 {
            outbox.push_wanted(UpItem::Events(sealed(1, seq).into()), seq < 4);
        }
        let one = outbox.waiting_bytes() / 4;
        assert!(outbox.take(OriginId(1), usize::MAX, 3).is_some_and(|batch| batch.wants_disk));
        assert!(outbox.take(OriginId(1), usize::MAX, 3).is_some_and(|batch| !batch.wants_disk));
        assert!(outbox.settle(3.into()).is_empty(), "nothing is confirmed");
        outbox.confirm(4.into(), at(1, 4), 10);
        outbox.expire(100, 0);
        assert_eq!((outbox.waiting_bytes(), outbox.bytes()), (3 * one, 4 * one));
        assert_eq!((outbox.unsettled_since(9), outbox.unsettled_since(10)), (None, Some(3.into())));
        assert_eq!(outbox.settle(1.into()).last().map(|id| id.seq.get()), Some(1));
        outbox.expire(100, 0);
        assert_eq!((outbox.waiting_bytes(), outbox.bytes()), (2 * one, 3 * one));
        outbox.rewind();
        assert_eq!(taken(outbox.take(OriginId(1), usize::MAX, 9)), Some((5, 2)), "copies");
        outbox.confirm(6.into(), at(2, 4), 20);
        assert_eq!(outbox.settle(6.into()).last().map(|id| id.seq.get()), Some(3));
        outbox.expire(100, 0);
        assert_eq!((outbox.waiting_bytes(), outbox.bytes()), (0, 0));
    }

    #[test]
    fn what_is_unsettled_in_a_lost_epoch_is_confirmed_and_settled_again() {
        let mut outbox = Outbox::new();
        (1..=2).for_each(|seq| outbox.push_wanted(UpItem::Events(sealed(1, seq).into()), true));
        outbox.take(OriginId(1), usize::MAX, 9);
        outbox.confirm(2.into(), at(2, 25), 10);
        let mut epochs = EpochHistory::new();
        epochs.open(epoch(1), 1.into(), false);
        epochs.open(epoch(3), 21.into(), false);
        assert!(outbox.requeue(&epochs));
        outbox.rewind();
        assert_eq!(outbox.oldest_unsettled_ns(), None);
        assert_eq!(taken(outbox.take(OriginId(1), usize::MAX, 9)), Some((1, 2)));
        outbox.confirm(2.into(), at(3, 30), 20);
        assert_eq!(outbox.settle(2.into()).len(), 2);
        assert_eq!(outbox.waiting_bytes(), 0);
    }

    #[test]
    fn events_confirmed_in_a_lost_epoch_are_requeued_while_they_are_kept() {
        let mut outbox = filled(6);
        outbox.take(OriginId(1), usize::MAX, 100);
        outbox.confirm(2.into(), at(1, 20), 100);
        outbox.confirm(5.into(), at(2, 25), 200);
        let mut epochs = EpochHistory::new();
        epochs.open(epoch(1), 1.into(), false);
        epochs.open(epoch(3), 21.into(), false);
        assert!(outbox.requeue(&epochs));
        outbox.rewind();
        assert_eq!(
            outbox.take(OriginId(1), usize::MAX, 100).map(|b| (b.first.get(), b.items.len())),
            Some((3, 4))
        );
        outbox.confirm(6.into(), at(3, 30), 300);
        assert!(!outbox.requeue(&epochs));
        outbox.expire(100, usize::MAX);
        assert_eq!(outbox.items.front().and_then(|kept| kept.confirmed), Some((at(3, 30), 300)));
        outbox.expire(100, 0);
        assert_eq!((outbox.grace_bytes, outbox.items.len()), (0, 0));
        outbox.push(UpItem::Events(sealed(1, 7).into()));
        assert_eq!(
            outbox.take(OriginId(1), 1, 1).map(|b| (b.first.get(), b.items.len())),
            Some((7, 1))
        );
    }

    #[test]
    fn a_handed_over_log_takes_the_place_of_what_it_holds() {
        let mut outbox = filled(4);
        outbox.take(OriginId(1), usize::MAX, 100);
        outbox.confirm(2.into(), at(1, 2), 0);
        let mut winning = EpochHistory::new();
        winning.open(epoch(1), 1.into(), false);
        winning.open(epoch(2), 2.into(), false);
        let of_another = |seqs: core::ops::RangeInclusive<u64>| {
            seqs.map(|seq| UpItem::Events(sealed(2, seq).into())).collect()
        };
        let losing = LosingLog { items: of_another(10..=12), has_all: true, hole_until: 2.into() };
        outbox.re_propose(losing, &winning, |_| false);
        outbox.rewind();
        let batch = outbox.take(OriginId(1), usize::MAX, 100);
        // Both that were confirmed at 2, which another epoch has given out and the losing log may
        // not have, and the three.
        assert_eq!(batch.map(|b| (b.base.get(), b.first.get(), b.items.len())), Some((5, 5, 5)));
        outbox.confirm(9.into(), at(2, 9), 0);
        outbox.push(UpItem::Events(sealed(1, 5).into()));
        let losing = LosingLog { items: of_another(13..=13), has_all: false, hole_until: 0.into() };
        outbox.re_propose(losing, &winning, |_| false);
        outbox.rewind();
        let batch = outbox.take(OriginId(1), usize::MAX, 100);
        // Those five are safe, and kept under new sequences.
        assert_eq!(batch.map(|b| (b.base.get(), b.first.get(), b.items.len())), Some((16, 16, 2)));
        assert_eq!(outbox.items.len(), 7);
    }

    #[test]
    fn the_next_root_learns_again_which_epochs_are_pending() {
        let fork = |until, re_proposed| UpItem::Fork { epoch: epoch(1), until, re_proposed };
        let mut outbox = filled(1);
        outbox.push(fork(5.into(), false));
        outbox.push(fork(7.into(), false));
        outbox.take(OriginId(1), usize::MAX, 100);
        outbox.confirm(3.into(), at(2, 20), 100);
        let mut epochs = EpochHistory::new();
        epochs.open(epoch(2), 1.into(), false);
        assert!(!outbox.requeue(&epochs), "the root that has it goes on");
        epochs.open(epoch(3), 21.into(), false);
        assert!(outbox.requeue(&epochs));
        let batch = outbox.take(OriginId(1), usize::MAX, 100).expect("it is said again");
        assert_eq!((batch.first.get(), batch.items), (4, vec![fork(7.into(), false)]));
        assert!(!outbox.requeue(&epochs), "it is on its way");
        outbox.confirm(4.into(), at(3, 21), 200);
        assert!(!outbox.requeue(&epochs), "that root has it");
        outbox.expire(200, usize::MAX);
        epochs.open(epoch(4), 22.into(), false);
        assert!(!outbox.requeue(&epochs), "its grace time is over");
    }
}
