//! Where the value of the present process is found.
//!
//! A plain pointer and no lock: in a forked child a lock may be held by a thread that is not there.

use crate::process::Process;
use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

static PRESENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The present process, if it has used the library; not that of a parent.
pub(super) fn get() -> Option<&'static Process> {
    // SAFETY: the pointer is null or comes from `Box::leak` below.
    let process = unsafe { PRESENT.load(Ordering::Acquire).as_ref() };
    process.filter(|process| process.is_present())
}

/// The present process.
pub(super) fn get_or_start() -> &'static Process {
    loop {
        if let Some(process) = get() {
            return process;
        }
        let found = PRESENT.load(Ordering::Acquire);
        let new = Box::into_raw(Box::new(Process::new()));
        let set = PRESENT.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: another thread was faster, and nobody has seen this one.
            drop(unsafe { Box::from_raw(new) });
        } else if found.is_null() {
            at_exit();
        }
    }
}

/// The first use in a process and its children: asks to be called when it ends.
fn at_exit() {
    extern "C" fn flush() {
        // Nobody is left to be told.
        let _ = std::panic::catch_unwind(|| {
            if let Some(process) = get() {
                process.exit();
            }
        });
    }
    // SAFETY: the function is there for as long as the process (the library is never unloaded). That
    // there is no room for one more function changes nothing but what this function is for.
    unsafe { libc::atexit(flush) };
}
