//! When the job is saved in the memory of its nodes besides the interval.
//!
//! Ranks that save themselves wait for the first set, in a barrier or in their first call of
//! `ftb_loop`. Ranks in pods do not know of it: they are saved a second after their start, and
//! again at growing intervals until there is a set. In `MPI_Init` they pass several PMI barriers,
//! in which they cannot be saved.

use super::{Initiator, Jl, Request};
use crate::manner::Saver;
use core::time::Duration;
use ftb_core::Now;

/// Until the first attempt with ranks that do not wait for it; the interval doubles.
const FIRST_AFTER: Duration = Duration::from_secs(1);
/// Longest interval between attempts.
const FIRST_EVERY_MAX: Duration = Duration::from_secs(60);

/// The next attempt to make the first set of ranks that do not wait for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstSet {
    due_ns: u64,
    wait: Duration,
}

impl Default for FirstSet {
    fn default() -> Self {
        Self { due_ns: u64::MAX, wait: FIRST_AFTER }
    }
}

impl Jl {
    /// All ranks have met.
    pub(super) fn on_met(&mut self, now: Now) {
        if self.job.saver() == Saver::Ranks {
            self.protect_first(now);
        }
    }

    /// A start has ended well.
    pub(super) fn on_started_well(&mut self, now: Now) {
        if self.job.saver() == Saver::Loop {
            self.protect_first(now);
        }
    }

    /// Without a set in memory the job is saved there before anything else.
    fn protect_first(&mut self, now: Now) {
        let reason = match (self.lacks_first(), self.lacks_members()) {
            (true, _) => "nothing of it is in memory yet",
            (_, true) => "its set in memory is that of more ranks",
            _ => return,
        };
        if self.job.is_movable() && self.saves_itself() {
            let reason = reason.to_owned();
            self.want(now, Request::MemoryCheckpoint { reason }, Initiator::Internal);
        }
    }

    fn lacks_first(&self) -> bool {
        let wanted = self.job.config.memory.as_ref().is_some_and(|memory| memory.first);
        wanted && self.job.memory.is_none()
    }

    /// Whether ranks that made the set in memory are left out: the others have more to lose now.
    fn lacks_members(&self) -> bool {
        self.job.memory.as_ref().is_some_and(|memory| memory.ranks() != self.job.members())
    }

    /// The ranks run.
    pub(super) fn expect_first(&mut self, now: Now) {
        self.first_set = FirstSet::default();
        if self.job.saver() == Saver::Agent && self.lacks_first() {
            self.first_set.due_ns = now.deadline_ns(FIRST_AFTER);
        }
    }

    pub(super) fn first_set_ns(&self) -> u64 {
        self.first_set.due_ns
    }

    pub(super) fn first_set_tick(&mut self, now: Now) {
        if now.mono_ns < self.first_set.due_ns {
            return;
        }
        if !self.lacks_first() {
            self.first_set = FirstSet::default();
            return;
        }
        let FirstSet { due_ns, wait } = &mut self.first_set;
        *wait = (*wait * 2).min(FIRST_EVERY_MAX);
        *due_ns = now.deadline_ns(*wait);
        self.protect_first(now);
    }
}
