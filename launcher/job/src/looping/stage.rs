//! A rank between the orders of its launch agent, as a state machine.
//!
//! The agent asks where the ranks are. Each reports its loop id, and at which pace it goes. All are
//! saved at one id that none of them has reached, so that the set is of one moment and no rank ever
//! waits for another: MPI may need the calls of a rank to send what it has taken before.

use crate::config::is_name;
use crate::rank_socket::{AgentPacket, RankPacket};
use core::time::Duration;
use std::time::Instant;

/// A save that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) episode: u64,
    pub(super) set: String,
    /// `None`: at the first id.
    pub(super) loop_id: Option<u64>,
}

/// What a rank does at a loop id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoopStep {
    GoOn,
    Save(Due),
    /// It is behind the loop id of the save.
    Missed(Due),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    /// The id of the first call.
    first: u64,
    /// The agent waits for a report.
    is_asked: bool,
    due: Option<Due>,
    pace: Pace,
}

impl Stage {
    /// The first call has this id.
    pub(super) fn begin(&mut self, first: u64) {
        self.first = first;
    }

    /// A call at that time.
    pub(super) fn called(&mut self, now: Instant) {
        self.pace.called(now);
    }

    /// The next step at this loop id.
    pub(super) fn step(&mut self, here: u64) -> LoopStep {
        let at = |due: &Due| due.loop_id.unwrap_or(self.first);
        let Some(due) = self.due.take_if(|due| at(due) <= here) else { return LoopStep::GoOn };
        if at(&due) == here { LoopStep::Save(due) } else { LoopStep::Missed(due) }
    }

    /// False: this is no order.
    pub(super) fn execute(&mut self, order: AgentPacket) -> bool {
        match order {
            AgentPacket::Where => self.is_asked = true,
            AgentPacket::Save { episode, set, loop_id } if is_name(&set) => {
                self.due = Some(Due { episode, set, loop_id });
            }
            AgentPacket::Cancel => self.due = None,
            _ => return false,
        }
        true
    }

    /// The report for the agent, once: from the second call on, when the pace is known.
    pub(super) fn report(&mut self, here: u64) -> Option<RankPacket> {
        let period_us = u64::try_from(self.pace.period?.as_micros()).unwrap_or(u64::MAX);
        let asked = core::mem::take(&mut self.is_asked);
        asked.then_some(RankPacket::At { loop_id: here, period_us })
    }
}

/// How long an iteration takes.
#[derive(Clone, Debug, Default)]
struct Pace {
    last: Option<Instant>,
    /// Smoothed; a short iteration counts at once.
    period: Option<Duration>,
}

impl Pace {
    fn called(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            let took = now.saturating_duration_since(last);
            let smooth = self.period.map_or(took, |period| (period * 7 + took) / 8);
            self.period = Some(smooth.min(took));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn save(loop_id: Option<u64>) -> AgentPacket {
        AgentPacket::Save { episode: 9, set: "mem-000009".to_owned(), loop_id }
    }

    fn due(loop_id: Option<u64>) -> Due {
        Due { episode: 9, set: "mem-000009".to_owned(), loop_id }
    }

    #[test]
    fn a_rank_goes_on_to_the_loop_id_of_the_save_and_is_saved_once() {
        let mut stage = Stage::default();
        assert!(stage.execute(save(Some(6))));
        assert_eq!([4, 5].map(|here| stage.step(here)), [LoopStep::GoOn, LoopStep::GoOn]);
        assert_eq!(stage.step(6), LoopStep::Save(due(Some(6))));
        assert_eq!(stage.step(6), LoopStep::GoOn);
    }

    #[test]
    fn the_first_save_is_at_the_first_id_whatever_it_is() {
        let mut stage = Stage::default();
        stage.begin(40);
        assert!(stage.execute(save(None)));
        assert_eq!(stage.step(40), LoopStep::Save(due(None)));
        assert!(stage.execute(save(None)));
        assert_eq!(stage.step(41), LoopStep::Missed(due(None)));
    }

    #[test]
    fn a_cancelled_save_does_not_happen() {
        let mut stage = Stage::default();
        assert!(stage.execute(save(Some(6))));
        assert!(stage.execute(AgentPacket::Cancel));
        assert_eq!(stage.step(6), LoopStep::GoOn);
    }

    #[test]
    fn a_rank_behind_the_loop_id_is_not_saved() {
        let mut stage = Stage::default();
        assert!(stage.execute(save(Some(6))));
        assert_eq!(stage.step(7), LoopStep::Missed(due(Some(6))));
        assert_eq!(stage.step(7), LoopStep::GoOn);
    }

    #[test]
    fn a_rank_reports_when_it_knows_its_pace_and_a_loop_that_becomes_fast_at_once() {
        let (mut stage, mut now) = (Stage::default(), Instant::now());
        let mut reported = |ms| {
            now += Duration::from_millis(ms);
            stage.called(now);
            assert!(stage.execute(AgentPacket::Where));
            stage.report(3)
        };
        assert_eq!(reported(0), None, "its first call");
        for (ms, period_us) in [(800, 800_000), (8, 8000), (808, 108_000)] {
            assert_eq!(reported(ms), Some(RankPacket::At { loop_id: 3, period_us }));
        }
        assert_eq!(stage.report(4), None, "once");
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let mut stage = Stage::default();
        let climbs = AgentPacket::Save { episode: 1, set: "../x".to_owned(), loop_id: Some(0) };
        for packet in [climbs, AgentPacket::Ok, AgentPacket::Adopt(Vec::new())] {
            assert!(!stage.execute(packet));
        }
        assert_eq!(stage.step(0), LoopStep::GoOn);
    }
}
