//! What goes into a node launch agent and what comes out: the seam between the machine and its shell.

use crate::manner::Manner;
use crate::message::{Activity, FromJl, FromNla, How, RankSays};
use crate::names::{Episode, JobId, NodeName, Ranks, SetId};
use core::time::Duration;

/// What an NLA is told at its start.
#[derive(Clone, Debug)]
pub struct NlaConfig {
    /// The job.
    pub job: JobId,
    /// Its node.
    pub node: NodeName,
    /// `host:port` of its image server.
    pub images: String,
    /// Without a sign of a JL for so long, it ends its ranks and itself.
    pub orphan_grace: Duration,
    /// Between SIGTERM and SIGKILL when the job ends.
    pub kill_grace: Duration,
    /// Who saves the ranks, and how they move.
    pub manner: Manner,
}

/// What happens to an NLA.
#[derive(Clone, Debug)]
pub enum Input {
    /// Its subscription is active: it may speak.
    Started,
    /// The JL says something.
    Jl(FromJl),
    /// A process that it started has ended.
    Ended {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// By itself or by a signal; never [`How::Left`], that is found out here.
        how: How,
        /// The newest migration for which this rank's image is on this node's disk.
        image: Option<Episode>,
    },
    /// A process could not be started.
    SpawnFailed {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// Why.
        reason: String,
    },
    /// A rank wrote a line, or a message, to its PMI socket.
    PmiLine {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// Without the newline.
        line: String,
    },
    /// A copy ended.
    CopyEnded {
        /// For which remedy.
        episode: Episode,
        /// Bytes copied and verified, or why not.
        result: Result<u64, String>,
    },
    /// The ranks are ready to be saved, and every word of theirs has been told before; or they are not.
    Prepared {
        /// For which episode.
        episode: Episode,
        /// Why not.
        result: Result<(), String>,
    },
    /// A rank that stands still to be saved has done so much until now.
    Worked {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// See there.
        activity: Activity,
    },
    /// The ranks are saved, or go on unsaved.
    Saved {
        /// In which episode.
        episode: Episode,
        /// Each rank with the bytes of its image, or why not.
        result: Result<Vec<(u32, u64)>, String>,
    },
    /// The ranks of [`Output::Restore`] live, or none of them does.
    Restored {
        /// Of which start.
        incarnation: u64,
        /// The key-value space that was saved with them, or why not.
        result: Result<String, String>,
    },
    /// A deadline may have passed.
    Tick,
}

/// A process that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// Which rank it is.
    pub rank: u32,
    /// Its place among the ranks of this node.
    pub local_rank: u32,
    /// How many ranks this node has.
    pub local_size: u32,
    /// Of which start.
    pub incarnation: u64,
    /// The episode that starts it.
    pub episode: Episode,
    /// The set to restore from.
    pub restore: Option<SetId>,
    /// How many ranks the job has.
    pub size: u32,
    /// How many ranks have made the set, where that is another number.
    pub set_size: Option<u32>,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Publish.
    Publish(FromNla),
    /// Start a process.
    Spawn(Spawn),
    /// Send a signal to the process group of a rank.
    Signal {
        /// Which.
        rank: u32,
        /// Which signal.
        signal: i32,
    },
    /// Write to the PMI socket of a rank.
    PmiReply {
        /// Which.
        rank: u32,
        /// As it is.
        line: String,
    },
    /// Fetch images.
    Copy {
        /// For which remedy.
        episode: Episode,
        /// `host:port` of the server.
        from: String,
        /// Which set.
        set: SetId,
        /// Whose.
        ranks: Ranks,
    },
    /// Make the ranks ready to be saved: answered by [`Input::Prepared`].
    Prepare {
        /// The episode.
        episode: Episode,
        /// Name of the images.
        set: SetId,
        /// All ranks of the node.
        ranks: Ranks,
    },
    /// Save them: answered by [`Input::Saved`].
    Save {
        /// The episode.
        episode: Episode,
        /// Name of the images.
        set: SetId,
        /// All ranks of the node.
        ranks: Ranks,
        /// They are gone afterwards, without a word of their end.
        leave: bool,
        /// The PMI key-value space, saved with them.
        space: String,
    },
    /// Undo what was prepared: the ranks go on.
    Release {
        /// The episode.
        episode: Episode,
    },
    /// Bring ranks to life from their images, all of them or none: answered by [`Input::Restored`].
    Restore {
        /// The episode that starts them.
        episode: Episode,
        /// Of which start.
        incarnation: u64,
        /// From which set.
        set: SetId,
        /// Which.
        ranks: Ranks,
    },
    /// Publish on behalf of a rank that cannot.
    PublishFor(RankSays),
    /// Delete the images of a set.
    DropSet(SetId),
    /// For the log: something was refused, or goes wrong.
    Note(String),
    /// Leave.
    Leave,
}
