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
mod around;
mod conditions;
mod config;
mod counters;
mod cx;
mod delivery;
mod dispatch;
mod journal;
mod links;
mod membership;
mod publishing;
mod questions;
mod role;
mod status;
mod timers;
mod trace_ring;
mod tree;

pub use crate::log::retained::{Items as RetainedItems, Reserve, Retained};
pub use crate::storm::{Fold, Folder, StormRule};
pub use api::JournalState;
pub use conditions::{STATEMENT_BYTES_MAX, STATEMENT_USER_BYTES_MAX};
pub use config::{Member, MemberList, NodeConfig, UNLISTED_MAX, protected_by_default};
pub use counters::counter_meanings;
pub use delivery::JOURNAL_READS_MAX;
pub use publishing::{ACK_DELAY_EVENTS_MAX, ACK_DELAY_MS};
pub use status::{Census, ChildStatus, ClientStatus, NodeStatus, SERVICES, TreeRole};
pub use trace_ring::TRACE_BYTES_MAX;
pub use tree::{EPOCH_FLOOR, INDEX_FLOOR, check_stored};

use crate::frame::{Close, Frame};
use crate::log::followed::FollowedLog;
use crate::time::Now;
use crate::trace::TrustReport;
use api::{ClientId, HostAnswer, Input, LinkId, Output};
use config::ns;
use cx::{Cx, NOT_READ};
use delivery::Delivery;
use journal::Journal;
use links::LinkRole;
use membership::Membership;
use publishing::Publishing;
use role::journal::Past;
use role::offered::LogOffers;
use role::root::RootPhase;
use role::{Role, RoleCause};
pub use role::{RoleName, role_table};
use timers::Timer;
use tree::Tree;

/// One agent.
pub struct Node {
    cx: Cx,
    stopping: bool,
    /// When this agent went on after it had been stopped for a while itself.
    resumed_ns: Option<u64>,

    tree: Tree,
    membership: Membership,

    journal: Journal,
    /// The log of an earlier life of this agent.
    past: Option<Past>,
    /// The log that is consumed here.
    log: FollowedLog,
    /// Highest epoch number heard of.
    epoch_seen: u64,
    role: Role,
    /// Logs that were offered to this agent and did not come.
    log_offers: LogOffers,
    /// Until when an agent waits for a log if it becomes acting root. `None`: it has been in a
    /// tree, or has waited.
    log_wait_until_ns: Option<u64>,
    delivery: Delivery,
    publishing: Publishing,
    /// Requests for paths of events.
    questions: questions::Questions,

