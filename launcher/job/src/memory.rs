//! Images in the memory of the node. The rank writes its image into a memfd, seals it, and passes
//! the descriptor to its launch agent, which keeps it beyond the end of the rank
//! ([`crate::rank_socket`]).

use crate::image::Header;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What a memfd needs, so that its content stays as it is.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Whether a set with this name is in the memory of the nodes.
pub(crate) fn is_memory_set(set: &str) -> bool {
    set.starts_with("mem-")
}

/// New memory that can be written until it is sealed.
///
/// # Errors
/// The system's.
pub fn create(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(memfd_create(name, flags)?))
}

/// Makes memory unchangeable.
///
/// # Errors
/// The system's.
pub fn seal(memory: &File) -> io::Result<()> {
    Ok(fcntl_add_seals(memory, SEALS | SealFlags::SEAL)?)
}

/// Whether the content of this memory can never change.
#[must_use]
pub fn is_sealed(memory: &File) -> bool {
    fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS))
}

/// How errors name an image.
pub(crate) fn label(set: &str, rank: u32) -> PathBuf {
    Path::new("memory").join(set).join(Header::file_name(rank))
}
