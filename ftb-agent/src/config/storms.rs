//! The `[[storm]]` tables of the configuration: fold and rate limit of publishers.
//!
//! Not responsible for: applying the rules ([`ftb_core::node::StormRule`]).

use crate::access::{SeverityName, SpaceRule};
use ftb_core::Severity;
use ftb_core::catalog::EVENTS;
use ftb_core::limits::TAG_KEY_BYTES_MAX;
use ftb_core::node::StormRule;
use ftb_core::space::lies_in;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// Longest fold: publishers keep folded events until then.
const FOLD_MAX: Duration = Duration::from_secs(60);
/// Most tags of one rule.
const GROUP_TAGS_MAX: usize = 8;
/// Most rules: each event of a client is compared with all of them.
const RULES_MAX: usize = 64;

/// One configured rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StormTable {
    /// The event space and all below it; `*` for every space.
    space: SpaceRule,
    /// More severe events are never touched.
    #[serde(default = "warning")]
    severity_max: SeverityName,
    /// Identical events within this time become one.
    #[serde(default, with = "humantime_serde")]
    fold: Option<Duration>,
    /// With these tags the acting root folds the events of all publishers.
    #[serde(default)]
    group_by: Vec<String>,
    /// Events a second of one publisher.
    events_per_s: Option<NonZeroU32>,
    /// Events at once; default: those of a second.
    burst: Option<NonZeroU32>,
}

fn warning() -> SeverityName {
    SeverityName(Severity::Warning)
}

/// Checks the rules.
///
/// # Errors
/// The first mistake.
pub fn check(tables: &[StormTable]) -> Result<(), String> {
    if tables.len() > RULES_MAX {
        return Err(format!("{} [[storm]] tables: at most {RULES_MAX}", tables.len()));
    }
    for table in tables {
        let what = table.space.as_str();
        if table.fold.is_none() && table.events_per_s.is_none() {
            return Err(format!(
                "the [[storm]] table of space {what:?} does nothing: give it fold or events_per_s"
            ));
        }
        if !table.group_by.is_empty() && table.fold.is_none() {
            return Err(format!(
                "the [[storm]] table of space {what:?} has group_by without fold, its window"
            ));
        }
        let keys = table.group_by.iter();
        if let Some(key) = keys.clone().find(|key| key.is_empty() || key.len() > TAG_KEY_BYTES_MAX)
        {
            return Err(format!(
                "group_by of the [[storm]] table of space {what:?}: {key:?} is no tag"
            ));
        }
        if keys.len() > GROUP_TAGS_MAX {
            return Err(format!(
                "group_by of the [[storm]] table of space {what:?}: at most {GROUP_TAGS_MAX} tags"
            ));
        }
        if table.burst.is_some() && table.events_per_s.is_none() {
            return Err(format!(
                "the [[storm]] table of space {what:?} has a burst without events_per_s"
            ));
        }
        if table.fold.is_some_and(|fold| fold > FOLD_MAX || fold.as_millis() == 0) {
            return Err(format!(
                "the [[storm]] table of space {what:?}: fold must be 1ms to 60s, the time that a \
                 publisher waits for its receipts"
            ));
        }
    }
    let same = |a: &StormTable, b: &StormTable| a.space == b.space;
    let twice = (1..tables.len()).find(|at| tables[..*at].iter().any(|t| same(t, &tables[*at])));
    match twice {
        Some(at) => Err(format!("two [[storm]] tables have space {:?}", tables[at].space.as_str())),
        None => Ok(()),
    }
}

/// The rules with `group_by` that touch no event of this project which has their tags and is worse
/// than WARNING: what a person hardly wants.
pub fn doubts(tables: &[StormTable]) -> Vec<String> {
    let doubt = |table: &StormTable| {
        let (space, max) = (table.space.space()?, table.severity_max.0);
        let has =
            |tags: &str, key: &str| tags.split(' ').any(|tag| tag.trim_end_matches('?') == key);
        let is_grouped = |tags: &str| table.group_by.iter().all(|key| has(tags, key));
        let mut severe = EVENTS.iter().filter(|entry| {
            let is_severe = entry.worst() > Severity::Warning && entry.worst() > max;
            lies_in(entry.space.as_bytes(), space.as_str()) && is_severe && is_grouped(entry.tags)
        });
        let first = severe.next().filter(|_| !table.group_by.is_empty())?;
        let (tags, worst) = (table.group_by.join(", "), first.worst().as_str());
        Some(format!(
            "the [[storm]] table of space {space} groups by {tags}, but never {}, which is \
             {worst}: severity_max is {}",
            first.name,
            max.as_str()
        ))
    };
    tables.iter().filter_map(doubt).collect()
}

/// The rules for the core.
pub fn rules(tables: &[StormTable]) -> Vec<StormRule> {
    let rule = |table: &StormTable| StormRule {
        space: table.space.space().cloned(),
        severity_max: table.severity_max.0,
        fold_ms: table.fold.map_or(0, |fold| u64::try_from(fold.as_millis()).unwrap_or(u64::MAX)),
        group_by: table.group_by.clone(),
        events_per_s: table.events_per_s.map_or(0, NonZeroU32::get),
        burst: table.burst.or(table.events_per_s).map_or(1, NonZeroU32::get),
    };
    tables.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Tables {
        storm: Vec<StormTable>,
    }

    fn doubts_of(text: &str) -> Vec<String> {
        let tables: Tables = toml::from_str(text).expect("storm tables");
        assert_eq!(check(&tables.storm), Ok(()));
        doubts(&tables.storm)
    }

    #[test]
    fn a_group_of_ports_that_misses_their_failures_is_doubtful() {
        let rule = |space: &str, more: &str| {
            doubts_of(&format!("[[storm]]\nspace = \"{space}\"\nfold = \"1s\"\n{more}\n"))
        };
        let ports = "group_by = [\"neighbour\"]";
        let doubt = "the [[storm]] table of space ftb.ib groups by neighbour, but never \
                     FTB_IB_PORT_ERR, which is ERROR: severity_max is WARNING";
        assert_eq!(rule("ftb.ib", ports), [doubt]);
        assert!(rule("ftb.ib", &format!("{ports}\nseverity_max = \"error\"")).is_empty());
        assert!(rule("ftb.ib", "").is_empty(), "it groups nothing");
        assert!(rule("ftb.ib", "group_by = [\"zone\"]").is_empty(), "no event has that tag");
        assert!(rule("site.ports", ports).is_empty(), "its events are not known");
    }
}
