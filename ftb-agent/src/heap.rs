//! Returns free memory to the system after a storm of events; glibc keeps it otherwise.
//!
//! Not responsible for: the bounds of the queues.

/// Bytes of messages in one period that count as a storm.
const STORM_BYTES: u64 = 4 * 1024 * 1024;
/// Length of a period, in nanoseconds. Memory returns one or two periods after a storm.
const PERIOD_NS: u64 = 5_000_000_000;

/// Time until memory returns once more, in nanoseconds: confirmed events stay for a grace time of
/// half a minute, and slow readers have read by then.
const AGAIN_NS: u64 = 40_000_000_000;

/// Detects storms by the bytes of handled messages.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Bytes in this period.
    bytes: u64,
    /// The end of this period; `None` without a storm.
    until_ns: Option<u64>,
    /// At the end of this period memory returns once more.
    again: bool,
}

impl Heap {
    /// Counts a handled message.
    pub(crate) fn on_handled(&mut self, now_ns: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if (self.until_ns.is_none() || self.again) && self.bytes >= STORM_BYTES {
            self.again = false;
            self.begin(Some(now_ns.saturating_add(PERIOD_NS)));
        }
    }

    /// When to call [`Heap::is_over`]; `None` without a storm, so that an idle agent sleeps.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Whether a storm is over, so that memory should return. True twice for each storm.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_twice_after_a_storm_and_never_without_one() {
        let mut heap = Heap::default();
        heap.on_handled(1, STORM_BYTES - 1);
        assert_eq!(heap.deadline_ns(), None, "an idle agent sleeps");
        heap.on_handled(2, 1);
        let end = heap.deadline_ns().unwrap_or(0);
        assert!(end > 2 && !heap.is_over(end - 1));
        heap.on_handled(end - 1, STORM_BYTES);
        assert_eq!(heap.deadline_ns(), Some(end));
        assert!(!heap.is_over(end), "the storm goes on");
        let end = heap.deadline_ns().unwrap_or(0);
        heap.on_handled(end - 1, STORM_BYTES - 1);
        assert!(heap.is_over(end), "the storm is over");
        assert_eq!(heap.deadline_ns(), Some(end + AGAIN_NS));
        assert!(!heap.is_over(end + AGAIN_NS - 1));
        assert!(heap.is_over(end + AGAIN_NS), "the grace time is over");
        assert_eq!(heap.deadline_ns(), None);
        assert!(!heap.is_over(end + 2 * AGAIN_NS));
    }

    #[test]
    fn a_storm_soon_after_another_extends_it() {
        let mut heap = Heap::default();
        heap.on_handled(1, STORM_BYTES);
        let end = heap.deadline_ns().unwrap_or(0);
        assert!(heap.is_over(end));
        heap.on_handled(end + 1, STORM_BYTES - 1);
        heap.on_handled(end + 2, 1);
        assert_eq!(heap.deadline_ns(), Some(end + 2 + PERIOD_NS));
        assert!(heap.is_over(end + 2 + PERIOD_NS));
        assert!(heap.is_over(end + 2 + PERIOD_NS + AGAIN_NS));
        assert_eq!(heap.deadline_ns(), None);
    }
}
