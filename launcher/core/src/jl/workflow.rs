//! The open episode: its workflow, its phase, and the requests that are repeated until they are
//! answered.

use super::checkpoint::Checkpoint;
use super::clocks::mono_ns;
use super::end::End;
use super::episode::Handler;
use super::initiator::Initiator;
use super::job::Job;
use super::migration::Migration;
use super::rollback::Rollback;
use super::start::Start;
use crate::message::{FromJl, TimeLeft};
use crate::names::{Episode, FaultId, NodeName};
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Workflow {
    /// Start or restart of all ranks.
    Start(Start),
    Checkpoint(Checkpoint),
    /// Move of the ranks of a node.
    Migration(Migration),
    /// Return to the last set in place.
    Rollback(Rollback),
    End(End),
}

impl Workflow {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Checkpoint(_) => "checkpoint",
            Self::Migration(_) => "migration",
            Self::Rollback(_) => "rollback",
            Self::End(_) => "end",
        }
    }

    /// What was chosen, for the user.
    pub(super) fn choice(&self) -> String {
        match self {
            Self::Start(_) => "start all ranks".to_owned(),
            Self::Checkpoint(checkpoint) => checkpoint.choice(),
            Self::Migration(migration) => migration.choice(),
            Self::Rollback(_) => "go back to the last set in place".to_owned(),
            Self::End(_) => "end the job".to_owned(),
        }
    }

    pub(super) fn handler(&mut self) -> &mut dyn Handler {
        match self {
            Self::Start(start) => start,
            Self::Checkpoint(checkpoint) => checkpoint,
            Self::Migration(migration) => migration,
            Self::Rollback(rollback) => rollback,
            Self::End(end) => end,
        }
    }

    fn missing(&self) -> Vec<NodeName> {
        match self {
            Self::Start(start) => start.missing(),
            Self::End(end) => end.missing(),
            Self::Checkpoint(_) | Self::Migration(_) | Self::Rollback(_) => Vec::new(),
        }
    }

    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        match self {
            Self::Start(start) => start.progress(job),
            Self::Checkpoint(checkpoint) => checkpoint.progress(job),
            Self::Migration(migration) => migration.progress(job),
            Self::Rollback(rollback) => rollback.progress(job),
            Self::End(end) => end.progress(job),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Workflow and phase.
    pub words: String,
    /// Answers received and expected, if known.
    pub done: Option<(usize, usize)>,
    /// Nodes whose answers are missing, if known.
    pub missing: Vec<NodeName>,
    pub age: Duration,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    pub(super) episode: Episode,
    pub(super) workflow: Workflow,
    pub(super) phase: String,
    pub(super) phase_ns: u64,
    pub(super) phase_deadline_ms: u64,
    pub(super) deadline_ns: u64,
    pub(super) repeat_ns: u64,
    pub(super) requests: Vec<FromJl>,
    /// Finished phases with their duration in milliseconds.
    pub(super) phases: Vec<(String, u64)>,
    pub(super) by: Initiator,
    #[serde(default)]
    pub(super) reason: String,
    /// Why this was chosen, for the user.
    #[serde(default)]
    pub(super) why: String,
    /// Of a predicted failure: what the remedy was chosen by.
    #[serde(default)]
    pub(super) left: Option<TimeLeft>,
    /// The fault that it prepares a remedy for.
    #[serde(default)]
    pub(super) before: Option<FaultId>,
    /// When the node that is left is predicted to fail, in Unix nanoseconds.
    #[serde(default)]
    pub(super) fails_wall_ns: Option<u64>,
}

impl Open {
    pub(super) fn new(episode: Episode, workflow: Workflow, by: Initiator, why: &str) -> Self {
        Self {
            episode,
            workflow,
            phase: String::new(),
            phase_ns: 0,
            phase_deadline_ms: 0,
            deadline_ns: u64::MAX,
            repeat_ns: u64::MAX,
            requests: Vec::new(),
            phases: Vec::new(),
            by,
            reason: String::new(),
            why: why.to_owned(),
            left: None,
            before: None,
            fails_wall_ns: None,
        }
    }

    /// The fault because of which it was opened.
    pub(super) fn fault(&self) -> Option<FaultId> {
        self.by.fault().or(self.before)
    }

    /// The node that is left.
    pub(super) fn leaves(&self) -> Option<&NodeName> {
        match &self.workflow {
            Workflow::Migration(migration) => Some(migration.source()),
            Workflow::Checkpoint(checkpoint) => checkpoint.leaving(),
            _ => None,
        }
    }

    /// When the node that is left is predicted to fail, in monotonic nanoseconds.
    pub(super) fn fails_ns(&self, now: Now) -> Option<u64> {
        self.fails_wall_ns.map(|wall_ns| mono_ns(now, wall_ns))
    }

    /// `migration 5 (fault 3: FTB_IPMI_FANFAIL on node03, rule fan failed)`, for display.
    pub(super) fn name(&self, job: &Job) -> String {
        let by = self.fault().map_or(Initiator::Internal, Initiator::Fault);
        format!("{} {}{}", self.workflow.kind(), self.episode, job.faults.words(by))
    }

    /// Ends the present phase at `now_ns`.
    pub(super) fn leave_phase(&mut self, now_ns: u64) {
        if !self.phase.is_empty() {
            let ms = now_ns.saturating_sub(self.phase_ns) / 1_000_000;
            self.phases.push((core::mem::take(&mut self.phase), ms));
        }
    }

    /// Of a checkpoint: how long ranks stood still.
    pub(super) fn stood_still(&self) -> Duration {
        let stopped = |phase: &str| phase != "store" && phase != "protect";
        let phases = self.phases.iter().filter(|(phase, _)| stopped(phase));
        Duration::from_millis(phases.map(|(_, ms)| ms).sum())
    }

    /// The duration of all finished phases.
    pub(super) fn took(&self) -> Duration {
        Duration::from_millis(self.phases.iter().map(|(_, ms)| ms).sum())
    }

    /// `leave=12 copy=30`.
    pub(super) fn phases_text(&self) -> String {
        let words: Vec<String> =
            self.phases.iter().map(|(phase, ms)| format!("{phase}={ms}")).collect();
        words.join(" ")
    }

    pub fn progress(&self, now: Now, job: &Job) -> Progress {
        let done = self.workflow.progress(job);
        let age = Duration::from_nanos(now.mono_ns.saturating_sub(self.phase_ns));
        Progress { words: self.words(), done, missing: self.workflow.missing(), age }
    }

    /// Workflow and phase, for display.
    pub fn words(&self) -> String {
        format!("{} {}: {}", self.workflow.kind(), self.episode, self.phase)
    }
}
