//! The commands that check policies and try them on recorded events.

use super::policy_text;
use super::tools::{json, line};
use ftb_client::daemon::Failure;
use ftb_core::condition::Condition;
use ftb_core::hostlist::Hostlist;
use ftb_core::log::conditions::Claim;
use ftb_core::{Event, EventId, EventName, EventSpace, Now, PublisherId, Severity, Tag};
use ftb_launcher_core::jl::Request;
use ftb_launcher_core::names::{FaultId, NodeName};
use ftb_launcher_core::policy::{Action, Facts, Policy, Report, Statement};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

/// Largest file of recorded events in bytes.
pub const EVENTS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Checks a policy file.
///
/// # Errors
/// The line and the problem.
pub fn policy_check(file: &Path) -> Result<(), Failure> {
    policy_text(Some(file))?;
    line(&format!("{}: good", file.display()))
}

#[derive(Deserialize)]
struct Recorded {
    space: String,
    name: String,
    #[serde(default)]
    severity: Option<String>,
    host: String,
    #[serde(default)]
    time_ns: Option<u64>,
    #[serde(default)]
    time_s: Option<f64>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    payload: Option<String>,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    condition: Option<RecordedCondition>,
}

#[derive(Deserialize)]
struct RecordedCondition {
    #[serde(default)]
    host: String,
    #[serde(default)]
    component: String,
    key: String,
    state: String,
    #[serde(default)]
    severity: Option<String>,
    #[serde(default)]
    onset_ns: u64,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    replaces: Option<String>,
}

impl RecordedCondition {
    /// `event`: its event. Without an id of a publisher each statement is its own source.
    fn stated(&self, event: EventId, of: &Recorded) -> Result<Statement, String> {
        let id = |text: &Option<String>| text.as_deref().map(parsed).transpose();
        let truth = parsed(&self.state)?;
        let host = if self.host.is_empty() { &of.host } else { &self.host };
        let condition = Condition {
            host: host.clone(),
            component: self.component.clone(),
            severity: self.severity.as_deref().map(parsed).transpose()?,
            onset_ns: self.onset_ns,
            ..Condition::new(&self.key, truth)
        };
        condition.check().map_err(|error| error.to_string())?;
        let (time_ns, replaces) = (of.time_ns()?, id(&self.replaces)?);
        let of_event = of.severity.as_deref().map(parsed).transpose()?;
        let severity = condition.severity.or(of_event).unwrap_or(Severity::Info);
        let claim = Claim {
            source: id(&self.source)?.unwrap_or(event),
            replaces,
            stated_ns: self.onset_ns.min(time_ns),
            clock: Claim::clock_of(&of.host, replaces),
            ..Claim::new(event, truth, severity, time_ns)
        };
        Ok(Statement { condition, claim })
    }
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Time in nanoseconds, node, report.
type RecordedEvent = (u64, NodeName, Report);

impl Recorded {
    /// `line`: an id for an event without one.
    fn heard(&self, line: u64) -> Result<RecordedEvent, String> {
        let space = EventSpace::new(&self.space).map_err(|error| error.to_string())?;
        let name = EventName::new(&self.name).map_err(|error| error.to_string())?;
        let mut event = Event::new(space, name);
        if let Some(word) = &self.severity {
            event.severity = parsed::<Severity>(word)?;
        }
        let tag = |(key, value): (&String, &String)| Tag { key: key.clone(), value: value.clone() };
        event.tags = self.tags.iter().map(tag).collect();
        event.payload = self.payload.clone().unwrap_or_default().into();
        let of_line = EventId { publisher: PublisherId { account: 0, token: line }, seq: 1.into() };
        let id = self.id.as_deref().map(parsed).transpose()?.unwrap_or(of_line);
        let stated = self.condition.as_ref().map(|stated| stated.stated(id, self)).transpose()?;
        let report = Report { uid: self.uid, stated, ..Report::new(event, &self.host) };
        let node = report.node().ok_or_else(|| format!("{:?} is no node", self.host))?;
        Ok((self.time_ns()?, node, report))
    }

