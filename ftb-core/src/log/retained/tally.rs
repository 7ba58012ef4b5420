//! What a log counts of the events that it has dropped.

use crate::numbers::LogIndex;
use crate::severity::Severity;
use crate::spaces::Spaces;

/// What was dropped of some indices that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// The last index; the first follows the tally before.
    pub(super) last: LogIndex,
    pub(super) severity_max: Option<Severity>,
    /// `None`: nothing was dropped yet.
    pub(super) spaces: Option<Spaces>,
    /// The newest time of a dropped event, Unix nanoseconds; `None`: it is not known.
    pub(super) newest_ns: Option<u64>,
    /// The log did not know what it held there.
    pub(super) unknown: bool,
}

/// The later of two times; `None`: not known.
pub(super) fn newer(one_ns: Option<u64>, other_ns: Option<u64>) -> Option<u64> {
    Some(one_ns?.max(other_ns?))
}

impl Tally {
    pub(super) fn new(last: LogIndex) -> Self {
        Self { last, severity_max: None, spaces: None, newest_ns: Some(0), unknown: false }
    }

    pub(super) fn unknown(last: LogIndex) -> Self {
        Self { unknown: true, newest_ns: None, spaces: Some(Spaces::ANY), ..Self::new(last) }
    }

    pub(super) fn dropped(&mut self, severity: Severity, space: &str, newest_ns: u64) {
        self.severity_max = self.severity_max.max(Some(severity));
        self.newest_ns = newer(self.newest_ns, Some(newest_ns));
        let names = self.spaces.as_ref().map(Spaces::names);
        let known = match names {
            None => false,
            Some(None) => true,
            Some(Some(names)) => names.iter().any(|name| name.as_str().eq_ignore_ascii_case(space)),
        };
        if !known {
            self.concerns(&Spaces::of(space));
        }
    }

    pub(super) fn concerns(&mut self, more: &Spaces) {
        let joined = self.spaces.as_ref().map_or_else(|| more.clone(), |known| known.joined(more));
        self.spaces = Some(joined);
    }

    /// Takes what another one has.
    pub(super) fn join(&mut self, other: &Self) {
        self.severity_max = self.severity_max.max(other.severity_max);
        self.newest_ns = newer(self.newest_ns, other.newest_ns);
        self.unknown |= other.unknown;
        if let Some(spaces) = &other.spaces {
            self.concerns(spaces);
        }
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.severity_max == other.severity_max
            && self.spaces == other.spaces
            && self.unknown == other.unknown
    }
}
