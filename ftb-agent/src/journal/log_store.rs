//! The log in a [`Store`]: chunks in segments, limited by size and age.
//!
//! Not responsible for: reading a store at the start (`opening`), the time of calls
//! ([`super::task`]), files ([`super::files`]).
//!
//! A segment is a sequence of chunks; the key of a chunk is the index of its first entry. A segment
//! starts with a [`Head`] at key [`HEAD`]: its start index and the dedup ranges before it. Beside
//! the segments there are records: the format, the cluster, which log it is ([`Manifest`]), the
//! events that were logged before that began, the ranks of agents that are in no member list, and a
//! [`Checkpoint`]: up to which index was acknowledged, and synced. That shows a tail that is
//! missing, and whether one may be missing that it does not know of.
//!
//! A store applies changes in order, and a crash leaves the first few changes of a write. So new
//! data is written before the data that it replaces is removed. The manifest comes after both.

mod opening;
mod reserve;

use super::reading::Scan;
use super::record::{self, Checkpoint, Damaged, Head, Manifest};
use super::segment::FRAME_BYTES;
use crate::world::{Change, Store, StoreError};
use bytes::Bytes;
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Content, DedupRanges, Item};
use ftb_core::log::conditions::ConditionLimits;
use ftb_core::node::api::{Gap, GapReason, JournalPage, JournalRead, JournalWrite, Stored};
use ftb_core::numbers::LogIndex;
use ftb_core::ranges::PublisherRanges;
use ftb_core::{EventSpace, Spaces};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Number of segments; the oldest goes as a whole.
const SEGMENTS: u64 = 8;
/// Publishers with dedup ranges.
const PUBLISHERS_MAX: usize = 65_536;
/// The key of a segment's head: no entry has that index.
pub const HEAD: u64 = 0;

const KEY_MANIFEST: &str = "begun";
const KEY_DEDUP: &str = "marks";
const KEY_DYNAMIC_MEMBERS: &str = "roster";

/// Limits of a journal.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// Entries older than this go.
    pub age: Duration,
    /// Bytes of the log read into memory at the start.
    pub memory_bytes: usize,
    /// Event spaces with a share of the reserve.
    pub protected: Arc<[EventSpace]>,
    /// Bounds of the table of conditions, whose events are retained.
    pub conditions: ConditionLimits,
}

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogStoreError {
    /// It belongs to another cluster or version and must not be changed.
    #[error("{0}")]
    Foreign(String),
    /// It is damaged and must be renamed.
    #[error("{0}")]
    Damaged(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LogStoreError {
    /// Whether an fsync has failed.
    pub fn is_fsync(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unsynced(_)))
    }
}

impl From<Damaged> for LogStoreError {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged.to_string())
    }
}

/// An open journal.
pub struct LogStore {
    store: Box<dyn Store>,
    bounds: Bounds,
    manifest: Manifest,
    /// The store contains a log, so it has a checkpoint.
    has_log: bool,
    /// Dedup ranges of all logged events, removed segments included.
    logged: PublisherRanges,
    segments: VecDeque<Segment>,
    /// Retained events of removed segments.
    reserve: Option<Segment>,
    next_segment: u64,
    /// The next chunk starts a new segment.
    closed: bool,
    last: LogIndex,
    /// Synced up to this index.
    synced: LogIndex,
    /// The last written checkpoint.
    checkpoint: Checkpoint,
    /// The checkpoint was written since the store was opened.
    has_checkpoint: bool,
    /// The mark: entries that are not here yet may be confirmed.
    is_replicated: bool,
    /// The boot id of the machine.
    boot: Option<u128>,
    /// The chunk of the last page, for the next one.
    open: Option<ReadChunk>,
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

/// Position of a chunk.
#[derive(Clone, Copy)]
struct Chunk {
    /// Its first and its last index.
    first: LogIndex,
    last: LogIndex,
    bytes: u64,
    written_ns: u64,
}

/// A chunk in memory.
struct ReadChunk {
    segment: u64,
    first: LogIndex,
    items: Vec<Item>,
}

/// A sequence of chunks.
struct Segment {
    id: u64,
    chunks: Vec<Chunk>,
    /// Bytes of all chunks with their frames.
    bytes: u64,
    /// Bytes of its head.
    head_bytes: u64,
    first_written_ns: u64,
    last_written_ns: u64,
}

impl Segment {
    fn new(id: u64, now_ns: u64) -> Self {
        Self {
            id,
            chunks: Vec::new(),
            bytes: 0,
            head_bytes: 0,
            first_written_ns: now_ns,
            last_written_ns: now_ns,
        }
    }

    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.bytes;
        self.first_written_ns = self.first_written_ns.min(chunk.written_ns);
        self.last_written_ns = self.last_written_ns.max(chunk.written_ns);
        self.chunks.push(chunk);
    }

