//! Faults that cannot be acted on yet: there is no hot spare, or the ranks cannot move. Each stays
//! open until a spare appears or the ranks have joined ftb-job, until its node is well again or
//! lost or has no ranks any more, or until something else is done about it. At most one waits for a
//! node, so there are never more than nodes.

use super::{By, Jl, Outcome, Output, Waiting, Want};
use crate::names::NodeName;
use serde::{Deserialize, Serialize};

/// A migration that a fault wants and that cannot be done yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pending {
    /// The node to leave.
    pub node: NodeName,
    /// The name of the policy's rule.
    pub reason: String,
    /// The fault.
    pub(super) by: By,
    /// Spares that have failed to take the ranks: they count again when they are marked as usable.
    #[serde(default)]
    tried: Vec<NodeName>,
}

impl Jl {
    /// Faults that are open and wait for something.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Keeps the fault of a node open. A newer one takes the place of an older one.
    pub(super) fn keep_pending(
        &mut self,
        node: NodeName,
        reason: String,
        by: By,
        tried: Vec<NodeName>,
    ) {
        for old in self.take_pending(|pending| pending.node == node) {
            if old.by != by {
                self.settle(old.by, Outcome::Refused, "a newer fault of the node is known");
            }
        }
        self.pending.push(Pending { node, reason, by, tried });
        self.job.out.push(Output::Save);
    }

    /// Whether something waits because of what `by` says.
    pub(super) fn is_pending(&self, by: By) -> bool {
        self.pending.iter().any(|pending| pending.by == by)
    }

    pub(super) fn take_pending(&mut self, of: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (gone, rest) = core::mem::take(&mut self.pending).into_iter().partition(of);
        self.pending = rest;
        gone
    }

    /// Closes what has become void, and gives the oldest that can be acted on now its turn.
    pub(super) fn resume_pending(&mut self) {
        if self.pending.is_empty() || self.open.is_some() || !self.wanted.is_empty() {
            return;
        }
        let stays = |pending: &Pending| {
            let lives = self.job.nodes.get(&pending.node).is_some_and(|node| !node.lost);
            lives && !self.job.ranks_on(&pending.node).is_empty()
        };
        let (rest, void) = core::mem::take(&mut self.pending).into_iter().partition(stays);
        self.pending = rest;
        for pending in void {
            let why = format!("node {} has no ranks of the job any more", pending.node);
            self.settle(pending.by, Outcome::Refused, &why);
            self.job.out.push(Output::Save);
        }
        if !self.job.met || !self.unheard.is_empty() || !self.job.is_movable() {
            return;
        }
        let can = |pending: &Pending| self.job.spare(&pending.tried).is_some();
        let Some(at) = self.pending.iter().position(can) else {
            return;
        };
        let Pending { node, reason, by, .. } = self.pending.remove(at);
        let words = by.words();
        self.job.tell(format!("the ranks of {node} can move now ({reason}){words}"));
        self.wanted.push_back(Waiting { want: Want::Migrate { node, reason }, by });
        self.job.out.push(Output::Save);
    }

    /// A node may be used again: it counts as a spare for all, also where it has failed before.
    pub(super) fn forget_tried(&mut self, node: &NodeName) {
        for pending in &mut self.pending {
            pending.tried.retain(|other| other != node);
        }
    }
}
