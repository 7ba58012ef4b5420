//! What the JL does when ranks died, or are overdue: back in place, a restart from the newest set,
//! or the end of the job.

use super::job::Job;
use super::rollback::Rollback;
use super::saving::{RecoveryWay, WaitingRecovery};
use super::start::Start;
use super::{Initiator, Jl, OnDeath, Workflow};
use ftb_core::Now;

impl Jl {
    /// Restarts the job from its last set, on other nodes.
    pub(super) fn again(&mut self, now: Now, words: String) {
        self.close(now, true, words.clone());
        let Some(set) = self.job.sets.last().cloned() else {
            return;
        };
        let episode = self.job.open();
        let (start, transition) = Start::again(&mut self.job, episode, Some(set), &words);
        let by = Initiator::Internal;
        self.begin(now, episode, Workflow::Start(start), by, transition, &words);
    }

    /// A rank or a node with ranks has died: the policy (`on_death`) decides.
    pub(super) fn died(&mut self, now: Now, code: i32, reason: &str) {
        let on_death = self.job.config.on_death;
        let (is_killed, on_hang) = (!self.killed.is_empty(), self.job.config.on_hang);
        let reason = &match is_killed {
            true => format!("{reason} (on_hang = {})", on_hang.as_str()),
            false => format!("{reason} (on_death = {})", on_death.as_str()),
        };
        match on_death {
            OnDeath::Rollback | OnDeath::Restart | OnDeath::Shrink => {
                self.recover(now, code, reason)
            }
            // It was killed to go back.
            OnDeath::Stop if is_killed => self.recover(now, code, reason),
            OnDeath::Stop => self.end(now, code, reason),
            OnDeath::Continue => self.go_on(now, code, reason),
        }
    }

    /// Ranks missed a deadline. They may only be slow, so the job does not end: it goes back to its
    /// last set if one exists and recoveries are left. Otherwise the JL waits for the ranks.
    pub(super) fn overdue(&mut self, now: Now, reason: &str) {
        let counts =
            !matches!(&self.open, Some(open) if matches!(open.workflow, Workflow::Rollback(_)));
        let spent = counts && self.job.restarts >= self.job.config.restarts_max;
        if self.job.newest_set().is_none() || spent {
            return self.tell_of_open(&format!("{reason}: the launcher waits for them"));
        }
        self.recover(now, 1, reason);
    }

    /// Recovers the job from its last set, in place if possible. The job ends if there is no set,
    /// or after too many recoveries without progress. Its sets stay in the store.
    pub(super) fn recover(&mut self, now: Now, code: i32, reason: &str) {
        self.recover_by(now, code, reason, true);
    }

    /// The same; `in_place`: whether survivors may go back without an end.
    pub(super) fn recover_by(&mut self, now: Now, code: i32, reason: &str, in_place: bool) {
        self.killed.clear();
        self.job.check_levels();
        let Some(set) = self.job.newest_set() else {
            self.end(now, code, &format!("{reason}; there is no set to restart from"));
            return;
        };
        let way = if in_place { RecoveryWay::InPlace } else { RecoveryWay::Restart };
        if self.waits_to_recover(code, reason, way) {
            return;
        }
        if let Some(Workflow::Rollback(rollback)) = self.open.as_ref().map(|open| &open.workflow)
            && (!rollback.has_met() || self.job.undivided)
        {
            self.job.leave_out(rollback.left(), false);
        }
        let (settled, again) = match self.open.as_ref().map(|open| &open.workflow) {
            // The place of each rank is known.
            None | Some(Workflow::Checkpoint(_)) => (true, false),
            Some(Workflow::Rollback(rollback)) if rollback.has_met() => (true, false),
            // A restart after a failed rollback belongs to the same attempt.
            Some(Workflow::Rollback(_)) => (false, true),
            Some(Workflow::Start(_) | Workflow::Migration(_) | Workflow::End(_)) => (false, false),
        };
        if !again && self.job.restarts >= self.job.config.restarts_max {
            let restarts = self.job.restarts;
            let words = format!("{reason}; {restarts} recoveries without a new set in between");
            self.end(now, code, &words);
            return;
        }
        self.job.restarts += u32::from(!again);
        let of = self.open.as_ref().filter(|open| open.fault().is_some());
        let of = of.map(|open| format!(" in {}", open.name(&self.job))).unwrap_or_default();
        self.close(now, false, reason.to_owned());
        let reason = &format!("{reason}{of}");
        let way = if settled { way } else { RecoveryWay::Restart };
        let recovery = WaitingRecovery { code, reason: reason.to_owned(), way };
        let (episode, named) = (self.job.open(), Job::named(&set));
        if way == RecoveryWay::InPlace && self.job.keeps_images() {
            let words = format!("{reason}: the job goes back to set {named} in place");
            self.keep_before(recovery.clone(), &words);
            match Rollback::open(&mut self.job, episode, set.clone()) {
                Ok((rollback, transition)) => {
                    self.job.tell(words);
                    let (rollback, by) = (Workflow::Rollback(rollback), Initiator::Internal);
                    return self.begin(now, episode, rollback, by, transition, reason);
                }
                Err(why) => {
                    self.job.tell(format!("{reason}: the job cannot go back in place: {why}"));
                }
            }
        }
        let words = format!("{reason}: the job restarts from set {named}");
        self.keep_before(recovery, &words);
        self.job.tell(words);
        let (start, transition) = Start::again(&mut self.job, episode, Some(set), reason);
        let (start, by) = (Workflow::Start(start), Initiator::Internal);
        self.begin(now, episode, start, by, transition, reason);
    }
}
