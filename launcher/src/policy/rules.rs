//! The policy file: what a rule says, and what is refused before anything starts.

use crate::jl::{Interval, MTBF, OnDeath};
use core::time::Duration;
use ftb_core::{Event, EventName, EventSpace, Severity};
use serde::Deserialize;

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Move the ranks of the node to a hot spare.
    Migrate,
    /// The same, and the node stays out until a person says otherwise.
    Drain,
    /// Save the job, move nobody.
    Checkpoint,
    /// The node may be used again.
    Usable,
    /// The node is gone: restart from the last set with a spare in its place.
    Lost,
    /// Only tell.
    Notify,
}

impl ActionKind {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Drain => "drain",
            Self::Checkpoint => "checkpoint the job",
            Self::Usable => "mark as usable",
            Self::Lost => "count as lost",
            Self::Notify => "tell",
        }
    }

    /// Whether the brakes apply: it moves the job by choice. A lost node is a fact, not a choice.
    pub fn has_power(self) -> bool {
        matches!(self, Self::Migrate | Self::Drain | Self::Checkpoint)
    }
}

/// From events to an action.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name: what the user reads as the reason.
    pub name: String,
    /// The event space.
    pub space: String,
    /// Names of events.
    pub events: Vec<String>,
    /// Only events at least that bad.
    #[serde(default)]
    pub severity: Option<String>,
    /// What is done.
    pub action: ActionKind,
    /// So many times on one node within `within`.
    #[serde(default = "once")]
    pub count: u32,
    /// Instead of `count`: on more than this share of the job's nodes within `within`.
    #[serde(default)]
    pub nodes_over: Option<f64>,
    /// The window of `count` and `nodes_over`.
    #[serde(default = "minute", with = "humantime_serde")]
    pub within: Duration,
    /// Wait so long before acting; a rule before this one, or NORMAL, may call it off.
    #[serde(default, with = "humantime_serde")]
    pub settle: Duration,
}

fn once() -> u32 {
    1
}

fn mtbf() -> Duration {
    MTBF
}

fn minute() -> Duration {
    Duration::from_secs(60)
}

/// When too much is done, nothing is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// So many actions ...
    pub actions: u32,
    /// ... within this open it.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
}

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Only tell what would be done.
    #[serde(default)]
    pub shadow: bool,
    /// What is done when a rank or a node dies.
    #[serde(default)]
    pub on_death: OnDeath,
    /// How often the job is saved by itself.
    #[serde(default)]
    pub interval: Interval,
    /// The mean time between failures of the job's nodes and ranks, as far as it is known.
    #[serde(default = "mtbf", with = "humantime_serde")]
    pub mtbf: Duration,
    /// After an action on a node it is left alone for so long.
    #[serde(with = "humantime_serde")]
    pub hold_down: Duration,
    /// See there.
    pub breaker: Breaker,
    /// In order.
    pub rule: Vec<Rule>,
}

/// A policy file that cannot be used: where, what, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct PolicyError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// A duration in nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Config {
    pub(super) fn parse(text: &str) -> Result<Self, PolicyError> {
        let config: Self = toml::from_str(text).map_err(|error| PolicyError {
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            problem: error.message().replace('\n', " "),
        })?;
        for (index, rule) in config.rule.iter().enumerate() {
            let at = |problem| PolicyError { line: line_of_rule(text, index), problem };
            rule.check().map_err(at)?;
            let twin = config.rule[..index].iter().find(|other| rule.is_shadowed_by(other));
            if let Some(other) = twin {
                return Err(at(format!(
                    "rule {:?} can never act: rule {:?} before it takes the same events",
                    rule.name, other.name
                )));
            }
        }
        if config.mtbf.is_zero() {
            let problem = "mtbf is 0: nothing could ever be computed; say how long it is".into();
            return Err(PolicyError { line: 1, problem });
        }
        if config.breaker.actions == 0 {
            let problem = "breaker.actions is 0: no rule could ever act; use shadow = true".into();
            return Err(PolicyError { line: 1, problem });
        }
        Ok(config)
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// The line of the `[[rule]]` header with that index.
fn line_of_rule(text: &str, index: usize) -> usize {
    let headers = text.lines().enumerate().filter(|(_, line)| line.trim() == "[[rule]]");
    headers.map(|(line, _)| line + 1).nth(index).unwrap_or(1)
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        EventSpace::check(&self.space).map_err(|error| format!("rule {name:?}: {error}"))?;
        if self.events.is_empty() {
            return Err(format!("rule {name:?} can never match: its list of events is empty"));
        }
        for event in &self.events {
            EventName::check(event).map_err(|error| format!("rule {name:?}: {error}"))?;
        }
        if let Some(word) = &self.severity {
            word.parse::<Severity>().map_err(|error| format!("rule {name:?}: {error}"))?;
        }
        if self.count == 0 {
            return Err(format!("rule {name:?}: count is 0: at least 1 is meant"));
        }
        match self.nodes_over {
            Some(share) if !(0.0..1.0).contains(&share) => Err(format!(
                "rule {name:?} can never match: nodes_over is {share}, expected 0 up to below 1"
            )),
            Some(_) if self.count != 1 => {
                Err(format!("rule {name:?} has count and nodes_over: one of them"))
            }
            _ => Ok(()),
        }
    }

    /// Whether whatever this rule could act on is taken by `other` first.
    fn is_shadowed_by(&self, other: &Self) -> bool {
        let takes = |name: &String| other.events.iter().any(|e| e.eq_ignore_ascii_case(name));
        other.space.eq_ignore_ascii_case(&self.space)
            && other.count == 1
            && other.nodes_over.is_none()
            && other.severity.is_none()
            && self.events.iter().all(takes)
    }

    pub(super) fn matches(&self, event: &Event) -> bool {
        let least = self.severity.as_ref().and_then(|word| word.parse::<Severity>().ok());
        event.space.as_str().eq_ignore_ascii_case(&self.space)
            && self.events.iter().any(|name| event.name.as_str().eq_ignore_ascii_case(name))
            && least.is_none_or(|least| event.severity >= least)
    }
}
