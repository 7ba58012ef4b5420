//! What the shell says the time is.

use core::time::Duration;

/// The moment of an input. The core has no clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Now {
    /// Nanoseconds on a clock that never goes back; all deadlines are measured on it.
    pub mono_ns: u64,
    /// Unix time in nanoseconds: for stamps and for the age of what is kept, never for deadlines
    /// (it may jump).
    pub wall_ns: u64,
}

impl Now {
    /// The monotonic instant `after` later, in nanoseconds.
    pub fn deadline_ns(self, after: Duration) -> u64 {
        self.mono_ns.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }
}
