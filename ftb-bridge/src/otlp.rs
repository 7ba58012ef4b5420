//! OTLP traces: what is sent of an episode of a job, and what follows from the answer of a
//! collector.
//!
//! `FTB_JL_EPISODE` closes an episode and names its phases with their durations. It becomes one
//! trace: a span of the episode and, within it, one of each phase. If its cause is known, the trace
//! begins with the fault, and a span `decide` reaches from there to the first phase. Ids are hashes
//! of the cluster and of the id of the closing event. So a trace that is sent again, after a
//! restart or by a second bridge, has the same ids. Not responsible for: connections and time
//! ([`crate::shell::traces`]).

mod encode;
#[cfg(test)]
mod tests;

pub use encode::TraceEncoder;

use ftb_client::{EventName, Received};
use ftb_core::catalog::names;

/// The events that close episodes, as a filter.
pub const EPISODES: &str = "event_space=ftb.jl, event_name=FTB_JL_EPISODE";
/// Most phases of an episode that become spans; further ones are left out.
pub const PHASES_MAX: usize = 64;
/// How long before its episode a fault may have been published.
pub const FAULT_NS_MAX: u64 = 600_000_000_000;
/// Shortest and longest pause after a failure, in milliseconds; it doubles.
const PAUSE_MS: (u64, u64) = (200, 10_000);

/// A closed episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed<'a> {
    received: &'a Received,
    /// The phases and their durations in milliseconds.
    phases: Vec<(&'a str, u64)>,
    /// When its first phase began, in Unix nanoseconds.
    began_ns: u64,
}

impl<'a> Closed<'a> {
    /// Reads an event; `None`: it closes no episode.
    pub fn read(received: &'a Received) -> Option<Self> {
        let event = &received.event;
        if event.space.as_str() != "ftb.jl" || event.name.as_str() != names::FTB_JL_EPISODE {
            return None;
        }
        let phase = |part: &'a str| {
            let (name, ms) = part.split_once('=')?;
            Some((name, ms.parse().ok()?))
        };
        let phases = event.tag("phases").unwrap_or_default().split(' ').filter_map(phase);
        let phases: Vec<(&str, u64)> = phases.take(PHASES_MAX).collect();
        let lasted_ms = phases.iter().fold(0_u64, |sum, (_, ms)| sum.saturating_add(*ms));
        let began_ns = event.time_ns.saturating_sub(lasted_ms.saturating_mul(1_000_000));
        Some(Self { received, phases, began_ns })
    }

    /// Where the fault that caused the episode is looked for.
    pub fn fault(&self) -> Option<FaultSearch> {
        // `FTB_IPMI_FANFAIL of FAN 1 on node03`
        let cause = self.received.event.tag("cause")?;
        let name = EventName::new(cause.split(' ').next()?).ok()?;
        let (_, node) = cause.rsplit_once(" on ")?;
        Some(FaultSearch { name, node: node.to_owned(), until_ns: self.began_ns, newest: None })
    }
}

/// The event of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    id: String,
    name: String,
    time_ns: u64,
}

/// Finds the newest event of a fault before an episode among events of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSearch {
    name: EventName,
    node: String,
    until_ns: u64,
    newest: Option<Fault>,
}

impl FaultSearch {
    /// Which events may be the fault.
    pub fn filter(&self) -> String {
        format!("event_name={}", self.name)
    }

    /// From when on, in Unix nanoseconds.
    pub fn since_ns(&self) -> u64 {
        self.until_ns.saturating_sub(FAULT_NS_MAX)
    }

    /// Looks at an event of that time.
    pub fn look(&mut self, received: &Received) {
        let event = &received.event;
        let named = event.tag("node").or_else(|| event.tag("host"));
        let host = match (&received.stated, named) {
            (Some(stated), _) => &stated.condition.host,
            (None, Some(node)) => node,
            (None, None) => received.host.as_str(),
        };
        let is_before = (self.since_ns()..=self.until_ns).contains(&event.time_ns);
        if event.name == self.name && host.eq_ignore_ascii_case(&self.node) && is_before {
            let (id, name) = (received.id.to_string(), event.name.as_str().to_owned());
            self.newest = Some(Fault { id, name, time_ns: event.time_ns });
        }
    }

    /// The fault, if it was seen.
    pub fn found(self) -> Option<Fault> {
        self.newest
    }
}

/// What follows from the answer of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It has the trace.
    Taken,
    /// It may take the trace later.
    Again,
    /// It never takes the trace.
    Rejected,
}

impl Reply {
    /// By the status code, as the specification of OTLP has it.
    pub fn of(status: u16) -> Self {
        match status {
            200..=299 => Self::Taken,
            429 | 502 | 503 | 504 => Self::Again,
            _ => Self::Rejected,
        }
    }
}

/// The pause before a trace is sent again, in milliseconds, after this number of failures.
pub fn pause_ms(failures: u32) -> u64 {
    let doubled = PAUSE_MS.0.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(PAUSE_MS.1)
}
