//! Two logs meet: which one goes on, and what becomes of the other.
//!
//! The lower rank is root, but a new root has no log. It installs the whole log of the acting root
//! (or standby) that comes to it, before any other agent becomes its child: so no agent goes back
//! ([`Node::begin_install`]). In any other case the higher rank re-proposes its entries
//! ([`Node::step_down`]).
//!
//! Not responsible for: epochs that no agent has brought yet ([`crate::node::role::forks`]).

use crate::epochs::EpochHistory;
use crate::frame::{DedupRanges, Frame, Hello, ReplicaStart, Replicate, UpItem};
use crate::ident::Rank;
use crate::node::Node;
use crate::node::api::LinkId;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::publishing::LosingLog;
use crate::node::role::offered::OfferedLog;
use crate::node::role::re_proposal::{items_after_fork, unfilled};
use crate::node::role::root::RootPhase;
use crate::node::role::standby::{LogShipper, Replica};
use crate::node::role::{KeptLog, Offer, Role, RoleCause};
use crate::numbers::LogIndex;
use crate::ranges::PublisherRanges;

/// Most events that an acting root proposes again in favour of another log. With more the two logs
/// part, which is a gap.
const REPROPOSED_EVENTS_MAX: usize = 65_536;

impl Node {
    /// What an acting root does with an agent whose log is not its own: `Some(true)`, it takes the
    /// log over; `Some(false)`, the agent must wait for the one who brings it; `None`, no matter.
    pub(in crate::node) fn compare_histories(&mut self, rank: Rank, hello: &Hello) -> Option<bool> {
        let root = self.role.root()?;
        if hello.epochs.is_empty() || self.log.epochs().knows(hello.epochs.head()) {
            return None;
        }
        if matches!(root.phase, RootPhase::Installing { .. }) {
            return Some(false);
        }
        let fork = self.log.epochs().common(self.log.last(), &hello.epochs).unwrap_or_default();
        let own: usize = self.log.entries().after(fork).map(|item| item.count()).sum();
        let whole = self.is_whole_after(fork);
        // A root with a past that takes over a log which has lost some of it would lose its own,
        // too.
        let past = fork > LogIndex::ZERO || self.tree.children().next().is_some();
        let incomplete = past && hello.epochs.is_incomplete_after(fork);
        let counts = self.log_offers.counts(rank, self.cx.now.mono_ns);
        let offered = hello.log_range.filter(|_| counts);
        let worth = offered.is_some_and(|holds| {
            whole && !incomplete && own <= REPROPOSED_EVENTS_MAX && holds.until - fork > own as u64
        });
        if worth {
            return Some(true);
        }
        self.cx.counters.installs_refused += u64::from(hello.log_range.is_some());
        (self.cx.awaits_log() && offered.is_none()).then_some(false)
    }

    /// When a root has waited for a log, or for the next part of one.
    pub(in crate::node) fn await_log_ns(&self) -> Option<u64> {
        let waits_until_ns = self.role.waits_until_ns();
        match &self.role.root()?.phase {
            RootPhase::Installing { offered, .. } => {
                let deadline_ns = offered.deadline_ns(&self.cx.config);
                Some(waits_until_ns.map_or(deadline_ns, |until_ns| until_ns.min(deadline_ns)))
            }
            RootPhase::AwaitingLog { .. } | RootPhase::Leading => waits_until_ns,
        }
    }

