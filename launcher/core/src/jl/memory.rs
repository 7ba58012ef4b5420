//! When the job is saved in the memory of its nodes besides the interval.

use super::{Initiator, Jl, Request};
use ftb_core::Now;

impl Jl {
    /// All ranks have met, or are started where agents save them: without a set in memory the job
    /// is saved there before anything else.
    pub(super) fn protect_first(&mut self, now: Now) {
        let wanted = self.job.config.memory.as_ref().is_some_and(|memory| memory.first);
        if wanted && self.job.memory.is_none() && self.job.is_movable() && self.saves_itself() {
            let reason = "nothing of it is in memory yet".to_owned();
            self.want(now, Request::MemoryCheckpoint { reason }, Initiator::Internal);
        }
    }
}
