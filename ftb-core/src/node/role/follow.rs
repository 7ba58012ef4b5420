//! Following the log: what comes down from the parent, which log it is, and what is given up again.

use crate::epochs::Parting;
use crate::frame::{Item, TreeState};
use crate::node::Node;
use crate::node::api::{Gap, GapReason};
use crate::node::role::{Role, RoleCause};
use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};

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
        let epochs = self.log.epochs();
        let seen = self.log.position();
        if epochs.is_empty() {
            self.log.begin(tree_state.head);
            self.delivery.move_subscribers(tree_state.head);
        } else {
            let here = self.log.last().max(self.log.commit_index());
            let common = epochs.common(here, winning);
            // Subscriptions may have read on before their agent lost its memory: further than it.
            let parting = epochs.parting(winning);
            if common.is_none_or(|fork| fork < self.log.commit_index()) {
                self.reading(|delivery, cx| delivery.flush_subscribers(cx));
            }
            self.log.note_forks(winning, common);
            // Two logs that never met: we begin where the winning one is.
            let fork = common.unwrap_or(tree_state.head);
            if common.is_none() {
                self.report_parted(winning.position(fork));
                self.log.begin(fork);
                self.delivery.move_subscribers(fork);
            }
            // What was here and is not committed comes down again.
            self.log.go_back(fork);
            let until = match parting {
                Parting::NeverMet => Some(fork),
                Parting::Behind(index) => Some(index),
                Parting::Open => None,
            };
            self.delivery.rewind_subscribers(until, self.log.epochs());
        }
        self.log.set_epochs(winning.clone());
        self.delivery.rewind_interest(self.log.commit_index());
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
        let gap = Gap::unknown((self.log.position(), until), GapReason::Retention);
        self.delivery.send_gap_to_subscribers(&mut self.cx, &gap);
    }

    /// Committed events have come down.
    pub(in crate::node) fn on_down(&mut self, epoch: Epoch, items: Vec<Item>, covered: LogIndex) {
        if epoch != self.log.head() {
            if epoch < self.log.head() {
                self.cx.counters.fenced += 1;
            }
            return;
        }
        self.past_is_covered(covered);
        let from = self.log.extend(items, covered);
        if self.log.commit_index() > from {
            self.trim_copy(self.log.commit_index());
            self.became_visible(from);
            self.reading(|delivery, cx| delivery.catch_up_stalled(cx));
        }
    }

    /// Entries after `from` up to `consumed` can be read.
    pub(in crate::node) fn became_visible(&mut self, from: LogIndex) {
        self.note_power(from);
        let repeated = self.reading(|delivery, cx| delivery.became_visible(cx, from));
        self.log.mark_repeated(repeated);
    }

    /// Gives up the oldest entries beyond the bound; readers that have not read them keep what they
    /// want of them, within theirs.
    pub(in crate::node) fn evict(&mut self) {
        // A log that is offered as a whole must stay whole.
        let whole = self.role.is_root() || self.role.is_offered();
        let bytes_max = if whole { self.cx.config.log_bytes } else { self.cx.config.ring_bytes };
        while self.log.entries().bytes() > bytes_max {
            // What is not committed stays.
            let Some(evicted) = self.log.evict(whole, &self.cx.config.reserve()) else { return };
            self.reading(|delivery, cx| delivery.on_evicted(cx, &evicted));
        }
    }
}
