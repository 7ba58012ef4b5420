//! What a node must know to save its ranks and to bring them back.

use crate::backend::Choice;
use crate::pod::net::PodNet;
use ftb_launcher_core::names::{JobId, NodeName};
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// The job.
    pub job: JobId,
    /// The node.
    pub node: NodeName,
    /// How many ranks the job has.
    pub size: u32,
    /// The node's directory for images of this job.
    pub image_dir: PathBuf,
    /// Working directory of the ranks.
    pub cwd: PathBuf,
    /// Rank 0 gets the standard input of the job; every other rank reads its end at once.
    pub stdin: bool,
    /// How ranks are saved, moved and brought back.
    pub backend: Choice,
    /// The network of the node's pod, for a backend with pods.
    pub pod: Option<PodNet>,
}
