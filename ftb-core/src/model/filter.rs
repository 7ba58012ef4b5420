//! Which events a subscriber wants: the CIFTS subscription syntax, extended.
//!
//! `event_space=ftb.ipmi.*, severity>=error, hostname=node[001-032]`: pairs separated by commas,
//! all of them must hold. Extended by comparison of severities, `*`, alternatives (`|`) and host
//! lists. An empty text wants everything. What CIFTS does otherwise (equality only, `all` as the
//! only wildcard) is the C library's business.
//!
//! Responsible for: reading, printing, matching one filter, and whether one covers another. Merging
//! many is [`set`].

mod parse;
mod pattern;
pub mod set;

pub use parse::{ALTERNATIVES_MAX, FilterError};
pub use set::FilterSet;

use crate::hostlist::Hostlist;
use crate::sealed::SealedRef;
use crate::severity::Severity;
use crate::space::EventSpace;
use crate::spaces::Spaces;
use core::fmt;
use pattern::{Pattern, SpacePattern};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a subscriber wants. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Filter {
    /// It wants the single events of groups, not the folds ([`crate::group`]).
    single: bool,
    severities: Severities,
    spaces: Option<Arc<[SpacePattern]>>,
    names: Option<Arc<[Pattern]>>,
    hosts: Option<Hosts>,
    jobs: Option<Arc<[Pattern]>>,
    /// Users of publishers, rising.
    uids: Option<Arc<[u32]>>,
    clients: Option<Arc<[Pattern]>>,
    /// Keys of conditions, and the hosts that they are about: only events that state one match.
    conditions: Option<Arc<[Pattern]>>,
    subjects: Option<Hosts>,
}

/// A set of severities, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Severities(u8);

impl Default for Severities {
    fn default() -> Self {
        Self::ALL
    }
}

impl Severities {
    const ALL: Self = Self(0b1111);

    const fn bit(severity: Severity) -> u8 {
        1 << (severity as u8 - 1)
    }

    fn where_holds(wanted: impl Fn(Severity) -> bool) -> Self {
        let bits = Severity::ALL.into_iter().filter(|s| wanted(*s)).map(Self::bit);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    const fn contains(self, severity: Severity) -> bool {
        self.0 & Self::bit(severity) != 0
    }
}

/// Hosts by list, or by pattern where there is a `*` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    List(Arc<Hostlist>),
    Patterns(Arc<[Pattern]>),
}

impl Hosts {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::List(list) => list.contains(host),
            Self::Patterns(patterns) => any(patterns, host),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(ours), Self::List(theirs)) => ours.contains_all(theirs),
            (Self::Patterns(_), Self::List(theirs)) if theirs.len() <= HOSTS_TRIED_MAX => {
                theirs.iter().all(|host| self.matches(&host))
            }
            (Self::Patterns(ours), Self::List(theirs)) => {
                let mut beginnings = theirs.beginnings();
                beginnings.all(|text| ours.iter().any(|ours| ours.covers_beginning(text)))
            }
            (Self::Patterns(ours), Self::Patterns(theirs)) => pattern::all_covered(ours, theirs),
            (Self::List(_), Self::Patterns(_)) => false,
        }
    }
}

/// Most hosts of a list that are tried one by one against patterns; of a longer list only the
/// beginnings of the names are compared.
const HOSTS_TRIED_MAX: usize = 64;

fn rising(uids: &[u32]) -> Arc<[u32]> {
    uids.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect()
}

fn any(patterns: &[Pattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

/// `None` is no condition at all: then the text is not looked for in the event.
fn holds<'a>(patterns: Option<&Arc<[Pattern]>>, text: impl FnOnce() -> &'a str) -> bool {
    patterns.is_none_or(|patterns| any(patterns, text()))
}

fn covers(ours: Option<&Arc<[Pattern]>>, theirs: Option<&Arc<[Pattern]>>) -> bool {
    match (ours, theirs) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(ours), Some(theirs)) => pattern::all_covered(ours, theirs),
    }
}

