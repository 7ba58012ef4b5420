//! The typed messages of JL, NLAs and ranks. [`crate::wire`] encodes them as events;
//! `launcher/core/protocol.md` is the contract.

use crate::memory::GroupTask;
use crate::migration_state::MigrationState;
use crate::names::{Episode, FaultId, JobId, NodeName, Ranks, SetId};
use crate::progress::{Activity, HangKind, NodeReport};
use crate::repair::{RepairCall, RepairNews};
use crate::warm::ParkedProcesses;
use core::fmt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Which ranks run where.
pub type Placement = BTreeMap<NodeName, Ranks>;

/// One part of the puts of a barrier, as `key=value` lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Number of the barrier, from 1 within the job.
    pub barrier: u64,
    /// From 0.
    pub part: u32,
    pub parts: u32,
    pub lines: String,
}

/// The start of all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub episode: Episode,
    /// Number of this start.
    pub incarnation: u64,
    /// The first barrier of the ranks.
    pub barrier: u64,
    pub size: u32,
    /// Restored from this set.
    pub set: Option<SetId>,
    /// How many ranks made the set, if not `size`. Each rank then finds the images of all of them.
    pub set_size: Option<u32>,
    pub placement: Placement,
}

/// The start of ranks on the target of a migration (phase II).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipt {
    pub episode: Episode,
    pub target: NodeName,
    pub ranks: Ranks,
    pub set: SetId,
    /// Number of this start.
    pub incarnation: u64,
    /// The barrier that they enter.
    pub barrier: u64,
}

/// Messages of the JL (`ftb.jl`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromJl {
    /// Start the ranks of the job.
    Launch(Launch),
    /// Each NLA that saves its ranks stops them. No rank sends after all answers.
    Prepare {
        episode: Episode,
        set: SetId,
    },
    /// Undoes `Prepare`.
    Release {
        episode: Episode,
    },
    /// Every rank saves itself (3.4.1), or its NLA saves it.
    Checkpoint {
        episode: Episode,
        set: SetId,
        /// The loop id at which ranks of [`crate::manner::Saver::Loop`] are saved; `None`: that of
        /// their first call, in which they wait.
        loop_id: Option<u64>,
    },
    /// Phase I of a migration (3.4.2).
    Migrate {
        episode: Episode,
        /// The node to leave.
        source: NodeName,
        /// Name of the images.
        set: SetId,
        /// The ranks on the source.
        ranks: Ranks,
    },
    /// Ranks that have not left stay.
    MigrateAbort {
        episode: Episode,
        source: NodeName,
        reason: String,
    },
    Copy {
        /// The episode that needs them.
        episode: Episode,
        /// The node that has them; `None`: the store of the JL.
        from: Option<NodeName>,
        target: NodeName,
        set: SetId,
        ranks: Ranks,
    },
    /// Phase II: the target starts these ranks.
    MigrateIpt(Ipt),
    /// Protect the member's share of a set in memory: make its parity, or copies of other shares.
    Protect(GroupTask),
    /// The target takes the place of a lost member: it gets its images from the group, then does as
    /// for `Protect`. Answered as a copy.
    Gather(GroupTask),
    /// A barrier is complete.
    Pmi {
        episode: Episode,
        part: Part,
    },
    /// Every NLA kills its ranks; a start follows.
    Reset {
        episode: Episode,
        /// The barrier that counts from now on.
        barrier: u64,
        reason: String,
    },
    /// Ranks have died. Survivors restore their own state of `set` in place, and meet the restarted
    /// ranks in the barrier.
    Rollback {
        episode: Episode,
        set: SetId,
        /// Ranks that have died. Older processes of these ranks no longer count.
        ranks: Ranks,
        /// Those of them that are not started again: the job goes on without them.
        left: Ranks,
    },
    /// An inactive node becomes a spare.
    Usable {
        episode: Episode,
        target: NodeName,
    },
    /// Images of that set may be deleted.
    Drop {
        episode: Episode,
        set: SetId,
    },
    /// Deliver a signal to every rank.
    Signal {
        /// A number of its own, so that each rank gets the signal once.
        episode: Episode,
        signal: i32,
    },
    Kill {
        episode: Episode,
        reason: String,
    },
    /// The node counts as lost: its ranks are killed, its NLA leaves.
    Evict {
        episode: Episode,
        target: NodeName,
    },
    /// A rank is hung, or all are; or no more.
    Hang(HangNotice),
    /// The job waits for a node.
    Waiting(Waiting),
    /// Ranks are dead and the others go on; what was decided for their communicators.
    Repair {
        /// The newest episode of the job.
        episode: Episode,
        news: RepairNews,
    },
    /// Each NLA answers with READY, every exit, and an open barrier.
    Ask,
    /// An episode is closed.
    Closed(Closed),
    /// The JL is there.
    Alive,
}

