//! State that cannot be saved. A decision that is not on disk is not executed: no checkpoint,
//! migration or recovery starts until the state can be saved again. Ranks that run, and an episode
//! that has begun, go on; so does the end of the job.

use super::requests::QueuedRequest;
use super::{Initiator, Jl, JlOutput, Outcome, Request, Workflow};
use crate::message::FromJl;
use crate::names::Episode;
use core::time::Duration;
use ftb_core::Now;

/// Interval at which saving is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// The state on disk is older than the one in memory.
#[derive(Clone, Debug)]
pub(super) struct Unsaved {
    retry_ns: u64,
    /// The first recovery that waits.
    recovery: Option<WaitingRecovery>,
}

#[derive(Clone, Debug)]
struct WaitingRecovery {
    code: i32,
    reason: String,
    in_place: bool,
}

impl Jl {
    /// Whether the last save has failed.
    pub fn is_unsaved(&self) -> bool {
        self.unsaved.is_some()
    }

    /// When saving is tried again, in monotonic nanoseconds.
    pub(super) fn save_again_ns(&self) -> u64 {
        self.unsaved.as_ref().map_or(u64::MAX, |unsaved| unsaved.retry_ns)
    }

    pub(super) fn save_again(&mut self, now: Now) {
        if let Some(unsaved) = self.unsaved.as_mut().filter(|it| now.mono_ns >= it.retry_ns) {
            unsaved.retry_ns = now.deadline_ns(RETRY);
            self.job.out.push(JlOutput::Save);
        }
    }

    /// Whether this output belongs to a decision that [`JlInput::SaveFailed`] has taken back: it
    /// must not be executed.
    ///
    /// [`JlInput::SaveFailed`]: super::JlInput::SaveFailed
    pub fn is_taken_back(&self, output: &JlOutput) -> bool {
        let of = match output {
            JlOutput::Publish(
                FromJl::Prepare { episode, .. }
                | FromJl::Checkpoint { episode, .. }
                | FromJl::Migrate { episode, .. }
                | FromJl::Copy { episode, .. },
            )
            | JlOutput::Store { episode, .. } => Some(*episode),
            _ => None,
        };
        of.is_some() && of == self.taken_back
    }

    /// `opened`: the episode that the input before has opened.
    pub(super) fn on_save_failed(&mut self, now: Now, why: &str, opened: Option<Episode>) {
        if self.unsaved.is_none() {
            self.job.tell(format!(
                "the state of the job cannot be saved: {why}: the ranks go on; no checkpoint, \
                 migration or recovery starts until it can"
            ));
        }
        let recovery = self.unsaved.take().and_then(|unsaved| unsaved.recovery);
        self.unsaved = Some(Unsaved { retry_ns: now.deadline_ns(RETRY), recovery });
        self.take_back(opened);
        let words = format!("the state of the job cannot be saved: {why}");
        // A fault waits. A person gets an answer.
        for waiting in self.take_waiting(|waiting| waiting.by.request().is_some()) {
            self.settle(waiting.by, Outcome::Refused, &words);
        }
    }

    /// Takes back a checkpoint or a migration of which nothing was executed.
    fn take_back(&mut self, opened: Option<Episode>) {
        self.taken_back = None;
        let is_new = |open: &mut super::Open| {
            let by_choice =
                matches!(open.workflow, Workflow::Checkpoint(_) | Workflow::Migration(_));
            by_choice && Some(open.episode) == opened
        };
        let Some(open) = self.open.take_if(is_new) else { return };
        self.taken_back = Some(open.episode);
        if open.by == Initiator::Internal {
            // The clock asks again.
            return;
        }
        let rule = open.by.fault().and_then(|fault| self.job.faults.cause(fault));
        let reason = rule.map_or(open.reason, |cause| cause.rule.clone());
        let node = match &open.workflow {
            Workflow::Migration(migration) => Some(migration.source().clone()),
            Workflow::Checkpoint(checkpoint) => checkpoint.leaving().cloned(),
            _ => None,
        };
        let want = match node {
            Some(node) => Request::Migrate { node, reason, fails_ns: None },
            None => Request::Checkpoint { reason },
        };
        self.wanted.push_front(QueuedRequest::again(want, open.by, open.left));
    }

    /// A recovery waits while the state cannot be saved.
    pub(super) fn waits_to_recover(&mut self, code: i32, reason: &str, in_place: bool) -> bool {
        let Some(unsaved) = &mut self.unsaved else { return false };
        if unsaved.recovery.is_none() {
            let reason = reason.to_owned();
            self.job.tell(format!("{reason}: the recovery waits until the state can be saved"));
            unsaved.recovery = Some(WaitingRecovery { code, reason, in_place });
        }
        true
    }

    pub(super) fn on_saved(&mut self, now: Now) {
        let Some(Unsaved { recovery, .. }) = self.unsaved.take() else { return };
        self.job.tell("the state of the job can be saved again");
        if let Some(WaitingRecovery { code, reason, in_place }) = recovery {
            self.recover_by(now, code, &reason, in_place);
        }
    }
}
