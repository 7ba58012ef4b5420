//! Which members are expected: the acting root suspects those that were in the tree and are not.
//!
//! The acting root knows the whole tree. It expects three kinds of members: those below a lost
//! agent, those that moved to another parent, and those that were lost and are not known to be
//! dead. Each root sends a *membership snapshot* to all agents. A new root compares the members
//! with the snapshot of the root before, and suspects those that do not come.
//!
//! Responsible for: the snapshot, and which members are expected. Not responsible for: what becomes
//! of them ([`crate::node::membership::suspicion`]), the state of members
//! ([`crate::node::membership::members`]).

use crate::frame::{Frame, SNAPSHOT_RANGES_MAX};
use crate::ident::Rank;
use crate::node::api::{LinkId, MemberState};
use crate::node::around::Sighting;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::membership::Membership;
use crate::node::timers::Timer;
use crate::ranges::RangeSet;
use std::sync::Arc;

/// The longest pause between two comparisons of a new root that is cut off.
const PAUSE_MS_MAX: u64 = 60_000;

/// The membership snapshot.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// The ranks of all members that are in the tree or missing, as the acting root last sent them.
    ranks: Arc<RangeSet>,
    /// The pause before a new root compares the members with the snapshot again.
    pause_ms: u64,
}

impl Membership {
    /// The acting root learns that a member has come, or is gone.
    pub(crate) fn note_member_state(&mut self, cx: &mut Cx, rank: Rank, state: MemberState) {
        if !cx.around.is_root || Some(rank) == cx.rank {
            return;
        }
        if state.is_missed() {
            self.expect_missed(cx, rank);
        } else {
            self.expect_no_more(rank);
        }
        self.snapshot_changed(cx);
    }

    /// Another agent reports a member that moved or is lost within this time.
    pub(crate) fn expect_missed(&mut self, cx: &mut Cx, rank: Rank) {
        let after_ms = cx.config.detection_ms + 2 * cx.config.dial_ms;
        self.expect_member(cx, rank, after_ms, after_ms);
    }

    /// A member was lost without a Close: those below it are missing until they come back.
    pub(crate) fn suspect_all_below(&mut self, cx: &mut Cx, lost: Rank) {
        if !cx.around.is_root {
            return;
        }
        let after_ms = cx.config.detection_ms / 4;
        for rank in self.members.suspect_below(lost) {
            self.expect_member(cx, rank, after_ms, after_ms);
        }
    }

    fn snapshot_changed(&mut self, cx: &mut Cx) {
        let soon_ns = cx.after_ms(cx.config.heartbeat_ms);
        cx.timers.set_earlier(Timer::Snapshot, soon_ns);
    }

    /// The parent sends the membership snapshot.
    pub(crate) fn on_membership_snapshot(&mut self, cx: &mut Cx, snapshot: Arc<RangeSet>) {
        let old = std::mem::replace(&mut self.snapshot.ranks, Arc::clone(&snapshot));
        // Only the agents above a member learn where it has come. The next root must expect it all
        // the same.
        self.members.forget_gone(|rank| {
            let rank = rank.0.into();
            snapshot.contains(rank) && !old.contains(rank)
        });
        self.members.retain_moved(|rank| snapshot.contains(rank.0.into()));
        self.forward_snapshot(cx);
    }

    fn forward_snapshot(&mut self, cx: &mut Cx) {
        let links: Vec<LinkId> = cx.around.attached().map(|child| child.link).collect();
        links.into_iter().for_each(|link| self.send_snapshot_to(cx, link));
    }

    /// A child has come, or the snapshot has changed. A child without room for this one gets the
    /// next one.
    pub(crate) fn send_snapshot_to(&mut self, cx: &mut Cx, link: LinkId) {
        if !self.snapshot.ranks.ranges().is_empty() {
            let snapshot = Arc::clone(&self.snapshot.ranks);
            cx.send_if_room(link, Frame::MembershipSnapshot(snapshot));
        }
    }

    /// The member list has changed, and with it the ranks. Or the acting root left in order: which
    /// members left with it is not known.
    pub(crate) fn reset_snapshot(&mut self, cx: &mut Cx) {
        self.snapshot = Snapshot::default();
        self.suspicions.expect_none();
        cx.timers.stop(Timer::Snapshot);
        cx.timers.stop(Timer::Reconcile);
        if cx.around.is_root {
            self.snapshot_changed(cx);
        }
    }

    /// An epoch begins: the members of the snapshot have some time to come.
    pub(crate) fn begin_reconciliation(&mut self, cx: &mut Cx) {
        let pause_ms = cx.config.detection_ms / 2;
        self.suspicions.expect_none();
        for rank in self.members.suspects().collect::<Vec<Rank>>() {
            self.expect_missed(cx, rank);
        }
        self.snapshot.pause_ms = pause_ms;
        let at_ns = cx.after_ms(pause_ms);
        match self.snapshot.ranks.ranges().is_empty() {
            true => cx.timers.stop(Timer::Reconcile),
            false => cx.timers.set(Timer::Reconcile, at_ns),
        }
        self.snapshot_changed(cx);
    }

    /// A member of the snapshot that has not come is missing, and probed at once.
    pub(crate) fn reconcile(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        let expected =
            |rank: &Rank| Some(*rank) != cx.rank && self.snapshot.ranks.contains(rank.0.into());
        let absent: Vec<(Rank, String)> = self
            .all_ranks(cx)
            .filter(expected)
            .filter(|rank| !self.members.is_known(*rank))
            .filter_map(|rank| Some((rank, self.member(cx, rank)?.0)))
            .collect();
        if self.is_cut_off(self.suspicions.missing() + absent.len()) {
            let pause_ms = self.snapshot.pause_ms;
            cx.timers.set(Timer::Reconcile, now_ns.saturating_add(ns(pause_ms)));
            self.snapshot.pause_ms = (2 * pause_ms).min(PAUSE_MS_MAX);
            return;
        }
        cx.timers.stop(Timer::Reconcile);
        for (rank, host) in absent {
            self.expect_member(cx, rank, 0, cx.config.detection_ms / 4);
            self.member_is(cx, Sighting::unseen(rank), &host, MemberState::Suspect);
        }
    }

    fn all_ranks(&self, cx: &Cx) -> impl Iterator<Item = Rank> {
        let listed = u32::try_from(cx.config.members.len()).unwrap_or(u32::MAX);
        (0..listed).map(Rank).chain(self.unlisted_ranks())
    }

    /// Whether more members are missing than are here: then this component is cut off, and no
    /// member is declared dead.
    pub(crate) fn is_cut_off(&self, missing: usize) -> bool {
        missing > self.members.count_up() + 1
    }

    pub(crate) fn announce_snapshot(&mut self, cx: &mut Cx) {
        let mut snapshot = match cx.timers.is_set(Timer::Reconcile) {
            // Before the comparison no member is left out.
            true => RangeSet::clone(&self.snapshot.ranks),
            false => RangeSet::default(),
        };
        for rank in self.members.expected().chain(cx.rank) {
            snapshot.insert(rank.0.into());
        }
        if *self.snapshot.ranks != snapshot {
            snapshot.truncate(SNAPSHOT_RANGES_MAX);
            self.snapshot.ranks = Arc::new(snapshot);
            self.forward_snapshot(cx);
        }
    }
}
