//! Counts the errors of peers, and logs them without flooding the log.
//!
//! Not responsible for: deciding what is an error.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Most log lines for one counter within [`WINDOW`]; further errors are only counted.
pub const LOG_LINES_MAX: u32 = 5;
/// Length of a window.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Named counters of rejected and dropped input.
#[derive(Default)]
pub struct PeerErrors {
    counters: Mutex<BTreeMap<&'static str, Counter>>,
}

#[derive(Default)]
struct Counter {
    total: u64,
    window: Option<Window>,
}

struct Window {
    start: Instant,
    lines: u32,
    suppressed: u64,
}

impl PeerErrors {
    /// Counts an error and logs it if the window has room. `kind` names the counter.
    pub fn count(&self, kind: &'static str, peer: &str, what: &str) {
        match self.admit_line(kind) {
            None => {}
            Some(0) => tracing::warn!(target: "ftb::refused", kind, peer, "{what}"),
            Some(suppressed) => {
                tracing::warn!(target: "ftb::refused", kind, peer, suppressed, "{what}");
            }
        }
    }

    /// Counts an error without a log line.
    pub fn count_quietly(&self, kind: &'static str) {
        self.counters.lock().entry(kind).or_default().total += 1;
    }

    /// All counters by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.lock().iter().map(|(name, counter)| (*name, counter.total)).collect()
    }

    /// Counts an error; `Some(suppressed lines)` if a line may be logged now.
    fn admit_line(&self, kind: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut counters = self.counters.lock();
        let counter = counters.entry(kind).or_default();
        counter.total += 1;
        match &mut counter.window {
            Some(window) if now.duration_since(window.start) < WINDOW => {
                window.lines += 1;
                if window.lines <= LOG_LINES_MAX {
                    return Some(0);
                }
                window.suppressed += 1;
                None
            }
            window => {
                let suppressed = window.as_ref().map_or(0, |old| old.suppressed);
                *window = Some(Window { start: now, lines: 1, suppressed: 0 });
                Some(suppressed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_counted_and_some_are_logged() {
        let errors = PeerErrors::default();
        let lines = (0..100).filter(|_| errors.admit_line("garbage").is_some()).count();
        assert_eq!(lines, LOG_LINES_MAX as usize);
        errors.count_quietly("silent");
        assert_eq!(errors.counters(), [("garbage", 100), ("silent", 1)]);
    }
}
