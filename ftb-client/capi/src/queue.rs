//! The polling queue of one client, shared by all its polling subscriptions.
//!
//! The queue numbers its events. A subscription that polls passes the number behind the last event
//! that it looked at, so it looks at each event once, however many events of other subscriptions
//! lie before it. A full queue drops the oldest of its mildest events: INFO before WARNING before
//! ERROR before FATAL. No I/O, no clock.

use crate::abi::ReceiveEvent;
use ftb_client::Severity;
use std::collections::VecDeque;

/// Bytes of the events that a polling queue holds when the program asks for no length.
pub(crate) const QUEUE_BYTES_DEFAULT: usize = 16 * 1024 * 1024;
/// Bytes of the events that the longest polling queue holds; a longer wish is cut to it.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that an event takes in a queue: itself, and its two tickets.
pub(crate) const EVENT_BYTES: usize = size_of::<Slot>() + 2 * size_of::<Ticket>();
/// An emptied queue keeps the memory of this many events.
const KEPT_EVENTS: usize = 1024;
/// Shorter lists are not searched for tickets of events that have left.
const STALE_TICKETS_MIN: usize = 64;

/// Names an event of a queue, also after the event has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket {
    number: u64,
    slot: u32,
}

struct Slot {
    /// `None`: free.
    number: Option<u64>,
    severity: Severity,
    event: ReceiveEvent,
}

/// Where the events are.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
}

impl Slots {
    fn get(&self, ticket: Ticket) -> Option<&Slot> {
        let slot = self.slots.get(ticket.slot as usize)?;
        (slot.number == Some(ticket.number)).then_some(slot)
    }

    /// Copies an event into a free slot; returns the slot.
    fn put(&mut self, number: u64, severity: Severity, event: &ReceiveEvent) -> u32 {
        self.len += 1;
        let Some(free) = self.free.pop() else {
            self.slots.push(Slot { number: Some(number), severity, event: *event });
            return self.slots.len() as u32 - 1;
        };
        let slot = &mut self.slots[free as usize];
        (slot.number, slot.severity, slot.event) = (Some(number), severity, *event);
        free
    }

    fn free(&mut self, ticket: Ticket) {
        self.slots[ticket.slot as usize].number = None;
        self.free.push(ticket.slot);
        self.len -= 1;
    }
}

/// Tickets, oldest event first. Those of events that have left are removed later.
#[derive(Debug, Default)]
struct Tickets(VecDeque<Ticket>);

impl Tickets {
    fn push(&mut self, ticket: Ticket, slots: &Slots) {
        if self.0.len() >= STALE_TICKETS_MIN.max(2 * slots.len) {
            self.0.retain(|ticket| slots.get(*ticket).is_some());
        }
        self.0.push_back(ticket);
    }

    /// The ticket of the oldest event that is still in the queue.
    fn first(&mut self, slots: &Slots) -> Option<Ticket> {
        while let Some(first) = self.0.front().copied() {
            if slots.get(first).is_some() {
                return Some(first);
            }
            self.0.pop_front();
        }
        None
    }
}

pub(crate) struct PollQueue {
    slots: Slots,
    next_number: u64,
    in_order: Tickets,
    /// Mildest first.
    by_severity: [Tickets; 4],
    events_max: usize,
}

