//! The log in a [`Store`]: written in chunks, cut into segments, bounded by size and age; read again
//! when the agent starts.
//!
//! Responsible for: the layout, what is kept and what goes. Not responsible for: what is found in a store
//! that is opened (`opening`), when it is called ([`super::task`]), how a store keeps bytes.
//!
//! A segment is a run of chunks; the key of a chunk is the index of its first entry. Before them, at key
//! [`HEAD`], it says where it begins and which events were logged before ([`Head`]): so the oldest can go
//! without a word. Beside the segments there are records: the format, the cluster, which log it is
//! ([`Begun`]), the events that were logged before that began, the ranks of agents that are in no member
//! list, and a [`Mark`]: up to which index was acknowledged, and synced. That shows a tail that is missing,
//! and whether one may be missing that it does not know of.
//!
//! A store does what it is told in order, and a crash leaves the first few changes of a write. So what
//! goes on is written before what it replaces is removed, and which log it is comes after both.

mod opening;
mod reserve;

use super::reading::Scan;
use super::record::{self, Begun, Damaged, Head, Mark};
use super::segment::FRAME_BYTES;
use crate::world::{Change, Store, StoreError};
use bytes::Bytes;
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Content, DedupRanges, Item};
use ftb_core::node::api::{Gap, GapReason, JournalPage, JournalRead, JournalWrite, Stored};
use ftb_core::ranges::PublisherRanges;
use ftb_core::{EventSpace, Spaces};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The log is cut into so many segments; the oldest goes as a whole.
const SEGMENTS: u64 = 8;
/// Publishers whose events are remembered beyond what is kept of the log.
const PUBLISHERS_MAX: usize = 65_536;
/// The key of a segment's head: no entry has that index.
pub const HEAD: u64 = 0;

const KEY_BEGUN: &str = "begun";
const KEY_MARKS: &str = "marks";
const KEY_ROSTER: &str = "roster";

/// What bounds a journal.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// How long what is written is kept.
    pub age: Duration,
    /// Bytes of the log that an agent that starts takes into memory.
    pub memory_bytes: usize,
    /// Event spaces whose events have a share of the reserve for themselves.
    pub protected: Arc<[EventSpace]>,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It belongs to somebody else: nothing is changed in it.
    #[error("{0}")]
    Foreign(String),
    /// It is not what was written: it must be set aside.
    #[error("{0}")]
    Damaged(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl KeepError {
    /// Whether an fsync has failed.
    pub fn is_fsync(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unsynced(_)))
    }
}

impl From<Damaged> for KeepError {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged.to_string())
    }
}

/// A journal that is open.
pub struct Keeper {
    store: Box<dyn Store>,
    bounds: Bounds,
    begun: Begun,
    /// A log was begun in this store: it has a mark.
    has_log: bool,
    /// Events that are in the log, or were before its oldest went.
    logged: PublisherRanges,
    segments: VecDeque<Segment>,
    /// What is retained of segments that went before the oldest.
    reserve: Option<Segment>,
    next_segment: u64,
    /// The newest segment is not written to any more: what follows begins another.
    closed: bool,
    last: u64,
    /// Up to here it was synced.
    synced: u64,
    /// How far it was acknowledged, as it was written last.
    mark: Mark,
    /// It was written since the store was opened.
    marked: bool,
    /// In which boot of the machine this is.
    boot: Option<u128>,
    /// The chunk that was looked through last, for the next page.
    open: Option<Opened>,
    /// Damage behind the end of the log, to be cut off before anything follows.
    void: Option<Void>,
}

/// Damaged bytes of a store that was opened.
#[derive(Default)]
struct Void {
    /// Segments of which nothing is the log.
    segments: Vec<u64>,
    /// The damaged end of the reserve.
    reserve: Option<Change>,
}

/// What is known of a chunk.
#[derive(Clone, Copy)]
struct Chunk {
    /// Its first and its last index.
    first: u64,
    last: u64,
    bytes: u64,
    written_ns: u64,
}

/// A chunk that was read.
struct Opened {
    segment: u64,
    first: u64,
    items: Vec<Item>,
}

/// A run of chunks.
struct Segment {
    id: u64,
    chunks: Vec<Chunk>,
    /// Of all its chunks, with what the store puts before each.
    bytes: u64,
    /// The same of its head, which can be larger than all of them.
    head_bytes: u64,
    begun_ns: u64,
    ended_ns: u64,
}

