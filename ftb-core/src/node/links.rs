//! The links to other agents: what each is for, the control frames that wait for it, and its last
//! use.
//!
//! Responsible for: the queues and their limits, heartbeats, and silence. Not responsible for: what
//! frames mean ([`crate::node::dispatch::frames`]), what silence means
//! ([`crate::node::membership::suspicion`]).

use crate::frame::{Frame, Item, MemberReport, TreeState};
use crate::node::api::LinkId;
use crate::node::config::{NodeConfig, ns};
use crate::protocol::Features;
use crate::trace::{AgentReport, AgentTrace, EventTrace};
use std::collections::{BTreeMap, VecDeque};

/// Most control frames that wait for one link. A link with more is closed.
const CONTROL_FRAMES_MAX: usize = 4_096;
/// Most bytes of control frames that wait for one link, beside [`CONTROL_MEMBER_BYTES`] for each
/// possible member. A link with more is closed. Requests and answers take half of that at most: one
/// more is dropped, and the requester repeats it.
const CONTROL_BYTES_MAX: usize = 4 << 20;
/// The room for one member in that: a whole tree fits into the half for answers.
const CONTROL_MEMBER_BYTES: usize = 256;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRole {
    /// Accepted; it has not said hello.
    Handshaking,
    /// A child: its hello was accepted.
    Child,
    /// We said hello; no answer yet, or not one we could take.
    Dialing,
    /// Our parent.
    Parent,
    /// Only what is queued is still sent.
    Closing,
}

/// One link.
#[derive(Debug)]
struct Link {
    role: LinkRole,
    control: ControlQueue,
    /// The shell knows that there is something to pull, and has not yet pulled everything.
    ready: bool,
    heartbeat_due: bool,
    /// Nothing was heard for a while: its peer is suspected tentatively.
    is_quiet: bool,
    opened_ns: u64,
    heard_at_ns: u64,
    sent_at_ns: u64,
    certified_hosts: Option<Vec<String>>,
    /// What both ends support.
    features: Features,
}

/// All links.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<LinkId, Link>);

/// The periods of a link.
struct Periods {
    detection_ns: u64,
    dial_ns: u64,
    quiet_ns: u64,
    heartbeat_ns: u64,
    /// The parent's heartbeat comes first.
    has_parent: bool,
}

/// Links on which too little was heard.
#[derive(Default)]
pub(crate) struct SilentLinks {
    /// Newly quiet ones.
    pub(crate) quiet: Vec<(LinkId, LinkRole)>,
    /// Lost ones; they are removed.
    pub(crate) lost: Vec<(LinkId, LinkRole)>,
    /// Live ones on which a heartbeat is due.
    pub(crate) heartbeats: Vec<LinkId>,
}

/// Deadline of a probe. A live host answers in a moment. With a quarter of the detection time the
/// result is known when the detection time ends.
pub(crate) fn probe_ms(config: &NodeConfig) -> u64 {
    config.dial_ms.min(config.detection_ms / 4)
}

impl Link {
    /// When its silence counts; before that, when it is quiet. `None`: never.
    fn silent_ns(&self, periods: &Periods) -> Option<u64> {
        match self.role {
            LinkRole::Dialing => None,
            LinkRole::Handshaking => Some(self.opened_ns.saturating_add(periods.dial_ns)),
            _ => Some(self.heard_at_ns.saturating_add(periods.detection_ns)),
        }
    }

    fn is_neighbour(&self) -> bool {
        matches!(self.role, LinkRole::Child | LinkRole::Parent)
    }

    /// When it is quiet; `None` if it is, or has no peer that can be.
    fn quiet_at_ns(&self, periods: &Periods) -> Option<u64> {
        let can_be = self.is_neighbour() && !self.is_quiet;
        can_be.then(|| self.heard_at_ns.saturating_add(periods.quiet_ns))
    }

    /// When a heartbeat is due if nothing else is sent. An agent with a parent waits a little
    /// longer, for the parent's; and longer with its heartbeat to the parent than with those that
    /// its own children wait for.
    fn heartbeat_due_ns(&self, periods: &Periods) -> u64 {
        let period = periods.heartbeat_ns;
        let longer = match self.role {
            LinkRole::Parent => period / 4,
            _ if periods.has_parent => period / 8,
            _ => 0,
        };
        self.sent_at_ns.saturating_add(period + longer)
    }

