//! A parent is found, speaks, or is lost: what each part has to do then.

use crate::catalog::names;
use crate::epochs::EpochHistory;
use crate::frame::{Frame, Hello, HelloAck, HelloNack, LogRange, NackCode, TreeState, UpItem};
use crate::ident::Rank;
use crate::node::Node;
use crate::node::api::{DialId, HostAnswer, LinkId};
use crate::node::config::MemberList;
use crate::node::links::LinkRole;
use crate::node::role::parent::Parent;
use crate::node::role::{KeptLog, Role, RoleCause};
use crate::node::tree::NextDial;
use crate::protocol::{FEATURES, Features};
use crate::severity::Severity;

impl Node {
    /// The configuration has changed.
    pub(crate) fn on_reconfigure(&mut self, members: MemberList, fanout: u32) {
        if self.cx.config.members.digest() != members.digest() {
            self.membership.reset_snapshot(&mut self.cx);
        }
        self.cx.config.members = members;
        self.cx.config.fanout = fanout;
        let unlisted = self.cx.rank.filter(|rank| rank.is_unlisted());
        let rank = self.cx.config.members.rank_of(&self.cx.config.host).or(unlisted);
        let moved = rank != self.cx.rank;
        self.cx.rank = rank;
        for (link, state) in self.tree.children_off_member_list(&self.cx, moved) {
            self.lose_child(link, state, "the member list has changed");
            self.cx.decline(link, "the member list has changed");
        }
        self.membership.forget_moves_off_member_list(&self.cx);
        let parent = self.role.parent().map(|p| (p.link, p.rank, p.host.clone()));
        if let Some((link, rank, host)) = parent
            && (moved || self.cx.has_left_member_list(rank, &host))
        {
            self.cx.decline(link, "the member list has changed");
            self.on_parent_lost(true, "the member list has changed");
        }
        self.tree.plan_probe_from_start(&mut self.cx);
    }