impl Filter {
    /// Wants every event.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads the subscription syntax.
    ///
    /// # Errors
    /// [`FilterError`] says what is wrong and points at the column.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parse::parse(text)
    }

    /// Whether it wants that event.
    pub fn matches<'a>(&self, event: impl Into<SealedRef<'a>>) -> bool {
        let event = event.into();
        self.matches_group(event)
            && self.severities.contains(event.severity())
            && self.spaces.as_ref().is_none_or(|all| {
                let space = event.space();
                all.iter().any(|pattern| pattern.matches(space))
            })
            && holds(self.names.as_ref(), || event.name())
            && self.hosts.as_ref().is_none_or(|hosts| match event.group() {
                None => hosts.matches(event.host()),
                Some(group) => group.any_host(|host| hosts.matches(host)),
            })
            && self.uids.as_ref().is_none_or(|uids| uids.contains(&event.uid()))
            && holds(self.jobs.as_ref(), || event.job_id())
            && holds(self.clients.as_ref(), || event.client_name())
            && self.matches_condition(event)
    }

    /// Of a group it wants the members, or the folds.
    fn matches_group(&self, event: SealedRef<'_>) -> bool {
        match self.single {
            true => event.group().is_none(),
            false => !event.is_member(),
        }
    }

    /// Whether it wants the single events of groups.
    pub fn wants_single(&self) -> bool {
        self.single
    }

    /// The same for the single events of groups, or for their folds. A filter for conditions always
    /// wants the single events: they state them.
    #[must_use]
    pub fn with_single(self, single: bool) -> Self {
        let single = single || self.conditions.is_some() || self.subjects.is_some();
        Self { single, ..self }
    }

    fn matches_condition(&self, event: SealedRef<'_>) -> bool {
        if self.conditions.is_none() && self.subjects.is_none() {
            return true;
        }
        event.condition().is_some_and(|condition| {
            holds(self.conditions.as_ref(), || condition.key())
                && self.subjects.as_ref().is_none_or(|hosts| hosts.matches(condition.host()))
        })
    }

    /// Whether it may want an event of those spaces that is no worse than that; `None`: of any
    /// severity.
    pub fn may_want(&self, severity_max: Option<Severity>, spaces: &Spaces) -> bool {
        let severe = severity_max.is_none_or(|max| {
            let milder = Severities::where_holds(|severity| severity <= max);
            self.severities.0 & milder.0 != 0
        });
        let (Some(ours), Some(theirs)) = (&self.spaces, spaces.names()) else { return severe };
        let wanted = |space: &EventSpace| ours.iter().any(|ours| ours.matches(space.as_str()));
        severe && theirs.iter().any(wanted)
    }

    /// Whether every event that `other` wants is wanted by this one too. May say no where it is
    /// yes (patterns are compared, not all texts tried), never yes where it is no.
    pub fn covers(&self, other: &Self) -> bool {
        let spaces = match (&self.spaces, &other.spaces) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => {
                theirs.iter().all(|theirs| ours.iter().any(|ours| ours.covers(theirs)))
            }
        };
        let all_hosts = |ours: &Option<Hosts>, theirs: &Option<Hosts>| match (ours, theirs) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => ours.covers(theirs),
        };
        let uids = match (&self.uids, &other.uids) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => theirs.iter().all(|uid| ours.contains(uid)),
        };
        // A filter for any key or host still wants only events that state a condition.
        let narrower = other.conditions.is_some() || other.subjects.is_some();
        let conditions = match (&self.conditions, &other.conditions) {
            (Some(ours), None) => narrower && ours.iter().any(Pattern::is_everything),
            (ours, theirs) => covers(ours.as_ref(), theirs.as_ref()),
        };
        self.single == other.single
            && self.severities.0 & other.severities.0 == other.severities.0
            && spaces
            && all_hosts(&self.hosts, &other.hosts)
            && all_hosts(&self.subjects, &other.subjects)
            && conditions
            && uids
            && covers(self.names.as_ref(), other.names.as_ref())
            && covers(self.jobs.as_ref(), other.jobs.as_ref())
            && covers(self.clients.as_ref(), other.clients.as_ref())
    }

    /// The bytes that it takes in memory. A filter that was parsed has at most
    /// [`crate::limits::FILTER_WEIGHT_MAX`].
    pub fn weight(&self) -> usize {
        let texts = |patterns: &Option<Arc<[Pattern]>>| {
            patterns.iter().flat_map(|all| all.iter()).map(Pattern::bytes).sum::<usize>()
        };
        let spaces = self.spaces.iter().flat_map(|all| all.iter()).map(SpacePattern::bytes);
        let hosts = |hosts: &Option<Hosts>| match hosts {
            Some(Hosts::List(list)) => list.bytes(),
            Some(Hosts::Patterns(patterns)) => patterns.iter().map(Pattern::bytes).sum(),
            None => 0,
        };
        let all = [&self.names, &self.jobs, &self.clients, &self.conditions];
        size_of::<Self>()
            + spaces.sum::<usize>()
            + hosts(&self.hosts)
            + hosts(&self.subjects)
            + self.uids.as_ref().map_or(0, |uids| size_of_val(&**uids))
            + all.into_iter().map(texts).sum::<usize>()
    }

    /// The same with only its conditions on space and severity: covers the filter itself, and
    /// many that differ in the rest become one.
    #[must_use]
    pub fn widened(&self) -> Self {
        let (single, severities, spaces) = (self.single, self.severities, self.spaces.clone());
        Self { single, severities, spaces, ..Self::default() }
    }

    /// The users whose events it wants; `None`: those of all.
    pub fn uids(&self) -> Option<&[u32]> {
        self.uids.as_deref()
    }

    /// The same for events of these users only; `None`: of all. Agents that do not know the key
    /// `uid` get the filter without it, which covers it.
    #[must_use]
    pub fn of_users(&self, uids: Option<&[u32]>) -> Self {
        Self { uids: uids.map(rising), ..self.clone() }
    }

    /// The hosts of the conditions that it wants, if they are listed and few. `None`: it may want
    /// those of any host.
    pub fn subject_hosts(&self) -> Option<Vec<String>> {
        match &self.subjects {
            Some(Hosts::List(list)) if list.len() <= HOSTS_TRIED_MAX => Some(list.iter().collect()),
            _ => None,
        }
    }

    /// If the filter names its event spaces without wildcards, these, in lower case: an index
    /// over many filters can then look the space of an event up. `None`: any space may match.
    pub fn literal_spaces(&self) -> Option<Vec<String>> {
        self.spaces.as_ref()?.iter().map(SpacePattern::literal).collect()
    }
}