    /// The last index; 0 without chunks.
    fn last(&self) -> LogIndex {
        self.chunks.last().map_or(LogIndex::ZERO, |chunk| chunk.last)
    }

    fn all_bytes(&self) -> u64 {
        self.head_bytes + self.bytes
    }

    /// Takes the last chunk that has anything after an index.
    fn pop_after(&mut self, after: LogIndex) -> Option<Chunk> {
        let chunk = self.chunks.pop_if(|chunk| chunk.last > after)?;
        self.bytes -= chunk.bytes;
        Some(chunk)
    }
}

impl LogStore {
    /// The part of the log on disk.
    pub fn stored(&self) -> Stored {
        let first = self.segments.iter().flat_map(|segment| &segment.chunks).next();
        let after = first.map_or(self.manifest.after, |chunk| chunk.first.before());
        Stored {
            epochs: self.manifest.epochs.clone(),
            after: after.max(self.manifest.after),
            last: self.last,
        }
    }

    /// A power failure leaves the log up to this index.
    pub fn synced(&self) -> LogIndex {
        self.synced
    }

    /// Bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.reserve.iter().chain(&self.segments).map(Segment::all_bytes).sum()
    }

    /// When the oldest entry was written, in Unix nanoseconds; 0 without entries.
    pub fn oldest_ns(&self) -> u64 {
        let written = self.segments.iter().find(|segment| !segment.chunks.is_empty());
        written.map_or(0, |oldest| oldest.first_written_ns)
    }

    /// Writes. With `sync` the write survives a power failure. A crash on the way leaves the log as
    /// it was, or ending at the new beginning, or as written up to some entry. The agent must not
    /// report the write before [`LogStore::acknowledge`].
    ///
    /// # Errors
    /// [`LogStoreError`]: what the store holds is not known any more, it must be opened again.
    pub fn write(
        &mut self,
        write: &JournalWrite,
        now_ns: u64,
        sync: bool,
    ) -> Result<(), LogStoreError> {
        let mut changes = Vec::new();
        let mut given_up = Vec::new();
        self.open = None;
        self.is_replicated = write.is_replicated;
        if write.begin.is_some() && !self.has_log {
            // Before the log, so that one without a checkpoint has lost it. This checkpoint says
            // nothing of any log.
            self.put_checkpoint(Checkpoint::default(), true)?;
            self.has_log = true;
        }
        if let Some(begin) = &write.begin {
            match &begin.anew {
                Some(dedup) => {
                    given_up.extend(self.void.take().map(|void| void.segments).unwrap_or_default());
                    given_up.extend(self.reserve.take().map(|reserve| reserve.id));
                    given_up.extend(self.segments.drain(..).map(|segment| segment.id));
                    self.logged = PublisherRanges::new(PUBLISHERS_MAX);
                    add_ranges(&mut self.logged, dedup);
                    changes.push(Change::Put(KEY_DEDUP, record::encode_dedup(dedup)));
                    self.manifest.after = begin.after;
                    // Never that of the log before, which may have no segment: what was
                    // acknowledged of that says nothing of this one.
                    self.manifest.segment =
                        self.next_segment.max(self.manifest.segment.saturating_add(1));
                    self.next_segment = self.manifest.segment;
                }
                None => {
                    self.take_back(begin.after)?;
                    given_up = self.truncate(begin.after, now_ns, &mut changes)?;
                }
            }
            self.manifest.epochs = begin.epochs.clone();
            self.last = begin.after;
            self.synced = self.synced.min(begin.after);
            changes.push(Change::Put(KEY_MANIFEST, record::encode_manifest(&self.manifest)));
        }
        if let Some(dynamic_members) = &write.dynamic_members {
            let record = record::encode_dynamic_members(dynamic_members);
            changes.push(Change::Put(KEY_DYNAMIC_MEMBERS, record));
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

    /// Writes the checkpoint; the agent notifies the core next that everything is written. If
    /// something is not synced yet, or confirmed before it is written, the first such checkpoint is
    /// synced: no power failure leaves one that claims too much.
    ///
    /// # Errors
    /// As [`LogStore::write`].
    pub fn acknowledge(&mut self) -> Result<(), LogStoreError> {
        let checkpoint = Checkpoint {
            segment: self.manifest.segment,
            acknowledged: self.last,
            synced: self.synced,
            unsynced: self.is_replicated || self.synced < self.last,
            boot: self.boot,
            begin: Some(self.manifest.after),
        };
        let is_known = self.has_checkpoint && self.checkpoint.unsynced;
        let sync = checkpoint.unsynced && !is_known;
        self.put_checkpoint(checkpoint, sync)?;
        self.has_checkpoint = true;
        Ok(())
    }

    /// Takes entries after an index out of the checkpoint before they are truncated, synced: no
    /// crash may make them look lost. Entries that are missing already stay in it, to be reported.
    fn take_back(&mut self, after: LogIndex) -> Result<(), LogStoreError> {
        self.synced = self.synced.min(after);
        let Checkpoint { segment, mut acknowledged, synced, .. } = self.checkpoint;
        if after < self.last {
            acknowledged = acknowledged.min(after);
        } else if synced <= after {
            return Ok(());
        }
        match segment == self.manifest.segment {
            true => {
                let checkpoint =
                    Checkpoint { acknowledged, synced: self.synced, ..self.checkpoint.clone() };
                self.put_checkpoint(checkpoint, true)
            }
            false => Ok(()),
        }
    }

    fn put_checkpoint(&mut self, checkpoint: Checkpoint, sync: bool) -> Result<(), LogStoreError> {
        self.store.acknowledge(&record::encode_checkpoint(&checkpoint), sync)?;
        self.checkpoint = checkpoint;
        Ok(())
    }

    /// Syncs the log.
    ///
    /// # Errors
    /// As [`LogStore::write`].
    pub fn sync(&mut self) -> Result<(), LogStoreError> {
        self.store.sync()?;
        self.synced = self.last;
        Ok(())
    }

    /// The same, and marks how far that is. Says whether nothing was left to be synced, or `ends`
    /// that nothing more will be written: then the checkpoint knows of everything, until the next
    /// is acknowledged, unless another agent confirms too.
    ///
    /// # Errors
    /// As [`LogStore::write`].
    pub fn settle(&mut self, ends: bool) -> Result<bool, LogStoreError> {
        let is_settled = ends || self.synced == self.last;
        self.sync()?;
        // One of an earlier boot is of what may have gone with that, and stays until something was
        // acknowledged in this one.
        if self.has_checkpoint || self.checkpoint.is_of(self.boot) {
            let is_known = is_settled && (ends || !self.is_replicated);
            let unsynced = self.checkpoint.unsynced && !is_known;
            self.put_checkpoint(
                Checkpoint { synced: self.synced, unsynced, ..self.checkpoint.clone() },
                true,
            )?;
        }
        Ok(is_settled)
    }

    /// A page of the log: what is wanted of the next `PAGE_BYTES` at most. What is damaged is
    /// missing, and the page ends before it, or begins behind it.
    ///
    /// # Errors
    /// As [`LogStore::write`].
    pub fn page(&mut self, read: &JournalRead) -> Result<JournalPage, LogStoreError> {
        let chunks = self
            .reserve
            .iter()
            .chain(&self.segments)
            .flat_map(|segment| segment.chunks.iter().map(move |chunk| (segment.id, *chunk)));
        let wanted = |chunk: &Chunk| match read.since_ns {
            None => chunk.last > read.after,
            Some(since_ns) => chunk.written_ns >= since_ns && chunk.last > read.after,
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
        if let Some(before) = oldest.map(LogIndex::before).filter(|first| *first > LogIndex::ZERO)
            && read.since_ns.is_some()
            && page.after == before
        {
            let gap = missing(&self.manifest.epochs, before);
            page.items.insert(0, Item { index: before, content: Content::Gap(gap) });
        }
        Ok(page)
    }

    /// The valid entries of a chunk.
    fn chunk_items(&mut self, segment: u64, first: LogIndex) -> Result<Vec<Item>, LogStoreError> {
        let known = |open: &&ReadChunk| (open.segment, open.first) == (segment, first);
        if let Some(open) = self.open.as_ref().filter(known) {
            return Ok(open.items.clone());
        }
        let chunk = Bytes::from(self.store.chunk(segment, first.get())?.unwrap_or_default());
        let (items, _) = record::decode_chunk(&chunk);
        self.open = Some(ReadChunk { segment, first, items: items.clone() });
        Ok(items)
    }

    /// Cuts off damage that was found when the store was opened, so that the next life does not
    /// find it again, and syncs what an earlier life has written.
    ///
    /// # Errors
    /// As [`LogStore::write`].
    pub fn repair(&mut self, now_ns: u64) -> Result<(), LogStoreError> {
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

    /// Frees the chunk of the last page.
    pub fn close_chunk(&mut self) {
        self.open = None;
    }

    /// Removes everything after an index; returns the segments that are empty then.
    fn truncate(
        &mut self,
        after: LogIndex,
        now_ns: u64,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u64>, LogStoreError> {
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
            let lowest = std::iter::from_fn(|| segment.pop_after(after)).last();
            if let Some(Chunk { first, .. }) = lowest {
                cut = Some((id, first));
            }
            // Damage lies behind the chunks of the newest segment.
            let is_cut = lowest.is_some() || (is_damaged && cuts.is_empty());
            if is_cut {
                let from = lowest.map_or(after.next(), |chunk| chunk.first);
                cuts.push(Change::Cut { segment: id, from: from.get() });
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
                changes.push(Change::Put(KEY_DEDUP, record::encode_dedup(&dedup_of(&self.logged))));
                self.manifest.after = self.manifest.after.max(after);
                changes.push(Change::Put(KEY_MANIFEST, record::encode_manifest(&self.manifest)));
            }
            changes.extend(cuts);
            return Ok(emptied);
        };
        self.logged = self.logged_until(id, after.min(first.before()), is_damaged)?;
        if first <= after {
            let chunk = Bytes::from(self.store.chunk(id, first.get())?.unwrap_or_default());
            // What of it is damaged lies behind what could be read, and is given up with that.
            let written_ns = record::chunk_head(&chunk)?.written_ns;
            let (mut items, _) = record::decode_chunk(&chunk);
            items = items.iter().filter_map(|item| item.up_to(after)).collect();
            self.append(written_ns, &items, after, now_ns, changes);
        } else if self.segments.iter().all(|segment| segment.chunks.is_empty()) {
            changes.push(Change::Put(KEY_DEDUP, record::encode_dedup(&dedup_of(&self.logged))));
        }
        changes.extend(cuts);
        Ok(emptied)
    }

    /// Which events had been logged up to an entry of a segment; what could not be read of that
    /// before lies behind it.
    fn logged_until(
        &mut self,
        segment: u64,
        last: LogIndex,
        is_damaged: bool,
    ) -> Result<PublisherRanges, LogStoreError> {
        let mut logged = PublisherRanges::new(PUBLISHERS_MAX);
        add_ranges(&mut logged, &dedup_at_beginning(self.store.as_mut())?);
        let mut visit = |first: u64, chunk: Vec<u8>| {
            if first == HEAD {
                // A damaged one was reported when it was read.
                if let Ok(head) = record::decode_head(chunk) {
                    add_ranges(&mut logged, &head.dedup);
                }
            } else if first <= last.get() {
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

    /// Appends entries to the newest segment.
    fn append(
        &mut self,
        written_ns: u64,
        items: &[Item],
        last: LogIndex,
        now_ns: u64,
        changes: &mut Vec<Change>,
    ) {
        let Some(first) = items.first().map(|item| item.covers_after() + 1) else { return };
        if self.needs_segment(now_ns) {
            let id = self.next_segment;
            let head = Head { after: first.before(), dedup: dedup_of(&self.logged) };
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
        changes.push(Change::Append { segment: segment.id, first: first.get(), chunk });
    }

    /// Whether the next chunk starts a new segment: the newest is full, old, or was cut.
    fn needs_segment(&self, now_ns: u64) -> bool {
        let age_ns = u64::try_from(self.bounds.age.as_nanos()).unwrap_or(u64::MAX);
        self.closed
            || self.segments.back().is_none_or(|newest| {
                newest.bytes >= self.bounds.bytes / SEGMENTS
                    || now_ns.saturating_sub(newest.first_written_ns) >= age_ns / SEGMENTS
            })
    }

    /// Removes the oldest segments beyond the bounds, but never the one that is written to. That
    /// their events were logged is in the head of the next. What is severe in them goes to the
    /// reserve.
    pub fn trim(&mut self, now_ns: u64) -> Result<(), LogStoreError> {
        let age_ns = u64::try_from(self.bounds.age.as_nanos()).unwrap_or(u64::MAX);
        let mut gone = Vec::new();
        let mut bytes = self.bytes();
        while self.segments.len() > 1 {
            let Some(oldest) = self.segments.front() else { break };
            let old = now_ns.saturating_sub(oldest.last_written_ns) > age_ns;
            if bytes <= self.bounds.bytes && !old {
                break;
            }
            let Some(oldest) = self.segments.pop_front() else { break };
            gone.extend(self.retain(&oldest, now_ns)?);
            self.manifest.after = self.manifest.after.max(oldest.last());
            gone.push(oldest.id);
            bytes = self.bytes();
        }
        if !gone.is_empty() && self.checkpoint.segment == self.manifest.segment {
            // Synced before the segments go: else their absence is reported as damage.
            let begin = Some(self.manifest.after);
            self.put_checkpoint(Checkpoint { begin, ..self.checkpoint.clone() }, true)?;
        }
        for id in gone {
            self.store.remove_segment(id)?;
        }
        Ok(())
    }
}

/// A gap for all entries up to an index, with unknown content.
fn missing(epochs: &EpochHistory, until: LogIndex) -> Gap {
    Gap {
        after: epochs.position(LogIndex::ZERO),
        until: epochs.position(until),
        reason: GapReason::Retention,
        count: None,
        severity_max: None,
        spaces: Spaces::ANY,
    }
}

/// The dedup ranges before the start of the log.
fn dedup_at_beginning(store: &mut dyn Store) -> Result<DedupRanges, LogStoreError> {
    Ok(match store.get(KEY_DEDUP)? {
        Some(bytes) => record::decode_dedup(bytes)?,
        None => DedupRanges::default(),
    })
}

/// Size of a chunk on disk, in bytes.
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

fn add_ranges(published: &mut PublisherRanges, dedup: &DedupRanges) {
    for (publisher, ranges) in &dedup.publishers {
        for (first, last) in ranges {
            published.insert_range(*publisher, (*first).into(), (*last).into());
        }
    }
}

fn dedup_of(published: &PublisherRanges) -> DedupRanges {
    let all = published.iter();
    DedupRanges { publishers: all.map(|(id, set)| (id, set.ranges().to_vec())).collect() }
}
