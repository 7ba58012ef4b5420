//! The log that an agent follows: its entries, its epoch history, and how far it is committed.
//!
//! Responsible for: what can be read of this log, and where other logs leave it. Not responsible
//! for: which log is followed and what is committed ([`crate::node`]).

use crate::epochs::EpochHistory;
use crate::filter::FilterSet;
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::log::conditions::ConditionLimits;
use crate::log::entries::{Evicted, Log};
use crate::log::gap::{Gap, GapReason};
use crate::log::item::{Content, Item};
use crate::log::reader::Reader;
use crate::log::retained::Reserve;
use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};
use std::collections::BTreeMap;

/// Most lost epochs whose forks are remembered.
const FORKS_MAX: usize = 256;

/// The log that an agent follows.
pub(crate) struct FollowedLog {
    epochs: EpochHistory,
    entries: Log,
    /// Up to this index all readers may see it.
    commit_index: LogIndex,
    /// A root that took over without a copy has only what passed by up to this index.
    complete_after: LogIndex,
    /// Epochs that lost, and up to which index of this log they had gone along.
    forks: BTreeMap<Epoch, LogIndex>,
}

/// Most rows of the table that are looked at for one page: the driver has other work.
const ROWS_LOOKED_MAX: usize = 16_384;

/// Items, up to which index they reach, and whether nothing follows.
pub(crate) type Page = (Vec<Item>, LogIndex, bool);

impl FollowedLog {
    /// Of an agent that has never been in a tree.
    pub(crate) fn new(limits: ConditionLimits) -> Self {
        Self {
            epochs: EpochHistory::new(),
            entries: Log::new(LogIndex::ZERO, limits),
            commit_index: LogIndex::ZERO,
            complete_after: LogIndex::ZERO,
            forks: BTreeMap::new(),
        }
    }

    pub(crate) fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    pub(crate) fn entries(&self) -> &Log {
        &self.entries
    }

    /// Up to this index all readers may see it.
    pub(crate) fn commit_index(&self) -> LogIndex {
        self.commit_index
    }

    /// The last committed position.
    pub(crate) fn position(&self) -> Position {
        self.epochs.position(self.commit_index)
    }

    /// The epoch that goes on.
    pub(crate) fn head(&self) -> Epoch {
        self.epochs.head()
    }

    /// The last index.
    pub(crate) fn last(&self) -> LogIndex {
        self.entries.last()
    }

    /// A root that took over without a copy has only what passed by up to this index.
    pub(crate) fn complete_after(&self) -> LogIndex {
        self.complete_after
    }

    /// Behind which index the log of an acting root is complete, whatever is asked for.
    pub(crate) fn memory_after(&self) -> LogIndex {
        self.complete_after.max(self.entries.evicted())
    }

    /// After which index it is complete, but for what its gaps state.
    pub(crate) fn known_after(&self, is_root: bool) -> LogIndex {
        let known_after = self.entries.known_after();
        if is_root { known_after.max(self.complete_after) } else { known_after }
    }

    /// Up to which index a lost epoch had gone along.
    pub(crate) fn fork_of(&self, epoch: Epoch) -> Option<LogIndex> {
        self.forks.get(&epoch).copied()
    }

    /// Up to which index of this log a reader has read that has been at a position of any log.
    pub(crate) fn place_of(&self, position: Position) -> Option<LogIndex> {
        let fork = || self.fork_of(position.epoch).map(|fork| position.index.min(fork));
        self.epochs.resume_after(position).or_else(fork)
    }

    /// Bytes that a reader has not read.
    pub(crate) fn queued(&self, reader: &Reader) -> usize {
        self.entries.bytes_after(reader.cursor) + reader.kept_bytes()
    }

    // What is left of the past.

    /// What the log retains of a range that it does not have as a whole, as much as one answer
    /// takes, and up to which index that reaches.
    pub(crate) fn retained(
        &self,
        (after, until): (LogIndex, LogIndex),
        filters: &FilterSet,
        is_root: bool,
    ) -> (Vec<Item>, LogIndex) {
        let begin = self.known_after(is_root);
        let mut items = Vec::new();
        if after < begin {
            items.push(self.retention_gap(after, begin.min(until)));
        }
        let (mut bytes, mut count) = (0, 0);
        let reported = self.entries.with_gaps(after.max(begin), &self.epochs);
        for item in reported.map_while(|item| item.up_to(until)) {
            if bytes >= BATCH_BYTES_TARGET || count >= BATCH_EVENTS_MAX / 2 {
                return (items, item.covers_after());
            }
            for item in wanted(item, filters) {
                bytes += item.len();
                count += item.count();
                join_holes(&mut items, item);
            }
        }
        (items, until)
    }

