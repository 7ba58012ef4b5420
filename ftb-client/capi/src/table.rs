//! The subscriptions of one client, which of them gets an event, and what each of them missed.
//!
//! Rules of the original: callbacks come before polling, and the first matching one in the order of
//! subscription gets the event alone; all polling subscriptions share one [`PollQueue`]. No I/O, no
//! clock.

use crate::abi::{Code, ReceiveEvent};
use crate::gaps::{Loss, Losses, Reason};
use crate::queue::PollQueue;
use crate::subscription::{Mask, coarse};
use ftb_client::{Gap, Severity};

/// Most subscriptions of one client.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1024;

#[derive(Debug)]
struct Entry<C> {
    number: u16,
    mask: Mask,
    /// `None`: it polls.
    callback: Option<C>,
    /// The number of the first event in the polling queue that it has not looked at.
    polled_until: u64,
    /// What it missed since the program last asked.
    losses: Losses,
}

/// Which subscription gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Winner<C> {
    /// This callback, of the subscription with this number.
    Callback(u16, C),
    /// The polling subscription that polls first.
    Poll,
    /// None of them.
    None,
}

/// `C` is what a callback is.
pub(crate) struct Table<C> {
    /// In the order of subscription.
    entries: Vec<Entry<C>>,
    last_number: u16,
    /// Counts the changes of the entries.
    changes: u64,
    queue: PollQueue,
    /// What this client missed since it was last reported on standard error.
    unreported: Losses,
}

impl<C: Copy> Table<C> {
    /// With a polling queue of that length in events, or the default one.
    pub(crate) fn new(queue_events_max: Option<usize>) -> Self {
        Self {
            entries: Vec::new(),
            last_number: 0,
            changes: 0,
            queue: PollQueue::new(queue_events_max),
            unreported: Losses::default(),
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
        let (number, losses) = (self.last_number, Losses::default());
        self.entries.push(Entry { number, mask, callback, polled_until: 0, losses });
        self.changes += 1;
        Ok(number)
    }

    pub(crate) fn has(&self, number: u16) -> bool {
        self.entries.iter().any(|entry| entry.number == number)
    }

    /// Takes a subscription out, and the events that no other subscription polls. Returns whether
    /// it was there.
    pub(crate) fn remove(&mut self, number: u16) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.number != number);
        if self.entries.len() == before {
            return false;
        }
        self.changes += 1;
        let Self { entries, queue, .. } = self;
        queue.retain(|event| polled(entries, event));
        true
    }

    /// Whether no subscription is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.changes += 1;
        self.queue.clear();
    }

    /// As long as this is the same, [`Table::winner`] of an event is the same.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
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

    /// Queues an event for polling. A full queue drops one: see [`PollQueue::push`]. The drop is a
    /// gap of each polling subscription that wanted the event; returns whether there was one.
    pub(crate) fn push(&mut self, event: &ReceiveEvent, severity: Severity) -> bool {
        let Some((dropped, severity)) = self.queue.push(event, severity) else { return false };
        let loss = Loss::of_event(severity);
        let polling = self.entries.iter_mut().filter(|entry| entry.callback.is_none());
        for entry in polling.filter(|entry| entry.mask.matches(&dropped)) {
            entry.losses.add(Reason::PollingQueue, &loss);
        }
        self.unreported.add(Reason::PollingQueue, &loss);
        true
    }

    /// Hands the first queued event that this subscription wants to `take`.
    pub(crate) fn poll<T>(
        &mut self,
        number: u16,
        take: impl FnOnce(&ReceiveEvent) -> T,
    ) -> Result<T, Code> {
        let Self { entries, queue, .. } = self;
        // With one polling subscription, the queue holds only events that it wants.
        let is_only = entries.iter().filter(|entry| entry.callback.is_none()).count() == 1;
        let Entry { mask, polled_until, .. } = find(entries, number)?;
        let taken = queue.take_first(polled_until, |event| is_only || mask.matches(event), take);
        taken.ok_or(Code::GotNoEvent)
    }

    /// The agent reports a gap: each subscription that may have wanted the events missed them.
    pub(crate) fn miss(&mut self, gap: &Gap) {
        let (reason, loss) = (Reason::from(gap.reason), Loss::from(gap));
        for entry in self.entries.iter_mut().filter(|entry| entry.mask.may_want(gap)) {
            entry.losses.add(reason, &loss);
        }
        self.unreported.add(reason, &loss);
    }

    /// Takes out what a subscription missed, of one reason.
    pub(crate) fn take_loss(&mut self, number: u16) -> Result<(Reason, Loss), Code> {
        find(&mut self.entries, number)?.losses.take_first().ok_or(Code::GotNoEvent)
    }

    /// Takes out what was missed and not yet reported on standard error.
    pub(crate) fn take_unreported(&mut self) -> Losses {
        core::mem::take(&mut self.unreported)
    }

    /// That was taken out, and could not be reported.
    pub(crate) fn not_reported(&mut self, reason: Reason, loss: &Loss) {
        self.unreported.add(reason, loss);
    }

    /// The filter for the agent; `None` when nothing is wanted.
    pub(crate) fn filter(&self) -> Option<String> {
        let masks = self.entries.iter().map(|entry| &entry.mask);
        (!self.is_empty()).then(|| coarse(masks))
    }
}

