//! What the library says to the user of a program, on standard error.
//!
//! Rarely: what is ignored, what was lost. A bounded number of lines for the whole process, none with
//! `FTB_QUIET=1`. Written on a thread of the library, where neither a closed nor a full pipe harms
//! the program.

use crate::engine::Engine;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most lines of one process.
const LINES_MAX: u32 = 32;
/// How long [`Reporter::settle`] waits.
pub(crate) const WRITE_MAX: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    engine: Engine,
    quiet: bool,
    settle_max: Duration,
    lines: Arc<Lines>,
}

/// What was said so far.
#[derive(Debug, Default)]
struct Lines {
    count: Mutex<Count>,
    written: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    said: u32,
    /// Of these: not written yet.
    unwritten: u32,
    /// Of these: not taken yet by who writes. At most [`LINES_MAX`].
    waiting: VecDeque<String>,
    /// One thread at a time writes: lines come in the order in which they were said.
    writing: bool,
}

impl Lines {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line to be written; without one nobody writes any more.
    fn next(&self) -> Option<String> {
        let mut count = self.count();
        let line = count.waiting.pop_front();
        count.writing = line.is_some();
        line
    }

    fn write(&self) {
        while let Some(line) = self.next() {
            // There is nobody to be told that standard error is closed.
            let _ = std::io::stderr().write_all(line.as_bytes());
            self.count().unwritten -= 1;
            self.written.notify_all();
        }
    }
}

impl Reporter {
    /// `settle_max`: how long [`Reporter::settle`] waits.
    pub(crate) fn new(engine: Engine, quiet: bool, settle_max: Duration) -> Self {
        Self { engine, quiet, settle_max, lines: Arc::default() }
    }

    /// Says it soon.
    pub(crate) fn say(&self, text: &str) {
        if self.quiet {
            return;
        }
        if !self.queue(text) {
            return;
        }
        let lines = Arc::clone(&self.lines);
        let write = move || lines.write();
        // Started from the engine's thread, the writing thread has its signal mask.
        self.engine.spawn(async move {
            let _ = tokio::task::spawn_blocking(write).await;
        });
    }

    /// Puts it behind what was said before; gives whether somebody has to begin to write.
    fn queue(&self, text: &str) -> bool {
        let mut count = self.lines.count();
        let line = match count.said + 1 {
            ..LINES_MAX => format!("libftb: {text}\n"),
            LINES_MAX => "libftb: no more is said\n".to_owned(),
            _ => return false,
        };
        count.said += 1;
        count.unwritten += 1;
        count.waiting.push_back(line);
        !std::mem::replace(&mut count.writing, true)
    }

    /// Waits a moment until everything that was said is written. What is not comes later, or standard
    /// error takes none. Not from the engine's own thread.
    pub(crate) fn settle(&self) {
        let count = self.lines.count();
        let settled =
            self.lines.written.wait_timeout_while(count, self.settle_max, |c| c.unwritten > 0);
        drop(settled);
    }
}
