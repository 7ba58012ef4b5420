//! The import: which events follow from an alarm of the facility.
//!
//! A state machine without I/O and clock. Alarms are handled one at a time, in the order of their
//! stream, so that an alarm and its end keep their order. Each event has the id of its alarm in a
//! tag: by it the shell finds in the log what was published before.

#[cfg(test)]
mod tests;

use ftb_client::{
    Condition, Event, EventName, NameError, RecommendedAction, Severity, Subject, Truth, event,
    limits,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// The event space of imported events.
pub const SPACE: &str = "ftb.facility";
/// The tag with the id of the alarm.
pub const ALARM: &str = "alarm";
/// Most bytes of an alarm that become the payload of its events.
const PAYLOAD_BYTES_MAX: usize = 1_024;
/// Longest time of an alarm, in bytes: its digits are not bounded.
const TIME_BYTES_MAX: usize = 64;
/// How often the agent refuses the events of an alarm before it is given up. The server delivers it
/// every 30 s: a person has about five minutes to let the bridge publish.
pub const REFUSALS_MAX: u32 = 10;
/// The log has at most one line about unreadable alarms in this time.
const LOG_EVERY_MS: u64 = 10_000;

/// One token of the subject of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// `*`
    Any,
    /// `>`: one or more tokens at the end.
    Rest,
    /// `{rack}`
    Rack,
    /// `{component}`
    Component,
}

/// The subjects that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Token>);

impl Pattern {
    /// Reads a subject with `*`, `>`, `{rack}` and `{component}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let token = |text: &str| match text {
            "*" => Ok(Token::Any),
            ">" => Ok(Token::Rest),
            "{rack}" => Ok(Token::Rack),
            "{component}" => Ok(Token::Component),
            "" => Err("has an empty token".to_owned()),
            text if text.contains(['*', '>', '{', '}', ' ']) => {
                Err(format!("has the token {text:?}: wildcards and names stand alone"))
            }
            text => Ok(Token::Literal(text.to_owned())),
        };
        let tokens: Vec<Token> = text.split('.').map(token).collect::<Result<_, _>>()?;
        let count = |kind: &Token| tokens.iter().filter(|token| *token == kind).count();
        if count(&Token::Rack) != 1 {
            return Err("must have {rack} once".to_owned());
        }
        if count(&Token::Component) > 1 {
            return Err("has {component} more than once".to_owned());
        }
        if tokens.iter().rev().skip(1).any(|token| *token == Token::Rest) {
            return Err("has > before its end".to_owned());
        }
        Ok(Self(tokens))
    }

    /// Rack and component of a subject (empty: none); `None`: the rule is not for it.
    fn matches<'a>(&self, subject: &'a str) -> Option<(&'a str, &'a str)> {
        let (mut rack, mut component) = ("", "");
        let mut parts = subject.split('.');
        for token in &self.0 {
            let part = parts.next()?;
            match token {
                Token::Rest => return Some((rack, component)),
                Token::Any => {}
                Token::Rack => rack = part,
                Token::Component => component = part,
                Token::Literal(literal) if literal == part => {}
                Token::Literal(_) => return None,
            }
        }
        parts.next().is_none().then_some((rack, component))
    }
}

/// What an alarm means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The subjects that it is for.
    pub pattern: Pattern,
    /// The name of the event.
    pub event: EventName,
    /// Its severity.
    pub severity: Severity,
    /// The key of the condition; `None`: the event states none.
    pub key: Option<EventName>,
    /// Whether the alarm sets the condition or clears it.
    pub truth: Truth,
    /// What is recommended.
    pub action: RecommendedAction,
}

/// A message of the facility.
#[derive(Clone, Copy, Debug)]
pub struct Alarm<'a> {
    /// Unique: stream, its creation, sequence.
    pub id: &'a str,
    /// Where it was published.
    pub subject: &'a str,
    /// Text, or a JSON object; its field `time` is the time of the alarm.
    pub payload: &'a [u8],
    /// When the stream got it, in Unix nanoseconds.
    pub time_ns: u64,
}

/// What must be done with an alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Publish what is missing of these events, one for each host, then acknowledge the alarm.
    Publish(Vec<Event>),
    /// No rule can read it: it must not be delivered again.
    Terminate {
        /// A line for the log, if it is time for one.
        log: Option<String>,
    },
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportCounts {
    /// Alarms whose events are confirmed.
    pub imported: u64,
    /// Alarms of which all events were in the log before.
    pub repeated: u64,
    /// Alarms that no rule can read.
    pub unreadable: u64,
    /// Alarms whose events the agent has refused again and again: they are lost.
    #[serde(default)]
    pub refused: u64,
}

/// When the import begins again after a failure, what of that is logged, and when an alarm is given
/// up.
#[derive(Debug, Default)]
pub struct Retries {
    failures: u32,
    problem: String,
    /// The alarm that was refused last, and how often.
    refused: (String, u32),
}

impl Retries {
    /// The import has failed. Whether a line of the log is due: for another problem, and ever more
    /// rarely for the same.
    pub fn on_failure(&mut self, problem: &str) -> bool {
        if self.problem != problem {
            *self =
                Self { problem: problem.to_owned(), refused: self.refused.clone(), failures: 0 };
        }
        self.failures = self.failures.saturating_add(1);
        self.failures.is_power_of_two()
    }

    /// An alarm is done.
    pub fn on_success(&mut self) {
        *self = Self::default();
    }

