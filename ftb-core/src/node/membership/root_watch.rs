//! The acting root and its standby, watched from below: they have no parent that could open a
//! suspicion. The next root does, and begins before it takes over.
//!
//! A parent that is acting root or standby is probed when it has been silent for a while, before
//! its silence counts; so is the other of the two. When the parent is lost, the agent need not dial
//! the one that was silent: the next root takes over at once. It has its own probe results and
//! those of its children, and new children bring theirs.
//!
//! Responsible for: which agents above are probed, when, and what is known of them. Not responsible
//! for: the meaning of probes ([`crate::node::membership::suspicion`]).

use crate::ident::{OriginId, Rank};
use crate::node::Node;
use crate::node::config::ns;
use crate::node::membership::members::Sighting;
use std::collections::BTreeMap;

/// Most agents remembered that did not answer: root and standby, and those before them.
const SILENT_MAX: usize = 4;

/// What an agent knows of those above it that may be gone.
#[derive(Default)]
pub(in crate::node) struct RootWatch {
    /// Lost without a Close: the next acting root opens a suspicion for each.
    lost_above: Vec<(Sighting, String)>,
    /// What was asked about them before that.
    early: BTreeMap<Rank, u64>,
    /// The parent is silent, and what can be asked was asked.
    asked: bool,
    /// Agents that did not answer a probe.
    silent: BTreeMap<Rank, FailedProbe>,
}

/// A probe that found no agent.
struct FailedProbe {
    /// When that was known.
    at_ns: u64,
    /// The host took the connection: its agent hangs. Otherwise the host was silent.
    is_host_alive: bool,
}

impl RootWatch {
    /// A suspicion is resolved, or cancelled.
    pub(in crate::node) fn forget(&mut self, suspicion: u64) {
        self.early.retain(|_, early| *early != suspicion);
    }

    /// What was asked about an agent before it was lost.
    pub(in crate::node) fn take_early(&mut self, rank: Rank) -> Option<u64> {
        self.early.remove(&rank)
    }

    /// The agent of that rank did not answer a probe; nor did its host, unless `is_host_alive`.
    pub(in crate::node) fn note_silent(&mut self, rank: Rank, is_host_alive: bool, now_ns: u64) {
        if self.early.contains_key(&rank) {
            // There are two at most of whom it is of interest.
            while self.silent.len() >= SILENT_MAX {
                self.silent.pop_first();
            }
            self.silent.insert(rank, FailedProbe { at_ns: now_ns, is_host_alive });
        }
    }
}

impl Node {
    /// Acting root and standby, if one of them is our parent, as far as they rank below us.
    fn root_and_standby_above(&self) -> Vec<(Sighting, String)> {
        let Some(parent) = self.role.parent() else { return Vec::new() };
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

    /// Whether agents above are probed when the parent has been silent for a while.
    pub(in crate::node) fn probes_root(&self) -> bool {
        !self.root_watch.asked
            && self.role.parent().is_some_and(|parent| {
                Some(&parent.rank) == parent.path.first() || Some(parent.rank) == parent.standby
            })
    }

    /// The parent has been silent for [`Node::early_probe_ns`].
    pub(in crate::node) fn probe_root_early(&mut self) {
        if !self.probes_root() {
            return;
        }
        self.root_watch.asked = true;
        for (above, host) in self.root_and_standby_above() {
            let id = self.open_early(above, &host);
            self.root_watch.early.insert(above.rank, id);
        }
    }

    /// The parent is heard (after all).
    pub(in crate::node) fn parent_heard(&mut self) {
        if let Some(parent) = self.role.parent() {
            self.root_watch.silent.remove(&parent.rank);
        }
        self.forget_above();
    }

    /// What was asked is void.
    fn forget_above(&mut self) {
        self.root_watch.asked = false;
        for id in std::mem::take(&mut self.root_watch.early).into_values() {
            self.cancel_suspicion(id);
        }
    }

    /// The parent is lost without a word.
    pub(in crate::node) fn remember_lost_root(&mut self) {
        self.root_watch.lost_above = self.root_and_standby_above();
    }

    /// A parent was found.
    pub(in crate::node) fn forget_lost_root(&mut self) {
        self.root_watch.lost_above.clear();
        self.forget_above();
    }

    /// Whether a recent probe found that the host of that rank is silent.
    pub(in crate::node) fn is_silent(&self, rank: Rank) -> bool {
        self.failed_probe(rank).is_some_and(|probe| !probe.is_host_alive)
    }

    /// Whether a recent probe found no agent at that rank: its host is silent, or its agent hangs.
    pub(in crate::node) fn is_unresponsive(&self, rank: Rank) -> bool {
        self.failed_probe(rank).is_some()
    }

    fn failed_probe(&self, rank: Rank) -> Option<&FailedProbe> {
        let fresh_ns = ns(self.config.detection_ms) / 2;
        let probe = self.root_watch.silent.get(&rank)?;
        (probe.at_ns.saturating_add(fresh_ns) > self.now.mono_ns).then_some(probe)
    }

    /// We are acting root now: those who were lost above are ours to ask about.
    pub(in crate::node) fn suspect_lost_root(&mut self, why: &str) {
        for (above, host) in std::mem::take(&mut self.root_watch.lost_above) {
            self.lost_above(above, &host, why);
        }
        self.forget_above();
    }
}
