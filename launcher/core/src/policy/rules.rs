//! The policy file: its rules, and the checks before anything starts.

use super::HISTORY_MAX;
use crate::jl::{Interval, MTBF, OnDeath};
use core::time::Duration;
use ftb_core::{Event, EventName, EventSpace, Severity};
use serde::Deserialize;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Move the ranks of the node to a hot spare.
    Migrate,
    /// As `Migrate`, and the node stays out until a person puts it back.
    Drain,
    /// Save the job without moving ranks.
    Checkpoint,
    /// End the job; its sets stay.
    Stop,
    /// The node may be used again.
    Usable,
    /// The node is gone: restart from the last set with a spare in its place.
    Lost,
    Notify,
}

impl ActionKind {
    pub fn words(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Drain => "drain",
            Self::Checkpoint => "checkpoint the job",
            Self::Stop => "end the job",
            Self::Usable => "mark as usable",
            Self::Lost => "count as lost",
            Self::Notify => "tell",
        }
    }

    /// Whether the brakes apply: the action moves the job by choice. A lost node is a fact.
    pub fn has_power(self) -> bool {
        matches!(self, Self::Migrate | Self::Drain | Self::Checkpoint | Self::Stop)
    }

    /// Whether the action concerns the job as a whole. It replaces what single nodes would do for
    /// the same events.
    pub(super) fn is_about_the_job(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Stop)
    }
}

/// A rule from events to an action.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name; the user reads it as the reason.
    pub name: String,
    pub space: String,
    pub events: Vec<String>,
    /// Least severity.
    #[serde(default)]
    pub severity: Option<String>,
    pub action: ActionKind,
    /// How many times on one node within `within`.
    #[serde(default = "once")]
    pub count: u32,
    /// Instead of `count`: on more than this share of the job's nodes within `within`.
    #[serde(default)]
    pub nodes_over: Option<f64>,
    /// The window of `count` and `nodes_over`.
    #[serde(default = "minute", with = "humantime_serde")]
    pub within: Duration,
    /// Delay of the action; an earlier rule or NORMAL may cancel it.
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

/// The circuit breaker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// This many actions ...
    pub actions: u32,
    /// ... within this time open it.
    #[serde(with = "humantime_serde")]
    pub within: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Only report what would be done.
    #[serde(default)]
    pub shadow: bool,
    /// What is done when a rank or a node dies.
    #[serde(default)]
    pub on_death: OnDeath,
    #[serde(default)]
    pub interval: Interval,
    /// Configured mean time between failures.
    #[serde(default = "mtbf", with = "humantime_serde")]
    pub mtbf: Duration,
    /// Time without another action on a node.
    #[serde(with = "humantime_serde")]
    pub hold_down: Duration,
    pub breaker: Breaker,
    pub rule: Vec<Rule>,
}

/// Why a policy file is refused: line, problem, and the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct PolicyError {
    /// Counted from 1.
    pub line: usize,
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
            rule.check_after(&config.rule[..index]).map_err(at)?;
        }
        if config.mtbf.is_zero() {
            let problem = "mtbf is 0: nothing could ever be computed; say how long it is".into();
            return Err(PolicyError { line: line_of_key(text, "mtbf"), problem });
        }
        if config.breaker.actions == 0 {
            let problem = "breaker.actions is 0: no rule could ever act; use shadow = true".into();
            return Err(PolicyError { line: line_of_key(text, "actions"), problem });
        }
        Ok(config)
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// The line of the `[[rule]]` header with that index.
fn line_of_rule(text: &str, index: usize) -> usize {
    let is_header = |line: &str| {
        let header = line.split('#').next().unwrap_or_default();
        header.split_ascii_whitespace().collect::<String>() == "[[rule]]"
    };
    let headers = text.lines().enumerate().filter(|(_, line)| is_header(line));
    headers.map(|(line, _)| line + 1).nth(index).unwrap_or(1)
}

/// The first line that sets this key.
fn line_of_key(text: &str, key: &str) -> usize {
    let sets = |line: &str| line.split('=').next().is_some_and(|word| word.trim().ends_with(key));
    text.lines().position(sets).map_or(1, |line| line + 1)
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
        let never = |why: String| Err(format!("rule {name:?} can never match: {why}"));
        if self.count as usize > HISTORY_MAX {
            let count = self.count;
            return never(format!(
                "count is {count}, and {HISTORY_MAX} events are remembered at most"
            ));
        }
        let counts = self.count > 1 || self.nodes_over.is_some();
        if counts && self.within.is_zero() {
            return never("nothing happens twice within 0s: say within = \"60s\"".to_owned());
        }
        match self.nodes_over {
            Some(share) if !(0.0..1.0).contains(&share) => never(format!(
                "nodes_over is {share}: it is a share of the job's nodes, from 0 to below 1, as 0.5"
            )),
            Some(_) if self.count != 1 => {
                Err(format!("rule {name:?} has count and nodes_over: one of them"))
            }
            _ => Ok(()),
        }
    }

    /// Whether earlier rules leave an event for it.
    fn check_after(&self, before: &[Self]) -> Result<(), String> {
        let whole = before.iter().find(|other| {
            self.events.iter().all(|event| other.names(event)) && other.is_no_stricter_than(self)
        });
        let taker = |event: &String| {
            let takes = |other: &&Self| {
                other.takes_each() && other.names(event) && other.is_no_stricter_than(self)
            };
            before.iter().find(takes)
        };
        let takers: Option<Vec<&Self>> = match whole {
            Some(other) => Some(vec![other]),
            None => self.events.iter().map(taker).collect(),
        };
        let Some(takers) = takers else {
            return Ok(());
        };
        let names: BTreeSet<String> =
            takers.iter().map(|rule| format!("{:?}", rule.name)).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        Err(format!(
            "rule {:?} can never act: rule {names} before it takes the same events: put it before, or take it out",
            self.name
        ))
    }

    /// Whether it acts on each of its events at once.
    fn takes_each(&self) -> bool {
        self.count == 1 && self.nodes_over.is_none()
    }

    /// Whether its condition holds whenever that of `other` does, for shared events.
    fn is_no_stricter_than(&self, other: &Self) -> bool {
        let least =
            |rule: &Self| rule.severity.as_ref().and_then(|word| word.parse::<Severity>().ok());
        let severity = least(self).is_none_or(|own| least(other).is_some_and(|its| own <= its));
        let condition = match (self.nodes_over, other.nodes_over) {
            _ if self.takes_each() => true,
            (None, None) => self.count <= other.count && self.within >= other.within,
            (Some(own), Some(its)) => own <= its && self.within >= other.within,
            _ => false,
        };
        self.space.eq_ignore_ascii_case(&other.space) && severity && condition
    }

    pub(super) fn shares_events(&self, other: &Self) -> bool {
        self.space.eq_ignore_ascii_case(&other.space)
            && self.events.iter().any(|name| other.names(name))
    }

    fn names(&self, name: &str) -> bool {
        self.events.iter().any(|event| event.eq_ignore_ascii_case(name))
    }

    pub(super) fn matches(&self, event: &Event) -> bool {
        let least = self.severity.as_ref().and_then(|word| word.parse::<Severity>().ok());
        event.space.as_str().eq_ignore_ascii_case(&self.space)
            && self.events.iter().any(|name| event.name.as_str().eq_ignore_ascii_case(name))
            && least.is_none_or(|least| event.severity >= least)
    }
}