fn find<C>(entries: &mut [Entry<C>], number: u16) -> Result<&mut Entry<C>, Code> {
    entries.iter_mut().find(|entry| entry.number == number).ok_or(Code::InvalidHandle)
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
    use ftb_client::{GapReason, Position, Spaces};

    fn mask(string: &str) -> Mask {
        Mask::parse(string.as_bytes(), Matching::And).unwrap()
    }

    fn named(name: &str) -> ReceiveEvent {
        event("a.b.c", name, "info")
    }

    fn polled_name(table: &mut Table<()>, number: u16) -> Result<String, Code> {
        table.poll(number, |event| String::from_utf8_lossy(bounded(&event.event_name)).into())
    }

    #[test]
    fn the_first_matching_callback_wins_and_callbacks_come_before_polling() {
        let mut table = Table::new(Some(4));
        table.add(mask(""), None).unwrap();
        let x = table.add(mask("event_name=X"), Some('x')).unwrap();
        let all = table.add(mask("severity=info"), Some('a')).unwrap();
        assert_eq!(table.winner(&named("X")), Winner::Callback(x, 'x'));
        assert_eq!(table.winner(&named("Y")), Winner::Callback(all, 'a'));
        assert_eq!(table.winner(&event("a.b.c", "Y", "fatal")), Winner::Poll);
        let changes = table.changes();
        assert!(table.remove(all) && !table.remove(all));
        assert_ne!(table.changes(), changes);
        assert_eq!(table.winner(&named("Y")), Winner::Poll);
        table.clear();
        assert_eq!(table.winner(&named("Y")), Winner::None);
        assert_eq!(table.filter(), None);
    }

    #[test]
    fn each_subscription_learns_which_of_its_events_a_full_queue_dropped() {
        let mut table: Table<()> = Table::new(Some(3));
        let x = table.add(mask("event_name=X"), None).unwrap();
        let y = table.add(mask("event_name=Y"), None).unwrap();
        for name in ["X", "Y", "X"] {
            assert!(!table.push(&named(name), Severity::Info));
        }
        assert!(table.push(&named("Y"), Severity::Error));
        assert!(table.push(&named("Y"), Severity::Info));
        assert_eq!(table.take_loss(x), Ok((Reason::PollingQueue, Loss::of_event(Severity::Info))));
        assert_eq!(table.take_loss(x), Err(Code::GotNoEvent));
        assert_eq!(table.take_loss(y), Ok((Reason::PollingQueue, Loss::of_event(Severity::Info))));
        let (_, both) = table.take_unreported().take_first().unwrap();
        assert_eq!((both.count, both.severity_max), (2, Some(Severity::Info)));
        assert_eq!(polled_name(&mut table, y), Ok("Y".into()));
        assert_eq!(polled_name(&mut table, x), Ok("X".into()));
        assert_eq!(polled_name(&mut table, x), Err(Code::GotNoEvent));
        table.remove(y);
        assert_eq!(polled_name(&mut table, y), Err(Code::InvalidHandle));
        assert_eq!(table.take_loss(y), Err(Code::InvalidHandle));
        assert_eq!(table.queue.len(), 0, "no subscription polls what was left");
    }

    #[test]
    fn a_subscription_finds_events_that_were_queued_before_it() {
        let mut table: Table<()> = Table::new(None);
        let all = table.add(mask(""), None).unwrap();
        table.push(&named("X"), Severity::Info);
        table.push(&named("Y"), Severity::Info);
        assert_eq!(polled_name(&mut table, all), Ok("X".into()));
        let y = table.add(mask("event_name=Y"), None).unwrap();
        assert_eq!(polled_name(&mut table, y), Ok("Y".into()));
        assert_eq!(polled_name(&mut table, all), Err(Code::GotNoEvent));
    }

    #[test]
    fn a_gap_reaches_the_subscriptions_that_may_have_wanted_the_events() {
        let mut table: Table<()> = Table::new(None);
        let other = table.add(mask("event_space=x.y.z"), None).unwrap();
        let fatal = table.add(mask("severity=fatal"), None).unwrap();
        let wants = table.add(mask("event_space=a.b.c, severity=info"), None).unwrap();
        let (after, until) = (Position::ZERO, Position::ZERO);
        let (reason, count, spaces) = (GapReason::Retention, Some(7), Spaces::of("a.b.c"));
        let severity_max = Some(Severity::Warning);
        table.miss(&Gap { after, until, reason, count, severity_max, spaces });
        assert_eq!(table.take_loss(other), Err(Code::GotNoEvent));
        assert_eq!(table.take_loss(fatal), Err(Code::GotNoEvent));
        let (reason, loss) = table.take_loss(wants).unwrap();
        assert_eq!((reason, loss.count), (Reason::Retention, 7));
        assert!(table.take_unreported().take_first().is_some());
    }

    #[test]
    fn numbers_of_the_living_are_not_given_again() {
        let mut table: Table<()> = Table::new(None);
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
