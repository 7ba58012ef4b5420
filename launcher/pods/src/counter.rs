//! The counter of a rank's steps: an eventfd that the rank inherits. Each call of `ftb_progress`
//! adds to it with one `write`; CRIU saves it with its processes.

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::dup;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable with the number of the descriptor.
pub const PROGRESS_FD: &str = "FTB_PROGRESS_FD";

#[derive(Debug)]
pub struct StepCounter {
    added: EventFd,
    total: AtomicU64,
}

impl StepCounter {
    /// A counter, and the descriptor for the rank, which its program inherits.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let added = EventFd::from_value_and_flags(0, flags)?;
        let theirs = dup(&added)?;
        Ok((Self { added, total: AtomicU64::new(0) }, theirs))
    }

    /// Steps so far.
    pub fn total(&self) -> u64 {
        // Nothing was added where nothing can be read.
        let more = self.added.read().unwrap_or(0);
        self.total.fetch_add(more, Ordering::Relaxed).saturating_add(more)
    }
}
