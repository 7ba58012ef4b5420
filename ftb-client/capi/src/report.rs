//! What the library says to the user of a program, on standard error.
//!
//! Rarely: what is ignored, what was lost. A bounded number of lines for the whole process, none with
//! `FTB_QUIET=1`. Written on a thread of the library, where neither a closed nor a full pipe harms
//! the program.

use crate::engine::Engine;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Most lines of one process.
const LINES_MAX: u32 = 32;
/// How long [`Reporter::say_now`] waits for its line to be written.
const WRITE_MAX: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    engine: Engine,
    quiet: bool,
    lines: Arc<AtomicU32>,
}

impl Reporter {
    pub(crate) fn new(engine: Engine, quiet: bool) -> Self {
        Self { engine, quiet, lines: Arc::default() }
    }

    /// Says it soon.
    pub(crate) fn say(&self, text: &str) {
        let _ = self.begin(text);
    }

    /// Says it, and waits a moment until it is written. Not from the engine's own thread.
    pub(crate) fn say_now(&self, text: &str) {
        if let Some(written) = self.begin(text) {
            // Not written in time: the line comes later, or standard error takes none.
            let _ = self.engine.wait(WRITE_MAX, written);
        }
    }

    fn begin(&self, text: &str) -> Option<oneshot::Receiver<()>> {
        if self.quiet {
            return None;
        }
        let line = match self.lines.fetch_add(1, Ordering::Relaxed) {
            before if before + 1 < LINES_MAX => format!("libftb: {text}\n"),
            before if before + 1 == LINES_MAX => "libftb: no more is said\n".to_owned(),
            _ => return None,
        };
        let (done, written) = oneshot::channel();
        // Started from the engine's thread, the writing thread has its signal mask.
        self.engine.spawn(async move {
            let write = move || {
                // There is nobody to be told that standard error is closed.
                let _ = std::io::stderr().write_all(line.as_bytes());
                let _ = done.send(());
            };
            let _ = tokio::task::spawn_blocking(write).await;
        });
        Some(written)
    }
}
