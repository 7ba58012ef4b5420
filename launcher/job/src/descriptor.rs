//! Descriptors that the launcher hands over by their numbers.

use crate::error::{Error, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::os::fd::{FromRawFd as _, OwnedFd};

/// A descriptor of the launcher that this process has inherited.
pub(crate) fn inherited(variable: &'static str, fd: i32) -> Result<OwnedFd> {
    let wrong = |problem: String| Error::Environment { variable, value: fd.to_string(), problem };
    if fd < 3 {
        return Err(wrong("expected a descriptor that the launcher opened".into()));
    }
    #[expect(
        unsafe_code,
        reason = "the launcher hands this descriptor over to this process, which owns it alone"
    )]
    // SAFETY: nothing else in this process knows the descriptor: it came by exec, in a variable
    // that is read once.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .map_err(|error| wrong(format!("no such descriptor: {error}")))?;
    Ok(owned)
}
