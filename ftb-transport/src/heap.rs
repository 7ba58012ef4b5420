//! Memory of messages that have been sent returns to the system.
//!
//! Not responsible for: when it should; it takes milliseconds.

/// Returns free memory to the system. Takes milliseconds.
#[allow(unsafe_code, reason = "a function of glibc")]
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and locks the allocator.
    unsafe {
        libc::malloc_trim(0);
    }
}
