//! The uplink: hellos, the choice of a parent, and its loss.
//!
//! Responsible for: which answer to a hello is taken, and the state of the parent. Not responsible
//! for: which agents are dialled ([`crate::node::tree::search`]), the upward flow
//! ([`crate::node::publishing::upward`]), the acting root ([`crate::node::role::root`]).

use crate::epochs::EpochHistory;
use crate::frame::{Frame, Hello, HelloAck, HelloNack, LogRange, NackCode, TreeState, UpItem};
use crate::ident::Rank;
use crate::node::Node;
use crate::node::api::{DialId, LinkId, MemberState};
use crate::node::config::{MemberList, ns};
use crate::node::links::LinkRole;
use crate::node::role::parent::Parent;
use crate::node::role::{KeptLog, Role, RoleCause};
use crate::node::tree::children::Child;
use crate::protocol::FEATURES;
use crate::severity::Severity;
use crate::tree;
use std::collections::{BTreeMap, VecDeque};

/// The pause before an agent comes back to a busy parent.
const BUSY_MS: u64 = 100;

/// The longest time in which a parent that was lost repeatedly is avoided.
const FLAP_MS_MAX: u64 = 30_000;
/// After this time without a loss, a parent has a clean record.
const FLAP_FORGET_MS: u64 = 300_000;
/// Most parents whose losses are remembered.
const FLAPS_MAX: usize = 64;

/// Where the search for a parent stands.
pub(in crate::node) struct Uplink {
    pub(in crate::node) dials: BTreeMap<DialId, (Rank, u64)>,
    pub(in crate::node) dialing: BTreeMap<LinkId, Dialing>,
    hellos: u64,
    /// The present pause between two searches.
    pub(in crate::node) pause_ms: u64,
    /// Ranks seen alive lately: the way to the root, and the standby.
    pub(in crate::node) hints: Vec<Rank>,
    /// Whom a full parent named.
    pub(in crate::node) redirects: VecDeque<Rank>,
    /// Who is there and will have us a little later.
    pub(in crate::node) busy: Vec<Rank>,
    pub(in crate::node) busy_ns: u64,
    /// Most agents that are asked at once now.
    pub(in crate::node) width: usize,
    /// How often a better parent of another component was found in a row.
    foreign: u32,
    /// Not before this is the parent left for a better one.
    pub(in crate::node) stay_until_ns: u64,
    /// How long to stay below the next parent.
    settle_ms: u64,
    /// The agent that knows of a duplicate with this rank: only it is asked until that changes.
    pub(in crate::node) duplicate_seen_by: Option<Rank>,
    /// Parents that were lost: how often in a row, and when last.
    lost: BTreeMap<Rank, (u32, u64)>,
    /// Where the acting root's rotation through all lower ranks stands.
    pub(in crate::node) rotation: u32,
}

/// An agent that we said hello to.
pub(in crate::node) struct Dialing {
    pub(in crate::node) rank: Rank,
    pub(in crate::node) deadline_ns: u64,
    hello_ack: Option<Box<HelloAck>>,
}

/// How often a better parent in another component must fail to bring this component along before an
/// agent leaves alone. Its acting root should move first, and re-propose its log.
const FOREIGN_MAX: u32 = 4;

impl Uplink {
    pub(in crate::node) fn new() -> Self {
        Self {
            dials: BTreeMap::new(),
            dialing: BTreeMap::new(),
            hellos: 0,
            pause_ms: 0,
            hints: Vec::new(),
            redirects: VecDeque::new(),
            busy: Vec::new(),
            busy_ns: 0,
            width: 1,
            foreign: 0,
            stay_until_ns: 0,
            settle_ms: 0,
            duplicate_seen_by: None,
            lost: BTreeMap::new(),
            rotation: 0,
        }
    }

