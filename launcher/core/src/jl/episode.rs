//! An open episode: which remedy, in which phase since when, what is asked again until it is answered; what a remedy
//! hears, and what it wants next.

use super::checkpoint::Checkpoint;
use super::end::End;
use super::faults::By;
use super::job::Job;
use super::migration::Migration;
use super::rollback::Rollback;
use super::start::Start;
use crate::message::{FromJl, FromNla, FromRank, How};
use crate::names::{Episode, NodeName};
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};

/// What is not known of ranks that go on while one JL takes over from another.
pub(super) const UNHEARD: &str = ", whether every rank goes on was not heard by this launcher";

/// What a remedy wants after an input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nothing new.
    Stay,
    /// A new phase: these requests are published now and again until the next phase.
    Next { phase: &'static str, deadline: Duration, requests: Vec<FromJl> },
    /// The episode is closed.
    Close { done: bool, words: String },
    /// A rank or a node with ranks has died: the job decides what that means.
    Died { code: i32, reason: String },
    /// The episode is closed, and the job starts again from the set that it has made.
    Again { words: String },
    /// The remedy has failed, and the job must restart from its last set, or end with this code.
    Restart { code: i32, reason: String },
    /// Ranks have not reacted in time, and may only be slow: never a reason to end the job.
    Overdue { reason: String },
    /// These nodes count as lost.
    Lost(Vec<NodeName>),
    /// The job ends with this code.
    End { code: i32, words: String },
}

impl Flow {
    pub(super) fn next(phase: &'static str, deadline: Duration, requests: Vec<FromJl>) -> Self {
        Self::Next { phase, deadline, requests }
    }

    pub(super) fn done(words: impl Into<String>) -> Self {
        Self::Close { done: true, words: words.into() }
    }

    pub(super) fn restart(reason: impl Into<String>) -> Self {
        Self::Restart { code: 1, reason: reason.into() }
    }

    pub(super) fn overdue(reason: impl Into<String>) -> Self {
        Self::Overdue { reason: reason.into() }
    }

    pub(super) fn died(rank: u32, how: How) -> Self {
        Self::Died { code: how.code(), reason: format!("rank {rank} died: {how}") }
    }
}

/// Where a remedy is at work.
#[derive(Debug)]
pub(super) struct At<'a> {
    /// What is known of the job.
    pub job: &'a mut Job,
    /// The episode of the remedy.
    pub episode: Episode,
}

/// What a remedy hears. Only what is of now comes to it: the JL has looked at episode, start and sender.
pub(super) trait Steps {
    /// An NLA has answered.
    fn on_nla(&mut self, _: &mut At<'_>, _node: &NodeName, _message: &FromNla) -> Flow {
        Flow::Stay
    }

    /// A rank has spoken.
    fn on_rank(&mut self, _: &mut At<'_>, _rank: u32, _message: &FromRank) -> Flow {
        Flow::Stay
    }

    /// All ranks that run on the node are in the fence, and others are not.
    fn on_inside(&mut self, _: &mut At<'_>, _node: &NodeName) -> Flow {
        Flow::Stay
    }

    /// All ranks of the job are in the fence: it is open.
    fn on_fence(&mut self, _: &mut At<'_>) -> Flow {
        Flow::Stay
    }

