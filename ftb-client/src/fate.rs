//! What became of events that were published: one record for a whole run of them.
//!
//! Events that are collected together share one [`Fate`]; a receipt is a place in it. So a receipt
//! costs nothing but a count of references, and a confirmation moves one mark for all of them.
//! Receipts keep the record alive; nothing else does once the outbox has let go of the run.

use crate::error::Unconfirmed;
use crate::waiters::Waiters;
use core::ops::Range;
use core::pin::pin;
use ftb_core::{EventId, PublisherId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How a publication ended.
pub(crate) type Outcome = Result<EventId, Unconfirmed>;

/// Of events whose places are counted from 0, in the order in which they were published.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    state: Mutex<State>,
    /// Notified when something has come to an end.
    changed: Notify,
    /// Where those who wait for that are counted.
    waiters: Arc<Waiters>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the first that was not shed; known once it was handed over.
    first_seq: u64,
    /// All places below have ended.
    settled: u32,
    /// Whose events these are; known once one of them has ended.
    publisher: Option<PublisherId>,
    shed: Places,
    refused: BTreeMap<u32, Unconfirmed>,
    /// Whatever has not ended will not.
    closed: bool,
}

impl Fate {
    /// Those who ask for it are noted there.
    pub(crate) fn new(waiters: Arc<Waiters>) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), waiters }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic inside is a defect; what the state holds is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the event at that place ended; `None` as long as it has not.
    pub(crate) fn outcome(&self, place: u32) -> Option<Outcome> {
        let outcome = self.state().outcome(place);
        if outcome.is_none() {
            self.waiters.look();
        }
        outcome
    }

    /// Resolves when the event at that place has ended. Cancel-safe.
    pub(crate) async fn ended(&self, place: u32) -> Outcome {
        self.wait_for(|state| state.outcome(place)).await
    }

    /// Resolves when all events at those places have ended well, or one is known not to. Cancel-safe.
    pub(crate) async fn all_ended_well(&self, places: Range<u32>) -> Result<(), Unconfirmed> {
        self.wait_for(|state| state.common_outcome(&places)).await
    }

    async fn wait_for<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        let mut changed = pin!(self.changed.notified());
        let mut waiting = None;
        loop {
            // Before the look at the state: what changes in between is not missed.
            changed.as_mut().enable();
            if let Some(found) = look(&self.state()) {
                return found;
            }
            waiting.get_or_insert_with(|| self.waiters.wait());
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// The event at that place had to make room. Only events without a number are shed.
    pub(crate) fn shed(&self, place: u32) {
        self.change(|state| state.shed.insert(place));
    }

    /// From here on events get numbers, the first of them this one.
    pub(crate) fn numbered(&self, first_seq: u64) {
        let mut state = self.state();
        if state.first_seq == 0 {
            state.first_seq = first_seq;
        }
    }

    /// The agent will never take the event at that place.
    pub(crate) fn refused(&self, place: u32, why: Unconfirmed) {
        self.change(|state| drop(state.refused.insert(place, why)));
    }

    /// All places below have ended: those that were neither shed nor refused are confirmed.
    pub(crate) fn settled(&self, below: u32, publisher: PublisherId) {
        self.change(|state| (state.settled, state.publisher) = (below, Some(publisher)));
    }

    /// Nothing more will end well.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }
}

impl State {
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
            return Some(Ok(EventId { publisher, seq }));
        }
        self.closed.then_some(Err(Unconfirmed::Closed))
    }

    /// That of several: a bad one as soon as it is known.
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

/// A set of places, a bit each.
#[derive(Debug, Default)]
struct Places(Vec<u64>);

impl Places {
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
        let fate = Fate::default();
        fate.shed(0);
        fate.shed(70);
        fate.numbered(11);
        let refusal = Unconfirmed::Refused { code: "denied".to_owned(), message: String::new() };
        fate.refused(2, refusal.clone());
        assert_eq!(fate.outcome(1), None);
        fate.settled(72, PUBLISHER);
        let seq_of = |place| fate.outcome(place).map(|outcome| outcome.map(|id| id.seq));
        assert_eq!(seq_of(0), Some(Err(Unconfirmed::Shed)));
        assert_eq!(seq_of(1), Some(Ok(11)));
        assert_eq!(seq_of(2), Some(Err(refusal)));
        assert_eq!(seq_of(3), Some(Ok(13)));
        assert_eq!(seq_of(69), Some(Ok(79)));
        assert_eq!(seq_of(71), Some(Ok(80)));
        assert_eq!(seq_of(72), None);
        fate.close();
        assert_eq!(seq_of(71), Some(Ok(80)));
        assert_eq!(seq_of(72), Some(Err(Unconfirmed::Closed)));
    }

    #[test]
    fn of_several_a_bad_end_is_known_at_once_and_a_good_one_with_the_last() {
        let fate = Fate::default();
        let common = |places| fate.state().common_outcome(&places);
        fate.shed(3);
        fate.numbered(1);
        let refusal = Unconfirmed::Refused { code: "denied".to_owned(), message: String::new() };
        fate.refused(7, refusal.clone());
        assert_eq!(common(3..5), Some(Err(Unconfirmed::Shed)));
        assert_eq!(common(6..8), Some(Err(refusal)));
        assert_eq!((common(0..3), common(4..7), common(8..9)), (None, None, None));
        assert_eq!(common(5..5), Some(Ok(())), "none at all");
        fate.settled(6, PUBLISHER);
        assert_eq!((common(0..3), common(4..6), common(4..7)), (Some(Ok(())), Some(Ok(())), None));
        fate.close();
        assert_eq!(common(4..6), Some(Ok(())));
        assert_eq!(common(4..7), Some(Err(Unconfirmed::Closed)));
    }
}