    /// A parent was lost without a word.
    fn note_lost(&mut self, rank: Rank, now_ns: u64) {
        self.lost.retain(|_, (_, at)| at.saturating_add(ns(FLAP_FORGET_MS)) > now_ns);
        if self.lost.len() < FLAPS_MAX || self.lost.contains_key(&rank) {
            let (times, at_ns) = self.lost.entry(rank).or_insert((0, now_ns));
            *times = times.saturating_add(1);
            *at_ns = now_ns;
        }
    }

    /// Whether an agent may move (back) to that parent: one that was lost is left alone for a time
    /// that doubles with each loss in a row.
    pub(in crate::node) fn is_trusted(&self, rank: Rank, settle_ms: u64, now_ns: u64) -> bool {
        let Some((times, at_ns)) = self.lost.get(&rank) else { return true };
        let doubled = settle_ms.saturating_mul(1 << (times - 1).min(16));
        at_ns.saturating_add(ns(doubled.min(FLAP_MS_MAX))) <= now_ns
    }

    pub(in crate::node) fn under_way(&self) -> usize {
        self.dials.len() + self.dialing.len()
    }

    pub(in crate::node) fn tries(&self, rank: Rank) -> bool {
        self.dials.values().any(|(dialed, _)| *dialed == rank)
            || self.dialing.values().any(|candidate| candidate.rank == rank)
    }
}

impl Node {
    /// The configuration has changed.
    pub(in crate::node) fn on_reconfigure(&mut self, members: MemberList, fanout: u32) {
        if self.cx.config.members.digest() != members.digest() {
            self.membership.reset_snapshot(&mut self.cx);
        }
        self.cx.config.members = members;
        self.cx.config.fanout = fanout;
        let unlisted = self.cx.rank.filter(|rank| rank.is_unlisted());
        let rank = self.cx.config.members.rank_of(&self.cx.config.host).or(unlisted);
        let moved = rank != self.cx.rank;
        self.cx.rank = rank;
        let place = |child: &Child| match self.cx.is_strange(child.rank, &child.host) {
            true => Some(MemberState::Absent),
            false => moved.then_some(MemberState::Moved),
        };
        let children = self.children.iter();
        let strange: Vec<(LinkId, MemberState)> =
            children.filter_map(|(link, child)| Some((*link, place(child)?))).collect();
        for (link, state) in strange {
            self.lose_child(link, state, "the member list has changed");
            self.cx.decline(link, "the member list has changed");
        }
        self.membership.forget_strange_moves(&self.cx);
        let parent = self.role.parent().map(|p| (p.link, p.rank, p.host.clone()));
        if let Some((link, rank, host)) = parent
            && (moved || self.cx.is_strange(rank, &host))
        {
            self.cx.decline(link, "the member list has changed");
            self.on_parent_lost(true, "the member list has changed");
        }
        self.plan_probe_from_start();
    }

    pub(in crate::node) fn on_dialed(&mut self, dial: DialId, link: LinkId) {
        if self.membership.on_probe_connected(&mut self.cx, dial, link) {
            return;
        }
        let Some((rank, _)) = self.uplink.dials.remove(&dial) else {
            self.cx.counters.stale += 1;
            self.cx.open(link, LinkRole::Closing);
            return self.cx.close(link, None, "this dial is stale");
        };
        let deadline_ns = self.cx.after_ms(self.cx.config.dial_ms);
        self.cx.open(link, LinkRole::Dialing);
        self.uplink.dialing.insert(link, Dialing { rank, deadline_ns, hello_ack: None });
        self.uplink.hellos += 1;
        let hello = self.hello();
        self.cx.send(link, Frame::Hello(Box::new(hello)));
    }

