//! The acting root and its standby, seen from below: nobody is above them who would ask whether their
//! hosts live. Whoever takes the root's place does, and has begun to ask before it takes it.
//!
//! A parent that has been silent for a while is looked at before its silence counts, if it is the
//! acting root or its standby; so is the other of the two. What is known to be silent when the parent
//! is lost need not be dialled in vain first: the next root takes over at once, and at once has its own
//! word and those of its children, and its new children bring theirs with them.
//!
//! Responsible for: whom to look at above, when, and what is known of them. Not responsible for: what
//! the looks and votes mean ([`super::verdict`]).

use super::Node;
use super::config::ns;
use super::members::Sighting;
use crate::ident::{OriginId, Rank};
use std::collections::BTreeMap;

/// Most agents remembered that did not answer: root and standby, and those before them.
const SILENT_MAX: usize = 4;

/// What an agent knows of those above it that may be gone.
#[derive(Default)]
pub(super) struct Above {
    /// Lost without a word: whoever becomes acting root asks about them.
    fallen: Vec<(Sighting, String)>,
    /// What was asked about them before that.
    early: BTreeMap<Rank, u64>,
    /// The parent is silent, and what can be asked was asked.
    asked: bool,
    /// Agents that did not answer a probe.
    silent: BTreeMap<Rank, Unanswered>,
}

/// A probe that found no agent.
struct Unanswered {
    /// When that was known.
    at_ns: u64,
    /// The host took the connection: its agent hangs. Otherwise the host was silent.
    is_host_alive: bool,
}

impl Above {
    /// A verdict is spoken, or void.
    pub(super) fn forget(&mut self, verdict: u64) {
        self.early.retain(|_, early| *early != verdict);
    }

    /// What was asked about an agent before it was lost.
    pub(super) fn take_early(&mut self, rank: Rank) -> Option<u64> {
        self.early.remove(&rank)
    }

    /// The agent of that rank did not answer a probe; nor did its host, unless `is_host_alive`.
    pub(super) fn note_silent(&mut self, rank: Rank, is_host_alive: bool, now_ns: u64) {
        if self.early.contains_key(&rank) {
            // There are two at most of whom it is of interest.
            while self.silent.len() >= SILENT_MAX {
                self.silent.pop_first();
            }
            self.silent.insert(rank, Unanswered { at_ns: now_ns, is_host_alive });
        }
    }
}

impl Node {
    /// Acting root and standby, if one of them is our parent, as far as they rank below us.
    fn root_and_standby(&self) -> Vec<(Sighting, String)> {
        let Some(parent) = self.uplink.parent() else { return Vec::new() };
        let root = parent.path.first().copied();
        if Some(parent.rank) != root && Some(parent.rank) != parent.standby {
            return Vec::new();
        }
        let others = root.into_iter().chain(parent.standby);
        let others = others.filter(|rank| *rank != parent.rank && *rank < self.own_rank());
        let parent = (parent.sighting(), parent.host.clone());
        let others = others.filter_map(|rank| {
            let (host, _) = self.member(rank)?;
            Some((Sighting { rank, origin: OriginId(0), attempt: 0 }, host))
        });
        [parent].into_iter().chain(others).collect()
    }

    /// Whether somebody above is to be looked at when the parent has been silent for a while.
    pub(super) fn asks_above(&self) -> bool {
        !self.above.asked
            && self.uplink.parent().is_some_and(|parent| {
                Some(&parent.rank) == parent.path.first() || Some(parent.rank) == parent.standby
            })
    }

    /// The parent has been silent for [`Node::early_ns`].
    pub(super) fn look_above(&mut self) {
        if !self.asks_above() {
            return;
        }
        self.above.asked = true;
        for (above, host) in self.root_and_standby() {
            let id = self.open_early(above, &host);
            self.above.early.insert(above.rank, id);
        }
    }

    /// The parent is heard (after all).
    pub(super) fn parent_heard(&mut self) {
        if let Some(parent) = self.uplink.parent() {
            self.above.silent.remove(&parent.rank);
        }
        self.forget_above();
    }

    /// What was asked is void.
    fn forget_above(&mut self) {
        self.above.asked = false;
        for id in std::mem::take(&mut self.above.early).into_values() {
            self.void(id);
        }
    }

    /// The parent is lost without a word.
    pub(super) fn note_fallen(&mut self) {
        self.above.fallen = self.root_and_standby();
    }

    /// A parent was found.
    pub(super) fn nobody_fell(&mut self) {
        self.above.fallen.clear();
        self.forget_above();
    }

    /// Whether a recent probe found that the host of that rank is silent.
    pub(super) fn is_silent(&self, rank: Rank) -> bool {
        self.unanswered(rank).is_some_and(|probe| !probe.is_host_alive)
    }

    /// Whether a recent probe found no agent at that rank: its host is silent, or its agent hangs.
    pub(super) fn is_unresponsive(&self, rank: Rank) -> bool {
        self.unanswered(rank).is_some()
    }

    fn unanswered(&self, rank: Rank) -> Option<&Unanswered> {
        let fresh_ns = ns(self.config.detection_ms) / 2;
        let probe = self.above.silent.get(&rank)?;
        (probe.at_ns.saturating_add(fresh_ns) > self.now.mono_ns).then_some(probe)
    }

    /// We are acting root now: those who were lost above are ours to ask about.
    pub(super) fn tell_fallen(&mut self, why: &str) {
        for (above, host) in std::mem::take(&mut self.above.fallen) {
            self.lost_above(above, &host, why);
        }
        self.forget_above();
    }
}
