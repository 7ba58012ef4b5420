//! A drill: what policy and launcher would do about a fault, without doing it. Copies of both take
//! the fault; their outputs are not executed.
//!
//! A drill is an event of a name and a space of its own, INFO and without a condition. So no rule,
//! no pair of conditions and no filter by severity takes it for a fault; a launcher that does not
//! know drills ignores it.
//!
//! A drill stands for the publisher of the fault: what the policy demands of that one, it demands
//! of the drill. Not responsible for: who may drill (the shell checks the publisher), the verdict
//! (`ftbctl drill`).

mod wire;

pub use wire::{answer, from_answer, from_drill, to_drill};

use crate::jl::{Initiator, Jl, JlInput, Preview, Request};
use crate::names::{FaultId, NodeName};
use crate::policy::{Action, Brake, Facts, Policy, Proof, Report, Statement};
use core::fmt;
use core::str::FromStr;
use ftb_core::condition::{Condition, Truth};
use ftb_core::log::conditions::Claim;
use ftb_core::{Event, EventId, EventName, EventSpace, Now, Severity};
use std::collections::BTreeSet;

/// The event space of drills by root and the agent's user; no other user may publish there.
pub const SPACE: &str = "ftb.drill";
/// The event space of drills by the owner of a job.
pub const SPACE_OF_JOB: &str = "ftb.job.drill";
/// The event space of answers.
pub const SPACE_OF_ANSWERS: &str = "ftb.jl.drill";
/// Longest reason in an answer, in bytes.
pub const WORDS_BYTES_MAX: usize = 2048;
/// The component of the condition that a drill supposes.
const COMPONENT: &str = "drill";
/// Most delays of rules that a drill skips.
const SETTLES_MAX: usize = 4;

/// The number of a drill, drawn by its publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrillId(pub u64);

impl fmt::Display for DrillId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for DrillId {
    type Err = core::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// A fault that is supposed to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drill {
    pub number: DrillId,
    /// The event of the fault.
    pub fault: (EventSpace, EventName),
    pub severity: Severity,
    /// The condition that it would set.
    pub condition: Option<String>,
    /// `None`: the first node with ranks.
    pub node: Option<NodeName>,
    /// The host of the publisher that it stands for; `None`: of the one that watches the node, else
    /// the node itself.
    pub from: Option<NodeName>,
    /// Only this job answers; empty: all.
    pub job: String,
}

/// The event of a drill, and what its agent vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillSource {
    pub id: EventId,
    /// The user who drills.
    pub uid: u32,
    /// Where the drill was started.
    pub host: String,
    /// Of that host.
    pub proof: Proof,
    /// By the owner of the job, whose events agents need not sign.
    pub is_own: bool,
}

/// What a real fault meets before the rules of the policy, and a drill may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrillCheck {
    /// Whether its publisher may speak about the node.
    Publisher,
    /// Whether it is signed with the key of its publisher's host, where agents demand that.
    Signature,
}

impl DrillCheck {
    pub const ALL: [Self; 2] = [Self::Publisher, Self::Signature];

    /// The word in events and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Signature => "signature",
        }
    }
}

/// What a launcher would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Migrate,
    Checkpoint,
    /// End the job.
    End,
    /// The node counts as lost.
    Lost,
    /// Queued until ranks, nodes or a running episode allow it.
    Wait,
    /// Report only.
    Nothing,
    /// The policy does not believe the publisher.
    Refused,
    /// The node is not part of the job.
    NotOfJob,
    /// A choice of a later release, which this one does not know.
    Other,
}

impl Choice {
    const ALL: [Self; 9] = [
        Self::Migrate,
        Self::Checkpoint,
        Self::End,
        Self::Lost,
        Self::Wait,
        Self::Nothing,
        Self::Refused,
        Self::NotOfJob,
        Self::Other,
    ];

    /// The word in events and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Checkpoint => "checkpoint",
            Self::End => "end",
            Self::Lost => "lost",
            Self::Wait => "wait",
            Self::Nothing => "nothing",
            Self::Refused => "refused",
            Self::NotOfJob => "not-of-job",
            Self::Other => "other",
        }
    }
}

impl From<&str> for Choice {
    fn from(text: &str) -> Self {
        let known = Self::ALL.into_iter().find(|choice| choice.as_str() == text);
        known.unwrap_or(Self::Other)
    }
}