    fn hello(&self) -> Hello {
        Hello {
            versions: self.cx.config.versions,
            features: FEATURES,
            cluster: self.cx.config.cluster.clone(),
            host: self.cx.config.host.clone(),
            rank: self.cx.rank,
            address: self.cx.config.address.clone(),
            origin: self.cx.config.origin,
            members_digest: self.cx.config.members.digest(),
            epochs: self.log.epochs().clone(),
            commit_index: self.log.commit_index(),
            log_range: self.holding(),
            epoch_seen: self.epoch_seen,
            interest: self.delivery.interest(),
            wall_ns: self.cx.now.wall_ns,
            // Higher than those of an earlier incarnation, unless this host's clock was set back.
            attempt: self.cx.started.wall_ns.saturating_add(self.uplink.hellos),
        }
    }

    /// The part of the log that this agent could send as a whole.
    fn holding(&self) -> Option<LogRange> {
        let replica = self.role.replica().or(self.past.as_ref().map(|past| &past.replica));
        match (self.role.root(), replica) {
            (Some(_), _) => {
                Some(LogRange { after: self.log.memory_after(), until: self.log.last() })
            }
            (None, Some(replica)) if replica.complete => {
                Some(LogRange { after: replica.log.evicted(), until: replica.log.last() })
            }
            // It was offered to a root that has not taken it.
            _ if self.role.is_offered() => {
                Some(LogRange { after: self.log.memory_after(), until: self.log.last() })
            }
            _ => None,
        }
    }

    /// A hello was answered with a place.
    pub(in crate::node) fn on_hello_ack(&mut self, link: LinkId, hello_ack: Box<HelloAck>) {
        let Some(candidate) = self.uplink.dialing.get_mut(&link) else {
            return self.misbehaved(link, "a second answer to the hello");
        };
        let problem = if !self.cx.config.versions.contains(hello_ack.protocol) {
            Some(format!(
                "{} answered with protocol {}, {} speaks {}: upgrade both to the same release",
                hello_ack.host, hello_ack.protocol, self.cx.config.host, self.cx.config.versions
            ))
        } else if hello_ack.rank != candidate.rank {
            Some(format!(
                "rank {} was dialled and {} of rank {} answered: the member lists differ",
                candidate.rank, hello_ack.host, hello_ack.rank
            ))
        } else {
            None
        };
        if let Some(message) = problem {
            self.uplink.dialing.remove(&link);
            self.cx.close(link, None, &message);
            return self.search_on();
        }
        self.epoch_seen = self.epoch_seen.max(hello_ack.tree_state.epochs.head().number);
        candidate.hello_ack = Some(hello_ack);
        self.consider(link);
    }

    /// A parent whose answer waits follows another log now.
    pub(in crate::node) fn on_early_tree_state(&mut self, link: LinkId, tree_state: TreeState) {
        let candidate = self.uplink.dialing.get_mut(&link);
        let Some(hello_ack) = candidate.and_then(|candidate| candidate.hello_ack.as_mut()) else {
            return self.misbehaved(link, "a tree state before the answer to the hello");
        };
        hello_ack.tree_state = tree_state;
        self.consider(link);
    }

    /// Takes the answer to a hello, declines it, or waits until the parent has the epoch of this
    /// agent.
    fn consider(&mut self, link: LinkId) {
        let candidate = self.uplink.dialing.get(&link);
        let answered = candidate.and_then(|found| Some((found.rank, found.hello_ack.as_ref()?)));
        let Some((rank, hello_ack)) = answered else {
            return self.cx.impossible("CandidateHasAnswered");
        };
        let theirs = hello_ack.tree_state.epochs.head();
        let ours = self.log.head();
        if theirs < ours && !hello_ack.send_log {
            // Fenced: it learnt our epoch from the hello, and its root will open a higher one.
            return;
        }
        let take = match self.role.parent() {
            None => true,
            Some(parent) => {
                let better =
                    tree::prefers(self.search_rank(), self.cx.config.fanout, rank, parent.rank);
                let same = theirs == ours;
                if better && !same {
                    self.uplink.foreign += 1;
                }
                better && (same || self.uplink.foreign >= FOREIGN_MAX)
            }
        };
        let Some(candidate) = self.uplink.dialing.remove(&link) else {
            return self.cx.impossible("CandidateHasAnswered");
        };
        match candidate.hello_ack {
            Some(hello_ack) if take => self.take_parent(link, *hello_ack),
            _ => self.cx.decline(link, "not needed"),
        }
    }

