//! Events that were published one after the other, encoded into one buffer.
//!
//! A [`Chunk`] grows as long as its events wait, and is one message when they go: its buffer is the
//! body of that message. What is shed from it leaves a hole, which is closed before it goes or when
//! holes outweigh the rest. A [`Flight`] is a chunk that has gone.

use crate::error::Unconfirmed;
use crate::fate::Fate;
use crate::waiters::Waiters;
use bytes::Bytes;
use core::ops::Range;
use ftb_core::{PublisherId, Severity, limits};
use std::sync::Arc;

/// What an event costs beside its bytes: its share of a chunk, at most a chunk of its own.
pub(crate) const ENTRY_BYTES: usize = 128;
/// The first buffer of a chunk, in bytes, unless it is known to grow larger.
const BUFFER_BYTES_MIN: usize = 512;

/// The place of a severity among four, mildest first.
pub(crate) fn class(severity: Severity) -> usize {
    severity as usize - 1
}

/// One event of a chunk.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// In the fate.
    place: u32,
    /// Where its bytes end in the buffer.
    end: u32,
    class: u8,
    /// Shed while it waited, or refused while in flight.
    gone: bool,
}

/// What some events take: their number, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Size {
    /// What they count against the bound of the outbox.
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

/// Events that wait.
#[derive(Debug)]
pub(crate) struct Chunk {
    fate: Arc<Fate>,
    buffer: Vec<u8>,
    entries: Vec<Entry>,
    /// The places of all that came in, whatever became of them.
    places: Range<u32>,
    /// What is left of each severity.
    sizes: [Size; 4],
}

impl Chunk {
    /// Empty, with room for about so many bytes and events. Who asks what became of these is one of the
    /// `waiters`.
    pub(crate) fn new(waiters: &Arc<Waiters>, bytes: usize, events: usize) -> Self {
        Self::of_fate(Arc::new(Fate::new(Arc::clone(waiters))), 0, bytes, events)
    }

