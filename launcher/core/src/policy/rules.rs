//! The policy file: its rules, and the checks before anything starts.

use super::HISTORY_MAX;
use super::report::Report;
use crate::jl::{Interval, MTBF, OnDeath, OnHang};
use crate::progress::HangTimes;
use core::time::Duration;
use ftb_core::catalog;
use ftb_core::condition::RecommendedAction;
use ftb_core::hostlist::Hostlist;
use ftb_core::{EventName, EventSpace, Severity};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Move the ranks of the node to a hot spare.
    Migrate,
    /// As `Migrate`, and the node stays out until a person puts it back.
    Drain,
    /// Save the job without moving ranks.
    Checkpoint,
    /// Ranks that are there stay; the node gets no further ones.
    Avoid,
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
            Self::Avoid => "give no further ranks",
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

    /// Whether the node gets no ranks while the fault lasts.
    pub(super) fn keeps_out(self) -> bool {
        matches!(self, Self::Migrate | Self::Drain | Self::Avoid | Self::Lost)
    }
}

/// What ends a ban: a rule keeps a node out although no condition does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Until {
    /// A rule with the action `usable` in the same event space.
    #[default]
    Recovery,
    /// A person.
    Person,
    /// This time without a further event or condition of the rule.
    Quiet(Duration),
}

impl TryFrom<String> for Until {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "recovery" => Ok(Self::Recovery),
            "person" => Ok(Self::Person),
            time => match humantime::parse_duration(time) {
                Ok(quiet) if !quiet.is_zero() => Ok(Self::Quiet(quiet)),
                _ => Err(format!(
                    "until is {time:?}: say \"recovery\", \"person\", or a time as \"30m\""
                )),
            },
        }
    }
}

/// A rule from events to an action.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name; the user reads it as the reason.
    pub name: String,
    /// The space of the events; empty: any, for a rule of conditions only.
    #[serde(default)]
    pub space: String,
    #[serde(default)]
    pub events: Vec<String>,
    /// Keys of conditions that hold; the event that states one may have any name.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// What the publisher of the condition recommends: one of these. Without events and conditions
    /// the rule is about each condition of which that is recommended.
    #[serde(default)]
    pub recommended: Vec<String>,
    /// Tags that the event must have.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Only events of root, the owner of the job, and of trusted spaces.
    #[serde(default)]
    pub trusted_only: bool,
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
    /// What ends its ban of a node.
    #[serde(default)]
    pub until: Until,
}

fn once() -> u32 {
    1
}

fn mtbf() -> Duration {
    MTBF
}

fn hang_after() -> Duration {
    HangTimes::default().hang_after
}

fn stall_after() -> Duration {
    HangTimes::default().stall_after
}

/// Agents let only their own user and root publish there.
fn protected_spaces() -> Vec<String> {
    ["ftb.agent", "ftb.ipmi", "ftb.ib"].map(str::to_owned).into()
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
    /// What is done about a hung rank.
    #[serde(default)]
    pub on_hang: OnHang,
    /// After what time a stopped rank counts as hung.
    #[serde(default = "hang_after", with = "humantime_serde")]
    pub hang_after: Duration,
    /// The same for a rank that makes no progress.
    #[serde(default = "stall_after", with = "humantime_serde")]
    pub stall_after: Duration,
    #[serde(default)]
    pub interval: Interval,
    /// Configured mean time between failures.
    #[serde(default = "mtbf", with = "humantime_serde")]
    pub mtbf: Duration,
    /// Time without another action on a node.
    #[serde(with = "humantime_serde")]
    pub hold_down: Duration,
    pub breaker: Breaker,
    /// Event spaces whose publishers may speak about other hosts than their own. Root and the owner
    /// of the job may always.
    #[serde(default = "protected_spaces")]
    pub trusted_spaces: Vec<String>,
    /// Lists of the hosts whose publishers may speak about other hosts in those spaces. `None`:
    /// any where events are not signed, else none.
    #[serde(default)]
    pub monitors: Option<Monitors>,
    pub rule: Vec<Rule>,
}

/// Hosts that watch other hosts.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Monitors(Option<Hostlist>);

impl TryFrom<Vec<String>> for Monitors {
    type Error = String;

