//! One reader of the log: a child link or a subscription. A reader has a position in the log, no
//! queue. When the log moves on without it, it keeps the entries that it wants, within a bound.
//! Beyond the bound it sheds the events with the lowest severity first, and reports each gap.

use crate::epochs::EpochHistory;
use crate::filter::{Filter, FilterSet};
use crate::log::entries::{ENTRY_BYTES, Log};
use crate::log::gap::{Gap, GapReason};
use crate::log::item::{Content, Item};
use crate::numbers::LogIndex;
use crate::run::Run;
use crate::sealed::SealedRef;
use crate::severity::Severity;
use crate::spaces::Spaces;
use core::ops::Range;
use std::collections::VecDeque;

/// What a reader wants.
pub(crate) trait Wants {
    /// Whether it wants an event.
    fn event(&self, event: SealedRef<'_>) -> bool;
    /// Whether it may have wanted any of the events that are missing.
    fn hole(&self, gap: &Gap) -> bool;
}

impl Wants for Filter {
    fn event(&self, event: SealedRef<'_>) -> bool {
        self.matches(event)
    }

    fn hole(&self, gap: &Gap) -> bool {
        self.may_want(gap.severity_max, &gap.spaces)
    }
}

impl Wants for FilterSet {
    fn event(&self, event: SealedRef<'_>) -> bool {
        self.matches(event)
    }

    fn hole(&self, gap: &Gap) -> bool {
        self.may_want(gap.severity_max, &gap.spaces)
    }
}

/// Most runs of traced events that are remembered until the caller takes them.
const SHED_TRACED_MAX: usize = 16;

/// A place in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    /// Everything wanted up to here was read.
    pub(crate) cursor: LogIndex,
    kept: VecDeque<Item>,
    kept_bytes: usize,
    /// How many events it has lost by being slow.
    pub(crate) shed: u64,
    /// Traced ones among them that the caller has not taken, at most [`SHED_TRACED_MAX`] runs.
    shed_traced: Vec<Run>,
    /// What it wants next is not (all) in the log here and is fetched from above.
    pub(crate) catching_up: bool,
    /// It begins with the first event that is not older than this Unix time; `None`: where it
    /// stands.
    pub(crate) since_ns: Option<u64>,
    /// It begins with the table of conditions, which is fetched from the acting root.
    pub(crate) reads_conditions: bool,
    /// It was not there when others here were given what the log marks as repeated: it reads that
    /// too.
    pub(crate) reads_repeated: bool,
}

/// Where a batch ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimit {
    /// Bytes after which no further event is added.
    pub(crate) bytes: usize,
    /// Most events.
    pub(crate) items: usize,
    /// Not after this index.
    pub(crate) until: LogIndex,
    /// Leave out what was delivered here before.
    pub(crate) skip_repeated: bool,
}

impl Reader {
    pub(crate) fn new(cursor: LogIndex) -> Self {
        Self { cursor, ..Self::default() }
    }

    /// A reader that begins with the table of conditions.
    pub(crate) fn of_conditions() -> Self {
        let (reads_conditions, catching_up, reads_repeated) = (true, true, true);
        Self { reads_conditions, catching_up, reads_repeated, ..Self::default() }
    }

    /// Whether everything up to an index was read, or nothing can be read now.
    pub(crate) fn is_at(&self, index: LogIndex) -> bool {
        self.kept.is_empty() && (self.cursor >= index || self.catching_up)
    }

    /// Whether nothing is kept for it.
    pub(crate) fn is_drained(&self) -> bool {
        self.kept.is_empty()
    }

    /// Older events have come from above: they are read before the log.
    pub(crate) fn add_history(&mut self, items: Vec<Item>, covered: LogIndex) {
        for item in items {
            if let Some(item) = item.behind(self.cursor) {
                self.kept_bytes += item.len();
                self.kept.push_back(item);
            }
        }
        self.cursor = self.cursor.max(covered);
    }

