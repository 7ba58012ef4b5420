//! The `[[storm]]` tables of the configuration: fold and rate limit of publishers.
//!
//! Not responsible for: applying the rules ([`ftb_core::node::StormRule`]).

use crate::access::{SeverityName, SpaceRule};
use ftb_core::Severity;
use ftb_core::limits::TAG_KEY_BYTES_MAX;
use ftb_core::node::StormRule;
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