    fn try_from(lists: Vec<String>) -> Result<Self, String> {
        if lists.is_empty() {
            return Ok(Self(None));
        }
        let hosts = Hostlist::parse(&lists.join(",")).map_err(|error| error.to_string())?;
        Ok(Self(Some(hosts)))
    }
}

impl Monitors {
    pub(super) fn contains(&self, host: &str) -> bool {
        self.0.as_ref().is_some_and(|hosts| hosts.contains(host))
    }
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
    pub(super) fn hang_times(&self) -> HangTimes {
        HangTimes { hang_after: self.hang_after, stall_after: self.stall_after }
    }

    pub(super) fn parse(text: &str) -> Result<Self, PolicyError> {
        let config: Self = toml::from_str(text).map_err(|error| PolicyError {
            line: ftb_core::text::line(text, error.span().map_or(0, |span| span.start)),
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
        config.hang_times().check().map_err(|problem| {
            let key = problem.split(' ').next().unwrap_or_default();
            PolicyError { line: line_of_key(text, key), problem }
        })?;
        if config.breaker.actions == 0 {
            let problem = "breaker.actions is 0: no rule could ever act; use shadow = true".into();
            return Err(PolicyError { line: line_of_key(text, "actions"), problem });
        }
        Ok(config)
    }
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
        if !self.space.is_empty() || !self.events.is_empty() {
            EventSpace::check(&self.space).map_err(|error| format!("rule {name:?}: {error}"))?;
        }
        if self.is_general() && self.recommended.is_empty() {
            return Err(format!(
                "rule {name:?} can never match: it has neither events nor conditions"
            ));
        }
        for word in &self.recommended {
            word.parse::<RecommendedAction>().map_err(|error| format!("rule {name:?}: {error}"))?;
        }
        for trigger in self.events.iter().chain(&self.conditions) {
            EventName::check(trigger).map_err(|error| format!("rule {name:?}: {error}"))?;
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
        let takes_all = |other: &&Self| match self.is_general() {
            true => other.is_general(),
            false => self.triggers().all(|trigger| other.has(trigger)),
        };
        let whole = before.iter().find(|other| takes_all(other) && other.is_no_stricter_than(self));
        let taker = |trigger| {
            let takes = |other: &&Self| {
                other.takes_each() && other.has(trigger) && other.is_no_stricter_than(self)
            };
            before.iter().find(takes)
        };
        let takers: Option<Vec<&Self>> = match whole {
            Some(other) => Some(vec![other]),
            None if self.is_general() => None,
            None => self.triggers().map(taker).collect(),
        };
        let Some(takers) = takers else {
            return Ok(());
        };
        let names: BTreeSet<String> =
            takers.iter().map(|rule| format!("{:?}", rule.name)).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        Err(format!(
            "rule {:?} can never act: rule {names} before it takes the same events: put it \
             before, or take it out",
            self.name
        ))
    }

    /// Whether it leaves nothing for `other`, of what both are about.
    pub(super) fn leaves_nothing_for(&self, other: &Self) -> bool {
        self.takes_each() && self.takes_from(other)
    }

    /// Whether it acts on each of its events at once.
    pub(super) fn takes_each(&self) -> bool {
        self.count == 1 && self.nodes_over.is_none()
    }

    /// Whether its condition holds whenever that of `other` does, for shared triggers.
    fn is_no_stricter_than(&self, other: &Self) -> bool {
        (self.space.is_empty() || self.is_in(&other.space)) && self.takes_from(other)
    }

    /// The same for an event, or a condition, that both are about.
    fn takes_from(&self, other: &Self) -> bool {
        let severity = self.least().is_none_or(|own| other.least().is_some_and(|its| own <= its));
        let tags = self.tags.iter().all(|(key, value)| other.tags.get(key) == Some(value));
        let trusted = !self.trusted_only || other.trusted_only;
        let wants = |action: &String| self.recommended.contains(action);
        let recommended = match other.recommended.is_empty() {
            true => self.recommended.is_empty(),
            false => self.recommended.is_empty() || other.recommended.iter().all(wants),
        };
        let condition = match (self.nodes_over, other.nodes_over) {
            _ if self.takes_each() => true,
            (None, None) => self.count <= other.count && self.within >= other.within,
            (Some(own), Some(its)) => own <= its && self.within >= other.within,
            _ => false,
        };
        severity && tags && trusted && recommended && condition
    }

    pub(super) fn shares_triggers(&self, other: &Self) -> bool {
        let any = self.space.is_empty() || other.space.is_empty();
        let shares = |trigger| other.has(trigger);
        (any || self.is_in(&other.space)) && self.triggers().any(shares)
    }

    /// Whether it is about conditions with any key.
    fn is_general(&self) -> bool {
        self.events.is_empty() && self.conditions.is_empty()
    }

    /// Whether this rule of recovery ends bans and delays of the other one.
    pub(super) fn ends(&self, other: &Self) -> bool {
        let is_of_its_space = self.space.is_empty() || self.is_in(&other.space);
        is_of_its_space && other.until == Until::Recovery
    }

    /// Its events and conditions; `true`: a condition.
    fn triggers(&self) -> impl Iterator<Item = (bool, &str)> {
        let events = self.events.iter().map(|name| (false, name.as_str()));
        events.chain(self.conditions.iter().map(|key| (true, key.as_str())))
    }

    pub(super) fn has(&self, trigger: (bool, &str)) -> bool {
        let is = |own: (bool, &str)| own.0 == trigger.0 && own.1.eq_ignore_ascii_case(trigger.1);
        self.triggers().any(is) || trigger.0 && self.is_general()
    }

    /// Whether it can match an event, or a condition with one of these keys.
    pub(super) fn is_about(&self, space: &str, name: &str, keys: &[&str]) -> bool {
        let in_space = self.space.is_empty() || space.is_empty() || self.is_in(space);
        let has = |key: &&str| self.has((true, key)) && self.is_recommended_of(key);
        (self.is_in(space) && self.has((false, name))) || (in_space && keys.iter().any(has))
    }

    /// Whether publishers may recommend for a condition with this key what the rule demands: what
    /// the catalogue does not know may recommend anything.
    fn is_recommended_of(&self, key: &str) -> bool {
        let is_its = |action: &str| self.recommended.iter().any(|word| word == action);
        let known = catalog::condition(key).map(|entry| entry.action);
        self.recommended.is_empty() || known.is_none_or(is_its)
    }

    /// When it acts, in words; empty: each time, at once.
    pub(super) fn when(&self) -> String {
        let time = |duration: Duration| humantime::format_duration(duration);
        let mut words = Vec::new();
        if !self.recommended.is_empty() {
            words.push(format!("its publisher recommends {}", self.recommended.join(" or ")));
        }
        if let Some(least) = &self.severity {
            words.push(format!("severity {least} or worse"));
        }
        words.extend(self.tags.iter().map(|(key, value)| format!("tag {key}={value}")));
        if self.trusted_only {
            words.push("only from root, the owner of the job, and trusted event spaces".to_owned());
        }
        if let Some(share) = self.nodes_over {
            let percent = share * 100.0;
            let within = time(self.within);
            words.push(format!("on over {percent:.0} % of the nodes within {within}"));
        } else if self.count > 1 {
            words.push(format!("{} times on one node within {}", self.count, time(self.within)));
        }
        if !self.settle.is_zero() {
            words.push(format!("after {}, unless it passes", time(self.settle)));
        }
        match self.until {
            Until::Recovery => {}
            Until::Person => {
                words.push("without a condition until a person puts it back".to_owned())
            }
            Until::Quiet(quiet) => words.push(format!("until it has not come for {}", time(quiet))),
        }
        words.join("; ")
    }

    fn is_in(&self, space: &str) -> bool {
        self.space.eq_ignore_ascii_case(space)
    }

    fn least(&self) -> Option<Severity> {
        self.severity.as_ref().and_then(|word| word.parse().ok())
    }

    pub(super) fn matches(&self, report: &Report) -> bool {
        let (space, name) = report.name();
        let by_event = self.is_in(space) && self.has((false, name));
        let in_space = self.space.is_empty() || self.is_in(space);
        let by_condition = || in_space && report.holding().is_some_and(|key| self.has((true, key)));
        let recommended = || {
            let stated = report.stated.as_ref().map(|stated| stated.condition.action.as_str());
            stated.is_some_and(|action| self.recommended.iter().any(|word| word == action))
        };
        let has_tag = |(key, value): (&String, &String)| report.event.tag(key) == Some(value);
        (by_event || by_condition())
            && (self.recommended.is_empty() || recommended())
            && self.tags.iter().all(has_tag)
            && self.least().is_none_or(|least| report.severity() >= least)
    }
}
