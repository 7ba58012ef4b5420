//! The events of an agent's own clients on their way to the acting root: kept until confirmed, and
//! a while longer, sent again when the way up has changed.

use crate::frame::UpItem;
use crate::ident::EventId;
use crate::lineage::Lineage;
use crate::position::Position;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
struct Kept {
    item: UpItem,
    /// Where it is in the log at the latest, and since when that is known.
    confirmed: Option<(Position, u64)>,
}

/// Items with dense sequences. From the front: confirmed ones in their grace time, sent ones, and
/// ones to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    items: VecDeque<Kept>,
    /// The sequence of the first item.
    front: u64,
    /// Everything up to here is confirmed.
    confirmed: u64,
    /// Everything up to here was sent in this run.
    sent: u64,
    run: u64,
    base: u64,
    waiting_bytes: usize,
    grace_bytes: usize,
}

/// What is to be sent next.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) run: u64,
    pub(super) base: u64,
    pub(super) first: u64,
    pub(super) items: Vec<UpItem>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            front: 1,
            confirmed: 0,
            sent: 0,
            run: 1,
            base: 1,
            waiting_bytes: 0,
            grace_bytes: 0,
        }
    }

    /// Bytes of what is not confirmed.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Bytes of everything that is kept.
    pub(super) fn bytes(&self) -> usize {
        self.waiting_bytes + self.grace_bytes
    }

    /// Whether something is to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.last()
    }

    fn last(&self) -> u64 {
        self.front + self.items.len() as u64 - 1
    }

    fn at(&self, seq: u64) -> usize {
        usize::try_from(seq - self.front).unwrap_or(usize::MAX)
    }

    pub(super) fn push(&mut self, item: UpItem) {
        self.waiting_bytes += item.len();
        self.items.push_back(Kept { item, confirmed: None });
    }

    /// Begins a new run: everything that is not confirmed is sent again.
    pub(super) fn rewind(&mut self) {
        self.run += 1;
        self.sent = self.confirmed;
        self.base = self.confirmed + 1;
    }

    /// The run that is being sent.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// Takes the next items to be sent, at least one if there is one.
    pub(super) fn take(&mut self, bytes_max: usize, items_max: usize) -> Option<Batch> {
        if !self.has_unsent() {
            return None;
        }
        let first = self.sent + 1;
        let mut items = Vec::new();
        let mut bytes = 0;
        for kept in self.items.range(self.at(first)..) {
            if items.len() >= items_max || (bytes > 0 && bytes + kept.item.len() > bytes_max) {
                break;
            }
            bytes += kept.item.len();
            items.push(kept.item.clone());
        }
        self.sent += items.len() as u64;
        Some(Batch { run: self.run, base: self.base, first, items })
    }

    /// Everything up to `seq` is held by acting root and standby. Gives the ids that this is news
    /// for, in order.
    pub(super) fn confirm(&mut self, seq: u64, position: Position, now_ns: u64) -> Vec<EventId> {
        let seq = seq.min(self.sent);
        let mut ids = Vec::new();
        while self.confirmed < seq {
            self.confirmed += 1;
            let at = self.at(self.confirmed);
            let Some(kept) = self.items.get_mut(at) else { continue };
            kept.confirmed = Some((position, now_ns));
            self.waiting_bytes -= kept.item.len();
            self.grace_bytes += kept.item.len();
            if let UpItem::Event(sealed) = &kept.item {
                ids.push(sealed.id());
            }
        }
        ids
    }

    /// The log has another lineage now: what was confirmed in a reign that is no part of it is
    /// unconfirmed again, and so is everything behind it. Says whether there was such.
    pub(super) fn put_back(&mut self, lineage: &Lineage) -> bool {
        let lost = self.items.iter().position(|kept| {
            kept.confirmed.is_some_and(|(position, _)| !lineage.contains(position))
        });
        let Some(lost) = lost else { return false };
        for kept in self.items.range_mut(lost..) {
            if kept.confirmed.take().is_some() {
                self.grace_bytes -= kept.item.len();
                self.waiting_bytes += kept.item.len();
            }
        }
        self.confirmed = self.front + lost as u64 - 1;
        true
    }

    /// Forgets confirmed items whose grace time is over, or that are more than the bound.
    pub(super) fn expire(&mut self, before_ns: u64, bytes_max: usize) {
        while let Some(Kept { item, confirmed: Some((_, since)) }) = self.items.front() {
            if *since > before_ns && self.grace_bytes <= bytes_max {
                break;
            }
            self.grace_bytes -= item.len();
            self.items.pop_front();
            self.front += 1;
        }
    }

    /// Puts the items of a losing log before everything that waits: under new sequences, which are
    /// never used twice. `accepted`: what waits is in that log too, and is forgotten here.
    pub(super) fn hand_over(&mut self, items: impl Iterator<Item = UpItem>, accepted: bool) {
        let next = self.last().max(self.confirmed) + 1;
        let old = std::mem::take(&mut self.items);
        let waiting = old.into_iter().filter(|kept| kept.confirmed.is_none() && !accepted);
        self.front = next;
        self.confirmed = next - 1;
        self.sent = next - 1;
        self.waiting_bytes = 0;
        self.grace_bytes = 0;
        for item in items.chain(waiting.map(|kept| kept.item)) {
            self.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::sealed;
    use super::*;
    use crate::ident::OriginId;
    use crate::position::Epoch;

    fn epoch(number: u64) -> Epoch {
        Epoch { number, root: OriginId(number) }
    }

    fn at(number: u64, index: u64) -> Position {
        Position { epoch: epoch(number), index }
    }

    fn filled(count: u64) -> Outbox {
        let mut outbox = Outbox::new();
        for seq in 1..=count {
            outbox.push(UpItem::Event(sealed(1, seq)));
        }
        outbox
    }

    #[test]
    fn what_is_not_confirmed_is_sent_again_in_order_in_a_new_run() {
        let mut outbox = filled(10);
        assert_eq!(outbox.take(usize::MAX, 6).map(|b| (b.first, b.items.len())), Some((1, 6)));
        assert_eq!(outbox.confirm(4, at(1, 4), 0).len(), 4);
        outbox.rewind();
        let batch = outbox.take(usize::MAX, 100);
        assert_eq!(batch.map(|b| (b.run, b.base, b.first, b.items.len())), Some((2, 5, 5, 6)));
        assert!(outbox.take(usize::MAX, 100).is_none());
        assert_eq!(outbox.confirm(99, at(1, 10), 0).len(), 6);
        assert_eq!(outbox.waiting_bytes(), 0);
    }

    #[test]
    fn what_a_lost_reign_confirmed_is_put_back_while_it_is_kept() {
        let mut outbox = filled(6);
        outbox.take(usize::MAX, 100);
        outbox.confirm(2, at(1, 20), 100);
        outbox.confirm(5, at(2, 25), 200);
        let mut lineage = Lineage::new();
        lineage.open(epoch(1), 1);
        lineage.open(epoch(3), 21);
        assert!(outbox.put_back(&lineage));
        outbox.rewind();
        assert_eq!(outbox.take(usize::MAX, 100).map(|b| (b.first, b.items.len())), Some((3, 4)));
        outbox.confirm(6, at(3, 30), 300);
        assert!(!outbox.put_back(&lineage));
        outbox.expire(100, usize::MAX);
        assert_eq!(outbox.items.front().and_then(|kept| kept.confirmed), Some((at(3, 30), 300)));
        outbox.expire(100, 0);
        assert_eq!((outbox.grace_bytes, outbox.items.len()), (0, 0));
        outbox.push(UpItem::Event(sealed(1, 7)));
        assert_eq!(outbox.take(1, 1).map(|b| (b.first, b.items.len())), Some((7, 1)));
    }

    #[test]
    fn a_handed_over_log_takes_the_place_of_what_it_holds() {
        let mut outbox = filled(4);
        outbox.take(usize::MAX, 100);
        outbox.confirm(2, at(1, 2), 0);
        outbox.hand_over((10..=12).map(|seq| UpItem::Event(sealed(2, seq))), true);
        outbox.rewind();
        let batch = outbox.take(usize::MAX, 100);
        assert_eq!(batch.map(|b| (b.base, b.first, b.items.len())), Some((5, 5, 3)));
        outbox.push(UpItem::Event(sealed(1, 5)));
        outbox.hand_over((13..=13).map(|seq| UpItem::Event(sealed(2, seq))), false);
        outbox.rewind();
        let batch = outbox.take(usize::MAX, 100);
        assert_eq!(batch.map(|b| (b.first, b.items.len())), Some((9, 5)));
    }
}
