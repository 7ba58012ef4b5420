//! The log in a [`Store`]: written in chunks, cut into segments, bounded by size and age; read again
//! when the agent starts.
//!
//! Responsible for: the layout, what is kept and what goes, and that nothing damaged is taken for the
//! log. Not responsible for: when it is called ([`super::task`]), how a store keeps bytes.
//!
//! A segment is a run of chunks; the key of a chunk is the index of its first entry. Beside the
//! segments there are records: the format, the cluster, which log it is ([`Begun`]), the events that
//! were logged before the oldest segment, the ranks of agents that are in no member list, and up to
//! which index was acknowledged. The last one shows a tail that is missing.

use super::record::{self, Begun, Damaged};
use crate::world::{Change, Store, StoreError};
use bytes::Bytes;
use ftb_core::frame::{Content, Item, Marks};
use ftb_core::limits::BATCH_BYTES_TARGET;
use ftb_core::node::api::{JournalPage, JournalRead, JournalWrite, Restored, Stored};
use ftb_core::ranges::PublisherRanges;
use std::collections::VecDeque;
use std::time::Duration;

/// The format that this version writes, and the only one that it reads.
const FORMAT: &str = "ftb journal 1";
/// The log is cut into so many segments; the oldest goes as a whole.
const SEGMENTS: u64 = 8;
/// Bytes of the log that are looked through for one page.
const PAGE_BYTES: u64 = 1024 * 1024;
/// Publishers whose events are remembered beyond what is kept of the log.
const PUBLISHERS_MAX: usize = 65_536;

const KEY_FORMAT: &str = "format";
const KEY_CLUSTER: &str = "cluster";
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
    /// Events that were logged before the oldest segment.
    before: PublisherRanges,
    segments: VecDeque<Segment>,
    next_segment: u64,
    last: u64,
    /// The chunk that was looked through last, for the next page.
    open: Option<Opened>,
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
    begun_ns: u64,
    ended_ns: u64,
    published: PublisherRanges,
}

impl Segment {
    fn new(id: u64, now_ns: u64) -> Self {
        let published = PublisherRanges::new(PUBLISHERS_MAX);
        Self { id, chunks: Vec::new(), begun_ns: now_ns, ended_ns: now_ns, published }
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    fn note(&mut self, items: &[Item]) {
        for item in items {
            if let Content::Events(run) = &item.content {
                self.published.insert_run(run);
            }
        }
    }
}

/// What reading the segments has found so far.
struct Reading {
    items: VecDeque<Item>,
    bytes: usize,
    bytes_max: usize,
    after: u64,
    last: u64,
    damage: Vec<String>,
}

impl Reading {
    /// Takes the entries of a chunk; those before a hole are given up.
    fn take(&mut self, items: &[Item]) {
        for item in items {
            if item.index <= self.last {
                continue;
            }
            if item.index != self.last + 1 {
                let (from, until) = (self.last + 1, item.index - 1);
                self.damage.push(format!("entries {from} to {until} cannot be read"));
                self.items.clear();
                self.bytes = 0;
                self.after = until;
            }
            self.last = item.index;
            self.bytes += item.content.len();
            self.items.push_back(item.clone());
            while self.bytes > self.bytes_max {
                let Some(oldest) = self.items.pop_front() else { break };
                self.bytes -= oldest.content.len();
                self.after = oldest.index;
            }
        }
    }
}

impl Keeper {
    /// Opens what a store holds: the journal, and what an agent that starts finds in it.
    ///
    /// # Errors
    /// [`KeepError`] says whether the store is another's, damaged, or fails.
    pub fn open(
        mut store: Box<dyn Store>,
        cluster: &str,
        bounds: Bounds,
        now_ns: u64,
    ) -> Result<(Self, Restored), KeepError> {
        check_owner(store.as_mut(), cluster)?;
        let begun = match store.get(KEY_BEGUN)? {
            Some(bytes) => record::decode_begun(bytes)?,
            None => Begun::default(),
        };
        let marks = match store.get(KEY_MARKS)? {
            Some(bytes) => record::decode_marks(bytes)?,
            None => Marks::default(),
        };
        let mut before = PublisherRanges::new(PUBLISHERS_MAX);
        mark(&mut before, &marks);
        let mut keeper = Self {
            store,
            bounds,
            last: begun.after,
            begun,
            before,
            segments: VecDeque::new(),
            next_segment: 1,
            open: None,
        };
        let restored = keeper.read(now_ns)?;
        Ok((keeper, restored))
    }

