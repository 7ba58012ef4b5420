//! Times that outlive a launcher: its monotonic clock means nothing to the next one.

use ftb_core::Now;

/// A monotonic time as Unix time, which the next launcher knows too.
pub(super) fn wall_ns(now: Now, mono_ns: u64) -> u64 {
    now.wall_ns.saturating_add(mono_ns.saturating_sub(now.mono_ns))
}

/// The same time on the clock of this launcher.
pub(super) fn mono_ns(now: Now, wall_ns: u64) -> u64 {
    now.mono_ns.saturating_add(wall_ns.saturating_sub(now.wall_ns))
}
