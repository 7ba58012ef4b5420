//! Reads a store at the start of the agent: owner, format, segments, checkpoint.
//!
//! The log ends before the first damage; bytes behind it are void. Not responsible for: later
//! writes ([`super`]), and the entries kept in memory ([`super::super::reading`]).

use super::{
    Bounds, Chunk, HEAD, KEY_DYNAMIC_MEMBERS, KEY_MANIFEST, LogStore, LogStoreError,
    PUBLISHERS_MAX, Segment, add_ranges, dedup_at_beginning, dedup_of, note, stored_bytes,
};
use crate::journal::reading::Reading;
use crate::journal::record::{self, Checkpoint, Damaged, Manifest};
use crate::world::{Change, Store};
use bytes::Bytes;
use ftb_core::frame::DedupRanges;
use ftb_core::node::api::Restored;
use ftb_core::node::check_stored;
use ftb_core::numbers::LogIndex;
use ftb_core::ranges::PublisherRanges;
use std::collections::VecDeque;

/// The format of this version.
const FORMAT: &str = "ftb journal 2";

const KEY_FORMAT: &str = "format";
const KEY_CLUSTER: &str = "cluster";

impl LogStore {
    /// Opens a store and returns the journal with its content.
    ///
    /// # Errors
    /// [`LogStoreError`] says whether the store is another's, damaged, or fails.
    pub fn open(
        mut store: Box<dyn Store>,
        cluster: &str,
        bounds: Bounds,
        now_ns: u64,
    ) -> Result<(Self, Restored), LogStoreError> {
        check_owner(store.as_mut(), cluster)?;
        let manifest = store.get(KEY_MANIFEST)?.map(record::decode_manifest).transpose()?;
        let has_log = manifest.is_some();
        let manifest = manifest.unwrap_or_default();
        check_range(&manifest, manifest.after, now_ns)?;
        let dedup = dedup_at_beginning(store.as_mut())?;
        let mut logged = PublisherRanges::new(PUBLISHERS_MAX);
        add_ranges(&mut logged, &dedup);
        let boot = store.boot();
        let mut log_store = Self {
            store,
            bounds,
            checkpoint: Checkpoint::default(),
            has_checkpoint: false,
            is_replicated: false,
            boot,
            last: manifest.after,
            synced: manifest.after,
            // Also where no file of the log is there yet: what lies below is of one that was given
            // up.
            next_segment: manifest.segment.max(1),
            manifest,
            has_log,
            logged,
            segments: VecDeque::new(),
            reserve: None,
            closed: false,
            open: None,
            void: None,
        };
        let restored = log_store.read(now_ns)?;
        Ok((log_store, restored))
    }

    fn read(&mut self, now_ns: u64) -> Result<Restored, LogStoreError> {
        let after = self.manifest.after;
        let mut reading = Reading::new(after, self.bounds.memory_bytes, self.bounds.conditions);
        self.store.mended().into_iter().for_each(|mended| reading.damaged(mended));
        let reserve = self.reserve_id()?;
        let segments = self.store.segments()?;
        // Its entries are older than those of the segments.
        if let Some(id) = reserve.filter(|id| segments.contains(id))
            && let Some(damage) = self.read_reserve(id, now_ns, &mut reading)
        {
            reading.damaged(damage);
        }
        for id in segments {
            self.next_segment = self.next_segment.max(id.saturating_add(1));
            if Some(id) == reserve {
                continue;
            }
            if id < self.manifest.segment {
                // Of a log that was given up; the agent died before it could remove it.
                self.store.remove_segment(id)?;
                continue;
            }
            if reading.is_cut {
                self.void.get_or_insert_default().segments.push(id);
            } else {
                self.read_segment(id, now_ns, &mut reading)?;
            }
        }
        let Ended { lost_until, end_unknown, unclean } = self.read_checkpoint(after, &mut reading);
        let conditions = reading.conditions();
        let Reading { items, after, last, damage, .. } = reading;
        check_range(&self.manifest, last, now_ns)?;
        self.last = last;
        self.trim(now_ns)?;
        let dedup = dedup_of(&self.logged);
        let stored = self.stored();
        let damage =
            (!damage.is_empty()).then(|| format!("the journal is damaged: {}", damage.join("; ")));
        let dynamic_members = match self.store.get(KEY_DYNAMIC_MEMBERS)? {
            Some(bytes) => record::decode_dynamic_members(bytes)?,
            None => Vec::new(),
        };
        let (items, items_after) = (items.into(), after);
        Ok(Restored {
            stored,
            items,
            items_after,
            conditions,
            dedup,
            dynamic_members,
            lost_until,
            end_unknown,
            damage,
            unclean,
        })
    }

