//! Faults that wait: there is no hot spare, or the ranks cannot move. A fault waits until a spare
//! appears, the ranks join ftb-job, its node recovers, is lost or has no ranks, or another action
//! replaces it. At most one fault waits for each node.

use super::clocks::mono_ns;
use super::requests::QueuedRequest;
use super::{Initiator, Jl, JlOutput, Outcome, Request};
use crate::names::NodeName;
use ftb_core::Now;
use serde::{Deserialize, Serialize};

/// A migration for a fault that is not possible yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pending {
    pub node: NodeName,
    /// The name of the policy's rule.
    pub reason: String,
    pub(super) by: Initiator,
    /// Spares that failed to take the ranks. They count again when they are marked as usable.
    #[serde(default)]
    pub(super) tried: Vec<NodeName>,
    /// When the node is predicted to fail, in Unix nanoseconds.
    #[serde(default)]
    pub(super) fails_wall_ns: Option<u64>,
}

impl Pending {
    pub(super) fn new(node: NodeName, reason: String, by: Initiator) -> Self {
        Self { node, reason, by, tried: Vec::new(), fails_wall_ns: None }
    }
}

impl Jl {
    /// Open faults that wait.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Keeps the fault of a node open; it replaces an older one.
    pub(super) fn keep_pending(&mut self, new: Pending) {
        for old in self.take_pending(|pending| pending.node == new.node) {
            if old.by != new.by {
                self.settle(old.by, Outcome::Refused, "a newer fault of the node is known");
            }
        }
        self.pending.push(new);
        self.job.out.push(JlOutput::Save);
    }

    pub(super) fn is_pending(&self, by: Initiator) -> bool {
        self.pending.iter().any(|pending| pending.by == by)
    }

    pub(super) fn take_pending(&mut self, of: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (gone, rest) = core::mem::take(&mut self.pending).into_iter().partition(of);
        self.pending = rest;
        gone
    }

    /// Closes void faults and starts the oldest that is possible now.
    pub(super) fn resume_pending(&mut self, now: Now) {
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
            self.settle_and_notify(pending.by, Outcome::Refused, &why);
            self.job.out.push(JlOutput::Save);
        }
        if !self.job.met || !self.unheard.is_empty() || !self.job.is_movable() {
            return;
        }
        let can = |pending: &Pending| self.job.spare(&pending.tried).is_some();
        let Some(at) = self.pending.iter().position(can) else {
            return;
        };
        let Pending { node, reason, by, fails_wall_ns, .. } = self.pending.remove(at);
        let words = self.job.faults.words(by);
        self.job.tell(format!("the ranks of {node} can move now ({reason}){words}"));
        let fails_ns = fails_wall_ns.map(|wall_ns| mono_ns(now, wall_ns));
        let want = Request::Migrate { node, reason, fails_ns };
        self.enqueue(QueuedRequest::new(want, by).dated(now));
        self.job.out.push(JlOutput::Save);
    }

    /// A node may be used again, also for faults for which it failed before.
    pub(super) fn forget_tried(&mut self, node: &NodeName) {
        for pending in &mut self.pending {
            pending.tried.retain(|other| other != node);
        }
    }
}