    /// Bytes that it pins beside the log.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// What these cost in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.kept_bytes + ENTRY_BYTES * self.kept.len()
    }

    /// The mildest event that is kept for it.
    pub(crate) fn mildest(&self) -> Option<Severity> {
        self.kept.iter().filter_map(mildest).min()
    }

    /// Goes back (or on) to an index; what it kept behind it is void.
    pub(crate) fn resume_after(&mut self, index: LogIndex) {
        self.cursor = index;
        while self.kept.back().is_some_and(|item| item.last() > index) {
            let Some(item) = self.kept.pop_back() else { break };
            self.kept_bytes -= item.len();
            if let Some(rest) = item.up_to(index) {
                self.kept_bytes += rest.len();
                self.kept.push_back(rest);
            }
        }
    }

    /// Reads on: what is wanted, up to the cut. The cursor moves behind what was examined.
    pub(crate) fn read(&mut self, log: &Log, cut: ReadLimit, wants: &impl Wants) -> Vec<Item> {
        let mut taken = ReadBatch { items: Vec::new(), bytes: 0, events: 0, cut };
        while let Some(item) = self.kept.pop_front() {
            self.kept_bytes -= item.len();
            let last = item.last();
            let read = taken.add(item.clone());
            if read < last {
                let rest = item.behind(read).unwrap_or(item);
                self.kept_bytes += rest.len();
                self.kept.push_front(rest);
                break;
            }
        }
        if !self.kept.is_empty() || self.catching_up {
            return taken.items;
        }
        for item in log.after(self.cursor) {
            let Some(item) = item.up_to(cut.until) else { break };
            let last = item.last();
            let skip = cut.skip_repeated && !self.reads_repeated && log.any_repeated(&item);
            let read = match &item.content {
                Content::Gap(gap) if wants.hole(gap) => taken.add(item),
                Content::Gap(_) => last,
                Content::Events(run) if skip => {
                    taken.add_wanted(item.index, run, |index, event| {
                        !log.is_repeated(index) && wants.event(event)
                    })
                }
                Content::Events(run) => taken.add_groups(item.index, run, wants),
            };
            self.cursor = self.cursor.max(read);
            if read < last {
                return taken.items;
            }
        }
        self.cursor = self.cursor.max(cut.until);
        taken.items
    }

    /// Everything wanted up to the end of the cut is lost to it: one hole that says how much. A gap
    /// that does not know how much it stands for stays as it is.
    pub(crate) fn skip_with_gap(
        &mut self,
        log: &Log,
        cut: ReadLimit,
        epochs: &EpochHistory,
        wants: &impl Wants,
    ) -> Vec<Item> {
        let all = ReadLimit { bytes: usize::MAX, items: usize::MAX, ..cut };
        let mut after = self.kept.front().map_or(self.cursor, Item::covers_after);
        let mut holes: Vec<Item> = Vec::new();
        let mut lost = LostEvents::default();
        for item in self.read(log, all, wants) {
            let last = item.last();
            match &item.content {
                Content::Gap(Gap { count: None, .. }) => {
                    let before = item.covers_after();
                    holes.extend(std::mem::take(&mut lost).hole(epochs, after, before));
                    after = last;
                    holes.push(item);
                }
                Content::Gap(Gap { count: Some(count), severity_max, spaces, .. }) => {
                    lost.add(*count, *severity_max, spaces);
                }
                Content::Events(run) => {
                    self.shed += run.count() as u64;
                    for (places, first) in run.groups() {
                        let count = places.len() as u64 - 1 + first.weight();
                        let severity = first.severity();
                        lost.add(count, Some(severity), &Spaces::of(first.space()));
                    }
                }
            }
            lost.last = last;
        }
        let last = lost.last;
        holes.extend(lost.hole(epochs, after, last));
        holes
    }

    /// The log gives entries up: of what this reader has not read it keeps what it wants, within
    /// the bound, and sheds the mildest beyond. One that catches up fetches it.
    pub(crate) fn keep(
        &mut self,
        item: &Item,
        bytes_max: usize,
        epochs: &EpochHistory,
        wants: &impl Wants,
    ) {
        if self.catching_up {
            return;
        }
        // It was read.
        let Some(item) = item.behind(self.cursor) else { return };
        self.cursor = item.last();
        let run = match &item.content {
            Content::Events(run) => run,
            Content::Gap(gap) if wants.hole(gap) => return self.keep_all(item, bytes_max, epochs),
            Content::Gap(_) => return,
        };
        for (places, first) in run.groups() {
            let index = item.index + places.start as u64;
            if wants.event(first)
                && let Some(part) = run.slice(places)
            {
                let content = Content::Events(part.detached());
                self.keep_all(Item { index, content }, bytes_max, epochs);
            }
        }
    }

    fn keep_all(&mut self, item: Item, bytes_max: usize, epochs: &EpochHistory) {
        self.kept_bytes += item.len();
        self.kept.push_back(item);
        while self.kept_bytes > bytes_max {
            let Some(mildest) = self.mildest() else { break };
            // The lane that is reserved for FATAL.
            if mildest == Severity::Fatal && self.kept_bytes <= bytes_max + bytes_max / 4 {
                break;
            }
            self.shed_all(mildest, epochs);
        }
    }

    /// Replaces each kept event of a severity by a gap; neighbouring gaps merge.
    pub(crate) fn shed_all(&mut self, severity: Severity, epochs: &EpochHistory) {
        let kept = std::mem::take(&mut self.kept);
        self.kept_bytes = 0;
        for item in kept {
            let Content::Events(run) = &item.content else {
                self.put(item);
                continue;
            };
            for (places, first) in run.groups() {
                let index = item.index + places.start as u64;
                let count = places.len() as u64;
                if first.severity() == severity {
                    self.shed += count;
                    self.note_shed(first.is_traced().then(|| run.slice(places)).flatten());
                    let last = (index + count).before();
                    let gap = Gap {
                        after: epochs.position(index.before()),
                        until: epochs.position(last),
                        reason: GapReason::Shed,
                        count: Some(count - 1 + first.weight()),
                        severity_max: Some(severity),
                        spaces: Spaces::of(first.space()),
                    };
                    self.put(Item { index: last, content: Content::Gap(gap) });
                } else if let Some(part) = run.slice(places) {
                    self.put(Item { index, content: Content::Events(part) });
                }
            }
        }
    }

    fn note_shed(&mut self, run: Option<Run>) {
        if self.shed_traced.len() < SHED_TRACED_MAX {
            self.shed_traced.extend(run);
        }
    }

    /// Traced events that it has lost since the last call.
    pub(crate) fn take_shed_traced(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.shed_traced)
    }

    /// Keeps something behind all else; a hole joins the hole before it.
    fn put(&mut self, item: Item) {
        if let Content::Gap(gap) = &item.content
            && let Some(Item { index, content: Content::Gap(last) }) = self.kept.back_mut()
            && last.reason == gap.reason
            && last.reason == GapReason::Shed
        {
            *index = item.index;
            self.kept_bytes -= last.spaces.len();
            last.spaces = last.spaces.joined(&gap.spaces);
            self.kept_bytes += last.spaces.len();
            last.until = gap.until;
            last.count = last.count.zip(gap.count).map(|(own, further)| own + further);
            last.severity_max = last.severity_max.max(gap.severity_max);
            return;
        }
        self.kept_bytes += item.len();
        self.kept.push_back(item);
    }
}

