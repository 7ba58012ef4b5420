//! A report: an event with what its agent vouches for. Responsible for: the node that it is about,
//! and whether its publisher is trusted. Not responsible for: what follows from it.

use crate::names::NodeName;
use ftb_core::catalog::names;
use ftb_core::condition::{Condition, EVENT_NAME, Truth};
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::ReadPlace;
use ftb_core::space::lies_in;
use ftb_core::{Event, EventId, Now, Position, Severity};

/// The event space of the agents, which repeat statements of others.
const AGENT_SPACE: &str = "ftb.agent";
/// The tag with space and name of the event that an agent repeats.
const ORIGINAL: &str = "event";
/// The condition of a node that is too hot, which publishers predict.
const HEAT: &str = "OVERTEMP";
const NS_PER_S: u64 = 1_000_000_000;
/// Event spaces whose payload is the node: Appendix B of the thesis, and MVAPICH2's trigger.
const PAYLOAD_SPACES: [&str; 2] = ["ftb.ipmi", "ftb.mpi.mig_trigger"];

/// What an event states, as its agent has verified it.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Host and severity are filled in.
    pub condition: Condition,
    /// What decides whether it counts over another statement.
    pub claim: Claim,
}

/// What the local agent knows about the host that published an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Proof {
    /// The agent does not demand signatures.
    #[default]
    Unchecked,
    /// The key of that host has signed the event.
    Signed,
    /// No valid signature, although the agent demands one of events that move jobs.
    Missing,
}

/// An event with what its agent vouches for.
#[derive(Clone, Debug)]
pub struct Report {
    pub event: Event,
    /// Where it was published.
    pub host: String,
    /// The user who published it.
    pub uid: u32,
    pub stated: Option<Statement>,
    pub proof: Proof,
    /// Where a statement was read.
    pub place: ReadPlace,
    /// Where it was read; `None` for statements of conditions, which repeat themselves.
    pub source: Option<EventSource>,
}

/// Where an event was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource {
    /// The event space of the subscription.
    pub space: String,
    pub id: EventId,
    pub position: Position,
}

impl Report {
    /// An event of root, without a statement.
    pub fn new(event: Event, host: &str) -> Self {
        let (host, proof, place) = (host.to_owned(), Proof::Unchecked, ReadPlace::default());
        Self { event, host, uid: 0, stated: None, proof, place, source: None }
    }

    /// Whether it is a row of the table with which the launcher begins, or with which a node joins
    /// the job: no news. Rows that are read again, after a gap, are news.
    pub fn is_initial(&self) -> bool {
        self.place.is_row && self.place.reading == 0
    }

    /// Space and name; of a repeated statement those of the original. Agents repeat it in its
    /// event space; those of the release before in theirs.
    pub fn name(&self) -> (&str, &str) {
        let own = (self.event.space.as_str(), self.event.name.as_str());
        if !self.is_repeat() {
            return own;
        }
        let is_there = |space: &str| own.0.eq_ignore_ascii_case(space) || own.0 == AGENT_SPACE;
        let original = self.event.tag(ORIGINAL).and_then(|text| text.split_once(' '));
        original.filter(|(space, _)| is_there(space)).unwrap_or(own)
    }

    /// The event, with component and key of its condition where the name does not say them:
    /// `FTB_IPMI_FANFAIL of FAN 1`.
    pub(super) fn words(&self) -> String {
        let (_, name) = self.name();
        let mut words = name.to_owned();
        if let Some(Statement { condition, .. }) = &self.stated {
            if !condition.component.is_empty() {
                words = format!("{words} of {}", condition.component);
            }
            if !name.to_ascii_uppercase().ends_with(&condition.key.to_ascii_uppercase()) {
                words = format!("{words} ({})", condition.key);
            }
        }
        words
    }

    pub fn severity(&self) -> Severity {
        let stated = self.stated.as_ref().and_then(|stated| stated.condition.severity);
        stated.unwrap_or(self.event.severity)
    }

    /// The key of the condition that holds. One whose publisher is lost holds if it was bad.
    pub fn holding(&self) -> Option<&str> {
        let condition = &self.stated.as_ref()?.condition;
        let holds = match condition.truth {
            Truth::True => true,
            Truth::Unknown => self.severity() >= Severity::Warning,
            Truth::False => false,
        };
        holds.then_some(condition.key.as_str())
    }

