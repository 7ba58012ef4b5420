//! What JL, NLAs and ranks say to each other, typed. [`crate::wire`] turns it into events and back;
//! `docs/launcher-protocol.md` is the contract.

use crate::names::{Episode, FaultId, NodeName, Ranks, SetId};
use crate::nla::MigrationState;
use core::fmt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which ranks run where.
pub type Placement = BTreeMap<NodeName, Ranks>;

/// One part of the puts of a fence: `key=value` lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which fence, counted from 1 within the job.
    pub fence: u64,
    /// From 0.
    pub part: u32,
    /// How many there are.
    pub parts: u32,
    /// The lines.
    pub lines: String,
}

/// The start of all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The start.
    pub episode: Episode,
    /// Number of this start.
    pub incarnation: u64,
    /// The fence that the ranks enter first.
    pub fence: u64,
    /// How many ranks the job has.
    pub size: u32,
    /// Restored from this set.
    pub set: Option<SetId>,
    /// How many ranks had made it, where the job has another number now: each rank finds the images of all of them.
    pub set_size: Option<u32>,
    /// Who starts what.
    pub placement: Placement,
}

/// The start of some ranks on the target of a migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipt {
    /// The migration.
    pub episode: Episode,
    /// Who starts them.
    pub target: NodeName,
    /// Which.
    pub ranks: Ranks,
    /// From which images.
    pub set: SetId,
    /// Number of this start.
    pub incarnation: u64,
    /// The fence that they enter.
    pub fence: u64,
}

/// What the JL says (`ftb.jl`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromJl {
    /// Start the ranks of the job.
    Launch(Launch),
    /// Every node agent that saves its ranks makes them ready for it: from now on nothing passes between nodes.
    Prepare {
        /// The checkpoint.
        episode: Episode,
        /// Where to.
        set: SetId,
    },
    /// All are saved, or nobody will be: what was prepared is undone.
    Release {
        /// The checkpoint.
        episode: Episode,
    },
    /// Every rank saves itself (3.4.1), or its node agent does.
    Checkpoint {
        /// The checkpoint.
        episode: Episode,
        /// Where to.
        set: SetId,
    },
    /// Phase I of a migration (3.4.2).
    Migrate {
        /// The migration.
        episode: Episode,
        /// The node to leave.
        source: NodeName,
        /// Name of the images.
        set: SetId,
        /// The ranks on the source.
        ranks: Ranks,
    },
    /// Nobody leaves any more.
    MigrateAbort {
        /// The migration.
        episode: Episode,
        /// Its source.
        source: NodeName,
        /// Why.
        reason: String,
    },
    /// Fetch images.
    Copy {
        /// The remedy that needs them.
        episode: Episode,
        /// `host:port` of the image server that has them.
        from: String,
        /// Who fetches.
        target: NodeName,
        /// Which set.
        set: SetId,
        /// Whose images.
        ranks: Ranks,
    },
    /// Phase II: the target starts these ranks.
    MigrateIpt(Ipt),
    /// A fence is complete.
    Pmi {
        /// The newest episode.
        episode: Episode,
        /// Its result.
        part: Part,
    },
    /// Every NLA kills its ranks; a start follows.
    Reset {
        /// The restart.
        episode: Episode,
        /// The fence that counts from now on.
        fence: u64,
        /// Why.
        reason: String,
    },
    /// Ranks have died: those that live take back their own state of `set`, in place, and meet in the fence with
    /// the ones that are started again.
    Rollback {
        /// The recovery.
        episode: Episode,
        /// The set that all go back to.
        set: SetId,
        /// Who is started again: a process of these ranks that still lives somewhere does not count.
        ranks: Ranks,
    },
    /// An inactive node becomes a spare.
    Usable {
        /// The newest episode.
        episode: Episode,
        /// Which.
        target: NodeName,
    },
    /// Images of that set may be deleted.
    Drop {
        /// The newest episode.
        episode: Episode,
        /// Which.
        set: SetId,
    },
    /// Deliver a signal to every rank.
    Signal {
        /// Of its own, so that it is delivered once.
        episode: Episode,
        /// Signal number.
        signal: i32,
    },
    /// The job ends.
    Kill {
        /// The end.
        episode: Episode,
        /// Why.
        reason: String,
    },
    /// That node counts as lost: whatever still runs there is killed, and its NLA leaves.
    Evict {
        /// The newest episode.
        episode: Episode,
        /// Which.
        target: NodeName,
    },
    /// Tell me all: answered by READY, every exit, and an open fence.
    Ask,
    /// An episode is closed.
    Closed(Closed),
    /// The JL is there.
    Alive,
}

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// Which.
    pub episode: Episode,
    /// `start`, `checkpoint`, `migration`, `rollback`, `end`.
    pub kind: String,
    /// Whether it did what it was to do.
    pub done: bool,
    /// In words.
    pub words: String,
    /// The phases with their milliseconds, `leave=12 copy=30`.
    pub phases: String,
    /// The fault that it was the remedy of, where the policy wanted it.
    pub fault: Option<FaultId>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With code 0 after its image was complete, as a migration asked.
    Left,
    /// With this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl How {
    /// The code a shell would show: the exit code, or 128 plus the signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Left => 0,
            Self::Exit(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("left"),
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What a rank has spoken with its agent so far: it decides whether the rank can be asked to save
/// itself or to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Nothing.
    #[default]
    None,
    /// PMI, as every MPI program.
    Pmi,
    /// It has joined ftb-job: it has put its address into the key-value space.
    FtbJob,
}

