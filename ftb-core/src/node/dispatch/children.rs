//! Children come, say what they want, and go: what each part has to do then.

use crate::frame::{Frame, Heartbeat, Hello, HelloAck, HelloNack, NackCode, TreeState};
use crate::ident::{OriginId, Rank};
use crate::node::Node;
use crate::node::api::{LinkId, MemberState};
use crate::node::links::LinkRole;
use crate::node::tree::{Child, Raise, check_listed};
use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};
use crate::protocol::FEATURES;

impl Node {
    /// Where we stand, for children.
    pub(crate) fn tree_state(&self) -> TreeState {
        let mut path = Vec::new();
        let mut standby = None;
        if let Some(parent) = self.role.parent() {
            path.clone_from(&parent.path);
            standby = parent.standby;
        } else if let Some(root) = self.role.root() {
            let standby_link = root.standby;
            standby = standby_link.and_then(|link| self.tree.child(link)).map(|c| c.rank);
        }
        if (self.role.is_root() || !path.is_empty())
            && let Some(rank) = self.cx.rank
        {
            path.push(rank);
        }
        let (epochs, head) = (self.log.epochs().clone(), self.log.commit_index());
        TreeState { epochs, head, path, standby }
    }

    /// Tells all children where we stand now.
    pub(crate) fn send_tree_state(&mut self) {
        let tree_state = self.tree_state();
        let epoch = tree_state.epochs.head();
        for (link, before) in self.tree.report_epoch(epoch) {
            self.delivery.unsettle_child(link);
            // A root that goes on with its log loses nothing that its children had of it.
            if (before.root != epoch.root || !tree_state.epochs.knows(before))
                && let Some(child) = self.tree.child(link)
            {
                self.membership.expect_re_proposals(&self.cx, child.rank);
            }
        }
        for (link, _) in self.tree.children() {
            self.cx.send(link, Frame::TreeState(Box::new(tree_state.clone())));
        }
        self.refresh_around();
        self.choose_standby();
    }

    /// An agent wants to be a child.
    pub(crate) fn on_hello(&mut self, link: LinkId, hello: Hello) {
        let rank = match self.admit(link, &hello) {
            Ok(Some(rank)) => rank,
            Ok(None) => return self.membership.await_assignment(&mut self.cx, link, hello),
            Err(hello_nack) => return self.refuse(link, &hello, hello_nack),
        };
        if self.has_invented_epoch(&hello) {
            let (host, own) = (&hello.host, &self.cx.config.host);
            let message = format!("{host} brings a log with an epoch that {own} has not opened");
            let nack = HelloNack { code: NackCode::Epoch, message, redirect: Vec::new() };
            return self.refuse(link, &hello, nack);
        }
        let theirs = hello.epochs.head();
        let mut epoch_seen = self.epoch_seen.max(hello.epoch_seen).max(theirs.number);
        if theirs > self.log.head() && theirs.number == epoch_seen {
            // Two acting roots have opened the same number: ours must rise above both.
            epoch_seen += 1;
        }
        let is_higher = epoch_seen > self.epoch_seen;
        if is_higher && self.tree.raise(&self.cx, rank, epoch_seen) != Raise::Counts {
            let message = format!(
                "{} has raised the epoch too often: {} lets it do so later",
                hello.host, self.cx.config.host
            );
            return self.put_off(link, message);
        }
        self.epoch_seen = epoch_seen;
        self.lose_former_link(rank, hello.origin);
        self.make_room(rank);
        let send_log = match self.compare_histories(rank, &hello) {
            Some(false) => {
                let message = format!(
                    "{} has just started and waits for the log of {}'s component",
                    self.cx.config.host, hello.host
                );
                return self.put_off(link, message);
            }
            send_log => send_log.is_some(),
        };
        self.tree.warn_of_mismatches(&mut self.cx, &hello);
        if send_log {
            self.begin_install(link, rank, &hello);
        } else {
            self.raise_epoch();
            self.report_fork(hello.epochs.position(hello.commit_index));
        }
        self.welcome(link, rank, hello, send_log);
    }