    /// Whether the next heartbeat is due within half a period.
    fn is_heartbeat_due_soon(&self, periods: &Periods, now_ns: u64) -> bool {
        self.is_neighbour() && self.sent_at_ns.saturating_add(periods.heartbeat_ns / 2) <= now_ns
    }
}

impl Links {
    pub(crate) fn open(
        &mut self,
        id: LinkId,
        role: LinkRole,
        certified_hosts: Option<Vec<String>>,
        now_ns: u64,
    ) {
        let link = Link {
            role,
            control: ControlQueue::default(),
            ready: false,
            heartbeat_due: false,
            is_quiet: false,
            opened_ns: now_ns,
            heard_at_ns: now_ns,
            sent_at_ns: now_ns,
            certified_hosts,
            features: Features::default(),
        };
        self.0.insert(id, link);
    }

    pub(crate) fn set_features(&mut self, id: LinkId, features: Features) {
        if let Some(link) = self.0.get_mut(&id) {
            link.features = features;
        }
    }

    /// What both ends of a link support.
    pub(crate) fn features(&self, id: LinkId) -> Features {
        self.0.get(&id).map_or(Features::default(), |link| link.features)
    }

    /// Host names that the certificate of a peer vouches for; `None` without TLS.
    pub(crate) fn certified_hosts(&self, id: LinkId) -> Option<&[String]> {
        self.0.get(&id)?.certified_hosts.as_deref()
    }

    pub(crate) fn remove(&mut self, id: LinkId) -> Option<LinkRole> {
        self.0.remove(&id).map(|link| link.role)
    }

    pub(crate) fn role(&self, id: LinkId) -> Option<LinkRole> {
        self.0.get(&id).map(|link| link.role)
    }

    pub(crate) fn set_role(&mut self, id: LinkId, role: LinkRole) {
        if let Some(link) = self.0.get_mut(&id) {
            link.role = role;
        }
    }

    pub(crate) fn ids(&self) -> Vec<LinkId> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn count(&self, role: LinkRole) -> usize {
        self.0.values().filter(|link| link.role == role).count()
    }

    /// Whether the shell is about to pull.
    pub(crate) fn is_ready(&self, id: LinkId) -> bool {
        self.0.get(&id).is_some_and(|link| link.ready)
    }

    /// There is something to pull. Says whether the shell must learn it.
    pub(crate) fn wake(&mut self, id: LinkId) -> bool {
        self.0.get_mut(&id).is_some_and(|link| !std::mem::replace(&mut link.ready, true))
    }

    /// A frame has come. Gives the role of the link, and whether the link was quiet.
    pub(crate) fn heard(&mut self, id: LinkId, now_ns: u64) -> Option<(LinkRole, bool)> {
        let link = self.0.get_mut(&id)?;
        link.heard_at_ns = now_ns;
        Some((link.role, std::mem::take(&mut link.is_quiet)))
    }

    /// Gives every peer a new period: this agent was stopped itself.
    pub(crate) fn forgive(&mut self, now_ns: u64) {
        for link in self.0.values_mut() {
            link.heard_at_ns = now_ns;
            link.is_quiet = false;
        }
    }

    /// Whether a control frame has room within that bound; `None`: there is no such link.
    pub(crate) fn has_room_for(&self, id: LinkId, frame: &Frame, bytes_max: usize) -> Option<bool> {
        let link = self.0.get(&id)?;
        Some(link.role == LinkRole::Closing || link.control.has_room_for(frame, bytes_max))
    }

    /// Queues a control frame.
    pub(crate) fn push(&mut self, id: LinkId, frame: Frame) {
        if let Some(link) = self.0.get_mut(&id) {
            link.control.push(frame);
        }
    }

    /// The next control frame.
    pub(crate) fn pop(&mut self, id: LinkId) -> Option<Frame> {
        self.0.get_mut(&id)?.control.pop()
    }

    /// Drops the control frames that wait.
    pub(crate) fn clear(&mut self, id: LinkId) {
        if let Some(link) = self.0.get_mut(&id) {
            link.control.clear();
        }
    }

    /// Only what is queued is still sent.
    pub(crate) fn close(&mut self, id: LinkId, now_ns: u64) {
        if let Some(link) = self.0.get_mut(&id) {
            link.role = LinkRole::Closing;
            link.heard_at_ns = now_ns;
            link.heartbeat_due = false;
        }
    }

