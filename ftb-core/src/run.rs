//! Events that came in together and stay together: one buffer, one index of what lies where.
//!
//! An agent takes events in by the message and sends them on by the message. In between it need not
//! touch each of them: a [`Run`] is a stretch of such a batch, cut and shared without copying
//! bytes; neighbours that no filter can tell apart are asked about once ([`Run::groups`]), and
//! neighbours whose ids follow each other are noted at once ([`Run::stretches`]); and where the
//! buffer is a list as the wire has it, a stretch of it goes out as it lies ([`Run::portions`]).
//! Where events that are alike lie in a row there, one entry of the index stands for all of them;
//! and mostly only the first of them lies there whole, the others told by what is their own
//! ([`crate::own`]).
//!
//! Responsible for: that view of many events as one value. Not responsible for: what a position or
//! a queue is; what the bytes mean.

use crate::ident::{EventId, PublisherId};
use crate::own::OwnParts;
use crate::sealed::{Head, Own, Sealed, SealedRef, Span};
use bytes::{Bytes, BytesMut};
use core::ops::Range;
use std::sync::Arc;

mod builder;
pub use builder::{Alike, RunBuilder};

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
    /// Which events lie where, in order.
    rows: Vec<Row>,
    count: u32,
    /// Bytes of all its events.
    sum: u32,
    /// What neighbours have in common, once.
    heads: Vec<Common>,
    /// Where the others of rows lie.
    packed: Vec<Packed>,
    /// Where neighbours that no filter can tell apart end: places, rising, the last is the number
    /// of events.
    groups: Vec<u32>,
    /// Where neighbours of one publisher whose sequences follow each other end.
    stretches: Vec<u32>,
    /// Where neighbours end that lie in the buffer as a list has them: each right behind the one
    /// before it, with what a list has in between. One row that is packed is such a part by itself,
    /// of which only the first event lies in a list. Empty where an event has something else before
    /// it.
    lists: Vec<u32>,
}

/// One event of a batch, or several as they lie in a list: each right behind the one before it, as
/// long, with the next number and the same head. Or one, and packed behind it several that are as
/// long and alike.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The number of the first.
    seq: u64,
    /// The time of the first; the others have theirs where [`Common::time_at`] says, or what is
    /// packed.
    time_ns: u64,
    /// The place of the first in its batch.
    place: u32,
    count: u32,
    /// Where the first lies.
    start: u32,
    /// How long each is.
    len: u32,
    /// Bytes of all events of the batch before the first, as if none were packed.
    before: u32,
    /// The place of their head.
    head: u32,
    /// The place of where the others lie, if they are packed, counted from 1; else 0.
    packed: u32,
}

/// The others of a row: what is their own, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// Where that of the first of them begins.
    start: u32,
    /// Where a whole event has it.
    parts: OwnParts,
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

    /// Where the last one ends that lies there whole.
    fn end(&self) -> u64 {
        let others = match self.packed {
            0 => u64::from(self.count - 1) * self.step(),
            _ => 0,
        };
        u64::from(self.start) + others + u64::from(self.len)
    }

    /// Where its others lie, if they are packed.
    fn packed_in<'a>(&self, packed: &'a [Packed]) -> Option<&'a Packed> {
        packed.get((self.packed as usize).checked_sub(1)?)
    }

    /// Where the packed ones lie, by their places in the batch.
    fn packed_at(&self, packed: &Packed, places: Range<u32>) -> Range<usize> {
        let step = packed.parts.step(self.len as usize);
        let at = |place: u32| packed.start as usize + (place - self.place - 1) as usize * step;
        at(places.start)..at(places.end)
    }

    /// Where an event lies that lies there whole, by its place in the batch.
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

/// Some events of a run as an item of a list on the wire has them: some whole, and behind the last
/// of them those that are told by what is their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// How many events, all together.
    pub count: usize,
    /// [`Listed`] and the event's bytes for each that is whole, at least one.
    pub listed: Bytes,
    /// What tells the others, at least one, which are like the last that is whole and have the
    /// numbers behind its own.
    pub packed: Option<Bytes>,
}

