//! What a log still has of the entries that it no longer holds as a whole: the severe ones, and for
//! the rest how many there were, the highest severity, and their event spaces.
//!
//! Symbols: a log covers the indices `(after, last]`. Each of them is either *retained* (an event,
//! or a gap that was an entry of the log itself) or *dropped*. A maximal range of dropped indices
//! is a *hole*.
//!
//! Rules:
//! 1. Events of INFO outside protected spaces are dropped at once. All others are retained while
//!    they fit into the reserve.
//! 2. The reserve has two shares: protected spaces, and all other spaces. Each share may fill what
//!    the other leaves free. When the reserve is full, a share that holds more than half of it
//!    gives up its mildest events, the oldest first.
//! 3. A hole states an exact count: indices are dense, so the count is the number of its indices.
//!    The highest severity and the spaces come from the tallies which it overlaps.
//! 4. Where the log itself did not know what it held, the hole says unknown: count 0, no severity.
//! 5. The event of each row of the table of conditions is retained, whatever the reserve is
//!    ([`crate::log::conditions`]). A statement that does not count is dropped. Which statements of
//!    a later part of a log count depends on what was stated before it: without that, all stay.
//! 6. Statements that counted get a mark ([`CountedMark`]). The rules compare clocks and
//!    publishers: without what is dropped some of them would not count again.

mod batch;
mod items;
mod tally;
#[cfg(test)]
mod tests;

pub use items::Items;

use crate::epochs::EpochHistory;
use crate::ident::EventId;
use crate::log::conditions::{Applied, ConditionLimits, ConditionTable};
use crate::log::gap::Gap;
use crate::log::item::{Content, Item};
use crate::numbers::LogIndex;
use crate::run::Run;
use crate::sealed::{CountedMark, Sealed, SealedRef};
use crate::severity::Severity;
use crate::space::{EventSpace, lies_in};
use batch::{LaneCursor, RetainedBatch, batch_of};
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tally::{Tally, newer};

/// What bounds the retained events of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Bytes of retained events.
    pub bytes: usize,
    /// Event spaces of the protected share, each with all below it.
    pub protected: Arc<[EventSpace]>,
    /// Bounds of the table of conditions, whose events are beside those bytes.
    pub conditions: ConditionLimits,
    /// How statements that counted are marked; `None`: they are not.
    pub mark: Option<CountedMark>,
}

/// Part of a log's bytes that retained events may use: one half, a quarter for each share.
pub(crate) const RESERVE_PART: usize = 2;
/// Memory of an event beside its bytes and its index.
const EVENT_BYTES: usize = 56;
/// Memory of a batch of retained events beside its events.
const BATCH_BYTES: usize = 544;
/// Memory of a tally, near enough.
const TALLY_BYTES: usize = 128;
/// Part of the reserve's bytes that tallies may use, and that entries which are gaps may use.
const TALLY_PART: usize = 16;
/// Fewest tallies, however small the reserve is.
const TALLIES_MIN: usize = 16;
/// Most indices of one tally, so that a look-back by time finds its beginning.
const TALLY_INDICES_MAX: u64 = 4_096;
/// Severities, mildest first.
const SEVERITIES: usize = Severity::ALL.len();
/// The share of protected spaces.
const PROTECTED: usize = 0;
/// The share of all other spaces.
const OTHERS: usize = 1;

/// The place of a severity in a share.
fn rank(severity: Severity) -> usize {
    severity as usize - 1
}

/// The retained part of a log.
#[derive(Clone, Debug, Default)]
pub struct Retained {
    after: LogIndex,
    last: LogIndex,
    /// By share and severity.
    lanes: [[VecDeque<RetainedBatch>; SEVERITIES]; 2],
    bytes: [usize; 2],
    /// Entries of the log that are gaps themselves.
    gaps: VecDeque<Item>,
    gap_bytes: usize,
    /// They cover `(after, last]` without a break.
    tallies: VecDeque<Tally>,
    /// The table of conditions at `last`.
    conditions: ConditionTable,
    /// The event of each of its rows, by index.
    pinned: BTreeMap<LogIndex, Run>,
    /// What was stated before it is not known.
    is_later_part: bool,
}

impl Retained {
    /// Of a log that begins after an index.
    pub fn new(after: LogIndex, limits: ConditionLimits) -> Self {
        Self { after, last: after, conditions: ConditionTable::new(limits), ..Self::default() }
    }

