//! Following the log: what comes down from the parent, which log it is, and what is given up again.

use crate::epochs::EpochHistory;
use crate::frame::{Item, TreeState};
use crate::node::Node;
use crate::node::api::{Gap, GapReason};
use crate::node::role::{Role, RoleCause};
use crate::position::{Epoch, Position};
use crate::spaces::Spaces;

/// Most lost epochs whose forks are remembered.
const FORKS_MAX: usize = 256;

impl Node {
    /// The parent's log is the one that counts now: goes back to where ours leaves it.
    pub(in crate::node) fn follow(&mut self, tree_state: &TreeState) {
        let winning = &tree_state.epochs;
        if matches!(self.role, Role::Offering(..)) {
            self.re_propose_offered(winning);
            let why = "the new parent follows a log";
            self.change_role(RoleCause::TreeStateReceived, why, |role| role.with_copy(None));
        }
        self.re_propose_restored(winning);
        self.log_wait_until_ns = None;
        let here = self.log.last().max(self.commit_index);
        let seen = self.epochs.position(self.commit_index);
        if self.epochs.is_empty() {
            self.commit_index = tree_state.head;
            self.log = crate::log::ring::Log::new(tree_state.head);
            self.move_subscribers(tree_state.head);
        } else {
            let fork = self.epochs.common(here, winning);
            if fork.is_none_or(|fork| fork < self.commit_index) {
                self.flush_subscribers();
            }
            self.note_forks(winning, fork);
            // Two logs that never met: we begin where the winning one is.
            let fork = fork.unwrap_or(tree_state.head);
            if self.epochs.common(here, winning).is_none() {
                self.report_parted(winning.position(fork));
                self.log = crate::log::ring::Log::new(fork);
                self.commit_index = fork;
                self.move_subscribers(fork);
            }
            // What was here and is not committed comes down again.
            self.log.truncate(fork.min(self.commit_index));
            self.commit_index = self.commit_index.min(fork);
            // Subscriptions may have read on before their agent lost its memory: further than it.
            let parting = self.epochs.common(u64::MAX, winning).unwrap_or(fork);
            self.rewind_subscribers(parting);
        }
        self.epochs = winning.clone();
        self.active_index = self.active_index.min(self.commit_index);
        self.check_replica();
        if self.publishing.requeue(winning) {
            self.flush_outbox();
        }
        self.report_fork(seen);
    }

    /// Our log never had anything in common with the one that goes on: subscribers learn that they
    /// have not seen what it holds so far.
    pub(in crate::node) fn report_parted(&mut self, until: Position) {
        self.cx.counters.logs_parted += 1;
        let after = self.epochs.position(self.commit_index);
        let reason = GapReason::Retention;
        let spaces = Spaces::ANY;
        let gap = Gap { after, until, reason, count: 0, severity_max: None, spaces };
        self.send_gap_to_subscribers(&gap);
    }

    /// Remembers where epochs that have lost left the log that goes on: positions of theirs may be
    /// asked for. `None`: the logs never met, no place in the last says anything about this one.
    pub(in crate::node) fn note_forks(&mut self, winning: &EpochHistory, fork: Option<u64>) {
        let Some(fork) = fork else { return self.forks.clear() };
        for segment in self.epochs.segments() {
            if !winning.knows(segment.epoch) {
                self.forks.insert(segment.epoch, fork);
            }
        }
        while self.forks.len() > FORKS_MAX {
            self.forks.pop_first();
        }
    }

    /// Committed events have come down.
    pub(in crate::node) fn on_down(&mut self, epoch: Epoch, items: Vec<Item>, covered: u64) {
        if epoch != self.epochs.head() {
            if epoch < self.epochs.head() {
                self.cx.counters.fenced += 1;
            }
            return;
        }
        self.past_is_covered(covered);
        let from = self.commit_index;
        for item in items {
            if let Some(item) = item.behind(from) {
                self.log.push(item);
            }
        }
        self.log.cover(covered);
        self.commit_index = self.commit_index.max(self.log.last());
        if self.commit_index > from {
            self.became_visible(from);
            if self.any_reader_catches_up() {
                self.catch_up_all(false);
            }
        }
    }

    /// The parent says that our interest is active up to the root.
    pub(in crate::node) fn on_filter_active(&mut self, version: u64, index: u64) {
        if version != self.interests.version() {
            return;
        }
        self.active_index = index;
        self.interests.activate(version, index);
        self.subscriptions_active();
        self.answer_children();
    }

    /// Entries behind `from` up to `consumed` can be read.
    pub(in crate::node) fn became_visible(&mut self, from: u64) {
        self.wake_subscribers(from);
        self.wake_children(from);
    }

    /// Gives up the oldest entries beyond the bound; readers that have not read them keep what they
    /// want of them, within theirs.
    pub(in crate::node) fn evict(&mut self) {
        // A log that is offered as a whole must stay whole.
        let whole = self.role.is_root() || self.role.is_offered();
        let bytes_max = if whole { self.cx.config.log_bytes } else { self.cx.config.ring_bytes };
        while self.log.bytes() > bytes_max {
            // What passed by before the log was whole comes again.
            let evicted = match whole && self.log.evicted() >= self.complete_after {
                true => self.log.retire(self.commit_index, &self.cx.config.reserve()),
                false => self.log.evict(self.commit_index),
            };
            // What is not committed stays.
            let Some(evicted) = evicted else { return };
            for item in evicted.fresh() {
                self.keep_for_subscribers(&item);
            }
            for child in self.children.values_mut().filter(|child| child.attached) {
                let before = child.reader.shed;
                let (lag_bytes, filters) = (self.cx.config.lag_bytes, &child.filters);
                child.reader.keep(&evicted.item, lag_bytes, &self.epochs, filters);
                self.cx.counters.shed += child.reader.shed - before;
            }
        }
    }
}