    /// Compares what was read with the checkpoint. A log has a checkpoint from its first entry on:
    /// one without has lost it. `after`: where the log began when the manifest was written.
    fn read_checkpoint(&mut self, after: LogIndex, reading: &mut Reading) -> Ended {
        let no_mark = |error: &dyn std::fmt::Display| {
            format!("how far it was acknowledged cannot be read, its end may be missing: {error}")
        };
        let mut end_unknown = false;
        match self.store.acknowledged() {
            Ok(bytes) if bytes.is_empty() => {
                end_unknown = self.has_log;
                if end_unknown {
                    reading.damaged(no_mark(&"the checkpoint is missing or empty"));
                }
            }
            Ok(bytes) => match record::decode_checkpoint(bytes) {
                Ok(checkpoint) => self.checkpoint = checkpoint,
                Err(damaged) => {
                    end_unknown = true;
                    reading.damaged(no_mark(&damaged));
                }
            },
            Err(error) => {
                end_unknown = true;
                reading.damaged(no_mark(&error));
            }
        }
        let (last, acknowledged) = (reading.last, self.checkpoint.acknowledged);
        if !self.has_log && self.checkpoint.segment > 0 {
            // The next log must not be taken for the one that is gone.
            self.next_segment = self.next_segment.max(self.checkpoint.segment.saturating_add(1));
            reading.damaged(format!(
                "the log is gone: entries up to {acknowledged} had been acknowledged"
            ));
        }
        let is_of_log = self.checkpoint.segment == self.manifest.segment;
        if is_of_log {
            self.synced = self.synced.max(self.checkpoint.synced.min(last));
        }
        let begin = self.checkpoint.begin.filter(|_| is_of_log).map(|begin| begin.max(after));
        if let Some(begin) = begin.filter(|begin| *begin < self.manifest.after) {
            let (first, last) = (begin + 1, self.manifest.after);
            reading.damaged(format!(
                "entries {first} to {last} are missing: the oldest segment is gone"
            ));
        }
        let lost_until = Some(acknowledged).filter(|until| is_of_log && *until > last);
        // How far the log went behind the damage is not known.
        end_unknown |= reading.is_cut && lost_until.is_none();
        if let Some(until) = lost_until {
            reading.damaged(format!("entries {} to {until} are missing", last + 1));
        }
        let is_unclean = self.checkpoint.unsynced && !self.checkpoint.is_of(self.boot);
        let unclean = is_unclean.then(|| {
            format!(
                "the machine has ended before the journal was synced: it was up to entry {}, what \
                 is there behind that is as it was found, and what was confirmed behind entry \
                 {last} may be missing here; another agent may have it",
                self.synced
            )
        });
        Ended { lost_until, end_unknown, unclean }
    }

    /// Reads a segment. One that holds nothing, or begins before the one before it ends, is left
    /// over from a crash and removed. But where the oldest begins is where the log begins.
    fn read_segment(
        &mut self,
        id: u64,
        now_ns: u64,
        reading: &mut Reading,
    ) -> Result<(), LogStoreError> {
        let is_oldest = !std::mem::replace(&mut reading.has_oldest, true);
        let mut found = SegmentReading {
            segment: Segment { last_written_ns: 0, ..Segment::new(id, now_ns) },
            is_oldest,
            starts_after: &mut self.manifest.after,
            logged: &mut self.logged,
            reading,
            dedup: None,
            no_head: None,
            is_known: false,
            unfinished: false,
        };
        let read = self.store.read(id, &mut |first, chunk| match first {
            HEAD => found.head(chunk),
            first => found.chunk(first.into(), &Bytes::from(chunk)),
        });
        let SegmentReading { segment, reading, logged, dedup, is_known, .. } = found;
        if let Err(error) = read {
            reading.end(format!("segment {id}: {error}"));
        }
        if reading.is_cut {
            let void = self.void.get_or_insert_default();
            match segment.chunks.is_empty() {
                true => void.segments.push(id),
                false => self.segments.push_back(segment),
            }
            return Ok(());
        }
        if segment.chunks.is_empty() && !(is_oldest && is_known) {
            return Ok(self.store.remove_segment(id)?);
        }
        add_ranges(logged, &dedup.unwrap_or_default());
        self.segments.push_back(segment);
        Ok(())
    }
}

