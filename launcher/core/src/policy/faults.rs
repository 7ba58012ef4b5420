//! The numbers of faults. Trouble of one rule on one node (of a rule about the whole job: on the job) is one fault from
//! its first word on, however often it is told. It is closed when the node is well again, when a rule that sees more
//! has taken it over, or when it is told once more after the hold-down that its action has begun: that is another one.

use super::rules::nanos;
use crate::names::{FaultId, NodeName};
use core::time::Duration;
use ftb_core::Now;
use std::collections::BTreeSet;

/// Most faults that are open at a time: beyond, the oldest is forgotten, and would get another number.
pub(super) const OPEN_MAX: usize = 4096;

#[derive(Clone, Debug)]
struct Open {
    id: FaultId,
    rule: usize,
    /// None of a rule about the whole job.
    node: Option<NodeName>,
    acted_ns: Option<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    newest: FaultId,
    open: Vec<Open>,
}

impl Faults {
    /// The numbers of this policy come behind that one.
    pub(super) fn follow(&mut self, newest: FaultId) {
        self.newest = self.newest.max(newest);
    }

    /// A fault that another policy has numbered, and that has led to an action.
    pub(super) fn adopt(&mut self, id: FaultId, rule: usize, node: Option<NodeName>, now: Now) {
        self.follow(id);
        self.keep(Open { id, rule, node, acted_ns: Some(now.mono_ns) });
    }

    /// The number of that trouble: it may be a new one.
    pub(super) fn of(
        &mut self,
        now: Now,
        rule: usize,
        node: Option<&NodeName>,
        hold: Duration,
    ) -> FaultId {
        let is_over = |open: &Open| {
            open.acted_ns.is_some_and(|at| now.mono_ns >= at.saturating_add(nanos(hold)))
        };
        let same = |open: &Open| open.rule == rule && open.node.as_ref() == node;
        self.open.retain(|open| !(same(open) && is_over(open)));
        if let Some(open) = self.open.iter().find(|open| same(open)) {
            return open.id;
        }
        self.newest = FaultId(self.newest.0 + 1);
        self.keep(Open { id: self.newest, rule, node: node.cloned(), acted_ns: None });
        self.newest
    }

    fn keep(&mut self, open: Open) {
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(open);
    }

    /// Something is done about it.
    pub(super) fn acted(&mut self, id: FaultId, now: Now) {
        for open in self.open.iter_mut().filter(|open| open.id == id) {
            open.acted_ns = Some(now.mono_ns);
        }
    }

    /// Whether something was done about it.
    pub(super) fn has_acted(&self, id: FaultId) -> bool {
        self.open.iter().any(|open| open.id == id && open.acted_ns.is_some())
    }

    /// The node is well again.
    pub(super) fn close_node(&mut self, node: &NodeName) {
        self.open.retain(|open| open.node.as_ref() != Some(node));
    }

    /// Closes those of these rules; which they were, where something was done about them.
    pub(super) fn close_rules(&mut self, of: impl Fn(usize) -> bool) -> BTreeSet<FaultId> {
        let (closed, open) = core::mem::take(&mut self.open)
            .into_iter()
            .partition::<Vec<_>, _>(|open| of(open.rule) && open.node.is_some());
        self.open = open;
        closed.iter().filter(|open| open.acted_ns.is_some()).map(|open| open.id).collect()
    }
}
