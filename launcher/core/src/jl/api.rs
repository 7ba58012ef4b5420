//! What goes into the JL and what comes out of it.

use super::{Initiator, Unusable};
use crate::message::{
    Answer, FaultCause, FromJl, JobRequest, NlaMessage, NumberedRequest, Placement, RankMessage,
};
use crate::names::{Episode, FaultId, NodeName, SetId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An input of the JL.
#[derive(Clone, Debug)]
pub enum JlInput {
    /// The subscriptions are active.
    Started,
    /// As `Started`, for a JL with the state of an earlier one.
    Adopted,
    Nla(NlaMessage),
    Rank(RankMessage),
    /// The NLA or its node is gone for good.
    Gone {
        node: NodeName,
        reason: String,
    },
    /// A fault of the node: it gets no ranks until it is marked as usable.
    Unusable {
        node: NodeName,
        why: Unusable,
    },
    /// The policy or a person requests something.
    Request {
        want: Request,
        by: Initiator,
    },
    /// The node of a fault fails sooner than the request for that fault says.
    Sooner {
        fault: FaultId,
        node: NodeName,
        /// In monotonic nanoseconds.
        fails_ns: u64,
    },
    /// Add these nodes as spares. Where they fail together, if known.
    Add {
        nodes: BTreeSet<NodeName>,
        racks: BTreeMap<NodeName, String>,
        by: Initiator,
    },
    /// The cause of a fault that a request of the policy will name.
    Explained {
        fault: FaultId,
        cause: FaultCause,
    },
    /// The policy has chosen another action for these faults. Their queued requests are cancelled.
    Cancel {
        faults: BTreeSet<FaultId>,
        /// The other action.
        reason: String,
    },
    /// The set is in the store, or failed to get there.
    Stored {
        episode: Episode,
        result: Result<u64, String>,
    },
    /// The state that [`JlOutput::Save`] asked for is not on disk. The next input after its batch;
    /// then only outputs that are not taken back ([`super::Jl::is_taken_back`]) are executed.
    SaveFailed {
        why: String,
    },
    /// The state is on disk again ([`super::Jl::is_unsaved`]).
    Saved,
    /// Forward a signal to all ranks.
    Signal(i32),
    /// Events were missed: ask all NLAs.
    Gap,
    /// A deadline may have passed.
    Tick,
}

/// A request of the policy or of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Move the ranks away from this node.
    Migrate {
        node: NodeName,
        reason: String,
        /// When the node is predicted to fail, in monotonic nanoseconds.
        #[serde(default)]
        fails_ns: Option<u64>,
    },
    /// As `Migrate`; a node without ranks gets none either.
    Drain {
        node: NodeName,
        reason: String,
    },
    Checkpoint {
        reason: String,
    },
    /// Save the job in the memory of the nodes.
    MemoryCheckpoint {
        reason: String,
    },
    /// Save the job on the disks of the nodes.
    DiskCheckpoint {
        reason: String,
    },
    /// The node may be used again.
    Usable {
        node: NodeName,
    },
    Kill {
        /// With this exit code.
        code: i32,
        reason: String,
    },
}

/// An output; the shell executes them in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JlOutput {
    /// Write the state to disk, synced, before any later output.
    Save,
    Publish(FromJl),
    /// Send a message again to this node only.
    Repeat {
        node: NodeName,
        message: FromJl,
    },
    /// Fetch these images into the store, verify them, commit the set. Answered by
    /// [`JlInput::Stored`].
    Store {
        episode: Episode,
        set: SetId,
        from: Placement,
    },
    /// Delete a set from the store.
    DropStored(SetId),
    /// Start the NLAs of these nodes as spares. [`JlInput::Gone`] reports those that cannot be.
    StartNlas(Vec<NodeName>),
    /// Kill the NLA by force, where the shell can.
    KillNla(NodeName),
    Answer(Answer),
    /// A line for the user.
    Notify(String),
    /// The job is over: exit with this code.
    Exit(i32),
}

impl Request {
    /// The request that a person's message means.
    pub fn of_request(asked: &NumberedRequest) -> Option<Self> {
        let reason = "asked for".to_owned();
        Some(match &asked.what {
            JobRequest::Checkpoint => Self::Checkpoint { reason },
            JobRequest::Migrate(node) => {
                Self::Migrate { node: node.clone(), reason, fails_ns: None }
            }
            JobRequest::Drain(node) => Self::Drain { node: node.clone(), reason },
            JobRequest::Usable(node) => Self::Usable { node: node.clone() },
            JobRequest::Kill => Self::Kill { code: 143, reason: "it was asked to".to_owned() },
            JobRequest::Add(_) | JobRequest::ResetBreaker => return None,
        })
    }

    /// Whether the job is to be saved.
    pub(super) fn saves(&self) -> bool {
        matches!(
            self,
            Self::Checkpoint { .. } | Self::MemoryCheckpoint { .. } | Self::DiskCheckpoint { .. }
        )
    }

    /// When its node is predicted to fail, in monotonic nanoseconds.
    pub(super) fn fails_ns(&self) -> Option<u64> {
        match self {
            Self::Migrate { fails_ns, .. } => *fails_ns,
            _ => None,
        }
    }

    /// Why; of a request of the policy the name of its rule.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Migrate { reason, .. }
            | Self::Drain { reason, .. }
            | Self::Checkpoint { reason }
            | Self::MemoryCheckpoint { reason }
            | Self::DiskCheckpoint { reason }
            | Self::Kill { reason, .. } => Some(reason),
            Self::Usable { .. } => None,
        }
    }

    /// For display.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Migrate { node, .. } | Self::Drain { node, .. } => {
                format!("the migration from {node}")
            }
            Self::Checkpoint { .. } => "the checkpoint".to_owned(),
            Self::MemoryCheckpoint { .. } => "the checkpoint in memory".to_owned(),
            Self::DiskCheckpoint { .. } => "the checkpoint on disks".to_owned(),
            Self::Usable { node } => format!("the request that node {node} may be used"),
            Self::Kill { .. } => "the end".to_owned(),
        }
    }
}