impl Segment {
    fn new(id: u64, now_ns: u64) -> Self {
        Self { id, chunks: Vec::new(), bytes: 0, head_bytes: 0, begun_ns: now_ns, ended_ns: now_ns }
    }

    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.bytes;
        self.begun_ns = self.begun_ns.min(chunk.written_ns);
        self.ended_ns = self.ended_ns.max(chunk.written_ns);
        self.chunks.push(chunk);
    }

    /// The last index; 0 without any.
    fn last(&self) -> u64 {
        self.chunks.last().map_or(0, |chunk| chunk.last)
    }

    fn all_bytes(&self) -> u64 {
        self.head_bytes + self.bytes
    }

    /// Takes the last chunk that has anything behind an index.
    fn pop_behind(&mut self, after: u64) -> Option<Chunk> {
        let chunk = self.chunks.pop_if(|chunk| chunk.last > after)?;
        self.bytes -= chunk.bytes;
        Some(chunk)
    }
}

impl Keeper {
    /// Which part of which log is on disk.
    pub fn stored(&self) -> Stored {
        let first = self.segments.iter().flat_map(|segment| &segment.chunks).next();
        let after = first.map_or(self.begun.after, |chunk| chunk.first.saturating_sub(1));
        Stored {
            epochs: self.begun.epochs.clone(),
            after: after.max(self.begun.after),
            last: self.last,
        }
    }