    /// Whether a log has an epoch of this life of this agent that the agent has not opened.
    fn has_invented_epoch(&self, hello: &Hello) -> bool {
        let (own, seen) = (self.cx.config.origin, self.epoch_seen);
        let mut epochs = hello.epochs.segments().iter().map(|segment| segment.epoch);
        epochs.any(|epoch| epoch.root == own && epoch.number > seen)
    }

    /// An agent may be a child later.
    fn put_off(&mut self, link: LinkId, message: String) {
        let hello_nack = HelloNack { code: NackCode::Busy, message, redirect: Vec::new() };
        self.cx.send(link, Frame::HelloNack(hello_nack));
        self.cx.close(link, None, "it must come later");
    }

    /// An agent comes back on another link, or another incarnation of it comes.
    fn lose_former_link(&mut self, rank: Rank, origin: OriginId) {
        let Some(old) = self.tree.link_of(rank) else { return };
        let old_origin = self.tree.child(old).map(|child| child.origin);
        let why = "the same agent has come back on another link";
        self.lose_child(old, MemberState::Moved, why);
        self.cx.decline(old, "replaced by a newer link");
        if let Some(old_origin) = old_origin.filter(|old| *old != origin) {
            self.tree.replaced(rank, old_origin);
        }
    }

    /// A full parent takes an agent whose rank is lower than those of all its children, since a
    /// parent has the lower rank. The child with the highest rank finds a place below the others.
    fn make_room(&mut self, rank: Rank) {
        let Some(link) = self.tree.to_displace(&self.cx, rank) else { return };
        let why = "an agent of lower rank needs the place";
        self.lose_child(link, MemberState::Moved, why);
        self.cx.decline(link, why);
    }

    /// The agent is a child now.
    fn welcome(&mut self, link: LinkId, rank: Rank, hello: Hello, send_log: bool) {
        self.membership.note_address(&hello.host, &hello.address);
        let Some(own_rank) = self.cx.rank else { return self.cx.impossible("ParentHasRank") };
        let is_ours = self.log.epochs().contains(hello.epochs.position(hello.commit_index));
        let tree_state = self.tree_state();
        let features = hello.features.common(FEATURES);
        self.cx.links.set_role(link, LinkRole::Child);
        self.cx.links.set_features(link, features);
        let child = Child::new(&self.cx, &hello, rank, tree_state.epochs.head());
        self.tree.add_child(link, child);
        self.publishing.attach_child(link);
        self.membership.expect_re_proposals(&self.cx, rank);
        let index = if is_ours { hello.commit_index } else { self.log.commit_index() };
        self.delivery.attach_child(link, index);
        self.refresh_around();
        let versions = self.cx.config.versions;
        let hello_ack = HelloAck {
            protocol: versions.common(hello.versions).unwrap_or(versions.max),
            features,
            host: self.cx.config.host.clone(),
            rank: own_rank,
            origin: self.cx.config.origin,
            assigned: rank.is_unlisted().then_some(rank),
            tree_state,
            window_bytes: self.cx.config.window_bytes,
            send_log,
            wall_ns: self.cx.now.wall_ns,
        };
        self.cx.send(link, Frame::HelloAck(Box::new(hello_ack)));
        self.reading(|delivery, cx| delivery.on_interest(cx, link, hello.interest));
        self.membership.confirm_rank(&mut self.cx, hello.host, rank);
        if let Some(parent) = self.role.parent().map(|parent| parent.link) {
            self.cx.heartbeat(parent);
        }
    }

    /// Refuses an agent that wants to be a child.
    pub(crate) fn refuse(&mut self, link: LinkId, hello: &Hello, hello_nack: HelloNack) {
        self.cx.counters.refused += 1;
        let why = format!("{}: {}", hello_nack.code.as_str(), hello_nack.message);
        self.cx.transition("child", &hello.host, "asking", "refused", &why);
        self.tree.report_refused(&mut self.cx, link, hello, &hello_nack);
        self.cx.send(link, Frame::HelloNack(hello_nack));
        self.cx.close(link, None, &why);
    }