    /// Of a part of a log that begins after an index, without what was stated before it.
    pub fn later_part(after: LogIndex, limits: ConditionLimits) -> Self {
        Self { is_later_part: true, ..Self::new(after, limits) }
    }

    /// The events of conditions before an index, of a log of which nothing else is known up to
    /// there.
    pub(crate) fn of_conditions(
        events: Vec<Item>,
        last: LogIndex,
        limits: ConditionLimits,
    ) -> Self {
        let Some(first) = events.first() else { return Self::new(last, limits) };
        let mut retained = Self::new(first.covers_after(), limits);
        let (bytes, protected) = (0, Arc::default());
        let nothing = Reserve { bytes, protected, conditions: limits, mark: None };
        events.iter().for_each(|item| retained.take(item, &nothing));
        retained.push_tally(Tally::unknown(last));
        for tally in &mut retained.tallies {
            tally.unknown = true;
        }
        retained
    }

    /// The table of conditions at the end of this part of the log.
    pub(crate) fn conditions(&self) -> &ConditionTable {
        &self.conditions
    }

    /// The event of a row.
    pub(crate) fn pinned_at(&self, index: LogIndex) -> Option<Item> {
        let run = self.pinned.get(&index)?.clone();
        Some(Item { index, content: Content::Events(run) })
    }

    /// The events of that table, rising.
    pub fn pinned(&self) -> impl Iterator<Item = Item> {
        let item = |(index, run): (&LogIndex, &Run)| Item {
            index: *index,
            content: Content::Events(run.clone()),
        };
        self.pinned.iter().map(item)
    }

    /// Everything up to this index is in no part of the log.
    pub(crate) fn after(&self) -> LogIndex {
        self.after
    }

    /// The last index that is in this part of the log.
    pub fn last(&self) -> LogIndex {
        self.last
    }

    /// Memory that it uses.
    pub fn bytes(&self) -> usize {
        self.bytes.iter().sum::<usize>() + self.gap_bytes + self.tallies.len() * TALLY_BYTES
    }

    /// Whether an event is retained.
    pub(crate) fn holds(&self, id: EventId) -> bool {
        self.lanes.iter().flatten().flatten().any(|batch| batch.run.holds(id))
            || self.pinned.values().any(|run| run.holds(id))
    }

    /// Takes the next entry of the log.
    pub fn take(&mut self, item: &Item, reserve: &Reserve) {
        let Some(item) = item.behind(self.last) else { return };
        if item.covers_after() > self.last {
            self.push_tally(Tally::unknown(item.covers_after()));
        }
        match &item.content {
            Content::Gap(gap) => self.take_gap(&item, gap),
            Content::Events(run) => self.take_run(item.index, run, reserve),
        }
        self.last = self.last.max(item.last());
        self.trim(reserve);
    }

    fn take_gap(&mut self, item: &Item, gap: &Gap) {
        if item.is_range() {
            let tally = Tally {
                severity_max: gap.severity_max,
                spaces: Some(gap.spaces.clone()),
                // When they were logged is not known.
                newest_ns: None,
                unknown: gap.severity_max.is_none(),
                last: item.index,
            };
            return self.push_tally(tally);
        }
        self.push_tally(Tally::new(item.index));
        self.gap_bytes += BATCH_BYTES + item.len();
        self.gaps.push_back(item.clone());
    }

    fn take_run(&mut self, index: LogIndex, run: &Run, reserve: &Reserve) {
        let (run, void) = self.judge(index, run, reserve.mark);
        let run = &run;
        // What came before an event is not newer.
        for tally in self.tallies.iter_mut().rev().take_while(|tally| tally.newest_ns.is_none()) {
            tally.newest_ns = Some(run.first().time_ns());
        }
        let mut tally = Tally::new((index + run.count() as u64).before());
        let mut kept: [[Vec<Range<usize>>; SEVERITIES]; 2] = Default::default();
        for (places, first) in run.groups() {
            let share = reserve.share(first.space());
            if void.contains(&places.start) || first.severity() == Severity::Info && share == OTHERS
            {
                let newest_ns = run.get(places.end - 1).map_or(0, SealedRef::time_ns);
                tally.dropped(first.severity(), first.space(), newest_ns);
                continue;
            }
            let ranges = &mut kept[share][rank(first.severity())];
            match ranges.last_mut() {
                Some(last) if last.end == places.start => last.end = places.end,
                _ => ranges.push(places),
            }
        }
        self.push_tally(tally);
        for (share, lanes) in kept.into_iter().enumerate() {
            for (severity, ranges) in lanes.into_iter().enumerate() {
                if let Some(batch) = batch_of(index, run, &ranges) {
                    self.bytes[share] += batch.cost();
                    self.lanes[share][severity].push_back(batch);
                }
            }
        }
    }

