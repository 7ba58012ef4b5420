//! What a rank says to the launcher, and the seam through which it says and hears it.
//!
//! Not responsible for how it gets there: [`crate::events`] does that over the backplane.

use crate::error::Result;
use crate::request::Request;
use std::time::Duration;

/// The way to the launcher.
pub trait Backplane: Send + Sync {
    /// Says something. Neither blocks for long nor fails: what cannot be said now is kept and said
    /// later, or counted as dropped.
    fn publish(&self, notice: &Notice);

    /// Waits until everything said so far is safe from the death of this process; false when the time
    /// is over.
    fn confirm(&self, timeout: Duration) -> bool;
}

/// Connects to the launcher: requests go into the sink from then on, until it says that it is closed.
pub type Connect = Box<dyn FnOnce(RequestSink) -> Result<Box<dyn Backplane>> + Send>;

/// Takes the launcher's requests.
pub struct RequestSink(pub(crate) Box<dyn Fn(Request) -> bool + Send>);

impl RequestSink {
    /// Hands a request over; blocks while too many wait. False when the rank has finalized and nothing
    /// more is wanted.
    pub fn send(&self, request: Request) -> bool {
        (self.0)(request)
    }
}

/// What a rank says: events of the space `ftb.mpi` (docs/launcher-protocol.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// `FTB_MPI_SUSPENDED`: its channels are drained.
    Suspended {
        /// The episode.
        episode: u64,
        /// How long it took from the safe point on, in microseconds.
        took_us: u64,
    },
    /// `FTB_CHECKPOINT_DONE`: its image is complete on disk.
    CheckpointDone {
        /// The episode.
        episode: u64,
        /// The set.
        set: String,
        /// Of the image.
        bytes: u64,
        /// How long writing took, in microseconds.
        took_us: u64,
    },
    /// `FTB_CHECKPOINT_FAILED`: it is not.
    CheckpointFailed {
        /// The episode.
        episode: u64,
        /// The set.
        set: String,
        /// Why.
        reason: String,
    },
    /// `FTB_MPI_RESUMED`: it computes again.
    Resumed {
        /// The episode.
        episode: u64,
        /// How long it did not, in microseconds; for a rank that was restored: since it was started.
        took_us: u64,
    },
    /// `FTB_ROLLBACK_FAILED`: it cannot go back in place and must be started again.
    RollbackFailed {
        /// The episode.
        episode: u64,
        /// The set.
        set: String,
        /// Why.
        reason: String,
    },
    /// `FTB_MPI_PROCS_UNREACHABLE`: a peer is gone without a word.
    Unreachable {
        /// The peer.
        peer: u32,
        /// How that showed.
        reason: String,
    },
}

impl Notice {
    /// The event's name.
    pub fn event_name(&self) -> &'static str {
        match self {
            Self::Suspended { .. } => "FTB_MPI_SUSPENDED",
            Self::CheckpointDone { .. } => "FTB_CHECKPOINT_DONE",
            Self::CheckpointFailed { .. } => "FTB_CHECKPOINT_FAILED",
            Self::Resumed { .. } => "FTB_MPI_RESUMED",
            Self::RollbackFailed { .. } => "FTB_ROLLBACK_FAILED",
            Self::Unreachable { .. } => "FTB_MPI_PROCS_UNREACHABLE",
        }
    }

    /// The episode that it belongs to, if any.
    pub fn episode(&self) -> Option<u64> {
        match self {
            Self::Suspended { episode, .. }
            | Self::CheckpointDone { episode, .. }
            | Self::CheckpointFailed { episode, .. }
            | Self::RollbackFailed { episode, .. }
            | Self::Resumed { episode, .. } => Some(*episode),
            Self::Unreachable { .. } => None,
        }
    }

    /// Whether it is of severity ERROR; the others are INFO.
    pub fn is_error(&self) -> bool {
        matches!(
            self,
            Self::CheckpointFailed { .. } | Self::RollbackFailed { .. } | Self::Unreachable { .. }
        )
    }

    /// The tags beside `rank`.
    pub fn tags(&self) -> Vec<(&'static str, String)> {
        let took = |us: &u64| ("us", us.to_string());
        let of = self.episode().map(|episode| ("episode", episode.to_string()));
        let facts = match self {
            Self::Suspended { took_us, .. } | Self::Resumed { took_us, .. } => vec![took(took_us)],
            Self::CheckpointDone { set, bytes, took_us, .. } => {
                vec![("set", set.clone()), ("bytes", bytes.to_string()), took(took_us)]
            }
            Self::CheckpointFailed { set, reason, .. }
            | Self::RollbackFailed { set, reason, .. } => {
                vec![("set", set.clone()), ("reason", reason.clone())]
            }
            Self::Unreachable { peer, reason } => {
                vec![("peer", peer.to_string()), ("reason", reason.clone())]
            }
        };
        of.into_iter().chain(facts).collect()
    }
}

/// For a job without a launcher that listens.
pub(crate) struct NoBackplane;

impl Backplane for NoBackplane {
    fn publish(&self, _: &Notice) {}

    fn confirm(&self, _: Duration) -> bool {
        false
    }
}