    /// The node that it is about: the subject of its condition, the tag `node` or `host`, the
    /// payload in event spaces where it is one, else where it was published. `None`: no node, as
    /// where such a payload is another text.
    pub fn node(&self) -> Option<NodeName> {
        let named = |text: &str| NodeName::new(text).ok();
        if let Some(stated) = &self.stated {
            let host = &stated.condition.host;
            return named(if host.is_empty() { &self.host } else { host });
        }
        if let Some(tag) = self.event.tag("node").or_else(|| self.event.tag("host")) {
            return named(tag);
        }
        let space = self.event.space.as_str().to_ascii_lowercase();
        let is_node = PAYLOAD_SPACES.iter().any(|known| lies_in(space.as_bytes(), known));
        // A C program leaves what its stack has behind the first NUL.
        let text = self.event.payload.split(|byte| *byte == 0).next().unwrap_or_default();
        match text.trim_ascii() {
            text if is_node && !text.is_empty() => named(core::str::from_utf8(text).ok()?),
            _ => named(&self.host),
        }
    }

    /// Whether an agent repeats a statement: nothing has happened at the node.
    pub(super) fn is_repeat(&self) -> bool {
        self.event.name.as_str().eq_ignore_ascii_case(EVENT_NAME)
    }

    /// Whether it is about another host than that of its publisher.
    pub(super) fn is_about_another(&self, node: &NodeName) -> bool {
        !self.host.eq_ignore_ascii_case(node.as_str())
    }

    /// Whether any agent may say it about any node: a verdict of the agents, or that the publisher
    /// of a statement is lost.
    pub(super) fn is_verdict(&self) -> bool {
        match &self.stated {
            Some(stated) if stated.condition.truth == Truth::Unknown && self.is_repeat() => {
                stated.claim.replaces.is_some()
            }
            _ => lies_in(self.event.space.as_str().as_bytes(), AGENT_SPACE) && !self.is_repeat(),
        }
    }

    /// When it happened, in monotonic nanoseconds; negative: before this launcher. Statements of
    /// conditions count when they are read.
    pub(super) fn at_ns(&self, now: Now) -> i128 {
        let is_dated = self.source.is_some() && self.event.time_ns > 0;
        let age_ns = if is_dated { now.wall_ns.saturating_sub(self.event.time_ns) } else { 0 };
        i128::from(now.mono_ns) - i128::from(age_ns)
    }

    /// Since when its condition holds, in Unix nanoseconds.
    pub(super) fn onset_ns(&self) -> Option<u64> {
        let onset_ns = self.stated.as_ref()?.condition.onset_ns;
        Some(if onset_ns > 0 { onset_ns } else { self.event.time_ns })
    }

    /// Whether the node is as hot as predictions say that it will be. A repetition has no tags.
    pub(super) fn is_at_limit(&self) -> bool {
        let is_named = self.name().1.eq_ignore_ascii_case(names::FTB_IPMI_OVERTEMP);
        let is_heat = match (&self.stated, self.holding()) {
            (None, _) => is_named,
            (Some(_), key) => key.is_some_and(|key| is_named || key.eq_ignore_ascii_case(HEAT)),
        };
        let is_over = match self.event.tag("cause") {
            None => true,
            Some(cause) => cause != "predicted" && self.severity() >= Severity::Error,
        };
        is_heat && is_over && !self.is_repeat()
    }

    /// When the node fails at the earliest, in monotonic nanoseconds, if that is predicted.
    pub(super) fn fails_ns(&self, now: Now) -> Option<u64> {
        if self.event.tag("cause") != Some("predicted") {
            return None;
        }
        if let Some(at_s) = self.event.tag("fails_at_min").and_then(|at| at.parse::<u64>().ok()) {
            let left_ns = at_s.saturating_mul(NS_PER_S).saturating_sub(now.wall_ns);
            return Some(now.mono_ns.saturating_add(left_ns));
        }
        let tag = self.event.tag("seconds_left_min").or_else(|| self.event.tag("seconds_left"));
        let left = core::time::Duration::try_from_secs_f64(tag?.parse().ok()?).ok()?;
        // Its condition may have begun long before.
        let said_ns = self.event.time_ns;
        let age_ns = if said_ns == 0 { 0 } else { now.wall_ns.saturating_sub(said_ns) };
        Some(now.deadline_ns(left).saturating_sub(age_ns).max(now.mono_ns))
    }
}