    /// Takes what events state. Gives them with marks, and the places of statements that do not
    /// count.
    fn judge(
        &mut self,
        first: LogIndex,
        run: &Run,
        mark: Option<CountedMark>,
    ) -> (Run, BTreeSet<usize>) {
        let (mut marked, mut void) = (BTreeMap::new(), BTreeSet::new());
        // Each statement is a group of its own.
        for (places, event) in run.groups().filter(|(_, event)| event.condition().is_some()) {
            let (place, index) = (places.start, first + places.start as u64);
            if self.is_later_part {
                self.pinned.insert(index, event.to_sealed().into());
                continue;
            }
            let Applied::Counts { gone } = self.conditions.apply(index, event) else {
                void.insert(place);
                continue;
            };
            let sealed = mark.and_then(|mark| (mark.put)(event));
            marked.extend(sealed.clone().map(|sealed| (place, sealed)));
            let pinned = sealed.unwrap_or_else(|| event.to_sealed());
            self.pinned.insert(index, pinned.into());
            gone.iter().for_each(|index| drop(self.pinned.remove(index)));
        }
        let event = |(place, event)| marked.get(&place).map_or(event, Sealed::as_ref);
        let all = (!marked.is_empty()).then(|| run.iter().enumerate().map(event));
        let run = all.and_then(Run::collect).unwrap_or_else(|| run.clone());
        (run, void)
    }

    fn push_tally(&mut self, tally: Tally) {
        let before = self.tallies.len().checked_sub(2).and_then(|at| self.tallies.get(at));
        let first = before.map_or(self.after, |before| before.last);
        self.last = self.last.max(tally.last);
        match self.tallies.back_mut() {
            Some(last) if last.is_like(&tally) && tally.last - first <= TALLY_INDICES_MAX => {
                last.last = tally.last;
                last.newest_ns = newer(last.newest_ns, tally.newest_ns);
            }
            _ => self.tallies.push_back(tally),
        }
    }

    /// Keeps the bounds.
    fn trim(&mut self, reserve: &Reserve) {
        while self.bytes.iter().sum::<usize>() > reserve.bytes {
            let Some((share, severity)) = self.mildest(reserve.bytes / 2) else { break };
            let Some(batch) = self.lanes[share][severity].pop_front() else { break };
            self.bytes[share] -= batch.cost();
            self.drop_batch(&batch);
        }
        let part = reserve.bytes / TALLY_PART;
        while self.gap_bytes > part {
            let Some(gap) = self.gaps.pop_front() else { break };
            self.gap_bytes -= BATCH_BYTES + gap.len();
            let at = self.tally_of(gap.index);
            if let Some(tally) = self.tallies.get_mut(at) {
                tally.join(&Tally::unknown(gap.index));
            }
        }
        while self.tallies.len() > (part / TALLY_BYTES).max(TALLIES_MIN) {
            let Some(oldest) = self.tallies.pop_front() else { break };
            if let Some(next) = self.tallies.front_mut() {
                next.join(&oldest);
            }
        }
    }

    /// The lane that gives up its oldest events next: the mildest of a share that has more than its
    /// half.
    fn mildest(&self, half: usize) -> Option<(usize, usize)> {
        let above = |share: &usize| self.bytes.get(*share).is_some_and(|bytes| *bytes > half);
        let mildest = |share: usize| {
            let lane = self.lanes[share].iter().position(|lane| !lane.is_empty())?;
            Some((share, lane))
        };
        let of_each = [OTHERS, PROTECTED].into_iter().filter(above).filter_map(mildest);
        of_each.min_by_key(|(_, severity)| *severity)
    }

    /// The tally that an index belongs to.
    fn tally_of(&self, index: LogIndex) -> usize {
        self.tallies.partition_point(|tally| tally.last < index)
    }

    fn drop_batch(&mut self, batch: &RetainedBatch) {
        for (places, first) in batch.run.groups() {
            let newest_ns = batch.run.get(places.end - 1).map_or(0, SealedRef::time_ns);
            let mut place = places.start;
            while place < places.end {
                let at = self.tally_of(batch.index(place));
                let Some(tally) = self.tallies.get_mut(at) else { break };
                tally.dropped(first.severity(), first.space(), newest_ns);
                place = batch.place_after(tally.last).max(place + 1);
            }
        }
    }

