//! What the JL hands to an NLA on its standard input: one JSON object. It has what is too large or too secret for
//! an event: the program, its environment, the key to the images.

use crate::names::{JobId, NodeName};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Largest spec in bytes that is read.
pub const SPEC_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NlaSpec {
    /// The job.
    pub job: JobId,
    /// The node that the NLA stands for.
    pub node: NodeName,
    /// Starts as a hot spare.
    pub spare: bool,
    /// Socket of the node's agent.
    pub agent: PathBuf,
    /// The node's directory for images of this job.
    pub image_dir: PathBuf,
    /// The address that the image server listens on (port 0: any).
    pub listen: String,
    /// Key to the images of the job: whoever asks an image server must show it.
    pub token: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The environment, without what the launcher sets itself.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// `MASTER_ADDR`: the address of the node of rank 0.
    pub master_addr: String,
    /// `MASTER_PORT`.
    pub master_port: u16,
    /// How many ranks the job has.
    pub size: u32,
    /// See [`crate::nla::NlaConfig`].
    #[serde(with = "humantime_serde")]
    pub orphan_grace: Duration,
    /// See [`crate::nla::NlaConfig`].
    #[serde(with = "humantime_serde")]
    pub kill_grace: Duration,
}
