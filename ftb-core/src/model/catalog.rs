//! The catalogue: every event and every condition that programs of this project publish.
//!
//! Publishers take the names from [`names`]. `ftbctl explain` and docs/events.md show the entries.
//! Not responsible for: who publishes when, and what a job launcher does about it (its policy).

mod conditions;
mod events;

pub use conditions::{CONDITIONS, ConditionEntry};
pub use events::{EVENTS, names};

use crate::severity::Severity;

/// Tag key that makes agents remember the path of an event of any severity (`ftbctl trace`).
pub const TRACE_TAG: &str = "ftb.trace";

/// Tag key of an event whose severity its agent lowered: the value is what its publisher said.
pub const SEVERITY_TAG: &str = "ftb.severity";

/// One event that a program publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventEntry {
    /// Its event space.
    pub space: &'static str,
    /// The program that publishes it.
    pub publisher: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its severities: the usual one first.
    pub severity: &'static str,
    /// The payload; empty: text for people.
    pub payload: &'static str,
    /// The keys of its tags; `?` behind a key: not always there.
    pub tags: &'static str,
    /// Why it is published, and what to do about it.
    pub cause: &'static str,
}

impl EventEntry {
    /// The conditions that it sets.
    pub fn sets(&self) -> impl Iterator<Item = &'static ConditionEntry> {
        CONDITIONS.iter().filter(|condition| condition.set_by.contains(&self.name))
    }

    /// The worst of its severities.
    pub fn worst(&self) -> Severity {
        let all = self.severity.split(", ").filter_map(|word| word.parse().ok());
        all.max().unwrap_or(Severity::Info)
    }

    /// The conditions that it clears.
    pub fn clears(&self) -> impl Iterator<Item = &'static ConditionEntry> {
        CONDITIONS.iter().filter(|condition| condition.cleared_by.contains(&self.name))
    }
}

/// The entry of an event, in upper or lower case.
pub fn event(name: &str) -> Option<&'static EventEntry> {
    EVENTS.iter().find(|entry| entry.name.eq_ignore_ascii_case(name))
}

/// The entry of a condition, by its key in upper or lower case.
pub fn condition(key: &str) -> Option<&'static ConditionEntry> {
    CONDITIONS.iter().find(|entry| entry.key.eq_ignore_ascii_case(key))
}

/// Keys of conditions about a service of the site, which its host only runs.
const OF_SERVICES: [&str; 5] =
    ["BREAKER_OPEN", "NATS_UNREACHABLE", "PAGE_FAILED", "SLURM_REFUSES", "SLURM_UNREACHABLE"];

/// Whether a condition is about a service of the site: it makes no host unfit for jobs, so no
/// program drains the host for it. The key is in upper case.
pub fn is_of_service(key: &str) -> bool {
    OF_SERVICES.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::pairs::ConditionPairs;
    use crate::{EventName, EventSpace};
    use std::collections::BTreeSet;

    #[test]
    fn entries_are_well_formed_and_occur_once() {
        let mut seen = BTreeSet::new();
        for entry in EVENTS {
            assert!(seen.insert(entry.name), "{} occurs twice", entry.name);
            assert!(EventSpace::check(entry.space).is_ok() && EventName::check(entry.name).is_ok());
            for word in entry.severity.split(", ") {
                assert!(word.parse::<Severity>().is_ok(), "{}: {word}", entry.name);
            }
            assert!(entry.cause.ends_with('.'), "{}: no sentence", entry.name);
        }
        let keys: BTreeSet<&str> = CONDITIONS.iter().map(|condition| condition.key).collect();
        assert_eq!(keys.len(), CONDITIONS.len());
        for condition in CONDITIONS {
            for name in condition.set_by.iter().chain(condition.cleared_by) {
                assert!(event(name).is_some(), "{}: {name} is no event", condition.key);
            }
        }
    }

    #[test]
    fn conditions_of_services_have_entries() {
        for key in OF_SERVICES {
            assert!(is_of_service(key) && condition(key).is_some(), "{key}");
        }
        assert!(!is_of_service("FANFAIL"));
    }

    #[test]
    fn conditions_agree_with_the_built_in_pairs() {
        for pair in ConditionPairs::built_in().all() {
            let entry = condition(pair.key.as_str()).expect("each key has an entry");
            assert!(entry.set_by.contains(&pair.set.as_str()), "{} {}", entry.key, pair.set);
            for clear in &pair.clear {
                assert!(entry.cleared_by.contains(&clear.as_str()), "{} {clear}", entry.key);
            }
        }
    }
}