    fn read(&mut self, now_ns: u64) -> Result<Restored, KeepError> {
        let mut reading = Reading {
            items: VecDeque::new(),
            bytes: 0,
            bytes_max: self.bounds.memory_bytes,
            after: self.begun.after,
            last: self.begun.after,
            damage: Vec::new(),
        };
        for id in self.store.segments()? {
            self.next_segment = self.next_segment.max(id + 1);
            if id < self.begun.segment {
                // Of a log that was given up; the agent died before it could remove it.
                self.store.remove_segment(id)?;
                continue;
            }
            self.read_segment(id, now_ns, &mut reading)?;
        }
        let Reading { items, after, last, mut damage, .. } = reading;
        self.last = last;
        let acknowledged = self.store.acknowledged().and_then(record::decode_acknowledged);
        let known = acknowledged.filter(|(segment, _)| *segment == self.begun.segment);
        let lost_until = known.map(|(_, index)| index).filter(|index| *index > last);
        if let Some(until) = lost_until {
            damage.push(format!("entries {} to {until} are missing", last + 1));
        }
        self.trim(now_ns)?;
        let mut published = self.before.clone();
        for segment in &self.segments {
            for (publisher, set) in segment.published.iter() {
                for (first, last) in set.ranges() {
                    published.insert_range(publisher, *first, *last);
                }
            }
        }
        let marks = marks_of(&published);
        let stored = self.stored();
        let damage = (!damage.is_empty()).then(|| {
            damage.truncate(8);
            format!("the journal is damaged: {}", damage.join("; "))
        });
        let roster = match self.store.get(KEY_ROSTER)? {
            Some(bytes) => record::decode_roster(bytes)?,
            None => Vec::new(),
        };
        let (items, items_after) = (items.into(), after);
        Ok(Restored { stored, items, items_after, marks, roster, lost_until, damage })
    }

    fn read_segment(
        &mut self,
        id: u64,
        now_ns: u64,
        reading: &mut Reading,
    ) -> Result<(), KeepError> {
        let mut segment = Segment::new(id, now_ns);
        segment.begun_ns = u64::MAX;
        segment.ended_ns = 0;
        let mut visit = |first: u64, chunk: Vec<u8>| {
            let chunk = Bytes::from(chunk);
            let (items, head) = record::decode_chunk(&chunk);
            let mut written_ns = segment.ended_ns;
            match head {
                Ok(head) => {
                    written_ns = head.written_ns;
                    segment.begun_ns = segment.begun_ns.min(written_ns);
                    segment.ended_ns = segment.ended_ns.max(written_ns);
                }
                Err(damaged) => {
                    reading.damage.push(format!("the chunk at entry {first}: {damaged}"));
                }
            }
            segment.note(&items);
            let last = items.last().map_or(first, |item| item.index);
            segment.chunks.push(Chunk { first, last, bytes: chunk.len() as u64, written_ns });
            reading.take(&items);
        };
        if let Err(error) = self.store.read(id, &mut visit) {
            reading.damage.push(format!("segment {id}: {error}"));
        }
        segment.begun_ns = segment.begun_ns.min(now_ns);
        self.segments.push_back(segment);
        Ok(())
    }

    /// Which part of which log is on disk.
    pub fn stored(&self) -> Stored {
        let first = self.segments.iter().flat_map(|segment| &segment.chunks).next();
        let after = first.map_or(self.begun.after, |chunk| chunk.first.saturating_sub(1));
        Stored {
            lineage: self.begun.lineage.clone(),
            after: after.max(self.begun.after),
            last: self.last,
        }
    }

    /// Bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(Segment::bytes).sum()
    }

    /// When the oldest of it was written, Unix nanoseconds; 0 where nothing is there.
    pub fn oldest_ns(&self) -> u64 {
        let written = self.segments.iter().find(|segment| !segment.chunks.is_empty());
        written.map_or(0, |oldest| oldest.begun_ns)
    }

