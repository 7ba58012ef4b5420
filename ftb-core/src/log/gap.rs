//! Events that are missing: which, how many, and why.

use crate::position::Position;
use crate::severity::Severity;
use crate::spaces::Spaces;

/// What a gap counts for beside the names in it, in bytes.
pub(crate) const GAP_BYTES: usize = 64;

/// A range of events that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last position before it.
    pub after: Position,
    /// The last position in it.
    pub until: Position,
    /// Why.
    pub reason: GapReason,
    /// How many events are missing; `None` where it is unknown.
    pub count: Option<u64>,
    /// The worst among them; `None` where it is unknown.
    pub severity_max: Option<Severity>,
    /// The event spaces of all of them, as far as they are known.
    pub spaces: Spaces,
}

impl Gap {
    /// A gap of which nothing is known but its range: behind the first position, up to the second.
    pub const fn unknown((after, until): (Position, Position), reason: GapReason) -> Self {
        Self { after, until, reason, count: None, severity_max: None, spaces: Spaces::ANY }
    }

    /// Becomes one with the gap behind it.
    pub(crate) fn join(&mut self, next: &Self) {
        self.until = next.until;
        self.count = self.count.zip(next.count).map(|(own, further)| own + further);
        self.severity_max = self.severity_max.max(next.severity_max);
        self.spaces = self.spaces.joined(&next.spaces);
    }
}

/// Events that are missing where the acting root logs it: a gap that has no range yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: GapReason,
    /// How many events are missing; `None` where it is unknown.
    pub count: Option<u64>,
    /// The worst among them; `None` where it is unknown.
    pub severity_max: Option<Severity>,
    /// The event spaces of all of them, as far as they are known.
    pub spaces: Spaces,
}

impl Loss {
    /// The gap with that range: behind the first position, up to the second.
    pub fn between(self, (after, until): (Position, Position)) -> Gap {
        let Self { reason, count, severity_max, spaces } = self;
        Gap { after, until, reason, count, severity_max, spaces }
    }
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GapReason {
    /// A bounded queue was full; mildest first were shed.
    Shed,
    /// They are older than what any log retains, or lie in a log that never had anything in common
    /// with the one that was followed before.
    Retention,
    /// Acting root and standby were lost together.
    LogLost,
    /// They came behind newer events of their publishers, and are left out: an older value must not
    /// replace a newer one. The last hop reports this gap ([`crate::latest`]).
    Late,
}

impl GapReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Shed, Self::Retention, Self::LogLost, Self::Late];

    /// The stable word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shed => "shed",
            Self::Retention => "retention",
            Self::LogLost => "log-lost",
            Self::Late => "late",
        }
    }
}
