//! Reports on standard error what the process waits for: after [`FIRST`], then at growing intervals
//! up to [`LONGEST`].

use super::console;
use core::pin::pin;
use core::time::Duration;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

/// A wait of this length is reported.
pub const FIRST: Duration = Duration::from_secs(2);
/// Longest interval between two reports of one wait.
pub const LONGEST: Duration = Duration::from_secs(60);

static PROGRAM: OnceLock<&str> = OnceLock::new();
static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets the name before each report (default: `ftb-launch`).
pub fn reports_as(program: &'static str) {
    let _ = PROGRAM.set(program);
}

/// Disables the reports.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// When the next report of a wait is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals(Duration);

impl Default for Intervals {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Intervals {
    /// The age of the wait at the next report.
    pub fn next(&self) -> Duration {
        self.0
    }

    /// Whether a report is due at this age.
    pub fn is_due(&mut self, age: Duration) -> bool {
        if age < self.0 {
            return false;
        }
        // Missed reports are not made up for.
        while self.0 <= age {
            self.0 += self.0.min(LONGEST);
        }
        true
    }
}

/// Reports a wait of this age.
pub fn report(what: &str, age: Duration) {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    let program = PROGRAM.get().unwrap_or(&"ftb-launch");
    let since = SystemTime::now().checked_sub(age).unwrap_or_else(SystemTime::now);
    let since = humantime::format_rfc3339_seconds(since);
    let seconds = age.as_secs();
    console::err().line(&format!("{program}: waiting for {what} since {since} ({seconds} s)"));
}

/// Waits for `work`, reported as a wait for `what`.
pub async fn on<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let started = Instant::now();
    let mut intervals = Intervals::default();
    loop {
        let left = intervals.next().saturating_sub(started.elapsed());
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(left) => {
                let age = started.elapsed();
                if intervals.is_due(age) {
                    report(what, age);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_at_growing_intervals() {
        let mut intervals = Intervals::default();
        let due = |second: &u64| intervals.is_due(Duration::from_secs(*second));
        let reported: Vec<u64> = (0..300).filter(due).collect();
        assert_eq!(reported, [2, 4, 8, 16, 32, 64, 124, 184, 244]);
        let mut late = Intervals::default();
        assert!(late.is_due(Duration::from_secs(10)) && !late.is_due(Duration::from_secs(11)));
    }
}
