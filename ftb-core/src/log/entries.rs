//! The entries that an agent keeps: the whole log at acting root and standby, the entries that
//! passed by at any other agent. Indices rise; the caller bounds the log. Events that came together
//! stay together: an entry is a batch of them. Of the entries that it drops, the log of acting root
//! and standby retains the severe ones, and a count of the others ([`crate::log::retained`]).
//!
//! The log knows which conditions hold ([`crate::log::conditions`]).

use crate::condition::Subject;
use crate::epochs::EpochHistory;
use crate::ident::EventId;
use crate::log::conditions::{ConditionLimits, ConditionTable};
use crate::log::item::{Content, Item};
use crate::log::retained::{Items, Reserve, Retained};
use crate::numbers::LogIndex;
use std::collections::{BTreeSet, VecDeque};

/// Entries after `evicted` up to `last`. An index may be missing where no reader here wants it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Item>,
    bytes: usize,
    /// What is left of entries that were given up; they all lie before the others.
    retained: Retained,
    evicted: LogIndex,
    last: LogIndex,
    /// Indices of events that were delivered here before, in an epoch that has lost: local
    /// subscriptions skip them. Empty but after a merge.
    repeated: BTreeSet<LogIndex>,
    /// The table of conditions at `applied`.
    conditions: ConditionTable,
    applied: LogIndex,
}

/// What an event costs in memory beside its bytes where it has a row of its batch's index for
/// itself.
const EVENT_BYTES: usize = 56;
/// What an entry costs beside its events: itself, the batch that it is a part of, what the events
/// of that have in common, and the allocations. Nearly nothing where events come by the hundred, a
/// third of all where each comes alone.
pub(crate) const ENTRY_BYTES: usize = 544;

/// What an entry counts for.
fn cost(item: &Item) -> usize {
    cost_of(&item.content)
}

/// The same of what is to become one.
pub(crate) fn cost_of(content: &Content) -> usize {
    ENTRY_BYTES + content.len() + EVENT_BYTES * content.count()
}

