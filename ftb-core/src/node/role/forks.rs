//! Forks: epochs that agents have followed and that are no part of the log here.
//!
//! The acting root waits for an agent that re-proposes what such an epoch has logged. It logs a gap
//! for each that none has re-proposed within the grace time.
//!
//! Not responsible for: what is re-proposed ([`crate::node::role::re_proposal`]).

use crate::frame::UpItem;
use crate::node::Node;
use crate::node::api::{Gap, GapReason};
use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};
use std::collections::BTreeMap;

/// Most forks that wait or are remembered. One more is due at once: its gap is logged.
const FORKS_MAX: usize = 256;

/// Epochs outside the log: pending, and settled (re-proposed, or reported as lost).
#[derive(Default)]
pub(in crate::node) struct PendingForks {
    pending: BTreeMap<Epoch, (LogIndex, u64)>,
    settled: BTreeMap<Epoch, LogIndex>,
}

impl PendingForks {
    /// An agent has followed a fork up to an index.
    pub(in crate::node) fn expect(&mut self, epoch: Epoch, until: LogIndex, deadline_ns: u64) {
        let known = self.settled.get(&epoch).is_some_and(|settled| *settled >= until);
        if epoch == Epoch::ZERO || known {
            return;
        }
        let waiting = self.pending.entry(epoch).or_insert((until, deadline_ns));
        waiting.0 = waiting.0.max(until);
        let excess = self.pending.len().saturating_sub(FORKS_MAX);
        self.pending.values_mut().take(excess).for_each(|(_, deadline_ns)| *deadline_ns = 0);
    }

    /// What a fork had logged is in the log now.
    pub(in crate::node) fn re_proposed(&mut self, epoch: Epoch, until: LogIndex) {
        if self.pending.get(&epoch).is_some_and(|(pending, _)| *pending <= until) {
            self.pending.remove(&epoch);
        }
        self.settle(epoch, until);
    }

    /// A fork is settled up to an index: the root does not wait for it again.
    fn settle(&mut self, epoch: Epoch, until: LogIndex) {
        let known = self.settled.entry(epoch).or_insert(until);
        *known = until.max(*known);
        if self.settled.len() > FORKS_MAX {
            self.settled.pop_first();
        }
    }

    /// What the next root has to wait for.
    pub(in crate::node) fn waiting(&self) -> impl Iterator<Item = UpItem> {
        self.pending.iter().map(|(epoch, (until, _))| UpItem::Fork {
            epoch: *epoch,
            until: *until,
            re_proposed: false,
        })
    }

    pub(in crate::node) fn deadline_ns(&self) -> Option<u64> {
        self.pending.values().map(|(_, deadline)| *deadline).min()
    }

    /// Forks that no agent has re-proposed in time.
    fn overdue(&mut self, now_ns: u64) -> Vec<(Epoch, LogIndex)> {
        let late = self.pending.iter().filter(|(_, (_, deadline))| *deadline <= now_ns);
        let late: Vec<(Epoch, LogIndex)> =
            late.map(|(epoch, (until, _))| (*epoch, *until)).collect();
        for (epoch, until) in &late {
            self.pending.remove(epoch);
            self.settle(*epoch, *until);
        }
        late
    }
}

impl Node {
    /// This agent, or a child that comes, has seen everything up to a position that is not part of
    /// the log. The root must learn of that epoch, to wait for the rest of it. Each agent that has
    /// seen it reports it, and keeps the report for the grace time: the next root gets it again.
    /// The parent reports it too: its child may die before it can.
    pub(in crate::node) fn report_fork(&mut self, seen: Position) {
        let Position { epoch, index: until } = seen;
        let known = epoch == Epoch::ZERO
            || self.log.epochs().is_empty()
            || self.log.epochs().contains(seen);
        if until > LogIndex::ZERO && !known {
            self.publishing.push(UpItem::Fork { epoch, until, re_proposed: false });
            self.flush_outbox();
        }
    }

    /// No agent has re-proposed what other epochs have logged: logs a gap for each.
    pub(in crate::node) fn on_fork_timer(&mut self) {
        let now_ns = self.cx.now.mono_ns;
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("TimerOfRoot") };
        for (epoch, until) in root.forks.overdue(now_ns) {
            let lost = Position { epoch, index: until };
            let resume_after = || self.log.epochs().resume_after(lost);
            let known = self.log.fork_of(epoch).or_else(resume_after);
            if known.is_some_and(|fork| fork >= until) {
                // All of it is in this log: nothing lies after the fork.
                continue;
            }
            let fork = known.unwrap_or(until);
            let after = self.log.epochs().position(fork.min(until));
            let gap = Gap::unknown((after, lost), GapReason::LogLost);
            self.cx.counters.fork_gaps += 1;
            self.append(UpItem::Gap(gap));
        }
    }
}
