//! What a journal retains of segments that went: one segment before all others, the *reserve*.
//!
//! When the oldest segment goes, its severe events and a gap for each hole are put at the end of
//! the reserve. When that is too long, it is written anew, to another segment, with less: what goes
//! first is the core's decision ([`Retained`]). A record says which segment is the reserve, and of
//! which log.
//!
//! Order: what is retained is synced before the segment goes that it is of. A crash in between
//! leaves both, and the events are read once. A new reserve that no record names begins before the
//! segment before it ends, and is removed as such when the store is opened; the old one goes
//! likewise.

use super::{Chunk, HEAD, LogStore, LogStoreError, Segment, stored_bytes};
use crate::journal::reading::Reading;
use crate::journal::record::{self, Head};
use crate::world::Change;
use bytes::Bytes;
use ftb_core::Run;
use ftb_core::frame::{Content, DedupRanges, Item};
use ftb_core::node::{Reserve, Retained};
use ftb_core::numbers::LogIndex;
use std::sync::Arc;

/// The record of which segment is the reserve.
pub(super) const KEY_RESERVE: &str = "reserve";
/// Part of the journal's bytes that the reserve may use.
const RESERVE_PART: u64 = 4;
/// Entries of one chunk of the reserve.
const CHUNK_ENTRIES: usize = 1_024;

/// Entries that go, and when they were written.
struct Source {
    items: Vec<Item>,
    last: LogIndex,
    written_ns: u64,
}

impl LogStore {
    /// Puts what is to be retained of a segment, the oldest, to the reserve; gives the segments
    /// that are not the reserve any more.
    pub(super) fn retain(
        &mut self,
        oldest: &Segment,
        now_ns: u64,
    ) -> Result<Vec<u64>, LogStoreError> {
        let Some(first) = oldest.chunks.first() else { return Ok(Vec::new()) };
        let bytes_max = self.bounds.bytes / RESERVE_PART;
        let mut sources = self.sources(oldest)?;
        let Some(reserve) = self.reserve.take() else {
            self.write_reserve(&sources, bytes_max, now_ns)?;
            return Ok(Vec::new());
        };
        let mut before = reserve;
        // After a crash it may have what is to be added already.
        if before.last() < first.first {
            let part = Retained::later_part(first.first.before(), self.bounds.conditions);
            let retained = self.compact(part, &sources, bytes_max, now_ns);
            match self.add_to(before, &retained, &sources, bytes_max)? {
                None => return Ok(Vec::new()),
                Some(too_long) => before = too_long,
            }
        }
        let mut all = self.sources(&before)?;
        all.append(&mut sources);
        self.write_reserve(&all, bytes_max, now_ns)?;
        Ok(vec![before.id])
    }

    /// The entries of a segment, as far as they can be read.
    fn sources(&mut self, segment: &Segment) -> Result<Vec<Source>, LogStoreError> {
        let mut sources = Vec::with_capacity(segment.chunks.len());
        let known = |first| segment.chunks.binary_search_by_key(&first, |chunk| chunk.first).ok();
        let read = self.store.read(segment.id, &mut |first, bytes| {
            if let Some(chunk) = known(first.into()).and_then(|at| segment.chunks.get(at)) {
                let (items, _) = record::decode_chunk(&Bytes::from(bytes));
                let (last, written_ns) = (chunk.last, chunk.written_ns);
                sources.push(Source { items: runs(items), last, written_ns });
            }
        });
        read?;
        Ok(sources)
    }

    /// What is retained of entries that follow others; nothing of those that are too old.
    fn compact(
        &self,
        mut retained: Retained,
        sources: &[Source],
        bytes_max: u64,
        now_ns: u64,
    ) -> Retained {
        let age_ns = u64::try_from(self.bounds.age.as_nanos()).unwrap_or(u64::MAX);
        let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let (protected, conditions) = (&self.bounds.protected, self.bounds.conditions);
        let mark = Some(ftb_proto::event::counted_mark());
        let reserve = |bytes| Reserve { bytes, protected: Arc::clone(protected), conditions, mark };
        let (young, old) = (reserve(bytes), reserve(0));
        for source in sources {
            let is_old = now_ns.saturating_sub(source.written_ns) > age_ns;
            let reserve = if is_old { &old } else { &young };
            source.items.iter().for_each(|item| retained.take(item, reserve));
        }
        retained
    }

    /// Puts more at the end of the reserve; gives it back where it is too long then.
    fn add_to(
        &mut self,
        mut reserve: Segment,
        retained: &Retained,
        sources: &[Source],
        bytes_max: u64,
    ) -> Result<Option<Segment>, LogStoreError> {
        let changes = self.chunks(&mut reserve, retained, sources);
        if reserve.bytes > bytes_max {
            reserve.chunks.truncate(reserve.chunks.len() - changes.len());
            return Ok(Some(reserve));
        }
        self.store.write(changes, true)?;
        self.reserve = Some(reserve);
        Ok(None)
    }