/// The end of a log that was read.
struct Ended {
    /// Entries up to this index are missing.
    lost_until: Option<LogIndex>,
    /// The end of the log is unknown.
    end_unknown: bool,
    /// A power failure may have removed entries.
    unclean: Option<String>,
}

/// A segment while it is read.
struct SegmentReading<'a> {
    segment: Segment,
    is_oldest: bool,
    /// Behind which index the log begins.
    starts_after: &'a mut LogIndex,
    logged: &'a mut PublisherRanges,
    reading: &'a mut Reading,
    /// What its head says was logged before, until an entry follows.
    dedup: Option<DedupRanges>,
    /// What is wrong with its head, until an entry follows. A segment without an entry held
    /// nothing that was acknowledged.
    no_head: Option<Damaged>,
    /// It is known where it begins.
    is_known: bool,
    /// It is of a beginning that was not finished: nothing of it is the log.
    unfinished: bool,
}

impl SegmentReading<'_> {
    fn head(&mut self, chunk: Vec<u8>) {
        self.segment.head_bytes = stored_bytes(&chunk);
        match record::decode_head(chunk) {
            Ok(head) => {
                self.begins(head.after);
                self.dedup = Some(head.dedup);
            }
            Err(damaged) => self.no_head = Some(damaged),
        }
    }

    fn begins(&mut self, after: LogIndex) {
        self.is_known = true;
        if self.is_oldest {
            self.reading.begin(after);
            *self.starts_after = self.reading.last;
        }
        self.unfinished = after < self.reading.last && !self.is_oldest;
    }

    fn chunk(&mut self, first: LogIndex, chunk: &Bytes) {
        if let Some(damaged) = self.no_head.take() {
            // Its first chunk says where it begins, too.
            self.begins(first.before());
            if !self.unfinished {
                let id = self.segment.id;
                self.reading.end(format!("the head of segment {id}: {damaged}"));
            }
        }
        if self.unfinished || self.reading.is_cut {
            return;
        }
        let (items, head) = record::decode_chunk(chunk);
        let before = self.reading.last;
        self.reading.take(&items);
        if self.reading.is_cut && self.reading.last == before {
            return;
        }
        let bytes = stored_bytes(chunk);
        let mut last = items.last().map_or(first, |item| item.index);
        if let Err(damaged) = &head {
            self.reading.end(format!("the chunk at entry {first}: {damaged}"));
            if items.is_empty() {
                return;
            }
            // Its good entries are written again when the damage is cut off.
            last = last.next();
        }
        add_ranges(self.logged, &self.dedup.take().unwrap_or_default());
        note(self.logged, &items);
        let written_ns = record::chunk_head(chunk).map_or(0, |head| head.written_ns);
        self.segment.push(Chunk { first, last, bytes, written_ns });
    }
}

/// Rejects a log with numbers that other agents would reject.
fn check_range(manifest: &Manifest, last: LogIndex, now_ns: u64) -> Result<(), LogStoreError> {
    check_stored(&manifest.epochs, last, now_ns).map_err(|found| {
        LogStoreError::Damaged(format!("its log has {found}: no other agent would accept it"))
    })
}

/// Checks cluster and format; a new store gets both.
fn check_owner(store: &mut dyn Store, cluster: &str) -> Result<(), LogStoreError> {
    let Some(format) = store.get(KEY_FORMAT)? else {
        let changes =
            vec![Change::Put(KEY_FORMAT, FORMAT.into()), Change::Put(KEY_CLUSTER, cluster.into())];
        return Ok(store.write(changes, true)?);
    };
    if format != FORMAT.as_bytes() {
        let format = String::from_utf8_lossy(&format).into_owned();
        let known = format.strip_prefix("ftb journal ").is_some_and(|v| v.parse::<u32>().is_ok());
        return Err(match known {
            true => LogStoreError::Foreign(format!(
                "it is in the format {format:?}, this version reads {FORMAT:?}: run the version \
                 that wrote it, or move it away"
            )),
            false => LogStoreError::Damaged("the record of the format cannot be read".to_owned()),
        });
    }
    let owner = store.get(KEY_CLUSTER)?.unwrap_or_default();
    match owner == cluster.as_bytes() {
        true => Ok(()),
        false => Err(LogStoreError::Foreign(format!(
            "it is the journal of cluster {:?}, this agent is of {cluster:?}: give [journal] \
             another path, or move it away",
            String::from_utf8_lossy(&owner)
        ))),
    }
}