impl PollQueue {
    /// A queue for that many events, or, without a number, for [`QUEUE_BYTES_DEFAULT`].
    pub(crate) fn new(events_max: Option<usize>) -> Self {
        let events_max = events_max.unwrap_or(QUEUE_BYTES_DEFAULT / EVENT_BYTES);
        Self {
            slots: Slots::default(),
            next_number: 0,
            in_order: Tickets::default(),
            by_severity: Default::default(),
            events_max: events_max.clamp(1, QUEUE_BYTES_MAX / EVENT_BYTES),
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len
    }

    /// Adds an event. A full queue drops the oldest of its mildest events; if all are worse than
    /// the new event, it drops that one. Returns what it dropped.
    pub(crate) fn push(
        &mut self,
        event: &ReceiveEvent,
        severity: Severity,
    ) -> Option<(ReceiveEvent, Severity)> {
        let mut dropped = None;
        if self.slots.len >= self.events_max {
            let slots = &self.slots;
            let mildest = self.by_severity.iter_mut().find_map(|tickets| tickets.first(slots))?;
            let slot = self.slots.get(mildest)?;
            if slot.severity > severity {
                return Some((*event, severity));
            }
            dropped = Some((slot.event, slot.severity));
            self.slots.free(mildest);
        }
        let number = self.next_number;
        self.next_number += 1;
        let slot = self.slots.put(number, severity, event);
        let ticket = Ticket { number, slot };
        self.in_order.push(ticket, &self.slots);
        self.by_severity[class(severity)].push(ticket, &self.slots);
        dropped
    }

    /// Takes the oldest event whose number is at least `*from` and which `wants` accepts, and hands
    /// it to `take`. Moves `from` behind it, or behind all events if there is none.
    pub(crate) fn take_first<T>(
        &mut self,
        from: &mut u64,
        wants: impl Fn(&ReceiveEvent) -> bool,
        take: impl FnOnce(&ReceiveEvent) -> T,
    ) -> Option<T> {
        self.in_order.first(&self.slots);
        let tickets = &self.in_order.0;
        let begin = tickets.partition_point(|ticket| ticket.number < *from);
        let found = tickets.range(begin..).find_map(|ticket| {
            let slot = self.slots.get(*ticket).filter(|slot| wants(&slot.event))?;
            Some((*ticket, slot))
        });
        let Some((ticket, slot)) = found else {
            *from = self.next_number;
            return None;
        };
        *from = ticket.number + 1;
        let taken = take(&slot.event);
        self.slots.free(ticket);
        if self.slots.len == 0 && self.slots.slots.len() > KEPT_EVENTS {
            self.clear();
        }
        Some(taken)
    }

    /// Keeps the events that `wanted` accepts.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&ReceiveEvent) -> bool) {
        for ticket in &self.in_order.0 {
            if self.slots.get(*ticket).is_some_and(|slot| !wanted(&slot.event)) {
                self.slots.free(*ticket);
            }
        }
        if self.slots.len == 0 {
            self.clear();
        }
    }

    /// Removes all events, and gives their memory back.
    pub(crate) fn clear(&mut self) {
        self.slots = Slots::default();
        self.in_order = Tickets::default();
        self.by_severity = Default::default();
    }
}