impl FromJl {
    /// The only receiver of a message that travels over the job connection, and the nodes whose
    /// addresses it needs.
    pub fn parties(&self) -> Option<(&NodeName, Vec<&NodeName>)> {
        match self {
            Self::Copy { from: Some(from), target, .. } => Some((target, vec![from])),
            Self::Protect(task) | Self::Gather(task) => {
                Some((&task.target, task.peers().collect()))
            }
            _ => None,
        }
    }
}

/// Why the policy acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCause {
    /// `FTB_IPMI_FANFAIL of FAN 1 on node03`.
    pub what: String,
    /// The name of the rule.
    pub rule: String,
}

impl FaultCause {
    /// `fault 3: FTB_IPMI_FANFAIL on node03, rule fan failed`, for display.
    pub fn words(&self, fault: FaultId) -> String {
        let Self { what, rule } = self;
        format!("fault {fault}: {what}, rule {rule}")
    }
}

/// A job without a spare for a node waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub episode: Episode,
    /// The node that has no replacement.
    pub node: NodeName,
    /// In Unix nanoseconds.
    pub since_ns: u64,
    /// In Unix nanoseconds.
    pub until_ns: u64,
    pub words: String,
}

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    pub episode: Episode,
    /// `start`, `checkpoint`, `migration`, `rollback`, `end`.
    pub kind: String,
    pub done: bool,
    pub words: String,
    /// The phases with their milliseconds, `leave=12 copy=30`.
    pub phases: String,
    /// The fault that the policy acted on.
    pub fault: Option<FaultId>,
    /// Why the policy acted.
    pub cause: Option<FaultCause>,
    /// What was chosen: `move ranks 2,3 from node03 to node05`.
    pub choice: String,
    /// Why that was chosen.
    pub why: String,
    /// Of a predicted failure: what the remedy was chosen by.
    pub left: Option<TimeLeft>,
}

/// The time before a predicted failure, and the measured durations (p95) of the remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLeft {
    pub left_ms: u64,
    pub checkpoint_p95_ms: Option<u32>,
    /// Of checkpoints in memory, if the job makes them.
    #[serde(default)]
    pub memory_p95_ms: Option<u32>,
    pub migration_p95_ms: Option<u32>,
}

