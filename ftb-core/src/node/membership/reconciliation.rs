//! The expected members: the acting root probes those that were in the tree and are not there now.
//!
//! An agent that loses a child opens a suspicion at once ([`crate::node::membership::suspicion`]).
//! The acting root knows the whole tree and does the rest. It expects three kinds of members:
//! those below a lost agent, those that moved to another parent, and those that were lost and are
//! not known to be dead. Each root sends a *membership snapshot* to all agents. A new root compares
//! the members with the snapshot of the root before, and probes those that do not come.
//!
//! Responsible for: the snapshot, and which members are overdue. Not responsible for: the meaning
//! of a probe ([`crate::node::membership::suspicion`]), the state of members
//! ([`crate::node::membership::members`]).

use crate::frame::{Frame, SNAPSHOT_RANGES_MAX};
use crate::ident::Rank;
use crate::node::Node;
use crate::node::api::{LinkId, MemberState};
use crate::node::config::ns;
use crate::node::timers::Timer;
use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest pause between two probes of one member.
const PAUSE_MS_MAX: u64 = 60_000;
/// Most probes of a member whose host accepts and whose agent is silent. Each probe stays in the
/// queue of its socket. When that queue is full, the host looks dead.
const SILENT_MAX: u32 = 5;

/// The expected members, and those of them that are overdue: one entry for each possible member.
#[derive(Default)]
pub(in crate::node) struct Reconciliation {
    /// The ranks of all members that are in the tree or missing, as the acting root last sent them.
    snapshot: Arc<RangeSet>,
    /// The pause before a new root compares the members with the snapshot again.
    pause_ms: u64,
    overdue: BTreeMap<Rank, Overdue>,
}

struct Overdue {
    /// When the member is probed; `None`: not again.
    next_ns: Option<u64>,
    pause_ms: u64,
    /// How often its host accepted a probe and its agent was silent.
    silent: u32,
}

impl Reconciliation {
    /// The host of a member accepts probes, and its agent is silent.
    pub(in crate::node) fn note_silent_agent(&mut self, rank: Rank) {
        let Some(overdue) = self.overdue.get_mut(&rank) else { return };
        overdue.silent += 1;
        if overdue.silent >= SILENT_MAX {
            overdue.next_ns = None;
        }
    }
}

impl Node {
    /// Probes a member after that time, unless it is overdue already.
    fn expect_member(&mut self, rank: Rank, after_ms: u64) {
        let next_ns = self.now.mono_ns.saturating_add(ns(after_ms));
        self.timers.set_earlier(Timer::ProbeOverdue, next_ns);
        let overdue = Overdue { next_ns: Some(next_ns), pause_ms: after_ms, silent: 0 };
        self.reconciliation.overdue.entry(rank).or_insert(overdue);
    }

    /// The acting root learns that a member has come, or is gone.
    pub(in crate::node) fn note_member_state(&mut self, rank: Rank, state: MemberState) {
        if !self.role.is_root() || Some(rank) == self.rank {
            return;
        }
        if state.is_missed() {
            // The agent that lost it probes first. A member that moved is about to be reported.
            let after_ms = self.config.detection_ms + 2 * self.config.dial_ms;
            self.expect_member(rank, after_ms);
        } else {
            self.reconciliation.overdue.remove(&rank);
        }
        self.snapshot_changed();
    }

    /// A member was lost without a Close: those below it are missing until they come back.
    pub(in crate::node) fn doubt_all_below(&mut self, lost: Rank) {
        if !self.role.is_root() {
            return;
        }
        let after_ms = self.config.detection_ms / 4;
        for rank in self.members.doubt_below(lost) {
            self.expect_member(rank, after_ms);
        }
    }

    fn snapshot_changed(&mut self) {
        let soon_ns = self.now.mono_ns.saturating_add(ns(self.config.heartbeat_ms));
        self.timers.set_earlier(Timer::Snapshot, soon_ns);
    }

    /// The parent sends the membership snapshot.
    pub(in crate::node) fn on_membership_snapshot(&mut self, snapshot: Arc<RangeSet>) {
        let old = std::mem::replace(&mut self.reconciliation.snapshot, Arc::clone(&snapshot));
        // Only the agents above a member learn where it has come. The next root must expect it all
        // the same.
        self.members.forget_gone(|rank| {
            let rank = rank.0.into();
            snapshot.contains(rank) && !old.contains(rank)
        });
        self.forward_snapshot();
    }

    fn forward_snapshot(&mut self) {
        let attached = self.children.iter().filter(|(_, child)| child.attached);
        for link in attached.map(|(link, _)| *link).collect::<Vec<LinkId>>() {
            self.send_snapshot_to(link);
        }
    }

    /// A child has come, or the snapshot has changed. A child without room for this one gets the
    /// next one.
    pub(in crate::node) fn send_snapshot_to(&mut self, link: LinkId) {
        if !self.reconciliation.snapshot.ranges().is_empty() {
            let snapshot = Arc::clone(&self.reconciliation.snapshot);
            self.send_if_room(link, Frame::MembershipSnapshot(snapshot));
        }
    }