    /// A heartbeat goes with the next pull.
    pub(crate) fn owe_heartbeat(&mut self, id: LinkId) {
        if let Some(link) = self.0.get_mut(&id) {
            link.heartbeat_due = true;
        }
    }

    pub(crate) fn take_heartbeat(&mut self, id: LinkId) -> bool {
        self.0.get_mut(&id).is_some_and(|link| std::mem::take(&mut link.heartbeat_due))
    }

    /// A pull has given a frame.
    pub(crate) fn sent(&mut self, id: LinkId, now_ns: u64) {
        if let Some(link) = self.0.get_mut(&id) {
            link.sent_at_ns = now_ns;
        }
    }

    /// A pull has given nothing: a closing link ends.
    pub(crate) fn drained(&mut self, id: LinkId) {
        let Some(link) = self.0.get_mut(&id) else { return };
        link.ready = false;
        if link.role == LinkRole::Closing {
            self.0.remove(&id);
        }
    }

    fn periods(&self, config: &NodeConfig) -> Periods {
        Periods {
            detection_ns: ns(config.detection_ms),
            dial_ns: ns(config.dial_ms),
            quiet_ns: ns(config.detection_ms.saturating_sub(probe_ms(config))),
            heartbeat_ns: ns(config.heartbeat_ms),
            has_parent: self.0.values().any(|link| link.role == LinkRole::Parent),
        }
    }

    /// When [`Links::expire`] is due.
    pub(crate) fn deadline_ns(&self, config: &NodeConfig) -> Option<u64> {
        let periods = self.periods(config);
        let deadlines = self.0.values().flat_map(|link| {
            let beats = link.is_neighbour() && !link.heartbeat_due;
            let heartbeat = beats.then(|| link.heartbeat_due_ns(&periods));
            [link.silent_ns(&periods), link.quiet_at_ns(&periods), heartbeat]
        });
        deadlines.flatten().min()
    }

    /// Time has passed.
    pub(crate) fn expire(&mut self, config: &NodeConfig, now_ns: u64) -> SilentLinks {
        let periods = self.periods(config);
        let mut silent = SilentLinks::default();
        let mut any_heartbeat_due = false;
        for (id, link) in &mut self.0 {
            if link.silent_ns(&periods).is_some_and(|at_ns| at_ns <= now_ns) {
                silent.lost.push((*id, link.role));
                continue;
            }
            if link.quiet_at_ns(&periods).is_some_and(|at_ns| at_ns <= now_ns) {
                link.is_quiet = true;
                silent.quiet.push((*id, link.role));
            }
            any_heartbeat_due |= link.is_heartbeat_due_soon(&periods, now_ns)
                && link.heartbeat_due_ns(&periods) <= now_ns;
        }
        for (id, _) in &silent.lost {
            self.0.remove(id);
        }
        // One wake-up for all links.
        if any_heartbeat_due {
            silent.heartbeats = self.heartbeats_due_soon(&periods, now_ns);
        }
        silent
    }

    fn heartbeats_due_soon(&self, periods: &Periods, now_ns: u64) -> Vec<LinkId> {
        let due = self.0.iter().filter(|(_, link)| link.is_heartbeat_due_soon(periods, now_ns));
        due.map(|(id, _)| *id).collect()
    }

    /// The links on which heartbeats go with the answer to one. A heartbeat is answered at once if
    /// ours is due within half a period, and all others that are go with it. So the root's timer is
    /// the only one of a quiet tree: heartbeats go from it to the leaves and back as one wave,
    /// which wakes an agent once for each of its links.
    pub(crate) fn wave(&self, id: LinkId, config: &NodeConfig, now_ns: u64) -> Vec<LinkId> {
        let periods = self.periods(config);
        match self.0.get(&id).is_some_and(|link| link.is_heartbeat_due_soon(&periods, now_ns)) {
            true => self.heartbeats_due_soon(&periods, now_ns),
            false => Vec::new(),
        }
    }
}

/// Most bytes of control frames that wait for one link.
pub(crate) fn control_bytes_max(members_max: usize) -> usize {
    CONTROL_BYTES_MAX + CONTROL_MEMBER_BYTES * members_max
}

/// Frames that wait to be said, and what they weigh.
#[derive(Debug, Default)]
struct ControlQueue {
    frames: VecDeque<Frame>,
    bytes: usize,
}

