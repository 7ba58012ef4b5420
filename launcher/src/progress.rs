//! The progress of a long phase at a terminal: one line on standard error, redrawn in place and
//! wiped before other output. Without a terminal a long phase is reported like other waits
//! ([`super::waiting`]).

use super::console;
use super::waiting::{self, Intervals};
use core::time::Duration;
use ftb_core::Now;
use ftb_launcher_core::jl::Jl;
use ftb_launcher_core::names::NodeName;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Least duration of a shown phase, and interval of the redraws.
const EVERY: Duration = Duration::from_millis(500);
/// Wipes the line of the cursor.
const WIPE: &str = "\r\x1b[K";
/// Cells of the bar.
const CELLS: usize = 20;

/// Whether a line stands at the terminal; shared by all writers.
#[derive(Clone, Debug, Default)]
pub struct Wiper(Arc<AtomicBool>);

impl Wiper {
    /// Wipes the line before other output on standard error.
    pub fn wipe(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            console::err().queue(WIPE.as_bytes());
        }
    }

    /// The same, and waits until it is done.
    pub async fn wiped(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            // A closed terminal shows nothing; the job goes on.
            let _ = console::err().write(WIPE.into()).await;
        }
    }
}

#[derive(Debug)]
pub struct Progress {
    wiper: Wiper,
    terminal: bool,
    next_ns: u64,
    /// Start of the wait, in monotonic nanoseconds.
    started_ns: u64,
    /// The last wait: its words and its next report.
    wait: Option<(String, Intervals)>,
}

impl Progress {
    /// Shows nothing if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        Self { wiper: Wiper::default(), terminal, next_ns: u64::MAX, started_ns: 0, wait: None }
    }

    pub fn wiper(&self) -> Wiper {
        self.wiper.clone()
    }

    /// When [`Self::look`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        self.next_ns
    }

    /// Draws or reports the open phase if it is time.
    pub fn look(&mut self, now: Now, jl: &Jl) {
        if !self.terminal {
            return self.report(now, jl);
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

impl Progress {
    /// Reports the launcher's wait if it is time.
    fn report(&mut self, now: Now, jl: &Jl) {
        if jl.open().is_none() && jl.unheard().is_empty() {
            self.next_ns = u64::MAX;
            self.wait = None;
            return;
        }
        if self.next_ns == u64::MAX {
            self.started_ns = now.mono_ns;
            self.next_ns = now.deadline_ns(waiting::FIRST);
        }
        if now.mono_ns < self.next_ns {
            return;
        }
        let (words, missing, since_ns) = match jl.open().map(|open| open.progress(now, jl.job())) {
            Some(phase) => {
                let age_ns = u64::try_from(phase.age.as_nanos()).unwrap_or(u64::MAX);
                (phase.words, phase.missing, now.mono_ns.saturating_sub(age_ns))
            }
            None => {
                let missing = jl.unheard().iter().cloned().collect();
                ("launch agents to answer".to_owned(), missing, self.started_ns)
            }
        };
        let known = self.wait.take().filter(|(known, _)| *known == words);
        let mut intervals = known.map(|(_, intervals)| intervals).unwrap_or_default();
        let age = Duration::from_nanos(now.mono_ns.saturating_sub(since_ns));
        if intervals.is_due(age) {
            waiting::report(&wait_words(&words, &missing), age);
        }
        let next_ns = u64::try_from(intervals.next().as_nanos()).unwrap_or(u64::MAX);
        self.next_ns = since_ns.saturating_add(next_ns);
        self.wait = Some((words, intervals));
    }
}

/// `start 1: gather (node[02-03])`.
fn wait_words(words: &str, missing: &[NodeName]) -> String {
    if missing.is_empty() {
        return words.to_owned();
    }
    let nodes = ftb_core::hostlist::fold(missing.iter().map(NodeName::as_str));
    format!("{words} ({nodes})")
}

fn draw(line: &str) {
    console::err().draw(format!("{WIPE}{line}").as_bytes());
}

/// `migration 3: copy 4s`, with a bar if the progress is known.
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
