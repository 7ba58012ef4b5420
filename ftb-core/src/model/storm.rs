//! The rules of storm control, and what a fold of identical events says.

use crate::sealed::Sealed;
use crate::severity::Severity;
use crate::space::{EventSpace, lies_in};
use std::fmt;

/// Storm control for an event space and all below it. The rule with the longest matching space
/// decides alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StormRule {
    /// The space; `None`: every space.
    pub space: Option<EventSpace>,
    /// Worse events are never touched. Usually [`Severity::Warning`].
    pub severity_max: Severity,
    /// Window in milliseconds: events of one publisher with the same space, name and severity
    /// become one. The first of them passes at once. 0: no folding.
    pub fold_ms: u64,
    /// Tags. With any, the acting root folds instead ([`crate::group`]): events of all publishers
    /// whose values of these tags are the same up to the first `/`.
    pub group_by: Vec<String>,
    /// What one publisher may say in a second; 0: as much as it likes. FATAL events have a lane of
    /// the same width to themselves.
    pub events_per_s: u32,
    /// What it may say at once; at least 1.
    pub burst: u32,
}

/// What a fold says beside its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// How many events are in it, at least 1.
    pub count: u64,
    /// Sequences right before its own for which the fold stands: they are in it, or in folds before
    /// it.
    pub covers: u32,
    /// The time of the first event in it, Unix nanoseconds on the publisher's clock.
    pub first_ns: u64,
    /// The time of the last.
    pub last_ns: u64,
}

/// How a fold is encoded: the shell's, as all encodings are. Gives the last event with the stamp.
#[derive(Clone, Copy)]
pub struct Folder(pub fn(&Sealed, &Fold) -> Sealed);

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Folder")
    }
}

/// There is one encoding.
impl PartialEq for Folder {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Folder {}

/// The rule that decides about an event of that space and severity: its index.
pub(crate) fn rule_of(rules: &[StormRule], space: &str, severity: Severity) -> Option<usize> {
    let matching = rules.iter().enumerate();
    let matching = matching.filter_map(|(at, rule)| Some((rule.matches(space)?, at)));
    let (_, at) = matching.max_by_key(|(len, _)| *len)?;
    (severity <= rules[at].severity_max).then_some(at)
}

impl StormRule {
    /// How much of a space it decides, in bytes; `None` where it is not about that space.
    pub(crate) fn matches(&self, space: &str) -> Option<usize> {
        let Some(rule) = &self.space else { return Some(0) };
        lies_in(space.as_bytes(), rule.as_str()).then_some(rule.as_str().len())
    }
}
