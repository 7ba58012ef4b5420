//! What the process uses: processor time, memory, descriptors.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// What the process uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time since the start, in seconds.
    pub cpu_s: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub open_fds: u64,
}

/// What it uses now. What the system does not say is 0.
pub(super) fn now() -> Usage {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let used = getrusage(UsageWho::RUSAGE_SELF).ok();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let fds = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    Usage {
        cpu_s: used.map_or(0.0, |used| seconds(used.user_time()) + seconds(used.system_time())),
        resident_bytes: kib.unwrap_or(0) * 1024,
        // Reading the folder opens it.
        open_fds: fds.saturating_sub(1),
    }
}
