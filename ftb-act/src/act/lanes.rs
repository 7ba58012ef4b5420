//! Lanes: the orders that wait for their turn, by what they do. Each has its own limits, so slow
//! web servers never hold up a drain.

use super::order::Kind;
use std::collections::VecDeque;

/// A lane: most orders that wait, and most that are done at a time.
#[derive(Clone, Copy, Debug)]
pub struct LaneLimit {
    /// Most that wait. A further one is not done: that is logged and counted.
    pub waiting: usize,
    /// Most at a time.
    pub live: usize,
}

/// The limits of the lane of a kind.
pub const fn limit(kind: Kind) -> LaneLimit {
    match kind {
        Kind::Exec => LaneLimit { waiting: 1_024, live: 8 },
        // They may wait for their server for long: see `post` for how many are sent at a time.
        Kind::Webhook => LaneLimit { waiting: 1_024, live: 1_024 },
        Kind::Publish => LaneLimit { waiting: 1_024, live: 64 },
        Kind::Drain => LaneLimit { waiting: 8_192, live: 256 },
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes([Lane; 4]);

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<u64>,
    live: usize,
}

/// Drains come first: they are the reason for all limits.
pub(super) const KINDS: [Kind; 4] = [Kind::Drain, Kind::Exec, Kind::Webhook, Kind::Publish];

impl Lanes {
    fn lane(&mut self, kind: Kind) -> &mut Lane {
        &mut self.0[kind as usize]
    }

    /// Whether there was room.
    pub(super) fn push(&mut self, kind: Kind, id: u64) -> bool {
        let lane = self.lane(kind);
        let has_room = lane.waiting.len() < limit(kind).waiting;
        if has_room {
            lane.waiting.push_back(id);
        }
        has_room
    }

    /// Takes the orders that wait, as many as are looked at in one turn.
    pub(super) fn take_waiting(&mut self, kind: Kind) -> VecDeque<u64> {
        std::mem::take(&mut self.lane(kind).waiting)
    }

    /// Puts back those whose turn has not come.
    pub(super) fn put_back(&mut self, kind: Kind, waiting: VecDeque<u64>) {
        self.lane(kind).waiting = waiting;
    }

    pub(super) fn has_room(&mut self, kind: Kind) -> bool {
        self.lane(kind).live < limit(kind).live
    }

    pub(super) fn begin(&mut self, kind: Kind) {
        self.lane(kind).live += 1;
    }

    pub(super) fn end(&mut self, kind: Kind) {
        let lane = self.lane(kind);
        lane.live = lane.live.saturating_sub(1);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.0.iter().any(|lane| !lane.waiting.is_empty())
    }
}
