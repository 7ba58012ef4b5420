//! Who was in the tree and is not there now: the acting root looks for them until they have come
//! from somewhere, or answer nobody.
//!
//! Whoever loses a child asks about it at once ([`crate::node::membership::suspicion`]). What
//! remains is the acting root's, who knows the whole tree: who was below a lost agent and has not
//! come elsewhere, who has left a parent for another one and has not come there, and who was lost
//! and is not known to be dead. So that the next root knows it too, all are told the *roll* by the
//! one that epochs: whoever takes over calls it, and looks for those that do not come.
//!
//! Responsible for: the roll, whom the acting root looks for, and when. Not responsible for: what a
//! look means ([`crate::node::membership::suspicion`]), where members stand
//! ([`crate::node::membership::members`]).

use crate::frame::{Frame, SNAPSHOT_RANGES_MAX};
use crate::ident::Rank;
use crate::node::Node;
use crate::node::api::{LinkId, MemberState};
use crate::node::config::ns;
use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest pause between two looks for one agent.
const PAUSE_MS_MAX: u64 = 60_000;
/// An agent that is stopped is looked for so often. Each look stays in the queue of its socket, and
/// when that is full its host answers nobody any more, as a dead one.
const TAKEN_MAX: u32 = 5;

/// Who is expected, and who of these is looked for. One entry for each possible member.
pub(in crate::node) struct Reconciliation {
    /// The ranks of all that are in the tree or missing, as the acting root has said last.
    snapshot: Arc<RangeSet>,
    /// When the acting root tells what has changed in it.
    announce_ns: u64,
    /// When a new root calls the roll that it was told by the one before.
    reconcile_ns: u64,
    reconcile_pause_ms: u64,
    overdue: BTreeMap<Rank, Overdue>,
    /// No one is to be looked for before this: asked for after every input, however many are
    /// sought.
    due_ns: u64,
}

struct Overdue {
    next_ns: u64,
    pause_ms: u64,
    /// How often its host took the connection and its agent said nothing.
    taken: u32,
}

impl Reconciliation {
    pub(in crate::node) fn new() -> Self {
        Self {
            snapshot: Arc::default(),
            announce_ns: u64::MAX,
            reconcile_ns: u64::MAX,
            reconcile_pause_ms: 0,
            overdue: BTreeMap::new(),
            due_ns: u64::MAX,
        }
    }

    /// Looks for an agent after that time, unless it is looked for already.
    fn expect_member(&mut self, rank: Rank, now_ns: u64, after_ms: u64) {
        let next_ns = now_ns.saturating_add(ns(after_ms));
        self.due_ns = self.due_ns.min(next_ns);
        self.overdue.entry(rank).or_insert(Overdue { next_ns, pause_ms: after_ms, taken: 0 });
    }

    /// Its host took the connection and its agent said nothing.
    pub(in crate::node) fn note_silent_agent(&mut self, rank: Rank) {
        let Some(overdue) = self.overdue.get_mut(&rank) else { return };
        overdue.taken += 1;
        if overdue.taken >= TAKEN_MAX {
            overdue.next_ns = u64::MAX;
        }
    }

    /// When the acting root has to do something here.
    pub(in crate::node) fn deadline_ns(&self) -> u64 {
        self.due_ns.min(self.announce_ns).min(self.reconcile_ns)
    }
}

impl Node {
    /// The acting root knows of a member that it has come, or gone.
    pub(in crate::node) fn note_member_state(&mut self, rank: Rank, state: MemberState) {
        if !self.role.is_root() || Some(rank) == self.rank {
            return;
        }
        if state.is_missed() {
            // Whoever lost it asks about it first, and tells; who has moved is about to be told of.
            let after_ms = self.config.detection_ms + 2 * self.config.dial_ms;
            self.reconciliation.expect_member(rank, self.now.mono_ns, after_ms);
        } else {
            self.reconciliation.overdue.remove(&rank);
        }
        self.snapshot_changed();
    }

    /// Somebody was lost without a word: those below it are missing until they come from elsewhere.
    pub(in crate::node) fn doubt_all_below(&mut self, lost: Rank) {
        if !self.role.is_root() {
            return;
        }
        let after_ms = self.config.detection_ms / 4;
        for rank in self.members.doubt_below(lost) {
            self.reconciliation.expect_member(rank, self.now.mono_ns, after_ms);
        }
    }

    fn snapshot_changed(&mut self) {
        let soon_ns = self.now.mono_ns.saturating_add(ns(self.config.heartbeat_ms));
        self.reconciliation.announce_ns = self.reconciliation.announce_ns.min(soon_ns);
    }

