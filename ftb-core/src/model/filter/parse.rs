//! Reading the subscription syntax, with errors that point at the column.

use super::pattern::{Pattern, SpacePattern};
use super::{Filter, Hosts, Severities, rising};
use crate::hostlist::Hostlist;
use crate::limits;
use crate::severity::Severity;
use std::sync::Arc;

/// Why a text is no filter, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter, column {column}: {reason}")]
pub struct FilterError {
    /// Where, counted in characters from 1.
    pub column: usize,
    /// What is wrong there and what was expected.
    pub reason: String,
}

impl FilterError {
    /// The text with a caret under the column, for people at a terminal.
    pub fn pointed(&self, text: &str) -> String {
        format!("{text}\n{}^ {}", " ".repeat(self.column.saturating_sub(1)), self.reason)
    }
}

/// Most alternatives (`a|b|c`) of one condition.
pub const ALTERNATIVES_MAX: usize = 64;

const KEYS: &str = "event_space, severity, event_name, hostname, jobid, uid, client_name, \
     condition, subject or folds";

#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterKey {
    Space,
    Severity,
    Name,
    Host,
    Job,
    User,
    Client,
    Condition,
    Subject,
    Folds,
}

impl FilterKey {
    /// The CIFTS names, and those that people try first.
    fn from_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "event_space" | "space" | "namespace" => Self::Space,
            "severity" => Self::Severity,
            "event_name" | "name" => Self::Name,
            "hostname" | "host_name" | "host" => Self::Host,
            "jobid" | "job_id" | "job" => Self::Job,
            "uid" => Self::User,
            "client_name" | "client" => Self::Client,
            "condition" => Self::Condition,
            "subject" => Self::Subject,
            "folds" => Self::Folds,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Comparison {
    /// Longest first, so that `>=` is not read as `>`.
    const ALL: [(&'static str, Self); 6] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        ("!=", Self::NotEqual),
        ("=", Self::Equal),
        (">", Self::Above),
        ("<", Self::Below),
    ];

    fn holds(self, severity: Severity, than: Severity) -> bool {
        match self {
            Self::Equal => severity == than,
            Self::NotEqual => severity != than,
            Self::AtLeast => severity >= than,
            Self::AtMost => severity <= than,
            Self::Above => severity > than,
            Self::Below => severity < than,
        }
    }
}

/// A part of the text with its column.
#[derive(Clone, Copy)]
struct TextPart<'a> {
    column: usize,
    text: &'a str,
}

impl<'a> TextPart<'a> {
    fn trimmed(self) -> Self {
        let start = self.text.trim_start();
        let blanks = self.text[..self.text.len() - start.len()].chars().count();
        Self { column: self.column + blanks, text: start.trim_end() }
    }

    fn after(self, bytes: usize) -> Self {
        let column = self.column + self.text[..bytes].chars().count();
        Self { column, text: &self.text[bytes..] }
    }

    fn fail<T>(self, reason: impl Into<String>) -> Result<T, FilterError> {
        Err(FilterError { column: self.column, reason: reason.into() })
    }

    /// Cuts at a separator outside brackets.
    fn split(self, separator: char) -> Vec<Self> {
        let mut pieces = Vec::new();
        let (mut start, mut column, mut depth) = (0, self.column, 0_u32);
        for (index, (at, c)) in self.text.char_indices().enumerate() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                c if c == separator && depth == 0 => {
                    pieces.push(TextPart { column, text: &self.text[start..at] });
                    (start, column) = (at + c.len_utf8(), self.column + index + 1);
                }
                _ => {}
            }
        }
        pieces.push(TextPart { column, text: &self.text[start..] });
        pieces
    }
}

pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
    let whole = TextPart { column: 1, text };
    if text.len() > limits::FILTER_BYTES_MAX {
        let max = limits::FILTER_BYTES_MAX;
        return whole
            .fail(format!("the filter has {} bytes: at most {max} are allowed", text.len()));
    }
    let mut filter = Filter::everything();
    if text.trim().is_empty() {
        return Ok(filter);
    }
    for pair in whole.split(',') {
        let pair = pair.trimmed();
        if pair.text.is_empty() {
            return pair.fail("a condition like severity>=error is missing between the commas");
        }
        let (key, comparison, value) = read_pair(pair)?;
        add(&mut filter, pair, key, comparison, value)?;
    }
    let single = filter.single;
    filter = filter.with_single(single);
    // An agent tells its parent the canonical text: that must fit too.
    let (weight, written) = (filter.weight(), filter.to_string().len());
    if weight > limits::FILTER_WEIGHT_MAX {
        let max = limits::FILTER_WEIGHT_MAX;
        return whole.fail(format!("the filter needs {weight} bytes of memory: at most {max}"));
    }
    if written > limits::FILTER_BYTES_MAX {
        let max = limits::FILTER_BYTES_MAX;
        return whole
            .fail(format!("the filter has {written} bytes when written out: at most {max}"));
    }
    Ok(filter)
}

fn read_pair(pair: TextPart<'_>) -> Result<(FilterKey, Comparison, TextPart<'_>), FilterError> {
    let Some(at) = pair.text.find(['=', '<', '>', '!']) else {
        let hint = "a list of hosts is written node[1,2], alternatives a|b";
        return pair.fail(format!("{:?} has no '=': expected KEY=VALUE ({hint})", pair.text));
    };
    let word = TextPart { column: pair.column, text: &pair.text[..at] }.trimmed();
    let Some(key) = FilterKey::from_word(word.text) else {
        return word.fail(format!("unknown key {:?}: expected {KEYS}", word.text));
    };
    let rest = pair.after(at);
    let found = Comparison::ALL.iter().find(|(sign, _)| rest.text.starts_with(sign));
    let Some((sign, comparison)) = found else {
        return rest.fail("expected =, !=, <, <=, > or >=");
    };
    let value = rest.after(sign.len()).trimmed();
    if value.text.is_empty() {
        return value.fail(format!("the value of {} is missing", word.text));
    }
    if key != FilterKey::Severity && *comparison != Comparison::Equal {
        return rest.fail(format!("{sign} compares severities only: write {}=…", word.text));
    }
    Ok((key, *comparison, value))
}

fn add(
    filter: &mut Filter,
    pair: TextPart<'_>,
    key: FilterKey,
    comparison: Comparison,
    value: TextPart<'_>,
) -> Result<(), FilterError> {
    let taken = match key {
        FilterKey::Severity => return add_severity(filter, comparison, value),
        FilterKey::Folds => {
            filter.single = match value.text.to_ascii_lowercase().as_str() {
                "no" => true,
                "yes" => false,
                _ => return value.fail("folds is yes (the folds of groups) or no (all events)"),
            };
            return Ok(());
        }
        FilterKey::Space => filter.spaces.replace(spaces(value)?).is_some(),
        FilterKey::Name => filter.names.replace(texts(value, limits::NAME_BYTES_MAX)?).is_some(),
        FilterKey::Host => filter.hosts.replace(hosts(value)?).is_some(),
        FilterKey::Job => {
            filter.jobs.replace(texts(value, limits::CLIENT_NAME_BYTES_MAX)?).is_some()
        }
        FilterKey::User => filter.uids.replace(uids(value)?).is_some(),
        FilterKey::Client => {
            filter.clients.replace(texts(value, limits::CLIENT_NAME_BYTES_MAX)?).is_some()
        }
        FilterKey::Condition => {
            filter.conditions.replace(texts(value, limits::NAME_BYTES_MAX)?).is_some()
        }
        FilterKey::Subject => filter.subjects.replace(hosts(value)?).is_some(),
    };
    if taken {
        return pair.fail("this key stands in the filter twice: write alternatives as a|b");
    }
    Ok(())
}

