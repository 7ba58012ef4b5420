//! Events that share one buffer, and slices of them.
//!
//! An agent receives and sends events in batches. A batch is one buffer and an index of the events
//! in it; a [`Run`] is a slice of a batch. Slicing and cloning copy no events.
//!
//! Not responsible for: the meaning of the bytes, and how a message frames events (`ftb-proto`).

use crate::ident::{EventId, PublisherId};
use crate::numbers::PublisherSeq;
use crate::sealed::{CountedMark, Head, Sealed, SealedRef, Span, SpanError};
use crate::severity::Severity;
use bytes::{Bytes, BytesMut};
use core::ops::Range;
use std::sync::Arc;

/// [`Run::detached`] copies events that are less than this part of their buffer.
const PINNED_PART_MIN: usize = 4;

/// A buffer with events, and where each of them lies. Immutable.
#[derive(Debug)]
struct Batch {
    bytes: Bytes,
    /// Headers without sequence number and time. Consecutive events that have the rest of the
    /// header and all routing texts in common share one.
    headers: Vec<Head>,
    entries: Vec<RunEntry>,
    /// Whether any of them is traced.
    is_traced: bool,
    /// Whether any of them is a member or the fold of a group.
    is_of_group: bool,
    /// Whether any of them has the mark of a statement that counted.
    is_counted: bool,
}

/// One event of a batch.
#[derive(Clone, Copy, Debug)]
struct RunEntry {
    seq: PublisherSeq,
    time_ns: u64,
    /// Where its bytes lie in the buffer.
    at: Span,
    /// Bytes of all events of the batch up to and including this one.
    end_bytes: u32,
    /// Index of its header.
    header: u32,
}

/// Consecutive events of a batch, at least one. A clone shares the buffer.
#[derive(Clone, Debug)]
pub struct Run {
    batch: Arc<Batch>,
    from: u32,
    to: u32,
}

/// Consecutive events of one publisher with consecutive sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Place of the first in its run.
    pub at: usize,
    /// Their publisher.
    pub publisher: PublisherId,
    /// The sequence of the first.
    pub first: PublisherSeq,
    /// The sequence of the last.
    pub last: PublisherSeq,
    /// [`Head::covers`]: not 0 for a fold, which is alone.
    pub covers: u32,
}

/// Builds the index of a batch while its buffer is read or written.
#[derive(Debug, Default)]
pub struct RunBuilder {
    headers: Vec<Head>,
    entries: Vec<RunEntry>,
}

impl RunBuilder {
    /// Adds the event at `at` of `buffer`. The spans of `head` count from the event's first byte;
    /// the caller has checked that its texts are UTF-8.
    ///
    /// # Errors
    /// [`SpanError`]: the event is not in the buffer, or a text is not in the event.
    pub fn push(&mut self, buffer: &[u8], head: Head, at: Span) -> Result<(), SpanError> {
        let bytes = at.slice(buffer).ok_or(SpanError("content"))?;
        let texts = head.texts().into_iter().chain(head.condition_texts());
        for (field, span) in texts.chain(head.group_texts()) {
            span.slice(bytes).ok_or(SpanError(field))?;
        }
        let (seq, time_ns) = (head.id.seq, head.time_ns);
        let event = SealedRef::of(&head, seq, time_ns, bytes);
        let same = self.entries.last().zip(self.headers.last()).is_some_and(|(last, header)| {
            let bytes = last.at.slice(buffer).unwrap_or_default();
            header.of(seq, time_ns) == head
                && event.routes_like(SealedRef::of(header, seq, time_ns, bytes))
        });
        if !same {
            self.headers.push(head);
        }
        let header = self.headers.len() as u32 - 1;
        let before = self.entries.last().map_or(0, |last| last.end_bytes);
        let end_bytes = before.saturating_add(at.len);
        self.entries.push(RunEntry { seq, time_ns, at, end_bytes, header });
        Ok(())
    }