    /// Bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.reserve.iter().chain(&self.segments).map(Segment::all_bytes).sum()
    }

    /// When the oldest of it was written, Unix nanoseconds; 0 where nothing is there.
    pub fn oldest_ns(&self) -> u64 {
        let written = self.segments.iter().find(|segment| !segment.chunks.is_empty());
        written.map_or(0, |oldest| oldest.begun_ns)
    }

    /// Writes. With `sync` it survives a power failure. A crash on the way leaves the log as it was, or
    /// ending where the new beginning is, or as it is to be up to some entry. That it is there must not be
    /// told before [`Keeper::acknowledge`].
    ///
    /// # Errors
    /// [`KeepError`]: what the store holds is not known any more, it must be opened again.
    pub fn write(
        &mut self,
        write: &JournalWrite,
        now_ns: u64,
        sync: bool,
    ) -> Result<(), KeepError> {
        let mut changes = Vec::new();
        let mut given_up = Vec::new();
        self.open = None;
        if write.begin.is_some() && !self.has_log {
            // Before the log, so that one without a mark has lost it. This mark says nothing of any log.
            self.put_mark(Mark::default(), true)?;
            self.has_log = true;
        }
        if let Some(begin) = &write.begin {
            match &begin.anew {
                Some(dedup) => {
                    given_up.extend(self.void.take().map(|void| void.segments).unwrap_or_default());
                    given_up.extend(self.reserve.take().map(|reserve| reserve.id));
                    given_up.extend(self.segments.drain(..).map(|segment| segment.id));
                    self.logged = PublisherRanges::new(PUBLISHERS_MAX);
                    mark(&mut self.logged, dedup);
                    changes.push(Change::Put(KEY_MARKS, record::encode_dedup(dedup)));
                    self.begun.after = begin.after;
                    // Never that of the log before, which may have no segment: what was acknowledged
                    // of that says nothing of this one.
                    self.begun.segment =
                        self.next_segment.max(self.begun.segment.saturating_add(1));
                    self.next_segment = self.begun.segment;
                }
                None => {
                    self.take_back(begin.after)?;
                    given_up = self.truncate(begin.after, now_ns, &mut changes)?;
                }
            }
            self.begun.epochs = begin.epochs.clone();
            self.last = begin.after;
            self.synced = self.synced.min(begin.after);
            changes.push(Change::Put(KEY_BEGUN, record::encode_begun(&self.begun)));
        }
        if let Some(dynamic_members) = &write.dynamic_members {
            changes.push(Change::Put(KEY_ROSTER, record::encode_dynamic_members(dynamic_members)));
        }
        if self.void.is_some() {
            given_up.extend(self.truncate(self.last, now_ns, &mut changes)?);
        }
        self.append(now_ns, &write.items, write.until, now_ns, &mut changes);
        self.store.write(changes, sync)?;
        // What says nothing of the log does not move it.
        if !write.items.is_empty() {
            self.last = write.until;
        }
        if sync {
            self.synced = self.last;
        }
        for id in given_up {
            self.store.remove_segment(id)?;
        }
        self.trim(now_ns)
    }

    /// The core is told next that everything written is there. What was not synced is marked as such
    /// before; the first time, and after one that knew of everything, that mark is synced: no power failure
    /// leaves one that claims too much.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn acknowledge(&mut self) -> Result<(), KeepError> {
        let mark = Mark {
            segment: self.begun.segment,
            acknowledged: self.last,
            synced: self.synced,
            unsynced: self.synced < self.last,
            boot: self.boot,
        };
        let is_known = self.marked && self.mark.unsynced;
        let sync = mark.unsynced && !is_known;
        self.put_mark(mark, sync)?;
        self.marked = true;
        Ok(())
    }

    /// What lies behind an index is given up on purpose. Said first, and synced: no crash must make it look
    /// lost. What is missing already is still to be told, and goes on to look so; that it had been synced says
    /// nothing of what is written in its place.
    fn take_back(&mut self, after: u64) -> Result<(), KeepError> {
        self.synced = self.synced.min(after);
        let Mark { segment, mut acknowledged, synced, .. } = self.mark;
        if after < self.last {
            acknowledged = acknowledged.min(after);
        } else if synced <= after {
            return Ok(());
        }
        match segment == self.begun.segment {
            true => {
                let mark = Mark { acknowledged, synced: self.synced, ..self.mark.clone() };
                self.put_mark(mark, true)
            }
            false => Ok(()),
        }
    }

    fn put_mark(&mut self, mark: Mark, sync: bool) -> Result<(), KeepError> {
        self.store.acknowledge(&record::encode_mark(&mark), sync)?;
        self.mark = mark;
        Ok(())
    }

    /// Makes what was written survive a power failure.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn sync(&mut self) -> Result<(), KeepError> {
        self.store.sync()?;
        self.synced = self.last;
        Ok(())
    }

    /// The same, and marks how far that is. Says whether nothing was left to be synced, or `ends` that
    /// nothing more will be written: then the mark knows of everything, until the next is acknowledged.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn settle(&mut self, ends: bool) -> Result<bool, KeepError> {
        let is_settled = ends || self.synced == self.last;
        self.sync()?;
        // One of an earlier boot is of what may have gone with that, and stays until something was acknowledged
        // in this one.
        if self.marked || self.mark.is_of(self.boot) {
            let unsynced = self.mark.unsynced && !is_settled;
            self.put_mark(Mark { synced: self.synced, unsynced, ..self.mark.clone() }, true)?;
        }
        Ok(is_settled)
    }

    /// A page of the log: what is wanted of the next `PAGE_BYTES` at most. What is damaged is
    /// missing, and the page ends before it, or begins behind it.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn page(&mut self, read: &JournalRead) -> Result<JournalPage, KeepError> {
        let chunks = self
            .reserve
            .iter()
            .chain(&self.segments)
            .flat_map(|segment| segment.chunks.iter().map(move |chunk| (segment.id, *chunk)));
        let wanted = |chunk: &Chunk| match read.since_ns {
            0 => chunk.last > read.after,
            since_ns => chunk.written_ns >= since_ns && chunk.last > read.after,
        };
        let mut left_out = false;
        let chunks = chunks.skip_while(|(_, chunk)| {
            let skipped = !wanted(chunk);
            left_out |= skipped;
            skipped
        });
        let mut chunks = chunks.collect::<VecDeque<_>>();
        let oldest = chunks.front().filter(|_| !left_out).map(|(_, chunk)| chunk.first);
        let mut page = Scan::new(read);
        while let Some((segment, chunk)) = chunks.pop_front() {
            let items = self.chunk_items(segment, chunk.first)?;
            if !page.take(&items, chunk.bytes) {
                break;
            }
        }
        let mut page = page.finish();
        // A look-back to a time that begins with the oldest entry here may reach back further.
        if let Some(before) =
            oldest.and_then(|first| first.checked_sub(1)).filter(|first| *first > 0)
            && read.since_ns > 0
            && page.after == before
        {
            let gap = missing(&self.begun.epochs, before);
            page.items.insert(0, Item { index: before, content: Content::Gap(gap) });
        }
        Ok(page)
    }

    /// The entries of a chunk, as far as they are good.
    fn chunk_items(&mut self, segment: u64, first: u64) -> Result<Vec<Item>, KeepError> {
        let known = |open: &&Opened| (open.segment, open.first) == (segment, first);
        if let Some(open) = self.open.as_ref().filter(known) {
            return Ok(open.items.clone());
        }
        let chunk = Bytes::from(self.store.chunk(segment, first)?.unwrap_or_default());
        let (items, _) = record::decode_chunk(&chunk);
        self.open = Some(Opened { segment, first, items: items.clone() });
        Ok(items)
    }

    /// Cuts off damage that was found when the store was opened, so that the next life does not find
    /// it again, and syncs what an earlier life has written.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn repair(&mut self, now_ns: u64) -> Result<(), KeepError> {
        if self.void.is_some() {
            let mut changes = Vec::new();
            let given_up = self.truncate(self.last, now_ns, &mut changes)?;
            self.store.write(changes, true)?;
            for id in given_up {
                self.store.remove_segment(id)?;
            }
        }
        self.sync()
    }

    /// No page will be asked for soon.
    pub fn close_chunk(&mut self) {
        self.open = None;
    }

    /// Takes everything behind an index back; gives the segments that hold nothing any more.
    fn truncate(
        &mut self,
        after: u64,
        now_ns: u64,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u64>, KeepError> {
        let void = self.void.take();
        let is_damaged = void.is_some();
        let Void { segments: mut emptied, reserve } = void.unwrap_or_default();
        changes.extend(reserve);
        // What is retained of segments that are gone is not enough to go on behind it.
        emptied.extend(self.reserve.take_if(|reserve| reserve.last() > after).map(|r| r.id));
        let mut cuts = Vec::new();
        let mut cut = None;
        for segment in self.segments.iter_mut().rev() {
            let id = segment.id;
            let lowest = std::iter::from_fn(|| segment.pop_behind(after)).last();
            if let Some(Chunk { first, .. }) = lowest {
                cut = Some((id, first));
            }
            // Damage lies behind the chunks of the newest segment.
            let is_cut = lowest.is_some() || (is_damaged && cuts.is_empty());
            if is_cut {
                let from = lowest.map_or(after.saturating_add(1), |chunk| chunk.first);
                cuts.push(Change::Cut { segment: id, from });
            }
            match (is_cut, segment.chunks.is_empty()) {
                (_, false) => break,
                (true, true) => emptied.push(id),
                // It has a head only: there the log begins.
                (false, true) => {}
            }
        }
        self.segments.retain(|segment| !emptied.contains(&segment.id));
        self.closed |= !cuts.is_empty();
        let Some((id, first)) = cut else {
            if !emptied.is_empty() && self.segments.is_empty() {
                changes.push(Change::Put(KEY_MARKS, record::encode_dedup(&dedup_of(&self.logged))));
                self.begun.after = self.begun.after.max(after);
                changes.push(Change::Put(KEY_BEGUN, record::encode_begun(&self.begun)));
            }
            changes.extend(cuts);
            return Ok(emptied);
        };
        self.logged = self.logged_until(id, after.min(first.saturating_sub(1)), is_damaged)?;
        if first <= after {
            let chunk = Bytes::from(self.store.chunk(id, first)?.unwrap_or_default());
            // What of it is damaged lies behind what could be read, and is given up with that.
            let written_ns = record::chunk_head(&chunk)?.written_ns;
            let (mut items, _) = record::decode_chunk(&chunk);
            items = items.iter().filter_map(|item| item.up_to(after)).collect();
            self.append(written_ns, &items, after, now_ns, changes);
        } else if self.segments.iter().all(|segment| segment.chunks.is_empty()) {
            changes.push(Change::Put(KEY_MARKS, record::encode_dedup(&dedup_of(&self.logged))));
        }
        changes.extend(cuts);
        Ok(emptied)
    }

    /// Which events had been logged up to an entry of a segment; what could not be read of that before
    /// lies behind it.
    fn logged_until(
        &mut self,
        segment: u64,
        last: u64,
        is_damaged: bool,
    ) -> Result<PublisherRanges, KeepError> {
        let mut logged = PublisherRanges::new(PUBLISHERS_MAX);
        mark(&mut logged, &dedup_at_beginning(self.store.as_mut())?);
        let mut visit = |first: u64, chunk: Vec<u8>| {
            if first == HEAD {
                // One that is damaged was told when it was read.
                if let Ok(head) = record::decode_head(chunk) {
                    mark(&mut logged, &head.dedup);
                }
            } else if first <= last {
                let (mut items, _) = record::decode_chunk(&Bytes::from(chunk));
                items.retain(|item| item.index <= last);
                note(&mut logged, &items);
            }
        };
        match self.store.read(segment, &mut visit) {
            Err(error) if !is_damaged => Err(error.into()),
            _ => Ok(logged),
        }
    }

    /// Puts entries at the end of the newest segment.
    fn append(
        &mut self,
        written_ns: u64,
        items: &[Item],
        last: u64,
        now_ns: u64,
        changes: &mut Vec<Change>,
    ) {
        let Some(first) = items.first().map(|item| item.covers_after() + 1) else { return };
        if self.needs_segment(now_ns) {
            let id = self.next_segment;
            let head = Head { after: first.saturating_sub(1), dedup: dedup_of(&self.logged) };
            let chunk = record::encode_head(&head);
            let mut segment = Segment::new(id, now_ns);
            segment.head_bytes = stored_bytes(&chunk);
            changes.push(Change::Append { segment: id, first: HEAD, chunk });
            self.segments.push_back(segment);
            self.next_segment += 1;
            self.closed = false;
        }
        note(&mut self.logged, items);
        let Some(segment) = self.segments.back_mut() else { return };
        let chunk = record::encode_chunk(written_ns, items);
        segment.push(Chunk { first, last, bytes: stored_bytes(&chunk), written_ns });
        changes.push(Change::Append { segment: segment.id, first, chunk });
    }

    /// Whether what follows begins a new segment: the newest is large or old enough, or was cut.
    fn needs_segment(&self, now_ns: u64) -> bool {
        let age_ns = u64::try_from(self.bounds.age.as_nanos()).unwrap_or(u64::MAX);
        self.closed
            || self.segments.back().is_none_or(|newest| {
                newest.bytes >= self.bounds.bytes / SEGMENTS
                    || now_ns.saturating_sub(newest.begun_ns) >= age_ns / SEGMENTS
            })
    }

    /// Removes the oldest segments beyond the bounds, but never the one that is written to. That
    /// their events were logged is in the head of the next. What is severe in them goes to the reserve.
    pub fn trim(&mut self, now_ns: u64) -> Result<(), KeepError> {
        let age_ns = u64::try_from(self.bounds.age.as_nanos()).unwrap_or(u64::MAX);
        let mut gone = Vec::new();
        let mut bytes = self.bytes();
        while self.segments.len() > 1 {
            let Some(oldest) = self.segments.front() else { break };
            let old = now_ns.saturating_sub(oldest.ended_ns) > age_ns;
            if bytes <= self.bounds.bytes && !old {
                break;
            }
            let Some(oldest) = self.segments.pop_front() else { break };
            gone.extend(self.retain(&oldest, now_ns)?);
            self.begun.after = self.begun.after.max(oldest.last());
            gone.push(oldest.id);
            bytes = self.bytes();
        }
        for id in gone {
            self.store.remove_segment(id)?;
        }
        Ok(())
    }
}