    fn time_ns(&self) -> Result<u64, String> {
        if let Some(seconds) = self.time_s.filter(|seconds| *seconds < 0.0) {
            return Err(format!("time_s is {seconds}: expected seconds from 0 on"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time of day"
        )]
        let seconds = self.time_s.map(|seconds| (seconds * 1e9) as u64);
        let time_ns = self.time_ns.or(seconds);
        time_ns.ok_or_else(|| "the event has neither time_ns nor time_s".to_owned())
    }
}

/// Reads recorded events in the order of their times.
fn read_events(path: &Path) -> Result<Vec<RecordedEvent>, Failure> {
    let name = path.display();
    let fail = |error: std::io::Error| Failure::bad_input(format!("{name}: {error}"));
    let file = std::fs::File::open(path).map_err(fail)?;
    let mut text = String::new();
    file.take(EVENTS_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > EVENTS_BYTES_MAX {
        let problem = format!("{name}: more than {EVENTS_BYTES_MAX} bytes: try a part of it");
        return Err(Failure::bad_input(problem));
    }
    let mut events = Vec::new();
    for (number, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let bad = |problem: String| {
            Failure::bad_input(format!("{name} line {number}: {}", problem.replace('\n', " ")))
        };
        let wrong = |error: serde_json::Error| bad(error.to_string());
        let value: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
        // Events are missing there: `ftbctl events` says so.
        if value["type"] == "gap" {
            continue;
        }
        let one: Recorded = serde_json::from_value(value).map_err(wrong)?;
        events.push(one.heard(number).map_err(bad)?);
    }
    events.sort_by_key(|(time_ns, _, _)| *time_ns);
    Ok(events)
}

/// Shows what a policy would have done with recorded events.
///
/// # Errors
/// The file, the line, and the problem.
pub fn policy_test(
    events: &Path,
    policy: Option<&Path>,
    nodes: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let (_, mut policy) = policy_text(policy)?;
    let mut heard = read_events(events)?;
    let facts = Facts { nodes: job_nodes(nodes, &heard)?, owner: 0 };
    // As a launcher does.
    heard.retain(|(_, node, report)| {
        facts.nodes.contains(node) && policy.check(report, node, facts.owner).is_ok()
    });
    replay(&mut policy, &heard, &facts, as_json)
}

fn job_nodes(nodes: Option<&str>, heard: &[RecordedEvent]) -> Result<BTreeSet<NodeName>, Failure> {
    let Some(text) = nodes else {
        return Ok(heard.iter().map(|(_, node, _)| node.clone()).collect());
    };
    let list = Hostlist::parse(text).map_err(|e| Failure::bad_input(format!("--nodes: {e}")))?;
    let name = |host: String| {
        NodeName::new(&host).map_err(|error| Failure::bad_input(format!("--nodes: {error}")))
    };
    list.iter().map(name).collect()
}

fn replay(
    policy: &mut Policy,
    heard: &[RecordedEvent],
    facts: &Facts,
    as_json: bool,
) -> Result<(), Failure> {
    let start = heard.first().map_or(0, |(time_ns, _, _)| *time_ns);
    let at = |time_ns: u64| Now { mono_ns: time_ns.saturating_sub(start), wall_ns: time_ns };
    let say = |now: Now, actions: Vec<Action>| {
        actions.iter().try_for_each(|action| ActionLine::of(now, action).say(as_json))
    };
    for (time_ns, node, report) in heard {
        settle(policy, facts, at(*time_ns).mono_ns, &say)?;
        say(at(*time_ns), policy.event(at(*time_ns), report, node, facts))?;
    }
    settle(policy, facts, u64::MAX, &say)
}

/// Lets the policy act on everything that settles before `until_ns`.
fn settle(
    policy: &mut Policy,
    facts: &Facts,
    until_ns: u64,
    say: &impl Fn(Now, Vec<Action>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while policy.next_deadline_ns() < until_ns {
        let now = Now { mono_ns: policy.next_deadline_ns(), wall_ns: 0 };
        say(now, policy.tick(now, facts))?;
    }
    Ok(())
}

/// An action for display.
#[derive(Serialize)]
struct ActionLine<'a> {
    /// Seconds since the first event.
    time_s: f64,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a NodeName>,
    faults: BTreeSet<FaultId>,
    /// The name of the rule, or the message.
    words: &'a str,
}

impl<'a> ActionLine<'a> {
    fn of(now: Now, action: &'a Action) -> Self {
        let (word, node, words) = match action {
            Action::Notify(words) => ("tell", None, words.as_str()),
            Action::Unusable { node, why } => ("unusable", Some(node), why.why.as_str()),
            Action::Gone { node, cause, .. } => ("lost", Some(node), cause.rule.as_str()),
            Action::Cancel { reason, .. } => ("cancel", None, reason.as_str()),
            Action::Sooner { node, .. } => ("sooner", Some(node), "it fails sooner"),
            Action::Request { want, .. } => match want {
                Request::Migrate { node, reason, .. } => ("migrate", Some(node), reason.as_str()),
                Request::Drain { node, reason } => ("drain", Some(node), reason.as_str()),
                Request::Checkpoint { reason }
                | Request::MemoryCheckpoint { reason }
                | Request::DiskCheckpoint { reason } => ("checkpoint", None, reason.as_str()),
                Request::Usable { node } => ("usable", Some(node), ""),
                Request::Kill { reason, .. } => ("stop", None, reason.as_str()),
            },
        };
        let faults = match action {
            Action::Request { fault, .. } => fault.iter().map(|(fault, _)| *fault).collect(),
            Action::Cancel { faults, .. } => faults.clone(),
            Action::Gone { fault, .. } | Action::Sooner { fault, .. } => BTreeSet::from([*fault]),
            Action::Notify(_) | Action::Unusable { .. } => BTreeSet::new(),
        };
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let time_s = now.mono_ns as f64 / 1e9;
        Self { time_s, action: word, node, faults, words }
    }

    fn say(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return line(&json(self)?);
        }
        let Self { time_s, action, .. } = self;
        let faults: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        let about = match (self.node, *action) {
            (Some(node), _) => node.to_string(),
            (None, "tell") => self.words.to_owned(),
            (None, "cancel") => format!("fault {}: {}", faults.join(", "), self.words),
            (None, _) => String::new(),
        };
        line(format!("{time_s:>10.3}s  {action:<10}  {about}").trim_end())
    }
}
