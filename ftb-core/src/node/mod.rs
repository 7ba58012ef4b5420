//! One agent as a state machine: the tree, the log, the routing, the shedding.
//!
//! A shell feeds [`Node::handle`], does what the outputs say, and pulls frames and messages with
//! [`Node::poll_link`] and [`Node::poll_client`] when a transport has room ([`api`] is the
//! contract). Each call returns its outputs. After each call the shell sets its timer to
//! [`Node::next_deadline_ns`], and feeds [`Input::Tick`] at that time. docs/protocol.md describes
//! the protocol.
//!
//! Responsible for: every decision. Not responsible for: sockets, clocks, encoding, who may publish
//! or subscribe what (the shell checks that before it feeds an input).

pub mod api;
mod config;
mod delivery;
mod membership;
mod publishing;
mod role;
mod status;
#[cfg(test)]
pub(crate) mod testing;
mod timers;
mod tree;

pub use crate::log::retained::{Items as RetainedItems, Reserve, Retained};
pub use crate::storm::{Fold, Folder, StormRule};
pub use config::{Member, MemberList, NodeConfig, protected_by_default};
pub use delivery::history_sources::JOURNAL_READS_MAX;
pub use membership::dynamic::UNLISTED_MAX;
pub use publishing::delayed_acks::{ACK_DELAY_EVENTS_MAX, ACK_DELAY_MS};
pub use status::{ChildStatus, ClientStatus, JournalState, NodeStatus, TreeRole};
pub use tree::plausible::{EPOCH_FLOOR, INDEX_FLOOR, check_stored};

use crate::epochs::EpochHistory;
use crate::frame::{Close, Frame};
use crate::ident::{OriginId, PublisherId, Rank};
use crate::log::ring::Log;
use crate::position::Epoch;
use crate::ranges::PublisherRanges;
use crate::time::Now;
use api::{ClientId, HostAnswer, Input, LinkId, Output, Transition};
use config::ns;
use delivery::{budget, clients, history, history_sources, index, interest};
use membership::{dynamic, members, snapshot, suspicion};
use publishing::upward::Route;
use publishing::{delayed_acks, outbox, publish, storm};
use role::root::RootPhase;
use role::{Role, RoleCause, journal};
pub use role::{RoleName, role_table};
use std::collections::{BTreeMap, BTreeSet};
use timers::{Timer, TimerTable};
use tree::link::{CONTROL_BYTES_MAX, CONTROL_MEMBER_BYTES, Link, LinkRole};
use tree::{children, mismatches, uplink};

/// One agent.
pub struct Node {
    config: NodeConfig,
    rank: Option<Rank>,
    random: u64,
    started: Now,
    now: Now,
    /// What is to be done; handed out at the end of the next `handle`.
    out: Vec<Output>,
    counters: status::Counters,
    stopping: bool,
    /// When this agent went on after it had been stopped for a while itself.
    resumed_ns: Option<u64>,
    timers: TimerTable,

    links: BTreeMap<LinkId, Link>,
    uplink: uplink::Uplink,
    children: BTreeMap<LinkId, children::Child>,
    members: members::Members,
    /// Agents that are in no member list.
    dynamic_members: dynamic::DynamicMembers,
    suspicions: suspicion::Suspicions,
    snapshot: snapshot::Snapshot,
    mismatches: mismatches::Mismatches,

    journal: journal::Journal,
    /// The log of an earlier life of this agent.
    past: Option<journal::Past>,
    /// The log that is consumed here, and up to which index: committed, visible to all readers.
    epochs: EpochHistory,
    commit_index: u64,
    log: Log,
    /// An acting root that took over without a copy of the log: up to here it has only what passed
    /// by.
    complete_after: u64,
    /// Epochs that lost, and up to which index of the log that won they had gone along.
    forks: BTreeMap<Epoch, u64>,
    /// Highest epoch number heard of.
    epoch_seen: u64,
    role: Role,
    /// Until when an agent waits for a log if it becomes acting root. `None`: it has been in a
    /// tree, or has waited.
    log_wait_until_ns: Option<u64>,
    /// Questions for older events that were passed up.
    requests: BTreeMap<u64, history::PendingRequest>,
    next_request: u64,
    disk_reads: history_sources::DiskReads,

    interests: interest::Interests,
    /// The index behind which the parent said that our interest is active.
    active_index: u64,
    outbox: outbox::Outbox,
    /// By which child an origin's confirmations go down.
    routes: BTreeMap<OriginId, Route>,
    /// Whose turn it was to send up.
    up_turn: Option<LinkId>,