    /// Writes; all of it is there afterwards, or none. With `sync` it survives a power failure.
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
        if let Some(begin) = &write.begin {
            match &begin.anew {
                Some(marks) => {
                    given_up.extend(self.segments.drain(..).map(|segment| segment.id));
                    self.before = PublisherRanges::new(PUBLISHERS_MAX);
                    mark(&mut self.before, marks);
                    changes.push(Change::Put(KEY_MARKS, record::encode_marks(marks)));
                    self.begun.after = begin.after;
                    self.begun.segment = self.next_segment;
                }
                None => {
                    // Said first: a crash must not make what is given up look lost.
                    self.acknowledge(begin.after.min(self.last))?;
                    self.truncate(begin.after, now_ns, &mut changes)?;
                }
            }
            self.begun.lineage = begin.lineage.clone();
            self.last = begin.after;
            changes.push(Change::Put(KEY_BEGUN, record::encode_begun(&self.begun)));
        }
        if let Some(roster) = &write.roster {
            changes.push(Change::Put(KEY_ROSTER, record::encode_roster(roster)));
        }
        if let Some(first) = write.items.first() {
            let id = self.open_segment(now_ns);
            let chunk = record::encode_chunk(now_ns, &write.items);
            if let Some(segment) = self.segments.back_mut() {
                segment.note(&write.items);
                segment.ended_ns = segment.ended_ns.max(now_ns);
                let (first, last, bytes) = (first.index, write.until, chunk.len() as u64);
                segment.chunks.push(Chunk { first, last, bytes, written_ns: now_ns });
            }
            changes.push(Change::Append { segment: id, first: first.index, chunk });
        }
        self.store.write(changes, sync)?;
        // What says nothing of the log does not move it.
        if !write.items.is_empty() {
            self.last = write.until;
        }
        for id in given_up {
            self.store.remove_segment(id)?;
        }
        self.trim(now_ns)?;
        self.acknowledge(self.last)
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), KeepError> {
        let record = record::encode_acknowledged(self.begun.segment, index);
        Ok(self.store.acknowledge(&record)?)
    }

    /// Makes what was written survive a power failure.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn sync(&mut self) -> Result<(), KeepError> {
        Ok(self.store.sync()?)
    }

    /// A page of the log: what is wanted of the next `PAGE_BYTES` at most. What is damaged is
    /// missing, and the page ends before it, or begins behind it.
    ///
    /// # Errors
    /// As [`Keeper::write`].
    pub fn page(&mut self, read: &JournalRead) -> Result<JournalPage, KeepError> {
        let chunks = self
            .segments
            .iter()
            .flat_map(|segment| segment.chunks.iter().map(move |chunk| (segment.id, *chunk)));
        let wanted = |chunk: &Chunk| match read.since_ns {
            0 => chunk.last > read.after,
            since_ns => chunk.written_ns >= since_ns && chunk.last > read.after,
        };
        let mut chunks = chunks.skip_while(|(_, chunk)| !wanted(chunk)).collect::<VecDeque<_>>();
        let mut page = Scan::new(read);
        while let Some((segment, chunk)) = chunks.pop_front() {
            let items = self.chunk_items(segment, chunk.first)?;
            if !page.take(&items, chunk.bytes) {
                break;
            }
        }
        Ok(page.finish())
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

    /// No page will be asked for soon.
    pub fn close_chunk(&mut self) {
        self.open = None;
    }

    /// Takes everything behind an index back.
    fn truncate(
        &mut self,
        after: u64,
        now_ns: u64,
        changes: &mut Vec<Change>,
    ) -> Result<(), KeepError> {
        for segment in self.segments.iter_mut().rev() {
            let mut cut = None;
            while let Some(Chunk { first, last, .. }) = segment.chunks.last().copied() {
                if last <= after {
                    break;
                }
                segment.chunks.pop();
                match first <= after {
                    true => cut = Some(first),
                    false => changes.push(Change::Remove { segment: segment.id, first }),
                }
            }
            if let Some(first) = cut {
                let chunk = self.store.chunk(segment.id, first)?.map(Bytes::from);
                let chunk = chunk.unwrap_or_default();
                // What of it is damaged lies behind what could be read, and is given up with that.
                let written_ns = record::chunk_head(&chunk)?.written_ns;
                let (mut items, _) = record::decode_chunk(&chunk);
                items.retain(|item| item.index <= after);
                let chunk = record::encode_chunk(written_ns, &items);
                let bytes = chunk.len() as u64;
                segment.chunks.push(Chunk { first, last: after, bytes, written_ns });
                changes.push(Change::Append { segment: segment.id, first, chunk });
            }
            if !segment.chunks.is_empty() {
                break;
            }
        }
        if !changes.is_empty() {
            // A store may not be asked to remove a chunk and to write one of the same key at once.
            self.begin_segment(now_ns);
        }
        Ok(())
    }

    fn begin_segment(&mut self, now_ns: u64) {
        self.segments.push_back(Segment::new(self.next_segment, now_ns));
        self.next_segment += 1;
    }

    /// The segment that is written to: a new one when the newest is large or old enough.
    fn open_segment(&mut self, now_ns: u64) -> u64 {
        let age_ns = u64::try_from(self.bounds.age.as_nanos()).unwrap_or(u64::MAX);
        let full = self.segments.back().is_none_or(|newest| {
            newest.bytes() >= self.bounds.bytes / SEGMENTS
                || now_ns.saturating_sub(newest.begun_ns) >= age_ns / SEGMENTS
        });
        if full {
            self.begin_segment(now_ns);
        }
        self.segments.back().map_or(0, |newest| newest.id)
    }

    /// Removes the oldest segments beyond the bounds, but never the one that is written to. That
    /// their events were logged is remembered.
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
            bytes -= oldest.bytes();
            let Some(oldest) = self.segments.pop_front() else { break };
            mark(&mut self.before, &marks_of(&oldest.published));
            let last = oldest.chunks.last().map_or(self.begun.after, |chunk| chunk.last);
            self.begun.after = self.begun.after.max(last);
            gone.push(oldest.id);
        }
        if gone.is_empty() {
            return Ok(());
        }
        let marks = record::encode_marks(&marks_of(&self.before));
        let begun = record::encode_begun(&self.begun);
        let changes = vec![Change::Put(KEY_MARKS, marks), Change::Put(KEY_BEGUN, begun)];
        self.store.write(changes, false)?;
        for id in gone {
            self.store.remove_segment(id)?;
        }
        Ok(())
    }
}

