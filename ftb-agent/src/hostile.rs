//! What was refused or dropped, counted for the administrator and logged without flooding the log.
//!
//! Responsible for: counters by name, and at most [`LOG_LINES_MAX`] lines per name in a window of
//! [`WINDOW`]. Not responsible for: deciding what is hostile.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Most log lines for one kind of trouble in one window; the rest is only counted.
pub const LOG_LINES_MAX: u32 = 5;
/// Length of a window.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Counters of one agent's shell.
#[derive(Default)]
pub struct Hostile {
    kinds: Mutex<BTreeMap<&'static str, Kind>>,
}

#[derive(Default)]
struct Kind {
    total: u64,
    window: Option<Window>,
}

struct Window {
    start: Instant,
    lines: u32,
    suppressed: u64,
}

impl Hostile {
    /// Counts one and logs it when the window still has room. `kind` is the name of the counter.
    pub fn count(&self, kind: &'static str, peer: &str, what: &str) {
        match self.admit_line(kind) {
            None => {}
            Some(0) => tracing::warn!(target: "ftb::refused", kind, peer, "{what}"),
            Some(suppressed) => {
                tracing::warn!(target: "ftb::refused", kind, peer, suppressed, "{what}");
            }
        }
    }

    /// Counts without a line.
    pub fn count_quietly(&self, kind: &'static str) {
        self.with(kind, |kind| kind.total += 1);
    }

    /// All counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let kinds = self.kinds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kinds.iter().map(|(name, kind)| (*name, kind.total)).collect()
    }

    /// `Some(lines suppressed before)` when a line may be written now.
    fn admit_line(&self, kind: &'static str) -> Option<u64> {
        let now = Instant::now();
        self.with(kind, |kind| {
            kind.total += 1;
            match &mut kind.window {
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
        })
    }

    fn with<R>(&self, name: &'static str, act: impl FnOnce(&mut Kind) -> R) -> R {
        let mut kinds = self.kinds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(kinds.entry(name).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted_and_only_some_is_logged() {
        let hostile = Hostile::default();
        let lines = (0..100).filter(|_| hostile.admit_line("garbage").is_some()).count();
        assert_eq!(lines, LOG_LINES_MAX as usize);
        hostile.count_quietly("silent");
        assert_eq!(hostile.counters(), [("garbage", 100), ("silent", 1)]);
    }
}