    /// Where a look-back to a Unix time begins in memory; with a gap where the log may not go back
    /// that far.
    pub(crate) fn look_back(&self, since_ns: u64, is_root: bool) -> (LogIndex, Option<Item>) {
        let (begin, reached) = self.entries.look_back(since_ns);
        let known_after = if is_root { self.known_after(true) } else { begin };
        let begin = begin.max(known_after);
        let reached = reached && begin > known_after || begin == LogIndex::ZERO;
        (begin, (!reached).then(|| self.unknown_gap(LogIndex::ZERO, begin)))
    }

    /// Whether something that memory has given up may not be older than a Unix time.
    pub(crate) fn is_older(&self, since_ns: u64) -> bool {
        let evicted = self.entries.evicted();
        evicted > LogIndex::ZERO && self.entries.before(since_ns) <= evicted
    }

    /// The events of the rows of the table of conditions after an index that some filters want, as
    /// many as one answer takes.
    pub(crate) fn conditions_after(&self, after: LogIndex, filters: &FilterSet) -> Page {
        let (mut items, mut bytes) = (Vec::<Item>::new(), 0);
        let table = self.entries.conditions();
        let of_hosts = filters.subject_hosts().map(|hosts| table.indices_of(&hosts, after));
        let of_all = of_hosts.is_none().then(|| table.indices_after(after));
        for (looked, index) in
            of_hosts.into_iter().flatten().chain(of_all.into_iter().flatten()).enumerate()
        {
            if looked >= ROWS_LOOKED_MAX {
                return (items, index.before(), false);
            }
            let Some(item) = self.entries.condition_event(index) else { continue };
            let wanted = match &item.content {
                Content::Events(run) => filters.matches(run.first()),
                Content::Gap(_) => false,
            };
            if !wanted {
                continue;
            }
            if bytes >= BATCH_BYTES_TARGET || items.len() >= BATCH_EVENTS_MAX / 2 {
                return (items, index.before(), false);
            }
            bytes += item.len();
            items.push(item);
        }
        (items, self.commit_index.max(after), true)
    }

    /// What says that the log does not go back that far. Where the log has lost nothing but by
    /// retention, each index was an event.
    fn retention_gap(&self, after: LogIndex, until: LogIndex) -> Item {
        let mut item = self.unknown_gap(after, until);
        let incomplete = self.epochs.is_incomplete_after(after) || self.complete_after > after;
        if let Content::Gap(gap) = &mut item.content
            && !incomplete
        {
            gap.count = Some(until - after);
        }
        item
    }

    /// The same where it is not known how much is missing.
    fn unknown_gap(&self, after: LogIndex, until: LogIndex) -> Item {
        let range = (self.epochs.position(after), self.epochs.position(until));
        Item { index: until, content: Content::Gap(Gap::unknown(range, GapReason::Retention)) }
    }

    // Changes.

    /// Nothing of it is here yet: it goes on after an index.
    pub(crate) fn begin(&mut self, index: LogIndex) {
        self.entries = Log::new(index, self.entries.conditions().limits());
        self.commit_index = index;
    }

    /// Goes back to an index; what is not committed goes too.
    pub(crate) fn go_back(&mut self, index: LogIndex) {
        self.commit_index = self.commit_index.min(index);
        self.entries.truncate(self.commit_index);
    }

    pub(crate) fn set_epochs(&mut self, epochs: EpochHistory) {
        self.epochs = epochs;
    }

    /// Begins an epoch.
    pub(crate) fn open_epoch(&mut self, epoch: Epoch, is_incomplete: bool) {
        self.epochs.open(epoch, self.last().next(), is_incomplete);
        self.apply_conditions();
    }