    /// What clients here state about conditions, and what becomes unknown.
    conditions: conditions::Conditions,
    /// Hosts of suspects that are powered off, as this input says.
    powered_off: Vec<String>,
    /// When the first certificate or revocation list of this agent ends, in Unix nanoseconds.
    certificates_end_ns: Option<u64>,
    /// How statements of conditions are proven here; `None`: without certificates.
    trust: Option<Box<TrustReport>>,
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
            stopping: false,
            resumed_ns: None,
            tree: Tree::new(),
            membership: Membership::default(),
            journal: Journal::default(),
            past: None,
            log: FollowedLog::new(config.conditions),
            epoch_seen: 0,
            role: Role::idle(),
            log_offers: LogOffers::default(),
            log_wait_until_ns: None,
            delivery: Delivery::new(config.publishers_max),
            publishing: Publishing::new(&config),
            questions: questions::Questions::default(),
            conditions: conditions::Conditions::default(),
            powered_off: Vec::new(),
            certificates_end_ns: None,
            trust: None,
            cx: Cx::new(now, config, seed),
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
        self.cx.advance(now);
        if !self.stopping {
            self.dispatch(input);
            self.apply_assignments();
            self.settle_claims();
            self.end_overfull_links();
            self.commit();
            self.follow_power();
            self.evict();
            self.follow_conditions();
        }
        self.wake_journal();
        self.finish(out);
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
        self.cx.advance(now);
        let frame = self.next_frame(link, bytes_max);
        self.finish(out);
        frame
    }

    fn next_frame(&mut self, link: LinkId, bytes_max: usize) -> Option<Frame> {
        let role = self.cx.links.role(link)?;
        let frame = self.cx.links.pop(link);
        let frame = frame.or_else(|| match role {
            LinkRole::Child => self.poll_child(link, bytes_max),
            LinkRole::Parent => self.poll_parent(bytes_max),
            LinkRole::Handshaking | LinkRole::Dialing | LinkRole::Closing => None,
        });
        // The poll itself may have queued a control frame.
        let frame = frame.or_else(|| self.cx.links.pop(link));
        let frame = frame.or_else(|| match role {
            _ if !self.cx.links.take_heartbeat(link) => None,
            LinkRole::Child => Some(Frame::Heartbeat(self.child_heartbeat(link))),
            LinkRole::Parent => Some(Frame::Heartbeat(self.parent_heartbeat())),
            LinkRole::Handshaking | LinkRole::Dialing | LinkRole::Closing => None,
        });
        match frame {
            Some(_) => self.cx.links.sent(link, self.cx.now.mono_ns),
            None => self.cx.links.drained(link),
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
        self.cx.advance(now);
        let message = self.next_to_client(client, bytes_max);
        self.finish(out);
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
        self.cx.advance(now);
        let write = self.next_journal_write(bytes_max);
        self.finish(out);
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
            if self.deadline_ns(timer).is_some_and(|at_ns| at_ns <= self.cx.now.mono_ns) {
                self.on_timer(timer);
            }
        }
    }

    /// When a timer expires; `None`: it is not armed.
    fn deadline_ns(&self, timer: Timer) -> Option<u64> {
        match timer {
            Timer::Links => self.cx.links.deadline_ns(&self.cx.config),
            Timer::Dial
            | Timer::Hello
            | Timer::WidenSearch
            | Timer::EndSearch
            | Timer::RetryBusy
            | Timer::BetterParent
            | Timer::Findings => self.tree.deadline_ns(&self.cx, timer),
            Timer::TreeQuery => self.membership.tree_query_ns(),
            Timer::Trace => self.questions.deadline_ns(),
            Timer::Snapshot | Timer::Reconcile => {
                self.cx.timers.get(timer).filter(|_| self.role.is_root())
            }
            Timer::AwaitLog => self.await_log_ns(),
            Timer::Fork => self.role.root()?.forks.deadline_ns(),
            Timer::Unreadable => self.role.root()?.unreadable.as_ref().map(|(_, at_ns)| *at_ns),
            Timer::HistoryRequest => self.delivery.history_deadline_ns(&self.cx),
            Timer::Fold
            | Timer::StormGap
            | Timer::DelayedAck
            | Timer::OutboxGrace
            | Timer::UserRate
            | Timer::Settle => self.publishing.deadline_ns(&self.cx, timer),
            Timer::Group => {
                let is_on = self.membership.all_know_folds();
                self.role.root()?.grouping.deadline_ns(is_on)
            }
            Timer::Conditions => self.conditions.deadline_ns(),
            Timer::Suspicion | Timer::Covered | Timer::Resend | Timer::MergeInterest => {
                self.cx.timers.get(timer)
            }
            Timer::Standby => self.standby_deadline_ns(),
            Timer::Journal => self.journal.deadline_ns(&self.cx),
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        debug_assert!(self.cx.around == self.around(), "AroundIsFresh");
        match timer {
            Timer::Links => self.on_links_timer(),
            Timer::Dial => self.on_dial_timer(),
            Timer::Hello => {
                self.tree.drop_late_hellos(&mut self.cx);
                self.search_on();
            }
            Timer::WidenSearch => {
                self.tree.widen(&mut self.cx);
                self.search_on();
            }
            Timer::EndSearch => {
                self.tree.forget_busy();
                self.become_root("no parent was found in time");
            }
            Timer::RetryBusy => {
                self.tree.retry_busy();
                self.search_on();
            }
            Timer::BetterParent => self.probe_better(),
            Timer::TreeQuery => self.membership.on_tree_query_timer(&mut self.cx),
            Timer::Trace => self.questions.on_timer(&mut self.cx),
            Timer::Suspicion => self.membership.on_suspicion_timer(&mut self.cx),
            Timer::Snapshot => {
                self.cx.timers.stop(timer);
                self.membership.announce_snapshot(&mut self.cx);
            }
            Timer::Reconcile => self.membership.reconcile(&mut self.cx),
            Timer::AwaitLog => self.on_await_log_timer(),
            Timer::Unreadable => self.log_unreadable(),
            Timer::Fork => self.on_fork_timer(),
            Timer::HistoryRequest | Timer::Covered | Timer::MergeInterest => {
                self.reading(|delivery, cx| delivery.on_timer(cx, timer))
            }
            Timer::Fold
            | Timer::StormGap
            | Timer::DelayedAck
            | Timer::OutboxGrace
            | Timer::UserRate
            | Timer::Settle => {
                self.publishing.on_timer(&mut self.cx, timer);
                self.flush_outbox();
            }
            Timer::Group => self.on_group_timer(),
            Timer::Conditions => self.on_conditions_timer(),
            Timer::Resend => self.on_resend_timer(),
            Timer::Findings => self.tree.end_findings(&mut self.cx),
            // A commit follows each input: it skips a standby or a journal that is too slow.
            Timer::Standby | Timer::Journal => {}
        }
    }

    fn on_dial_timer(&mut self) {
        for dial in self.tree.late_dials(self.cx.now.mono_ns) {
            self.on_dial_failed(dial, "no answer before the deadline", HostAnswer::Nothing);
        }
    }

    fn dispatch(&mut self, input: Input) {
        self.charge_request(&input);
        match input {
            Input::Tick => {}
            Input::Dialed { dial, link } => self.on_dialed(dial, link),
            Input::DialFailed { dial, error, answer } => self.on_dial_failed(dial, &error, answer),
            Input::Accepted { link, certified_hosts } => self.on_accepted(link, certified_hosts),
            Input::Frame { link, frame } => self.on_frame(link, frame),
            Input::LinkClosed { link, error } => self.on_link_closed(link, &error),
            Input::ClientAttached { client, info } => self.on_client_attached(client, info),
            Input::ClientDetached { client } => self.on_client_detached(client),
            Input::Publish { client, events, confirm } => self.on_publish(client, events, confirm),
            Input::Restate { client, events } => self.on_restate(client, events),
            Input::Subscribe { client, subscription, filter, start } => {
                self.reading(|delivery, cx| {
                    delivery.on_subscribe(cx, client, (subscription, *filter, start))
                })
            }
            Input::Unsubscribe { client, subscription } => {
                self.delivery.on_unsubscribe(&mut self.cx, client, subscription);
            }
            Input::DelayAcks { client, delayed } => {
                self.publishing.on_delay_acks(&mut self.cx, client, delayed);
            }
            Input::QueryTree { query, deadline_ns } => {
                self.membership.on_query_tree(&mut self.cx, query, deadline_ns)
            }
            Input::QueryTrace { query, subject, within_ms } => {
                self.on_query_trace(query, subject, within_ms)
            }
            Input::CertificatesEnd(end_ns) => self.certificates_end_ns = end_ns,
            Input::Trust(trust) => self.on_trust(trust),
            Input::JournalOpened { stored, restored, damage } => {
                self.journal_damaged(damage);
                self.on_journal_opened(stored, restored.map(|restored| *restored));
            }
            Input::Journaled { generation, until, synced } => {
                self.on_journaled(generation, until, synced)
            }
            Input::JournalRead { read, page } => {
                self.reading(|delivery, cx| delivery.on_journal_read(cx, read, page))
            }
            Input::JournalFailed { error } => self.journal.on_failed(&mut self.cx, &error),
            Input::Reconfigure { members, fanout, allow_unlisted, storm } => {
                self.cx.config.allow_unlisted = allow_unlisted;
                self.on_reconfigure(members, fanout);
                self.cx.config.storm.clone_from(&storm);
                self.publishing.set_storm_rules(storm);
                self.flush_outbox();
            }
            Input::Stop => return self.on_stop(),
        }
        self.expire_timers();
        self.end_wait_for_log();
        self.choose_standby();
    }

    /// The transport of a link is gone.
    fn on_link_closed(&mut self, link: LinkId, error: &str) {
        match self.cx.links.remove(link) {
            Some(role) => self.link_gone(link, role, error),
            None => self.cx.counters.stale += 1,
        }
    }

    fn link_gone(&mut self, link: LinkId, role: LinkRole, why: &str) {
        self.questions.on_link_gone(&mut self.cx, link);
        match role {
            LinkRole::Child => self.lose_child(link, self.why_child_left(), why),
            LinkRole::Parent => self.on_parent_lost(false, why),
            LinkRole::Dialing => self.on_dialing_lost(link),
            LinkRole::Handshaking => self.membership.dynamic.link_gone(link),
            LinkRole::Closing => {}
        }
    }

    /// The peer said what it must not say: the link ends, and counts as lost.
    fn misbehaved(&mut self, link: LinkId, what: &str) {
        self.cx.counters.misbehaved += 1;
        let role = self.cx.links.role(link);
        self.cx.close(link, None, what);
        if let Some(role) = role {
            self.link_gone(link, role, what);
        }
    }

    /// Passes on what the parts have asked for, and gives the outputs.
    fn finish(&mut self, out: &mut Vec<Output>) {
        self.end_overfull_links();
        self.wake_clients();
        self.cx.take_outputs(out);
    }

    fn end_overfull_links(&mut self) {
        while let Some((link, role)) = self.cx.next_overfull() {
            self.cx.counters.misbehaved += 1;
            self.link_gone(link, role, NOT_READ);
        }
    }

    /// An agent that was stopped for a while must read what waits for it before it judges the
    /// silence of others: each link gets a fresh period.
    fn forgive_if_late(&mut self, now: Now) {
        let late_ns = ns(self.cx.config.detection_ms) / 2;
        // What is due now was not due before: mostly there is nothing to look for.
        if now.mono_ns.saturating_sub(self.cx.now.mono_ns) <= late_ns {
            return;
        }
        let due = self.next_deadline_ns().map(|due| due.max(self.cx.now.mono_ns));
        if due.is_some_and(|due| now.mono_ns.saturating_sub(due) > late_ns) {
            self.resumed_ns = Some(now.mono_ns);
            self.cx.links.forgive(now.mono_ns);
            self.membership.forgive_claims(now.mono_ns);
            self.forgive_offer(now.mono_ns);
        }
    }

    /// What a closed link says of a child. An agent that was stopped itself was silent for its
    /// children: they left for another parent, and are not suspected of anything.
    fn why_child_left(&self) -> api::MemberState {
        let fresh_ns = ns(self.cx.config.detection_ms);
        let was_stopped =
            self.resumed_ns.is_some_and(|at| at.saturating_add(fresh_ns) > self.cx.now.mono_ns);
        match was_stopped {
            true => api::MemberState::Moved,
            false => api::MemberState::Suspect,
        }
    }

    fn on_links_timer(&mut self) {
        let silent = self.cx.links.expire(&self.cx.config, self.cx.now.mono_ns);
        silent.heartbeats.into_iter().for_each(|link| self.cx.heartbeat(link));
        self.membership.on_quiet(&mut self.cx, &silent.quiet);
        for (link, role) in silent.lost {
            if role != LinkRole::Closing {
                self.cx.counters.silent += 1;
                let reason = "nothing was heard for too long".to_owned();
                self.cx.push(Output::CloseLink { link, reason });
                self.link_gone(link, role, "nothing was heard for too long");
            }
        }
    }

    /// Closes all links.
    fn on_stop(&mut self) {
        for link in self.cx.links.ids() {
            let close = Close { stopping: true, reason: "the agent stops".to_owned() };
            self.cx.close(link, Some(close), "the agent stops");
        }
        self.stopping = true;
        self.cx.push(Output::Stopped);
    }

    /// Changes the role: one line in the log for each change, with its cause as the subject.
    fn change_role(&mut self, cause: RoleCause, why: &str, next: impl FnOnce(Role) -> Role) {
        match self.role.transition(cause, next) {
            Some((from, to)) => {
                let cause = format!("{cause:?}");
                self.cx.transition("role", &cause, from.as_str(), to.as_str(), why);
            }
            None => self.cx.impossible("RoleHasEdge"),
        }
        self.refresh_around();
    }

    /// Changes the phase of an acting root.
    fn set_phase(&mut self, cause: RoleCause, why: &str, phase: RootPhase) {
        self.change_role(cause, why, |role| role.with_phase(phase));
    }
}
