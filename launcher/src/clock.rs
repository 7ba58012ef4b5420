//! The clock of a process, from which the state machines get their time.

use ftb_core::Now;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock whose monotonic time starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now(&self) -> Now {
        let nanos = |d: core::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_ns: nanos(self.0.elapsed()), wall_ns: nanos(wall) }
    }

    /// Sleeps until the monotonic time is `deadline_ns` (forever if it is `u64::MAX`). Cancel-safe.
    pub async fn sleep_until(&self, deadline_ns: u64) {
        let far = core::time::Duration::from_secs(3600);
        let wait = core::time::Duration::from_nanos(deadline_ns.saturating_sub(self.now().mono_ns));
        tokio::time::sleep(wait.min(far)).await;
    }
}