/// What a reader loses at once.
#[derive(Default)]
struct LostEvents {
    count: u64,
    severity_max: Option<Severity>,
    spaces: Option<Spaces>,
    last: LogIndex,
}

impl LostEvents {
    fn add(&mut self, count: u64, severity: Option<Severity>, spaces: &Spaces) {
        self.count += count;
        self.severity_max = self.severity_max.max(severity);
        let joined =
            self.spaces.as_ref().map_or_else(|| spaces.clone(), |ours| ours.joined(spaces));
        self.spaces = Some(joined);
    }

    /// The gap that reports it; `None` where it is nothing.
    fn hole(self, epochs: &EpochHistory, after: LogIndex, last: LogIndex) -> Option<Item> {
        let Self { count, severity_max, spaces, .. } = self;
        let gap = Gap {
            after: epochs.position(after),
            until: epochs.position(last),
            reason: GapReason::Shed,
            count: Some(count),
            severity_max,
            spaces: spaces.unwrap_or_default(),
        };
        (count > 0).then_some(Item { index: last, content: Content::Gap(gap) })
    }
}

/// The mildest event of an item, if it has any.
fn mildest(item: &Item) -> Option<Severity> {
    match &item.content {
        Content::Events(run) => run.groups().map(|(_, first)| first.severity()).min(),
        Content::Gap(_) => None,
    }
}