    /// Remembers where epochs that have lost left the log that goes on: positions of theirs may be
    /// asked for. `None`: the logs never met, no place in the last says anything about this one.
    pub(crate) fn note_forks(&mut self, winning: &EpochHistory, fork: Option<LogIndex>) {
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

    /// Goes on with a copy of the log in the place of what passed by. What was marked as delivered
    /// before stays marked.
    pub(crate) fn take_copy(&mut self, entries: Log) {
        let old = std::mem::replace(&mut self.entries, entries);
        self.entries.take_marks(old);
        self.complete_after = LogIndex::ZERO;
    }

    /// Goes on with another log, of which this one has that much.
    pub(crate) fn install(&mut self, entries: Log, epochs: EpochHistory, common: Option<LogIndex>) {
        self.note_forks(&epochs, common);
        self.commit_index = match common {
            Some(common) => self.commit_index.min(common),
            // Nothing of it was consumed here: it begins where it is.
            None => entries.last(),
        };
        (self.entries, self.epochs) = (entries, epochs);
        self.complete_after = LogIndex::ZERO;
    }

    /// It is the whole log.
    pub(crate) fn set_complete(&mut self) {
        self.complete_after = LogIndex::ZERO;
    }

    /// It has only what passed by.
    pub(crate) fn set_incomplete(&mut self) {
        self.complete_after = self.last();
        self.entries.forget_conditions();
    }

    /// Adds an entry behind all others.
    pub(crate) fn append(&mut self, content: Content) {
        self.entries.push(Item { index: self.last().next(), content });
    }

    /// Committed entries have come down; gives the commit index before.
    pub(crate) fn extend(&mut self, items: Vec<Item>, covered: LogIndex) -> LogIndex {
        let from = self.commit_index;
        for item in items {
            if let Some(item) = item.behind(from) {
                self.entries.push(item);
            }
        }
        self.entries.cover(covered);
        self.commit_index = from.max(self.last());
        from
    }

    /// Commits; gives the commit index before, if it moves.
    pub(crate) fn commit(&mut self, until: LogIndex) -> Option<LogIndex> {
        let from = self.commit_index;
        if until <= from {
            return None;
        }
        self.commit_index = until;
        self.apply_conditions();
        Some(from)
    }

    /// Applies committed statements to the table of conditions.
    pub(crate) fn apply_conditions(&mut self) {
        self.entries.apply_conditions(self.commit_index);
    }

    /// Notes that events were delivered here before.
    pub(crate) fn mark_repeated(&mut self, indices: Vec<LogIndex>) {
        indices.into_iter().for_each(|index| self.entries.mark_repeated(index));
    }

    /// Gives up the oldest committed entry up to an index, and all that was retained: a copy that
    /// has given it up takes the place of this log.
    pub(crate) fn evict_until(&mut self, until: LogIndex) -> Option<Evicted> {
        self.entries.evict(self.commit_index.min(until))
    }

    /// Gives up the oldest committed entry; a whole log retains what is severe.
    pub(crate) fn evict(&mut self, is_whole: bool, reserve: &Reserve) -> Option<Evicted> {
        // What passed by before the log was whole comes again.
        match is_whole && self.entries.evicted() >= self.complete_after {
            true => self.entries.retire(self.commit_index, reserve),
            false => self.entries.evict(self.commit_index),
        }
    }
}

/// What filters want of an item.
fn wanted(item: Item, filters: &FilterSet) -> Vec<Item> {
    let run = match &item.content {
        Content::Gap(gap) if filters.may_want(gap.severity_max, &gap.spaces) => return vec![item],
        Content::Gap(_) => return Vec::new(),
        Content::Events(run) => run,
    };
    let groups = run.groups().filter(|(_, first)| filters.matches(*first));
    let parts = groups.filter_map(|(places, _)| {
        let index = item.index + places.start as u64;
        Some(Item { index, content: Content::Events(run.slice(places)?) })
    });
    parts.collect()
}

/// Adds an item. Two known holes become one: the filters want nothing of what lies between them.
fn join_holes(items: &mut Vec<Item>, item: Item) {
    if let Content::Gap(next) = &item.content
        && let Some(Item { index, content: Content::Gap(gap) }) = items.last_mut()
        && gap.reason == next.reason
        && gap.severity_max.is_some()
        && next.severity_max.is_some()
        && gap.count.is_some()
        && next.count.is_some()
    {
        *index = item.index;
        gap.join(next);
        return;
    }
    items.push(item);
}
