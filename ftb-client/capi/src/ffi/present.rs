//! Where the value of the present process is found.
//!
//! A plain pointer and no lock: in a forked child, a thread that does not exist there may hold a
//! lock. The pointer lies in a page that the kernel clears in a forked child
//! (`MADV_WIPEONFORK`, Linux 4.14). Without that, the value compares its pid in each call.

use crate::process::Process;
use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What the page holds.
struct Page {
    process: AtomicPtr<Process>,
}

/// Never unmapped. Null until the first use, and inherited by forked children.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// The kernel clears the page in a forked child.
static IS_WIPED: AtomicBool = AtomicBool::new(false);
/// The same as in the page: tools that look for leaks do not look into the page.
static REACHABLE: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// The exit handler is registered. A forked child inherits the registration.
static AT_EXIT: AtomicBool = AtomicBool::new(false);

/// The present process, if it has used the library; not that of a parent.
pub(super) fn get() -> Option<&'static Process> {
    // SAFETY: null, or a page that is never unmapped: zeros are a valid `Page`.
    let page = unsafe { PAGE.load(Ordering::Acquire).as_ref() }?;
    // SAFETY: the pointer is null or comes from `Box::into_raw` below, and is never freed.
    let process = unsafe { page.process.load(Ordering::Acquire).as_ref() };
    process.filter(|process| process.is_present())
}

/// The present process. `None`: there is no memory.
pub(super) fn get_or_start() -> Option<&'static Process> {
    loop {
        if let Some(process) = get() {
            return Some(process);
        }
        let page = page()?;
        let found = page.process.load(Ordering::Acquire);
        let new = Box::into_raw(Box::new(Process::new(IS_WIPED.load(Ordering::Acquire))));
        let set = page.process.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: another thread was faster, and no thread has seen this one.
            drop(unsafe { Box::from_raw(new) });
            continue;
        }
        REACHABLE.store(new, Ordering::Release);
        if !AT_EXIT.swap(true, Ordering::AcqRel) {
            at_exit();
        }
    }
}

/// The page; mapped by the first call.
fn page() -> Option<&'static Page> {
    if PAGE.load(Ordering::Acquire).is_null() {
        const BYTES: usize = size_of::<Page>();
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which the kernel places and rounds up to a page.
        let new = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping of above, which holds nothing yet.
        let wiped = unsafe { libc::madvise(new, BYTES, libc::MADV_WIPEONFORK) } == 0;
        IS_WIPED.store(wiped, Ordering::Release);
        let set =
            PAGE.compare_exchange(ptr::null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: another thread was faster, and no thread has seen this one.
            unsafe { libc::munmap(new, BYTES) };
        }
    }
    // SAFETY: as in `get`.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Asks to be called when the process ends.
fn at_exit() {
    extern "C" fn flush() {
        // A panic has nowhere to go.
        let _ = std::panic::catch_unwind(|| {
            if let Some(process) = get() {
                process.exit();
            }
        });
    }
    // SAFETY: the function exists as long as the process: the library is never unloaded. Without
    // room for one more function, the process ends without it.
    unsafe { libc::atexit(flush) };
}
