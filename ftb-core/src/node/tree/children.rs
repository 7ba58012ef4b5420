//! The links to children: who may come, what each wants, and where each stands in the log.

use crate::filter::FilterSet;
use crate::frame::{
    Content, Down, Frame, Heartbeat, Hello, HelloAck, HelloNack, Interest, Item, NackCode,
    TreeState,
};
use crate::ident::{OriginId, Rank};
use crate::limits::BATCH_EVENTS_MAX;
use crate::log::reader::{ReadLimit, Reader};
use crate::node::Node;
use crate::node::api::{LinkId, MemberState};
use crate::node::around::Sighting;
use crate::node::delivery::history::Requester;
use crate::node::links::LinkRole;
use crate::node::role::standby::LogShipper;
use crate::position::Epoch;
use crate::protocol::FEATURES;

/// One child.
pub(in crate::node) struct Child {
    pub(in crate::node) rank: Rank,
    pub(in crate::node) host: String,
    pub(in crate::node) origin: OriginId,
    attempt: u64,
    pub(in crate::node) since_ns: u64,
    /// What its subtree wants.
    pub(in crate::node) filters: FilterSet,
    /// The version of that which is not yet reported as active.
    inactive_version: Option<u64>,
    interest_version: u64,
    pub(in crate::node) reader: Reader,
    /// The head of the epoch history that it got last.
    reported: Epoch,
    /// It has said in this epoch history where it resumes.
    pub(in crate::node) attached: bool,
    pub(in crate::node) shipper: Option<LogShipper>,
}

impl Child {
    pub(in crate::node) fn sighting(&self) -> Sighting {
        Sighting { rank: self.rank, origin: self.origin, attempt: self.attempt }
    }
}

impl Node {
    /// Where we stand, for children.
    pub(in crate::node) fn tree_state(&self) -> TreeState {
        let mut path = Vec::new();
        let mut standby = None;
        if let Some(parent) = self.role.parent() {
            path.clone_from(&parent.path);
            standby = parent.standby;
        } else if let Some(root) = self.role.root() {
            let standby_link = root.standby;
            standby = standby_link.and_then(|link| self.children.get(&link)).map(|c| c.rank);
        }
        if (self.role.is_root() || !path.is_empty())
            && let Some(rank) = self.cx.rank
        {
            path.push(rank);
        }
        TreeState { epochs: self.epochs.clone(), head: self.commit_index, path, standby }
    }

    /// Tells all children where we stand now.
    pub(in crate::node) fn send_tree_state(&mut self) {
        let tree_state = self.tree_state();
        let epoch = tree_state.epochs.head();
        let links: Vec<LinkId> = self.children.keys().copied().collect();
        for link in links {
            if let Some(child) = self.children.get_mut(&link)
                && child.reported != epoch
            {
                child.reported = epoch;
                child.attached = false;
            }
            self.cx.send(link, Frame::TreeState(Box::new(tree_state.clone())));
        }
        self.refresh_around();
        self.choose_standby();
    }

    /// An agent wants to be a child.
    pub(in crate::node) fn on_hello(&mut self, link: LinkId, hello: Hello) {
        let rank = match self.admit(link, &hello) {
            Ok(Some(rank)) => rank,
            Ok(None) => return self.membership.await_assignment(&mut self.cx, link, hello),
            Err(hello_nack) => return self.refuse(link, &hello, hello_nack),
        };
        let theirs = hello.epochs.head();
        self.epoch_seen = self.epoch_seen.max(hello.epoch_seen).max(theirs.number);
        if theirs > self.epochs.head() && theirs.number == self.epoch_seen {
            // Two acting roots have opened the same number: ours must rise above both.
            self.epoch_seen += 1;
        }
        self.lose_former_link(rank, hello.origin);
        let send_log = match self.compare_histories(&hello) {
            Some(false) => {
                let message = format!(
                    "{} has just started and waits for the log of {}'s component",
                    self.cx.config.host, hello.host
                );
                let hello_nack = HelloNack { code: NackCode::Busy, message, redirect: Vec::new() };
                self.cx.send(link, Frame::HelloNack(hello_nack));
                return self.cx.close(link, None, "it must come later");
            }
            send_log => send_log.is_some(),
        };
        self.warn_of_mismatches(&hello);
        if send_log {
            self.begin_install(link);
        } else {
            self.raise_epoch();
            self.report_fork(hello.epochs.position(hello.commit_index));
        }
        self.welcome(link, rank, hello, send_log);
    }