    /// Writes the reserve anew, with room for more.
    fn write_reserve(
        &mut self,
        sources: &[Source],
        bytes_max: u64,
        now_ns: u64,
    ) -> Result<(), LogStoreError> {
        let id = self.next_segment;
        self.next_segment += 1;
        let after = sources.iter().flat_map(|source| &source.items).next();
        let after = after.map_or(LogIndex::ZERO, Item::covers_after);
        let all = Retained::new(after, self.bounds.conditions);
        let retained = self.compact(all, sources, bytes_max / 4 * 3, now_ns);
        let head = record::encode_head(&Head { after, dedup: DedupRanges::default() });
        let mut reserve = Segment::new(id, now_ns);
        reserve.head_bytes = stored_bytes(&head);
        let mut changes = vec![Change::Append { segment: id, first: HEAD, chunk: head }];
        changes.extend(self.chunks(&mut reserve, &retained, sources));
        let named = record::encode_reserve(self.manifest.segment, id);
        changes.push(Change::Put(KEY_RESERVE, named));
        self.store.write(changes, true)?;
        self.reserve = Some(reserve);
        Ok(())
    }

    /// The chunks that hold what is retained; the segment knows of them then.
    fn chunks(&self, into: &mut Segment, retained: &Retained, sources: &[Source]) -> Vec<Change> {
        let items: Vec<Item> = retained.items(LogIndex::ZERO, &self.manifest.epochs).collect();
        let mut changes = Vec::new();
        for items in items.chunks(CHUNK_ENTRIES) {
            let (Some(first), Some(last)) = (items.first(), items.last()) else { continue };
            let (first, last) = (first.covers_after() + 1, last.last());
            let source = sources.iter().find(|source| source.last >= last).or(sources.last());
            let written_ns = source.map_or(0, |source| source.written_ns);
            let chunk = record::encode_chunk(written_ns, items);
            into.push(Chunk { first, last, bytes: stored_bytes(&chunk), written_ns });
            changes.push(Change::Append { segment: into.id, first: first.get(), chunk });
        }
        changes
    }

    /// Which segment is the reserve of this log.
    pub(super) fn reserve_id(&mut self) -> Result<Option<u64>, LogStoreError> {
        let Some(bytes) = self.store.get(KEY_RESERVE)? else { return Ok(None) };
        let (of, id) = record::decode_reserve(bytes)?;
        Ok((of == self.manifest.segment).then_some(id))
    }

    /// Reads where the chunks of the reserve lie. One that is damaged ends before that.
    pub(super) fn read_reserve(
        &mut self,
        id: u64,
        now_ns: u64,
        reading: &mut Reading,
    ) -> Option<String> {
        let mut segment = Segment { last_written_ns: 0, ..Segment::new(id, now_ns) };
        let (mut damage, mut cut) = (None, None);
        let read = self.store.read(id, &mut |first, chunk| {
            if first == HEAD {
                segment.head_bytes = stored_bytes(&chunk);
                return;
            }
            let bytes = stored_bytes(&chunk);
            let (items, head) = record::decode_chunk(&Bytes::from(chunk));
            match (head, items.last()) {
                (Ok(head), Some(last)) if damage.is_none() => {
                    let (last, written_ns) = (last.last(), head.written_ns);
                    items.iter().for_each(|item| reading.take_older(item));
                    segment.push(Chunk { first: first.into(), last, bytes, written_ns });
                }
                (Err(damaged), _) if damage.is_none() => {
                    damage = Some(format!("the retained events at entry {first}: {damaged}"));
                    cut = Some(first);
                }
                _ => {}
            }
        });
        if let Err(error) = read {
            damage.get_or_insert(format!("the retained events: {error}"));
        }
        if damage.is_some() {
            let void = self.void.get_or_insert_default();
            match (segment.chunks.last(), cut) {
                (None, _) => void.segments.push(id),
                (Some(last), cut) => {
                    let from = cut.unwrap_or(last.last.next().get());
                    void.reserve = Some(Change::Cut { segment: id, from });
                }
            }
        }
        self.reserve = (!segment.chunks.is_empty()).then_some(segment);
        damage
    }
}

/// The same entries, events that follow each other as one.
fn runs(items: Vec<Item>) -> Vec<Item> {
    let mut runs = Vec::new();
    let mut events: Vec<Item> = Vec::new();
    let gather = |events: &mut Vec<Item>, runs: &mut Vec<Item>| {
        let all = events.iter().filter_map(|item| match &item.content {
            Content::Events(run) => Some(run.iter()),
            Content::Gap(_) => None,
        });
        let run = Run::collect(all.flatten());
        if let (Some(first), Some(run)) = (events.first(), run) {
            runs.push(Item { index: first.index, content: Content::Events(run) });
        }
        events.clear();
    };
    for item in items {
        let follows = events.last().is_none_or(|last| last.last() + 1 == item.index);
        if !follows || matches!(item.content, Content::Gap(_)) {
            gather(&mut events, &mut runs);
        }
        match &item.content {
            Content::Gap(_) => runs.push(item),
            Content::Events(_) => events.push(item),
        }
    }
    gather(&mut events, &mut runs);
    runs
}
