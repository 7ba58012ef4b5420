//! Counts refused events and gaps. The first of a kind is reported at once, further ones as one
//! line each [`EVERY`], so that a flood with the id of the job does not fill the terminal.

use core::fmt;
use core::time::Duration;
use ftb_core::Now;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Least time between two reports.
pub const EVERY: Duration = Duration::from_secs(60);
/// Longest detail of an event in a report, in characters.
const DETAIL_CHARS_MAX: usize = 200;

/// Why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Another user has published it.
    Foreign,
    /// It is not a message of the protocol.
    Malformed,
    /// No signature proves it, or its publisher may not speak about the node.
    Unproven,
    /// A gap in the subscription.
    Missed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "of other users",
            Self::Malformed => "that are no messages of the protocol",
            Self::Unproven => "of publishers that may not speak about the node",
            Self::Missed => "gaps",
        })
    }
}

/// The counters of one process, shared by its tasks.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<Counts>>);

/// The counters, without clock and output.
#[derive(Debug, Default)]
struct Counts {
    /// Since the last report, with the last event of each kind.
    fresh: BTreeMap<Reason, (u64, String)>,
    total: BTreeMap<Reason, u64>,
    /// Earliest time of the next report; 0 before the first.
    next_ns: u64,
}

impl Refusals {
    /// Counts an event; returns a line to print, if any.
    pub fn count(&self, now: Now, reason: Reason, detail: impl fmt::Display) -> Option<String> {
        let mut counts = self.lock();
        *counts.total.entry(reason).or_default() += 1;
        let entry = counts.fresh.entry(reason).or_default();
        entry.0 += 1;
        if entry.0 == 1 {
            entry.1 = detail.to_string().chars().take(DETAIL_CHARS_MAX).collect();
        }
        counts.report(now)
    }

    /// A line to print by now, if any.
    pub fn due(&self, now: Now) -> Option<String> {
        self.lock().report(now)
    }

    /// The remaining counts at the end of the process.
    pub fn rest(&self) -> Option<String> {
        self.lock().words()
    }

    pub fn total(&self, reason: Reason) -> u64 {
        self.lock().total.get(&reason).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn report(&mut self, now: Now) -> Option<String> {
        if now.mono_ns < self.next_ns {
            return None;
        }
        let words = self.words()?;
        self.next_ns = now.deadline_ns(EVERY);
        Some(words)
    }

    fn words(&mut self) -> Option<String> {
        let fresh = core::mem::take(&mut self.fresh);
        let part = |(reason, (count, detail)): (&Reason, &(u64, String))| {
            format!("{count} {reason} (first: {detail})")
        };
        let parts: Vec<String> = fresh.iter().map(part).collect();
        (!parts.is_empty()).then(|| format!("events were refused or missed: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { mono_ns: seconds * 1_000_000_000, wall_ns: 0 }
    }

    #[test]
    fn a_flood_of_foreign_events_is_one_line_a_minute() {
        let refusals = Refusals::default();
        let mut lines = Vec::new();
        for second in 0..150 {
            for _ in 0..1000 {
                lines.extend(refusals.count(at(second), Reason::Foreign, "FTB_X of uid 1000"));
            }
        }
        lines.extend(refusals.rest());
        let counts = [1, 60_000, 60_000, 29_999];
        let expected = counts.map(|count| {
            format!(
                "events were refused or missed: {count} of other users (first: FTB_X of uid 1000)"
            )
        });
        assert_eq!(lines, expected);
        assert_eq!(refusals.total(Reason::Foreign), 150_000);
        assert_eq!((refusals.rest(), refusals.due(at(1000))), (None, None));
    }

    #[test]
    fn refusals_within_the_minute_are_reported_without_another_event() {
        let refusals = Refusals::default();
        assert!(refusals.count(at(1), Reason::Missed, "FTB_NLA_PMI").is_some());
        assert!(refusals.count(at(2), Reason::Malformed, "FTB_NLA_PMI").is_none());
        assert_eq!(refusals.due(at(60)), None);
        assert!(refusals.due(at(61)).unwrap().contains("1 that are no messages"));
    }
}