/// A gap for all entries up to an index; nothing else is known of them.
fn missing(epochs: &EpochHistory, until: u64) -> Gap {
    Gap {
        after: epochs.position(0),
        until: epochs.position(until),
        reason: GapReason::Retention,
        count: 0,
        severity_max: None,
        spaces: Spaces::ANY,
    }
}

/// Which events were logged before the log of a store began.
fn dedup_at_beginning(store: &mut dyn Store) -> Result<DedupRanges, KeepError> {
    Ok(match store.get(KEY_MARKS)? {
        Some(bytes) => record::decode_dedup(bytes)?,
        None => DedupRanges::default(),
    })
}

/// What a chunk takes on disk.
fn stored_bytes(chunk: &[u8]) -> u64 {
    (FRAME_BYTES + chunk.len()) as u64
}

fn note(logged: &mut PublisherRanges, items: &[Item]) {
    for item in items {
        if let Content::Events(run) = &item.content {
            logged.insert_run(run);
        }
    }
}

fn mark(published: &mut PublisherRanges, dedup: &DedupRanges) {
    for (publisher, ranges) in &dedup.publishers {
        for (first, last) in ranges {
            published.insert_range(*publisher, *first, *last);
        }
    }
}

fn dedup_of(published: &PublisherRanges) -> DedupRanges {
    let all = published.iter();
    DedupRanges { publishers: all.map(|(id, set)| (id, set.ranges().to_vec())).collect() }
}
