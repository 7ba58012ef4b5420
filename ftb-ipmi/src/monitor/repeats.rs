//! Repeated events of a BMC: events that are counted instead of published, and the same event from
//! two sources.

use super::EventSource;
use crate::sel::SensorEvent;
use std::collections::{BTreeMap, VecDeque};

/// Shortest time between published events of one sensor and state, for events without a lasting
/// state. The next event carries the count.
const MOMENTARY_INTERVAL_MS: u64 = 60_000;
/// Number of states that a sensor can report: an offset has four bits.
const OFFSETS: u8 = 16;
/// Most events that wait for their duplicate. When full, the oldest is dropped.
const PAIRS_MAX: usize = 64;

/// Events of one sensor without a lasting state. Each state has its own rate limit: a corrected
/// error never delays an uncorrectable one.
#[derive(Clone, Debug, Default)]
pub(super) struct Momentary {
    /// By offset: at most [`OFFSETS`].
    states: BTreeMap<u8, EventCount>,
}

#[derive(Clone, Copy, Debug, Default)]
struct EventCount {
    published_ms: Option<u64>,
    /// Events that are not published yet.
    pending: u32,
}

impl Momentary {
    /// Counts events of a state. [`Momentary::take_due`] returns them when they are due.
    pub(super) fn count(&mut self, offset: u8, events: u32) {
        let state = self.states.entry(offset % OFFSETS).or_default();
        state.pending = state.pending.saturating_add(events);
    }

    /// The states to publish now, with the number of events since the last publication.
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

/// Events of one sensor since its last reading. The next reading confirms or refutes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unconfirmed {
    /// Number of assertions of each state or threshold, by offset: at most [`OFFSETS`].
    asserted: BTreeMap<u8, u32>,
    /// Whether the last event was an assertion.
    last: Option<bool>,
}

impl Unconfirmed {
    /// Records an event. With `is_final`, a deassertion does not cancel an assertion.
    pub(super) fn on_event(&mut self, event: &SensorEvent, is_final: bool) {
        self.last = Some(event.is_asserted);
        let offset = event.offset % OFFSETS;
        if event.is_asserted {
            let count = self.asserted.entry(offset).or_default();
            *count = count.saturating_add(1);
        } else if !is_final {
            self.asserted.remove(&offset);
        }
    }

    /// Whether the last event reports the start of a fault.
    pub(super) fn is_asserted(&self) -> bool {
        self.last == Some(true)
    }

    /// Whether the last event reports the end of a fault.
    pub(super) fn is_deasserted(&self) -> bool {
        self.last == Some(false)
    }

    /// Whether one of these states was asserted.
    pub(super) fn has_one_of(&self, states: u16) -> bool {
        self.asserted.keys().any(|offset| states & (1 << offset) != 0)
    }

    /// Asserted states except these, with the number of events.
    pub(super) fn without(&self, states: u16) -> impl Iterator<Item = (u8, u32)> {
        let is_other = move |(offset, _): &(&u8, &u32)| states & (1 << **offset) == 0;
        self.asserted.iter().filter(is_other).map(|(offset, count)| (*offset, *count))
    }

    /// Forgets the last event after a time without readings, because a later reading confirms
    /// nothing. The counts remain.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }
}

/// The bad states of a sensor without readings, one bit each.
#[derive(Clone, Debug, Default)]
pub(super) struct EventStates {
    asserted: u16,
    deasserted: u16,
    /// The state that an earlier life of this program has stated is one of these.
    former: Option<u16>,
}

impl EventStates {
    /// Records an event of a state.
    pub(super) fn on_event(&mut self, event: &SensorEvent) {
        let state = 1 << (event.offset % OFFSETS);
        if event.is_asserted {
            (self.asserted, self.deasserted) = (self.asserted | state, self.deasserted & !state);
            return;
        }
        (self.asserted, self.deasserted) = (self.asserted & !state, self.deasserted | state);
        self.former = self.former.filter(|former| former & state == 0);
    }

    /// An earlier life has stated a fault in one of these states. `true` if its end is known.
    pub(super) fn on_former(&mut self, states: u16) -> bool {
        let is_over = self.deasserted & states != 0;
        self.former = (!is_over).then_some(states);
        is_over
    }

    /// An earlier life has stated a fault in all of these states. `true` if they are over.
    pub(super) fn on_known(&mut self, states: u16) -> bool {
        let holding = states & !self.deasserted;
        self.asserted |= holding;
        holding == 0
    }

    /// The states that hold, one bit each; 0: it is not known which of several.
    pub(super) fn known(&self) -> u16 {
        if self.former.is_some() { 0 } else { self.asserted }
    }

    /// Whether no state holds.
    pub(super) fn is_over(&self) -> bool {
        self.asserted == 0 && self.former.is_none()
    }

    /// A person says that no state holds.
    pub(super) fn end(&mut self) {
        *self = Self { deasserted: u16::MAX, ..Self::default() };
    }
}

/// Events from one source that may also come from the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    pushed: VecDeque<SensorEvent>,
    logged: VecDeque<SensorEvent>,
}

impl Pairs {
    /// Whether this event has not come from the other source before.
    pub(super) fn is_first(&mut self, event: &SensorEvent, source: EventSource) -> bool {
        // On most boards, a pushed event has no number.
        let event = SensorEvent { record: 0, ..*event };
        let (same, other) = match source {
            EventSource::Pushed => (&mut self.pushed, &mut self.logged),
            EventSource::Logged => (&mut self.logged, &mut self.pushed),
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
