//! Events that came in together and stay together: one buffer, one index of what lies where.
//!
//! An agent takes events in by the message and sends them on by the message. In between it need not
//! touch each of them: a [`Run`] is a stretch of such a batch, cut and shared without copying
//! bytes; neighbours that no filter can tell apart are asked about once ([`Run::groups`]), and
//! neighbours whose ids follow each other are noted at once ([`Run::stretches`]); and where the
//! buffer is a list as the wire has it, a stretch of it goes out as it lies ([`Run::list`]).
//!
//! Responsible for: that view of many events as one value. Not responsible for: what a position or
//! a queue is; what the bytes mean.

use crate::ident::{EventId, PublisherId};
use crate::sealed::{Head, Sealed, SealedRef, Span, SpanError};
use bytes::{Bytes, BytesMut};
use core::ops::Range;
use std::sync::Arc;

/// A run whose own bytes are less than this part of its batch's does not keep the batch alive where
/// it is kept for long ([`Run::detached`]).
const PINNED_PART_MIN: usize = 4;

/// What an event of a list begins with: field 2 of a message, bytes. The items of all lists of
/// `ftb-proto` have their events there.
pub const LISTED_KEY: u8 = 2 << 3 | 2;

/// What stands before an event in a list: [`LISTED_KEY`], and the event's length as a varint.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    bytes: [u8; 6],
    len: u8,
}

impl Listed {
    /// For an event of that length; longer ones than 4 GiB there are none.
    pub fn of(event_len: usize) -> Self {
        let mut rest = u32::try_from(event_len).unwrap_or(u32::MAX);
        let mut listed = Self { bytes: [LISTED_KEY, 0, 0, 0, 0, 0], len: 2 };
        for byte in &mut listed.bytes[1..] {
            *byte = rest as u8 & 0x7f;
            rest >>= 7;
            if rest == 0 {
                break;
            }
            *byte |= 0x80;
            listed.len += 1;
        }
        listed
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Many events in one buffer. Made once, never changed.
#[derive(Debug)]
struct Batch {
    bytes: Bytes,
    entries: Vec<Entry>,
    /// What neighbours have in common, once: heads whose spans count from the event's own first byte.
    /// Number and time are those of the first.
    heads: Vec<Head>,
    /// Where neighbours that no filter can tell apart end: places, rising, the last is the number of
    /// events.
    groups: Vec<u32>,
    /// Where neighbours of one publisher whose sequences follow each other end.
    stretches: Vec<u32>,
    /// Where neighbours end that lie in the buffer as a list has them: each right behind the one
    /// before it, with what a list has in between. Empty where an event has something else before it.
    lists: Vec<u32>,
}

/// One event of a batch: what is its own. Small, since there are many.
#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    time_ns: u64,
    start: u32,
    len: u32,
    /// Bytes of all events of the batch up to this one, itself included.
    sum: u32,
    /// The place of its head.
    head: u32,
}

/// Some neighbours of a batch, at least one. Cloning counts one reference, whatever their number.
#[derive(Clone, Debug)]
pub struct Run {
    batch: Arc<Batch>,
    from: u32,
    to: u32,
}

/// Neighbours of one publisher whose sequences follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Place of the first in its run.
    pub at: usize,
    /// Whose.
    pub publisher: PublisherId,
    /// The sequence of the first.
    pub first: u64,
    /// The sequence of the last.
    pub last: u64,
    /// It is one fold, which stands for so many sequences right before its own as well; else 0.
    pub covers: u32,
}

/// Collects what lies where in a buffer, for a [`Run`].
#[derive(Debug, Default)]
pub struct RunBuilder {
    entries: Vec<Entry>,
    heads: Vec<Head>,
    /// Places of events that a filter may be able to tell from the one before.
    unlike: Vec<u32>,
    sum: u32,
}

impl RunBuilder {
    /// Nothing yet, with room for that many events.
    pub fn with_capacity(events: usize) -> Self {
        Self { entries: Vec::with_capacity(events), ..Self::default() }
    }

    /// The next event: its head, whose spans count from its first byte, and where its bytes will lie
    /// in the buffer.
    pub fn push(&mut self, head: Head, at: Span) {
        self.unlike.push(self.entries.len() as u32);
        let (seq, time_ns) = (head.id.seq, head.time_ns);
        let same = self.heads.last().is_some_and(|last| last.of(seq, time_ns) == head);
        if !same {
            self.heads.push(head);
        }
        self.entry(seq, time_ns, at);
    }