    /// The agent refuses the events of an alarm for good. Whether it is given up: it holds up all
    /// others, of which it may be the only one that is refused.
    pub fn on_refused(&mut self, id: &str) -> bool {
        if self.refused.0 != id {
            self.refused = (id.to_owned(), 0);
        }
        self.refused.1 += 1;
        self.refused.1 >= REFUSALS_MAX
    }

    /// The pause before the next attempt: 1 s, then twice as long each time, 16 s at most.
    pub fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.failures.saturating_sub(1).min(4))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Import {
    rules: Vec<Rule>,
    racks: BTreeMap<String, Vec<String>>,
    /// What was counted.
    pub counts: ImportCounts,
    /// When the log had its last line about unreadable alarms, and how many came after it.
    logged: Option<u64>,
    unlogged: u64,
}

impl Import {
    /// Rules, the first that matches counts; hosts of each rack.
    pub fn new(rules: Vec<Rule>, racks: BTreeMap<String, Vec<String>>) -> Self {
        Self { rules, racks, counts: ImportCounts::default(), logged: None, unlogged: 0 }
    }

    /// What follows from an alarm.
    pub fn handle(&mut self, now_ms: u64, alarm: Alarm<'_>) -> Verdict {
        match self.events(alarm) {
            Ok(events) => Verdict::Publish(events),
            Err(why) => {
                self.counts.unreadable += 1;
                self.unlogged += 1;
                if self.logged.is_some_and(|at| now_ms < at + LOG_EVERY_MS) {
                    return Verdict::Terminate { log: None };
                }
                self.logged = Some(now_ms);
                let count = core::mem::take(&mut self.unlogged);
                let log = format!("{count} alarms are unreadable; {}: {why}", alarm.subject);
                Verdict::Terminate { log: Some(log) }
            }
        }
    }

    /// The events that state again what imported alarms have set and no later alarm has cleared: of
    /// the conditions that `known`, the table, does not have. It loses them when all agents end,
    /// and takes no word of a former CA for them. `alarms` are in their order, each with whether it
    /// was imported: what another one says is published when it is.
    pub fn lost<'a>(
        &self,
        alarms: impl IntoIterator<Item = (Alarm<'a>, bool)>,
        known: &BTreeSet<Subject>,
    ) -> Vec<Event> {
        let mut last: BTreeMap<Subject, Option<Event>> = BTreeMap::new();
        for (alarm, is_imported) in alarms {
            // Those that no rule can read were counted when they came.
            for event in self.events(alarm).unwrap_or_default() {
                let Some(condition) = &event.condition else { continue };
                let (host, key) = (&condition.host, condition.key.as_str());
                let subject = Subject::new(host, &condition.component, key);
                if !known.contains(&subject) {
                    let is_set = condition.truth == Truth::True;
                    last.insert(subject, (is_set && is_imported).then_some(event));
                }
            }
        }
        last.into_values().flatten().collect()
    }

    fn events(&self, alarm: Alarm<'_>) -> Result<Vec<Event>, String> {
        let found = self.rules.iter().find_map(|rule| {
            let (rack, component) = rule.pattern.matches(alarm.subject)?;
            Some((rule, rack, component))
        });
        let (rule, rack, component) = found.ok_or("no rule is for this subject")?;
        let hosts = self.racks.get(rack).ok_or_else(|| format!("there is no rack {rack:?}"))?;
        let text = core::str::from_utf8(alarm.payload).map_err(|_| "it is no UTF-8 text")?;
        let time = time_of(text, alarm.time_ns);
        let event = |host: &String| rule.event(alarm, (rack, host, component), text, &time);
        let events: Vec<Event> =
            hosts.iter().map(event).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        for event in &events {
            // What cannot be published would be delivered again for ever.
            event.check(limits::PAYLOAD_BYTES_MAX).map_err(|error| error.to_string())?;
        }
        Ok(events)
    }
}

impl Rule {
    fn event(
        &self,
        alarm: Alarm<'_>,
        (rack, host, component): (&str, &str, &str),
        text: &str,
        time: &str,
    ) -> Result<Event, NameError> {
        let mut event = event(SPACE, self.event.as_str())?
            .severity(self.severity)
            .tag("node", host)
            .tag("rack", rack)
            .tag("alarm_time", time)
            .tag(ALARM, alarm.id)
            .payload(ftb_core::text::cut(text, PAYLOAD_BYTES_MAX).to_owned())
            .build();
        event.condition = self.key.as_ref().map(|key| Condition {
            host: host.to_owned(),
            component: component.to_owned(),
            action: self.action,
            // The same when it is stated again: people have answered it by its onset. An end counts
            // from its event on: it must not be older than what it ends.
            onset_ns: if self.truth == Truth::True { alarm.time_ns } else { 0 },
            // A leak goes on when the bridge ends.
            is_kept: true,
            ..Condition::new(key.as_str(), self.truth)
        });
        Ok(event)
    }
}

/// The alarm's own time, else that of the stream.
fn time_of(text: &str, time_ns: u64) -> String {
    #[derive(Deserialize)]
    struct Timed {
        time: String,
    }
    let own = serde_json::from_str::<Timed>(text).ok().map(|timed| timed.time);
    let own = own.filter(|time| {
        time.len() <= TIME_BYTES_MAX
            && humantime::parse_rfc3339_weak(time.trim_end_matches('Z')).is_ok()
    });
    own.unwrap_or_else(|| {
        let time = UNIX_EPOCH + Duration::from_nanos(time_ns);
        humantime::format_rfc3339_millis(time).to_string()
    })
}
