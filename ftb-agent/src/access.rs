//! Access rules: which users may publish and subscribe in an event space.
//!
//! The rule with the longest matching event space decides. A configured rule replaces a built-in
//! one of the same space. Not responsible for: the identity of a peer ([`Credentials`]).

use ftb_core::EventSpace;
use ftb_core::space::lies_in;
use ftb_proto::event::Rights;
use ftb_transport::Credentials;
use nix::unistd::{Group, User};
use serde::Deserialize;
use std::sync::Arc;

/// The event space of the agents; no client may publish in it.
pub const AGENT_SPACE: &str = "ftb.agent";
/// The event spaces of the hardware publishers, whose events move jobs, and the accounts that their
/// units start them as.
const HARDWARE_SPACES: [(&str, &str); 2] = [("ftb.ipmi", "ftb-ipmi"), ("ftb.ib", "ftb-ib")];
/// The event space of drills that all jobs answer.
const DRILL_SPACE: &str = "ftb.drill";
/// The account of the publisher that watches other hosts too, where it may publish.
const WATCHER: &str = "ftb-ipmi";

/// One configured rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// The event space and all below it; `*` for every space.
    pub space: SpaceRule,
    /// Users that may publish.
    #[serde(default = "everyone")]
    pub publish: Vec<Who>,
    /// Users that may subscribe.
    #[serde(default = "everyone")]
    pub subscribe: Vec<Who>,
}

fn everyone() -> Vec<Who> {
    vec![Who::Everyone]
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

/// Some users.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Who {
    /// Every user of the host.
    Everyone,
    /// The user that the agent itself runs as.
    Agent,
    /// One user, by number.
    Uid(u32),
    /// Users of a primary group, or named as members of it.
    Group {
        /// Its number.
        gid: u32,
        /// The users that the group names as members, when the rules were read.
        members: Vec<u32>,
    },
}

impl TryFrom<String> for Who {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().map_err(|_| format!("{digits:?} is no number"));
        match text.split_once(':') {
            None if text == "everyone" => Ok(Self::Everyone),
            None if text == "agent" => Ok(Self::Agent),
            None => user(&text),
            Some(("user", name)) => user(name),
            Some(("group", name)) => group(name),
            Some(("uid", digits)) => number(digits).map(Self::Uid),
            Some(("gid", digits)) => {
                number(digits).map(|gid| Self::Group { gid, members: Vec::new() })
            }
            Some(_) => Err(format!(
                "{text:?} is no user: expected everyone, agent, user:NAME, group:NAME, uid:N or \
                     gid:N"
            )),
        }
    }
}

fn user(name: &str) -> Result<Who, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(Who::Uid(user.uid.as_raw())),
        Ok(None) => Err(format!("there is no user {name:?} on this host")),
        Err(error) => Err(format!("cannot look up the user {name:?}: {error}")),
    }
}

fn group(name: &str) -> Result<Who, String> {
    match Group::from_name(name) {
        Ok(Some(group)) => {
            let uid = |name: &String| User::from_name(name).ok().flatten().map(|u| u.uid.as_raw());
            let members = group.mem.iter().filter_map(uid).collect();
            Ok(Who::Group { gid: group.gid.as_raw(), members })
        }
        Ok(None) => Err(format!("there is no group {name:?} on this host")),
        Err(error) => Err(format!("cannot look up the group {name:?}: {error}")),
    }
}

impl Who {
    fn is(&self, who: Credentials, agent_uid: u32) -> bool {
        match self {
            Self::Everyone => true,
            Self::Agent => who.uid == agent_uid,
            Self::Uid(uid) => who.uid == *uid,
            Self::Group { gid, members } => who.gid == *gid || members.contains(&who.uid),
        }
    }
}

/// All rules of an agent.
#[derive(Debug)]
pub struct Access {
    rules: Vec<AccessRule>,
    agent_uid: u32,
    /// [`WATCHER`], if this host has it.
    watcher: Option<Who>,
}