    /// The next event, one that differs from the one before in nothing that its head tells but
    /// number and time: every text of it lies in the same place and is the same. There is one before.
    pub fn push_like(&mut self, seq: u64, time_ns: u64, at: Span) {
        debug_assert!(!self.heads.is_empty(), "there is none before");
        self.entry(seq, time_ns, at);
    }

    fn entry(&mut self, seq: u64, time_ns: u64, at: Span) {
        self.sum = self.sum.saturating_add(at.len);
        let head = (self.heads.len() as u32).saturating_sub(1);
        let Span { start, len } = at;
        self.entries.push(Entry { seq, time_ns, start, len, sum: self.sum, head });
    }

    /// How many events it has.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// So many events are likely to come yet.
    pub fn expect(&mut self, events: usize) {
        self.entries.reserve(events);
    }

    /// Binds them to their buffer; `None` without any event. Texts were checked by whoever found
    /// them: here it is made sure that they lie within their event, and the event in the buffer.
    ///
    /// # Errors
    /// [`SpanError`] names what does not; all must be refused.
    pub fn finish(self, bytes: Bytes) -> Result<Option<Run>, SpanError> {
        // How long an event is at least that has all texts of its head.
        let needs: Vec<u64> = self.heads.iter().map(Head::texts_end).collect();
        for entry in &self.entries {
            let end = u64::from(entry.start) + u64::from(entry.len);
            if end > bytes.len() as u64 {
                return Err(SpanError("content"));
            }
            let need = needs.get(entry.head as usize).copied().unwrap_or(u64::MAX);
            if need > u64::from(entry.len) {
                let texts = self.heads.get(entry.head as usize).map(Head::texts);
                let outside = |span: &Span| span.end() > u64::from(entry.len);
                let field = texts.into_iter().flatten().find(|(_, span)| outside(span));
                return Err(SpanError(field.map_or("content", |(field, _)| field)));
            }
        }
        Ok(Run::of(bytes, self))
    }
}

impl Run {
    fn of(bytes: Bytes, builder: RunBuilder) -> Option<Self> {
        let RunBuilder { mut entries, heads, unlike, .. } = builder;
        if entries.capacity() > 2 * entries.len() {
            // More were expected: what is kept keeps no room for them.
            entries.shrink_to_fit();
        }
        let to = u32::try_from(entries.len()).ok().filter(|count| *count > 0)?;
        let (groups, stretches, lists) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch { bytes, entries, heads, groups, stretches, lists };
        batch.find_lists();
        for place in unlike.into_iter().filter(|place| *place > 0) {
            if !batch.view(place).routes_like(batch.view(place - 1)) {
                batch.groups.push(place);
            }
        }
        batch.find_stretches();
        batch.groups.push(to);
        batch.stretches.push(to);
        Some(Self { batch: Arc::new(batch), from: 0, to })
    }

