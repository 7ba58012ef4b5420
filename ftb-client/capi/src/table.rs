//! The subscriptions of one client, which of them gets an event, and its polling queue.
//!
//! Rules of the original: callbacks come before polling, and the first matching one in the order of
//! subscription gets the event alone; all polling subscriptions share one queue, which drops its
//! oldest event when it is full. No I/O, no clock.

use crate::abi::{Code, ReceiveEvent};
use crate::subscription::{Mask, coarse};
use std::collections::VecDeque;

/// Most subscriptions of one client.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1024;
/// Longest polling queue that a client gets, in events (some 60 MiB); a longer wish is cut to it.
pub(crate) const QUEUE_EVENTS_MAX: usize = 100_000;

#[derive(Debug)]
struct Entry<C> {
    number: u16,
    mask: Mask,
    /// `None`: it polls.
    callback: Option<C>,
}

/// Who gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Winner<C> {
    /// This callback, of the subscription with this number.
    Callback(u16, C),
    /// Whoever polls first.
    Poll,
    /// Nobody.
    None,
}

/// `C` is what a callback is.
#[derive(Debug)]
pub(crate) struct Table<C> {
    /// In the order of subscription.
    entries: Vec<Entry<C>>,
    last_number: u16,
    queue: VecDeque<Box<ReceiveEvent>>,
    queue_max: usize,
    dropped: u64,
}

impl<C: Copy> Table<C> {
    pub(crate) fn new(queue_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            last_number: 0,
            queue: VecDeque::new(),
            queue_max: queue_max.clamp(1, QUEUE_EVENTS_MAX),
            dropped: 0,
        }
    }

    /// A new subscription, behind all others. Its number is not that of one which is alive, and
    /// comes again only after all others have been used.
    pub(crate) fn add(&mut self, mask: Mask, callback: Option<C>) -> Result<u16, Code> {
        if self.entries.len() >= SUBSCRIPTIONS_MAX {
            return Err(Code::General);
        }
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            if self.last_number != 0 && !self.has(self.last_number) {
                break;
            }
        }
        self.entries.push(Entry { number: self.last_number, mask, callback });
        Ok(self.last_number)
    }

    pub(crate) fn has(&self, number: u16) -> bool {
        self.entries.iter().any(|entry| entry.number == number)
    }

    /// Takes a subscription out, and what nobody can poll any more. Whether it was there.
    pub(crate) fn remove(&mut self, number: u16) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.number != number);
        if self.entries.len() == before {
            return false;
        }
        let Self { entries, queue, .. } = self;
        queue.retain(|event| polled(entries, event));
        true
    }

    /// Whether nobody wants anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.queue.clear();
    }

    pub(crate) fn winner(&self, event: &ReceiveEvent) -> Winner<C> {
        let callbacks = self.entries.iter().filter_map(|entry| Some((entry, entry.callback?)));
        let first = callbacks.into_iter().find(|(entry, _)| entry.mask.matches(event));
        match first {
            Some((entry, callback)) => Winner::Callback(entry.number, callback),
            None if polled(&self.entries, event) => Winner::Poll,
            None => Winner::None,
        }
    }

    /// Queues an event for who polls. Gives how many were dropped so far, when one was dropped now.
    pub(crate) fn push(&mut self, event: Box<ReceiveEvent>) -> Option<u64> {
        let full = self.queue.len() >= self.queue_max;
        if full {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
        full.then_some(self.dropped)
    }

    /// The first queued event that this subscription wants.
    pub(crate) fn poll(&mut self, number: u16) -> Result<Box<ReceiveEvent>, Code> {
        let entry = self.entries.iter().find(|entry| entry.number == number);
        let entry = entry.ok_or(Code::InvalidHandle)?;
        let at = self.queue.iter().position(|event| entry.mask.matches(event));
        at.and_then(|at| self.queue.remove(at)).ok_or(Code::GotNoEvent)
    }

    /// The filter for the agent; `None` when nothing is wanted.
    pub(crate) fn filter(&self) -> Option<String> {
        let masks = self.entries.iter().map(|entry| &entry.mask);
        (!self.is_empty()).then(|| coarse(masks))
    }
}

fn polled<C>(entries: &[Entry<C>], event: &ReceiveEvent) -> bool {
    entries.iter().any(|entry| entry.callback.is_none() && entry.mask.matches(event))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::convert::tests::event;
    use crate::subscription::Matching;
    use crate::text::bounded;

    fn mask(string: &str) -> Mask {
        Mask::parse(string.as_bytes(), Matching::And).unwrap()
    }

    fn named(name: &str) -> Box<ReceiveEvent> {
        Box::new(event("a.b.c", name, "info"))
    }

    fn name(event: &ReceiveEvent) -> String {
        String::from_utf8_lossy(bounded(&event.event_name)).into_owned()
    }

    #[test]
    fn the_first_matching_callback_wins_and_callbacks_come_before_polling() {
        let mut table = Table::new(4);
        table.add(mask(""), None).unwrap();
        let x = table.add(mask("event_name=X"), Some('x')).unwrap();
        let all = table.add(mask("severity=info"), Some('a')).unwrap();
        assert_eq!(table.winner(&named("X")), Winner::Callback(x, 'x'));
        assert_eq!(table.winner(&named("Y")), Winner::Callback(all, 'a'));
        assert_eq!(table.winner(&event("a.b.c", "Y", "fatal")), Winner::Poll);
        assert!(table.remove(all) && !table.remove(all));
        assert_eq!(table.winner(&named("Y")), Winner::Poll);
        table.clear();
        assert_eq!(table.winner(&named("Y")), Winner::None);
        assert_eq!(table.filter(), None);
    }

    #[test]
    fn one_queue_for_all_who_poll_drops_its_oldest() {
        let mut table: Table<()> = Table::new(3);
        let x = table.add(mask("event_name=X"), None).unwrap();
        let y = table.add(mask("event_name=Y"), None).unwrap();
        for name in ["X", "Y", "X"] {
            assert_eq!(table.push(named(name)), None);
        }
        assert_eq!(table.push(named("Y")), Some(1));
        assert_eq!(table.push(named("Y")), Some(2));
        assert_eq!(table.poll(y).map(|event| name(&event)), Ok("Y".into()));
        assert_eq!(table.poll(x).map(|event| name(&event)), Ok("X".into()));
        assert_eq!(table.poll(x).err(), Some(Code::GotNoEvent));
        table.remove(y);
        assert_eq!(table.poll(y).err(), Some(Code::InvalidHandle));
        assert!(table.queue.is_empty(), "nobody could poll what was left");
    }

    #[test]
    fn numbers_of_the_living_are_not_given_again() {
        let mut table: Table<()> = Table::new(0);
        let first = table.add(mask(""), None).unwrap();
        for _ in 0..70_000 {
            let number = table.add(mask(""), None).unwrap();
            assert!(number != first && number != 0);
            table.remove(number);
        }
        for _ in 1..SUBSCRIPTIONS_MAX {
            table.add(mask(""), None).unwrap();
        }
        assert_eq!(table.add(mask(""), None), Err(Code::General));
    }
}