    /// The place of an agent that may be our child; `None`: it is in no list, and its place is to
    /// be asked for.
    fn admit(&self, link: LinkId, hello: &Hello) -> Result<Option<Rank>, HelloNack> {
        self.tree.check_hello(&self.cx, link, hello)?;
        let rank = match hello.rank.filter(|rank| !rank.is_unlisted()) {
            Some(rank) => {
                check_listed(&self.cx, rank, hello)?;
                rank
            }
            None => match self.membership.admit_dynamic(&self.cx, hello)? {
                Some(rank) => rank,
                None => return Ok(None),
            },
        };
        self.tree.check_place(&self.cx, rank, hello)?;
        Ok(Some(rank))
    }

    /// A child says where it resumes in the epoch history that it got.
    pub(crate) fn on_resume(&mut self, link: LinkId, epoch: Epoch, after: LogIndex) {
        if epoch != self.log.head() {
            self.cx.counters.stale += 1;
            return;
        }
        let Some(news) = self.tree.attach(&mut self.cx, link, epoch) else { return };
        let Some(child) = self.tree.child(link) else { return };
        let (host, sighting) = (child.host.clone(), child.sighting());
        self.refresh_around();
        if self.publishing.take_missed(link) {
            self.cx.send(link, Frame::Resend);
        }
        if news {
            self.membership.member_up(&mut self.cx, sighting, &host);
            self.cx.transition("child", &host, "welcomed", "attached", "it resumes");
            self.membership.ask_newcomer(&mut self.cx, link, sighting.rank);
            self.membership.send_snapshot_to(&mut self.cx, link);
            self.choose_standby();
        }
        self.reading(|delivery, cx| delivery.on_resume(cx, link, after));
    }

    /// A child is gone: where to, as far as that is known here.
    pub(crate) fn lose_child(&mut self, link: LinkId, state: MemberState, why: &str) {
        // It was lost already in this input.
        let Some(child) = self.tree.remove_child(link) else { return };
        self.refresh_around();
        self.cx.counters.children_lost += 1;
        self.membership.forget_claims(link);
        self.tree.compares_no_more(&self.cx, &child.host);
        // It has come below another child, which has said so.
        let has_moved = state == MemberState::Suspect && self.membership.is_claimed(child.rank);
        let state = if has_moved { MemberState::Moved } else { state };
        let suspected = state == MemberState::Suspect;
        let to = if suspected { "lost" } else { "left" };
        self.cx.transition("child", &child.host, "attached", to, why);
        self.publishing.detach_child(link);
        self.membership.dynamic.child_gone(link);
        self.reading(|delivery, cx| delivery.detach_child(cx, link));
        self.abort_install(link);
        let sighting = child.sighting();
        if self.membership.member_gone(&mut self.cx, sighting, &child.host, state, why) && suspected
        {
            self.membership.suspect(&mut self.cx, sighting, &child.host, why);
        }
        self.membership.withdraw(&mut self.cx, sighting.rank);
        self.standby_gone(link);
        self.choose_standby();
    }

    /// A child has closed the link. An agent that stops has stopped, also where it was never
    /// attached.
    pub(crate) fn on_child_close(&mut self, link: LinkId, stopping: bool, why: &str) {
        if !stopping {
            return self.lose_child(link, MemberState::Moved, why);
        }
        let welcomed = self.tree.child(link).filter(|child| !child.attached);
        let welcomed = welcomed.map(|child| (child.sighting(), child.host.clone()));
        self.lose_child(link, MemberState::Absent, why);
        if let Some((child, host)) = welcomed {
            self.membership.member_is(&mut self.cx, child, &host, MemberState::Absent);
        }
    }

    /// The next frame for a child, most urgent first; control frames have gone already.
    pub(crate) fn poll_child(&mut self, link: LinkId, bytes_max: usize) -> Option<Frame> {
        let frame = self.publishing.poll_child(&self.cx, link);
        let frame = frame.or_else(|| self.poll_shipper(link, bytes_max));
        frame.or_else(|| self.reading(|delivery, cx| delivery.poll_down(cx, link, bytes_max)))
    }

    /// What a heartbeat to a child says.
    pub(crate) fn child_heartbeat(&self, link: LinkId) -> Heartbeat {
        let is_idle = self.delivery.is_child_idle(&self.log, link);
        let covered = Position { epoch: self.log.head(), index: self.log.commit_index() };
        Heartbeat { covered: is_idle.then_some(covered), ..Heartbeat::default() }
    }
}
