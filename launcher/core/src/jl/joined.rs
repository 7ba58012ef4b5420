//! When it is known whether the ranks of a job can be saved and moved, and that the user reads it.
//!
//! Backends whose agents save the ranks (`criu`, `command`) work with any program. With `app` each
//! rank must have joined ftb-job. The NLA sees on the PMI socket which protocol a rank speaks
//! ([`crate::message::Protocol`]). The JL knows the answer when all ranks have met in a barrier, or
//! after [`JOIN_GRACE`]: a program without PMI never meets. Ranks may join later.

use super::{Jl, JlOutput};
use core::time::Duration;
use ftb_core::Now;

/// How long started ranks may take to join ftb-job before requests for them are refused.
pub const JOIN_GRACE: Duration = Duration::from_secs(5);
impl Jl {
    /// Why nothing can be asked of the ranks, if known.
    pub(super) fn refusal(&self) -> Option<String> {
        let known = self.open.is_none() && self.join_ns.is_none();
        if known { self.job.immovable() } else { None }
    }

    /// Why ranks can be neither saved nor moved; `None` if they can, or if it is not known yet.
    pub fn immovable(&self) -> Option<String> {
        if self.immovable_reported { self.job.immovable() } else { None }
    }

    /// The ranks were started: they may join from now on, and get their first set in memory.
    pub(super) fn expect_to_join(&mut self, now: Now) {
        self.join_ns = (!self.job.met).then(|| now.deadline_ns(JOIN_GRACE));
        self.expect_first(now);
    }

    /// Informs the user once that nothing can be asked of the ranks, and of a change.
    pub(super) fn judge(&mut self, now: Now) {
        if self.join_ns.is_some_and(|at| self.job.met || now.mono_ns >= at) {
            self.join_ns = None;
        }
        if self.open.is_some() || self.join_ns.is_some() || self.over() {
            return;
        }
        let words = match (self.job.immovable(), self.immovable_reported) {
            (Some(why), false) => format!(
                "these programs can neither be saved nor moved, and a fault leaves them alone: \
                 {why}"
            ),
            (None, true) if !self.job.agents_save() => {
                "all ranks have joined ftb-job: they can be saved and moved".to_owned()
            }
            (None, false) => match self.job.joined_in_pods() {
                Some(ranks) => format!(
                    "{ranks} joined ftb-job, but live in pods, which cannot be saved with \
                     connections to an agent: run with --backend app"
                ),
                None => return,
            },
            _ => return,
        };
        self.immovable_reported = !self.immovable_reported;
        self.job.tell(words);
        self.job.out.push(JlOutput::Save);
    }
}
