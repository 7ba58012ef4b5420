//! What an agent does with its journal: what it writes, and what an earlier life has left there.
//!
//! A lone root counts the disk as its standby: it commits what the disk has acknowledged. A disk
//! that fails, or acknowledges nothing for too long, is skipped like a slow standby: the log
//! continues in memory, and the agent announces it.
//!
//! An agent that starts with a journal was away since its last write. Either it goes on with that
//! log as acting root, or another root installs it. Or another log goes on: then the entries beyond
//! the fork go up as unconfirmed events ([`Node::re_propose_restored`]).
//!
//! Responsible for: the log of an earlier life. Not responsible for: the state of the disk
//! ([`crate::node::journal`]).

use crate::catalog::names;
use crate::epochs::EpochHistory;
use crate::frame::{ReplicaStart, UpItem};
use crate::ident::Rank;
use crate::log::entries::Log;
use crate::log::followed::FollowedLog;
use crate::node::Node;
use crate::node::api::{Gap, GapReason, JournalWrite, Restored, Stored};
use crate::node::journal::{JournalContent, JournalSource};
use crate::node::publishing::LosingLog;
use crate::node::role::Role;
use crate::node::role::entry_refs::SentBatches;
use crate::node::role::re_proposal::items_after_fork;
use crate::node::role::standby::Replica;
use crate::numbers::LogIndex;
use crate::position::Position;
use crate::severity::Severity;

/// The log of an earlier life, or of the root before, until it is known what becomes of it.
pub(in crate::node) struct Past {
    pub(in crate::node) replica: Replica,
    /// Entries up to this index were on disk and could not be read.
    lost_until: Option<LogIndex>,
    /// More entries may have been there.
    end_unknown: bool,
}

impl Node {
    /// What was on disk is the past of this agent, which has just started: it has seen all of it.
    pub(in crate::node) fn restore(&mut self, restored: Restored) {
        let stored = self.remember(restored);
        if self.past.is_some() {
            self.epoch_seen = self.epoch_seen.max(stored.epochs.head().number);
            self.log.set_epochs(stored.epochs.clone());
            self.log.begin(stored.last);
        }
        self.journal.restore(stored);
    }

    /// Takes what an earlier life has left; gives which log it is.
    fn remember(&mut self, restored: Restored) -> Stored {
        let Restored { stored, items, items_after, dedup, .. } = restored;
        // A power failure may have taken entries that subscribers have: they get a gap.
        let end_unknown = restored.end_unknown || restored.unclean.is_some();
        let lost_until = restored.lost_until;
        self.restore_dynamic_members(restored.dynamic_members);
        self.journal_damaged(restored.damage);
        self.journal_unclean(restored.unclean);
        self.cx.counters.restored += items.iter().map(|item| item.count() as u64).sum::<u64>();
        let start = ReplicaStart { epochs: stored.epochs.clone(), after: items_after, copy: 0 };
        let mut replica = Replica::new(start, &self.cx.config);
        let limits = self.cx.config.conditions;
        replica.log = Log::with_conditions(items_after, restored.conditions, limits);
        replica.complete = true;
        replica.mark(&dedup);
        items.into_iter().for_each(|item| replica.push(item));
        replica.log.cover(stored.last);
        let reserve = self.cx.config.reserve();
        while replica.log.bytes() > self.cx.config.log_bytes {
            if replica.log.retire(replica.log.last(), &reserve).is_none() {
                break;
            }
        }
        if !stored.epochs.is_empty() {
            self.past = Some(Past { replica, lost_until, end_unknown });
        }
        stored
    }

    /// Tells what is wrong with the journal.
    pub(in crate::node) fn journal_damaged(&mut self, damage: Option<String>) {
        if let Some(damage) = damage {
            let tags = vec![("host", self.cx.config.host.clone())];
            self.cx.announce(names::FTB_JOURNAL_DAMAGED, Severity::Error, tags, damage);
        }
    }

    /// Tells that what was confirmed last may be missing in the journal.
    fn journal_unclean(&mut self, unclean: Option<String>) {
        if let Some(unclean) = unclean {
            let tags = vec![("host", self.cx.config.host.clone())];
            self.cx.announce(names::FTB_JOURNAL_UNCLEAN, Severity::Warning, tags, unclean);
        }
    }