    pub(crate) fn on_dialed(&mut self, dial: DialId, link: LinkId) {
        if self.membership.on_probe_connected(&mut self.cx, dial, link) {
            return;
        }
        if !self.tree.on_dialed(&mut self.cx, dial, link) {
            return;
        }
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
            // What the parent supports is not known yet.
            interest: self.delivery.interest().for_any(Features::default()),
            wall_ns: self.cx.now.wall_ns,
            attempt: self.tree.attempt(&self.cx),
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
    pub(crate) fn on_hello_ack(&mut self, link: LinkId, hello_ack: Box<HelloAck>) {
        let number = hello_ack.tree_state.epochs.head().number;
        match self.tree.on_hello_ack(&mut self.cx, link, hello_ack) {
            Ok(true) => {
                self.epoch_seen = self.epoch_seen.max(number);
                self.consider(link);
            }
            Ok(false) => self.search_on(),
            Err(what) => self.misbehaved(link, what),
        }
    }

    /// A parent whose answer waits follows another log now.
    pub(crate) fn on_early_tree_state(&mut self, link: LinkId, tree_state: TreeState) {
        match self.tree.on_early_tree_state(link, tree_state) {
            Ok(()) => self.consider(link),
            Err(what) => self.misbehaved(link, what),
        }
    }

    fn consider(&mut self, link: LinkId) {
        if let Some(hello_ack) = self.tree.consider(&mut self.cx, link, self.log.head()) {
            self.take_parent(link, *hello_ack);
        }
    }

    /// Goes below a new parent: the new link first, then the old one is dropped.
    fn take_parent(&mut self, link: LinkId, hello_ack: HelloAck) {
        let from = match &self.role {
            Role::Searching(_) => "searching",
            Role::Root(_) => "root",
            _ => "joined",
        };
        let old = self.role.parent().map(|parent| parent.link);
        self.tree.note_parent(&self.cx, old.is_some());
        if let Some(old) = old {
            self.cx.decline(old, "moved to a better parent");
            self.cx.counters.moves += 1;
        }
        self.cx.links.set_role(link, LinkRole::Parent);
        self.cx.links.set_features(link, hello_ack.features.common(FEATURES));
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
            self.cx.announce(names::FTB_TREE_REPARENTED, Severity::Info, tags, why.clone());
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
        self.tree.settle_below_parent(&mut self.cx);
        let interest = self.delivery.unsettle_interest().for_any(self.cx.links.features(link));
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

    /// The new parent follows another log. Keeps or re-proposes what only the last role had.
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
    pub(crate) fn on_tree_state(&mut self, tree_state: TreeState) {
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
        self.tree.set_hints(hints);
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
            self.delivery.restart_interest(after);
            self.cx.send(link, Frame::Resume { epoch, after });
            self.cx.wake(link);
            self.reading(|delivery, cx| delivery.catch_up_all(cx, true));
        }
        self.send_tree_state();
    }

    /// A parent that was asked does not want us.
    pub(crate) fn on_hello_nack(&mut self, link: LinkId, hello_nack: &HelloNack) {
        let Some(rank) = self.tree.on_hello_nack(&self.cx, link, hello_nack) else {
            return self.misbehaved(link, "a rejection without a hello");
        };
        self.cx.counters.rejected += 1;
        let host = self.host_of_rank(rank);
        let why = format!("{}: {}", hello_nack.code.as_str(), hello_nack.message);
        self.cx.transition("parent", &host, "asked", "rejected", &why);
        self.cx.close(link, None, "rejected");
        if hello_nack.code == NackCode::Duplicate {
            return self.stay_away(rank);
        }
        self.search_on();
    }

    pub(super) fn host_of_rank(&self, rank: Rank) -> String {
        self.membership.member(&self.cx, rank).map(|(host, _)| host).unwrap_or_default()
    }

    /// The host at the other end of a link.
    pub(crate) fn host_of(&self, link: LinkId) -> String {
        let child = self.tree.child(link).map(|child| child.host.clone());
        let parent = || self.role.parent().filter(|parent| parent.link == link);
        let dialed = || self.tree.dialed_rank(link).map(|rank| self.host_of_rank(rank));
        let known = child.or_else(|| parent().map(|parent| parent.host.clone())).or_else(dialed);
        known.filter(|host| !host.is_empty()).unwrap_or_else(|| "a neighbour".to_owned())
    }

    /// Another agent has our rank and is there: we stay out of the tree until it has gone, and ask
    /// only the one who knows.
    fn stay_away(&mut self, reported_by: Rank) {
        self.tree.stay_away(&mut self.cx, reported_by);
        if let Some(parent) = self.role.parent().map(|parent| parent.link) {
            self.cx.decline(parent, "another agent has this rank");
        }
        if !self.role.is_root() {
            self.become_root("another agent has this rank");
        }
    }

    /// A link with a pending hello is gone.
    pub(crate) fn on_dialing_lost(&mut self, link: LinkId) {
        if self.tree.on_dialing_lost(link) {
            self.search_on();
        }
    }

    /// The parent is gone.
    pub(crate) fn on_parent_lost(&mut self, stopping: bool, why: &str) {
        // It was left for another one in this input.
        let Some(parent) = self.role.parent() else { return };
        let (rank, host) = (parent.rank, parent.host.clone());
        self.cx.counters.parents_lost += 1;
        if !stopping {
            self.tree.note_lost(rank, self.cx.now.mono_ns);
            self.membership.remember_lost_root(&self.cx);
        }
        self.cx.transition("parent", &host, "joined", if stopping { "left" } else { "lost" }, why);
        self.search(Some(rank), why);
    }

    /// Looks for a parent, beginning at once.
    pub(crate) fn search(&mut self, lost_above: Option<Rank>, why: &str) {
        self.tree.begin_search(&mut self.cx, lost_above);
        let cause = match self.role {
            Role::Searching(_) => RoleCause::Started,
            _ => RoleCause::ParentLost,
        };
        self.change_role(cause, why, Role::into_search);
        let from = if lost_above.is_some() { "joined" } else { "none" };
        self.cx.transition("parent", "", from, "searching", why);
        self.search_on();
    }

    /// Dials on; without a candidate the agent becomes acting root.
    pub(crate) fn search_on(&mut self) {
        loop {
            match self.tree.next_dial(&self.cx) {
                // A probe has just found no agent there: a dial would end at its deadline.
                NextDial::Rank(rank) if self.membership.is_unresponsive(&self.cx, rank) => {}
                NextDial::Rank(rank) => self.dial(rank),
                NextDial::NoneLeft => return self.become_root("no lower rank answers"),
                NextDial::Wait => return,
            }
        }
    }

    fn dial(&mut self, rank: Rank) {
        if !self.tree.may_dial(&self.cx, rank) {
            return;
        }
        // Else the member list has become shorter.
        if let Some(member) = self.membership.member(&self.cx, rank) {
            self.tree.dial(&mut self.cx, rank, member);
        }
    }

    pub(crate) fn on_dial_failed(&mut self, dial: DialId, error: &str, answer: HostAnswer) {
        if self.membership.on_probe_failed(&mut self.cx, dial, answer) {
            return;
        }
        let Some(rank) = self.tree.on_dial_failed(&mut self.cx, dial, answer) else { return };
        if answer == HostAnswer::Nothing && self.role.is_searching() {
            let host = self.host_of_rank(rank);
            self.cx.transition("parent", &host, "asked", "silent", error);
        }
        self.search_on();
    }

    /// Asks for a better place.
    pub(crate) fn probe_better(&mut self) {
        for rank in self.tree.better_parents(&self.cx) {
            self.dial(rank);
        }
        self.tree.plan_next_probe(&mut self.cx);
    }
}
