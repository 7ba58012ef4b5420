//! Events that came in together and stay together: one buffer, one index of what lies where.
//!
//! An agent takes events in by the message and sends them on by the message. In between it need not
//! touch each of them: a [`Run`] is a stretch of such a batch, cut and shared without copying
//! bytes; neighbours that no filter can tell apart are asked about once ([`Run::groups`]), and
//! neighbours whose ids follow each other are noted at once ([`Run::stretches`]); and where the
//! buffer is a list as the wire has it, a stretch of it goes out as it lies ([`Run::list`]). Where
//! events that are alike lie in a row there, one entry of the index stands for all of them.
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

/// A time in a row of events.
const TIME_BYTES: u64 = 8;

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
    /// Which events lie where, in order.
    rows: Vec<Row>,
    count: u32,
    /// Bytes of all its events.
    sum: u32,
    /// What neighbours have in common, once.
    heads: Vec<Common>,
    /// Where neighbours that no filter can tell apart end: places, rising, the last is the number of
    /// events.
    groups: Vec<u32>,
    /// Where neighbours of one publisher whose sequences follow each other end.
    stretches: Vec<u32>,
    /// Where neighbours end that lie in the buffer as a list has them: each right behind the one
    /// before it, with what a list has in between. Empty where an event has something else before it.
    lists: Vec<u32>,
}

/// One event of a batch, or several as they lie in a list: each right behind the one before it, as
/// long, with the next number and the same head.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The number of the first.
    seq: u64,
    /// The time of the first; the others have theirs where [`Common::time_at`] says.
    time_ns: u64,
    /// The place of the first in its batch.
    place: u32,
    count: u32,
    /// Where the first lies.
    start: u32,
    /// How long each is.
    len: u32,
    /// Bytes of all events of the batch before the first.
    before: u32,
    /// The place of their head.
    head: u32,
}

/// What neighbours have in common.
#[derive(Clone, Copy, Debug)]
struct Common {
    /// Its spans count from the event's own first byte. Number and time are those of the first.
    head: Head,
    /// Where each has its time, as [`Alike::time_at`]; 0 where that is not known.
    time_at: u32,
}

impl Row {
    /// From one to the next.
    fn step(&self) -> u64 {
        u64::from(self.len) + Listed::of(self.len as usize).bytes().len() as u64
    }

    /// Where the last one ends.
    fn end(&self) -> u64 {
        let others = u64::from(self.count - 1) * self.step();
        u64::from(self.start) + others + u64::from(self.len)
    }

    /// Where an event of it lies, by its place in the batch.
    fn at(&self, place: u32) -> Range<usize> {
        let before = match (place - self.place) as usize {
            0 => 0,
            others => others * self.step() as usize,
        };
        let start = self.start as usize + before;
        start..start + self.len as usize
    }

    /// Bytes of all events of the batch before that place, which lies in it or right behind it.
    fn sum_before(&self, place: u32) -> usize {
        self.before as usize + (place - self.place) as usize * self.len as usize
    }
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
    rows: Vec<Row>,
    /// How many events lie in rows.
    count: u32,
    /// Their bytes.
    sum: u32,
    /// What would continue the last row; `None` where nothing can.
    next: Option<Next>,
    /// So many have continued it since it was looked at last.
    more: u32,
    heads: Vec<Common>,
    /// Places of events that a filter may be able to tell from the one before.
    unlike: Vec<u32>,
}

/// The event that would continue a row.
#[derive(Debug)]
struct Next {
    seq: u64,
    at: Span,
    /// From one event of the row to the next.
    step: u32,
    /// 0: wherever it has its time.
    time_at: u32,
}

/// An event that differs from the one before in nothing that its head tells but number and time: every
/// text of it lies in the same place and is the same.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// Its number.
    pub seq: u64,
    /// Its time, Unix nanoseconds.
    pub time_ns: u64,
    /// Where it has that, from its first byte on: eight bytes, the lowest first.
    pub time_at: u32,
}

impl RunBuilder {
    /// The next event: its head, whose spans count from its first byte, and where its bytes will lie
    /// in the buffer.
    pub fn push(&mut self, head: Head, at: Span) {
        let (seq, time_ns) = (head.id.seq, head.time_ns);
        let same = self.heads.last().is_some_and(|last| last.head.of(seq, time_ns) == head);
        if !same {
            self.heads.push(Common { head, time_at: 0 });
        }
        let place = self.row(seq, time_ns, at);
        self.unlike.push(place);
    }

