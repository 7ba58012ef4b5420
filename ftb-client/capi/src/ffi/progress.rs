//! Progress of this process for `ftb-launch`: each step adds to an eventfd that it inherits.

use crate::abi::Code;
use core::ffi::c_int;
use std::sync::OnceLock;

/// The variable with the number of the eventfd.
const PROGRESS_FD: &str = "FTB_PROGRESS_FD";

/// The eventfd; `None`: this process was not started by `ftb-launch`, or has closed it.
fn counter() -> Option<c_int> {
    static COUNTER: OnceLock<Option<c_int>> = OnceLock::new();
    *COUNTER.get_or_init(|| {
        let fd: c_int = std::env::var(PROGRESS_FD).ok()?.parse().ok()?;
        let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        (target.as_os_str() == "anon_inode:[eventfd]").then_some(fd)
    })
}

/// Counts a step. It never waits.
#[unsafe(no_mangle)]
pub(super) extern "C" fn ftb_progress() -> c_int {
    super::code(|| {
        let fd = counter().ok_or(Code::General)?;
        let step = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes of this function. A full counter, which must not be waited for, is
        // one that grows.
        unsafe { libc::write(fd, step.as_ptr().cast(), step.len()) };
        Ok(())
    })
}