    /// An agent comes back on another link, or another incarnation of it comes.
    fn lose_former_link(&mut self, rank: Rank, origin: OriginId) {
        let former = self.children.iter().find(|(_, child)| child.rank == rank);
        let Some((old, old_origin)) = former.map(|(old, child)| (*old, child.origin)) else {
            return;
        };
        let why = "the same agent has come back on another link";
        self.lose_child(old, MemberState::Moved, why);
        self.cx.decline(old, "replaced by a newer link");
        if old_origin != origin {
            self.replaced(rank, old_origin);
        }
    }

    /// The agent is a child now.
    fn welcome(&mut self, link: LinkId, rank: Rank, hello: Hello, send_log: bool) {
        self.membership.note_address(&hello.host, &hello.address);
        let is_ours = self.epochs.contains(hello.epochs.position(hello.commit_index));
        let tree_state = self.tree_state();
        self.cx.links.set_role(link, LinkRole::Child);
        let child = Child {
            rank,
            host: hello.host.clone(),
            origin: hello.origin,
            attempt: hello.attempt,
            since_ns: self.cx.now.mono_ns,
            filters: FilterSet::new(),
            inactive_version: None,
            interest_version: 0,
            reader: Reader::new(if is_ours { hello.commit_index } else { self.commit_index }),
            reported: tree_state.epochs.head(),
            attached: false,
            shipper: None,
        };
        self.children.insert(link, child);
        self.publishing.attach_child(link);
        self.refresh_around();
        let versions = self.cx.config.versions;
        let hello_ack = HelloAck {
            protocol: versions.common(hello.versions).unwrap_or(versions.max),
            features: hello.features.common(FEATURES),
            host: self.cx.config.host.clone(),
            rank: self.cx.own_rank(),
            origin: self.cx.config.origin,
            assigned: rank.is_unlisted().then_some(rank),
            tree_state,
            window_bytes: self.cx.config.window_bytes,
            send_log,
            wall_ns: self.cx.now.wall_ns,
        };
        self.cx.send(link, Frame::HelloAck(Box::new(hello_ack)));
        self.on_interest(link, hello.interest);
        self.membership.confirm_rank(&mut self.cx, hello.host, rank);
        if let Some(parent) = self.role.parent().map(|parent| parent.link) {
            self.cx.heartbeat(parent);
        }
    }

    /// Refuses an agent that wants to be a child.
    pub(in crate::node) fn refuse(&mut self, link: LinkId, hello: &Hello, hello_nack: HelloNack) {
        self.cx.counters.refused += 1;
        let why = format!("{}: {}", hello_nack.code.as_str(), hello_nack.message);
        self.cx.transition("child", &hello.host, "asking", "refused", &why);
        self.report_refused(hello, &hello_nack);
        self.cx.send(link, Frame::HelloNack(hello_nack));
        self.cx.close(link, None, &why);
    }

    /// The place of an agent that may be our child; `None`: it is in no list, and its place is to
    /// be asked for.
    fn admit(&self, link: LinkId, hello: &Hello) -> Result<Option<Rank>, HelloNack> {
        let refuse =
            |code, message, redirect: Vec<Rank>| Err(HelloNack { code, message, redirect });
        let ours = self.cx.config.versions;
        if ours.common(hello.versions).is_none() {
            let message = format!(
                "{} speaks protocol {}, {} speaks {ours}: upgrade both to the same release",
                hello.host, hello.versions, self.cx.config.host
            );
            return refuse(NackCode::Protocol, message, Vec::new());
        }
        if hello.cluster != self.cx.config.cluster {
            let message = format!(
                "{} is of cluster {:?}, {} of {:?}: set the same cluster in both",
                hello.host, hello.cluster, self.cx.config.host, self.cx.config.cluster
            );
            return refuse(NackCode::Cluster, message, Vec::new());
        }
        if let Some(hosts) = self.cx.links.certified_hosts(link)
            && !hosts.iter().any(|host| host.eq_ignore_ascii_case(&hello.host))
        {
            let whom = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
            let message =
                format!("the certificate of {} is for {whom}: give it one of its own", hello.host);
            return refuse(NackCode::Host, message, Vec::new());
        }
        let rank = match hello.rank.filter(|rank| !rank.is_unlisted()) {
            Some(rank) => {
                self.check_listed(rank, hello)?;
                rank
            }
            None => match self.membership.admit_dynamic(&self.cx, hello)? {
                Some(rank) => rank,
                None => return Ok(None),
            },
        };
        if rank <= self.cx.own_rank() {
            let message = format!(
                "{} has rank {rank}, {} has {}: a parent has the lower rank",
                hello.host,
                self.cx.config.host,
                self.cx.own_rank()
            );
            return refuse(NackCode::Rank, message, Vec::new());
        }
        self.check_duplicate(rank, hello)?;
        // Agents that are in no list take no place from those that are.
        let others = self.children.values().filter(|child| child.rank != rank);
        let others = others.filter(|child| child.rank.is_unlisted() == rank.is_unlisted());
        if others.count() >= self.cx.config.children_max {
            let listed = self.children.values().map(|child| child.rank);
            let below = listed.filter(|r| *r < rank && !r.is_unlisted());
            let message = format!("{} has all the children it may have", self.cx.config.host);
            return refuse(NackCode::Full, message, below.take(8).collect());
        }
        Ok(Some(rank))
    }