/// A hung rank, or all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangNotice {
    /// The newest episode of the job.
    pub episode: Episode,
    /// `None`: all ranks.
    pub rank: Option<HungRank>,
    pub kind: HangKind,
    /// It is hung no more.
    pub is_over: bool,
    /// Its NLA kills the rank.
    pub kill: bool,
    pub words: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HungRank {
    pub node: NodeName,
    pub rank: u32,
    /// Number of its start.
    pub incarnation: u64,
    pub pid: u32,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitCause {
    /// With code 0 after its image was complete, as a migration asked.
    Left,
    Exit(i32),
    Signal(i32),
}

impl ExitCause {
    /// The code a shell would show: the exit code, or 128 plus the signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Left => 0,
            Self::Exit(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for ExitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left"),
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// The protocol that a rank speaks with its agent. It decides whether the rank can be asked to save
/// itself or to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    #[default]
    None,
    /// PMI, as every MPI program.
    Pmi,
    /// It has joined ftb-job: its address is in the key-value space.
    FtbJob,
}

/// Messages of an NLA (`ftb.nla`); [`NlaMessage`] adds the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromNla {
    Ready {
        state: MigrationState,
        /// How often the state has changed.
        changes: u64,
        ranks: Ranks,
        /// Ranks that speak PMI.
        pmi: Ranks,
        /// Ranks that have joined ftb-job.
        joined: Ranks,
        #[serde(default, skip_serializing_if = "ParkedProcesses::is_none")]
        parked: ParkedProcesses,
    },
    State {
        /// Because of this episode.
        episode: Episode,
        from: MigrationState,
        to: MigrationState,
        /// How often the state has changed, this time included.
        changes: u64,
    },
    Launched {
        episode: Episode,
        /// Number of this start.
        incarnation: u64,
        ranks: Ranks,
    },
    /// Answer to LAUNCH or IPT: the start failed.
    LaunchFailed {
        episode: Episode,
        /// Number of this start.
        incarnation: u64,
        ranks: Ranks,
        reason: String,
    },
    Prepared {
        episode: Episode,
        /// The lowest loop id at which all ranks of the node can be saved.
        loop_id: Option<u64>,
    },
    /// All ranks of the node have arrived at the barrier.
    Pmi {
        /// The newest episode that the NLA knows.
        episode: Episode,
        ranks: Ranks,
        /// Ranks that have joined ftb-job.
        joined: Ranks,
        part: Part,
    },
    /// Which ranks move, and for how long the others have stood still.
    Progress(NodeReport),
    /// A rank of this node is hung, or no more. It states a condition of the host.
    Hang {
        /// The newest episode that the NLA knows.
        episode: Episode,
        rank: u32,
        /// Number of its start.
        incarnation: u64,
        job: JobId,
        kind: HangKind,
        is_over: bool,
        words: String,
    },
    /// A rank that was found hung has ended with its launch agent. It ends the condition of the
    /// host.
    HangLeft {
        job: JobId,
        rank: u32,
    },
    /// A rank has ended.
    Exited {
        /// The newest episode that the NLA knows.
        episode: Episode,
        rank: u32,
        incarnation: u64,
        how: ExitCause,
    },
    /// Phase I is complete: all ranks have left this node.
    Pic {
        episode: Episode,
        ranks: Ranks,
        /// Name of their images.
        set: SetId,
    },
    Copied {
        episode: Episode,
        set: SetId,
        ranks: Ranks,
        bytes: u64,
    },
    /// Answer to COPY: it failed.
    CopyFailed {
        episode: Episode,
        set: SetId,
        ranks: Ranks,
        reason: String,
    },
    Restarted {
        episode: Episode,
        /// Number of this start.
        incarnation: u64,
        ranks: Ranks,
    },
    /// Answer to PROTECT.
    Protected {
        episode: Episode,
        set: SetId,
        /// Of parity and copies.
        bytes: u64,
    },
    /// Answer to PROTECT: it failed.
    ProtectFailed {
        episode: Episode,
        set: SetId,
        reason: String,
    },
    /// Answer to RESET: no rank is left on the node.
    Reset {
        episode: Episode,
    },
    /// Answer to KILL: no rank is left on the node; the NLA leaves.
    Stopped {
        episode: Episode,
    },
}

/// A message of an NLA with its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NlaMessage {
    pub node: NodeName,
    pub message: FromNla,
}

/// A message of a rank (`ftb.mpi`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMessage {
    pub episode: Episode,
    pub rank: u32,
    pub message: FromRank,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRank {
    /// Its channels are suspended.
    Suspended,
    /// Its image is complete.
    CheckpointDone {
        set: SetId,
        bytes: u64,
        /// What the rank had done until then, if measured.
        activity: Option<Activity>,
    },
    CheckpointFailed {
        set: SetId,
        reason: String,
    },
    Resumed,
    /// It cannot go back in place and must be started again.
    RollbackFailed {
        set: SetId,
        reason: String,
    },
    /// It repairs a communicator after deaths. Of no episode.
    Repair(RepairCall),
}

/// A request of a person or a program to a running job (`ftb.job`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRequest {
    Checkpoint,
    Migrate(NodeName),
    /// As `Migrate`; the node stays unusable until `Usable`.
    Drain(NodeName),
    Usable(NodeName),
    /// Add these nodes as spares.
    Add(BTreeSet<NodeName>),
    /// Close the circuit breaker of the policy.
    ResetBreaker,
    Kill,
}

/// A request with the number of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedRequest {
    /// Random number chosen by the sender.
    pub request: u64,
    pub what: JobRequest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub request: u64,
    pub outcome: Outcome,
    pub words: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Running or queued; another answer follows.
    Accepted,
    Done,
    Refused,
    /// It failed; the job goes on as `words` says.
    Failed,
}
