//! Lines of the library for the user of a program, on standard error.
//!
//! Rare: what is ignored, what was lost. The rate of lines is limited, and lines that the limit
//! leaves out are counted and reported later: the library never falls silent. No line with
//! `FTB_QUIET=1`. A thread of the library writes, where neither a closed nor a full pipe harms the
//! program.

use crate::engine::Engine;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one process that may follow each other at once.
const LINES_BURST: u32 = 32;
/// After a burst, one line may follow in each of these periods.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Lines that wait to be written. Standard error takes none when more would wait.
const WAITING_MAX: usize = 2048;
/// How long [`Reporter::settle`] waits.
pub(crate) const WRITE_MAX: Duration = Duration::from_millis(200);

/// How many lines may follow now.
#[derive(Debug, Default)]
struct Limit {
    /// When all lines of the burst are allowed again; `None` as long as no line was used.
    full_at: Option<Instant>,
    /// Lines left out since the last line.
    left_out: u64,
}

impl Limit {
    /// Whether a line may follow now. If so, returns how many were left out before it.
    fn allows(&mut self, now: Instant) -> Option<u64> {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now));
        let used = full_at.duration_since(now);
        if used > LINE_EVERY * (LINES_BURST - 1) {
            self.left_out += 1;
            return None;
        }
        self.full_at = Some(full_at + LINE_EVERY);
        Some(core::mem::take(&mut self.left_out))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    engine: Engine,
    quiet: bool,
    settle_max: Duration,
    lines: Arc<Lines>,
}

/// Lines that were accepted.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<ReporterState>,
    written: Condvar,
}

#[derive(Debug, Default)]
struct ReporterState {
    limit: Limit,
    /// Lines that were accepted and not written yet.
    unwritten: usize,
    /// Of these: not taken yet by the thread that writes. At most [`WAITING_MAX`].
    waiting: VecDeque<String>,
    /// One thread at a time writes: lines appear in the order in which they were accepted.
    writing: bool,
}

impl Lines {
    fn state(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line to be written; without one the thread stops writing.
    fn next(&self) -> Option<String> {
        let mut state = self.state();
        let line = state.waiting.pop_front();
        state.writing = line.is_some();
        line
    }

    fn write(&self) {
        while let Some(line) = self.next() {
            // If standard error is closed, there is no other place to report that.
            let _ = std::io::stderr().write_all(line.as_bytes());
            self.state().unwritten -= 1;
            self.written.notify_all();
        }
    }
}

impl Reporter {
    /// `settle_max`: how long [`Reporter::settle`] waits.
    pub(crate) fn new(engine: Engine, quiet: bool, settle_max: Duration) -> Self {
        Self { engine, quiet, settle_max, lines: Arc::default() }
    }

    /// Writes a line soon, unless too many came before it: then it is counted.
    pub(crate) fn say(&self, text: &str) {
        if self.quiet {
            return;
        }
        let mut state = self.lines.state();
        let Some(left_out) = state.limit.allows(Instant::now()) else { return };
        self.queue_left_out(&mut state, left_out);
        self.queue(&mut state, text);
    }

    fn queue_left_out(&self, state: &mut ReporterState, left_out: u64) {
        if left_out > 0 {
            self.queue(state, &format!("{left_out} lines were left out"));
        }
    }

    /// The process ends: counts the lines that were left out, and waits as [`Reporter::settle`].
    pub(crate) fn end(&self) {
        {
            let mut state = self.lines.state();
            let left_out = core::mem::take(&mut state.limit.left_out);
            self.queue_left_out(&mut state, left_out);
        }
        self.settle();
    }

    /// Writes a line soon whose rate its caller limits. Returns whether it will be written; if not,
    /// standard error takes no lines now, and the caller may try again later.
    pub(crate) fn say_limited(&self, text: &str) -> bool {
        self.quiet || self.queue(&mut self.lines.state(), text)
    }

    fn queue(&self, state: &mut ReporterState, text: &str) -> bool {
        if state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.unwritten += 1;
        state.waiting.push_back(format!("libftb: {text}\n"));
        if !std::mem::replace(&mut state.writing, true) {
            let lines = Arc::clone(&self.lines);
            // Started from the engine's thread, the writing thread has its signal mask.
            self.engine.spawn(async move {
                let _ = tokio::task::spawn_blocking(move || lines.write()).await;
            });
        }
        true
    }

    /// Waits a moment until all accepted lines are written. The rest follows later, or standard
    /// error takes none. Not from the engine's own thread.
    pub(crate) fn settle(&self) {
        let state = self.lines.state();
        let settled =
            self.lines.written.wait_timeout_while(state, self.settle_max, |s| s.unwritten > 0);
        drop(settled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_lines_are_rare_and_those_left_out_are_counted() {
        let (mut limit, begin) = (Limit::default(), Instant::now());
        for _ in 0..LINES_BURST {
            assert_eq!(limit.allows(begin), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(limit.allows(begin), None);
        }
        assert_eq!(limit.allows(begin + LINE_EVERY), Some(5));
        assert_eq!(limit.allows(begin + LINE_EVERY), None);
        let hour = begin + Duration::from_secs(3600);
        assert_eq!(limit.allows(hour), Some(1));
        for _ in 1..LINES_BURST {
            assert_eq!(limit.allows(hour), Some(0), "a quiet hour allows a burst again");
        }
        assert_eq!(limit.allows(hour), None);
    }
}