    /// A rank has ended.
    fn on_exit(&mut self, at: &mut At<'_>, rank: u32, how: How) -> Flow;

    /// A node is lost.
    fn on_lost(&mut self, at: &mut At<'_>, node: &NodeName) -> Flow;

    /// The images of the set are in the store, or could not be brought there.
    fn on_stored(&mut self, _: &mut At<'_>, _result: Result<u64, String>) -> Flow {
        Flow::Stay
    }

    /// Another JL has taken over: what nobody says twice, or the shell of the old one was at, is lost.
    fn on_adopted(&mut self, _: &mut At<'_>) -> Flow {
        Flow::Stay
    }

    /// The time of the phase is over.
    fn on_deadline(&mut self, at: &mut At<'_>) -> Flow;

    /// The nodes whose answers the phase waits for, where that is known.
    fn missing(&self) -> Vec<NodeName> {
        Vec::new()
    }

    /// How many have answered, of how many, where that is known.
    fn progress(&self, job: &Job) -> Option<(usize, usize)>;
}

/// What a JL can be at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Remedy {
    /// Starting or restarting all ranks.
    Start(Start),
    /// Saving the job.
    Checkpoint(Checkpoint),
    /// Moving the ranks of a node.
    Migration(Migration),
    /// Going back to the last set in place.
    Rollback(Rollback),
    /// Ending the job.
    End(End),
}

impl Remedy {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Checkpoint(_) => "checkpoint",
            Self::Migration(_) => "migration",
            Self::Rollback(_) => "rollback",
            Self::End(_) => "end",
        }
    }

    pub(super) fn steps(&mut self) -> &mut dyn Steps {
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

/// How far a phase is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The remedy and its phase.
    pub words: String,
    /// How many nodes or ranks of how many have answered, where that is known.
    pub done: Option<(usize, usize)>,
    /// The nodes whose answers are missing, where that is known.
    pub missing: Vec<NodeName>,
    /// Since when.
    pub age: Duration,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    pub(super) episode: Episode,
    pub(super) remedy: Remedy,
    pub(super) phase: String,
    pub(super) phase_ns: u64,
    pub(super) phase_deadline_ms: u64,
    pub(super) deadline_ns: u64,
    pub(super) repeat_ns: u64,
    pub(super) requests: Vec<FromJl>,
    /// Finished phases with their milliseconds.
    pub(super) phases: Vec<(String, u64)>,
    /// Who wanted it.
    pub(super) by: By,
    /// Why it was wanted.
    #[serde(default)]
    pub(super) reason: String,
}

impl Open {
    pub(super) fn new(episode: Episode, remedy: Remedy, by: By) -> Self {
        Self {
            episode,
            remedy,
            phase: String::new(),
            phase_ns: 0,
            phase_deadline_ms: 0,
            deadline_ns: u64::MAX,
            repeat_ns: u64::MAX,
            requests: Vec::new(),
            phases: Vec::new(),
            by,
            reason: String::new(),
        }
    }

    /// Ends the present phase at `now_ns`.
    pub(super) fn leave_phase(&mut self, now_ns: u64) {
        if !self.phase.is_empty() {
            let ms = now_ns.saturating_sub(self.phase_ns) / 1_000_000;
            self.phases.push((core::mem::take(&mut self.phase), ms));
        }
    }

    /// Of a checkpoint: how long the ranks stood still, and how long all of it took.
    pub(super) fn checkpoint_took(&self) -> (Duration, Duration) {
        let sum = |of: &dyn Fn(&str) -> bool| {
            let phases = self.phases.iter().filter(|(phase, _)| of(phase));
            Duration::from_millis(phases.map(|(_, ms)| ms).sum())
        };
        (sum(&|phase| phase != "store"), sum(&|_| true))
    }

    /// `leave=12 copy=30`.
    pub(super) fn phases_text(&self) -> String {
        let words: Vec<String> =
            self.phases.iter().map(|(phase, ms)| format!("{phase}={ms}")).collect();
        words.join(" ")
    }

    /// How far the phase is.
    pub fn progress(&self, now: Now, job: &Job) -> Progress {
        let done = self.remedy.progress(job);
        let age = Duration::from_nanos(now.mono_ns.saturating_sub(self.phase_ns));
        Progress { words: self.words(), done, missing: self.remedy.missing(), age }
    }

    /// The remedy, its phase, for people.
    pub fn words(&self) -> String {
        format!("{} {}: {}", self.remedy.kind(), self.episode, self.phase)
    }
}