/// Entries that are looked through for a page.
struct Scan<'a> {
    read: &'a JournalRead,
    after: u64,
    entries: Vec<Item>,
    last: u64,
    looked_bytes: u64,
    wanted_bytes: usize,
}

impl<'a> Scan<'a> {
    fn new(read: &'a JournalRead) -> Self {
        let after = read.after;
        Self { read, after, entries: Vec::new(), last: after, looked_bytes: 0, wanted_bytes: 0 }
    }

    /// Takes the entries of the next chunk; says whether there is room for another.
    fn take(&mut self, items: &[Item], bytes: u64) -> bool {
        self.looked_bytes += bytes;
        for item in items {
            if item.index <= self.last || self.entries.is_empty() && self.is_too_old(item) {
                continue;
            }
            if self.entries.is_empty() {
                self.after = item.index - 1;
            } else if item.index != self.last + 1 {
                return false;
            }
            self.last = item.index;
            if let Content::Events(run) = &item.content {
                let wanted = run.iter().filter(|event| self.read.filters.matches(*event));
                self.wanted_bytes += wanted.map(|event| event.bytes().len()).sum::<usize>();
            }
            self.entries.push(item.clone());
        }
        self.looked_bytes < PAGE_BYTES && self.wanted_bytes < BATCH_BYTES_TARGET
    }

    /// What was written after a time can be an event of before.
    fn is_too_old(&self, item: &Item) -> bool {
        match &item.content {
            Content::Events(run) => run.iter().all(|e| e.head().time_ns < self.read.since_ns),
            Content::Gap(_) => false,
        }
    }

    fn finish(self) -> JournalPage {
        JournalPage::pick(self.read, self.after, self.entries)
    }
}

/// Whether the store is this cluster's and in this version's format; a fresh one becomes so.
fn check_owner(store: &mut dyn Store, cluster: &str) -> Result<(), KeepError> {
    let Some(format) = store.get(KEY_FORMAT)? else {
        let changes =
            vec![Change::Put(KEY_FORMAT, FORMAT.into()), Change::Put(KEY_CLUSTER, cluster.into())];
        return Ok(store.write(changes, true)?);
    };
    if format != FORMAT.as_bytes() {
        let format = String::from_utf8_lossy(&format).into_owned();
        let known = format.strip_prefix("ftb journal ").is_some_and(|v| v.parse::<u32>().is_ok());
        return Err(match known {
            true => KeepError::Foreign(format!(
                "it is in the format {format:?}, this version reads {FORMAT:?}: run the version \
                 that wrote it, or move it away"
            )),
            false => KeepError::Damaged("the record of the format cannot be read".to_owned()),
        });
    }
    let owner = store.get(KEY_CLUSTER)?.unwrap_or_default();
    match owner == cluster.as_bytes() {
        true => Ok(()),
        false => Err(KeepError::Foreign(format!(
            "it is the journal of cluster {:?}, this agent is of {cluster:?}: give [journal] \
             another path, or move it away",
            String::from_utf8_lossy(&owner)
        ))),
    }
}

fn mark(published: &mut PublisherRanges, marks: &Marks) {
    for (publisher, ranges) in &marks.publishers {
        for (first, last) in ranges {
            published.insert_range(*publisher, *first, *last);
        }
    }
}

fn marks_of(published: &PublisherRanges) -> Marks {
    let all = published.iter();
    Marks { publishers: all.map(|(id, set)| (id, set.ranges().to_vec())).collect() }
}
