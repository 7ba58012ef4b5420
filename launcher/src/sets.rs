//! The manifest of a set, and what makes a set authentic: SHA-256 of each image, and a code of the
//! manifest under the job's key for sets. That key is in `job.json`, which only the user can read;
//! a `restart` keeps it.
//!
//! A set without a code is of a version without codes. It counts only for a job without a key; its
//! first `restart` gives the job a key and the set a code.

use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::names::{JobId, Ranks, SetId};
use ftb_launcher_pods::document::Document;
use ftb_launcher_pods::images;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The manifest of a set. A set without this file does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub job: JobId,
    pub set: SetId,
    pub size: u32,
    /// Bytes and CRC-32C of each rank's image.
    pub images: Vec<(u64, u32)>,
    /// Groups of ranks that share an image and are restored together.
    #[serde(default)]
    pub pods: Vec<Ranks>,
    /// SHA-256 of each rank's image, in hex.
    #[serde(default)]
    pub digests: Vec<String>,
    /// HMAC-SHA256 of the manifest without this field, in hex.
    #[serde(default)]
    pub code: String,
}

impl Document for Manifest {}

/// The key of a job's sets; empty: the job is of a version without codes.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SetKey(String);

impl core::fmt::Debug for SetKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SetKey(..)")
    }
}

/// In the place of a rank that was left out: it has no image.
const LEFT_OUT: (u64, u32) = (0, 0);

impl SetKey {
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds digests and code to a manifest; the images are below `root`.
    ///
    /// # Errors
    /// An image cannot be read.
    pub fn seal(&self, root: &Path, mut manifest: Manifest) -> Result<Manifest, String> {
        let digest = |rank: u32| {
            if manifest.images.get(rank as usize) == Some(&LEFT_OUT) {
                return Ok(String::new());
            }
            let path = images::path(root, &manifest.set, rank);
            images::digest(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        manifest.digests = (0..manifest.size).map(digest).collect::<Result<_, _>>()?;
        manifest.code = Secret::new(&self.0).seal_manifest(&unsealed(&manifest)?);
        Ok(manifest)
    }

    /// Checks the code of a manifest of this job.
    ///
    /// # Errors
    /// The set is not of this job, or was changed.
    pub fn check(&self, job: &JobId, manifest: &Manifest) -> Result<(), String> {
        let (set, ranks) = (&manifest.set, manifest.size as usize);
        if manifest.job != *job {
            return Err(format!("set {set} is of job {}, not of job {job}", manifest.job));
        }
        if manifest.images.len() != ranks || (!self.is_none() && manifest.digests.len() != ranks) {
            return Err(format!("set {set} does not have one image for each rank"));
        }
        let key = Secret::new(&self.0);
        if self.is_none() || key.has_sealed(&unsealed(manifest)?, &manifest.code) {
            return Ok(());
        }
        Err(format!(
            "the manifest of set {set} does not carry the code of job {job}: it was changed, or is \
             of another job; the set is not restored"
        ))
    }
}

/// The bytes under the code.
fn unsealed(manifest: &Manifest) -> Result<Vec<u8>, String> {
    let manifest = Manifest { code: String::new(), ..manifest.clone() };
    serde_json::to_vec(&manifest).map_err(|error| error.to_string())
}
