//! What a node needs to save and restore its ranks.

use crate::backend::Choice;
use crate::images::{self, ImagePath};
use crate::memory::MemoryRoot;
use crate::pod::net::PodNet;
use ftb_launcher_core::names::{JobId, NodeName, SetId};
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
    /// Where images of pods in memory are, if the job has them.
    pub memory: Option<MemoryRoot>,
}

impl NodeSpec {
    /// The directory with the sets of the level of this one, as this process sees it.
    pub fn root(&self, set: &SetId) -> PathBuf {
        let memory = self.memory.as_ref().filter(|_| set.is_in_memory());
        memory.map_or_else(|| self.image_dir.clone(), MemoryRoot::here)
    }

    /// The image of a rank.
    pub fn image(&self, set: &SetId, rank: u32) -> ImagePath {
        let memory = self.memory.as_ref().filter(|_| set.is_in_memory());
        let inside = memory.map_or(self.image_dir.as_path(), MemoryRoot::inside);
        let inside = images::path(inside, set, rank);
        ImagePath { here: images::path(&self.root(set), set, rank), inside }
    }
}
