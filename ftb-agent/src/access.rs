//! Access rules: which users may publish and subscribe in an event space.
//!
//! The rule with the longest matching event space decides. A configured rule replaces a built-in
//! one of the same space; what it leaves out is as the built-in rules have it.
//!
//! Whose job it is: the agent stamps each event with the user of its publisher. The spaces of jobs
//! are open to publishers, and a user reads only its own events there. So a job is a job id and a
//! user, and nothing that another user publishes with the job's id reaches it.
//!
//! Not responsible for: the identity of a peer ([`Credentials`]).

mod subuids;
mod who;

pub use subuids::SubUids;
pub use who::Who;

use ftb_core::node::api::Gap;
use ftb_core::space::lies_in;
use ftb_core::spaces::Spaces;
use ftb_core::{EventSpace, Severity};
use ftb_proto::event::{Permission, Rights};
use ftb_transport::Credentials;
use serde::Deserialize;
use std::sync::Arc;

/// The event space of the agents; no client may publish in it.
pub const AGENT_SPACE: &str = "ftb.agent";
/// The event spaces of our daemons, whose events move jobs and drain nodes, and the accounts that
/// their units start them as.
const DAEMON_SPACES: [(&str, &str); 5] = [
    ("ftb.ipmi", "ftb-ipmi"),
    ("ftb.ib", "ftb-ib"),
    ("ftb.facility", "ftb-bridge"),
    ("ftb.act", "ftb-act"),
    ("ftb.slurm", "slurm"),
];
/// The event space of drills that all jobs answer.
const DRILL_SPACE: &str = "ftb.drill";
/// The event space of silences (`ftbctl silence`).
const SILENCE_SPACE: &str = ftb_core::condition::SILENCE_SPACE;
/// The accounts of the publishers that state conditions of other hosts too, where they may publish.
const WATCHERS: [&str; 3] = ["ftb-ipmi", "ftb-bridge", "ftb-act"];
/// The event spaces of jobs: users read their own events there.
const JOB_SPACES: [&str; 4] = ["ftb.jl", "ftb.nla", "ftb.mpi", "ftb.job"];

/// One configured rule. What is left out is as in the built-in rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// The event space and all below it; `*` for every space.
    pub space: SpaceRule,
    /// Users that may publish.
    #[serde(default, deserialize_with = "who::one_or_more")]
    publish: Option<Vec<Who>>,
    /// Users that may subscribe.
    #[serde(default, deserialize_with = "who::one_or_more")]
    subscribe: Option<Vec<Who>>,
    /// The highest severity of users other than root and the agent's.
    severity_max: Option<SeverityName>,
}

/// A severity by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct SeverityName(pub(crate) Severity);

impl TryFrom<String> for SeverityName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse::<Severity>().map(Self).map_err(|error| error.to_string())
    }
}

/// Checks the rules.
///
/// # Errors
/// The first mistake.
pub fn check(rules: &[AccessRule]) -> Result<(), String> {
    let publishes_own = |rule: &&AccessRule| {
        rule.publish.as_ref().is_some_and(|publish| publish.contains(&Who::Own))
    };
    match rules.iter().find(publishes_own) {
        None => Ok(()),
        Some(rule) => Err(format!(
            "[[access]] of {}: \"own\" is for subscribe; for publish name users, or everyone",
            rule.space.as_str()
        )),
    }
}

/// An event space and all below it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SpaceRule(Option<EventSpace>);

impl TryFrom<String> for SpaceRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.strip_suffix(".*").unwrap_or(&text) {
            "*" => Ok(Self(None)),
            space => EventSpace::new(space).map(|s| Self(Some(s))).map_err(|e| e.to_string()),
        }
    }
}

impl SpaceRule {
    fn of(space: &str) -> Self {
        Self(EventSpace::new(space).ok())
    }

    /// The space; `None`: every space.
    pub fn space(&self) -> Option<&EventSpace> {
        self.0.as_ref()
    }

