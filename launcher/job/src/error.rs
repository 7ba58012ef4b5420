//! The errors of the library, in words for the user who started the job.

use crate::image::ImageError;
use std::io;

/// The result of every call of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Unless a variant says otherwise the job cannot go on: end the program with
/// [`Error::exit_code`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment that the launcher gives is missing or wrong.
    #[error("{variable}={value:?}: {problem}")]
    Environment {
        /// Which variable.
        variable: &'static str,
        /// What it holds; empty where it is not set.
        value: String,
        /// What is wrong with it, and what is expected.
        problem: String,
    },
    /// The node launch agent did not serve a PMI command.
    #[error("PMI {command}: {problem}")]
    Pmi {
        /// The command.
        command: &'static str,
        /// What came instead of the answer.
        problem: String,
    },
    /// The node launch agent is gone. The launcher sees that itself and decides what follows.
    #[error("PMI {command}: {problem}")]
    LaunchAgentLost {
        /// The command.
        command: &'static str,
        /// How that showed.
        problem: String,
    },
    /// A channel could not be opened or connected.
    #[error("channel {channel}: {problem}")]
    Channel {
        /// Which channel.
        channel: &'static str,
        /// What went wrong.
        problem: String,
    },
    /// Another rank is gone without `finalize`. The launcher had time to act.
    #[error("rank {rank} is lost: {reason}")]
    PeerLost {
        /// Which rank.
        rank: u32,
        /// How that showed.
        reason: String,
    },
    /// Another rank has died, and the job goes on without it (`--on-death continue`). So can this
    /// program: see [`crate::fmi::Fmi::shrink`].
    #[error("rank {rank} has died: {reason}")]
    RankDied {
        /// Which rank.
        rank: u32,
        /// How that showed.
        reason: String,
    },
    /// A member has revoked the communicator.
    #[error("the communicator is revoked")]
    Revoked,
    /// Ranks have died, and this one has gone back to the last set in place: restore the state with
    /// [`crate::Job::restore`] and go on from there. Only programs that declare it
    /// ([`crate::Job::run`], [`crate::Job::can_roll_back`]) get this.
    #[error("the job has gone back to its last set: Job::restore gives the state of it")]
    RolledBack,
    /// The other rank has finalized: no messages can be exchanged with it.
    #[error("rank {rank} has finalized")]
    PeerFinished {
        /// Which rank.
        rank: u32,
    },
    /// A rank that does not exist. The job can go on.
    #[error("there is no rank {rank}: the job has {size}")]
    NoSuchRank {
        /// The number given.
        rank: u32,
        /// Ranks of the job.
        size: u32,
    },
    /// A message over the bound; nothing was sent. The job can go on.
    #[error("the message has {bytes} bytes: at most {max} are allowed")]
    MessageTooLong {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The waiting messages of that rank reach the limit, and the requested one is not among them.
    #[error(
        "{bytes} bytes from rank {rank} wait, none with the wanted tag, and the bound is {max}: \
         receive in the order of sending, or raise FTB_JOB_RECEIVE_BYTES"
    )]
    ReceiveQueueFull {
        /// Whose messages.
        rank: u32,
        /// How many bytes wait.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The ranks did not call the same collective operation with the same shape.
    #[error("{operation}: this rank gave {expected} bytes, rank {rank} gave {found}")]
    CollectiveMismatch {
        /// Which operation.
        operation: &'static str,
        /// The other rank.
        rank: u32,
        /// Bytes here.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
    /// An image was refused or could not be written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The job was started from an image and the program reached a safe point without having taken
    /// its state from it.
    #[error("the job was started from {path}: call Job::restore before the first safe point")]
    NotRestored {
        /// The image.
        path: String,
    },
    /// A helper thread could not be started.
    #[error("a helper thread could not be started: {0}")]
    Thread(#[source] io::Error),
    /// The backplane refused what this rank asked of it.
    #[error("backplane: {0}")]
    Backplane(String),
}

impl Error {
    /// With the rank of a process in place of its number.
    pub(crate) fn named(mut self, rank_of: impl FnOnce(u32) -> Option<u32>) -> Self {
        if let Self::PeerLost { rank, .. }
        | Self::RankDied { rank, .. }
        | Self::PeerFinished { rank }
        | Self::ReceiveQueueFull { rank, .. } = &mut self
        {
            *rank = rank_of(*rank).unwrap_or(*rank);
        }
        self
    }

    /// As an error that the program can go on from.
    pub(crate) fn tolerated(self) -> Self {
        match self {
            Self::PeerLost { rank, reason } => Self::RankDied { rank, reason },
            other => other,
        }
    }

    /// The exit code of a program that ends because of this error: 64 for a wrong environment, 65
    /// for a damaged image (the launcher takes another set), else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Environment { .. } => ftb_cli::USAGE,
            Self::Image(error) if error.is_refused() => ftb_cli::DAMAGED_IMAGE,
            _ => ftb_cli::FAILED,
        }
    }
}