    /// The member list has changed, and with it the ranks. Or the acting root left in order: which
    /// members left with it is not known.
    pub(in crate::node) fn reset_reconciliation(&mut self) {
        self.reconciliation = Reconciliation::default();
        for timer in [Timer::Snapshot, Timer::Reconcile, Timer::ProbeOverdue] {
            self.timers.stop(timer);
        }
        if self.role.is_root() {
            self.snapshot_changed();
        }
    }

    /// An epoch begins: the members of the snapshot have some time to come.
    pub(in crate::node) fn begin_reconciliation(&mut self) {
        let pause_ms = self.config.detection_ms / 2;
        let after_ms = self.config.detection_ms + 2 * self.config.dial_ms;
        self.reconciliation.overdue.clear();
        for rank in self.members.doubted().collect::<Vec<Rank>>() {
            self.expect_member(rank, after_ms);
        }
        self.reconciliation.pause_ms = pause_ms;
        let at_ns = self.now.mono_ns.saturating_add(ns(pause_ms));
        match self.reconciliation.snapshot.ranges().is_empty() {
            true => self.timers.stop(Timer::Reconcile),
            false => self.timers.set(Timer::Reconcile, at_ns),
        }
        self.snapshot_changed();
    }

    /// A member of the snapshot that has not come is missing, and probed at once.
    pub(in crate::node) fn reconcile(&mut self) {
        let now_ns = self.now.mono_ns;
        let expected = |rank: &Rank| {
            Some(*rank) != self.rank && self.reconciliation.snapshot.contains(rank.0.into())
        };
        let absent: Vec<(Rank, String)> = self
            .all_ranks()
            .filter(expected)
            .filter(|rank| !self.members.is_known(*rank))
            .filter_map(|rank| Some((rank, self.member(rank)?.0)))
            .collect();
        if self.is_cut_off(self.reconciliation.overdue.len() + absent.len()) {
            let pause_ms = self.reconciliation.pause_ms;
            self.timers.set(Timer::Reconcile, now_ns.saturating_add(ns(pause_ms)));
            self.reconciliation.pause_ms = (2 * pause_ms).min(PAUSE_MS_MAX);
            return;
        }
        self.timers.stop(Timer::Reconcile);
        let pause_ms = self.config.detection_ms / 4;
        for (rank, host) in absent {
            self.member_overdue(rank, &host);
            let overdue = Overdue { next_ns: Some(now_ns), pause_ms, silent: 0 };
            self.reconciliation.overdue.insert(rank, overdue);
            self.timers.set_earlier(Timer::ProbeOverdue, now_ns);
        }
    }

    fn all_ranks(&self) -> impl Iterator<Item = Rank> {
        let listed = u32::try_from(self.config.members.len()).unwrap_or(u32::MAX);
        (0..listed).map(Rank).chain(self.unlisted_ranks())
    }

    /// Whether more members are missing than are here: then this component is cut off, and no
    /// member is declared dead.
    fn is_cut_off(&self, missing: usize) -> bool {
        missing > self.members.count_up() + 1
    }

    pub(in crate::node) fn announce_snapshot(&mut self) {
        let mut snapshot = match self.timers.is_set(Timer::Reconcile) {
            // Before the comparison no member is left out.
            true => RangeSet::clone(&self.reconciliation.snapshot),
            false => RangeSet::default(),
        };
        for rank in self.members.expected().chain(self.rank) {
            snapshot.insert(rank.0.into());
        }
        if *self.reconciliation.snapshot != snapshot {
            snapshot.truncate(SNAPSHOT_RANGES_MAX);
            self.reconciliation.snapshot = Arc::new(snapshot);
            self.forward_snapshot();
        }
    }

    pub(in crate::node) fn probe_overdue(&mut self) {
        let now_ns = self.now.mono_ns;
        let cut_off = self.is_cut_off(self.reconciliation.overdue.len());
        let mut room = if cut_off { 0 } else { self.suspicions.room() };
        let mut probed = Vec::new();
        for (rank, overdue) in &mut self.reconciliation.overdue {
            if overdue.next_ns.is_none_or(|next_ns| next_ns > now_ns) {
                continue;
            }
            overdue.next_ns = Some(now_ns.saturating_add(ns(overdue.pause_ms)));
            if room > 0 && !self.suspicions.is_open(*rank) {
                room -= 1;
                overdue.pause_ms = (2 * overdue.pause_ms).min(PAUSE_MS_MAX);
                probed.push(*rank);
            }
        }
        let next = self.reconciliation.overdue.values().filter_map(|overdue| overdue.next_ns);
        match next.min() {
            Some(next_ns) => self.timers.set(Timer::ProbeOverdue, next_ns),
            None => self.timers.stop(Timer::ProbeOverdue),
        }
        for rank in probed {
            match self.members.sighting_of(rank) {
                Some((child, host)) => self.probe_again(child, &host),
                None => drop(self.reconciliation.overdue.remove(&rank)),
            }
        }
    }
}
