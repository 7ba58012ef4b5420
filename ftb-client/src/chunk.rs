//! Published events, encoded into one buffer.
//!
//! A [`Chunk`] grows while its events wait, and is sent as one message: its buffer is the body. A
//! shed event leaves a hole, which is closed before sending or when holes outweigh the rest. A
//! [`InFlightBatch`] is a chunk that was sent.

use crate::ack_interest::AckInterest;
use crate::completion::Completion;
use crate::error::Unconfirmed;
use bytes::Bytes;
use core::ops::Range;
use ftb_core::{ConfirmLevel, PublisherId, Severity, limits};
use std::sync::Arc;

/// Cost of an event beside its bytes: its share of a chunk, at most a whole one.
pub(crate) const ENTRY_BYTES: usize = 128;
/// The first buffer of a chunk, in bytes, unless it is known to grow larger.
const BUFFER_BYTES_MIN: usize = 512;

/// The index of a severity, lowest first.
pub(crate) fn class(severity: Severity) -> usize {
    severity as usize - 1
}

/// One event of a chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkEntry {
    /// Its index in the completion.
    place: u32,
    /// Where its bytes end in the buffer.
    end: u32,
    class: u8,
    /// Shed while it waited, or refused while in flight.
    gone: bool,
}

/// The number and the bytes of some events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Size {
    /// Their cost, against the limit of the outbox.
    pub(crate) fn cost(self) -> usize {
        self.bytes + self.events * ENTRY_BYTES
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
    }

    pub(crate) fn take(&mut self, other: Self) {
        self.events -= other.events;
        self.bytes -= other.bytes;
    }
}

/// Waiting events.
#[derive(Debug)]
pub(crate) struct Chunk {
    completion: Arc<Completion>,
    buffer: Vec<u8>,
    entries: Vec<ChunkEntry>,
    /// The indices of all its events, shed ones too.
    places: Range<u32>,
    /// The remaining events by severity.
    sizes: [Size; 4],
    /// What its events must survive before they are confirmed; `None`: the agent's default.
    confirm: Option<ConfirmLevel>,
}

impl Chunk {
    /// Empty, with room for about this number of bytes and events. Tasks that wait for outcomes are
    /// counted in `ack_interest`.
    pub(crate) fn new(ack_interest: &Arc<AckInterest>, bytes: usize, events: usize) -> Self {
        Self::of_completion(Arc::new(Completion::new(Arc::clone(ack_interest))), 0, bytes, events)
    }

