//! Durations of the steps of a workflow, in the debug log (`FTB_LOG=ftb::timeline=debug`). The time
//! of a line is the end of the step.

use core::fmt::Display;
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Logs the end of a step: its name and the node or process.
    pub fn done(self, who: &impl Display, what: &str) {
        let us = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(target: "ftb::timeline", %who, us, "{what}");
    }
}