    /// Gives up what lies after an index.
    pub(crate) fn truncate(&mut self, after: LogIndex) {
        for (share, lanes) in self.lanes.iter_mut().enumerate() {
            for lane in lanes {
                while lane.back().is_some_and(|batch| batch.last() > after) {
                    let Some(batch) = lane.pop_back() else { break };
                    self.bytes[share] -= batch.cost();
                    if let Some(rest) = batch.before(batch.place_after(after)) {
                        self.bytes[share] += rest.cost();
                        lane.push_back(rest);
                        break;
                    }
                }
            }
        }
        while self.gaps.back().is_some_and(|gap| gap.index > after) {
            let Some(gap) = self.gaps.pop_back() else { break };
            self.gap_bytes -= BATCH_BYTES + gap.len();
        }
        drop(self.pinned.split_off(&after.next()));
        self.conditions = ConditionTable::new(self.conditions.limits());
        for (index, run) in &self.pinned {
            self.conditions.apply(*index, run.first());
        }
        let whole = self.tally_of(after.next());
        self.tallies.truncate(whole + 1);
        self.after = self.after.min(after);
        self.last = self.last.min(after);
        let before = whole.checked_sub(1).and_then(|at| self.tallies.get(at));
        let begins = before.map_or(self.after, |before| before.last);
        if begins >= self.last {
            self.tallies.truncate(whole);
        } else if let Some(tally) = self.tallies.get_mut(whole) {
            tally.last = self.last;
        }
    }

    /// Everything after an index in order: retained events, and a gap for each hole.
    pub fn items<'a>(&'a self, after: LogIndex, epochs: &'a EpochHistory) -> Items<'a> {
        let at = after.max(self.after);
        let lanes = self.lanes.iter().flatten();
        let heads = lanes.map(|lane| {
            let batch = lane.partition_point(|batch| batch.last() <= at);
            let place = lane.get(batch).map_or(0, |batch| batch.place_after(at));
            LaneCursor { lane, batch, place }
        });
        let gap = self.gaps.partition_point(|gap| gap.index <= at);
        Items { retained: self, epochs, at, heads: heads.collect(), gap }
    }

    /// The index after which everything is that may not be older than a Unix time; `None` where all
    /// of it is older.
    pub(crate) fn since(&self, since_ns: u64) -> Option<LogIndex> {
        let end = self.last.next();
        let lanes = || self.lanes.iter().flatten();
        let events = lanes().filter_map(|lane| {
            lane.iter().find_map(|batch| {
                let place = batch.run.iter().position(|event| event.time_ns() >= since_ns)?;
                Some(batch.index(place))
            })
        });
        let mut pinned = self.pinned.iter();
        let pinned = pinned.find(|(_, run)| run.first().time_ns() >= since_ns);
        let event = events.chain(pinned.map(|(index, _)| *index)).min().unwrap_or(end);
        let dropped = |tally: &Tally| {
            tally.spaces.is_some() && tally.newest_ns.is_none_or(|newest_ns| newest_ns >= since_ns)
        };
        let begins = |at: usize| match at.checked_sub(1) {
            Some(before) => self.tallies.get(before).map_or(self.after, |tally| tally.last),
            None => self.after,
        };
        let tally = self.tallies.iter().position(dropped).map_or(self.last, begins);
        if tally.next() >= event {
            return (event < end).then(|| event.before());
        }
        // Retained events before that are older.
        let older = lanes().filter_map(|lane| {
            let batch = lane.partition_point(|batch| batch.first < event).checked_sub(1)?;
            let batch = lane.get(batch)?;
            Some(batch.index(batch.place_after(event.before()).checked_sub(1)?))
        });
        (tally < self.last).then(|| older.max().unwrap_or(tally).max(tally))
    }
}

impl Reserve {
    /// Of a log of that size.
    pub(crate) fn of(
        log_bytes: usize,
        protected: &Arc<[EventSpace]>,
        conditions: ConditionLimits,
        mark: Option<CountedMark>,
    ) -> Self {
        Self { bytes: log_bytes / RESERVE_PART, protected: Arc::clone(protected), conditions, mark }
    }

    fn share(&self, space: &str) -> usize {
        let inside = |above: &EventSpace| lies_in(space.as_bytes(), above.as_str());
        if self.protected.iter().any(inside) { PROTECTED } else { OTHERS }
    }
}
