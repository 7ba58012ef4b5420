//! What every part of a node works with: time, configuration, links, timers, counters, outputs.
//!
//! Responsible for: what the parts share, and the end of links that do not read their frames. All
//! other decisions are theirs: a part gets `&mut Cx` and its own fields, and reaches no other part.

use crate::frame::{Close, Frame};
use crate::ident::Rank;
use crate::node::api::{Announcement, ClientId, DialId, LinkId, Output, Transition};
use crate::node::around::Around;
use crate::node::config::NodeConfig;
use crate::node::counters::Counters;
use crate::node::links::{LinkRole, Links, control_bytes_max};
use crate::node::timers::TimerTable;
use crate::node::trace_ring::TraceRing;
use crate::severity::Severity;
use crate::time::Now;

/// Why an overfull link is closed.
pub(crate) const NOT_READ: &str = "it does not read its frames";

/// The context of all parts.
pub(crate) struct Cx {
    pub(crate) config: NodeConfig,
    /// The place of this agent; `None`: it has none yet.
    pub(crate) rank: Option<Rank>,
    pub(crate) started: Now,
    pub(crate) now: Now,
    pub(crate) counters: Counters,
    pub(crate) timers: TimerTable,
    pub(crate) links: Links,
    /// The steps of traced events.
    pub(crate) trace: TraceRing,
    /// Parent and children; the node keeps it up to date.
    pub(crate) around: Around,
    random: u64,
    dials: u64,
    /// Links that did not read their frames: the node ends them after the input.
    overfull: Vec<(LinkId, LinkRole)>,
    /// Clients for which a part has a message.
    woken: Vec<ClientId>,
    out: Vec<Output>,
}

