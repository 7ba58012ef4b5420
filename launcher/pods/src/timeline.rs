//! The time line of remedies, for the log at debug level: each step that somebody waits for, with the time that it took
//! (`FTB_LOG=ftb::timeline=debug`; the time of the line is that of the step's end).

use core::fmt::Display;
use std::time::Instant;

/// A step that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Step(Instant);

impl Step {
    /// Begins now.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// It is done: `what` was it, and `who` did it.
    pub fn done(self, who: &impl Display, what: &str) {
        let us = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(target: "ftb::timeline", %who, us, "{what}");
    }
}