/// What a reader has read for one batch.
struct ReadBatch {
    items: Vec<Item>,
    bytes: usize,
    events: usize,
    cut: ReadLimit,
}

impl ReadBatch {
    fn is_full(&self) -> bool {
        self.events >= self.cut.items || self.bytes >= self.cut.bytes
    }

    fn push(&mut self, item: Item) {
        self.bytes += item.len();
        self.events += item.count();
        if let Some(Item { index, content: Content::Events(last) }) = self.items.last_mut()
            && let Content::Events(next) = &item.content
            && *index + last.count() as u64 == item.index
            && let Some(joined) = last.joined(next)
        {
            *last = joined;
        } else {
            self.items.push(item);
        }
    }

    /// Takes an item as far as there is room; up to which index it was read.
    fn add(&mut self, item: Item) -> LogIndex {
        match &item.content {
            Content::Gap(_) if self.is_full() => item.covers_after(),
            Content::Gap(_) => {
                let last = item.index;
                self.push(item);
                last
            }
            Content::Events(run) => self.add_part(item.index, run, 0..run.count()),
        }
    }

    /// Takes some of a run as far as there is room; up to which index it was read.
    fn add_part(&mut self, index: LogIndex, run: &Run, places: Range<usize>) -> LogIndex {
        let start = places.start;
        let (bytes, events) =
            (self.cut.bytes.saturating_sub(self.bytes), self.cut.items.saturating_sub(self.events));
        let fits = run.slice(places).map_or(0, |part| part.fitting(bytes, events));
        if let Some(part) = run.slice(start..start + fits) {
            self.push(Item { index: index + start as u64, content: Content::Events(part) });
        }
        // The first index of anything is 1.
        (index + (start + fits) as u64).before()
    }

    /// Takes what is wanted of a run, asked once for neighbours that no filter can tell apart; up
    /// to which index it was read.
    fn add_groups(&mut self, index: LogIndex, run: &Run, wants: &impl Wants) -> LogIndex {
        let mut read = index.before();
        for (places, first) in run.groups() {
            let last = (index + places.end as u64).before();
            if self.is_full() {
                return read;
            }
            read = if wants.event(first) { self.add_part(index, run, places) } else { last };
            if read < last {
                return read;
            }
        }
        read
    }