    /// The parent has that much of the epoch: a log of the past that ends there holds nothing else.
    pub(in crate::node) fn past_is_covered(&mut self, covered: LogIndex) {
        let head = self.log.head();
        let known = |past: &mut Past| {
            past.replica.epochs.head() == head && past.replica.log.last() <= covered
        };
        self.past.take_if(known);
    }

    /// The shell has a store to write to, again or only now. `restored`: what an earlier life has
    /// left in it, where this one could not read it before.
    pub(in crate::node) fn on_journal_opened(
        &mut self,
        stored: Stored,
        restored: Option<Restored>,
    ) {
        self.journal.open(stored);
        if let Some(restored) = restored {
            self.remember(restored);
            let epochs = self.log.epochs().clone();
            self.re_propose_restored(&epochs);
        }
        self.membership.dynamic.write_again();
        self.count_waiting();
        if !self.role.is_root() && self.role.replica().is_none() {
            self.journal.caught_up(&mut self.cx);
        }
    }

    /// Restores the ranks of dynamic members as they were when the journal was written.
    fn restore_dynamic_members(&mut self, dynamic_members: Vec<(String, Rank)>) {
        self.membership.dynamic.restore(dynamic_members);
        if self.cx.is_unlisted() {
            self.cx.rank =
                self.cx.rank.or_else(|| self.membership.dynamic.rank_of(&self.cx.config.host));
        }
    }

    /// The disk has what was handed out up to an index.
    pub(in crate::node) fn on_journaled(
        &mut self,
        generation: u64,
        until: LogIndex,
        synced: LogIndex,
    ) {
        let last = self.journal_content().last();
        let more = self.journal.on_journaled(&mut self.cx, (generation, until, synced), last);
        if more {
            self.ack_synced();
        }
    }

    /// Lets go of a disk that holds a lone root up; says whether it did. `until`: what may be
    /// committed.
    pub(in crate::node) fn skip_slow_journal(&mut self, until: LogIndex) -> bool {
        let lone = self.role.root().filter(|root| root.standby.is_none());
        // A standby that holds the whole log waits for the mark.
        let is_behind = lone.is_some_and(|root| {
            let waits_for_mark = root.whole_copy().is_some() && !self.journal.is_marked();
            self.log.last() > until || waits_for_mark
        });
        self.journal.skip_if_slow(&mut self.cx, is_behind)
    }

    /// An epoch begins: what is appended by now and not committed.
    pub(in crate::node) fn count_waiting(&mut self) {
        let waiting = self.log.entries().after(self.log.commit_index());
        self.journal.set_waiting(waiting.map(|item| item.len()).sum());
    }

    /// Entries after `from` are committed.
    pub(in crate::node) fn journal_committed(&mut self, from: LogIndex) {
        if !self.journal.is_open() {
            return;
        }
        let items = self.log.entries().after(from);
        let items = items.map_while(|item| item.up_to(self.log.commit_index()));
        self.journal.committed(items.map(|item| item.len()).sum());
    }

    /// Whether ranks of unlisted agents are to be written: root and standby know all, and an
    /// unlisted agent its own.
    fn writes_dynamic_members(&self) -> bool {
        self.membership.dynamic.is_unwritten() && (self.role.holds_log() || self.cx.is_unlisted())
    }

    /// Tells the shell, once, that there is something to be written. Called after each input.
    pub(in crate::node) fn wake_journal(&mut self) {
        let writes_members = self.writes_dynamic_members();
        let is_at_rest = self.is_at_rest();
        let content = self.role.journal_content(&self.log, is_at_rest);
        self.journal.wake(&mut self.cx, content, writes_members);
    }

