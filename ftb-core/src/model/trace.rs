//! What all agents are asked: the path of an event, as they remember it, or how each of them is.
//!
//! Agents remember the steps of traced events only: those of ERROR and FATAL, those of WARNING that
//! state a condition, and those with the tag [`TRACE_TAG`](crate::catalog::TRACE_TAG).

use crate::ident::{EventId, OriginId, Rank};
use crate::severity::Severity;
use core::fmt;

/// Most steps in one answer; further agents are counted.
pub const TRACE_STEPS_MAX: usize = 4_096;
/// Most reports of agents in one answer; further agents are counted.
pub const REPORTS_MAX: usize = 8_192;
/// Longest version in a report, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;
/// Most hosts without an answer that are named; further ones are counted.
pub const TRACE_SILENT_MAX: usize = 256;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $number:literal $word:literal,)*) => {
        /// What an agent did with an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum TraceStep { $($(#[$doc])* $name = $number,)* }

        impl TraceStep {
            /// All steps, in the order in which an event takes them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word for people and JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

steps! {
    /// A client of the agent published it. Number: the client.
    Published = 1 "published",
    /// It became part of a fold. Number: 0 for storm control, which folds into a later event of the
    /// client; for the acting root, which folds a group, the index of the fold.
    Folded = 2 "folded",
    /// Storm control rejected it.
    Limited = 3 "limited",
    /// It went to the parent. Number: its rank.
    SentUp = 4 "sent-up",
    /// It came from a child. Number: its rank.
    FromBelow = 5 "from-below",
    /// The acting root had it already.
    Duplicate = 6 "duplicate",
    /// The acting root appended it. Number: the index.
    Logged = 7 "logged",
    /// The standby has it. Number: the index.
    Replicated = 8 "replicated",
    /// The acting root committed it. Number: the index.
    Committed = 9 "committed",
    /// It went to a child. Number: its rank.
    SentDown = 10 "sent-down",
    /// It came from the parent. Number: the index.
    FromAbove = 11 "from-above",
    /// It went to a subscription of a client. Number: the client.
    Delivered = 12 "delivered",
    /// A slow subscription of a client does not get it. Number: the client.
    Shed = 13 "shed",
    /// A slow child does not get it. Number: its rank.
    ShedBelow = 14 "shed-below",
}

impl TraceStep {
    /// The step with this number on the wire.
    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|step| *step as i32 == number)
    }

    /// Whether its number is an index of the log.
    pub fn has_index(self) -> bool {
        matches!(self, Self::Logged | Self::Replicated | Self::Committed | Self::FromAbove)
    }
}

impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One step of an event at one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// What the agent did.
    pub step: TraceStep,
    /// When, in Unix nanoseconds on the agent's clock.
    pub at_ns: u64,
    /// [`TraceStep`] says what it is.
    pub number: u64,
}

/// What all agents are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceSubject {
    /// The path of an event.
    Event(EventId),
    /// A report of each agent.
    Reports,
}

/// A request to all agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The agent that asks first.
    pub requester: OriginId,
    /// Its number of the request.
    pub request: u64,
    /// What for.
    pub subject: TraceSubject,
    /// Time for the answer, in milliseconds.
    pub within_ms: u32,
}

/// How an agent is, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    /// Its host.
    pub host: String,
    /// Its rank; `None`: none is assigned yet.
    pub rank: Option<Rank>,
    /// Its release.
    pub version: String,
    /// Its clock when it answered, in Unix nanoseconds.
    pub wall_ns: u64,
    /// When the first of its certificates and revocation lists ends, in Unix nanoseconds; `None`:
    /// it has none, or does not know.
    pub certificates_end_ns: Option<u64>,
    /// It accepts agents with certificates only.
    pub is_secured: bool,
    /// Whether its journal works; `None`: it has none.
    pub has_journal: Option<bool>,
    /// The digest of its member list.
    pub members_digest: u64,
    /// States that cannot be, since it started.
    pub impossible: u64,
    /// How it proves statements about conditions; `None`: it has no certificates, or is of an older
    /// release.
    pub trust: Option<TrustReport>,
}

/// How an agent proves statements about conditions before it delivers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustReport {
    /// The digest of the hosts whose programs may state conditions of other hosts; 0: its
    /// configuration names none, so those of each host may.
    pub monitors_digest: u64,
    /// Statements that it did not deliver since it started, because nothing proves them.
    pub unproven: u64,
    /// When the last of them came, in Unix nanoseconds; 0: none came.
    pub unproven_ns: u64,
    /// The host of the publisher of the last of them; empty: none came.
    pub unproven_host: String,
}

/// What some agents answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTrace {
    /// How many agents answered.
    pub answered: u32,
    /// What the event is; `None`: no agent has it in memory any more.
    pub event: Option<TracedEvent>,
    /// The agents that remember it.
    pub agents: Vec<AgentTrace>,
    /// Agents that remember it and are left out.
    pub omitted: u32,
    /// Hosts of agents that did not answer; those behind them were not asked.
    pub silent: Vec<String>,
    /// Further agents that did not answer.
    pub silent_more: u32,
    /// Reports of agents, if these were asked for.
    pub reports: Vec<AgentReport>,
    /// All agents that answered remember steps since this Unix time, in nanoseconds.
    pub since_ns: u64,
}

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEvent {
    /// Its event space: who may not read it may not read its path.
    pub space: String,
    /// Its name.
    pub name: String,
    /// Its severity.
    pub severity: Severity,
    /// The name of the client that published it; may be empty.
    pub client: String,
}

/// What one agent remembers of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTrace {
    /// Its host.
    pub host: String,
    /// Its rank; `None`: none is assigned yet.
    pub rank: Option<Rank>,
    /// The steps, in order, each with the host or client that its number stands for.
    pub hops: Vec<(Hop, String)>,
}

impl EventTrace {
    /// Adds what other agents remember.
    pub fn merge(&mut self, other: Self) {
        self.answered = self.answered.saturating_add(other.answered);
        self.event = self.event.take().or(other.event);
        self.omitted = self.omitted.saturating_add(other.omitted);
        self.silent_more = self.silent_more.saturating_add(other.silent_more);
        self.since_ns = self.since_ns.max(other.since_ns);
        let mut steps: usize = self.agents.iter().map(|agent| agent.hops.len()).sum();
        for agent in other.agents {
            steps += agent.hops.len();
            match steps <= TRACE_STEPS_MAX {
                true => self.agents.push(agent),
                false => self.omitted = self.omitted.saturating_add(1),
            }
        }
        let room = REPORTS_MAX.saturating_sub(self.reports.len());
        let left_out = other.reports.len().saturating_sub(room);
        self.omitted = self.omitted.saturating_add(u32::try_from(left_out).unwrap_or(u32::MAX));
        self.reports.extend(other.reports.into_iter().take(room));
        other.silent.into_iter().for_each(|host| self.add_silent(host));
    }

    /// Adds an agent that did not answer.
    pub fn add_silent(&mut self, host: String) {
        match self.silent.len() < TRACE_SILENT_MAX {
            true => self.silent.push(host),
            false => self.silent_more = self.silent_more.saturating_add(1),
        }
    }
}