    /// Goes below a new parent: the new link first, then the old one is dropped.
    fn take_parent(&mut self, link: LinkId, hello_ack: HelloAck) {
        let from = match &self.role {
            Role::Searching(_) => "searching",
            Role::Root(_) => "root",
            _ => "joined",
        };
        if let Some(old) = self.role.parent().map(|parent| parent.link) {
            self.uplink.settle_ms = (self.uplink.settle_ms * 2).min(self.cx.config.probe_ms_max);
            self.cx.decline(old, "moved to a better parent");
            self.cx.counters.moves += 1;
        } else {
            self.uplink.settle_ms = self.cx.config.settle_ms;
        }
        self.cx.links.set_role(link, LinkRole::Parent);
        if let Some(rank) = hello_ack.assigned {
            self.membership.take_rank(&mut self.cx, rank);
        }
        let why = format!("{} of rank {} is the parent now", hello_ack.host, hello_ack.rank);
        self.cx.transition("parent", &hello_ack.host, from, "joined", &why);
        if !self.log.epochs().is_empty() {
            let tags = vec![
                ("host", self.cx.config.host.clone()),
                ("parent", hello_ack.host.clone()),
                ("from", from.to_owned()),
            ];
            self.cx.announce("FTB_TREE_REPARENTED", Severity::Info, tags, why.clone());
        }
        self.membership.forget_lost_root(&mut self.cx);
        if hello_ack.send_log
            && let Some((gap, _)) = self.role.root_mut().and_then(|root| root.unreadable.take())
        {
            self.append(UpItem::Gap(gap));
        }
        let parent = Box::new(Parent::new(link, &hello_ack));
        let mut left = None;
        self.change_role(RoleCause::ParentTaken, &why, |role| {
            left = Some(role);
            Role::Member(parent)
        });
        let Some(left) = left else { return self.cx.impossible("RoleIsReplaced") };
        let offers = if hello_ack.send_log {
            self.begin_offer(left, &why)
        } else {
            self.leave_role(left, &hello_ack.tree_state.epochs);
            false
        };
        self.settle_below_parent();
        let interest = self.delivery.unsettle_interest();
        self.cx.send(link, Frame::Subscribe(interest));
        if offers {
            // What the parent stands on now is given up as soon as it has our log.
            self.cx.wake(link);
        } else {
            self.on_tree_state(hello_ack.tree_state);
        }
        self.on_uplink_change();
        self.membership.forward_all_joins(&mut self.cx);
        self.membership.resend_all_members(&mut self.cx);
    }

    /// The search is over, and a move waits for a while.
    fn settle_below_parent(&mut self) {
        self.uplink.stay_until_ns = self.cx.after_ms(self.uplink.settle_ms);
        self.uplink.foreign = 0;
        self.uplink.duplicate_seen_by = None;
        self.plan_probe_from_start();
        for candidate in std::mem::take(&mut self.uplink.dialing).into_keys() {
            self.cx.decline(candidate, "another parent was faster");
        }
    }

    /// Another log goes on below the new parent: what of the last role may be nowhere else.
    fn leave_role(&mut self, left: Role, winning: &EpochHistory) {
        match left {
            Role::Root(root) => self.step_down(&root, winning),
            role => match role.into_log() {
                KeptLog::Whole(_) => self.re_propose_offered(winning),
                KeptLog::Copy(replica) => self.keep_copy(*replica),
                KeptLog::None => {}
            },
        }
    }

