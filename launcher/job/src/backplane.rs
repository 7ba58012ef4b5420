//! The notices of a rank, and the interface to the launcher.
//!
//! Not responsible for transport: [`crate::events`] uses the backplane.

use crate::error::Result;
use crate::repair::RepairCall;
use crate::request::Request;
use ftb_core::catalog::names;
use std::time::Duration;

/// The way to the launcher.
pub trait Backplane: Send + Sync {
    /// Publishes a notice. It neither blocks for long nor fails: the notice is kept for later, or
    /// counted as dropped.
    fn publish(&self, notice: &Notice);

    /// Waits until all notices would survive the death of this process; false after `timeout`.
    fn confirm(&self, timeout: Duration) -> bool;
}

/// Connects to the launcher. Requests go into the sink until it is closed.
pub type Connect = Box<dyn FnOnce(RequestSink) -> Result<Box<dyn Backplane>> + Send>;

/// Takes the launcher's requests.
pub struct RequestSink(pub(crate) Box<dyn Fn(Request) -> bool + Send>);

impl RequestSink {
    /// Passes a request on; blocks while too many wait. False after `finalize`.
    pub fn send(&self, request: Request) -> bool {
        (self.0)(request)
    }
}

/// A notice of a rank: an event of the space `ftb.mpi` (launcher/core/protocol.md).
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
        /// How long it was stopped, in microseconds; for a restored rank since its start.
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
    /// `FTB_MPI_PROCS_UNREACHABLE`: a peer is gone without a goodbye.
    Unreachable {
        /// The peer.
        peer: u32,
        /// How that showed.
        reason: String,
    },
    /// `FTB_MPI_REPAIR`: it repairs a communicator.
    Repair {
        /// The episode.
        episode: u64,
        /// What it calls.
        call: RepairCall,
    },
}

impl Notice {
    /// The event's name.
    pub fn event_name(&self) -> &'static str {
        match self {
            Self::Suspended { .. } => names::FTB_MPI_SUSPENDED,
            Self::CheckpointDone { .. } => names::FTB_CHECKPOINT_DONE,
            Self::CheckpointFailed { .. } => names::FTB_CHECKPOINT_FAILED,
            Self::Resumed { .. } => names::FTB_MPI_RESUMED,
            Self::RollbackFailed { .. } => names::FTB_ROLLBACK_FAILED,
            Self::Unreachable { .. } => names::FTB_MPI_PROCS_UNREACHABLE,
            Self::Repair { .. } => names::FTB_MPI_REPAIR,
        }
    }

    /// The episode that it belongs to, if any.
    pub fn episode(&self) -> Option<u64> {
        match self {
            Self::Suspended { episode, .. }
            | Self::CheckpointDone { episode, .. }
            | Self::CheckpointFailed { episode, .. }
            | Self::RollbackFailed { episode, .. }
            | Self::Repair { episode, .. }
            | Self::Resumed { episode, .. } => Some(*episode),
            Self::Unreachable { .. } => None,
        }
    }

    /// The payload of the event: the rank, or the call.
    pub fn payload(&self, rank: u32) -> String {
        match self {
            // Numbers and lists have a text.
            Self::Repair { call, .. } => serde_json::to_string(call).unwrap_or_default(),
            _ => rank.to_string(),
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
            Self::Repair { .. } => Vec::new(),
            Self::Unreachable { peer, reason } => {
                vec![("peer", peer.to_string()), ("reason", reason.clone())]
            }
        };
        of.into_iter().chain(facts).collect()
    }
}

/// For a job without a launcher.
pub(crate) struct NoBackplane;

impl Backplane for NoBackplane {
    fn publish(&self, _: &Notice) {}

    fn confirm(&self, _: Duration) -> bool {
        false
    }
}