impl Access {
    /// The configured rules over the built-in ones: only agents publish in `ftb.agent`; root, the
    /// agent's own user and the publisher's account, if the host has it, publish in a hardware
    /// space; root and the agent's own user drill all jobs; all users publish elsewhere and
    /// subscribe everywhere.
    pub fn new(configured: &[AccessRule], agent_uid: u32) -> Self {
        Self::with_accounts(configured, agent_uid, |name| user(name).ok())
    }

    fn with_accounts(
        configured: &[AccessRule],
        agent_uid: u32,
        account: impl Fn(&str) -> Option<Who>,
    ) -> Self {
        let hardware = HARDWARE_SPACES.map(|(space, name)| AccessRule {
            space: SpaceRule::of(space),
            publish: [Who::Uid(0), Who::Agent].into_iter().chain(account(name)).collect(),
            subscribe: everyone(),
        });
        let drill = AccessRule {
            space: SpaceRule::of(DRILL_SPACE),
            publish: vec![Who::Uid(0), Who::Agent],
            subscribe: everyone(),
        };
        let watcher = account(WATCHER);
        let everywhere =
            AccessRule { space: SpaceRule(None), publish: everyone(), subscribe: everyone() };
        let mut rules = configured.to_vec();
        for rule in hardware.into_iter().chain([drill, everywhere]) {
            if !rules.iter().any(|ours| ours.space == rule.space) {
                rules.push(rule);
            }
        }
        Self { rules, agent_uid, watcher }
    }

    /// The event spaces in which ordinary users may not publish. Their events have a share of the
    /// log's reserve. A rule for every space adds none.
    pub fn protected(&self) -> Arc<[EventSpace]> {
        let closed = |rule: &&AccessRule| !rule.publish.contains(&Who::Everyone);
        let closed = self.rules.iter().filter(closed).filter_map(|rule| rule.space.space());
        let agents = EventSpace::new(AGENT_SPACE).ok();
        agents.into_iter().chain(closed.cloned()).collect()
    }

    /// Root, the agent's user, and the users that rules of protected event spaces name one by one:
    /// no budget limits them.
    pub fn unbounded_uids(&self) -> Vec<u32> {
        let closed = |rule: &&AccessRule| !rule.publish.contains(&Who::Everyone);
        let closed = self.rules.iter().filter(closed).filter(|rule| rule.space.space().is_some());
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
        let length = |rule: &&AccessRule| rule.space.matches(space);
        let fitting = self.rules.iter().filter(|rule| length(rule).is_some());
        let is_closed = |rule: &AccessRule| {
            !rule.publish.contains(&Who::Everyone) && rule.space.space().is_some()
        };
        lies_in(space, AGENT_SPACE) || fitting.max_by_key(length).is_some_and(is_closed)
    }

    /// Whether it is root or the agent's own user.
    pub fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.agent_uid
    }

    /// The rights of one client.
    pub fn of(self: &Arc<Self>, who: Credentials) -> Allowed {
        let allow = |rule: &AccessRule| Grant {
            space: rule.space.clone(),
            publish: rule.publish.iter().any(|w| w.is(who, self.agent_uid)),
            is_protected: !rule.publish.contains(&Who::Everyone) && rule.space.space().is_some(),
            subscribe: rule.subscribe.iter().any(|w| w.is(who, self.agent_uid)),
        };
        let grants: Vec<Grant> = self.rules.iter().map(allow).collect();
        let reads_all = grants.iter().all(|grant| grant.subscribe);
        Allowed { grants, reads_all, source: Arc::clone(self), who }
    }
}

struct Grant {
    space: SpaceRule,
    publish: bool,
    /// Ordinary users may not publish there.
    is_protected: bool,
    subscribe: bool,
}

/// The rights of one client.
pub struct Allowed {
    grants: Vec<Grant>,
    reads_all: bool,
    source: Arc<Access>,
    who: Credentials,
}

impl Allowed {
    /// Applies changed rules.
    pub fn refresh(&mut self, rules: &Arc<Access>) {
        if !Arc::ptr_eq(&self.source, rules) {
            *self = rules.of(self.who);
        }
    }