    /// What is to be on disk.
    fn journal_content(&self) -> JournalContent<'_> {
        self.role.journal_content(&self.log, self.is_at_rest())
    }

    /// Whether this agent is below a parent and keeps nothing that the log of that may lack.
    fn is_at_rest(&self) -> bool {
        matches!(self.role, Role::Member(_))
            && self.past.is_none()
            && self.publishing.waiting_bytes() == 0
    }

    /// What is to be written next.
    pub(in crate::node) fn next_journal_write(&mut self, bytes_max: usize) -> Option<JournalWrite> {
        let dynamic_members = match self.journal.is_open() && self.writes_dynamic_members() {
            true => self.membership.dynamic.take_unwritten(),
            false => None,
        };
        let is_at_rest = self.is_at_rest();
        let content = self.role.journal_content(&self.log, is_at_rest);
        let write = self.journal.next_write(content, dynamic_members, bytes_max);
        let items = write.iter().flat_map(|write| &write.items);
        self.cx.counters.journaled += items.map(|item| item.count() as u64).sum::<u64>();
        write
    }

    // What an earlier life has left, or an earlier place.

    /// A standby goes elsewhere: its copy is a log of its past until it knows which log goes on.
    pub(in crate::node) fn keep_copy(&mut self, mut replica: Replica) {
        if replica.complete && replica.epochs.head() == self.log.head() {
            replica.kept = SentBatches::default();
            self.cx.counters.copies_kept += 1;
            self.past = Some(Past { replica, lost_until: None, end_unknown: false });
        }
    }

    /// An acting root goes on with the log of its earlier life, and no other agent has brought what
    /// it could not read of that: logs a gap. A lone agent logs it at once.
    pub(in crate::node) fn log_unreadable(&mut self) {
        let now_ns = self.cx.now.mono_ns;
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("TimerOfRoot") };
        if let Some((gap, _)) = root.unreadable.take_if(|(_, until_ns)| *until_ns <= now_ns) {
            self.append(UpItem::Gap(gap));
        }
    }

    /// Another log is the one that goes on: what that of the earlier life has after the fork goes
    /// up as unconfirmed events, before what waits already. What is there too is known by its id.
    pub(in crate::node) fn re_propose_restored(&mut self, winning: &EpochHistory) {
        // It has no log of an earlier life.
        let Some(past) = self.past.take() else { return };
        let Replica { epochs, log, .. } = &past.replica;
        let items = items_after_fork(log, epochs, log.evicted(), winning);
        if items.is_empty() {
            // The parent is of the same epoch, and may have less of it than is here: then its next
            // log leaves that epoch before our end.
            let undecided = winning.head() == epochs.head();
            self.past = undecided.then_some(past);
            return;
        }
        let losing = LosingLog { items, has_all: false, hole_until: LogIndex::ZERO };
        self.publishing.re_propose(&mut self.cx, losing, winning);
        self.flush_outbox();
    }
}

impl Past {
    /// The hole behind its last entry. Where nothing says how far the log went, one entry stands
    /// for all that may be missing, and the count is unknown.
    pub(in crate::node) fn lost(&self) -> Option<Gap> {
        let Replica { epochs, log, .. } = &self.replica;
        let last = log.last();
        let lost_until = self.lost_until.filter(|until| *until > last);
        let until = lost_until.or(self.end_unknown.then_some(last.next()))?;
        let after = epochs.position(last);
        let range = (after, Position { epoch: epochs.head(), index: until });
        let count = lost_until.map(|until| until - last);
        Some(Gap { count, ..Gap::unknown(range, GapReason::LogLost) })
    }
}

impl Role {
    /// What is to be on disk. `is_at_rest`: that of a member needs no mark.
    pub(in crate::node) fn journal_content<'a>(
        &'a self,
        log: &'a FollowedLog,
        is_at_rest: bool,
    ) -> JournalContent<'a> {
        match (self.root(), self.replica()) {
            (Some(root), _) => JournalContent::Log(JournalSource {
                epochs: log.epochs(),
                log: log.entries(),
                published: &root.published,
                after: log.known_after(true),
                is_replicated: root.standby.is_some() || root.whole_copy().is_some(),
            }),
            (None, Some(replica)) if replica.complete => JournalContent::Log(JournalSource {
                epochs: &replica.epochs,
                log: &replica.log,
                published: &replica.published,
                after: replica.log.known_after(),
                is_replicated: true,
            }),
            _ if is_at_rest => JournalContent::AtRest,
            _ => JournalContent::Unchanged,
        }
    }
}