    /// The same, asked for each event.
    fn add_wanted(
        &mut self,
        index: LogIndex,
        run: &Run,
        mut wants: impl FnMut(LogIndex, SealedRef<'_>) -> bool,
    ) -> LogIndex {
        let mut read = index.before();
        for (place, event) in run.iter().enumerate() {
            if self.is_full() {
                return read;
            }
            read = index + place as u64;
            if wants(read, event) {
                self.add_part(index, run, place..place + 1);
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::conditions::ConditionLimits;
    use crate::position::Position;
    use crate::testing::sealed_with;

    fn log_of(severities: &[Severity]) -> Log {
        let mut log = Log::new(0.into(), ConditionLimits::default());
        for (at, severity) in severities.iter().enumerate() {
            let index = at as u64 + 1;
            let event = sealed_with(1, index, *severity);
            log.push(Item { index: index.into(), content: Content::Events(event.into()) });
        }
        log
    }

    fn cut(items: usize, until: u64) -> ReadLimit {
        ReadLimit { bytes: usize::MAX, items, until: until.into(), skip_repeated: true }
    }

    #[test]
    fn a_reader_reads_everything_once_in_batches_and_not_behind_the_cut() {
        let log = log_of(&[Severity::Info; 10]);
        let mut reader = Reader::new(2.into());
        let mut read = Vec::new();
        for _ in 0..5 {
            let items = reader.read(&log, cut(3, 8), &Filter::everything());
            read.extend(items.iter().flat_map(|item| item.index.get()..=item.last().get()));
        }
        assert_eq!(read, [3, 4, 5, 6, 7, 8]);
        assert!(reader.is_at(8.into()) && !reader.is_at(9.into()));
        assert!(reader.read(&log, cut(3, 10), &FilterSet::new()).is_empty());
        assert!(reader.is_at(10.into()));
    }

    #[test]
    fn a_slow_reader_loses_the_mildest_events_and_every_loss_is_reported() {
        use Severity::{Error, Fatal, Info, Warning};
        let severities = [Info, Fatal, Info, Warning, Error, Info, Info, Fatal];
        let mut log = log_of(&severities);
        let one = log.after(0.into()).map(|item| item.len()).max().unwrap_or(0);
        let mut reader = Reader::new(0.into());
        while let Some(evicted) = log.evict(8.into()) {
            reader.keep(&evicted.item, 4 * one + 64, &EpochHistory::new(), &Filter::everything());
        }
        let mut got = Vec::new();
        let mut reported = 0;
        for item in reader.read(&log, cut(100, 8), &Filter::everything()) {
            match item.content {
                Content::Events(run) => got.extend(run.iter().map(SealedRef::severity)),
                Content::Gap(gap) => {
                    assert!(gap.severity_max <= Some(Warning));
                    reported += gap.count.expect("the number of lost events is known");
                }
            }
        }
        assert_eq!(got.iter().filter(|severity| **severity == Fatal).count(), 2);
        assert!(got.contains(&Error) && !got.contains(&Info));
        assert_eq!(got.len() as u64 + reported, severities.len() as u64);
        assert_eq!(reader.shed, reported);
        assert_eq!(reader.kept_bytes(), 0);
    }

    #[test]
    fn a_gap_goes_to_the_subscriptions_that_it_can_concern() {
        let gap = Gap {
            after: Position::ZERO,
            until: Position::ZERO,
            reason: GapReason::Shed,
            count: Some(3),
            severity_max: Some(Severity::Warning),
            spaces: Spaces::of("ftb.ib"),
        };
        let unknown = Gap { severity_max: None, spaces: Spaces::ANY, ..gap.clone() };
        let mut log = Log::new(0.into(), ConditionLimits::default());
        log.push(Item { index: 1.into(), content: Content::Gap(gap) });
        log.push(Item { index: 2.into(), content: Content::Gap(unknown) });
        let reported = |text: &str| {
            let filter = Filter::parse(text).expect("a filter");
            let mut reader = Reader::new(0.into());
            let items = reader.read(&log, cut(10, 2), &filter);
            assert!(reader.is_at(2.into()));
            items.iter().map(|item| item.index.get()).collect::<Vec<u64>>()
        };
        assert_eq!(reported("severity>=error"), [2]);
        assert_eq!(reported("severity>=warning"), [1, 2]);
        assert_eq!(reported("event_space=ftb.x"), [2]);
        assert_eq!(reported("event_space=ftb.x|ftb.ib"), [1, 2]);
        assert_eq!(reported("event_space=ftb.*"), [1, 2]);
        let mut slow = Reader::new(0.into());
        let filter = Filter::parse("severity=fatal").expect("a filter");
        while let Some(evicted) = log.evict(2.into()) {
            slow.keep(&evicted.item, 1 << 20, &EpochHistory::new(), &filter);
        }
        assert_eq!(slow.kept.len(), 1);
    }
}