    /// The last of several chunks of one completion, or a new one after it if it has no room for
    /// `bytes`. The first has room for `expected`.
    pub(crate) fn open<'a>(
        chunks: &'a mut Vec<Self>,
        ack_interest: &Arc<AckInterest>,
        bytes: usize,
        expected: Size,
    ) -> &'a mut Self {
        if !chunks.last().is_some_and(|chunk| chunk.takes(bytes)) {
            let chunk = match chunks.last() {
                Some(last) => {
                    let expected = bytes.max(last.buffer.len());
                    let completion = Arc::clone(&last.completion);
                    Self::of_completion(completion, last.places.end, expected, last.entries.len())
                }
                None => Self::new(ack_interest, bytes.max(expected.bytes), expected.events),
            };
            chunks.push(chunk);
        }
        chunks.last_mut().expect("it was made just now if there was none")
    }

    fn of_completion(completion: Arc<Completion>, place: u32, bytes: usize, events: usize) -> Self {
        // In steps, so that chunks of nearly one size do not grow at their end.
        let capacity = bytes.next_power_of_two();
        let capacity = capacity.clamp(BUFFER_BYTES_MIN, limits::CHUNK_BYTES_TARGET);
        Self {
            completion,
            buffer: Vec::with_capacity(capacity),
            entries: Vec::with_capacity(events.min(limits::BATCH_EVENTS_MAX)),
            places: place..place,
            sizes: [Size::default(); 4],
            confirm: None,
        }
    }

    /// What its events must survive before they are confirmed.
    pub(crate) fn confirm(&self) -> Option<ConfirmLevel> {
        self.confirm
    }

    /// Sets that, for all of its events.
    pub(crate) fn set_confirm(&mut self, confirm: Option<ConfirmLevel>) {
        self.confirm = confirm;
    }

    /// Whether there is room for one more event of this size. A single large one always fits.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let full = self.buffer.len() + bytes > limits::CHUNK_BYTES_TARGET;
        self.places.len() < limits::BATCH_EVENTS_MAX && (!full || self.buffer.is_empty())
    }

    /// Whether there is room for all events of another chunk, and they ask for the same.
    pub(crate) fn takes_all_of(&self, other: &Self) -> bool {
        self.confirm == other.confirm
            && self.places.len() + other.places.len() <= limits::BATCH_EVENTS_MAX
            && self.buffer.len() + other.buffer.len() <= limits::CHUNK_BYTES_TARGET
    }

    /// Appends the events of another chunk, which has shed none. Returns their indices.
    pub(crate) fn append(&mut self, other: &Self) -> Range<u32> {
        let (place, at) = (self.places.end, self.buffer.len() as u32);
        self.buffer.extend_from_slice(&other.buffer);
        let moved = |entry: &ChunkEntry| {
            let place = place + (entry.place - other.places.start);
            ChunkEntry { place, end: at + entry.end, ..*entry }
        };
        self.entries.extend(other.entries.iter().map(moved));
        for (size, more) in self.sizes.iter_mut().zip(other.sizes) {
            size.add(more);
        }
        self.places.end += other.places.len() as u32;
        place..self.places.end
    }

    /// The next chunk was removed: if both share a completion, its indices are not used again.
    pub(crate) fn skip_places_of(&mut self, gone: &Self) {
        if Arc::ptr_eq(&self.completion, &gone.completion) {
            self.places.end = self.places.end.max(gone.places.end);
        }
    }

    /// The outcomes of its events.
    pub(crate) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// The indices of all its events, shed ones too.
    pub(crate) fn places(&self) -> Range<u32> {
        self.places.clone()
    }

    /// Adds an event, which `put` appends to the buffer. Returns its index in the completion.
    pub(crate) fn push(&mut self, severity: Severity, put: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.buffer.len();
        put(&mut self.buffer);
        let (class, place) = (class(severity), self.places.end);
        let end = u32::try_from(self.buffer.len())
            .expect("a chunk holds 64 KiB or one event, far less than 4 GiB");
        self.entries.push(ChunkEntry { place, end, class: class as u8, gone: false });
        self.sizes[class].add(Size { events: 1, bytes: self.buffer.len() - start });
        self.places.end += 1;
        place
    }

    /// The remaining events of one severity.
    pub(crate) fn size_of(&self, class: usize) -> Size {
        self.sizes[class]
    }

    /// All remaining events.
    pub(crate) fn size(&self) -> Size {
        let mut sum = Size::default();
        self.sizes.iter().for_each(|size| sum.add(*size));
        sum
    }

    /// The cost of the oldest remaining event.
    pub(crate) fn first_cost(&self) -> usize {
        let first = self.entries.iter().position(|entry| !entry.gone);
        first.map_or(0, |index| Size { events: 1, bytes: self.len_of(index) }.cost())
    }

    /// Sheds the oldest event of a severity; returns its size.
    pub(crate) fn shed_oldest(&mut self, class: usize) -> Option<Size> {
        let oldest = |entry: &ChunkEntry| !entry.gone && usize::from(entry.class) == class;
        let index = self.entries.iter().position(oldest)?;
        let bytes = self.len_of(index);
        let size = Size { events: 1, bytes };
        self.entries[index].gone = true;
        self.completion.shed(self.entries[index].place);
        self.sizes[class].take(size);
        let left = self.size();
        if left.bytes < self.buffer.len() / 2 || left.events < self.entries.len() / 2 {
            self.close_holes();
        }
        Some(size)
    }

    fn start_of(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.entries[before].end as usize)
    }

    fn len_of(&self, index: usize) -> usize {
        self.entries[index].end as usize - self.start_of(index)
    }

    /// Removes shed events from the buffer.
    fn close_holes(&mut self) {
        let left = self.size();
        if left.events != self.entries.len() {
            self.keep(left);
        }
    }

    /// Keeps the remaining events, of this size.
    #[cold]
    fn keep(&mut self, left: Size) {
        let mut buffer = Vec::with_capacity(left.bytes);
        let mut entries = Vec::with_capacity(left.events);
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, entry)| !entry.gone) {
            buffer.extend_from_slice(&self.buffer[self.start_of(index)..entry.end as usize]);
            entries.push(ChunkEntry { end: buffer.len() as u32, ..*entry });
        }
        (self.buffer, self.entries) = (buffer, entries);
    }

    /// Keeps what fits into `room`, or one event if `at_least_one`; returns the others.
    pub(crate) fn split_where_full(&mut self, room: usize, at_least_one: bool) -> Option<Self> {
        self.close_holes();
        if self.size().cost() <= room {
            return None;
        }
        let cost_until = |(index, entry): (usize, &ChunkEntry)| {
            Size { events: index + 1, bytes: entry.end as usize }.cost()
        };
        let costs = self.entries.iter().enumerate().map(cost_until);
        let fit = costs.take_while(|cost| *cost <= room).count().max(at_least_one.into());
        Some(self.split_off(fit)).filter(|rest| !rest.entries.is_empty())
    }

    /// Turns it into a sent batch; `None` if it is empty.
    pub(crate) fn go(mut self, first_seq: u64) -> Option<InFlightBatch> {
        self.close_holes();
        let Self { completion, buffer, entries, confirm, .. } = self;
        if entries.is_empty() {
            return None;
        }
        completion.numbered(first_seq);
        let events = Bytes::from(buffer);
        let (settled, refused) = (0, 0);
        Some(InFlightBatch { completion, events, entries, settled, refused, first_seq, confirm })
    }

    /// No remaining event is confirmed.
    pub(crate) fn close(&self) {
        self.completion.close();
    }

    /// Keeps this number of events and returns the others. Both share the completion.
    #[cold]
    fn split_off(&mut self, keep: usize) -> Self {
        let end = self.start_of(keep);
        let mut rest = Self {
            completion: Arc::clone(&self.completion),
            buffer: self.buffer.split_off(end),
            entries: self.entries.split_off(keep),
            places: self.places.clone(),
            sizes: [Size::default(); 4],
            confirm: self.confirm,
        };
        for entry in &mut rest.entries {
            entry.end -= end as u32;
        }
        for index in 0..rest.entries.len() {
            let class = usize::from(rest.entries[index].class);
            let size = Size { events: 1, bytes: rest.len_of(index) };
            rest.sizes[class].add(size);
            self.sizes[class].take(size);
        }
        rest
    }
}