/// Partition point: the index of the first item for which `holds` is false. The search begins at
/// the end, where the point mostly is.
pub(crate) fn partition_point_from_end<T>(
    items: &VecDeque<T>,
    holds: impl Fn(&T) -> bool,
) -> usize {
    // It holds of none from `high` on.
    let (mut low, mut high) = (0, items.len());
    let mut step = 1;
    while low < high {
        let place = high.saturating_sub(step);
        if holds(&items[place]) {
            low = place + 1;
            break;
        }
        high = place;
        step *= 2;
    }
    while low < high {
        let middle = low.midpoint(high);
        if holds(&items[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Log {
    /// Nothing yet; the next index is behind `after`.
    pub(crate) fn new(after: LogIndex, limits: ConditionLimits) -> Self {
        let (retained, conditions) = (Retained::new(after, limits), ConditionTable::new(limits));
        let (evicted, last, applied) = (after, after, after);
        Self { retained, conditions, evicted, last, applied, ..Self::default() }
    }

    /// The same where the events of the conditions up to `after` are known.
    pub(crate) fn with_conditions(
        after: LogIndex,
        events: Vec<Item>,
        limits: ConditionLimits,
    ) -> Self {
        let retained = Retained::of_conditions(events, after, limits);
        let conditions = retained.conditions().clone();
        Self { retained, conditions, ..Self::new(after, limits) }
    }

    /// The table of conditions, as far as it was applied.
    pub(crate) fn conditions(&self) -> &ConditionTable {
        &self.conditions
    }

    /// Up to which index the table goes.
    pub(crate) fn applied(&self) -> LogIndex {
        self.applied
    }

    /// Applies the statements up to an index, which are committed, to the table of conditions.
    pub(crate) fn apply_conditions(&mut self, until: LogIndex) {
        if until <= self.applied {
            return;
        }
        let start = partition_point_from_end(&self.entries, |entry| entry.last() <= self.applied);
        for entry in self.entries.range(start..) {
            let Some(item) = entry.behind(self.applied) else { continue };
            let Some(item) = item.up_to(until) else { break };
            if let Content::Events(run) = &item.content {
                for (places, first) in run.groups().filter(|(_, e)| e.condition().is_some()) {
                    self.conditions.apply(item.index + places.start as u64, first);
                }
            }
        }
        self.applied = until;
    }

    /// The table of a log that is not whole: only what is stated from now on counts.
    pub(crate) fn forget_conditions(&mut self) {
        self.conditions = ConditionTable::new(self.conditions.limits());
        self.applied = self.last;
    }

    /// Whether an event that is not applied yet states something about a subject.
    pub(crate) fn is_pending(&self, subject: &Subject) -> bool {
        self.after(self.applied).any(|item| match &item.content {
            Content::Events(run) => run.groups().any(|(_, event)| {
                event.condition().is_some_and(|condition| condition.is_about(subject))
            }),
            Content::Gap(_) => false,
        })
    }

    /// The event of an index, which is that of a row of the table.
    pub(crate) fn condition_event(&self, index: LogIndex) -> Option<Item> {
        let start = partition_point_from_end(&self.entries, |entry| entry.last() < index);
        let entry = self.entries.get(start).filter(|entry| entry.index <= index);
        let found = entry.and_then(|entry| entry.behind(index.before()));
        match found {
            Some(item) => item.up_to(index),
            None => self.retained.pinned_at(index),
        }
    }

    /// The last index that it covers.
    pub(crate) fn last(&self) -> LogIndex {
        self.last
    }

    /// Entries up to this index may be gone.
    pub(crate) fn evicted(&self) -> LogIndex {
        self.evicted
    }

    /// Each entry after this index is here, or a gap states that it is not.
    pub(crate) fn known_after(&self) -> LogIndex {
        self.retained.after()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.retained.bytes()
    }

    /// Bytes of the conditions, which are beside the others.
    pub(crate) fn condition_bytes(&self) -> usize {
        self.conditions.bytes() + self.retained.conditions().bytes()
    }

    /// Adds entries behind all others; indices that are not are ignored.
    pub(crate) fn push(&mut self, item: Item) {
        let whole = item.index > self.last && !item.is_range();
        // All of it is here.
        let Some(item) = (if whole { Some(item) } else { item.behind(self.last) }) else { return };
        self.last = item.last();
        if item.is_range() {
            self.evicted = self.last;
        }
        self.bytes += cost(&item);
        self.entries.push_back(item);
    }

    /// Nothing (more) is to come up to this index.
    pub(crate) fn cover(&mut self, index: LogIndex) {
        self.last = self.last.max(index);
    }

    /// What lies after an index.
    pub(crate) fn after(&self, after: LogIndex) -> impl Iterator<Item = Item> {
        let start = partition_point_from_end(&self.entries, |entry| entry.last() <= after);
        self.entries.range(start..).filter_map(move |entry| entry.behind(after))
    }

    /// Everything after an index, with a gap for each hole.
    pub(crate) fn with_gaps<'a>(
        &'a self,
        after: LogIndex,
        epochs: &'a EpochHistory,
    ) -> impl Iterator<Item = Item> {
        let retained = (after < self.retained.last()).then(|| self.retained.items(after, epochs));
        let retained = retained.into_iter().flat_map(|items: Items<'_>| items);
        retained.chain(self.after(after))
    }

    /// After which index a look-back to a Unix time begins, and whether this log goes back that
    /// far.
    pub(crate) fn look_back(&self, since_ns: u64) -> (LogIndex, bool) {
        let begin = self.retained.since(since_ns).unwrap_or_else(|| self.before(since_ns));
        (begin, begin > self.known_after() || begin == LogIndex::ZERO)
    }

    /// The next entries after an index up to another, as many as fit, and up to which index they
    /// reach.
    pub(crate) fn next(
        &self,
        range: (LogIndex, LogIndex),
        bytes_max: usize,
        events_max: usize,
        epochs: &EpochHistory,
    ) -> (Vec<Item>, LogIndex) {
        let (after, until) = range;
        let mut items: Vec<Item> = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        for item in self.with_gaps(after, epochs).map_while(|item| item.up_to(until)) {
            let (room, most) = (bytes_max.saturating_sub(bytes), events_max - count);
            let fits = match &item.content {
                Content::Events(run) => run.fitting(room, most),
                Content::Gap(_) => most.min(room).min(1),
            };
            let all = fits == item.count();
            if let Some(part) = item.up_to((item.index + fits as u64).before())
                && fits > 0
            {
                bytes += part.len();
                count += part.count();
                items.push(part);
            }
            if !all {
                let until = items.last().map_or(after, Item::last);
                return (items, until);
            }
        }
        (items, until)
    }

    /// Whether an event was delivered here before.
    pub(crate) fn is_repeated(&self, index: LogIndex) -> bool {
        !self.repeated.is_empty() && self.repeated.contains(&index)
    }

    /// Whether any of these events was delivered here before.
    pub(crate) fn any_repeated(&self, item: &Item) -> bool {
        !self.repeated.is_empty() && self.repeated.range(item.index..=item.last()).next().is_some()
    }

    /// Notes that an event was delivered here before.
    pub(crate) fn mark_repeated(&mut self, index: LogIndex) {
        self.repeated.insert(index);
    }

    /// Takes the repeated indices of another log with the same events.
    pub(crate) fn take_marks(&mut self, old: Self) {
        let (after, last) = (self.evicted, self.last);
        self.repeated.extend(old.repeated.into_iter().filter(|i| *i > after && *i <= last));
    }

    /// Bytes of the entries after an index.
    pub(crate) fn bytes_after(&self, after: LogIndex) -> usize {
        self.after(after).map(|item| cost(&item)).sum()
    }

    /// Takes everything after an index back, because it lies in an epoch that has lost.
    pub(crate) fn truncate(&mut self, after: LogIndex) {
        while self.entries.back().is_some_and(|entry| entry.last() > after) {
            let Some(item) = self.entries.pop_back() else { break };
            self.bytes -= cost(&item);
            if let Some(rest) = item.up_to(after) {
                self.bytes += cost(&rest);
                self.entries.push_back(rest);
            }
        }
        self.last = self.last.min(after);
        self.evicted = self.evicted.min(after);
        if self.retained.last() > after {
            self.retained.truncate(after);
        }
        if self.applied > after {
            self.conditions = self.retained.conditions().clone();
            self.applied = self.evicted;
            self.apply_conditions(after);
        }
        drop(self.repeated.split_off(&after.next()));
    }

    /// Gives the oldest entry up, as far as it is not behind `until`, and all that was retained.
    pub(crate) fn evict(&mut self, until: LogIndex) -> Option<Evicted> {
        let evicted = self.pop(until)?;
        self.retained = Retained::new(self.evicted, self.conditions.limits());
        self.conditions.forget_until(self.evicted);
        Some(evicted)
    }

    /// The same, and retains what is severe.
    pub(crate) fn retire(&mut self, until: LogIndex, reserve: &Reserve) -> Option<Evicted> {
        let evicted = self.pop(until)?;
        self.retained.take(&evicted.item, reserve);
        Some(evicted)
    }

    fn pop(&mut self, until: LogIndex) -> Option<Evicted> {
        let item = self.entries.front()?.up_to(until)?;
        self.apply_conditions(item.last());
        let whole = self.entries.pop_front()?;
        self.bytes -= cost(&whole);
        self.evicted = self.evicted.max(item.last());
        if let Some(rest) = whole.behind(item.last()) {
            self.bytes += cost(&rest);
            self.entries.push_front(rest);
        }
        let mut repeated = BTreeSet::new();
        if !self.repeated.is_empty() {
            let kept = self.repeated.split_off(&item.last().next());
            repeated = std::mem::replace(&mut self.repeated, kept);
        }
        Some(Evicted { item, repeated })
    }

    /// Whether an event is in it.
    pub(crate) fn holds(&self, id: EventId) -> bool {
        self.entries.iter().any(|entry| match &entry.content {
            Content::Events(run) => run.holds(id),
            Content::Gap(_) => false,
        }) || self.retained.holds(id)
    }

    /// The index of the first event that is not older than a Unix time, less one. A range that is
    /// missing right before it may not be older either.
    pub(crate) fn before(&self, since_ns: u64) -> LogIndex {
        let mut hole = None;
        for entry in &self.entries {
            let Content::Events(run) = &entry.content else {
                hole = entry.is_range().then(|| entry.covers_after());
                continue;
            };
            match run.iter().position(|event| event.time_ns() >= since_ns) {
                Some(0) => return hole.unwrap_or(entry.index.before()),
                Some(place) => return (entry.index + place as u64).before(),
                None => hole = None,
            }
        }
        hole.unwrap_or(self.last)
    }
}

/// What a log has given up.
pub(crate) struct Evicted {
    pub(crate) item: Item,
    /// Indices of those that were delivered here before.
    repeated: BTreeSet<LogIndex>,
}

impl Evicted {
    /// Its parts, in order, and whether each was delivered here before.
    pub(crate) fn parts(&self) -> Vec<(Item, bool)> {
        let mut parts = Vec::new();
        let mut rest = Some(self.item.clone());
        for index in &self.repeated {
            let Some(item) = rest else { return parts };
            parts.extend(item.up_to(index.before()).map(|fresh| (fresh, false)));
            let here = item.behind(index.before()).and_then(|item| item.up_to(*index));
            parts.extend(here.map(|repeated| (repeated, true)));
            rest = item.behind(*index);
        }
        parts.extend(rest.map(|fresh| (fresh, false)));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::sealed::Sealed;
    use crate::testing::sealed;

    fn items(first: u64, count: u64) -> Item {
        let events: Vec<Sealed> = (first..first + count).map(|seq| sealed(1, seq)).collect();
        let run = Run::collect(events.iter().map(Sealed::as_ref)).expect("some events");
        Item { index: first.into(), content: Content::Events(run) }
    }

    fn indices(log: &Log, after: u64) -> Vec<u64> {
        let indices = |item: Item| item.index.get()..=item.last().get();
        log.after(after.into()).flat_map(indices).collect()
    }

    #[test]
    fn a_place_is_found_wherever_it_is() {
        for len in 0..40 {
            let items: VecDeque<usize> = (0..len).collect();
            for place in 0..=len {
                assert_eq!(
                    partition_point_from_end(&items, |item| *item < place),
                    place,
                    "of {len}"
                );
            }
        }
    }

    #[test]
    fn a_log_counts_its_bytes_through_push_evict_and_truncate() {
        let mut log = Log::new(10.into(), ConditionLimits::default());
        for index in [11, 13, 17] {
            log.push(items(index, 1));
        }
        log.push(items(17, 1));
        assert_eq!(indices(&log, 12), [13, 17], "an index comes once");
        assert!(log.evict(10.into()).is_none());
        assert_eq!(log.evict(11.into()).map(|evicted| evicted.item.index.get()), Some(11));
        assert_eq!((log.evicted().get(), log.last().get()), (11, 17));
        log.truncate(13.into());
        assert_eq!((indices(&log, 0), log.last().get()), (vec![13], 13));
        assert_eq!(log.bytes(), log.bytes_after(0.into()));
        log.truncate(0.into());
        assert_eq!(log.bytes(), 0);
    }

    #[test]
    fn a_run_is_cut_where_what_is_asked_for_begins_or_ends() {
        let mut log = Log::new(0.into(), ConditionLimits::default());
        log.push(items(1, 8));
        log.push(items(5, 8));
        assert_eq!(indices(&log, 0), (1..=12).collect::<Vec<_>>(), "what was there is not added");
        assert_eq!(indices(&log, 10), [11, 12]);
        log.mark_repeated(2.into());
        log.mark_repeated(7.into());
        let evicted = log.evict(3.into()).expect("three events");
        assert_eq!((evicted.item.index.get(), evicted.item.last().get()), (1, 3));
        let parts = evicted.parts();
        let parts: Vec<_> = parts.iter().map(|(item, again)| (item.index.get(), *again)).collect();
        assert_eq!(parts, [(1, false), (2, true), (3, false)]);
        assert!(log.is_repeated(7.into()) && !log.is_repeated(2.into()));
        assert_eq!(log.before(6), 5.into());
        log.truncate(6.into());
        assert_eq!((indices(&log, 0), log.last().get()), (vec![4, 5, 6], 6));
        assert!(!log.is_repeated(7.into()));
        assert_eq!(log.bytes(), log.bytes_after(0.into()));
    }
}