    /// The parent (just taken, or for long) says where it stands.
    pub(in crate::node) fn on_tree_state(&mut self, tree_state: TreeState) {
        self.epoch_seen = self.epoch_seen.max(tree_state.epochs.head().number);
        let Some(parent) = self.role.parent_mut() else {
            return self.cx.impossible("FrameFromParent");
        };
        parent.path = tree_state.path.clone();
        parent.standby = tree_state.standby;
        let link = parent.link;
        let known = parent.resumed == Some(tree_state.epochs.head());
        let mut hints = vec![parent.rank];
        hints.extend(tree_state.path.iter().rev().chain(&tree_state.standby));
        hints.dedup();
        self.uplink.hints = hints;
        self.refresh_around();
        if tree_state.epochs.is_empty() {
            return;
        }
        if tree_state.epochs.head() < self.log.head() {
            self.cx.counters.fenced += 1;
            return self.cx.heartbeat(link);
        }
        if !known {
            self.follow(&tree_state);
            let (epoch, after) = (self.log.head(), self.log.commit_index());
            if let Some(parent) = self.role.parent_mut() {
                parent.resumed = Some(epoch);
            }
            self.refresh_around();
            let (delivery, cx, here) = self.reading();
            delivery.restart_interest(here);
            cx.send(link, Frame::Resume { epoch, after });
            cx.wake(link);
            delivery.catch_up_all(cx, here, true);
        }
        self.send_tree_state();
    }

    /// A parent that was asked does not want us.
    pub(in crate::node) fn on_hello_nack(&mut self, link: LinkId, hello_nack: &HelloNack) {
        let Some(candidate) = self.uplink.dialing.remove(&link) else {
            return self.misbehaved(link, "a rejection without a hello");
        };
        self.cx.counters.rejected += 1;
        if hello_nack.code == NackCode::Busy {
            self.uplink.busy.push(candidate.rank);
            self.uplink.busy_ns = self.cx.after_ms(BUSY_MS);
        }
        let host = self
            .membership
            .member(&self.cx, candidate.rank)
            .map(|(host, _)| host)
            .unwrap_or_default();
        let why = format!("{}: {}", hello_nack.code.as_str(), hello_nack.message);
        self.cx.transition("parent", &host, "asked", "rejected", &why);
        let below = self.search_rank();
        let named = hello_nack.redirect.iter().copied().filter(|rank| *rank < below);
        self.uplink.redirects.extend(named.take(self.cx.config.dials_max));
        self.cx.close(link, None, "rejected");
        if hello_nack.code == NackCode::Duplicate {
            return self.stay_away(candidate.rank);
        }
        self.search_on();
    }

    /// Another agent has our rank and is there: we stay out of the tree until it has gone, and ask
    /// only the one who knows.
    fn stay_away(&mut self, reported_by: Rank) {
        self.uplink.duplicate_seen_by = Some(reported_by);
        self.uplink.redirects.clear();
        for link in std::mem::take(&mut self.uplink.dialing).into_keys() {
            self.cx.decline(link, "another agent has this rank");
        }
        if let Some(parent) = self.role.parent().map(|parent| parent.link) {
            self.cx.decline(parent, "another agent has this rank");
        }
        if !self.role.is_root() {
            self.become_root("another agent has this rank");
        }
    }

    /// A link with a pending hello is gone.
    pub(in crate::node) fn on_dialing_lost(&mut self, link: LinkId) {
        if self.uplink.dialing.remove(&link).is_some() {
            self.search_on();
        }
    }

    /// The parent is gone.
    pub(in crate::node) fn on_parent_lost(&mut self, stopping: bool, why: &str) {
        // It was left for another one in this input.
        let Some(parent) = self.role.parent() else { return };
        let (rank, host) = (parent.rank, parent.host.clone());
        self.cx.counters.parents_lost += 1;
        if !stopping {
            self.uplink.note_lost(rank, self.cx.now.mono_ns);
            self.membership.remember_lost_root(&self.cx);
        }
        self.cx.transition("parent", &host, "joined", if stopping { "left" } else { "lost" }, why);
        self.search(Some(rank), why);
    }
}