    /// Events in one buffer of their own; `None` without any.
    pub fn collect<'a>(events: impl IntoIterator<Item = SealedRef<'a>>) -> Option<Self> {
        let mut bytes = BytesMut::new();
        let mut builder = RunBuilder::default();
        for event in events {
            let len = u32::try_from(event.bytes().len()).ok()?;
            bytes.extend_from_slice(Listed::of(event.bytes().len()).bytes());
            let start = u32::try_from(bytes.len()).ok()?;
            bytes.extend_from_slice(event.bytes());
            builder.push(event.head(), Span { start, len });
        }
        Self::of(bytes.freeze(), builder)
    }

    /// How many events.
    pub fn count(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Their size in bytes, the measure of every queue that holds them.
    pub fn len(&self) -> usize {
        self.sum_before(self.to) - self.sum_before(self.from)
    }

    /// Never: a run has at least one event.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// The event at a place below [`Run::count`]; `None` behind.
    pub fn get(&self, place: usize) -> Option<SealedRef<'_>> {
        (place < self.count()).then(|| self.batch.view(self.from + place as u32))
    }

    /// The first event.
    pub fn first(&self) -> SealedRef<'_> {
        self.batch.view(self.from)
    }

    /// The events, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SealedRef<'_>> + ExactSizeIterator {
        (self.from..self.to).map(|place| self.batch.view(place))
    }

    /// Neighbours that no filter can tell apart: their places, and the first of them.
    pub fn groups(&self) -> impl Iterator<Item = (Range<usize>, SealedRef<'_>)> {
        self.parts(&self.batch.groups).map(|part| {
            let first = self.batch.view(self.from + part.start as u32);
            (part, first)
        })
    }

    /// Neighbours of one publisher whose sequences follow each other.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> {
        self.parts(&self.batch.stretches).map(|part| {
            let head = self.batch.view(self.from + part.start as u32).head();
            let (first, covers) = (head.id.seq, head.covers);
            let last = first + (part.end - part.start - 1) as u64;
            Stretch { at: part.start, publisher: head.id.publisher, first, last, covers }
        })
    }

    /// The events as a list: [`Listed`] and the event's bytes for each, in pieces that follow each
    /// other. Slices of the batch where it lies there as a list, which it nearly always does; else a
    /// copy.
    pub fn list(&self) -> Vec<Bytes> {
        if self.batch.lists.is_empty() {
            let mut bytes = BytesMut::with_capacity(self.len() + 6 * self.count());
            for event in self.iter() {
                bytes.extend_from_slice(Listed::of(event.bytes().len()).bytes());
                bytes.extend_from_slice(event.bytes());
            }
            return vec![bytes.freeze()];
        }
        let entry = |place: usize| &self.batch.entries[self.from as usize + place];
        let parts = self.parts(&self.batch.lists).map(|part| {
            let (first, last) = (entry(part.start), entry(part.end - 1));
            let begin = first.start as usize - Listed::of(first.len as usize).bytes().len();
            self.batch.bytes.slice(begin..(last.start + last.len) as usize)
        });
        parts.collect()
    }

    /// Whether an event is in it, by itself or in a fold.
    pub fn holds(&self, id: EventId) -> bool {
        self.stretches().any(|stretch| {
            let first = stretch.first.saturating_sub(stretch.covers.into());
            stretch.publisher == id.publisher && (first..=stretch.last).contains(&id.seq)
        })
    }

    /// Cuts this run where the batch is cut; places count from the run's first event.
    fn parts<'a>(&'a self, ends: &'a [u32]) -> impl Iterator<Item = Range<usize>> + 'a {
        let begin = ends.partition_point(|end| *end <= self.from);
        let mut start = self.from;
        ends[begin..].iter().map_while(move |end| {
            let (from, end) = (start, (*end).min(self.to));
            start = end;
            (from < end).then(|| (from - self.from) as usize..(end - self.from) as usize)
        })
    }

    /// Some of them; `None` where that is none.
    pub fn slice(&self, places: Range<usize>) -> Option<Self> {
        let to = places.end.min(self.count());
        (places.start < to).then(|| Self {
            batch: Arc::clone(&self.batch),
            from: self.from + places.start as u32,
            to: self.from + to as u32,
        })
    }

    /// How many of the first fit: one is added while there are less than `bytes_max` bytes and less
    /// than `events_max` events.
    pub fn fitting(&self, bytes_max: usize, events_max: usize) -> usize {
        if bytes_max == 0 {
            return 0;
        }
        let most = self.count().min(events_max);
        let before = self.sum_before(self.from);
        let entries = &self.batch.entries[self.from as usize..self.from as usize + most];
        let within = entries.partition_point(|entry| entry.sum as usize - before < bytes_max);
        (within + 1).min(most)
    }

    /// What is left without the events at these places, which rise.
    pub fn without(&self, places: &[usize]) -> Vec<Self> {
        let mut parts = Vec::with_capacity(places.len() + 1);
        let mut start = 0;
        for place in places {
            parts.extend(self.slice(start..*place));
            start = place + 1;
        }
        parts.extend(self.slice(start..self.count()));
        parts
    }

    /// Both as one, where the other begins in the same batch where this ends.
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let neighbours = Arc::ptr_eq(&self.batch, &next.batch) && self.to == next.from;
        neighbours.then(|| Self { batch: Arc::clone(&self.batch), from: self.from, to: next.to })
    }

    /// The same events for who keeps them for long: in bytes of their own where they would pin much
    /// more than themselves.
    #[must_use]
    pub fn detached(self) -> Self {
        if self.len() * PINNED_PART_MIN >= self.batch.bytes.len() {
            return self;
        }
        Self::collect(self.iter()).unwrap_or(self)
    }

    fn sum_before(&self, place: u32) -> usize {
        let before = place.checked_sub(1).and_then(|last| self.batch.entries.get(last as usize));
        before.map_or(0, |entry| entry.sum as usize)
    }
}

impl Batch {
    /// Looks whether the buffer is a list, or several with something else in between.
    fn find_lists(&mut self) {
        let mut end = 0;
        for (place, entry) in (0_u32..).zip(&self.entries) {
            let (start, listed) = (entry.start as usize, Listed::of(entry.len as usize));
            let before = self.bytes.get(..start).unwrap_or_default();
            if !before.ends_with(listed.bytes()) {
                self.lists.clear();
                return;
            }
            if place > 0 && start - listed.bytes().len() != end {
                self.lists.push(place);
            }
            end = start + entry.len as usize;
        }
        self.lists.extend(u32::try_from(self.entries.len()));
    }

