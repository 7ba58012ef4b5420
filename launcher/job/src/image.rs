//! Images: what a rank writes at a safe point, so that it can go on from there elsewhere or later.
//!
//! ```text
//! file  = "FTBIMAGE" version:u32  block*          all numbers little endian
//! block = kind:u8 0 0 0  index:u32  len:u32  crc32c:u32  payload of len bytes, at most 1 MiB
//! kinds = 1 header (JSON: job, rank, size, set, episode, safe point), the first
//!         2 section (JSON: name, type, bytes)  followed by its
//!         3 data blocks, full but for the last
//!         4 end (blocks:u32 bytes:u64 crc32c:u32 of everything before it), the last
//! ```
//!
//! A block's checksum covers its header and its payload, its index tells an exchanged or doubled
//! block, and the end tells a torn file. An image is verified as a whole before anything of it is
//! used, and once more, block by block, while it is read. It is written under a temporary name,
//! synced, renamed, and the directory synced: under its name there is a whole image or none. That
//! of a rank that moves is not synced: it is fetched at once, and every rank waits for it.
//!
//! Responsible for the file. Not responsible for what the program puts into it ([`crate::State`]),
//! nor for which set of images counts (the launcher).

mod block;
mod read;
mod write;

pub use read::{ImageReader, Reader};
pub(crate) use write::{AskRoom, write_within};
pub use write::{ImageSize, Outlives, Writer, write_image, write_image_to};

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Whose image it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The job.
    pub job: String,
    /// The rank.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// The set that it belongs to.
    pub set: String,
    /// The episode that asked for it.
    pub episode: u64,
    /// How many safe points the program had passed, this one included.
    pub safe_point: u64,
}

impl Header {
    /// The name of a rank's image in the directory of its set.
    pub fn file_name(rank: u32) -> String {
        format!("rank-{rank}.img")
    }
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SectionType {
    /// Anything.
    Bytes,
    /// Little-endian 64-bit floating-point numbers.
    F64,
    /// Little-endian 64-bit integers.
    U64,
}

/// Payload of a section block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: SectionType,
    pub bytes: u64,
}

/// Why an image was not written or not read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is damaged, not an image, of another rank, or not what the program expects.
    #[error("image {path} is refused at byte {offset}: {problem}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// The system did not read it.
    #[error("image {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system did not write it; nothing was left under its name.
    #[error("image {path} cannot be written: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The program's state does not fit into an image.
    #[error("section {name:?}: {problem}")]
    Section {
        /// The section.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl ImageError {
    /// Whether the image must not be restored: the launcher then takes another set.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Read { .. })
    }

    pub(crate) fn refused(path: &Path, offset: u64, problem: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), offset, problem: problem.into() }
    }
}

#[cfg(test)]
mod tests;