    /// The configured text.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("*", EventSpace::as_str)
    }

    /// The length of the match in bytes; `None` if the rule does not apply to this space.
    fn matches(&self, space: &[u8]) -> Option<usize> {
        let Some(rule) = &self.0 else { return Some(0) };
        lies_in(space, rule.as_str()).then_some(rule.as_str().len())
    }
}

/// A rule with nothing left out.
#[derive(Debug)]
struct Rule {
    space: SpaceRule,
    publish: Vec<Who>,
    subscribe: Vec<Who>,
    severity_max: Option<Severity>,
}

impl Rule {
    fn new(space: SpaceRule, publish: &[Who], subscribe: Who) -> Self {
        let (publish, subscribe) = (publish.to_vec(), vec![subscribe]);
        Self { space, publish, subscribe, severity_max: None }
    }

    /// Root, the agent's user and the daemon's account publish in the space of a daemon; root and
    /// the agent's user drill all jobs and silence; users read their own events of jobs; all users
    /// publish elsewhere, and read everything else.
    fn built_in(account: &impl Fn(&str) -> Option<Who>) -> Vec<Self> {
        let daemons = DAEMON_SPACES.map(|(space, name)| {
            let publish: Vec<Who> =
                [Who::Uid(0), Who::Agent].into_iter().chain(account(name)).collect();
            Self::new(SpaceRule::of(space), &publish, Who::Everyone)
        });
        let jobs =
            JOB_SPACES.map(|space| Self::new(SpaceRule::of(space), &[Who::Everyone], Who::Own));
        let trusted = [Who::Uid(0), Who::Agent];
        let trusted = [DRILL_SPACE, SILENCE_SPACE]
            .map(|space| Self::new(SpaceRule::of(space), &trusted, Who::Everyone));
        let elsewhere = Self::new(SpaceRule(None), &[Who::Everyone], Who::Everyone);
        daemons.into_iter().chain(jobs).chain(trusted).chain([elsewhere]).collect()
    }

    /// What is left out of a configured rule is as in the built-in one that decides there.
    fn configured(rule: &AccessRule, built_in: &[Self]) -> Self {
        let space = rule.space.as_str().as_bytes();
        let length = |other: &&Self| other.space.matches(space);
        let base = built_in.iter().filter(|other| length(other).is_some()).max_by_key(length);
        let or = |given: &Option<Vec<Who>>, base: Option<&Vec<Who>>| {
            given.as_ref().or(base).cloned().unwrap_or_default()
        };
        Self {
            space: rule.space.clone(),
            publish: or(&rule.publish, base.map(|base| &base.publish)),
            subscribe: or(&rule.subscribe, base.map(|base| &base.subscribe)),
            severity_max: rule.severity_max.map(|SeverityName(severity)| severity),
        }
    }

    /// Ordinary users may not publish there. A rule for every space protects none.
    fn is_protected(&self) -> bool {
        !self.publish.contains(&Who::Everyone) && self.space.space().is_some()
    }

    /// The highest severity of a user who is not trusted. Where all users may publish that is
    /// ERROR: FATAL is for those who are named.
    fn severity_max(&self) -> Severity {
        let open = self.publish.contains(&Who::Everyone);
        self.severity_max.unwrap_or(if open { Severity::Error } else { Severity::Fatal })
    }

    fn reading(&self, who: Credentials, agent_uid: u32) -> ReadRight {
        let is_trusted = who.uid == 0 || who.uid == agent_uid;
        let has_own = self.subscribe.contains(&Who::Own);
        if self.subscribe.iter().any(|w| w.is(who, agent_uid)) || has_own && is_trusted {
            return ReadRight::All;
        }
        if has_own { ReadRight::Own } else { ReadRight::None }
    }
}

/// Which events of an event space a user reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRight {
    /// None.
    None,
    /// Those that this user has published.
    Own,
    /// All.
    All,
}