    /// Looks where sequences do not follow.
    fn find_stretches(&mut self) {
        let neighbours = self.entries.iter().zip(&self.entries[1..]);
        for (place, (before, this)) in (1..).zip(neighbours) {
            let follows = before.seq.checked_add(1) == Some(this.seq);
            let [one, other] = [before, this].map(|entry| &self.heads[entry.head as usize]);
            let alike = one.id.publisher == other.id.publisher && other.covers == 0;
            if !(follows && alike && one.covers == 0) {
                self.stretches.push(place);
            }
        }
    }

    fn view(&self, place: u32) -> SealedRef<'_> {
        let entry = &self.entries[place as usize];
        let start = entry.start as usize;
        let bytes = &self.bytes[start..start + entry.len as usize];
        SealedRef::of(&self.heads[entry.head as usize], entry.seq, entry.time_ns, bytes)
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Run {}

impl From<Sealed> for Run {
    fn from(sealed: Sealed) -> Self {
        let head = *sealed.head();
        let len = u32::try_from(sealed.len()).unwrap_or(u32::MAX);
        let (seq, time_ns) = (head.id.seq, head.time_ns);
        let batch = Batch {
            bytes: sealed.into_bytes(),
            entries: vec![Entry { seq, time_ns, start: 0, len, sum: len, head: 0 }],
            heads: vec![head],
            groups: vec![1],
            stretches: vec![1],
            lists: Vec::new(),
        };
        Self { batch: Arc::new(batch), from: 0, to: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::testing::sealed_with;
    use crate::severity::Severity;

    fn run() -> Run {
        use Severity::{Error, Info};
        let events =
            [(1, 1, Info), (1, 2, Info), (1, 3, Error), (2, 4, Error), (2, 6, Error), (2, 7, Info)];
        let events = events.map(|(token, seq, severity)| sealed_with(token, seq, severity));
        Run::collect(events.iter().map(Sealed::as_ref)).expect("six events")
    }

    #[test]
    fn a_run_is_cut_into_what_filters_can_tell_apart_and_ids_that_follow() {
        let run = run();
        let groups = |run: &Run| run.groups().map(|(places, _)| places).collect::<Vec<_>>();
        assert_eq!(groups(&run), [0..2, 2..5, 5..6]);
        let stretches = |run: &Run| {
            run.stretches().map(|s| (s.at, s.publisher.token, s.first, s.last)).collect::<Vec<_>>()
        };
        assert_eq!(stretches(&run), [(0, 1, 1, 3), (3, 2, 4, 4), (4, 2, 6, 7)]);
        let part = run.slice(1..5).expect("four events");
        assert_eq!(groups(&part), [0..1, 1..4]);
        assert_eq!(stretches(&part), [(0, 1, 2, 3), (2, 2, 4, 4), (3, 2, 6, 6)]);
        assert_eq!(part.first().id().seq, 2);
        assert!(run.slice(3..3).is_none());
        let seqs = |run: &Run| run.iter().map(|event| event.id().seq).collect::<Vec<_>>();
        let left: Vec<Vec<u64>> = run.without(&[0, 3, 4]).iter().map(seqs).collect();
        assert_eq!(left, [vec![2, 3], vec![7]]);
    }

    #[test]
    fn sizes_add_up_however_it_is_cut() {
        let run = run();
        let one = run.first().bytes().len();
        assert_eq!((run.len(), run.count()), (6 * one, 6));
        let (front, back) = (run.slice(0..2), run.slice(2..9));
        let (front, back) = (front.expect("two"), back.expect("four"));
        assert_eq!(front.len() + back.len(), run.len());
        assert_eq!(front.joined(&back), Some(run.clone()));
        assert_eq!(back.joined(&front), None);
        assert_eq!(run.fitting(1, 9), 1);
        assert_eq!(run.fitting(2 * one, 9), 2);
        assert_eq!(run.fitting(2 * one + 1, 9), 3);
        assert_eq!(back.fitting(usize::MAX, 3), 3);
        assert_eq!(back.fitting(usize::MAX, 9), 4);
        assert_eq!(run.fitting(0, 9), 0);
    }

    #[test]
    fn what_is_kept_long_does_not_pin_what_it_came_with() {
        let run = run();
        let one = run.slice(5..6).expect("one event");
        let own = one.clone().detached();
        assert_eq!(own, one);
        assert_eq!(own.batch.bytes.len(), own.len() + Listed::of(own.len()).bytes().len());
        assert!(Arc::ptr_eq(&run.clone().detached().batch, &run.batch));
    }

    fn listed(run: &Run) -> Vec<u8> {
        let event = |event: SealedRef<'_>| {
            [Listed::of(event.bytes().len()).bytes(), event.bytes()].concat()
        };
        run.iter().flat_map(event).collect()
    }

    #[test]
    fn a_run_is_sent_as_it_lies_where_it_lies_as_a_list() {
        let run = run();
        let whole = run.batch.bytes.as_ptr_range();
        for places in [0..6, 2..5, 5..6] {
            let part = run.slice(places).expect("some");
            let list = part.list();
            assert_eq!(list.len(), 1);
            assert!(whole.contains(&list[0].as_ptr()), "it was copied");
            assert_eq!(list.concat(), listed(&part));
        }
        // Alone in bytes of its own, as a single event comes.
        let one: Run = sealed_with(1, 1, Severity::Info).into();
        assert_eq!(one.list().concat(), listed(&one));
        // Two lists with something else in between, as two items of a frame lie.
        let (front, back) = (run.slice(0..2).expect("two"), run.slice(2..4).expect("two"));
        let (mut bytes, mut builder) = (Vec::new(), RunBuilder::default());
        for part in [&front, &back] {
            bytes.extend_from_slice(b"head");
            for event in part.iter() {
                let len = event.bytes().len();
                bytes.extend_from_slice(Listed::of(len).bytes());
                let at = Span { start: bytes.len() as u32, len: len as u32 };
                bytes.extend_from_slice(event.bytes());
                builder.push(event.head(), at);
            }
        }
        let both = builder.finish(bytes.into()).expect("good spans").expect("four events");
        assert_eq!(both.list().len(), 2);
        assert_eq!(both.list().concat(), listed(&run.slice(0..4).expect("four")));
        assert_eq!(both.slice(1..3).map(|part| part.list().len()), Some(2));
        assert_eq!(both.slice(2..4).map(|part| part.list().len()), Some(1));
    }

    #[test]
    fn what_stands_before_an_event_of_a_list_is_as_protobuf_writes_it() {
        for (len, expected) in [
            (0, vec![0x12, 0]),
            (127, vec![0x12, 127]),
            (128, vec![0x12, 0x80, 1]),
            (300, vec![0x12, 0xac, 2]),
            (1 << 21, vec![0x12, 0x80, 0x80, 0x80, 1]),
            (u32::MAX as usize, vec![0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            assert_eq!(Listed::of(len).bytes(), expected, "{len}");
        }
    }

    #[test]
    fn what_neighbours_have_in_common_is_kept_once_and_seen_in_each() {
        let run = run();
        assert_eq!(run.batch.heads.len(), 4);
        let events: Vec<Sealed> = run.iter().map(SealedRef::to_sealed).collect();
        let (mut bytes, mut short) = (Vec::new(), RunBuilder::default());
        for (place, event) in events.iter().take(2).enumerate() {
            let at = Span { start: bytes.len() as u32, len: event.len() as u32 };
            bytes.extend_from_slice(event.bytes());
            let head = *event.head();
            match place {
                0 => short.push(head, at),
                _ => short.push_like(head.id.seq, head.time_ns, at),
            }
        }
        let short = short.finish(bytes.into()).expect("good spans").expect("two events");
        assert_eq!(short, run.slice(0..2).expect("two"));
        assert_eq!((short.batch.heads.len(), short.groups().count()), (1, 1));
        assert_eq!(
            short.stretches().collect::<Vec<_>>(),
            run.slice(0..2).expect("two").stretches().collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_lies_outside_the_buffer_is_refused() {
        let event = sealed_with(1, 1, Severity::Info);
        let len = u32::try_from(event.len()).expect("small");
        let finish = |head: Head, at: Span| {
            let mut builder = RunBuilder::with_capacity(1);
            builder.push(head, at);
            builder.finish(event.bytes().clone()).map(|run| run.map(|run| run.count()))
        };
        let head = *event.head();
        assert_eq!(finish(head, Span { start: 0, len }), Ok(Some(1)));
        assert_eq!(finish(head, Span { start: 1, len }), Err(SpanError("content")));
        assert_eq!(finish(head, Span { start: 0, len: 14 }), Err(SpanError("host")));
        let mut builder = RunBuilder::default();
        builder.push(head, Span { start: 0, len });
        builder.push_like(2, 0, Span { start: 0, len: 14 });
        assert_eq!(builder.finish(event.bytes().clone()), Err(SpanError("host")));
        assert_eq!(RunBuilder::default().finish(Bytes::new()), Ok(None));
    }
}