fn put_listed(event: SealedRef<'_>, bytes: &mut BytesMut) {
    bytes.extend_from_slice(Listed::of(event.len()).bytes());
    event.put(bytes);
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

impl Run {
    fn of(bytes: Bytes, builder: RunBuilder) -> Option<Self> {
        let RunBuilder { mut rows, count, heads, packed, unlike, sum, .. } = builder;
        // What is kept keeps no room for more.
        rows.shrink_to_fit();
        if count == 0 {
            return None;
        }
        let (groups, stretches, lists) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch { bytes, rows, count, sum, heads, packed, groups, stretches, lists };
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
            let len = u32::try_from(event.len()).ok()?;
            put_listed(event, &mut bytes);
            let start = u32::try_from(bytes.len()).ok()?.checked_sub(len)?;
            builder.push(event.head(), Span { start, len });
        }
        builder.end_row();
        Self::of(bytes.freeze(), builder)
    }

    /// How many events.
    pub fn count(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Their size in bytes, the measure of every queue that holds them: as if each were there
    /// whole.
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

    /// The events as the wire has them, in portions that follow each other: slices of the batch
    /// where they lie there like that, which they nearly always do; else a copy.
    pub fn portions(&self) -> impl Iterator<Item = Portion> {
        let copied = self.batch.lists.is_empty().then(|| {
            let mut bytes = BytesMut::with_capacity(self.len() + 6 * self.count());
            self.iter().for_each(|event| put_listed(event, &mut bytes));
            Portion { count: self.count(), listed: bytes.freeze(), packed: None }
        });
        let place = |place: usize| self.from + place as u32;
        let parts = self.parts(&self.batch.lists);
        copied
            .into_iter()
            .chain(parts.map(move |part| self.batch.portion(place(part.start)..place(part.end))))
    }

    /// The same events, each whole, for who reads nothing else.
    #[must_use]
    pub fn unpacked(self) -> Self {
        let rows = &self.batch.rows;
        let first = rows.partition_point(|row| row.place + row.count <= self.from);
        let mut rows = rows[first..].iter().take_while(|row| row.place < self.to);
        match rows.any(|row| row.packed > 0) {
            true => Self::collect(self.iter()).unwrap_or(self),
            false => self,
        }
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
            let mut others = others.into_iter().filter(|_| row.packed == 0);
            debug_assert!(others.all(|place| is_listed(row.at(place).start)));
            if !is_listed(start) {
                self.lists.clear();
                return;
            }
            let goes_on = (start - listed.bytes().len()) as u64 == end && row.packed == 0;
            if row.place > 0 && !goes_on {
                self.lists.push(row.place);
            }
            // Behind packed ones nothing goes on.
            end = if row.packed == 0 { row.end() } else { u64::MAX };
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

    /// Neighbours of one part of [`Self::lists`].
    fn portion(&self, places: Range<u32>) -> Portion {
        let Range { start: from, end: to } = places;
        let (count, row) = ((to - from) as usize, self.row(from));
        let Some(packed) = row.packed_in(&self.packed) else {
            let (first, last) = (row.at(from), self.row(to - 1).at(to - 1));
            let begin = first.start - Listed::of(first.len()).bytes().len();
            return Portion { count, listed: self.bytes.slice(begin..last.end), packed: None };
        };
        let listed = if from == row.place {
            let first = row.at(from);
            self.bytes.slice(first.start - Listed::of(first.len()).bytes().len()..first.end)
        } else {
            let mut whole = BytesMut::with_capacity(row.len as usize + 6);
            put_listed(self.view(from), &mut whole);
            whole.freeze()
        };
        let others = row.packed_at(packed, from + 1..to);
        let packed = (count > 1).then(|| self.bytes.slice(others));
        Portion { count, listed, packed }
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
        let seq = row.seq + u64::from(place - row.place);
        let whole = |place| &self.bytes[row.at(place)];
        if place == row.place {
            return SealedRef::of(head, seq, row.time_ns, whole(place));
        }
        if let Some(packed) = row.packed_in(&self.packed) {
            let own = &self.bytes[row.packed_at(packed, place..place + 1)];
            let known = SealedRef::of(head, row.seq, row.time_ns, whole(row.place));
            return known.like(seq, Own { parts: packed.parts, bytes: own });
        }
        let bytes = whole(place);
        let time = bytes.get(*time_at as usize..).and_then(|time| time.first_chunk());
        SealedRef::of(head, seq, time.map_or(0, |time| u64::from_le_bytes(*time)), bytes)
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
        let (start, packed) = (0, 0);
        let row = Row { seq, time_ns, place: 0, count: 1, start, len, before: 0, head: 0, packed };
        let batch = Batch {
            bytes: sealed.into_bytes(),
            rows: vec![row],
            count: 1,
            sum: len,
            heads: vec![Common { head, time_at: 0 }],
            packed: Vec::new(),
            groups: vec![1],
            stretches: vec![1],
            lists: Vec::new(),
        };
        Self { batch: Arc::new(batch), from: 0, to: 1 }
    }
}

#[cfg(test)]
mod tests;