    /// Whether it may publish in this event space. Never in `ftb.agent`.
    pub fn may_publish(&self, space: &[u8]) -> bool {
        self.rights(space) != Rights::None
    }

    /// What it may do in this event space. Conditions move jobs: root, the agent's user and the
    /// publishers of a protected event space may state those of this host. Root, the agent's user
    /// and ftb-ipmi may state those of any host there.
    pub fn rights(&self, space: &[u8]) -> Rights {
        let granted = self.deciding(space).filter(|grant| grant.publish);
        match granted {
            _ if lies_in(space, AGENT_SPACE) => Rights::None,
            None => Rights::None,
            Some(grant) => {
                let is_trusted = self.source.is_trusted(self.who.uid);
                let watches = self.source.watcher == Some(Who::Uid(self.who.uid));
                match (grant.is_protected, is_trusted) {
                    (true, _) if is_trusted || watches => Rights::StateAnyHost,
                    (false, false) => Rights::Publish,
                    _ => Rights::StateOwnHost,
                }
            }
        }
    }

    /// Whether it may read events of this event space.
    pub fn may_subscribe(&self, space: &[u8]) -> bool {
        self.reads_all || self.deciding(space).is_some_and(|grant| grant.subscribe)
    }

    /// Whether it may read every space, so that no check is necessary.
    pub fn reads_all(&self) -> bool {
        self.reads_all
    }

