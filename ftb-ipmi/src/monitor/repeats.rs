//! What a BMC says more than once: events that are counted instead of published each time, and the
//! same event on two ways.

use super::Way;
use crate::sel::SensorEvent;
use std::collections::{BTreeMap, VecDeque};

/// An event without a lasting state is published at most once in this time for each sensor and
/// state. The next one carries the count of those in between.
const MOMENTARY_INTERVAL_MS: u64 = 60_000;
/// Number of states that a sensor can report: an offset has four bits.
const OFFSETS: u8 = 16;
/// Most events that wait for their twin; beyond it the oldest is forgotten.
const PAIRS_MAX: usize = 64;

/// Events of one source without a lasting state. Each state has its own rate limit: a corrected
/// error never delays an uncorrectable one.
#[derive(Clone, Debug, Default)]
pub(super) struct Momentary {
    /// By offset: at most [`OFFSETS`].
    states: BTreeMap<u8, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    published_ms: Option<u64>,
    /// Events that no published event counts yet.
    pending: u32,
}

impl Momentary {
    /// Counts events of a state. [`Momentary::take_due`] says when to publish them.
    pub(super) fn note(&mut self, offset: u8, count: u32) {
        let state = self.states.entry(offset % OFFSETS).or_default();
        state.pending = state.pending.saturating_add(count);
    }

    /// States to publish now, with the number of their events since the last time.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<(u8, u32)> {
        let mut due = Vec::new();
        for (offset, state) in &mut self.states {
            let is_time = state.published_ms.is_none_or(|published_ms| {
                now_ms.saturating_sub(published_ms) >= MOMENTARY_INTERVAL_MS
            });
            if state.pending > 0 && is_time {
                state.published_ms = Some(now_ms);
                due.push((*offset, std::mem::take(&mut state.pending)));
            }
        }
        due
    }
}

/// Events of one sensor since its last reading. The next reading confirms or denies them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unconfirmed {
    /// How often each state or threshold was asserted, by offset: at most [`OFFSETS`].
    asserted: BTreeMap<u8, u32>,
    /// Whether the last event was an assertion.
    last: Option<bool>,
}

impl Unconfirmed {
    /// Takes an event. `is_final` says that a deassertion does not take an assertion back.
    pub(super) fn note(&mut self, event: &SensorEvent, is_final: bool) {
        self.last = Some(event.is_asserted);
        let offset = event.offset % OFFSETS;
        if event.is_asserted {
            let count = self.asserted.entry(offset).or_default();
            *count = count.saturating_add(1);
        } else if !is_final {
            self.asserted.remove(&offset);
        }
    }

    /// Whether the last event says that a fault began.
    pub(super) fn is_asserted(&self) -> bool {
        self.last == Some(true)
    }

    /// Whether the last event says that a fault ended.
    pub(super) fn is_deasserted(&self) -> bool {
        self.last == Some(false)
    }

    /// Whether one of these states was asserted.
    pub(super) fn has_one_of(&self, states: u16) -> bool {
        self.asserted.keys().any(|offset| states & (1 << offset) != 0)
    }

    /// States that were asserted and are none of these, with the number of their events.
    pub(super) fn without(&self, states: u16) -> impl Iterator<Item = (u8, u32)> {
        let is_other = move |(offset, _): &(&u8, &u32)| states & (1 << **offset) == 0;
        self.asserted.iter().filter(is_other).map(|(offset, count)| (*offset, *count))
    }

    /// After a time without readings no reading can confirm a fault by these events. The events
    /// themselves stay.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }
}

/// Events that came one way and may still come the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    pushed: VecDeque<SensorEvent>,
    logged: VecDeque<SensorEvent>,
}

impl Pairs {
    /// Whether this event has not come the other way already.
    pub(super) fn is_first(&mut self, event: &SensorEvent, way: Way) -> bool {
        // A pushed event has no number in the log on most boards.
        let event = SensorEvent { record: 0, ..*event };
        let (same, other) = match way {
            Way::Pushed => (&mut self.pushed, &mut self.logged),
            Way::Logged => (&mut self.logged, &mut self.pushed),
        };
        if let Some(at) = other.iter().position(|seen| *seen == event) {
            other.remove(at);
            return false;
        }
        if same.len() >= PAIRS_MAX {
            same.pop_front();
        }
        same.push_back(event);
        true
    }
}