/// The place of a severity among four, mildest first.
fn class(severity: Severity) -> usize {
    Severity::ALL.iter().position(|known| *known == severity).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::convert::tests::event;
    use crate::text::bounded;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn push(queue: &mut PollQueue, name: &str, severity: Severity) -> Option<(String, Severity)> {
        let dropped = queue.push(&event("a.b.c", name, severity.as_str()), severity);
        dropped.map(|(event, severity)| (self::name(&event), severity))
    }

    fn name(event: &ReceiveEvent) -> String {
        String::from_utf8_lossy(bounded(&event.event_name)).into_owned()
    }

    fn take(queue: &mut PollQueue, from: &mut u64) -> Option<String> {
        queue.take_first(from, |_| true, name)
    }

    #[test]
    fn a_full_queue_drops_its_oldest_mildest_event() {
        let mut queue = PollQueue::new(Some(3));
        for (text, severity) in
            [("f", Severity::Fatal), ("i1", Severity::Info), ("i2", Severity::Info)]
        {
            assert_eq!(push(&mut queue, text, severity), None);
        }
        for (pushed, severity, dropped, of) in [
            ("i3", Severity::Info, "i1", Severity::Info),
            ("e", Severity::Error, "i2", Severity::Info),
            ("w", Severity::Warning, "i3", Severity::Info),
            ("i4", Severity::Info, "i4", Severity::Info),
            ("f2", Severity::Fatal, "w", Severity::Warning),
        ] {
            assert_eq!(push(&mut queue, pushed, severity), Some((dropped.to_owned(), of)));
        }
        let mut from = 0;
        let left: Vec<_> = std::iter::from_fn(|| take(&mut queue, &mut from)).collect();
        assert_eq!(left, ["f", "e", "f2"]);
    }

    #[test]
    fn the_default_bound_is_in_bytes_and_memory_is_given_back() {
        let mut queue = PollQueue::new(None);
        let events_max = QUEUE_BYTES_DEFAULT / EVENT_BYTES;
        assert!(events_max > 20_000, "{events_max}");
        for _ in 0..events_max {
            assert!(push(&mut queue, "x", Severity::Info).is_none());
        }
        assert!(push(&mut queue, "x", Severity::Info).is_some());
        assert_eq!(queue.len(), events_max);
        let mut from = 0;
        while take(&mut queue, &mut from).is_some() {}
        assert_eq!((queue.len(), queue.slots.slots.capacity()), (0, 0));
        assert!(PollQueue::new(Some(usize::MAX)).events_max * EVENT_BYTES <= QUEUE_BYTES_MAX);
    }

    #[test]
    fn a_subscription_looks_at_each_event_once() {
        let mut queue = PollQueue::new(None);
        for number in 0..1000 {
            push(&mut queue, if number % 2 == 0 { "EVEN" } else { "ODD" }, Severity::Info);
        }
        let looks = std::cell::Cell::new(0);
        let odd = |event: &ReceiveEvent| {
            looks.set(looks.get() + 1);
            bounded(&event.event_name) == b"ODD"
        };
        let mut from = 0;
        while queue.take_first(&mut from, odd, |_| ()).is_some() {}
        for _ in 0..10 {
            assert!(queue.take_first(&mut from, odd, |_| ()).is_none());
        }
        assert_eq!((looks.get(), queue.len()), (1000, 500));
        push(&mut queue, "ODD", Severity::Info);
        assert!(queue.take_first(&mut from, odd, |_| ()).is_some());
    }

    #[test]
    fn tickets_of_events_that_left_do_not_pile_up() {
        let mut queue = PollQueue::new(None);
        push(&mut queue, "STAYS", Severity::Info);
        let mut from = 1;
        for _ in 0..10_000 {
            push(&mut queue, "x", Severity::Info);
            assert!(take(&mut queue, &mut from).is_some());
        }
        for tickets in [&queue.in_order, &queue.by_severity[0]] {
            assert!(tickets.0.len() <= STALE_TICKETS_MIN, "{}", tickets.0.len());
        }
    }

    proptest! {
        /// Against a map of all events: the bound holds, nothing leaves unless it was taken or
        /// dropped, and what is dropped is the oldest of the mildest.
        #[test]
        fn it_behaves_as_a_sorted_map(
            ops in proptest::collection::vec((any::<bool>(), 0..4_usize, 0..30_u64), 1..300),
        ) {
            let mut queue = PollQueue::new(Some(5));
            let mut model: BTreeMap<u64, Severity> = BTreeMap::new();
            let mut next = 0;
            for (is_push, class, number) in ops {
                if is_push {
                    let severity = Severity::ALL[class];
                    let mildest = model.iter().min_by_key(|(number, s)| (**s, **number));
                    let full = mildest.filter(|_| model.len() == 5).map(|(n, s)| (*n, *s));
                    let dropped = push(&mut queue, "x", severity).map(|(_, severity)| severity);
                    prop_assert_eq!(dropped, full.map(|(_, mildest)| mildest.min(severity)));
                    if let Some((number, _)) = full.filter(|(_, mildest)| *mildest <= severity) {
                        model.remove(&number);
                    }
                    if full.is_none_or(|(_, mildest)| mildest <= severity) {
                        model.insert(next, severity);
                        next += 1;
                    }
                } else {
                    let expected = model.range(number..).next().map(|(number, _)| *number);
                    let mut from = number;
                    let taken = queue.take_first(&mut from, |_| true, |_| ());
                    prop_assert_eq!(taken.map(|()| from - 1), expected);
                    if let Some(expected) = expected {
                        model.remove(&expected);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
