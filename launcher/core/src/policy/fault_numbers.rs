//! Numbers of faults. Trouble of one rule on one node (or on the job) is one fault, however often
//! it is reported. A fault closes when the node recovers, or when a rule about the job takes it
//! over. A report after the hold-down of its action is a new fault.

use super::rules::nanos;
use crate::names::{FaultId, NodeName};
use core::time::Duration;
use ftb_core::Now;
use std::collections::BTreeSet;

/// Most open faults; beyond, the oldest is forgotten and would get a new number.
pub(super) const OPEN_MAX: usize = 4096;

/// A prediction counts as earlier by more than this.
const SOONER_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
struct OpenFault {
    id: FaultId,
    rule: usize,
    /// `None`: a rule about the whole job.
    node: Option<NodeName>,
    acted_ns: Option<u64>,
    /// When its node fails, as the action counts on it, in monotonic nanoseconds.
    fails_ns: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FaultTable {
    newest: FaultId,
    open: Vec<OpenFault>,
}

impl FaultTable {
    /// Continues after the numbers of an earlier policy.
    pub(super) fn follow(&mut self, newest: FaultId) {
        self.newest = self.newest.max(newest);
    }

    /// Adopts a fault that an earlier policy numbered and acted on.
    pub(super) fn adopt(&mut self, id: FaultId, rule: usize, node: Option<NodeName>, now: Now) {
        self.follow(id);
        self.keep(OpenFault { id, rule, node, acted_ns: Some(now.mono_ns), fails_ns: None });
    }

    /// The number of that fault; it may be new.
    pub(super) fn of(
        &mut self,
        now: Now,
        rule: usize,
        node: Option<&NodeName>,
        hold: Duration,
    ) -> FaultId {
        let is_over = |open: &OpenFault| {
            open.acted_ns.is_some_and(|at| now.mono_ns >= at.saturating_add(nanos(hold)))
        };
        let same = |open: &OpenFault| open.rule == rule && open.node.as_ref() == node;
        self.open.retain(|open| !(same(open) && is_over(open)));
        if let Some(open) = self.open.iter().find(|open| same(open)) {
            return open.id;
        }
        self.newest = FaultId(self.newest.0 + 1);
        let (node, acted_ns, fails_ns) = (node.cloned(), None, None);
        self.keep(OpenFault { id: self.newest, rule, node, acted_ns, fails_ns });
        self.newest
    }

    fn keep(&mut self, open: OpenFault) {
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(open);
    }

    pub(super) fn acted(&mut self, id: FaultId, now: Now) {
        for open in self.open.iter_mut().filter(|open| open.id == id) {
            open.acted_ns = Some(now.mono_ns);
        }
    }

    /// The action for the fault counts on this time.
    pub(super) fn expect(&mut self, id: FaultId, fails_ns: Option<u64>) {
        for open in self.open.iter_mut().filter(|open| open.id == id) {
            open.fails_ns = fails_ns;
        }
    }

    /// Whether the action for the fault counts on a later time, or on none. Without a prediction
    /// the time that one had given has come.
    pub(super) fn fails_sooner(&self, now: Now, id: FaultId, predicted_ns: Option<u64>) -> bool {
        let Some(open) = self.open.iter().find(|open| open.id == id) else { return false };
        let fails_ns = predicted_ns.unwrap_or(now.mono_ns);
        match open.fails_ns {
            Some(known) => fails_ns.saturating_add(SOONER_NS) < known,
            // As after a takeover.
            None => open.acted_ns.is_some() && predicted_ns.is_some(),
        }
    }

    pub(super) fn has_acted(&self, id: FaultId) -> bool {
        self.open.iter().any(|open| open.id == id && open.acted_ns.is_some())
    }

    /// The node has recovered.
    pub(super) fn close_node(&mut self, node: &NodeName) {
        self.open.retain(|open| open.node.as_ref() != Some(node));
    }

    /// Closes the faults of these rules about a node; returns those that were acted on.
    pub(super) fn close_passed(
        &mut self,
        node: &NodeName,
        of: impl Fn(usize) -> bool,
    ) -> BTreeSet<FaultId> {
        self.close(|open| of(open.rule) && open.node.as_ref() == Some(node))
    }

    /// Closes the faults of these rules; returns those that were acted on.
    pub(super) fn close_rules(&mut self, of: impl Fn(usize) -> bool) -> BTreeSet<FaultId> {
        self.close(|open| of(open.rule) && open.node.is_some())
    }

    fn close(&mut self, is_over: impl Fn(&OpenFault) -> bool) -> BTreeSet<FaultId> {
        let (closed, open) =
            core::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(is_over);
        self.open = open;
        closed.iter().filter(|open| open.acted_ns.is_some()).map(|open| open.id).collect()
    }
}
