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
/// Bytes that an event takes in a queue.
pub(crate) const EVENT_BYTES: usize = size_of::<Slot>();
/// An emptied lane keeps the memory of this many events.
const KEPT_EVENTS: usize = 1024;
/// Shorter lanes keep the slots of events that have left.
const EMPTY_SLOTS_MIN: usize = 64;

struct Slot {
    number: u64,
    /// `None`: the event has left the queue.
    event: Option<ReceiveEvent>,
}

/// Events of one severity, oldest first. The first slot always has an event.
#[derive(Default)]
struct Lane {
    slots: VecDeque<Slot>,
    empty: usize,
}

impl Lane {
    fn len(&self) -> usize {
        self.slots.len() - self.empty
    }

    /// The place of the first slot with this number or a higher one.
    fn place_of(&self, number: u64) -> usize {
        match self.slots.front().is_none_or(|first| first.number >= number) {
            true => 0,
            false => self.slots.partition_point(|slot| slot.number < number),
        }
    }

    /// Takes the oldest event out.
    fn pop(&mut self) -> Option<ReceiveEvent> {
        let popped = self.slots.pop_front()?.event;
        self.tidy();
        popped
    }

    /// Removes the event of a slot.
    fn remove(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place) {
            slot.event = None;
            self.empty += 1;
            self.tidy();
        }
    }

    fn retain(&mut self, wanted: impl Fn(&ReceiveEvent) -> bool) {
        self.slots.retain(|slot| slot.event.as_ref().is_some_and(&wanted));
        self.empty = 0;
        self.tidy();
    }

    /// Removes empty slots at the front, and all if they are many. An emptied lane begins anew at
    /// the start of its memory, which the processor's cache still has.
    fn tidy(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.event.is_none()) {
            self.slots.pop_front();
            self.empty -= 1;
        }
        if self.empty > EMPTY_SLOTS_MIN.max(self.len()) {
            self.slots.retain(|slot| slot.event.is_some());
            self.empty = 0;
        }
        if self.slots.is_empty() {
            match self.slots.capacity() > 2 * KEPT_EVENTS {
                true => self.slots = VecDeque::new(),
                false => self.slots.clear(),
            }
        }
    }
}

pub(crate) struct PollQueue {
    /// Mildest first.
    lanes: [Lane; 4],
    next_number: u64,
    events_max: usize,
}

impl PollQueue {
    /// A queue for that many events, or, without a number, for [`QUEUE_BYTES_DEFAULT`].
    pub(crate) fn new(events_max: Option<usize>) -> Self {
        let events_max = events_max.unwrap_or(QUEUE_BYTES_DEFAULT / EVENT_BYTES);
        Self {
            lanes: Default::default(),
            next_number: 0,
            events_max: events_max.clamp(1, QUEUE_BYTES_MAX / EVENT_BYTES),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(Lane::len).sum()
    }

    /// Adds an event. A full queue drops the oldest of its mildest events; if all are worse than
    /// the new event, it drops that one. Returns what it dropped.
    pub(crate) fn push(
        &mut self,
        event: &ReceiveEvent,
        severity: Severity,
    ) -> Option<(ReceiveEvent, Severity)> {
        let class = class(severity);
        let mut dropped = None;
        if self.len() >= self.events_max {
            let mildest = self.lanes.iter().position(|lane| lane.len() > 0)?;
            if mildest > class {
                return Some((*event, severity));
            }
            dropped = self.lanes[mildest].pop().map(|event| (event, Severity::ALL[mildest]));
        }
        let slot = Slot { number: self.next_number, event: Some(*event) };
        self.next_number += 1;
        self.lanes[class].slots.push_back(slot);
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
        let mut places = self.lanes.each_ref().map(|lane| lane.place_of(*from));
        loop {
            let slots = (0..4).zip(&self.lanes).zip(&places);
            let slots =
                slots.filter_map(|((class, lane), place)| Some((class, lane.slots.get(*place)?)));
            let Some((class, slot)) = slots.min_by_key(|(_, slot)| slot.number) else {
                *from = self.next_number;
                return None;
            };
            if let Some(event) = slot.event.as_ref().filter(|event| wants(event)) {
                *from = slot.number + 1;
                let taken = take(event);
                self.lanes[class].remove(places[class]);
                return Some(taken);
            }
            places[class] += 1;
        }
    }

    /// Keeps the events that `wanted` accepts.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&ReceiveEvent) -> bool) {
        self.lanes.iter_mut().for_each(|lane| lane.retain(&wanted));
    }

    /// Removes all events, and gives their memory back.
    pub(crate) fn clear(&mut self) {
        self.lanes = Default::default();
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
        let capacity: usize = queue.lanes.iter().map(|lane| lane.slots.capacity()).sum();
        assert_eq!((queue.len(), capacity), (0, 0));
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
    fn slots_of_events_that_left_do_not_pile_up() {
        let mut queue = PollQueue::new(None);
        push(&mut queue, "STAYS", Severity::Info);
        let mut from = 1;
        for _ in 0..10_000 {
            push(&mut queue, "x", Severity::Info);
            assert!(take(&mut queue, &mut from).is_some());
        }
        let slots = queue.lanes[0].slots.len();
        assert!(slots <= EMPTY_SLOTS_MIN + 2, "{slots}");
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
