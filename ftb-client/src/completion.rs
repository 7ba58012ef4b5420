//! The outcomes of published events: one record for many.
//!
//! Events that are buffered together share one [`Completion`]; a receipt is an index into it. A
//! receipt costs one reference count, and a confirmation moves one number for all. Receipts keep
//! the record alive after the outbox has dropped it.

use crate::ack_interest::AckInterest;
use crate::error::Unconfirmed;
use core::ops::Range;
use core::pin::pin;
use ftb_core::{ConfirmLevel, EventId, PublisherId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How a publication ended.
pub(crate) type Outcome = Result<EventId, Unconfirmed>;

/// The outcomes of events, indexed from 0 in publish order.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    state: Mutex<CompletionState>,
    /// Notified when an outcome is known.
    changed: Notify,
    /// Counts the tasks that wait for outcomes.
    ack_interest: Arc<AckInterest>,
}

#[derive(Debug, Default)]
struct CompletionState {
    /// The sequence of the first event that was not shed; 0 until it is sent.
    first_seq: u64,
    /// All events below this index have an outcome.
    settled: u32,
    /// The lowest level of those that are confirmed.
    level: Option<ConfirmLevel>,
    /// Known from the first outcome on.
    publisher: Option<PublisherId>,
    shed: IndexSet,
    refused: BTreeMap<u32, Unconfirmed>,
    /// Events without an outcome get none.
    closed: bool,
}