impl ControlQueue {
    fn push(&mut self, frame: Frame) {
        self.bytes += weight(&frame);
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= weight(&frame);
        Some(frame)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether one more frame fits within that bound. The first frame always does.
    fn has_room_for(&self, frame: &Frame, bytes_max: usize) -> bool {
        self.frames.is_empty()
            || (self.frames.len() < CONTROL_FRAMES_MAX
                && self.bytes.saturating_add(weight(frame)) <= bytes_max)
    }
}

/// The bytes of the lists and texts of a trace.
fn trace_weight(trace: &EventTrace) -> usize {
    let of_agent = |agent: &AgentTrace| {
        let hops = agent.hops.iter().map(|(hop, what)| size_of_val(hop) + what.len());
        agent.host.len() + hops.sum::<usize>()
    };
    let of_report = |report: &AgentReport| {
        let trust = report.trust.as_ref().map_or(0, |trust| trust.unproven_host.len());
        size_of_val(report) + report.host.len() + report.version.len() + trust
    };
    let silent = trace.silent.iter().map(String::len).sum::<usize>();
    let reports = trace.reports.iter().map(of_report).sum::<usize>();
    trace.agents.iter().map(of_agent).sum::<usize>() + silent + reports
}

/// The bytes that a frame keeps in memory, near enough: its own, and those of the lists and texts
/// in it.
fn weight(frame: &Frame) -> usize {
    let of_items =
        |items: &[Item]| -> usize { items.iter().map(|item| size_of::<Item>() + item.len()).sum() };
    let of_members = |members: &[MemberReport]| -> usize {
        let texts = |member: &MemberReport| member.host.len() + member.address.len();
        members.iter().map(|member| size_of::<MemberReport>() + texts(member)).sum()
    };
    let of_standing = |tree_state: &TreeState| {
        size_of::<TreeState>()
            + size_of_val(tree_state.epochs.segments())
            + size_of_val(tree_state.path.as_slice())
    };
    let more = match frame {
        Frame::Hello(hello) => {
            size_of_val(&**hello)
                + size_of_val(hello.epochs.segments())
                + hello.interest.filters.iter().map(|filter| filter.weight()).sum::<usize>()
        }
        Frame::HelloAck(hello_ack) => {
            size_of_val(&**hello_ack) + of_standing(&hello_ack.tree_state)
        }
        Frame::HelloNack(hello_nack) => hello_nack.message.len(),
        Frame::Close(close) => close.reason.len(),
        Frame::TreeState(tree_state) => of_standing(tree_state),
        Frame::Subscribe(interest) => interest.filters.iter().map(|filter| filter.weight()).sum(),
        Frame::HistoryRequest(fetch) => fetch.filters.iter().map(|filter| filter.weight()).sum(),
        Frame::Up(batch) => batch.items.iter().map(|item| size_of_val(item) + item.len()).sum(),
        Frame::Down(down) => of_items(&down.items),
        Frame::HistoryReply(fetched) => of_items(&fetched.items),
        Frame::Replicate(batch) => {
            of_items(&batch.items) + size_of_val(batch.entry_refs.as_slice())
        }
        Frame::ReplicaStart(start) => size_of_val(start.epochs.segments()),
        Frame::DedupRanges(dedup) => dedup
            .publishers
            .iter()
            .map(|publisher| size_of_val(publisher) + size_of_val(publisher.1.as_slice()))
            .sum(),
        Frame::Members(members) | Frame::TreeAnswer { members, .. } => of_members(members),
        Frame::DynamicMembers(entries) => {
            entries.iter().map(|entry| size_of_val(entry) + entry.host.len()).sum()
        }
        Frame::MembershipSnapshot(ranks) => size_of_val(ranks.ranges()),
        Frame::Probe(probe) => probe.host.len() + probe.address.len(),
        Frame::TraceAnswer(answer) => trace_weight(&answer.trace),
        Frame::Heartbeat(_)
        | Frame::Resume { .. }
        | Frame::FilterActive { .. }
        | Frame::Credit { .. }
        | Frame::Confirm(_)
        | Frame::Nak { .. }
        | Frame::Resend
        | Frame::ReplicaAck { .. }
        | Frame::TreeQuery { .. }
        | Frame::TraceRequest(_)
        | Frame::ProbeAnswer(_) => 0,
    };
    size_of::<Frame>() + more
}