    /// The next event, one like that before it, of which there is one. Where there is room for just
    /// that between the two, what a list has there must lie there.
    #[inline]
    pub fn push_like(&mut self, event: Alike, at: Span) {
        debug_assert!(!self.heads.is_empty(), "there is none before");
        if let Some(next) = &mut self.next
            && (next.seq, next.at, next.time_at) == (event.seq, at, event.time_at)
            && let Some(seq) = next.seq.checked_add(1)
        {
            next.seq = seq;
            next.at.start = next.at.start.saturating_add(next.step);
            self.more += 1;
        } else {
            self.push_unusual(event, at);
        }
    }

    /// One that begins a row, or is the second of it.
    fn push_unusual(&mut self, event: Alike, at: Span) {
        let Alike { seq, time_ns, time_at } = event;
        let second = |next: &Next| (next.seq, next.at, next.time_at) == (seq, at, 0);
        if self.next.as_ref().is_some_and(second) {
            self.push_following(1, time_at);
        } else {
            self.row(seq, time_ns, at);
        }
    }

    /// So many events like the last one, which was no fold: as long, with the numbers that follow, right
    /// behind it as a list has them. All of that head have their times at `time_at`, as
    /// [`Alike::time_at`].
    pub fn push_following(&mut self, count: u32, time_at: u32) {
        let (Some(next), Some(common)) = (&mut self.next, self.heads.last_mut()) else {
            debug_assert!(false, "nothing follows a fold, or the highest number");
            return;
        };
        debug_assert!(common.time_at == 0 || common.time_at == time_at, "it lies where it lay");
        (common.time_at, next.time_at) = (time_at, time_at);
        self.more += count;
        next.at.start = next.at.start.saturating_add(count.saturating_mul(next.step));
        match next.seq.checked_add(count.into()) {
            Some(seq) => next.seq = seq,
            None => self.next = None,
        }
    }

    /// Begins a row; gives the place of its event.
    fn row(&mut self, seq: u64, time_ns: u64, at: Span) -> u32 {
        self.end_row();
        let Span { start, len } = at;
        let (place, before) = (self.count, self.sum);
        let head = (self.heads.len() as u32).saturating_sub(1);
        let row = Row { seq, time_ns, place, count: 1, start, len, before, head };
        let common = self.heads.last().filter(|common| common.head.covers == 0);
        self.next = common.zip(seq.checked_add(1)).map(|(common, seq)| {
            let step = u32::try_from(row.step()).unwrap_or(u32::MAX);
            let at = Span { start: start.saturating_add(step), len };
            Next { seq, at, step, time_at: common.time_at }
        });
        self.rows.push(row);
        self.count += 1;
        self.sum = self.sum.saturating_add(len);
        place
    }

    /// Counts what has continued the last row.
    fn end_row(&mut self) {
        let more = std::mem::take(&mut self.more);
        let Some(row) = self.rows.last_mut().filter(|_| more > 0) else { return };
        row.count += more;
        self.count += more;
        self.sum = self.sum.saturating_add(row.len.saturating_mul(more));
    }

    /// Binds them to their buffer; `None` without any event. Texts were checked by whoever found
    /// them: here it is made sure that they lie within their event, and the event in the buffer.
    ///
    /// # Errors
    /// [`SpanError`] names what does not; all must be refused.
    pub fn finish(mut self, bytes: Bytes) -> Result<Option<Run>, SpanError> {
        self.end_row();
        // How long an event is at least that has all texts of its head.
        let needs: Vec<u64> = self.heads.iter().map(|common| common.head.texts_end()).collect();
        for row in &self.rows {
            let (len, head) = (u64::from(row.len), row.head as usize);
            let (Some(common), Some(need)) = (self.heads.get(head), needs.get(head)) else {
                return Err(SpanError("content"));
            };
            if row.end() > bytes.len() as u64 {
                return Err(SpanError("content"));
            }
            if row.count > 1 && u64::from(common.time_at) + TIME_BYTES > len {
                return Err(SpanError("time"));
            }
            if *need > len {
                let mut outside =
                    common.head.texts().into_iter().filter(|(_, span)| span.end() > len);
                return Err(SpanError(outside.next().map_or("content", |(field, _)| field)));
            }
        }
        Ok(Run::of(bytes, self))
    }
}

