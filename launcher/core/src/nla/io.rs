//! Inputs and outputs of a node launch agent.

use crate::manner::Manner;
use crate::memory::GroupTask;
use crate::message::{ExitCause, FromJl, FromNla, RankMessage};
use crate::names::{Episode, JobId, NodeName, Ranks, SetId};
use crate::progress::{Activity, RankSample};
use crate::warm::WarmProcesses;
use core::time::Duration;

/// The configuration of an NLA.
#[derive(Clone, Debug)]
pub struct NlaConfig {
    pub job: JobId,
    /// Ranks of the job, for a node that joins it after its start.
    pub size: u32,
    pub node: NodeName,
    /// Without a message of a JL for this long, it ends its ranks and leaves.
    pub orphan_grace: Duration,
    /// Between SIGTERM and SIGKILL when the job ends.
    pub kill_grace: Duration,
    pub manner: Manner,
    /// Interval of the looks at the ranks; zero: none.
    pub sample_every: Duration,
    pub warm: WarmProcesses,
}

/// An input of the NLA.
#[derive(Clone, Debug)]
pub enum NlaInput {
    /// Its subscription is active.
    Started,
    /// A message of the JL.
    Jl(FromJl),
    /// A process that it started has ended.
    Ended {
        rank: u32,
        incarnation: u64,
        /// Never [`ExitCause::Left`]: the NLA decides that.
        how: ExitCause,
        /// The newest migration with an image of this rank on this node.
        image: Option<Episode>,
    },
    SpawnFailed {
        rank: u32,
        incarnation: u64,
        reason: String,
    },
    /// A rank wrote a line, or a message, to its PMI socket.
    PmiLine {
        rank: u32,
        incarnation: u64,
        line: String,
    },
    CopyEnded {
        episode: Episode,
        /// Bytes copied and verified, or the reason of the failure.
        result: Result<u64, String>,
    },
    /// Answer to [`NlaOutput::Protect`]: bytes of parity and copies, or the reason of the failure.
    ProtectEnded {
        episode: Episode,
        result: Result<u64, String>,
    },
    /// The ranks are stopped and all their earlier messages are delivered; or preparation failed.
    Prepared {
        episode: Episode,
        result: Result<(), String>,
    },
    /// As `Prepared` without a failure, of ranks that save themselves in `ftb_loop`. They do not
    /// stop.
    Looping {
        episode: Episode,
        /// The lowest loop id at which all of them can be saved.
        loop_id: u64,
    },
    /// What a stopped rank has done so far.
    Worked {
        rank: u32,
        incarnation: u64,
        activity: Activity,
    },
    /// The answer to [`NlaOutput::Sample`].
    Sampled(Vec<RankSample>),
    /// Conditions of hung ranks of this host that other launch agents of this user have stated and
    /// not ended.
    Stated(Vec<StatedHang>),
    /// The ranks are saved, or go on unsaved.
    Saved {
        episode: Episode,
        /// Each rank with the size of its image, or the reason of the failure.
        result: Result<Vec<(u32, u64)>, String>,
    },
    /// All ranks of [`NlaOutput::Restore`] run, or none does.
    Restored {
        incarnation: u64,
        /// The saved key-value space, or the reason of the failure.
        result: Result<String, String>,
    },
    /// The answer to [`NlaOutput::Park`]: a process id, or the reason of the failure.
    ParkStarted(Result<u32, String>),
    /// The process waits in the initialization of ftb-job.
    Parked {
        pid: u32,
    },
    /// The process is the rank of [`NlaOutput::Adopt`].
    Adopted {
        pid: u32,
    },
    /// A process that is no rank has ended.
    ParkedEnded {
        pid: u32,
        how: ExitCause,
        /// Its last line of output; may be empty.
        said: String,
    },
    /// A deadline may have passed.
    Tick,
}

/// A condition with the key [`HUNG`](super::HUNG).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedHang {
    pub component: String,
    /// How long it has been unknown; `None`: it holds.
    pub unknown_for: Option<Duration>,
}

/// A process that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    pub rank: u32,
    /// Its index among the ranks of this node.
    pub local_rank: u32,
    /// How many ranks this node has.
    pub local_size: u32,
    pub incarnation: u64,
    /// The episode that starts it.
    pub episode: Episode,
    /// The set to restore from.
    pub restore: Option<SetId>,
    pub size: u32,
    /// How many ranks made the set, if not `size`.
    pub set_size: Option<u32>,
}

/// An output; the shell executes them in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NlaOutput {
    Publish(FromNla),
    Spawn(Spawn),
    /// Start a process without a rank. Answered by [`NlaInput::ParkStarted`].
    Park,
    /// Let a parked process become a rank. It is the process of the rank from now on, also for
    /// [`NlaInput::Ended`]. Answered by [`NlaInput::Adopted`].
    Adopt {
        pid: u32,
        spawn: Spawn,
    },
    /// End a process without a rank: close its connection, on which a parked one exits, or kill it.
    EndParked {
        pid: u32,
        kill: bool,
    },
    /// Look at the running ranks. Answered by [`NlaInput::Sampled`].
    Sample,
    /// Send a signal to the process group of a rank.
    Signal {
        rank: u32,
        signal: i32,
    },
    /// Write to the PMI socket of a rank.
    PmiReply {
        rank: u32,
        line: String,
    },
    Copy {
        episode: Episode,
        /// The node that has them; `None`: the store of the JL.
        from: Option<NodeName>,
        set: SetId,
        ranks: Ranks,
    },
    /// Make parity or copies. Answered by [`NlaInput::ProtectEnded`].
    Protect(GroupTask),
    /// Take the place of a lost member of a group. Answered by [`NlaInput::CopyEnded`].
    Gather(GroupTask),
    /// Stop the ranks. Answered by [`NlaInput::Prepared`].
    Prepare {
        episode: Episode,
        /// Name of the images.
        set: SetId,
        /// All ranks of the node.
        ranks: Ranks,
    },
    /// Save the ranks. Answered by [`NlaInput::Saved`].
    Save {
        episode: Episode,
        /// Name of the images.
        set: SetId,
        /// All ranks of the node.
        ranks: Ranks,
        /// The ranks are gone afterwards; their ends are not reported.
        leave: bool,
        /// The loop id at which they are saved, if they save themselves in `ftb_loop`; `None`: that
        /// of their first call.
        loop_id: Option<u64>,
        /// The PMI key-value space, saved with them.
        space: String,
    },
    /// Undo `Prepare` and `Save`: the ranks go on.
    Release {
        episode: Episode,
    },
    /// Restore ranks from their images, all or none. Answered by [`NlaInput::Restored`].
    Restore {
        /// The episode that starts them.
        episode: Episode,
        incarnation: u64,
        set: SetId,
        ranks: Ranks,
    },
    /// Give up the restore of that start, which another request has replaced. Answered by
    /// [`NlaInput::Restored`], as without it.
    CancelRestore {
        incarnation: u64,
    },
    /// Publish for a rank that cannot.
    PublishFor(RankMessage),
    /// Delete the images of a set.
    DropSet(SetId),
    /// A line for the log.
    Note(String),
    Leave,
}