    /// The events, in the buffer that `push` has seen; `None` without any.
    ///
    /// # Errors
    /// [`SpanError`]: the buffer is shorter than it was.
    pub fn finish(mut self, bytes: Bytes) -> Result<Option<Run>, SpanError> {
        if self.entries.iter().any(|entry| entry.at.end() > bytes.len() as u64) {
            return Err(SpanError("content"));
        }
        self.entries.shrink_to_fit();
        self.headers.shrink_to_fit();
        let Self { headers, entries } = self;
        let to = entries.len() as u32;
        let is_traced = headers.iter().any(|header| header.is_traced);
        let is_of_group = headers.iter().any(Head::is_of_group);
        let is_counted = headers.iter().any(|header| header.is_counted);
        let batch = Arc::new(Batch { bytes, headers, entries, is_traced, is_of_group, is_counted });
        Ok((to > 0).then_some(Run { batch, from: 0, to }))
    }
}

impl Run {
    /// Copies events into one buffer; `None` without any.
    pub fn collect<'a>(events: impl IntoIterator<Item = SealedRef<'a>>) -> Option<Self> {
        let mut bytes = BytesMut::new();
        let mut builder = RunBuilder::default();
        for event in events {
            let start = u32::try_from(bytes.len()).ok()?;
            bytes.extend_from_slice(event.bytes());
            let len = u32::try_from(event.len()).ok()?;
            builder.push(&bytes, event.head(), Span { start, len }).ok()?;
        }
        builder.finish(bytes.freeze()).ok()?
    }

    /// Number of events.
    pub fn count(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Bytes of all events. Every queue that holds them is bounded by it.
    pub fn len(&self) -> usize {
        self.end_bytes(self.count()) - self.end_bytes(0)
    }

    /// Always false: a run has at least one event.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// The event at a place below [`Run::count`].
    pub fn get(&self, place: usize) -> Option<SealedRef<'_>> {
        self.entries().get(place).map(|entry| self.batch.view(entry))
    }

    /// The first event.
    pub fn first(&self) -> SealedRef<'_> {
        self.batch.view(&self.batch.entries[self.from as usize])
    }

    /// The events, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SealedRef<'_>> + ExactSizeIterator {
        self.entries().iter().map(|entry| self.batch.view(entry))
    }

    /// The buffer that holds the events, and other bytes between them.
    pub fn buffer(&self) -> &Bytes {
        &self.batch.bytes
    }

    /// Where the events lie in [`Run::buffer`], in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.entries().iter().map(|entry| entry.at)
    }

    /// Consecutive events that no filter can distinguish: their places, and the first of them.
    pub fn groups(&self) -> impl Iterator<Item = (Range<usize>, SealedRef<'_>)> {
        let parts = self.parts(|before, this| before.header == this.header);
        parts.map(|(places, first)| (places, self.batch.view(first)))
    }

    /// Consecutive events of one publisher with consecutive sequence numbers.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> {
        let header = |entry: &RunEntry| &self.batch.headers[entry.header as usize];
        let follows = move |before: &RunEntry, this: &RunEntry| {
            let (one, other) = (header(before), header(this));
            before.seq < this.seq
                && this.seq - before.seq == 1
                && one.id.publisher == other.id.publisher
                && (one.covers, other.covers) == (0, 0)
        };
        self.parts(follows).map(move |(places, entry)| {
            let Head { id, covers, .. } = *header(entry);
            let last = entry.seq + (places.len() as u64 - 1);
            let (at, publisher) = (places.start, id.publisher);
            Stretch { at, publisher, first: entry.seq, last, covers }
        })
    }

    /// Parts of consecutive events that belong together: their places, and the first of each.
    fn parts(
        &self,
        belongs: impl Fn(&RunEntry, &RunEntry) -> bool,
    ) -> impl Iterator<Item = (Range<usize>, &RunEntry)> {
        let mut start = 0;
        self.entries().chunk_by(belongs).map(move |part| {
            let places = start..start + part.len();
            start = places.end;
            (places, &part[0])
        })
    }

    /// The highest severity of its events.
    pub fn severity_max(&self) -> Severity {
        let first = self.entries().first().map_or(0, |entry| entry.header as usize);
        let last = self.entries().last().map_or(0, |entry| entry.header as usize);
        let headers = self.batch.headers.get(first..=last).unwrap_or_default();
        headers.iter().map(|head| head.severity).max().unwrap_or(Severity::Info)
    }

    /// False: no event is traced. True: one of its batch is.
    pub fn may_be_traced(&self) -> bool {
        self.batch.is_traced
    }

    /// False: groups are about no event. True: about one of its batch.
    pub fn may_be_of_group(&self) -> bool {
        self.batch.is_of_group
    }

    /// The same events without the marks of statements that counted. `None`: none has one.
    pub(crate) fn without_marks(&self, mark: Option<CountedMark>) -> Option<Self> {
        if !self.batch.is_counted {
            return None;
        }
        let events: Vec<Sealed> = self.iter().map(|event| event.unmarked(mark)).collect();
        Self::collect(events.iter().map(Sealed::as_ref))
    }

    /// Whether an event is in it, alone or in a fold.
    pub fn holds(&self, id: EventId) -> bool {
        self.stretches().any(|stretch| {
            let first = stretch.first.back(stretch.covers.into());
            stretch.publisher == id.publisher && (first..=stretch.last).contains(&id.seq)
        })
    }

    /// The events at these places; `None` without any.
    pub fn slice(&self, places: Range<usize>) -> Option<Self> {
        let to = places.end.min(self.count());
        (places.start < to).then(|| Self {
            batch: Arc::clone(&self.batch),
            from: self.from + places.start as u32,
            to: self.from + to as u32,
        })
    }

    /// Number of events to send when one more is sent while less than `bytes_max` bytes and less
    /// than `events_max` events were.
    pub fn fitting(&self, bytes_max: usize, events_max: usize) -> usize {
        if bytes_max == 0 {
            return 0;
        }
        let before = self.end_bytes(0);
        let fits = |entry: &RunEntry| entry.end_bytes as usize - before < bytes_max;
        (self.entries().partition_point(fits) + 1).min(self.count()).min(events_max)
    }

    /// The rest without the events at these places, which rise.
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

    /// Both as one, if `next` begins in the same batch where this ends.
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let adjacent = Arc::ptr_eq(&self.batch, &next.batch) && self.to == next.from;
        adjacent.then(|| Self { batch: Arc::clone(&self.batch), from: self.from, to: next.to })
    }

    /// The same events, copied if they would keep a much larger buffer in memory.
    #[must_use]
    pub fn detached(self) -> Self {
        if self.len() * PINNED_PART_MIN >= self.batch.bytes.len() {
            return self;
        }
        Self::collect(self.iter()).unwrap_or(self)
    }

    fn entries(&self) -> &[RunEntry] {
        &self.batch.entries[self.from as usize..self.to as usize]
    }

    /// Bytes of the batch's events before a place of this run.
    fn end_bytes(&self, place: usize) -> usize {
        let before = (self.from as usize + place).checked_sub(1);
        before.map_or(0, |before| self.batch.entries[before].end_bytes as usize)
    }
}

impl Batch {
    fn view(&self, entry: &RunEntry) -> SealedRef<'_> {
        let header = &self.headers[entry.header as usize];
        let bytes = entry.at.slice(&self.bytes).unwrap_or_default();
        SealedRef::of(header, entry.seq, entry.time_ns, bytes)
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Run {}

impl From<Sealed> for Run {
    fn from(event: Sealed) -> Self {
        let head = *event.head();
        let (seq, time_ns) = (head.id.seq, head.time_ns);
        let len = u32::try_from(event.len()).unwrap_or(u32::MAX);
        let at = Span { start: 0, len };
        let entries = vec![RunEntry { seq, time_ns, at, end_bytes: len, header: 0 }];
        let (bytes, is_traced) = (event.into_bytes(), head.is_traced);
        let is_of_group = head.is_of_group();
        let (headers, is_counted) = (vec![head], head.is_counted);
        let batch = Batch { bytes, headers, entries, is_traced, is_of_group, is_counted };
        Self { batch: Arc::new(batch), from: 0, to: 1 }
    }
}

#[cfg(test)]
mod tests;
