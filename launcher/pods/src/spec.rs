//! What a node needs to save and restore its ranks.

use crate::backend::Choice;
use crate::pod::net::PodNet;
use ftb_launcher_core::names::{JobId, NodeName};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub job: JobId,
    pub node: NodeName,
    pub size: u32,
    /// The node's directory for images of this job.
    pub image_dir: PathBuf,
    pub cwd: PathBuf,
    /// Rank 0 gets the standard input of the job; other ranks read its end at once.
    pub stdin: bool,
    pub backend: Choice,
    /// The network of the node's pod, for a backend with pods.
    pub pod: Option<PodNet>,
}