/// All rules of an agent.
#[derive(Debug)]
pub struct Access {
    rules: Vec<Rule>,
    agent_uid: u32,
    /// Those of [`WATCHERS`] that this host has.
    watchers: Vec<Who>,
    subuids: SubUids,
}

impl Access {
    /// The configured rules over the built-in ones. An account that the host does not have
    /// publishes nothing.
    pub fn new(configured: &[AccessRule], agent_uid: u32) -> Self {
        Self::with_accounts(configured, agent_uid, |name| who::user(name).ok())
    }

    fn with_accounts(
        configured: &[AccessRule],
        agent_uid: u32,
        account: impl Fn(&str) -> Option<Who>,
    ) -> Self {
        let built_in = Rule::built_in(&account);
        let mut rules: Vec<Rule> =
            configured.iter().map(|rule| Rule::configured(rule, &built_in)).collect();
        for rule in built_in {
            if !rules.iter().any(|ours| ours.space == rule.space) {
                rules.push(rule);
            }
        }
        let watchers = WATCHERS.into_iter().filter_map(account).collect();
        Self { rules, agent_uid, watchers, subuids: SubUids::default() }
    }

    /// The same, with the subordinate users of a host.
    #[must_use]
    pub fn on_host(self, subuids: SubUids) -> Self {
        Self { subuids, ..self }
    }

    /// Whose budget a user uses. One that no budget limits uses that of no other.
    pub fn payer(&self, uid: u32) -> u32 {
        match self.unbounded_uids().contains(&uid) {
            true => uid,
            false => self.subuids.payer(uid),
        }
    }

    /// The event spaces in which ordinary users may not publish. Their events have a share of the
    /// log's reserve.
    pub fn protected(&self) -> Arc<[EventSpace]> {
        let closed = self.rules.iter().filter(|rule| rule.is_protected());
        let closed = closed.filter_map(|rule| rule.space.space());
        let agents = EventSpace::new(AGENT_SPACE).ok();
        agents.into_iter().chain(closed.cloned()).collect()
    }

    /// Root, the agent's user, and the users that rules of protected event spaces name one by one:
    /// no budget limits them.
    pub fn unbounded_uids(&self) -> Vec<u32> {
        let closed = self.rules.iter().filter(|rule| rule.is_protected());
        let named = closed.flat_map(|rule| &rule.publish).filter_map(|who| match who {
            Who::Uid(uid) => Some(*uid),
            _ => None,
        });
        let mut uids: Vec<u32> = [0, self.agent_uid].into_iter().chain(named).collect();
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    /// Whether ordinary users may not publish in this event space.
    pub fn is_protected(&self, space: &[u8]) -> bool {
        let length = |rule: &&Rule| rule.space.matches(space);
        let fitting = self.rules.iter().filter(|rule| length(rule).is_some());
        lies_in(space, AGENT_SPACE) || fitting.max_by_key(length).is_some_and(Rule::is_protected)
    }

    /// Whether it is root or the agent's own user.
    pub fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.agent_uid
    }

    /// Whether it is trusted or may publish in a protected event space. Places are reserved for
    /// these users.
    pub fn is_publisher(&self, who: Credentials) -> bool {
        let names = |rule: &Rule| rule.publish.iter().any(|w| w.is(who, self.agent_uid));
        let mut protected = self.rules.iter().filter(|rule| rule.is_protected());
        self.is_trusted(who.uid) || protected.any(names)
    }

    /// The rights of one client.
    pub fn of(self: &Arc<Self>, who: Credentials) -> Allowed {
        let allow = |rule: &Rule| Grant {
            space: rule.space.clone(),
            publish: rule.publish.iter().any(|w| w.is(who, self.agent_uid)),
            is_protected: rule.is_protected(),
            severity_max: match self.is_trusted(who.uid) {
                true => Severity::Fatal,
                false => rule.severity_max(),
            },
            reading: rule.reading(who, self.agent_uid),
        };
        let grants: Vec<Grant> = self.rules.iter().map(allow).collect();
        let reads_all = grants.iter().all(|grant| grant.reading == ReadRight::All);
        Allowed { grants, reads_all, source: Arc::clone(self), who }
    }
}

