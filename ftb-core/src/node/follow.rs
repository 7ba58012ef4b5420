//! Following the log: what comes down from the parent, which log it is, and what is given up again.

use super::Node;
use super::api::{Gap, GapReason};
use crate::frame::{Item, Standing};
use crate::lineage::Lineage;
use crate::position::{Epoch, Position};
use crate::spaces::Spaces;

/// Most lost reigns whose forks are remembered.
const FORKS_MAX: usize = 256;

impl Node {
    /// The parent's log is the one that counts now: goes back to where ours leaves it.
    pub(super) fn follow(&mut self, standing: &Standing) {
        let winning = &standing.lineage;
        self.step_down(winning);
        self.hand_over_held(winning);
        self.hand_over_restored(winning);
        self.young_until_ns = 0;
        let here = self.log.last().max(self.consumed);
        let seen = self.lineage.position(self.consumed);
        if self.lineage.is_empty() {
            self.consumed = standing.head;
            self.log = super::log::Log::new(standing.head);
            self.move_subscribers(standing.head);
        } else {
            let fork = self.lineage.common(here, winning);
            if fork.is_none_or(|fork| fork < self.consumed) {
                self.settle_subscribers();
            }
            self.note_forks(winning, fork);
            // Two logs that never met: we begin where the winning one is.
            let fork = fork.unwrap_or(standing.head);
            if self.lineage.common(here, winning).is_none() {
                self.tell_parted(winning.position(fork));
                self.log = super::log::Log::new(fork);
                self.consumed = fork;
                self.move_subscribers(fork);
            }
            // What was here and is not committed comes down again.
            self.log.truncate(fork.min(self.consumed));
            self.consumed = self.consumed.min(fork);
            // Subscriptions may have read on before their agent lost its memory: further than it.
            let parting = self.lineage.common(u64::MAX, winning).unwrap_or(fork);
            self.rewind_subscribers(parting);
        }
        self.lineage = winning.clone();
        self.active_index = self.active_index.min(self.consumed);
        self.check_replica();
        if self.outbox.put_back(winning) {
            self.outbox.rewind();
            self.flush_outbox();
        }
        self.tell_fork(seen);
    }

    /// Our log never had anything in common with the one that goes on: subscribers learn that they
    /// have not seen what it holds so far.
    pub(super) fn tell_parted(&mut self, until: Position) {
        let after = self.lineage.position(self.consumed);
        let reason = GapReason::Retention;
        let spaces = Spaces::ANY;
        let gap = Gap { after, until, reason, count: 0, severity_max: None, spaces };
        self.tell_subscribers(&gap);
    }

    /// Remembers where reigns that have lost left the log that goes on: positions of theirs may be
    /// asked for. `None`: the logs never met, no place in the last says anything about this one.
    pub(super) fn note_forks(&mut self, winning: &Lineage, fork: Option<u64>) {
        let Some(fork) = fork else { return self.forks.clear() };
        for segment in self.lineage.segments() {
            if !winning.knows(segment.epoch) {
                self.forks.insert(segment.epoch, fork);
            }
        }
        while self.forks.len() > FORKS_MAX {
            self.forks.pop_first();
        }
    }

    /// Committed events have come down.
    pub(super) fn came_down(&mut self, epoch: Epoch, items: Vec<Item>, covered: u64) {
        if epoch != self.lineage.head() {
            if epoch < self.lineage.head() {
                self.counters.fenced += 1;
            }
            return;
        }
        self.past_is_covered(covered);
        let from = self.consumed;
        for item in items {
            if let Some(item) = item.behind(from) {
                self.log.push(item);
            }
        }
        self.log.cover(covered);
        self.consumed = self.consumed.max(self.log.last());
        if self.consumed > from {
            self.became_visible(from);
            if self.anybody_catches_up() {
                self.catch_up_all(false);
            }
        }
    }

    /// The parent says that our interest is active up to the root.
    pub(super) fn filter_active(&mut self, version: u64, index: u64) {
        if version != self.interests.version() {
            return;
        }
        self.active_index = index;
        self.interests.activate(version, index);
        self.subscriptions_active();
        self.answer_children();
    }

    /// Entries behind `from` up to `consumed` can be read.
    pub(super) fn became_visible(&mut self, from: u64) {
        self.wake_subscribers(from);
        self.wake_children(from);
    }

    /// Gives up the oldest entries beyond the bound; readers that have not read them keep what they
    /// want of them, within theirs.
    pub(super) fn evict(&mut self) {
        // A log that is offered as a whole must stay whole.
        let whole = self.root.is_some() || self.held.is_some();
        let bytes_max = if whole { self.config.log_bytes } else { self.config.ring_bytes };
        while self.log.bytes() > bytes_max {
            // What passed by before the log was whole comes again.
            let evicted = match whole && self.log.evicted() >= self.full_since {
                true => self.log.retire(self.consumed, &self.config.reserve()),
                false => self.log.evict(self.consumed),
            };
            let Some(evicted) = evicted else { return };
            for item in evicted.fresh() {
                self.keep_for_subscribers(&item);
            }
            for child in self.children.values_mut().filter(|child| child.attached) {
                let before = child.reader.shed;
                let (lag_bytes, filters) = (self.config.lag_bytes, &child.filters);
                child.reader.keep(&evicted.item, lag_bytes, &self.lineage, filters);
                self.counters.shed += child.reader.shed - before;
            }
        }
    }
}