/// What an NLA says (`ftb.nla`). The node that says it stands beside it, see [`NlaSays`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromNla {
    /// It is there.
    Ready {
        /// Its state.
        state: MigrationState,
        /// `host:port` of its image server.
        images: String,
        /// Ranks that run there.
        ranks: Ranks,
        /// Those of them that speak PMI.
        pmi: Ranks,
        /// Those of them that have joined ftb-job.
        joined: Ranks,
    },
    /// A transition.
    State {
        /// Because of this episode.
        episode: Episode,
        /// From.
        from: MigrationState,
        /// To.
        to: MigrationState,
    },
    /// Answer to LAUNCH.
    Launched {
        /// The start.
        episode: Episode,
        /// Number of this start.
        incarnation: u64,
        /// Which.
        ranks: Ranks,
    },
    /// Answer to LAUNCH or IPT: it could not.
    LaunchFailed {
        /// The start.
        episode: Episode,
        /// Number of this start.
        incarnation: u64,
        /// Which.
        ranks: Ranks,
        /// Why.
        reason: String,
    },
    /// Answer to PREPARE.
    Prepared {
        /// The checkpoint.
        episode: Episode,
    },
    /// All ranks of the node are in the fence.
    Pmi {
        /// The newest episode that the NLA knows.
        episode: Episode,
        /// Who is in.
        ranks: Ranks,
        /// Those of them that have joined ftb-job.
        joined: Ranks,
        /// Their puts.
        part: Part,
    },
    /// A rank has ended.
    Exited {
        /// The newest episode that the NLA knows.
        episode: Episode,
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// How.
        how: How,
    },
    /// Phase I is complete: all ranks have left this node.
    Pic {
        /// The migration.
        episode: Episode,
        /// Who left.
        ranks: Ranks,
        /// Name of their images.
        set: SetId,
    },
    /// Answer to COPY.
    Copied {
        /// The remedy.
        episode: Episode,
        /// Which set.
        set: SetId,
        /// Whose images.
        ranks: Ranks,
        /// How much.
        bytes: u64,
    },
    /// Answer to COPY: it could not.
    CopyFailed {
        /// The remedy.
        episode: Episode,
        /// Which set.
        set: SetId,
        /// Whose images.
        ranks: Ranks,
        /// Why.
        reason: String,
    },
    /// Answer to IPT.
    Restarted {
        /// The migration.
        episode: Episode,
        /// Number of this start.
        incarnation: u64,
        /// Which.
        ranks: Ranks,
    },
    /// Answer to RESET: no rank is left here.
    Reset {
        /// The restart.
        episode: Episode,
    },
    /// Answer to KILL: no rank is left here, the NLA leaves.
    Stopped {
        /// The end.
        episode: Episode,
    },
}

/// A message of an NLA with its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NlaSays {
    /// Who.
    pub node: NodeName,
    /// What.
    pub message: FromNla,
}

/// What a rank says (`ftb.mpi`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSays {
    /// In which episode.
    pub episode: Episode,
    /// Who.
    pub rank: u32,
    /// What.
    pub message: FromRank,
}

/// What a rank has done since it was first started, also before it moved. It makes progress when both numbers grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Processor time of its processes, in milliseconds.
    pub cpu_ms: u64,
    /// Bytes that its processes have written, plus TCP segments with data and UDP datagrams that its pod has sent.
    pub sent: u64,
}

/// What a rank says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRank {
    /// Its channels are suspended.
    Suspended,
    /// Its image is complete.
    CheckpointDone {
        /// In this set.
        set: SetId,
        /// That large.
        bytes: u64,
        /// What the rank had done until then, where its node measures that.
        activity: Option<Activity>,
    },
    /// It is not.
    CheckpointFailed {
        /// In this set.
        set: SetId,
        /// Why.
        reason: String,
    },
    /// It computes again.
    Resumed,
    /// It cannot go back in place: it must be started again.
    RollbackFailed {
        /// To this set.
        set: SetId,
        /// Why.
        reason: String,
    },
}

/// What a person or a program asks of a running job (`ftb.job`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Save the job.
    Checkpoint,
    /// Move the ranks away from that node.
    Migrate(NodeName),
    /// The same, and the node stays unusable until it is said to be usable.
    Drain(NodeName),
    /// The node may be used again.
    Usable(NodeName),
    /// Let the policy act again after its circuit breaker opened.
    ResetBreaker,
    /// End the job.
    Kill,
}

/// A request with the number that its answer carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Drawn at random by the asker.
    pub request: u64,
    /// What.
    pub what: Request,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Of the request.
    pub request: u64,
    /// `accepted` (more follows), `done`, or `refused`/`failed`.
    pub outcome: Outcome,
    /// In words.
    pub words: String,
}

/// See [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Under way, or waiting for its turn: another answer follows.
    Accepted,
    /// It is done.
    Done,
    /// It will not be done.
    Refused,
    /// It was tried and failed; the job goes on as the words say.
    Failed,
}