    fn deciding(&self, space: &[u8]) -> Option<&Grant> {
        let length = |grant: &&Grant| grant.space.matches(space);
        self.grants.iter().filter(|grant| length(grant).is_some()).max_by_key(length)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ROOT: Credentials = Credentials { uid: 0, gid: 0, pid: 1 };
    const AGENT: Credentials = Credentials { uid: 500, gid: 500, pid: 1 };
    const ANN: Credentials = Credentials { uid: 1000, gid: 100, pid: 1 };
    const BEN: Credentials = Credentials { uid: 1001, gid: 200, pid: 1 };

    fn rule(space: &str, publish: &[&str], subscribe: &[&str]) -> AccessRule {
        let who = |words: &[&str]| {
            words.iter().map(|w| Who::try_from((*w).to_owned()).unwrap()).collect()
        };
        AccessRule {
            space: SpaceRule::try_from(space.to_owned()).unwrap(),
            publish: who(publish),
            subscribe: who(subscribe),
        }
    }

    fn access(rules: &[AccessRule]) -> Arc<Access> {
        Arc::new(Access::new(rules, AGENT.uid))
    }

    #[test]
    fn without_rules_hardware_faults_come_from_root_and_the_agents_user_only() {
        let access = access(&[]);
        for (who, hardware) in [(ROOT, true), (AGENT, true), (ANN, false)] {
            let allowed = access.of(who);
            assert_eq!(allowed.may_publish(b"ftb.ipmi"), hardware);
            assert_eq!(allowed.may_publish(b"FTB.IB.hca"), hardware);
            assert_eq!(allowed.may_publish(b"ftb.drill"), hardware);
            assert!(allowed.may_publish(b"ftb.job.drill"), "of an own job");
            assert!(allowed.may_publish(b"ftb.jl"));
            assert!(allowed.may_publish(b"ftb.ibx"), "a longer part is another space");
            assert!(!allowed.may_publish(b"ftb.agent"), "not even root forges a verdict");
            assert!(!allowed.may_publish(b"ftb.agent.x"));
            assert!(allowed.may_subscribe(b"ftb.agent") && allowed.reads_all());
        }
    }

    #[test]
    fn the_longest_space_decides_and_configured_rules_replace_built_in_ones() {
        let access = access(&[
            rule("ftb.ipmi", &["gid:100"], &["everyone"]),
            rule("site.*", &["uid:1000"], &["uid:1000"]),
            rule("site.public", &["everyone"], &["everyone"]),
        ]);
        let (ann, ben) = (access.of(ANN), access.of(BEN));
        assert!(ann.may_publish(b"ftb.ipmi") && !ben.may_publish(b"ftb.ipmi"));
        assert!(!access.of(ROOT).may_publish(b"ftb.ipmi"), "replaced, not added to");
        assert!(ann.may_publish(b"site.x") && !ben.may_publish(b"site.x"));
        assert!(!ben.may_subscribe(b"site.x") && ben.may_subscribe(b"site.public.y"));
        assert!(ann.reads_all() && !ben.reads_all());
    }

    #[test]
    fn only_root_and_publishers_of_protected_spaces_state_conditions() {
        let access = access(&[rule("site.*", &["uid:1000"], &["everyone"])]);
        for (who, space, rights) in [
            (ROOT, "ftb.ipmi", Rights::StateAnyHost),
            (ROOT, "ftb.app", Rights::StateOwnHost),
            (AGENT, "ftb.app", Rights::StateOwnHost),
            (ANN, "ftb.app", Rights::Publish),
            (ANN, "ftb.ipmi", Rights::None),
            (ANN, "site.disk", Rights::StateOwnHost),
            (AGENT, "ftb.ipmi", Rights::StateAnyHost),
            (ROOT, "ftb.agent", Rights::None),
        ] {
            assert_eq!(access.of(who).rights(space.as_bytes()), rights, "{who:?} in {space}");
        }
    }

    #[test]
    fn each_publishers_account_publishes_in_its_own_space_only() {
        let account = |name: &str| match name {
            "ftb-ipmi" => Some(Who::Uid(ANN.uid)),
            "ftb-ib" => Some(Who::Uid(BEN.uid)),
            _ => None,
        };
        let access = Arc::new(Access::with_accounts(&[], AGENT.uid, account));
        for (who, space, rights) in [
            (ANN, "ftb.ipmi", Rights::StateAnyHost),
            (ANN, "ftb.ib", Rights::None),
            (BEN, "ftb.ib", Rights::StateOwnHost),
            (BEN, "ftb.ipmi", Rights::None),
            (ANN, "site", Rights::Publish),
            (ANN, "ftb.agent", Rights::None),
        ] {
            assert_eq!(access.of(who).rights(space.as_bytes()), rights, "{who:?} in {space}");
        }
        assert_eq!(access.unbounded_uids(), [0, AGENT.uid, ANN.uid, BEN.uid]);
    }

    #[test]
    fn spaces_in_which_ordinary_users_may_not_publish_are_protected() {
        let names = |access: Arc<Access>| {
            access.protected().iter().map(ToString::to_string).collect::<Vec<String>>()
        };
        assert_eq!(names(access(&[])), ["ftb.agent", "ftb.ipmi", "ftb.ib", "ftb.drill"]);
        let open =
            [rule("site.*", &["root"], &["everyone"]), rule("site.open", &["everyone"], &[])];
        let open = access(&open);
        for (space, is_protected) in
            [("site.x", true), ("Site.Open.y", false), ("ftb.agent.x", true), ("ftb.app", false)]
        {
            assert_eq!(open.is_protected(space.as_bytes()), is_protected, "{space}");
        }
        let site = [rule("site.*", &["root"], &["everyone"]), rule("ftb.ib", &["everyone"], &[])];
        assert_eq!(names(access(&site)), ["ftb.agent", "site", "ftb.ipmi", "ftb.drill"]);
    }

    #[test]
    fn a_rule_without_users_is_rejected() {
        let error = |text: &str| Who::try_from(text.to_owned()).unwrap_err();
        assert!(error("no-such-user-here").contains("no user"));
        assert!(error("uid:x").contains("no number"));
        assert!(error("role:x").contains("expected everyone"));
        assert_eq!(Who::try_from("root".to_owned()), Ok(Who::Uid(0)));
    }

    #[test]
    fn changed_rules_reach_a_client_that_is_attached() {
        let mut allowed = access(&[]).of(ANN);
        assert!(allowed.may_publish(b"site"));
        allowed.refresh(&access(&[rule("*", &["root"], &["everyone"])]));
        assert!(!allowed.may_publish(b"site"));
    }
}
