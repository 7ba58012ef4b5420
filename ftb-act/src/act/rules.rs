//! Rules, profiles and limits of the breaker, as the core needs them.

use super::order::Kind;
use super::{PAGE_FAILED, Row};
use ftb_core::catalog;
use ftb_core::condition::{RecommendedAction, Truth};
use ftb_core::hostlist::Hostlist;
use ftb_core::{EventName, EventSpace, Severity};
use std::time::Duration;

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Runs this program with these arguments.
    Exec {
        /// Program and arguments.
        program: Vec<String>,
        /// It is ended after this time.
        time_limit: Duration,
    },
    /// Posts JSON there.
    Webhook {
        /// The address.
        url: String,
        /// It is given up after this time.
        time_limit: Duration,
    },
    /// Publishes this event.
    Publish {
        /// Its event space.
        space: EventSpace,
        /// Its name.
        name: EventName,
        /// Its severity.
        severity: Severity,
    },
    /// Takes the host out of service.
    Drain {
        /// Until a person ends it; else until the cause is over.
        is_persons: bool,
    },
}

impl Then {
    /// What it does, without details.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Exec { .. } => Kind::Exec,
            Self::Webhook { .. } => Kind::Webhook,
            Self::Publish { .. } => Kind::Publish,
            Self::Drain { .. } => Kind::Drain,
        }
    }
}

/// Which conditions share an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Those of one host.
    Host,
    /// Those of one rack.
    Rack,
    /// All.
    Cluster,
}

/// From conditions to an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Keys of conditions; one that ends with `*` stands for all that begin so. Empty: every key.
    pub keys: Vec<String>,
    /// Event spaces, each with all below it. Empty: every space.
    pub spaces: Vec<String>,
    /// The mildest condition.
    pub severity: Severity,
    /// Recommended actions. Empty: any.
    pub recommended: Vec<RecommendedAction>,
    /// What it does.
    pub then: Then,
    /// Which conditions share an order.
    pub group_by: GroupBy,
    /// How long an order waits for further conditions.
    pub within: Duration,
    /// It changes its hosts.
    pub changes_hosts: bool,
}

impl Rule {
    /// Whether it is about a condition that holds.
    pub(super) fn matches(&self, row: &Row) -> bool {
        // A request that says that requests of its own rule fail does not arrive either.
        let is_own = row.subject.key() == PAGE_FAILED && row.subject.component() == self.name;
        row.truth == Truth::True
            && !is_own
            && row.severity >= self.severity
            && self.is_about(row.subject.key(), &row.space, row.action)
    }

    /// Whether it is about such a condition, of some severity. What is wrong with a service changes
    /// no host.
    pub(super) fn is_about(&self, key: &str, space: &str, action: RecommendedAction) -> bool {
        let is_key = |known: &String| match known.strip_suffix('*') {
            Some(beginning) => key.starts_with(beginning),
            None => key == known,
        };
        let in_space = |known: &String| ftb_core::space::lies_in(space.as_bytes(), known.as_str());
        !(self.changes_hosts && catalog::is_of_service(key))
            && (self.keys.is_empty() || self.keys.iter().any(is_key))
            && (self.spaces.is_empty() || self.spaces.iter().any(in_space))
            && (self.recommended.is_empty() || self.recommended.contains(&action))
    }
}

/// What may be done to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing: it is only logged.
    Observe,
    /// It may be taken out of service; people and programs may be notified.
    Drain,
    /// Programs may change it too.
    Act,
}

impl Mode {
    /// Whether an order may be done.
    pub(super) fn allows(self, kind: Kind, changes_hosts: bool) -> bool {
        let least = if kind == Kind::Exec && changes_hosts { Self::Act } else { Self::Drain };
        self >= least
    }
}

/// All that an administrator has decided.
#[derive(Clone, Debug)]
pub struct Rules {
    /// All rules that match act.
    pub rules: Vec<Rule>,
    /// The first with the host decides. Without one it is only observed.
    pub profiles: Vec<(Hostlist, Mode)>,
    /// Racks.
    pub racks: Vec<(String, Hostlist)>,
    /// More hosts than this within [`Rules::breaker_within`] open the breaker.
    pub breaker_hosts: usize,
    /// The time in which they count.
    pub breaker_within: Duration,
    /// More than this share of the hosts that may be drained open it, in percent. Two at least.
    pub breaker_percent: usize,
}

impl Rules {
    /// Whether some rule states conditions of other hosts: it drains.
    pub fn states_conditions_of_others(&self) -> bool {
        self.rules.iter().any(|rule| rule.then.kind() == Kind::Drain)
    }

    pub(super) fn mode(&self, host: &str) -> Mode {
        let found = self.profiles.iter().find(|(hosts, _)| hosts.contains(host));
        found.map_or(Mode::Observe, |(_, mode)| *mode)
    }

    /// How many hosts may be drained at all.
    pub(super) fn hosts_in_reach(&self) -> usize {
        let reached = self.profiles.iter().filter(|(_, mode)| *mode > Mode::Observe);
        reached.map(|(hosts, _)| hosts.len()).sum()
    }

    /// A host as profiles or racks write it.
    pub(super) fn spelled(&self, host: &str) -> String {
        let profiles = self.profiles.iter().map(|(hosts, _)| hosts);
        let mut lists = profiles.chain(self.racks.iter().map(|(_, hosts)| hosts));
        let found = lists.find_map(|hosts| hosts.get(hosts.position(host)?));
        found.unwrap_or_else(|| host.to_owned())
    }

    /// The group of a host: its rack, else itself.
    pub(super) fn group(&self, by: GroupBy, host: &str) -> String {
        let rack = || self.racks.iter().find(|(_, hosts)| hosts.contains(host));
        match by {
            GroupBy::Host => self.spelled(host),
            GroupBy::Rack => rack().map_or_else(|| self.spelled(host), |(name, _)| name.clone()),
            GroupBy::Cluster => "cluster".to_owned(),
        }
    }
}

/// Nanoseconds of a duration.
pub(super) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