/// The answer of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillAnswer {
    pub number: DrillId,
    /// `None`: the job has no rank on any node.
    pub node: Option<NodeName>,
    pub choice: Choice,
    /// The rule of the policy that acts.
    pub rule: Option<String>,
    /// Where the ranks would go.
    pub target: Option<NodeName>,
    /// For people.
    pub words: String,
    /// What it has checked. Launchers of the release before check nothing of this.
    pub checked: BTreeSet<DrillCheck>,
    /// Why it has not checked all, for people.
    pub unchecked: Option<String>,
    /// Why the policy would only report its action.
    pub braked: Option<Brake>,
}

impl DrillAnswer {
    fn without_rule(
        number: DrillId,
        node: Option<NodeName>,
        choice: Choice,
        words: String,
    ) -> Self {
        let (rule, target, checked, unchecked) = (None, None, BTreeSet::new(), None);
        let braked = None;
        Self { number, node, choice, rule, target, words, checked, unchecked, braked }
    }
}

impl Drill {
    /// The fault, as its publisher would report it.
    fn report(&self, now: Now, by: &DrillSource, from: &Publisher<'_>, node: &NodeName) -> Report {
        let id = by.id;
        let (space, name) = self.fault.clone();
        let mut event = Event::new(space, name);
        event.severity = self.severity;
        event.time_ns = now.wall_ns;
        event.payload = node.to_string().into();
        let statement = |key: &String| {
            let (truth, time_ns) = (Truth::True, now.wall_ns);
            let condition = Condition {
                host: node.to_string(),
                component: COMPONENT.to_owned(),
                severity: Some(self.severity),
                onset_ns: time_ns,
                ..Condition::new(key, truth)
            };
            let claim = Claim::new(id, truth, self.severity, time_ns);
            Statement { condition, claim }
        };
        let stated = self.condition.as_ref().map(statement);
        Report { stated, uid: by.uid, proof: from.proof, ..Report::new(event, from.host) }
    }
}

/// The publisher of the supposed fault.
struct Publisher<'a> {
    host: &'a str,
    proof: Proof,
    /// Why nothing is known of its signatures, where agents demand them.
    unchecked: Option<String>,
}

impl<'a> Publisher<'a> {
    fn new(host: &'a str, by: &DrillSource) -> Self {
        let here = &by.host;
        let is_here = here.eq_ignore_ascii_case(host);
        let unchecked = match by.proof {
            Proof::Missing if by.is_own => Some(format!(
                "a drill of the job's owner is not signed: whether {host} signs its events is \
                 not checked"
            )),
            Proof::Signed if !is_here => Some(format!(
                "{here} signs its events: whether {host} does is checked by a drill there"
            )),
            _ => None,
        };
        let proof = if unchecked.is_some() { Proof::Signed } else { by.proof };
        Self { host, proof, unchecked }
    }

    fn checked(&self) -> BTreeSet<DrillCheck> {
        let is_checked =
            |check: &DrillCheck| *check != DrillCheck::Signature || self.unchecked.is_none();
        DrillCheck::ALL.into_iter().filter(is_checked).collect()
    }
}

/// What the policy decides.
#[derive(Default)]
struct Decision {
    inputs: Vec<JlInput>,
    lines: Vec<String>,
    rule: Option<String>,
    fault: Option<FaultId>,
    is_final: bool,
    braked: Option<Brake>,
}

impl Decision {
    fn add(&mut self, action: Action) {
        match action {
            Action::Notify(words) => self.lines.push(words),
            Action::Unusable { node, why } => self.inputs.push(JlInput::Unusable { node, why }),
            Action::Sooner { fault, node, fails_ns } => {
                self.inputs.push(JlInput::Sooner { fault, node, fails_ns });
            }
            Action::Cancel { faults, reason } => {
                self.inputs.push(JlInput::Cancel { faults, reason });
            }
            Action::Gone { node, fault, cause } => {
                let reason = cause.words(fault);
                (self.rule, self.fault) = (Some(cause.rule), Some(fault));
                self.is_final = true;
                self.inputs.push(JlInput::Gone { node, reason });
            }
            Action::Request { want, fault } => {
                self.is_final = true;
                self.rule = want.reason().map(str::to_owned);
                let mut by = Initiator::Internal;
                if let Some((fault, cause)) = fault {
                    self.fault = Some(fault);
                    by = Initiator::Fault(fault);
                    self.inputs.push(JlInput::Explained { fault, cause });
                }
                self.inputs.push(JlInput::Request { want, by });
            }
        }
    }