impl Run {
    fn of(bytes: Bytes, builder: RunBuilder) -> Option<Self> {
        let RunBuilder { mut rows, count, heads, unlike, sum, .. } = builder;
        // What is kept keeps no room for more.
        rows.shrink_to_fit();
        if count == 0 {
            return None;
        }
        let (groups, stretches, lists) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch { bytes, rows, count, sum, heads, groups, stretches, lists };
        batch.find_lists();
        for place in unlike.into_iter().filter(|place| *place > 0) {
            if !batch.view(place).routes_like(batch.view(place - 1)) {
                batch.groups.push(place);
            }
        }
        batch.find_stretches();
        batch.groups.push(count);
        batch.stretches.push(count);
        Some(Self { batch: Arc::new(batch), from: 0, to: count })
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
        builder.end_row();
        Self::of(bytes.freeze(), builder)
    }

    /// How many events.
    pub fn count(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Their size in bytes, the measure of every queue that holds them.
    pub fn len(&self) -> usize {
        self.batch.sum_before(self.to) - self.batch.sum_before(self.from)
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
        let at = |place: usize| self.batch.at(self.from + place as u32);
        let parts = self.parts(&self.batch.lists).map(|part| {
            let (first, last) = (at(part.start), at(part.end - 1));
            let begin = first.start - Listed::of(first.len()).bytes().len();
            self.batch.bytes.slice(begin..last.end)
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
        let before = self.batch.sum_before(self.from);
        let sum = |count: usize| self.batch.sum_before(self.from + count as u32) - before;
        if sum(most) < bytes_max {
            return most;
        }
        // So many are less, and so many are enough.
        let (mut less, mut enough) = (0, most);
        while enough - less > 1 {
            let middle = less.midpoint(enough);
            if sum(middle) < bytes_max {
                less = middle;
            } else {
                enough = middle;
            }
        }
        enough
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
}

impl Batch {
    /// Looks whether the buffer is a list, or several with something else in between.
    fn find_lists(&mut self) {
        let mut end = 0;
        for row in &self.rows {
            let (start, listed) = (row.start as usize, Listed::of(row.len as usize));
            let is_listed = |at: usize| {
                self.bytes.get(..at).is_some_and(|before| before.ends_with(listed.bytes()))
            };
            let others = row.place + 1..row.place + row.count;
            debug_assert!(others.into_iter().all(|place| is_listed(row.at(place).start)));
            if !is_listed(start) {
                self.lists.clear();
                return;
            }
            if row.place > 0 && (start - listed.bytes().len()) as u64 != end {
                self.lists.push(row.place);
            }
            end = row.end();
        }
        self.lists.push(self.count);
    }

    /// Looks where sequences do not follow.
    fn find_stretches(&mut self) {
        for (before, this) in self.rows.iter().zip(&self.rows[1..]) {
            let follows = before.seq.checked_add(before.count.into()) == Some(this.seq);
            let [one, other] = [before, this].map(|row| &self.heads[row.head as usize].head);
            let alike = one.id.publisher == other.id.publisher && other.covers == 0;
            if !(follows && alike && one.covers == 0) {
                self.stretches.push(this.place);
            }
        }
    }

    /// The row of a place. There is one for each.
    fn row(&self, place: u32) -> &Row {
        // Mostly there is but one.
        match self.rows.first() {
            Some(first) if place < first.count => first,
            _ => &self.rows[self.rows.partition_point(|row| row.place <= place) - 1],
        }
    }

    /// Where an event lies.
    fn at(&self, place: u32) -> Range<usize> {
        self.row(place).at(place)
    }

    /// Bytes of all events before a place, or of all where there is none at it.
    fn sum_before(&self, place: u32) -> usize {
        match place {
            0 => 0,
            place if place >= self.count => self.sum as usize,
            place => self.row(place).sum_before(place),
        }
    }

    fn view(&self, place: u32) -> SealedRef<'_> {
        let row = self.row(place);
        let Common { head, time_at } = &self.heads[row.head as usize];
        let bytes = &self.bytes[row.at(place)];
        let behind = place - row.place;
        let time = || bytes.get(*time_at as usize..).and_then(|time| time.first_chunk());
        let time_ns = match behind {
            0 => row.time_ns,
            _ => time().map_or(0, |time| u64::from_le_bytes(*time)),
        };
        SealedRef::of(head, row.seq + u64::from(behind), time_ns, bytes)
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
        let row = Row { seq, time_ns, place: 0, count: 1, start: 0, len, before: 0, head: 0 };
        let batch = Batch {
            bytes: sealed.into_bytes(),
            rows: vec![row],
            count: 1,
            sum: len,
            heads: vec![Common { head, time_at: 0 }],
            groups: vec![1],
            stretches: vec![1],
            lists: Vec::new(),
        };
        Self { batch: Arc::new(batch), from: 0, to: 1 }
    }
}

#[cfg(test)]
mod tests;