impl Cx {
    pub(crate) fn new(now: Now, config: NodeConfig, seed: u64) -> Self {
        Self {
            rank: config.rank,
            config,
            started: now,
            now,
            counters: Counters::default(),
            timers: TimerTable::default(),
            links: Links::default(),
            trace: TraceRing::default(),
            around: Around::default(),
            random: seed,
            dials: 0,
            overfull: Vec::new(),
            woken: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Whether a rank is above this agent; all are above one that has none.
    pub(crate) fn is_above(&self, rank: Rank) -> bool {
        self.rank.is_none_or(|own| rank < own)
    }

    /// Whether a root that has just started may yet meet the log of its component: it gives nothing
    /// out as active.
    pub(crate) fn awaits_log(&self) -> bool {
        self.around.waits_until_ns.is_some_and(|until_ns| self.now.mono_ns < until_ns)
    }

    /// Whether this agent is in no member list.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.rank.is_none_or(Rank::is_unlisted)
    }

    /// Whether a neighbour has no place any more by the member list of now.
    pub(crate) fn has_left_member_list(&self, rank: Rank, host: &str) -> bool {
        match self.config.members.get(rank) {
            Some(member) => !member.host.eq_ignore_ascii_case(host),
            None => {
                !rank.is_unlisted()
                    || !self.config.allow_unlisted
                    || self.config.members.rank_of(host).is_some()
            }
        }
    }

    /// Most members that are remembered, or come as an answer.
    pub(crate) fn members_max(&self) -> usize {
        self.config.members.len() + crate::node::config::UNLISTED_MAX
    }

    /// The clock has moved on; it never goes back.
    pub(crate) fn advance(&mut self, now: Now) {
        self.now = Now { mono_ns: now.mono_ns.max(self.now.mono_ns), wall_ns: now.wall_ns };
    }

    /// A time from now on, on the monotonic clock.
    pub(crate) fn after_ms(&self, ms: u64) -> u64 {
        self.now.mono_ns.saturating_add(crate::node::config::ns(ms))
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.out.push(output);
    }

    pub(crate) fn take_outputs(&mut self, out: &mut Vec<Output>) {
        out.append(&mut self.out);
    }

    /// Tells the shell that there is something to pull, once.
    pub(crate) fn wake(&mut self, link: LinkId) {
        if self.links.wake(link) {
            self.out.push(Output::LinkReady(link));
        }
    }

    /// Tells the shell, after the input, that there is a message for a client.
    pub(crate) fn wake_client(&mut self, client: ClientId) {
        self.woken.push(client);
    }

    /// The next client of [`Cx::wake_client`].
    pub(crate) fn next_woken(&mut self) -> Option<ClientId> {
        self.woken.pop()
    }

    /// Queues a control frame. A peer that does not read its frames is closed after the input.
    pub(crate) fn send(&mut self, link: LinkId, frame: Frame) {
        let bytes_max = control_bytes_max(self.members_max());
        match self.links.has_room_for(link, &frame, bytes_max) {
            Some(true) => {
                self.links.push(link, frame);
                self.wake(link);
            }
            Some(false) => {
                self.overfull.extend(self.links.role(link).map(|role| (link, role)));
                self.links.clear(link);
                self.close(link, None, NOT_READ);
            }
            // A part may still know a link that is gone.
            None => {}
        }
    }

    /// Queues a request, or the answer to one, which the requester repeats if nothing comes of it.
    /// Without room the frame is dropped: a busy requester does not end the link of another, and a
    /// slow reader does not fill the memory.
    pub(crate) fn send_if_room(&mut self, link: LinkId, frame: Frame) {
        let bytes_max = control_bytes_max(self.members_max()) / 2;
        match self.links.has_room_for(link, &frame, bytes_max) {
            Some(true) => self.send(link, frame),
            Some(false) => self.counters.control_dropped += 1,
            None => {}
        }
    }

    /// The next link that did not read its frames, and what it was for.
    pub(crate) fn next_overfull(&mut self) -> Option<(LinkId, LinkRole)> {
        self.overfull.pop()
    }

    /// Closes a link after its queue and a Close are sent.
    pub(crate) fn close(&mut self, link: LinkId, close: Option<Close>, reason: &str) {
        self.links.close(link, self.now.mono_ns);
        if let Some(close) = close {
            self.send(link, Frame::Close(close));
        }
        self.wake(link);
        self.out.push(Output::CloseLink { link, reason: reason.to_owned() });
    }

    pub(crate) fn decline(&mut self, link: LinkId, reason: &str) {
        let close = Close { stopping: false, reason: reason.to_owned() };
        self.close(link, Some(close), reason);
    }

    pub(crate) fn open(&mut self, link: LinkId, role: LinkRole) {
        self.links.open(link, role, None, self.now.mono_ns);
    }

    pub(crate) fn heartbeat(&mut self, link: LinkId) {
        self.links.owe_heartbeat(link);
        self.wake(link);
    }

    /// Asks the shell for a connection. Ids of dials are never used twice.
    pub(crate) fn dial(
        &mut self,
        rank: Rank,
        (host, address): (String, String),
        deadline_ns: u64,
    ) -> DialId {
        self.dials += 1;
        let dial = DialId(self.dials);
        self.out.push(Output::Dial { dial, rank, host, address, deadline_ns });
        dial
    }

    /// A state was reached that cannot be; `invariant` names what is broken.
    pub(crate) fn impossible(&mut self, invariant: &str) {
        self.counters.impossible += 1;
        self.transition("node", "", "sound", "impossible", invariant);
    }

    /// One line of the log: a state machine has moved.
    pub(crate) fn transition(
        &mut self,
        machine: &'static str,
        subject: &str,
        from: &'static str,
        to: &'static str,
        why: &str,
    ) {
        let (subject, why) = (subject.to_owned(), why.to_owned());
        self.out.push(Output::Transition(Transition { machine, subject, from, to, why }));
    }

    /// An event of the agent's own.
    pub(crate) fn announce(
        &mut self,
        name: &'static str,
        severity: Severity,
        tags: Vec<(&'static str, String)>,
        payload: String,
    ) {
        let (condition, about) = (None, None);
        let announcement = Announcement { name, severity, tags, payload, condition, about };
        self.out.push(Output::Announce(announcement.into()));
    }

    /// A number below `bound` (splitmix64: from the seed alone).
    pub(crate) fn random_below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
