//! Progress of this rank for the launcher: safe points and messages, counted in the eventfd that
//! the launch agent gives it. A rank that stops to count is hung.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shortest time between two reports: a message must stay cheap.
const EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Progress {
    counter: Option<OwnedFd>,
    unreported: AtomicU64,
    started: Instant,
    /// In milliseconds since `begun`.
    reported_ms: AtomicU64,
}

impl Progress {
    /// `fd`: the eventfd; without one, and where it is none, nothing is reported.
    pub(crate) fn new(fd: Option<i32>) -> Self {
        let (unreported, reported_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { counter: fd.and_then(counter), unreported, started: Instant::now(), reported_ms }
    }

    /// Whether the launch agent counts.
    pub(crate) fn counts(&self) -> bool {
        self.counter.is_some()
    }

    /// A safe point or a message.
    pub(crate) fn step(&self) {
        let Some(counter) = &self.counter else {
            return;
        };
        self.unreported.fetch_add(1, Ordering::Relaxed);
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before_ms = self.reported_ms.load(Ordering::Relaxed);
        if u128::from(now_ms.saturating_sub(before_ms)) < EVERY.as_millis() && before_ms > 0 {
            return;
        }
        self.reported_ms.store(now_ms.max(1), Ordering::Relaxed);
        let steps = self.unreported.swap(0, Ordering::Relaxed);
        // A full counter counts as one that grows.
        let _ = nix::unistd::write(counter, &steps.to_ne_bytes());
    }
}

/// An own descriptor of the counter, if this number is one.
fn counter(fd: i32) -> Option<OwnedFd> {
    let is_counter = fs::read_link(format!("/proc/self/fd/{fd}"))
        .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]");
    if !is_counter {
        return None;
    }
    #[expect(unsafe_code, reason = "the launcher hands this descriptor over by its number")]
    // SAFETY: it is open, as its link shows, and borrowed for this call only.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::eventfd::EventFd;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn steps_are_added_up_and_reported_at_an_interval() {
        let added = EventFd::new().unwrap();
        let progress = Progress::new(Some(added.as_raw_fd()));
        progress.step();
        assert_eq!(added.read().unwrap(), 1, "the first one at once");
        let started = Instant::now();
        let mut steps = 0;
        while started.elapsed() < 2 * EVERY {
            progress.step();
            steps += 1;
        }
        let reported = added.read().unwrap();
        assert!(reported > 0 && reported <= steps, "{reported} of {steps}");
    }

    #[test]
    fn a_descriptor_of_something_else_is_left_alone() {
        let file = tempfile::tempfile().unwrap();
        let progress = Progress::new(Some(file.as_raw_fd()));
        progress.step();
        assert_eq!(file.metadata().unwrap().len(), 0);
        Progress::new(Some(4711)).step();
        Progress::new(None).step();
    }
}