impl Completion {
    pub(crate) fn new(ack_interest: Arc<AckInterest>) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), ack_interest }
    }

    fn state(&self) -> MutexGuard<'_, CompletionState> {
        // A panic under the lock is a defect; the state is the best that is left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome of an event; `None`: not known yet.
    pub(crate) fn outcome(&self, place: u32) -> Option<Outcome> {
        let outcome = self.state().outcome(place);
        if outcome.is_none() {
            self.ack_interest.note();
        }
        outcome
    }

    /// Resolves with the outcome of an event. Cancel-safe.
    pub(crate) async fn ended(&self, place: u32) -> Outcome {
        self.wait_for(|state| state.outcome(place)).await
    }

    /// Resolves when all these events are confirmed, or one has failed. Cancel-safe.
    pub(crate) async fn all_ended_well(&self, places: Range<u32>) -> Result<(), Unconfirmed> {
        self.wait_for(|state| state.common_outcome(&places)).await
    }

    async fn wait_for<T>(&self, look: impl Fn(&CompletionState) -> Option<T>) -> T {
        let mut changed = pin!(self.changed.notified());
        let mut waiting = None;
        loop {
            // Before the state is read: a change in between is not missed.
            changed.as_mut().enable();
            if let Some(found) = look(&self.state()) {
                return found;
            }
            waiting.get_or_insert_with(|| self.ack_interest.wait());
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }

    fn change(&self, change: impl FnOnce(&mut CompletionState)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// An event was shed. Only events without a sequence are.
    pub(crate) fn shed(&self, place: u32) {
        self.change(|state| state.shed.insert(place));
    }

    /// The events were sent; the first has this sequence.
    pub(crate) fn numbered(&self, first_seq: u64) {
        let mut state = self.state();
        if state.first_seq == 0 {
            state.first_seq = first_seq;
        }
    }

    /// The agent refused an event.
    pub(crate) fn refused(&self, place: u32, why: Unconfirmed) {
        self.change(|state| drop(state.refused.insert(place, why)));
    }

    /// All events below this index are confirmed, if they were neither shed nor refused.
    pub(crate) fn settled(&self, below: u32, level: ConfirmLevel, publisher: PublisherId) {
        self.change(|state| {
            (state.settled, state.publisher) = (below, Some(publisher));
            state.level = Some(state.level.map_or(level, |lowest| lowest.min(level)));
        });
    }

    /// The level of what is confirmed; of several the lowest.
    pub(crate) fn level(&self) -> ConfirmLevel {
        self.state().level.unwrap_or_default()
    }

    /// No further event is confirmed.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }
}

impl CompletionState {
    fn outcome(&self, place: u32) -> Option<Outcome> {
        if self.shed.contains(place) {
            return Some(Err(Unconfirmed::Shed));
        }
        if let Some(why) = self.refused.get(&place) {
            return Some(Err(why.clone()));
        }
        if let Some(publisher) = self.publisher.filter(|_| place < self.settled) {
            let numbered_before = u64::from(place) - self.shed.count_below(place);
            let seq = self.first_seq + numbered_before;
            return Some(Ok(EventId { publisher, seq: seq.into() }));
        }
        self.closed.then_some(Err(Unconfirmed::Closed))
    }

    /// The common outcome of several: a failure as soon as it is known.
    fn common_outcome(&self, places: &Range<u32>) -> Option<Result<(), Unconfirmed>> {
        if self.shed.count_below(places.end) > self.shed.count_below(places.start) {
            return Some(Err(Unconfirmed::Shed));
        }
        if let Some((_, why)) = self.refused.range(places.clone()).next() {
            return Some(Err(why.clone()));
        }
        if places.is_empty() || places.end <= self.settled {
            return Some(Ok(()));
        }
        self.closed.then_some(Err(Unconfirmed::Closed))
    }
}

/// A set of indices, one bit each.
#[derive(Debug, Default)]
struct IndexSet(Vec<u64>);

impl IndexSet {
    fn insert(&mut self, place: u32) {
        let word = place as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (place % 64);
    }

    fn contains(&self, place: u32) -> bool {
        self.0.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn count_below(&self, place: u32) -> u64 {
        let whole = place as usize / 64;
        let full: u32 = self.0.iter().take(whole).map(|word| word.count_ones()).sum();
        let part = self.0.get(whole).map_or(0, |word| word & ((1 << (place % 64)) - 1));
        u64::from(full + part.count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHER: PublisherId = PublisherId { account: 1, token: 2 };

    #[test]
    fn numbers_skip_what_was_shed_and_count_what_was_refused() {
        let completion = Completion::default();
        completion.shed(0);
        completion.shed(70);
        completion.numbered(11);
        let refusal = Unconfirmed::Refused { code: "denied".to_owned(), message: String::new() };
        completion.refused(2, refusal.clone());
        assert_eq!(completion.outcome(1), None);
        completion.settled(72, ConfirmLevel::Disk, PUBLISHER);
        let seq_of = |place| completion.outcome(place).map(|outcome| outcome.map(|id| id.seq));
        assert_eq!(seq_of(0), Some(Err(Unconfirmed::Shed)));
        assert_eq!(seq_of(1), Some(Ok(11.into())));
        assert_eq!(seq_of(2), Some(Err(refusal)));
        assert_eq!(seq_of(3), Some(Ok(13.into())));
        assert_eq!(seq_of(69), Some(Ok(79.into())));
        assert_eq!(seq_of(71), Some(Ok(80.into())));
        assert_eq!(seq_of(72), None);
        completion.close();
        assert_eq!(seq_of(71), Some(Ok(80.into())));
        assert_eq!(seq_of(72), Some(Err(Unconfirmed::Closed)));
    }

    #[test]
    fn of_several_a_bad_end_is_known_at_once_and_a_good_one_with_the_last() {
        let completion = Completion::default();
        let common = |places| completion.state().common_outcome(&places);
        completion.shed(3);
        completion.numbered(1);
        let refusal = Unconfirmed::Refused { code: "denied".to_owned(), message: String::new() };
        completion.refused(7, refusal.clone());
        assert_eq!(common(3..5), Some(Err(Unconfirmed::Shed)));
        assert_eq!(common(6..8), Some(Err(refusal)));
        assert_eq!((common(0..3), common(4..7), common(8..9)), (None, None, None));
        assert_eq!(common(5..5), Some(Ok(())), "none at all");
        completion.settled(6, ConfirmLevel::Memory, PUBLISHER);
        assert_eq!((common(0..3), common(4..6), common(4..7)), (Some(Ok(())), Some(Ok(())), None));
        completion.close();
        assert_eq!(common(4..6), Some(Ok(())));
        assert_eq!(common(4..7), Some(Err(Unconfirmed::Closed)));
    }
}