struct Grant {
    space: SpaceRule,
    publish: bool,
    /// Ordinary users may not publish there.
    is_protected: bool,
    severity_max: Severity,
    reading: ReadRight,
}

/// The rights of one client.
pub struct Allowed {
    grants: Vec<Grant>,
    reads_all: bool,
    source: Arc<Access>,
    who: Credentials,
}

impl Allowed {
    /// The user.
    pub fn uid(&self) -> u32 {
        self.who.uid
    }

    /// Applies changed rules.
    pub fn refresh(&mut self, rules: &Arc<Access>) {
        if !Arc::ptr_eq(&self.source, rules) {
            *self = rules.of(self.who);
        }
    }

    /// What it may publish in this event space; nothing in `ftb.agent`. Conditions move jobs:
    /// root, the agent's user and the publishers of a protected event space may state those of
    /// this host. Root, the agent's user and the accounts of those that watch other hosts may state
    /// those of any host there.
    pub fn permission(&self, space: &[u8]) -> Permission {
        let granted = self.deciding(space).filter(|grant| grant.publish);
        let Some(grant) = granted.filter(|_| !lies_in(space, AGENT_SPACE)) else {
            return Rights::None.into();
        };
        let is_trusted = self.source.is_trusted(self.who.uid);
        let watches = self.source.watchers.contains(&Who::Uid(self.who.uid));
        let rights = match (grant.is_protected, is_trusted) {
            (true, _) if is_trusted || watches => Rights::StateAnyHost,
            (false, false) => Rights::Publish,
            _ => Rights::StateOwnHost,
        };
        Permission { rights, severity_max: grant.severity_max }
    }

    /// Which events of this event space it reads.
    pub fn reading(&self, space: &[u8]) -> ReadRight {
        match self.reads_all {
            true => ReadRight::All,
            false => self.deciding(space).map_or(ReadRight::None, |grant| grant.reading),
        }
    }

    /// Whether it may read an event of this event space that this user has published.
    pub fn may_read(&self, space: &[u8], uid: u32) -> bool {
        match self.reading(space) {
            ReadRight::All => true,
            ReadRight::Own => uid == self.who.uid,
            ReadRight::None => false,
        }
    }

    /// Whether it may read every space, so that no check is necessary.
    pub fn reads_all(&self) -> bool {
        self.reads_all
    }

    /// What it may know of lost events: without the names of event spaces that it may not read.
    /// `None`: nothing. Number and severity are unknown then, because they count these events too.
    pub fn readable_gap(&self, gap: Gap) -> Option<Gap> {
        let Some(names) = gap.spaces.names().filter(|_| !self.reads_all) else { return Some(gap) };
        let known = |space: &EventSpace| {
            let grant = self.deciding(space.as_str().as_bytes())?;
            match grant.reading {
                ReadRight::All => Some(space.clone()),
                // A name below the rule's may be another user's.
                ReadRight::Own => grant.space.space().cloned().or(Some(space.clone())),
                ReadRight::None => None,
            }
        };
        let readable: Vec<EventSpace> = names.iter().filter_map(known).collect();
        if readable.is_empty() {
            return None;
        }
        let is_whole = readable.len() == names.len();
        let spaces = Spaces::named(readable.iter().map(EventSpace::as_str)).unwrap_or(Spaces::ANY);
        Some(Gap {
            spaces,
            count: gap.count.filter(|_| is_whole),
            severity_max: gap.severity_max.filter(|_| is_whole),
            ..gap
        })
    }

    fn deciding(&self, space: &[u8]) -> Option<&Grant> {
        let length = |grant: &&Grant| grant.space.matches(space);
        self.grants.iter().filter(|grant| length(grant).is_some()).max_by_key(length)
    }
}

#[cfg(test)]
mod tests;