    clients: BTreeMap<ClientId, clients::Client>,
    publishers: BTreeMap<PublisherId, ClientId>,
    /// What the clients of each user make this agent hold.
    budgets: budget::Budgets,
    /// Which subscriptions of the clients may want an event.
    index: index::SubscriptionIndex,
    paused: BTreeSet<ClientId>,
    /// What of own clients' events passes, and what is folded or shed.
    storms: storm::StormControl,
    storm_shed: Option<publish::StormShed>,
    /// Clients that hear a little later that their events are held.
    delayed_acks: delayed_acks::DelayedAcks,
    /// Subscriptions that are not active yet.
    waiting: BTreeSet<(ClientId, api::SubscriptionId)>,
    /// Subscriptions that read the past.
    histories: BTreeSet<(ClientId, api::SubscriptionId)>,
    /// Events that were delivered to clients here.
    seen: PublisherRanges,
    /// What of them had been when the log was left for the one in which subscriptions catch up now.
    delivered_before: Option<PublisherRanges>,
}

impl Node {
    /// An agent that has just started. `seed` is its only source of randomness.
    pub fn new(now: Now, config: NodeConfig, seed: u64) -> Self {
        Self::with_journal(now, config, seed, None)
    }

    /// The same with a journal, and what an earlier life of this agent has written to it.
    pub fn with_journal(
        now: Now,
        config: NodeConfig,
        seed: u64,
        restored: Option<api::Restored>,
    ) -> Self {
        let mut node = Self {
            rank: config.rank,
            random: seed,
            started: now,
            now,
            out: Vec::new(),
            counters: status::Counters::default(),
            stopping: false,
            resumed_ns: None,
            timers: TimerTable::default(),
            links: BTreeMap::new(),
            uplink: uplink::Uplink::new(),
            children: BTreeMap::new(),
            members: members::Members::default(),
            dynamic_members: dynamic::DynamicMembers::default(),
            suspicions: suspicion::Suspicions::default(),
            snapshot: snapshot::Snapshot::default(),
            mismatches: mismatches::Mismatches::default(),
            journal: journal::Journal::default(),
            past: None,
            epochs: EpochHistory::new(),
            commit_index: 0,
            log: Log::new(0),
            complete_after: 0,
            forks: BTreeMap::new(),
            epoch_seen: 0,
            role: Role::idle(),
            log_wait_until_ns: None,
            requests: BTreeMap::new(),
            next_request: 0,
            disk_reads: history_sources::DiskReads::default(),
            interests: interest::Interests::default(),
            active_index: 0,
            outbox: outbox::Outbox::new(),
            routes: BTreeMap::new(),
            up_turn: None,
            clients: BTreeMap::new(),
            publishers: BTreeMap::new(),
            budgets: budget::Budgets::default(),
            index: index::SubscriptionIndex::default(),
            paused: BTreeSet::new(),
            storms: storm::StormControl::new(config.storm.clone(), config.folder),
            storm_shed: None,
            delayed_acks: delayed_acks::DelayedAcks::default(),
            waiting: BTreeSet::new(),
            histories: BTreeSet::new(),
            seen: PublisherRanges::new(config.publishers_max),
            delivered_before: None,
            config,
        };
        let wait_ns = node.log_wait_ns();
        node.log_wait_until_ns = (wait_ns > 0).then(|| now.mono_ns.saturating_add(wait_ns));
        if let Some(restored) = restored {
            node.restore(restored);
        }
        node.search(None, "started");
        node
    }