    /// The parent tells who is expected.
    pub(in crate::node) fn on_membership_snapshot(&mut self, snapshot: Arc<RangeSet>) {
        let old = std::mem::replace(&mut self.reconciliation.snapshot, Arc::clone(&snapshot));
        // Nobody tells where it has come but those above it: whoever takes over must miss it all
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

    /// A child has come, or the roll has changed. A child that has no room for it is told the next
    /// one.
    pub(in crate::node) fn send_snapshot_to(&mut self, link: LinkId) {
        if !self.reconciliation.snapshot.ranges().is_empty() {
            let snapshot = Arc::clone(&self.reconciliation.snapshot);
            self.send_if_room(link, Frame::MembershipSnapshot(snapshot));
        }
    }

    /// The member list has changed: ranks may be others'. Or the acting root left in order, and who
    /// left with it was not heard.
    pub(in crate::node) fn reset_reconciliation(&mut self) {
        self.reconciliation = Reconciliation::new();
        if self.role.is_root() {
            self.snapshot_changed();
        }
    }

    /// A epoch begins: whoever is on the roll has some time to come.
    pub(in crate::node) fn begin_reconciliation(&mut self) {
        let now_ns = self.now.mono_ns;
        let pause_ms = self.config.detection_ms / 2;
        let after_ms = self.config.detection_ms + 2 * self.config.dial_ms;
        self.reconciliation.overdue.clear();
        for rank in self.members.doubted() {
            self.reconciliation.expect_member(rank, now_ns, after_ms);
        }
        self.reconciliation.reconcile_pause_ms = pause_ms;
        self.reconciliation.reconcile_ns = match self.reconciliation.snapshot.ranges().is_empty() {
            true => u64::MAX,
            false => now_ns.saturating_add(ns(pause_ms)),
        };
        self.snapshot_changed();
    }

    /// Time has passed.
    pub(in crate::node) fn reconciliation_timeout(&mut self) {
        let now_ns = self.now.mono_ns;
        if !self.role.is_root() || self.reconciliation.deadline_ns() > now_ns {
            return;
        }
        if self.reconciliation.reconcile_ns <= now_ns {
            self.reconcile();
        }
        if self.reconciliation.announce_ns <= now_ns {
            self.reconciliation.announce_ns = u64::MAX;
            self.announce_snapshot();
        }
        if self.reconciliation.due_ns <= now_ns {
            self.probe_overdue();
        }
    }

    /// Whoever is on the roll and has not come is missing, and looked for at once.
    fn reconcile(&mut self) {
        let now_ns = self.now.mono_ns;
        let absent: Vec<(Rank, String)> = self
            .all_ranks()
            .filter(|rank| {
                Some(*rank) != self.rank && self.reconciliation.snapshot.contains(rank.0.into())
            })
            .filter(|rank| !self.members.is_known(*rank))
            .filter_map(|rank| Some((rank, self.member(rank)?.0)))
            .collect();
        if self.is_cut_off(self.reconciliation.overdue.len() + absent.len()) {
            let pause_ms = self.reconciliation.reconcile_pause_ms;
            self.reconciliation.reconcile_ns = now_ns.saturating_add(ns(pause_ms));
            self.reconciliation.reconcile_pause_ms = (2 * pause_ms).min(PAUSE_MS_MAX);
            return;
        }
        self.reconciliation.reconcile_ns = u64::MAX;
        let pause_ms = self.config.detection_ms / 4;
        for (rank, host) in absent {
            self.member_overdue(rank, &host);
            let overdue = Overdue { next_ns: now_ns, pause_ms, taken: 0 };
            self.reconciliation.overdue.insert(rank, overdue);
            self.reconciliation.due_ns = now_ns;
        }
    }

    fn all_ranks(&self) -> impl Iterator<Item = Rank> {
        let listed = u32::try_from(self.config.members.len()).unwrap_or(u32::MAX);
        (0..listed).map(Rank).chain(self.unlisted_ranks())
    }

    /// Where more are missing than are here it is we who are cut off: nobody is called dead then.
    fn is_cut_off(&self, missing: usize) -> bool {
        missing > self.members.count_up() + 1
    }

    fn announce_snapshot(&mut self) {
        let mut snapshot = match self.reconciliation.reconcile_ns {
            u64::MAX => RangeSet::default(),
            // Nobody is left out before it was called.
            _ => RangeSet::clone(&self.reconciliation.snapshot),
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

    fn probe_overdue(&mut self) {
        let now_ns = self.now.mono_ns;
        let cut_off = self.is_cut_off(self.reconciliation.overdue.len());
        let due =
            self.reconciliation.overdue.iter_mut().filter(|(_, overdue)| overdue.next_ns <= now_ns);
        let mut room = if cut_off { 0 } else { self.suspicions.room() };
        let mut probe_dials = Vec::new();
        for (rank, overdue) in due {
            overdue.next_ns = now_ns.saturating_add(ns(overdue.pause_ms));
            if room > 0 && !self.suspicions.is_open(*rank) {
                room -= 1;
                overdue.pause_ms = (2 * overdue.pause_ms).min(PAUSE_MS_MAX);
                probe_dials.push(*rank);
            }
        }
        let next = self.reconciliation.overdue.values().map(|overdue| overdue.next_ns);
        self.reconciliation.due_ns = next.min().unwrap_or(u64::MAX);
        for rank in probe_dials {
            match self.members.sighting_of(rank) {
                Some((child, host)) => self.probe_again(child, &host),
                None => drop(self.reconciliation.overdue.remove(&rank)),
            }
        }
    }
}