    /// Whether the member list has that agent in that place.
    fn check_listed(&self, rank: Rank, hello: &Hello) -> Result<(), HelloNack> {
        let own = &self.cx.config.host;
        let (code, message) = match self.cx.config.members.get(rank) {
            Some(member) if member.host.eq_ignore_ascii_case(&hello.host) => return Ok(()),
            Some(member) => (
                NackCode::Rank,
                format!(
                    "{} says it has rank {rank}, which is {} for {own}: the member lists differ",
                    hello.host, member.host
                ),
            ),
            None => (
                NackCode::Members,
                format!(
                    "{} says it has rank {rank}, {own} knows {} members: the member lists differ",
                    hello.host,
                    self.cx.config.members.len()
                ),
            ),
        };
        Err(HelloNack { code, message, redirect: Vec::new() })
    }

    /// A child says where it resumes in the epoch history that it got.
    pub(in crate::node) fn on_resume(&mut self, link: LinkId, epoch: Epoch, after: u64) {
        let head = self.epochs.head();
        let Some(child) = self.children.get_mut(&link) else {
            return self.cx.impossible("ChildIsKnown");
        };
        if epoch != head || child.reported != head {
            // It answers to an older epoch history; another answer is on its way.
            self.cx.counters.stale += 1;
            return;
        }
        let news = !child.attached;
        child.attached = true;
        child.reader.resume_after(after);
        child.reader.catching_up = false;
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
        self.requests.retain(|_, request| !request.is_for(Requester::Child(link)));
        self.catch_up(Requester::Child(link));
    }

    /// A child's subtree wants something else now.
    pub(in crate::node) fn on_interest(&mut self, link: LinkId, interest: Interest) {
        let Some(child) = self.children.get_mut(&link) else {
            return self.cx.impossible("ChildIsKnown");
        };
        if interest.version < child.interest_version {
            return;
        }
        child.interest_version = interest.version;
        child.filters = FilterSet::merge(&interest.filters);
        child.inactive_version = Some(interest.version);
        self.interest_changed();
        self.answer_children();
        self.cx.wake(link);
    }

    /// Tells children whose interest has become active.
    pub(in crate::node) fn answer_children(&mut self) {
        let young = self.awaits_log();
        let is_root = self.role.is_root();
        let appended = self.log.last();
        let mut answers = Vec::new();
        for (link, child) in &mut self.children {
            let Some(version) = child.inactive_version else { continue };
            if young {
                continue;
            }
            let active = child.filters.filters().iter().all(|f| self.interests.covers(f));
            if is_root {
                answers.push((*link, version, appended));
            } else if active {
                answers.push((*link, version, self.active_index.max(self.commit_index)));
            } else {
                continue;
            }
            child.inactive_version = None;
        }
        for (link, version, index) in answers {
            self.cx.send(link, Frame::FilterActive { version, index });
        }
    }