/// `severity>=warning, severity<fatal` narrows step by step; `severity=error|fatal` is a choice.
fn add_severity(
    filter: &mut Filter,
    comparison: Comparison,
    value: TextPart<'_>,
) -> Result<(), FilterError> {
    let mut wanted = Severities(0);
    let words = alternatives(value)?;
    if words.len() > 1 && comparison != Comparison::Equal {
        return value.fail("alternatives go with '=' only: severity=error|fatal");
    }
    for word in words {
        if word.text.eq_ignore_ascii_case("all") || word.text == "*" {
            wanted = Severities::ALL;
            continue;
        }
        let than: Severity = match word.text.parse() {
            Ok(severity) => severity,
            Err(error) => return word.fail(format!("{error}")),
        };
        wanted.0 |= Severities::where_holds(|severity| comparison.holds(severity, than)).0;
    }
    filter.severities.0 &= wanted.0;
    if filter.severities.0 == 0 {
        return value.fail("no severity can match this");
    }
    Ok(())
}

fn alternatives(value: TextPart<'_>) -> Result<Vec<TextPart<'_>>, FilterError> {
    let words: Vec<_> = value.split('|').into_iter().map(TextPart::trimmed).collect();
    if words.len() > ALTERNATIVES_MAX {
        return value.fail(format!("more than {ALTERNATIVES_MAX} alternatives"));
    }
    match words.iter().find(|word| word.text.is_empty()) {
        Some(word) => word.fail("an alternative is missing beside '|'"),
        None => Ok(words),
    }
}

fn texts(value: TextPart<'_>, bytes_max: usize) -> Result<Arc<[Pattern]>, FilterError> {
    let words = alternatives(value)?;
    for word in &words {
        if word.text.len() > bytes_max {
            return word
                .fail(format!("{} bytes: at most {bytes_max} are allowed", word.text.len()));
        }
        let bad = |c: char| c.is_control() || "=<>!,[]".contains(c);
        if let Some((at, c)) = word.text.char_indices().find(|(_, c)| bad(*c)) {
            return word.after(at).fail(format!("{c:?} cannot be in a value"));
        }
    }
    Ok(words.iter().map(|word| Pattern::new(word.text)).collect())
}

fn spaces(value: TextPart<'_>) -> Result<Arc<[SpacePattern]>, FilterError> {
    let words = alternatives(value)?;
    for word in &words {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-*.".contains(c);
        if let Some((at, c)) = word.text.char_indices().find(|(_, c)| !allowed(*c)) {
            let expected = "letters, digits, '_', '-', '.' and '*'";
            return word.after(at).fail(format!("{c:?} in an event space: expected {expected}"));
        }
        if word.text.len() > limits::SPACE_BYTES_MAX {
            let max = limits::SPACE_BYTES_MAX;
            return word.fail(format!("{} bytes: at most {max} are allowed", word.text.len()));
        }
        if word.text.split('.').any(str::is_empty) {
            return word.fail("an empty part: expected something like ftb.ipmi.*");
        }
        if word.text.split('.').count() > limits::SPACE_PARTS_MAX {
            return word.fail(format!("more than {} parts", limits::SPACE_PARTS_MAX));
        }
    }
    Ok(words.iter().map(|word| SpacePattern::new(word.text)).collect())
}

fn uids(value: TextPart<'_>) -> Result<Arc<[u32]>, FilterError> {
    let number = |word: TextPart<'_>| match word.text.parse() {
        Ok(uid) => Ok(uid),
        Err(_) => word.fail("expected the number of a user, as `id -u` prints it"),
    };
    let uids: Result<Vec<u32>, FilterError> =
        alternatives(value)?.into_iter().map(number).collect();
    Ok(rising(&uids?))
}

fn hosts(value: TextPart<'_>) -> Result<Hosts, FilterError> {
    let patterns = value.text.contains(['*', '|']) || value.text.eq_ignore_ascii_case("all");
    if patterns {
        return Ok(Hosts::Patterns(texts(value, limits::HOST_BYTES_MAX)?));
    }
    match Hostlist::parse_within(value.text, limits::FILTER_WEIGHT_MAX) {
        Ok(list) => Ok(Hosts::List(Arc::new(list))),
        Err(error) => {
            Err(FilterError { column: value.column + error.column - 1, reason: error.reason })
        }
    }
}
