//! The progress of a long phase at a terminal: one line on standard error that is drawn over itself and wiped off
//! before anything else is written. Where standard error is no terminal there is none.

use crate::jl::Jl;
use core::time::Duration;
use ftb_core::Now;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A phase is shown when it has taken so long, and drawn again as often.
const EVERY: Duration = Duration::from_millis(500);
/// Cells of the bar.
const CELLS: usize = 20;

/// Whether a line stands at the terminal: shared with whoever else writes there.
#[derive(Clone, Debug, Default)]
pub struct Wiper(Arc<AtomicBool>);

impl Wiper {
    /// Wipes the line off, if one stands there.
    pub fn wipe(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            draw("");
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Progress {
    wiper: Wiper,
    terminal: bool,
    next_ns: u64,
}

impl Progress {
    /// Shows nothing where `quiet`.
    pub fn new(quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        Self { wiper: Wiper::default(), terminal, next_ns: u64::MAX }
    }

    /// For others who write to the terminal.
    pub fn wiper(&self) -> Wiper {
        self.wiper.clone()
    }

    /// The next moment at which [`Self::look`] is wanted, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        self.next_ns
    }

    /// Draws the open phase if it is time.
    pub fn look(&mut self, now: Now, jl: &Jl) {
        if !self.terminal {
            return;
        }
        let phase = jl.open().map(|open| open.progress(now, jl.job()));
        let Some(phase) = phase else {
            self.next_ns = u64::MAX;
            return self.wiper.wipe();
        };
        if self.next_ns == u64::MAX {
            self.next_ns = now.deadline_ns(EVERY);
        }
        if now.mono_ns < self.next_ns {
            return;
        }
        self.next_ns = now.deadline_ns(EVERY);
        if phase.age < EVERY {
            return self.wiper.wipe();
        }
        let line = line(&phase.words, phase.done, phase.age);
        draw(&line);
        self.wiper.0.store(true, Ordering::Relaxed);
    }
}

fn draw(line: &str) {
    // A terminal that is gone shows nothing; the job goes on.
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    let _ = std::io::stderr().flush();
}

/// `migration 3: copy 4s`, or with a bar where it is known how much of it is done.
fn line(words: &str, done: Option<(usize, usize)>, age: Duration) -> String {
    let seconds = age.as_secs();
    match done {
        Some((done, all)) if all > 0 => {
            let full = (done.min(all) * CELLS) / all;
            let bar = format!("{}{}", "#".repeat(full), ".".repeat(CELLS - full));
            format!("{words} {done}/{all} [{bar}] {seconds}s")
        }
        _ => format!("{words} {seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_long_as_what_is_done() {
        let at = |done| line("start 1: gather", done, Duration::from_millis(2900));
        assert_eq!(at(Some((1, 4))), "start 1: gather 1/4 [#####...............] 2s");
        assert_eq!(at(Some((4, 4))), "start 1: gather 4/4 [####################] 2s");
        assert_eq!(at(None), "start 1: gather 2s");
        assert_eq!(at(Some((0, 0))), "start 1: gather 2s");
    }
}
