//! What a BMC says more than once: events that are counted instead of told each time, and the same
//! event on two ways.

use super::Way;
use crate::sel::SensorEvent;
use std::collections::VecDeque;

/// Events of one sensor that leave no lasting state are told at most once in this time; the next
/// one says how many there were.
const MOMENTARY_INTERVAL_MS: u64 = 60_000;
/// Most events that wait for their twin; beyond it the oldest is forgotten.
const PAIRS_MAX: usize = 64;

/// Events that leave nothing behind, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Momentary {
    told_ms: Option<u64>,
    untold: u32,
}

impl Momentary {
    /// Notes one; the number to tell now, if it is time.
    pub(super) fn note(&mut self, now_ms: u64) -> Option<u32> {
        self.untold = self.untold.saturating_add(1);
        self.due(now_ms)
    }

    pub(super) fn due(&mut self, now_ms: u64) -> Option<u32> {
        let is_time =
            self.told_ms.is_none_or(|told| now_ms - told.min(now_ms) >= MOMENTARY_INTERVAL_MS);
        if self.untold == 0 || !is_time {
            return None;
        }
        self.told_ms = Some(now_ms);
        Some(std::mem::take(&mut self.untold))
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
