//! The order of requests, and what changes when a node is predicted to fail sooner than was known:
//! its migration goes first, and a checkpoint before it that takes too long is called off.

use super::clocks::wall_ns;
use super::requests::QueuedRequest;
use super::{Initiator, Jl, JlOutput, Request, SavePlace, Workflow};
use crate::names::{FaultId, NodeName};
use core::time::Duration;
use ftb_core::Now;

/// The earlier of a known time and another one.
fn earlier(known: Option<u64>, other: u64) -> Option<u64> {
    Some(known.map_or(other, |known| known.min(other)))
}

impl Jl {
    /// Queues a request before those whose nodes fail later or at no known time.
    pub(super) fn enqueue(&mut self, queued: QueuedRequest) {
        let is_later = |other: &QueuedRequest, at_ns: u64| {
            other.want.fails_ns().is_none_or(|other_ns| other_ns > at_ns)
        };
        let at = queued
            .want
            .fails_ns()
            .and_then(|at_ns| self.wanted.iter().position(|other| is_later(other, at_ns)));
        self.wanted.insert(at.unwrap_or(self.wanted.len()), queued);
    }

    /// The node of a fault fails sooner than the request for it says.
    pub(super) fn on_sooner(&mut self, now: Now, fault: FaultId, node: &NodeName, fails_ns: u64) {
        let by = Initiator::Fault(fault);
        if self.job.faults.is_closed(fault) || !self.fails_sooner(now, node, fails_ns) {
            return;
        }
        let time = Duration::from_nanos(fails_ns.saturating_sub(now.mono_ns));
        let words = self.job.faults.words(by);
        self.job.tell(format!(
            "{node} fails in {time:.1?} or later, which is sooner than was predicted{words}"
        ));
        self.job.out.push(JlOutput::Save);
        self.call_off_checkpoint(now);
    }

    /// Takes the time for what waits for the node, and says whether its ranks leave, or are to.
    pub(super) fn fails_sooner(&mut self, now: Now, node: &NodeName, fails_ns: u64) -> bool {
        let wall_ns = wall_ns(now, fails_ns);
        let leaves = self.open.as_mut().filter(|open| open.leaves() == Some(node));
        let mut is_known = leaves.is_some();
        if let Some(open) = leaves {
            open.fails_wall_ns = earlier(open.fails_wall_ns, wall_ns);
        }
        for pending in self.pending.iter_mut().filter(|pending| pending.node == *node) {
            pending.fails_wall_ns = earlier(pending.fails_wall_ns, wall_ns);
            is_known = true;
        }
        let of = |want: &Request| match want {
            Request::Migrate { node: of, .. } => of == node,
            _ => false,
        };
        let is_its = |queued: &QueuedRequest| of(&queued.want);
        for mut queued in self.take_waiting(is_its) {
            if let Request::Migrate { fails_ns: known, .. } = &mut queued.want {
                *known = earlier(*known, fails_ns);
            }
            // The job is being saved before the ranks move: nothing else is chosen.
            let before = self.open.as_ref().and_then(|open| open.before);
            if before.is_none() || before != queued.by.fault() {
                queued.left = None;
            }
            self.enqueue(queued.dated(now));
            is_known = true;
        }
        is_known
    }

    /// Ends the open checkpoint if the ranks of the next node leave in time only without it.
    pub(super) fn call_off_checkpoint(&mut self, now: Now) {
        let next = self.wanted.front().map(|queued| &queued.want);
        let Some(Request::Migrate { node, fails_ns: Some(fails_ns), .. }) = next else { return };
        let (node, left_ns) = (node.clone(), fails_ns.saturating_sub(now.mono_ns));
        let (choices, left) = (self.choices(), Duration::from_nanos(left_ns));
        let Some(open) = &self.open else { return };
        let Workflow::Checkpoint(checkpoint) = &open.workflow else { return };
        if open.by != Initiator::Internal || checkpoint.leaving().is_some() || choices.anew {
            return;
        }
        let place = SavePlace::of(checkpoint.set());
        let phase = Duration::from_nanos(now.mono_ns.saturating_sub(open.phase_ns));
        if !self.remedies.takes_too_long(place, open.took() + phase, left, choices) {
            return;
        }
        if let Some(queued) = self.wanted.front_mut() {
            queued.left = None;
        }
        let words = format!(
            "no checkpoint, the job goes on: {node} fails in {left:.1?} or later, and its ranks \
             move first"
        );
        self.close(now, false, words);
    }
}
