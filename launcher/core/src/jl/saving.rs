//! State that cannot be saved. A decision that is not on disk is not executed: no checkpoint,
//! migration or recovery starts until the state can be saved again. Ranks that run, and an episode
//! that has begun, go on; so does the end of the job.

use super::job::Job;
use super::requests::QueuedRequest;
use super::{Initiator, Jl, JlOutput, Outcome, Request, Workflow};
use crate::memory::GroupTask;
use crate::message::{FromJl, Ipt, Launch};
use crate::names::Episode;
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};

/// Interval at which saving is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// The state on disk is older than the one in memory.
#[derive(Clone, Debug)]
pub(super) struct Unsaved {
    retry_ns: u64,
}

/// A recovery that waits until the state can be saved. It is part of the state: a launcher that
/// takes over then begins it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WaitingRecovery {
    /// The exit code of the job if there is no way back.
    pub(super) code: i32,
    pub(super) reason: String,
    pub(super) way: RecoveryWay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RecoveryWay {
    /// To the last set; survivors may go back without an end.
    InPlace,
    /// To the last set.
    Restart,
    /// From the beginning.
    Anew,
}

/// What the opening of a recovery replaces.
#[derive(Clone, Debug)]
pub(super) struct BeforeRecovery {
    job: Box<Job>,
    recovery: WaitingRecovery,
    /// How the recovery was reported.
    words: String,
}

/// An episode that is not executed.
#[derive(Clone, Debug)]
pub(super) struct TakenBack {
    episode: Episode,
    /// How it was reported.
    words: Option<String>,
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
        if matches!(output, JlOutput::StartNlas(_)) {
            return self.is_unsaved();
        }
        // It is repeated when the state can be saved.
        if matches!(output, JlOutput::Publish(FromJl::Repair { .. })) {
            return self.is_unsaved();
        }
        let Some(back) = &self.taken_back else { return false };
        match output {
            JlOutput::Publish(
                FromJl::Prepare { episode, .. }
                | FromJl::Checkpoint { episode, .. }
                | FromJl::Migrate { episode, .. }
                | FromJl::Copy { episode, .. }
                | FromJl::Reset { episode, .. }
                | FromJl::Rollback { episode, .. }
                | FromJl::Launch(Launch { episode, .. })
                | FromJl::MigrateIpt(Ipt { episode, .. })
                | FromJl::Gather(GroupTask { episode, .. }),
            )
            | JlOutput::Store { episode, .. } => *episode == back.episode,
            JlOutput::Notify(words) => Some(words) == back.words.as_ref(),
            _ => false,
        }
    }

    /// `opened`: the episode that the input before has opened; `before`: what was before it.
    pub(super) fn on_save_failed(
        &mut self,
        now: Now,
        why: &str,
        (opened, before): (Option<Episode>, Option<BeforeRecovery>),
    ) {
        if self.unsaved.is_none() {
            self.job.tell(format!(
                "the state of the job cannot be saved: {why}: the ranks go on; no checkpoint, \
                 migration or recovery starts until it can"
            ));
        }
        self.unsaved = Some(Unsaved { retry_ns: now.deadline_ns(RETRY) });
        self.taken_back = None;
        self.take_back(now, opened);
        self.take_back_recovery(opened, before);
        let words = format!("the state of the job cannot be saved: {why}");
        // A fault waits. A person gets an answer.
        for waiting in self.take_waiting(|waiting| waiting.by.request().is_some()) {
            self.settle(waiting.by, Outcome::Refused, &words);
        }
    }

    /// Takes back a checkpoint or a migration of which nothing was executed.
    fn take_back(&mut self, now: Now, opened: Option<Episode>) {
        let is_new = |open: &mut super::Open| {
            let by_choice =
                matches!(open.workflow, Workflow::Checkpoint(_) | Workflow::Migration(_));
            by_choice && Some(open.episode) == opened
        };
        let Some(open) = self.open.take_if(is_new) else { return };
        self.taken_back = Some(TakenBack { episode: open.episode, words: None });
        if open.by == Initiator::Internal {
            // The clock asks again.
            return;
        }
        let (node, fails_ns) = (open.leaves().cloned(), open.fails_ns(now));
        let rule = open.by.fault().and_then(|fault| self.job.faults.cause(fault));
        let reason = rule.map_or(open.reason, |cause| cause.rule.clone());
        let want = match node {
            Some(node) => Request::Migrate { node, reason, fails_ns },
            None => Request::Checkpoint { reason },
        };
        let queued = QueuedRequest::again(want, open.by, open.left).dated(now);
        self.wanted.push_front(queued);
    }

    /// The job is again what it was before; the ends of its ranks are known.
    fn take_back_recovery(&mut self, opened: Option<Episode>, before: Option<BeforeRecovery>) {
        let is_new = |open: &mut super::Open| {
            let recovers = matches!(open.workflow, Workflow::Rollback(_) | Workflow::Start(_));
            recovers && before.is_some() && Some(open.episode) == opened
        };
        let Some(open) = self.open.take_if(is_new) else { return };
        let Some(BeforeRecovery { mut job, recovery, words }) = before else { return };
        (job.out, job.episode) = (core::mem::take(&mut self.job.out), self.job.episode);
        self.job = *job;
        self.taken_back = Some(TakenBack { episode: open.episode, words: Some(words) });
        self.lets_wait(recovery);
    }

    /// `words`: how the recovery that opens now is reported.
    pub(super) fn keep_before(&mut self, recovery: WaitingRecovery, words: &str) {
        let mut job = Box::new(self.job.clone());
        // It counts when it begins.
        job.restarts = job.restarts.saturating_sub(1);
        self.before = Some(BeforeRecovery { job, recovery, words: words.to_owned() });
    }

    fn lets_wait(&mut self, recovery: WaitingRecovery) {
        if self.recovery.is_none() {
            let reason = &recovery.reason;
            self.job.tell(format!("{reason}: the recovery waits until the state can be saved"));
            self.recovery = Some(recovery);
        }
    }

    /// A recovery waits while the state cannot be saved.
    pub(super) fn waits_to_recover(&mut self, code: i32, reason: &str, way: RecoveryWay) -> bool {
        if self.unsaved.is_some() {
            self.lets_wait(WaitingRecovery { code, reason: reason.to_owned(), way });
        }
        self.unsaved.is_some()
    }

    pub(super) fn on_saved(&mut self, now: Now) {
        if self.unsaved.take().is_none() {
            return;
        }
        self.job.tell("the state of the job can be saved again");
        self.restart_arriving(now);
        self.recover_at_last(now);
    }

    /// Begins the recovery that waits.
    pub(super) fn recover_at_last(&mut self, now: Now) {
        let Some(WaitingRecovery { code, reason, way }) = self.recovery.take() else { return };
        match way {
            RecoveryWay::Anew => self.begin_anew(now, &reason),
            way => self.recover_by(now, code, &reason, way == RecoveryWay::InPlace),
        }
    }
}
