//! The queue of publishers that wait for room in the buffer.
//!
//! A publisher that finds room takes it, in any order, and all waiting publishers look again when
//! room comes. At most one buffer's worth may overtake the head of the queue. Then it is the head's
//! turn and the others wait, so that small requests cannot starve a large one.
//!
//! Publishing that never waits bypasses the queue and may take all new room. The turn of the head
//! is blocked when everything that the buffer held at its start is gone and there is still no room.
//! Then the others may overtake again.
//!
//! No I/O, no clock.

use std::collections::VecDeque;

/// The publishers that wait for room in the buffer of one client. Bound: the program's futures.
#[derive(Debug)]
pub(crate) struct FairQueue {
    next: Ticket,
    /// Tickets in rising order, with the cost of each in bytes.
    waiting: VecDeque<(Ticket, usize)>,
    bytes_max: usize,
    /// Bytes that overtook the head since it is the head, or since its last turn was blocked.
    overtaking_bytes: usize,
    /// During the head's turn: bytes that bypassed the queue.
    bypassed_bytes: Option<usize>,
    /// A publisher did not enter because of the head's turn.
    others_wait: bool,
}

/// Names a waiting publisher.
pub(crate) type Ticket = u64;

impl FairQueue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            next: 0,
            waiting: VecDeque::new(),
            bytes_max,
            overtaking_bytes: 0,
            bypassed_bytes: None,
            others_wait: false,
        }
    }

    /// Adds a publisher that needs `cost` bytes.
    pub(crate) fn enqueue(&mut self, cost: usize) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push_back((ticket, cost));
        ticket
    }

    /// Whether a publisher may enter now, if there is room for its `cost` in a buffer that holds
    /// `held` bytes. `ticket`: `None` for a publisher that has not waited.
    pub(crate) fn may_enter(&mut self, ticket: Option<Ticket>, cost: usize, held: usize) -> bool {
        let Some((first, needed)) = self.waiting.front() else { return true };
        if ticket == Some(*first) || self.overtaking_bytes + cost <= self.bytes_max {
            return true;
        }
        let bypassed_bytes = *self.bypassed_bytes.get_or_insert(0);
        // The buffer is sent in order: once as much bypassed as it holds, nothing of the start of
        // the turn is left. If there is room for the head all the same, it has not looked yet.
        let is_blocked = bypassed_bytes >= held && held > 0 && held + needed > self.bytes_max;
        if is_blocked {
            (self.overtaking_bytes, self.bypassed_bytes) = (0, None);
        }
        self.others_wait |= !is_blocked;
        is_blocked
    }

    /// A publication bypassed the queue.
    pub(crate) fn bypass(&mut self, cost: usize) {
        if let Some(bypassed_bytes) = &mut self.bypassed_bytes {
            *bypassed_bytes = bypassed_bytes.saturating_add(cost);
        }
    }

    /// A publisher entered. Returns whether others waited for its turn and must look again.
    pub(crate) fn entered(&mut self, ticket: Option<Ticket>, cost: usize) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.overtaking_bytes += cost;
        ticket.is_some_and(|ticket| self.leave(ticket))
    }

    /// A publisher leaves the queue. Returns whether others waited for its turn and must look
    /// again.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> bool {
        let Ok(index) = self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) else {
            return false;
        };
        self.waiting.remove(index);
        if index > 0 {
            return false;
        }
        (self.overtaking_bytes, self.bypassed_bytes) = (0, None);
        core::mem::take(&mut self.others_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_goes_before_each_first_one_than_the_buffer_holds() {
        let mut queue = FairQueue::new(100);
        assert!(queue.may_enter(None, 1000, 50), "the queue is empty");
        queue.entered(None, 1000);
        let tickets = [(); 3].map(|()| queue.enqueue(100));
        assert!(!queue.entered(None, 60));
        assert!(queue.may_enter(None, 40, 50) && queue.may_enter(Some(tickets[1]), 40, 50));
        assert!(!queue.may_enter(None, 41, 50) && !queue.may_enter(Some(tickets[1]), 41, 50));
        assert!(!queue.entered(Some(tickets[1]), 40), "it was not the first");
        assert!(!queue.may_enter(None, 1, 50) && !queue.may_enter(Some(tickets[2]), 1, 50));
        assert!(queue.may_enter(Some(tickets[0]), 1000, 50), "it is its turn");
        assert!(!queue.leave(tickets[1]) && !queue.may_enter(None, 1, 50), "it has gone already");
        assert!(queue.entered(Some(tickets[0]), 90), "others gave way to it");
        assert!(queue.may_enter(None, 100, 50));
        queue.entered(None, 100);
        assert!(!queue.leave(tickets[2]), "no other waited for it");
        assert!(queue.may_enter(None, 1000, 50), "the queue is empty");
    }

    #[test]
    fn a_turn_ends_when_only_what_stands_in_no_line_is_in_its_way() {
        let mut queue = FairQueue::new(100);
        let [first, other] = [80, 10].map(|cost| queue.enqueue(cost));
        let others = Some(other);
        queue.entered(None, 100);
        queue.bypass(1000);
        assert!(!queue.may_enter(others, 10, 50), "bytes before the turn do not count");
        queue.bypass(20);
        assert!(!queue.may_enter(others, 10, 30), "10 are left of what was there");
        assert!(!queue.may_enter(others, 10, 20), "there is room for the first");
        assert!(!queue.may_enter(others, 10, 0), "there is room for the first");
        queue.bypass(10);
        assert!(queue.may_enter(others, 10, 30), "it is blocked");
        assert!(!queue.entered(others, 10), "it was not the first");
        assert!(queue.may_enter(None, 90, 30) && !queue.may_enter(None, 91, 30), "the next turn");
        queue.bypass(20);
        assert!(!queue.may_enter(None, 91, 30), "it has just begun");
        queue.bypass(10);
        assert!(queue.may_enter(None, 91, 30), "it is blocked");
        assert!(queue.leave(first), "others gave way to it");
    }
}