    /// A root has waited for a log, or for the next part of one.
    pub(in crate::node) fn on_await_log_timer(&mut self) {
        let later_ns = self.cx.after_ms(self.cx.config.dial_ms);
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("TimerOfRoot") };
        match &mut root.phase {
            RootPhase::Installing { from, offered, awaits, .. } => {
                // The log is on its way: no epoch may begin before it is here.
                *awaits = awaits.map(|_| later_ns);
                let link = *from;
                if offered.deadline_ns(&self.cx.config) <= self.cx.now.mono_ns {
                    self.refuse_offer(link, "it does not come");
                    self.end_install(link, "the log does not come");
                }
            }
            RootPhase::AwaitingLog { .. } => self.begin_to_lead("no log has come in time"),
            RootPhase::Leading => {}
        }
        self.refresh_around();
    }

    /// This agent was stopped for a while itself.
    pub(in crate::node) fn forgive_offer(&mut self, now_ns: u64) {
        if let Some(RootPhase::Installing { offered, .. }) =
            self.role.root_mut().map(|root| &mut root.phase)
        {
            offered.forgive(now_ns);
        }
    }

    /// A child offers what it does not send, or what no honest agent has.
    fn refuse_offer(&mut self, link: LinkId, what: &str) {
        if let Some(RootPhase::Installing { offered, .. }) = self.role.root().map(|r| &r.phase) {
            self.log_offers.refused(offered.rank, self.cx.now.mono_ns);
        }
        self.membership.refuse_log(link, what);
    }

    /// A new root does not wait for a log that no agent can bring.
    pub(in crate::node) fn end_wait_for_log(&mut self) {
        let phase = self.role.root().map(|root| &root.phase);
        if matches!(phase, Some(RootPhase::AwaitingLog { .. })) && self.has_all_listed() {
            self.begin_to_lead("all listed agents are below this one");
        }
    }

    fn begin_to_lead(&mut self, why: &str) {
        self.set_phase(RoleCause::WaitOver, why, RootPhase::Leading);
        self.reading(|delivery, cx| delivery.begin_active(cx));
        self.membership.answer_all_joins(&mut self.cx);
    }

    // The side that has the log.

    /// What of `role`, which ends, goes up as a whole log.
    fn offered_by(&mut self, role: Role) -> Option<PublisherRanges> {
        let replica = match role {
            Role::Root(root) => {
                // The new root waits for the same epochs.
                root.forks.waiting().for_each(|fork| self.publishing.push(fork));
                return Some(root.published);
            }
            role => match role.into_log() {
                KeptLog::Copy(replica) => Some(*replica),
                KeptLog::Whole(published) if self.past.is_none() => {
                    self.log.set_complete();
                    return Some(published);
                }
                KeptLog::Whole(_) | KeptLog::None => None,
            },
        };
        let replica = replica.or_else(|| self.past.take().map(|past| past.replica))?;
        self.take_copy(replica.log);
        Some(replica.published)
    }

    /// The new parent wants the agent's log as a whole: the log goes up before anything else.
    /// The agent appends nothing any more. Until the parent has the log, it can take the log back.
    /// `role`: the role before. Says whether the agent has a log.
    pub(in crate::node) fn begin_offer(&mut self, role: Role, why: &str) -> bool {
        // It has lost its log since its hello.
        let Some(published) = self.offered_by(role) else { return false };
        let range = (self.log.known_after(true), self.log.last());
        let shipper = LogShipper::new(self.log.epochs(), range, &published, 0);
        let offer = Offer { shipper, published };
        self.change_role(RoleCause::LogWanted, why, |role| role.with_offer(offer));
        true
    }

    /// The log that was offered as a whole was not taken, and another goes on: what it has behind
    /// the fork goes up as unconfirmed events, before what waits. A log that was taken has nothing
    /// there.
    pub(in crate::node) fn re_propose_offered(&mut self, winning: &EpochHistory) {
        let items = items_after_fork(
            self.log.entries(),
            self.log.epochs(),
            self.log.memory_after(),
            winning,
        );
        if items.is_empty() {
            return;
        }
        let losing = LosingLog { items, has_all: false, hole_until: LogIndex::ZERO };
        self.publishing.re_propose(&mut self.cx, losing, winning);
        self.flush_outbox();
    }

    /// The next piece of an offered log.
    pub(in crate::node) fn poll_offer(&mut self, bytes_max: usize) -> Option<Frame> {
        let Role::Offering(_, offer) = &mut self.role else { return None };
        offer.shipper.next(&self.log, bytes_max)
    }

    // The side that takes it.

    /// Begins to take a child's log over.
    pub(in crate::node) fn begin_install(&mut self, from: LinkId, rank: Rank, hello: &Hello) {
        let awaits = match self.role.root().map(|root| &root.phase) {
            Some(RootPhase::AwaitingLog { until_ns }) => Some(*until_ns),
            _ => None,
        };
        let offered = OfferedLog::of(rank, hello, self.cx.now.mono_ns);
        let phase = RootPhase::Installing { from, offered, replica: None, awaits };
        self.set_phase(RoleCause::LogOffered, "a child brings its log", phase);
    }

    /// The child whose log was taken over is gone.
    pub(in crate::node) fn abort_install(&mut self, link: LinkId) {
        self.end_install(link, "the child with the log is gone");
    }

    fn end_install(&mut self, link: LinkId, why: &str) {
        let phase = match self.role.root().map(|root| &root.phase) {
            Some(RootPhase::Installing { from, offered, awaits, .. }) if *from == link => {
                self.log_offers.failed(offered, &self.cx);
                match *awaits {
                    Some(until_ns) => RootPhase::AwaitingLog { until_ns },
                    None => RootPhase::Leading,
                }
            }
            _ => return,
        };
        self.set_phase(RoleCause::OfferLost, why, phase);
    }

    /// The log that a child offers; `None`: the install was given up.
    fn install_from(
        &mut self,
        link: LinkId,
    ) -> Option<(&Cx, &mut OfferedLog, &mut Option<Box<Replica>>)> {
        match &mut self.role.root_mut()?.phase {
            RootPhase::Installing { from, offered, replica, .. } if *from == link => {
                offered.heard(self.cx.now.mono_ns);
                Some((&self.cx, offered, replica))
            }
            _ => None,
        }
    }

    pub(in crate::node) fn on_offered_start(&mut self, link: LinkId, start: ReplicaStart) {
        let Some((cx, offered, slot)) = self.install_from(link) else { return };
        let started = offered.start(&start);
        *slot = Some(Box::new(Replica::new(start, &cx.config)));
        if let Err(what) = started {
            self.refuse_offer(link, what);
        }
    }

    pub(in crate::node) fn on_offered_dedup(&mut self, link: LinkId, dedup: &DedupRanges) {
        let Some((cx, offered, slot)) = self.install_from(link) else { return };
        let Some(replica) = slot else { return };
        if let Err(what) = offered.ranges(cx, dedup) {
            return self.refuse_offer(link, what);
        }
        replica.mark(dedup);
    }

    pub(in crate::node) fn on_offered_entries(&mut self, link: LinkId, batch: Replicate) {
        let Some((_, offered, slot)) = self.install_from(link) else { return };
        // The child has not said which log it is.
        let Some(replica) = slot else { return };
        if replica.epochs.head() != batch.epoch {
            self.cx.counters.stale += 1;
            return;
        }
        if let Err(what) = offered.entries(replica, &batch) {
            return self.refuse_offer(link, what);
        }
        if !replica.add(batch) {
            return self.misbehaved(link, "an entry reference names no batch");
        }
        let (is_kept, rank) = (offered.is_kept_by(replica), offered.rank);
        if replica.complete
            && let Some(replica) = slot.take()
        {
            match is_kept {
                true => self.install_log(link, *replica),
                false => {
                    self.log_offers.refused(rank, self.cx.now.mono_ns);
                    self.refuse_log(link, &replica, "it is shorter than its hello said");
                }
            }
        }
    }

    /// The whole log is here: the agent goes on with it, in a new epoch. Its own entries are
    /// appended again; the dedup ranges drop those that the log has.
    fn install_log(&mut self, from: LinkId, replica: Replica) {
        let common = self.log.epochs().common(self.log.last(), &replica.epochs);
        let fork = common.unwrap_or_default();
        if !self.is_whole_after(fork) {
            return self.refuse_log(
                from,
                &replica,
                "its own log is not whole any more after the fork",
            );
        }
        let own: Vec<UpItem> =
            self.log.entries().after(fork).map(|item| UpItem::from(item.content)).collect();
        self.reading(|delivery, cx| delivery.flush_subscribers(cx));
        let why = "the log of a child goes on";
        self.set_phase(RoleCause::LogInstalled, why, RootPhase::Leading);
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("RootIsRoot") };
        root.log_source = Some(from);
        root.published = replica.published;
        let (epochs, last) = (&replica.epochs, replica.log.last());
        root.note_filled(|gap| match epochs.keeps(gap.until) {
            true => unfilled(gap, last),
            false => Some(gap),
        });
        root.forget_unconfirmed();
        self.epoch_seen = self.epoch_seen.max(replica.epochs.head().number);
        if common.is_none() {
            self.report_parted(replica.epochs.position(last));
        }
        self.log.install(replica.log, replica.epochs, common);
        match common {
            Some(_) => {
                self.delivery.rewind_subscribers(Some(fork), self.log.epochs());
                self.delivery.subscribers_catch_up(self.log.entries().evicted());
            }
            None => self.delivery.move_subscribers(last),
        }
        self.cx.counters.logs_installed += 1;
        self.open_epoch(false);
        for item in own {
            self.append(item);
        }
        self.publishing.requeue(self.log.epochs());
        self.on_uplink_change();
        self.reading(|delivery, cx| delivery.begin_active(cx));
        self.membership.answer_all_joins(&mut self.cx);
        self.reading(|delivery, cx| delivery.catch_up_all(cx, true));
    }

    /// While a log came, this one has grown, and dropped events after the fork: it goes on, as if
    /// that had been so from the beginning. The child proposes its own again.
    fn refuse_log(&mut self, from: LinkId, replica: &Replica, why: &str) {
        self.cx.counters.installs_refused += 1;
        self.end_install(from, why);
        self.open_epoch(false);
        self.report_fork(replica.epochs.position(replica.log.last()));
    }

    /// Whether memory has all of the own log behind a fork. What is given up is appended again: it
    /// must be whole, or an origin would put back what is missing of it behind the rest.
    fn is_whole_after(&self, fork: LogIndex) -> bool {
        self.log.memory_after() <= fork
    }

    /// Whether all other listed agents are below this one: no other component can bring a log.
    fn has_all_listed(&self) -> bool {
        let listed = self.cx.rank.is_some_and(|rank| !rank.is_unlisted());
        listed && self.membership.are_listed_up(self.cx.config.members.len().saturating_sub(1))
    }

    /// How long a root that has just started waits for a log, in nanoseconds; less where
    /// [`Node::has_all_listed`].
    pub(in crate::node) fn log_wait_ns(&self) -> u64 {
        let others = self.cx.config.members.len() > 1 || self.cx.is_unlisted();
        if others { ns(self.cx.config.search_ms) } else { 0 }
    }
}