    /// Something has happened.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.forgive_if_late(now);
        self.advance(now);
        if !self.stopping {
            self.dispatch(input);
            self.commit();
            self.evict();
        }
        self.wake_journal();
        out.append(&mut self.out);
    }

    /// The next frame for a link; `None`: there is nothing (more) to send now. `bytes_max` bounds
    /// the events in it. A single larger event passes. `out`: as in [`Node::handle`].
    pub fn poll_link(
        &mut self,
        now: Now,
        link: LinkId,
        bytes_max: usize,
        out: &mut Vec<Output>,
    ) -> Option<Frame> {
        self.advance(now);
        let frame = self.next_frame(link, bytes_max);
        out.append(&mut self.out);
        frame
    }

    fn next_frame(&mut self, link: LinkId, bytes_max: usize) -> Option<Frame> {
        let found = self.links.get_mut(&link)?;
        let role = found.role;
        let frame = found.control.pop();
        let frame = frame.or_else(|| match role {
            LinkRole::Child => self.poll_child(link, bytes_max),
            LinkRole::Parent => self.poll_parent(bytes_max),
            LinkRole::Handshaking | LinkRole::Dialing | LinkRole::Closing => None,
        });
        // The poll itself may have queued a control frame.
        let frame = frame.or_else(|| self.links.get_mut(&link)?.control.pop());
        let frame = frame.or_else(|| {
            let due = std::mem::take(&mut self.links.get_mut(&link)?.heartbeat_due);
            match role {
                LinkRole::Child if due => Some(Frame::Heartbeat(self.child_heartbeat(link))),
                LinkRole::Parent if due => Some(Frame::Heartbeat(self.parent_heartbeat())),
                _ => None,
            }
        });
        let found = self.links.get_mut(&link)?;
        if frame.is_some() {
            found.sent_at_ns = self.now.mono_ns;
        } else {
            found.ready = false;
            if role == LinkRole::Closing {
                self.links.remove(&link);
            }
        }
        frame
    }

    /// The next message for a client; `None`: there is nothing (more) for it now.
    pub fn poll_client(
        &mut self,
        now: Now,
        client: ClientId,
        bytes_max: usize,
        out: &mut Vec<Output>,
    ) -> Option<api::ToClient> {
        self.advance(now);
        let message = self.next_to_client(client, bytes_max);
        out.append(&mut self.out);
        message
    }

    /// The next write of the journal; `None`: there is nothing (more) to write now. `bytes_max`
    /// bounds the events in it. A single larger event passes. The shell writes in this order, and
    /// acknowledges with [`Input::Journaled`].
    pub fn poll_journal(
        &mut self,
        now: Now,
        bytes_max: usize,
        out: &mut Vec<Output>,
    ) -> Option<api::JournalWrite> {
        self.advance(now);
        let write = self.next_journal_write(bytes_max);
        out.append(&mut self.out);
        write
    }

    /// When [`Input::Tick`] is due at the latest, on the monotonic clock.
    /// It changes with each call of a method that takes `now`.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.stopping {
            return None;
        }
        Timer::ALL.into_iter().filter_map(|timer| self.deadline_ns(timer)).min()
    }

    /// Expires the timers that are due.
    fn expire_timers(&mut self) {
        for timer in Timer::ALL {
            if self.deadline_ns(timer).is_some_and(|at_ns| at_ns <= self.now.mono_ns) {
                self.on_timer(timer);
            }
        }
    }

    /// When a timer expires; `None`: it is not armed.
    fn deadline_ns(&self, timer: Timer) -> Option<u64> {
        match timer {
            Timer::Links => self.links_deadline_ns(),
            Timer::Dial => self.uplink.dials.values().map(|(_, deadline)| *deadline).min(),
            Timer::Hello => self.uplink.dialing.values().map(|hello| hello.deadline_ns).min(),
            Timer::WidenSearch => self.timers.get(timer).filter(|_| self.role.is_searching()),
            Timer::EndSearch => match &self.role {
                Role::Searching(search) => Some(search.until_ns),
                _ => None,
            },
            Timer::RetryBusy => {
                let waits = self.role.is_searching() && !self.uplink.busy.is_empty();
                waits.then_some(self.uplink.busy_ns)
            }
            Timer::BetterParent => self.timers.get(timer).filter(|_| !self.role.is_searching()),
            Timer::TreeQuery => self.members.deadline_ns(),
            Timer::Snapshot | Timer::Reconcile => {
                self.timers.get(timer).filter(|_| self.role.is_root())
            }
            Timer::AwaitLog => match &self.role.root()?.phase {
                RootPhase::AwaitingLog { until_ns } => Some(*until_ns),
                RootPhase::Installing { awaits, .. } => *awaits,
                RootPhase::Leading => None,
            },
            Timer::Fork => self.role.root()?.forks.deadline_ns(),
            Timer::Unreadable => self.role.root()?.unreadable.as_ref().map(|(_, at_ns)| *at_ns),
            Timer::HistoryRequest => self.history_deadline_ns(),
            Timer::OutboxGrace => self.outbox_deadline_ns(),
            Timer::Fold => self.storms.deadline_ns(),
            Timer::StormGap => self.storm_shed.as_ref().map(|shed| shed.due_ns()),
            Timer::DelayedAck => self.delayed_acks.deadline_ns(),
            Timer::Suspicion | Timer::Covered | Timer::Resend | Timer::NarrowInterest => {
                self.timers.get(timer)
            }
            Timer::Standby => self.standby_deadline_ns(),
            Timer::Journal => self.journal_deadline_ns(),
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Links => self.on_links_timer(),
            Timer::Dial => self.on_dial_timer(),
            Timer::Hello => self.on_hello_timer(),
            Timer::WidenSearch => self.on_widen_timer(),
            Timer::EndSearch => {
                self.uplink.busy.clear();
                self.become_root("no parent was found in time");
            }
            Timer::RetryBusy => {
                let again = std::mem::take(&mut self.uplink.busy);
                self.uplink.redirects.extend(again);
                self.search_on();
            }
            Timer::BetterParent => self.probe_better(),
            Timer::TreeQuery => self.on_tree_query_timer(),
            Timer::Suspicion => self.on_suspicion_timer(),
            Timer::Snapshot => {
                self.timers.stop(timer);
                self.announce_snapshot();
            }
            Timer::Reconcile => self.reconcile(),
            Timer::AwaitLog => self.on_await_log_timer(),
            Timer::Unreadable => self.log_unreadable(),
            Timer::Fork => self.on_fork_timer(),
            Timer::HistoryRequest => self.on_history_timer(),
            Timer::OutboxGrace => self.expire_outbox(),
            Timer::Covered => self.on_covered_timer(),
            Timer::Fold => self.on_fold_timer(),
            Timer::StormGap => self.on_storm_gap_timer(),
            Timer::DelayedAck => self.on_delayed_ack_timer(),
            Timer::Resend => self.on_resend_timer(),
            Timer::NarrowInterest => self.interest_changed(),
            // A commit follows each input: it skips a standby or a journal that is too slow.
            Timer::Standby | Timer::Journal => {}
        }
    }

    fn links_deadline_ns(&self) -> Option<u64> {
        let detection = ns(self.config.detection_ms);
        let deadlines = self.links.values().filter_map(|link| {
            match link.role {
                LinkRole::Handshaking => {
                    return Some(link.opened_ns.saturating_add(ns(self.config.dial_ms)));
                }
                LinkRole::Closing => return Some(link.heard_at_ns.saturating_add(detection)),
                LinkRole::Dialing => return None,
                LinkRole::Child | LinkRole::Parent => {}
            }
            let limit = if link.is_quiet { detection } else { self.quiet_ns() };
            let silent_ns = link.heard_at_ns.saturating_add(limit);
            let heartbeat_ns = (!link.heartbeat_due).then(|| self.heartbeat_due_ns(link));
            Some(heartbeat_ns.map_or(silent_ns, |at_ns| at_ns.min(silent_ns)))
        });
        deadlines.min()
    }

    fn on_dial_timer(&mut self) {
        let now_ns = self.now.mono_ns;
        let late = self.uplink.dials.iter().filter(|(_, dial)| dial.1 <= now_ns);
        for dial in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.on_dial_failed(dial, "no answer before the deadline", HostAnswer::Nothing);
        }
    }

    fn on_hello_timer(&mut self) {
        let now_ns = self.now.mono_ns;
        let late = self.uplink.dialing.iter().filter(|(_, hello)| hello.deadline_ns <= now_ns);
        for link in late.map(|(link, _)| *link).collect::<Vec<_>>() {
            self.uplink.dialing.remove(&link);
            self.decline(link, "no answer to the hello before the deadline");
            self.search_on();
        }
    }

    fn dispatch(&mut self, input: Input) {
        match input {
            Input::Tick => {}
            Input::Dialed { dial, link } => self.on_dialed(dial, link),
            Input::DialFailed { dial, error, answer } => self.on_dial_failed(dial, &error, answer),
            Input::Accepted { link, certified_hosts } => self.on_accepted(link, certified_hosts),
            Input::Frame { link, frame } => self.on_frame(link, frame),
            Input::LinkClosed { link, error } => self.on_link_closed(link, &error),
            Input::ClientAttached { client, info } => self.on_client_attached(client, info),
            Input::ClientDetached { client } => self.on_client_detached(client),
            Input::Publish { client, events } => self.on_publish(client, events),
            Input::Subscribe { client, subscription, filter, start } => {
                self.on_subscribe(client, subscription, filter, start);
            }
            Input::Unsubscribe { client, subscription } => {
                self.on_unsubscribe(client, subscription)
            }
            Input::DelayAcks { client, delayed } => self.on_delay_acks(client, delayed),
            Input::QueryTree { query, deadline_ns } => self.on_query_tree(query, deadline_ns),
            Input::JournalOpened { stored, restored, damage } => {
                self.journal_damaged(damage);
                self.on_journal_opened(stored, restored.map(|restored| *restored));
            }
            Input::Journaled { generation, until } => self.on_journaled(generation, until),
            Input::JournalRead { read, page } => self.on_journal_read(read, page),
            Input::JournalFailed { error } => self.on_journal_failed(&error),
            Input::Reconfigure { members, fanout, allow_unlisted, storm } => {
                self.config.allow_unlisted = allow_unlisted;
                self.on_reconfigure(members, fanout);
                self.set_storm_rules(storm);
            }
            Input::Stop => return self.on_stop(),
        }
        self.expire_timers();
        self.end_wait_for_log();
        self.choose_standby();
    }

    /// The transport of a link is gone.
    fn on_link_closed(&mut self, link: LinkId, error: &str) {
        let Some(gone) = self.links.remove(&link) else {
            self.counters.stale += 1;
            return;
        };
        self.link_gone(link, gone.role, error);
    }

    fn link_gone(&mut self, link: LinkId, role: LinkRole, why: &str) {
        match role {
            LinkRole::Child => self.lose_child(link, self.why_child_left(), why),
            LinkRole::Parent => self.on_parent_lost(false, why),
            LinkRole::Dialing => self.on_dialing_lost(link),
            LinkRole::Handshaking => self.dynamic_members.link_gone(link),
            LinkRole::Closing => {}
        }
    }

    /// The peer said what it must not say: the link ends, and counts as lost.
    fn misbehaved(&mut self, link: LinkId, what: &str) {
        self.counters.misbehaved += 1;
        let role = self.links.get(&link).map(|link| link.role);
        self.close(link, None, what);
        if let Some(role) = role {
            self.link_gone(link, role, what);
        }
    }

    /// Closes a link after its queue and a Close are sent.
    fn close(&mut self, link: LinkId, close: Option<Close>, reason: &str) {
        if let Some(found) = self.links.get_mut(&link) {
            found.role = LinkRole::Closing;
            found.heard_at_ns = self.now.mono_ns;
            found.heartbeat_due = false;
        }
        if let Some(close) = close {
            self.send(link, Frame::Close(close));
        }
        self.wake(link);
        self.out.push(Output::CloseLink { link, reason: reason.to_owned() });
    }

    /// Queues a control frame.
    fn send(&mut self, link: LinkId, frame: Frame) {
        let bytes_max = self.control_bytes_max();
        let Some(found) = self.links.get_mut(&link) else { return };
        if found.role != LinkRole::Closing && !found.control.has_room_for(&frame, bytes_max) {
            found.control.clear();
            return self.misbehaved(link, "it does not read its frames");
        }
        found.control.push(frame);
        self.wake(link);
    }

    /// Queues a request, or the answer to one, which the requester repeats if nothing comes of it.
    /// Without room the frame is dropped: a busy requester does not end the link of another, and a
    /// slow reader does not fill the memory.
    fn send_if_room(&mut self, link: LinkId, frame: Frame) {
        let bytes_max = self.control_bytes_max() / 2;
        let Some(found) = self.links.get(&link) else { return };
        if found.control.has_room_for(&frame, bytes_max) {
            self.send(link, frame);
        } else {
            self.counters.control_dropped += 1;
        }
    }

    /// Most bytes of control frames that wait for one link.
    fn control_bytes_max(&self) -> usize {
        CONTROL_BYTES_MAX + CONTROL_MEMBER_BYTES * self.members_max()
    }

    /// Tells the shell that there is something to pull, once.
    fn wake(&mut self, link: LinkId) {
        if let Some(found) = self.links.get_mut(&link)
            && !found.ready
        {
            found.ready = true;
            self.out.push(Output::LinkReady(link));
        }
    }

    /// The clock has moved on; it never goes back.
    fn advance(&mut self, now: Now) {
        self.now = Now { mono_ns: now.mono_ns.max(self.now.mono_ns), wall_ns: now.wall_ns };
    }

    /// An agent that was stopped for a while must read what waits for it before it judges the
    /// silence of others: each link gets a fresh period.
    fn forgive_if_late(&mut self, now: Now) {
        let late_ns = ns(self.config.detection_ms) / 2;
        // What is due now was not due before: mostly there is nothing to look for.
        if now.mono_ns.saturating_sub(self.now.mono_ns) <= late_ns {
            return;
        }
        let due = self.next_deadline_ns().map(|due| due.max(self.now.mono_ns));
        if due.is_some_and(|due| now.mono_ns.saturating_sub(due) > late_ns) {
            self.resumed_ns = Some(now.mono_ns);
            for link in self.links.values_mut() {
                link.heard_at_ns = now.mono_ns;
                link.is_quiet = false;
            }
        }
    }

    /// What a closed link says of a child. An agent that was stopped itself was silent for its
    /// children: they left for another parent, and are not suspected of anything.
    fn why_child_left(&self) -> api::MemberState {
        let fresh_ns = ns(self.config.detection_ms);
        let was_stopped =
            self.resumed_ns.is_some_and(|at| at.saturating_add(fresh_ns) > self.now.mono_ns);
        match was_stopped {
            true => api::MemberState::Moved,
            false => api::MemberState::Suspect,
        }
    }

    fn on_links_timer(&mut self) {
        let now_ns = self.now.mono_ns;
        let detection = ns(self.config.detection_ms);
        let quiet_ns = self.quiet_ns();
        let (mut silent, mut quiet) = (Vec::new(), Vec::new());
        let mut heartbeats_due = false;
        for (id, link) in &self.links {
            let limit = match link.role {
                LinkRole::Handshaking => link.opened_ns.saturating_add(ns(self.config.dial_ms)),
                LinkRole::Dialing => continue,
                _ => link.heard_at_ns.saturating_add(detection),
            };
            let is_peer = matches!(link.role, LinkRole::Child | LinkRole::Parent);
            if is_peer
                && !link.is_quiet
                && link.heard_at_ns.saturating_add(quiet_ns) <= now_ns
                && limit > now_ns
            {
                quiet.push((*id, link.role));
            }
            if limit <= now_ns {
                silent.push((*id, link.role));
            } else if self.is_heartbeat_due_soon(link) {
                heartbeats_due |= self.heartbeat_due_ns(link) <= now_ns;
            }
        }
        // One wake-up for all links.
        if heartbeats_due {
            self.send_due_heartbeats();
        }
        for (link, _) in &quiet {
            if let Some(found) = self.links.get_mut(link) {
                found.is_quiet = true;
            }
        }
        self.on_quiet(&quiet);
        for (link, role) in silent {
            self.links.remove(&link);
            if role != LinkRole::Closing {
                self.counters.silent += 1;
                let reason = "nothing was heard for too long".to_owned();
                self.out.push(Output::CloseLink { link, reason });
                self.link_gone(link, role, "nothing was heard for too long");
            }
        }
    }

    /// Closes all links.
    fn on_stop(&mut self) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            let close = Close { stopping: true, reason: "the agent stops".to_owned() };
            self.close(link, Some(close), "the agent stops");
        }
        self.stopping = true;
        self.out.push(Output::Stopped);
    }

    /// A state was reached that cannot be; `invariant` names what is broken.
    fn impossible(&mut self, invariant: &str) {
        self.counters.impossible += 1;
        self.transition("node", "", "sound", "impossible", invariant);
    }

    /// Changes the role: one line in the log for each change.
    fn change_role(&mut self, cause: RoleCause, why: &str, next: impl FnOnce(Role) -> Role) {
        match self.role.transition(cause, next) {
            Some((from, to)) if from != to => {
                self.transition("role", "", from.as_str(), to.as_str(), why);
            }
            Some(_) => {}
            None => self.impossible("RoleHasEdge"),
        }
    }

    /// Changes the phase of an acting root.
    fn set_phase(&mut self, cause: RoleCause, why: &str, phase: RootPhase) {
        self.change_role(cause, why, |role| role.with_phase(phase));
    }

    fn transition(
        &mut self,
        machine: &'static str,
        subject: &str,
        from: &'static str,
        to: &'static str,
        why: &str,
    ) {
        self.out.push(Output::Transition(Transition {
            machine,
            subject: subject.to_owned(),
            from,
            to,
            why: why.to_owned(),
        }));
    }

    /// A number below `bound` (splitmix64: from the seed alone).
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
