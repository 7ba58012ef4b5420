//! A job that waits for nodes: since when, for how long, and its exit code if none comes.

use crate::names::NodeName;
use serde::{Deserialize, Serialize};

/// The phase in which a job waits for nodes.
pub const WAIT: &str = "wait-for-nodes";
/// Exit code of a job for which no node became usable in time: as EX_TEMPFAIL, "try again later".
pub const NO_NODES: i32 = ftb_cli::NO_NODES as i32;

/// A job that waits for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWait {
    /// The node that has no replacement.
    pub node: NodeName,
    /// In Unix nanoseconds.
    pub since_ns: u64,
    /// In Unix nanoseconds.
    pub until_ns: u64,
}