impl fmt::Display for Filter {
    /// The canonical text, which parses to the same filter; empty for everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pairs: Vec<String> = Vec::new();
        fn join<T: fmt::Display>(parts: &[T]) -> String {
            parts.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
        }
        if let Some(spaces) = &self.spaces {
            pairs.push(format!("event_space={}", join(spaces)));
        }
        if self.severities != Severities::ALL {
            let wanted = Severity::ALL.into_iter().filter(|s| self.severities.contains(*s));
            let words: Vec<String> = wanted.map(|s| s.as_str().to_ascii_lowercase()).collect();
            pairs.push(format!("severity={}", words.join("|")));
        }
        if let Some(names) = &self.names {
            pairs.push(format!("event_name={}", join(names)));
        }
        for (key, hosts) in [("hostname", &self.hosts), ("subject", &self.subjects)] {
            match hosts {
                Some(Hosts::List(list)) => pairs.push(format!("{key}={list}")),
                Some(Hosts::Patterns(patterns)) => pairs.push(format!("{key}={}", join(patterns))),
                None => {}
            }
        }
        if let Some(conditions) = &self.conditions {
            pairs.push(format!("condition={}", join(conditions)));
        }
        if let Some(jobs) = &self.jobs {
            pairs.push(format!("jobid={}", join(jobs)));
        }
        if let Some(uids) = &self.uids {
            pairs.push(format!("uid={}", join(uids)));
        }
        if let Some(clients) = &self.clients {
            pairs.push(format!("client_name={}", join(clients)));
        }
        if self.single && self.conditions.is_none() && self.subjects.is_none() {
            pairs.push("folds=no".to_owned());
        }
        f.write_str(&pairs.join(", "))
    }
}

impl core::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests;