    /// Asks a copy of the policy, and skips the delays of its rules.
    fn of(now: Now, policy: &Policy, report: &Report, node: &NodeName, facts: &Facts) -> Self {
        let mut policy = policy.for_drill();
        let mut decision = Self::default();
        let actions = policy.event(now, report, node, facts);
        actions.into_iter().for_each(|action| decision.add(action));
        for _ in 0..SETTLES_MAX {
            let mono_ns = policy.next_settled_ns();
            if decision.is_final || mono_ns == u64::MAX {
                break;
            }
            let actions = policy.tick(Now { mono_ns, ..now }, facts);
            actions.into_iter().for_each(|action| decision.add(action));
        }
        decision.braked = policy.braked();
        decision
    }
}

/// What policy and launcher would do if the fault of the drill happened now. Changes neither.
pub fn decide(
    now: Now,
    drill: &Drill,
    by: &DrillSource,
    policy: &Policy,
    jl: &Jl,
    facts: &Facts,
) -> DrillAnswer {
    let number = drill.number;
    let node = drill.node.clone().or_else(|| facts.nodes.first().cloned());
    let known = node.clone().filter(|node| jl.job().nodes.contains_key(node));
    let Some(known) = known else {
        let words = match &node {
            Some(node) => format!("node {node} is not part of the job"),
            None => "the job has no ranks yet".to_owned(),
        };
        return DrillAnswer::without_rule(number, node, Choice::NotOfJob, words);
    };
    let watcher = || policy.watcher(&known, drill.fault.0.as_str());
    let host = drill.from.as_ref().map(NodeName::as_str).or_else(watcher);
    let from = Publisher::new(host.unwrap_or(known.as_str()), by);
    let (checked, unchecked) = (from.checked(), from.unchecked.clone());
    let report = drill.report(now, by, &from, &known);
    if let Err(why) = policy.check(&report, &known, facts.owner) {
        let words = shortened(format!("would refuse the fault: {why}"));
        let refused = DrillAnswer::without_rule(number, node, Choice::Refused, words);
        return DrillAnswer { checked, unchecked, ..refused };
    }
    let Decision { inputs, lines, rule, fault, is_final, braked } =
        Decision::of(now, policy, &report, &known, facts);
    let preview = jl.preview(now, inputs.clone());
    let choice = choice(&inputs, &preview);
    let target = preview.target.clone();
    // The policy announces what the launcher says in full.
    let lines = if is_final { &preview.lines } else { &lines };
    let mut words = would(choice, &known, target.as_ref(), rule.as_deref());
    match lines.is_empty() {
        true if !is_final => words.push_str(": no rule of the policy acts"),
        true => {}
        false => words = format!("{words}: {}", lines.join("; ")),
    }
    if let Some(fault) = fault {
        // Its number goes to the next fault that happens.
        words = words.replace(&format!("fault {fault}"), "this drill");
    }
    let words = shortened(words);
    DrillAnswer { number, node, choice, rule, target, words, checked, unchecked, braked }
}

fn shortened(mut words: String) -> String {
    while words.len() > WORDS_BYTES_MAX {
        words.pop();
    }
    words
}

fn choice(inputs: &[JlInput], preview: &Preview) -> Choice {
    let is_end =
        |input: &JlInput| matches!(input, JlInput::Request { want: Request::Kill { .. }, .. });
    let is_request = |input: &JlInput| matches!(input, JlInput::Request { .. });
    match preview.opens {
        _ if inputs.iter().any(|input| matches!(input, JlInput::Gone { .. })) => Choice::Lost,
        _ if inputs.iter().any(is_end) => Choice::End,
        Some("migration") => Choice::Migrate,
        Some("checkpoint") if preview.target.is_some() => Choice::Migrate,
        Some("checkpoint") => Choice::Checkpoint,
        _ if inputs.iter().any(is_request) => Choice::Wait,
        _ => Choice::Nothing,
    }
}

fn would(choice: Choice, node: &NodeName, to: Option<&NodeName>, rule: Option<&str>) -> String {
    let to = to.map(|to| format!(" to {to}")).unwrap_or_default();
    let what = match choice {
        Choice::Migrate => format!("would migrate the ranks of {node}{to}"),
        Choice::Checkpoint => "would save the job".to_owned(),
        Choice::End => "would end the job".to_owned(),
        Choice::Lost => format!("would count node {node} as lost"),
        Choice::Wait => "would wait".to_owned(),
        Choice::Nothing | Choice::Refused | Choice::NotOfJob | Choice::Other => {
            format!("would leave node {node} as it is")
        }
    };
    rule.map_or(what.clone(), |rule| format!("{what} (rule {rule:?})"))
}

#[cfg(test)]
mod tests;