    /// The last of several chunks of one fate, or a new one behind them where it does not take so many
    /// bytes more. The first is made as large as `expected`.
    pub(crate) fn open<'a>(
        chunks: &'a mut Vec<Self>,
        waiters: &Arc<Waiters>,
        bytes: usize,
        expected: Size,
    ) -> &'a mut Self {
        if !chunks.last().is_some_and(|chunk| chunk.takes(bytes)) {
            let chunk = match chunks.last() {
                Some(last) => {
                    let expected = bytes.max(last.buffer.len());
                    let fate = Arc::clone(&last.fate);
                    Self::of_fate(fate, last.places.end, expected, last.entries.len())
                }
                None => Self::new(waiters, bytes.max(expected.bytes), expected.events),
            };
            chunks.push(chunk);
        }
        chunks.last_mut().expect("it was made just now if there was none")
    }

    fn of_fate(fate: Arc<Fate>, place: u32, bytes: usize, events: usize) -> Self {
        // In steps, so that chunks of nearly one size do not grow at their end.
        let capacity = bytes.next_power_of_two();
        let capacity = capacity.clamp(BUFFER_BYTES_MIN, limits::CHUNK_BYTES_TARGET);
        Self {
            fate,
            buffer: Vec::with_capacity(capacity),
            entries: Vec::with_capacity(events.min(limits::BATCH_EVENTS_MAX)),
            places: place..place,
            sizes: [Size::default(); 4],
        }
    }

    /// Whether one more event of so many bytes can come in. A single large one always can.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let full = self.buffer.len() + bytes > limits::CHUNK_BYTES_TARGET;
        self.places.len() < limits::BATCH_EVENTS_MAX && (!full || self.buffer.is_empty())
    }

    /// Whether all events of another one can come in.
    pub(crate) fn takes_all_of(&self, other: &Self) -> bool {
        self.places.len() + other.places.len() <= limits::BATCH_EVENTS_MAX
            && self.buffer.len() + other.buffer.len() <= limits::CHUNK_BYTES_TARGET
    }

    /// Takes the events of another one, which has lost none. Gives their places, in its own fate.
    pub(crate) fn append(&mut self, other: &Self) -> Range<u32> {
        let (place, at) = (self.places.end, self.buffer.len() as u32);
        self.buffer.extend_from_slice(&other.buffer);
        let moved = |entry: &Entry| {
            let place = place + (entry.place - other.places.start);
            Entry { place, end: at + entry.end, ..*entry }
        };
        self.entries.extend(other.entries.iter().map(moved));
        for (size, more) in self.sizes.iter_mut().zip(other.sizes) {
            size.add(more);
        }
        self.places.end += other.places.len() as u32;
        place..self.places.end
    }

    /// The chunk behind it is gone: where both are of one fate, its places are nobody else's.
    pub(crate) fn skip_places_of(&mut self, gone: &Self) {
        if Arc::ptr_eq(&self.fate, &gone.fate) {
            self.places.end = self.places.end.max(gone.places.end);
        }
    }

    /// What becomes of its events.
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    /// The places of all events that came in.
    pub(crate) fn places(&self) -> Range<u32> {
        self.places.clone()
    }

    /// Takes an event, which `put` appends to the buffer. Gives its place in the fate.
    pub(crate) fn push(&mut self, severity: Severity, put: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.buffer.len();
        put(&mut self.buffer);
        let (class, place) = (class(severity), self.places.end);
        let end = u32::try_from(self.buffer.len())
            .expect("a chunk holds 64 KiB or one event, far less than 4 GiB");
        self.entries.push(Entry { place, end, class: class as u8, gone: false });
        self.sizes[class].add(Size { events: 1, bytes: self.buffer.len() - start });
        self.places.end += 1;
        place
    }

    /// What is left of one severity.
    pub(crate) fn size_of(&self, class: usize) -> Size {
        self.sizes[class]
    }

    /// What is left of all.
    pub(crate) fn size(&self) -> Size {
        let mut sum = Size::default();
        self.sizes.iter().for_each(|size| sum.add(*size));
        sum
    }

    /// What the oldest that is left counts against a bound.
    pub(crate) fn first_cost(&self) -> usize {
        let first = self.entries.iter().position(|entry| !entry.gone);
        first.map_or(0, |index| Size { events: 1, bytes: self.len_of(index) }.cost())
    }

    /// Gives up the oldest of a severity and says how large it was.
    pub(crate) fn shed_oldest(&mut self, class: usize) -> Option<Size> {
        let oldest = |entry: &Entry| !entry.gone && usize::from(entry.class) == class;
        let index = self.entries.iter().position(oldest)?;
        let bytes = self.len_of(index);
        let size = Size { events: 1, bytes };
        self.entries[index].gone = true;
        self.fate.shed(self.entries[index].place);
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

    /// Drops what is gone from the buffer.
    fn close_holes(&mut self) {
        let left = self.size();
        if left.events != self.entries.len() {
            self.keep(left);
        }
    }

    /// Keeps what is left, which is so much.
    #[cold]
    fn keep(&mut self, left: Size) {
        let mut buffer = Vec::with_capacity(left.bytes);
        let mut entries = Vec::with_capacity(left.events);
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, entry)| !entry.gone) {
            buffer.extend_from_slice(&self.buffer[self.start_of(index)..entry.end as usize]);
            entries.push(Entry { end: buffer.len() as u32, ..*entry });
        }
        (self.buffer, self.entries) = (buffer, entries);
    }

    /// Keeps what `room` allows, but at least one event when `at_least_one` is set, and gives the others, if there are
    /// any.
    pub(crate) fn split_where_full(&mut self, room: usize, at_least_one: bool) -> Option<Self> {
        self.close_holes();
        if self.size().cost() <= room {
            return None;
        }
        let cost_until = |(index, entry): (usize, &Entry)| {
            Size { events: index + 1, bytes: entry.end as usize }.cost()
        };
        let costs = self.entries.iter().enumerate().map(cost_until);
        let fit = costs.take_while(|cost| *cost <= room).count().max(at_least_one.into());
        Some(self.split_off(fit)).filter(|rest| !rest.entries.is_empty())
    }

    /// Lets it go: gives what goes, if there is anything.
    pub(crate) fn go(mut self, first_seq: u64) -> Option<Flight> {
        self.close_holes();
        let Self { fate, buffer, entries, .. } = self;
        if entries.is_empty() {
            return None;
        }
        fate.numbered(first_seq);
        let events = Bytes::from(buffer);
        Some(Flight { fate, events, entries, settled: 0, refused: 0, first_seq })
    }

    /// None of those that are left will end well.
    pub(crate) fn close(&self) {
        self.fate.close();
    }

    /// Keeps so many events and gives the others. Both share the fate.
    #[cold]
    fn split_off(&mut self, keep: usize) -> Self {
        let end = self.start_of(keep);
        let mut rest = Self {
            fate: Arc::clone(&self.fate),
            buffer: self.buffer.split_off(end),
            entries: self.entries.split_off(keep),
            places: self.places.clone(),
            sizes: [Size::default(); 4],
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

/// Events that have numbers and were handed to an agent, or are to be handed over again.
#[derive(Debug)]
pub(crate) struct Flight {
    fate: Arc<Fate>,
    events: Bytes,
    entries: Vec<Entry>,
    /// How many have ended, from the first on.
    settled: usize,
    /// How many were refused, whether they have ended or not.
    refused: usize,
    first_seq: u64,
}

impl Flight {
    /// The number of the first that has not ended.
    pub(crate) fn next_seq(&self) -> u64 {
        self.first_seq + self.settled as u64
    }

    /// The number behind the last.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64
    }

    /// Whether all have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.settled == self.entries.len()
    }

    /// The bytes of those that have not ended.
    pub(crate) fn events(&self) -> Bytes {
        self.events.slice(self.offset(self.settled)..)
    }

    /// What those that have not ended take.
    pub(crate) fn size(&self) -> Size {
        let bytes = self.events.len() - self.offset(self.settled);
        Size { events: self.entries.len() - self.settled, bytes }
    }

    fn offset(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.entries[before].end as usize)
    }

    /// Everything below that number has ended well, but for what was refused before; and what was
    /// refused right behind has ended too. Gives what has ended now, and how many of it well.
    pub(crate) fn settle(&mut self, below_seq: u64, publisher: PublisherId) -> (Size, usize) {
        let before = self.size();
        let from = self.settled;
        let below = below_seq.saturating_sub(self.first_seq);
        let below = usize::try_from(below).unwrap_or(usize::MAX).min(self.entries.len());
        let refused = |entries: &[Entry]| match self.refused {
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
            self.fate.settled(self.entries[self.settled - 1].place + 1, publisher);
        }
        let mut ended = before;
        ended.take(self.size());
        (ended, confirmed)
    }

    /// The agent will never take that one. It keeps its number and its place: a number must not be
    /// missing when the run is handed over again. Whether it had not ended yet.
    pub(crate) fn refuse(&mut self, seq: u64, why: Unconfirmed) -> bool {
        let index = seq.checked_sub(self.first_seq).and_then(|index| usize::try_from(index).ok());
        let Some(index) = index.filter(|index| *index >= self.settled) else { return false };
        let Some(entry) = self.entries.get_mut(index).filter(|entry| !entry.gone) else {
            return false;
        };
        entry.gone = true;
        self.refused += 1;
        // Without receipts there is nobody to tell.
        if Arc::strong_count(&self.fate) > 1 {
            self.fate.refused(entry.place, why);
        }
        true
    }

    /// None of those that are left will end well.
    pub(crate) fn close(&self) {
        self.fate.close();
    }
}