/// Events with sequences that were sent and are not all confirmed.
#[derive(Debug)]
pub(crate) struct InFlightBatch {
    completion: Arc<Completion>,
    events: Bytes,
    entries: Vec<ChunkEntry>,
    /// Number of events with an outcome, from the first on.
    settled: usize,
    /// Number of refused events.
    refused: usize,
    first_seq: u64,
    confirm: Option<ConfirmLevel>,
}

impl InFlightBatch {
    /// What its events must survive before they are confirmed.
    pub(crate) fn confirm(&self) -> Option<ConfirmLevel> {
        self.confirm
    }

    /// The sequence of the first event without an outcome.
    pub(crate) fn next_seq(&self) -> u64 {
        self.first_seq + self.settled as u64
    }

    /// The sequence after the last.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64
    }

    /// Whether all have an outcome.
    pub(crate) fn is_over(&self) -> bool {
        self.settled == self.entries.len()
    }

    /// The bytes of the events without an outcome.
    pub(crate) fn events(&self) -> Bytes {
        self.events.slice(self.offset(self.settled)..)
    }

    /// The size of the events without an outcome.
    pub(crate) fn size(&self) -> Size {
        let bytes = self.events.len() - self.offset(self.settled);
        Size { events: self.entries.len() - self.settled, bytes }
    }

    fn offset(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.entries[before].end as usize)
    }

    /// All events below this sequence are confirmed, except refused ones; refused ones right after
    /// it have their outcome too. `level`: the lowest of those that are to be on disk. Returns the
    /// size of the new outcomes, and how many are confirmed.
    pub(crate) fn settle(
        &mut self,
        below_seq: u64,
        level: Option<ConfirmLevel>,
        publisher: PublisherId,
    ) -> (Size, usize) {
        let before = self.size();
        let from = self.settled;
        let below = below_seq.saturating_sub(self.first_seq);
        let below = usize::try_from(below).unwrap_or(usize::MAX).min(self.entries.len());
        let refused = |entries: &[ChunkEntry]| match self.refused {
            0 => 0,
            _ => entries.iter().filter(|entry| entry.gone).count(),
        };
        let mut confirmed = 0;
        if below > from {
            self.settled = below;
            confirmed = below - from - refused(&self.entries[from..below]);
        }
        while self.entries.get(self.settled).is_some_and(|entry| entry.gone) {
            self.settled += 1;
        }
        if self.settled > from {
            let level = match self.confirm {
                Some(ConfirmLevel::Memory) => ConfirmLevel::Memory,
                _ => level.unwrap_or_default(),
            };
            self.completion.settled(self.entries[self.settled - 1].place + 1, level, publisher);
        }
        let mut ended = before;
        ended.take(self.size());
        (ended, confirmed)
    }

    /// The agent refused an event. It keeps its sequence, because sequences must stay dense when
    /// the batch is sent again. Returns whether it had no outcome before.
    pub(crate) fn refuse(&mut self, seq: u64, why: Unconfirmed) -> bool {
        let index = seq.checked_sub(self.first_seq).and_then(|index| usize::try_from(index).ok());
        let Some(index) = index.filter(|index| *index >= self.settled) else { return false };
        let Some(entry) = self.entries.get_mut(index).filter(|entry| !entry.gone) else {
            return false;
        };
        entry.gone = true;
        self.refused += 1;
        // Without receipts no task can wait.
        if Arc::strong_count(&self.completion) > 1 {
            self.completion.refused(entry.place, why);
        }
        true
    }

    /// No remaining event is confirmed.
    pub(crate) fn close(&self) {
        self.completion.close();
    }
}
