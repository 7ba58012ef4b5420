//! Memory in a storm and after it: the allocator keeps what was used, which is used again at once, and
//! gives it back to the system once it is quiet.
//!
//! Responsible for: when that is ([`Heap`], without a clock), and the calls to the allocator.
//! Not responsible for: how much the queues hold, which is theirs to bound.

/// Bytes of messages handled in one period that make a storm of it. Less needs no giving back: what
/// was used for it will be used again.
const STORM_BYTES: u64 = 4 * 1024 * 1024;
/// How long a period is, in nanoseconds: a storm's memory is given back after one or two.
const PERIOD_NS: u64 = 5_000_000_000;

/// How long after that it is given back once more: what was confirmed in a storm is kept for its grace
/// time of half a minute, and who was slow has read by then.
const AGAIN_NS: u64 = 40_000_000_000;

/// What the allocator keeps at the end of each of its heaps in a storm, in bytes: what a second takes and
/// gives back again. It asks the system for each page that it has given back, which fills it with zeros.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_IN_STORM_BYTES: libc::c_int = 8 * 1024 * 1024;
/// And otherwise: as much as without a word from us.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_AT_REST_BYTES: libc::c_int = 128 * 1024;
/// Larger pieces it asks the system for one by one, in bytes: none of a storm, as of the largest frame.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PIECE_BYTES: libc::c_int = 4 * 1024 * 1024;

/// Watches how much is handled.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Handled in this period.
    bytes: u64,
    /// The end of this period; `None` as long as there was no storm.
    until_ns: Option<u64>,
    /// That end is the one at which memory is given back once more.
    again: bool,
}

impl Heap {
    /// So much was handled. Says whether a storm begins with it.
    pub(crate) fn handled(&mut self, now_ns: u64, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        let begins = (self.until_ns.is_none() || self.again) && self.bytes >= STORM_BYTES;
        if begins {
            self.again = false;
            self.begin(Some(now_ns.saturating_add(PERIOD_NS)));
        }
        begins
    }

    /// When to ask [`Heap::is_over`]; `None` as long as there was no storm: an idle agent is not
    /// woken for it.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Whether a storm was, and is over: memory should be given back. Says so twice.
    pub(crate) fn is_over(&mut self, now_ns: u64) -> bool {
        if self.until_ns.is_none_or(|until| now_ns < until) {
            return false;
        }
        if std::mem::take(&mut self.again) {
            self.begin(None);
            return true;
        }
        self.again = self.bytes < STORM_BYTES;
        let period_ns = if self.again { AGAIN_NS } else { PERIOD_NS };
        self.begin(Some(now_ns.saturating_add(period_ns)));
        self.again
    }

    fn begin(&mut self, until_ns: Option<u64>) {
        (self.bytes, self.until_ns) = (0, until_ns);
    }
}

/// The allocator keeps what is freed from now on, up to a bound.
#[allow(unsafe_code, reason = "a function of the C library, where it is glibc")]
pub(crate) fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and locks what it changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_IN_STORM_BYTES);
    }
}

/// Gives the system back what the allocator holds and nobody uses. Takes milliseconds.
#[allow(unsafe_code, reason = "functions of the C library, where it is glibc")]
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: they take no pointer, and lock what they look at.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_REST_BYTES);
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_a_storm_and_never_without() {
        let mut heap = Heap::default();
        assert!(!heap.handled(1, STORM_BYTES - 1));
        assert_eq!(heap.deadline_ns(), None, "an idle agent sleeps");
        assert!(heap.handled(2, 1));
        let end = heap.deadline_ns().unwrap_or(0);
        assert!(end > 2 && !heap.is_over(end - 1));
        assert!(!heap.handled(end - 1, STORM_BYTES), "it has begun");
        assert!(!heap.is_over(end), "it goes on");
        let end = heap.deadline_ns().unwrap_or(0);
        assert!(!heap.handled(end - 1, STORM_BYTES - 1));
        assert!(heap.is_over(end), "some go on, the storm does not");
        assert_eq!(heap.deadline_ns(), Some(end + AGAIN_NS));
        assert!(!heap.is_over(end + AGAIN_NS - 1));
        assert!(heap.is_over(end + AGAIN_NS), "what was kept for a while is free");
        assert_eq!(heap.deadline_ns(), None);
        assert!(!heap.is_over(end + 2 * AGAIN_NS));
    }

    #[test]
    fn a_storm_soon_after_another_is_one() {
        let mut heap = Heap::default();
        assert!(heap.handled(1, STORM_BYTES));
        let end = heap.deadline_ns().unwrap_or(0);
        assert!(heap.is_over(end), "the first is over");
        assert!(!heap.handled(end + 1, STORM_BYTES - 1));
        assert!(heap.handled(end + 2, 1), "before memory was given back once more");
        assert_eq!(heap.deadline_ns(), Some(end + 2 + PERIOD_NS));
        assert!(heap.is_over(end + 2 + PERIOD_NS));
        assert!(heap.is_over(end + 2 + PERIOD_NS + AGAIN_NS));
        assert_eq!(heap.deadline_ns(), None);
    }
}