    /// A child is gone: where to, as far as that is known here.
    pub(in crate::node) fn lose_child(&mut self, link: LinkId, state: MemberState, why: &str) {
        // It was lost already in this input.
        let Some(child) = self.children.remove(&link) else { return };
        self.refresh_around();
        self.cx.counters.children_lost += 1;
        let suspected = state == MemberState::Suspect;
        let to = if suspected { "lost" } else { "left" };
        self.cx.transition("child", &child.host, "attached", to, why);
        self.vacated(child.rank);
        self.publishing.detach_child(link);
        self.membership.dynamic.child_gone(link);
        self.requests.retain(|_, request| !request.is_of(link));
        self.on_asked_child_gone(link);
        self.abort_install(link);
        let sighting = child.sighting();
        if self.membership.member_gone(&mut self.cx, sighting, &child.host, state, why) && suspected
        {
            self.membership.suspect(&mut self.cx, sighting, &child.host, why);
        }
        self.membership.withdraw(&mut self.cx, sighting.rank);
        self.interest_narrowed();
        self.standby_gone(link);
        self.choose_standby();
    }

    /// A child has closed the link. An agent that stops has stopped, also where it was never
    /// attached.
    pub(in crate::node) fn on_child_close(&mut self, link: LinkId, stopping: bool, why: &str) {
        if !stopping {
            return self.lose_child(link, MemberState::Moved, why);
        }
        let welcomed = self.children.get(&link).filter(|child| !child.attached);
        let welcomed = welcomed.map(|child| (child.sighting(), child.host.clone()));
        self.lose_child(link, MemberState::Absent, why);
        if let Some((child, host)) = welcomed {
            self.membership.member_is(&mut self.cx, child, &host, MemberState::Absent);
        }
    }

    /// The next frame for a child, most urgent first; control frames have gone already.
    pub(in crate::node) fn poll_child(&mut self, link: LinkId, bytes_max: usize) -> Option<Frame> {
        let frame = self.publishing.poll_child(&self.cx, link);
        let frame = frame.or_else(|| self.poll_shipper(link, bytes_max));
        frame.or_else(|| self.poll_down(link, bytes_max))
    }

    fn poll_down(&mut self, link: LinkId, bytes_max: usize) -> Option<Frame> {
        let epoch = self.epochs.head();
        let until = self.commit_index;
        let child = self.children.get_mut(&link)?;
        if !child.attached || child.reader.is_at(until) {
            return None;
        }
        let cut =
            ReadLimit { bytes: bytes_max, items: BATCH_EVENTS_MAX, until, skip_repeated: false };
        let filters = &child.filters;
        let items = child.reader.read(&self.log, cut, filters);
        let reader = &child.reader;
        let covered =
            if reader.is_drained() { reader.cursor } else { items.last().map_or(0, Item::last) };
        if reader.catching_up && reader.is_drained() {
            self.catch_up(Requester::Child(link));
        }
        if items.is_empty() {
            return None;
        }
        self.cx.counters.events_down += items.iter().map(|item| item.count() as u64).sum::<u64>();
        Some(Frame::Down(Down { epoch, items, covered }))
    }

    /// What a heartbeat to a child says.
    pub(in crate::node) fn child_heartbeat(&self, link: LinkId) -> Heartbeat {
        let until = self.commit_index;
        let child = self.children.get(&link);
        let idle = child.filter(|c| c.attached && !c.reader.catching_up && c.reader.is_at(until));
        let covered = idle.map(|_| until);
        Heartbeat {
            covered: covered.unwrap_or(0),
            epoch: covered.map(|_| self.epochs.head()),
            epoch_seen: 0,
        }
    }

    /// Committed entries behind `from` have become visible: wakes the children that want any, and
    /// moves those on that want none.
    pub(in crate::node) fn wake_children(&mut self, from: u64) {
        let until = self.commit_index;
        let mut wake = Vec::new();
        for (link, child) in &mut self.children {
            if !child.attached || child.reader.catching_up {
                continue;
            }
            if self.cx.links.is_ready(*link) {
                continue;
            }
            let wants = |content: &Content| match content {
                Content::Events(run) => run.groups().any(|(_, event)| child.filters.matches(event)),
                Content::Gap(gap) => child.filters.may_want(gap.severity_max, &gap.spaces),
            };
            if !child.reader.is_at(from)
                || self.log.after(from.max(child.reader.cursor)).any(|item| wants(&item.content))
            {
                wake.push(*link);
            } else {
                child.reader.cursor = child.reader.cursor.max(until);
            }
        }
        for link in wake {
            self.cx.wake(link);
        }
    }
}
