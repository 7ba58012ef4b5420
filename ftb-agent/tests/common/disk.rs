//! A store in memory, for worlds in memory: it outlives its agent, and can be full or damaged.

use ftb_agent::journal::log_store::HEAD;
use ftb_agent::world::{Change, Storage, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The disk of one host.
#[derive(Default)]
pub struct MemoryStorage {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    content: Option<Content>,
    aside: usize,
    /// Bytes that can still be written, where there is a bound.
    free_bytes: Option<u64>,
    /// Every write fails, although there is room.
    broken: bool,
    /// What is there is not seen before it is opened.
    late: bool,
    /// Every sync fails.
    unsyncable: bool,
    opened: usize,
    /// How often its machine has lost power.
    power_failures: u128,
    /// What it had at a moment.
    remembered: Option<Content>,
}

#[derive(Clone, Default)]
struct Content {
    records: BTreeMap<String, Vec<u8>>,
    segments: BTreeMap<u64, BTreeMap<u64, Vec<u8>>>,
    acknowledged: Vec<u8>,
    /// Chunks that were written since the last sync,
    unsynced: BTreeSet<(u64, u64)>,
    /// and those that a sync that failed has left: no other sync writes them, and they read well.
    forgotten: BTreeSet<(u64, u64)>,
}

impl MemoryStorage {
    /// Limits the bytes that can still be written; `None`: no limit.
    pub fn set_free(&self, free_bytes: Option<u64>) {
        self.disk().free_bytes = free_bytes;
    }

    /// Lets every write fail from now on, or none: a store can be opened and read all the same.
    pub fn set_broken(&self, broken: bool) {
        self.disk().broken = broken;
    }

    /// Lets every sync fail from now on, or none.
    pub fn set_unsyncable(&self, unsyncable: bool) {
        self.disk().unsyncable = unsyncable;
    }

    /// Hides what is there from who looks whether there is anything, as a disk does that is mounted
    /// between that and the first write.
    pub fn set_late(&self, late: bool) {
        self.disk().late = late;
    }

    /// Lets the machine end that it is in, and start again; what was written is there all the same.
    pub fn power_failure(&self) {
        self.disk().power_failures += 1;
    }

    /// Remembers what it holds now.
    pub fn remember(&self) {
        let mut disk = self.disk();
        disk.remembered = disk.content.clone();
    }

    /// The power had failed before anything was written behind the moment that it remembers.
    pub fn power_failed_then(&self) {
        self.power_failure();
        let mut disk = self.disk();
        disk.content = disk.remembered.take();
    }

    /// The same, and the chunks that are not on the disk are gone: those that were not synced, and
    /// those that a failed sync has left. Records and checkpoint stay as they were written.
    pub fn power_failure_that_takes_all_it_may(&self) {
        self.power_failure();
        if let Some(content) = &mut self.disk().content {
            let gone = std::mem::take(&mut content.unsynced);
            for (segment, first) in gone.into_iter().chain(std::mem::take(&mut content.forgotten)) {
                content.segments.get_mut(&segment).and_then(|chunks| chunks.remove(&first));
            }
            content.segments.retain(|_, chunks| !chunks.is_empty());
        }
    }

    /// How often a store was opened.
    pub fn opened(&self) -> usize {
        self.disk().opened
    }

    /// Changes the bytes of all chunks of all segments, but not their heads.
    pub fn damage_chunks(&self, mut how: impl FnMut(&mut Vec<u8>)) {
        if let Some(content) = &mut self.disk().content {
            let chunks = content.segments.values_mut().flatten();
            chunks.filter(|(key, _)| **key != HEAD).for_each(|(_, chunk)| how(chunk));
        }
    }

    /// Changes a record.
    pub fn damage_record(&self, key: &str, how: impl FnOnce(&mut Vec<u8>)) {
        if let Some(record) =
            self.disk().content.as_mut().and_then(|content| content.records.get_mut(key))
        {
            how(record);
        }
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.disk().content.as_ref().map_or(0, |content| content.segments.len())
    }

    /// How many stores were set aside.
    pub fn aside(&self) -> usize {
        self.disk().aside
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// One that fails takes note of nothing: what it should have written counts as written for the
    /// next.
    fn sync(&mut self) -> Result<(), StoreError> {
        let content = self.content.get_or_insert_default();
        let unsynced = std::mem::take(&mut content.unsynced);
        if self.unsyncable {
            content.forgotten.extend(unsynced);
            return Err(StoreError::Unsynced(io::Error::other("the disk cannot be synced")));
        }
        Ok(())
    }
}

impl Storage for MemoryStorage {
    fn exists(&self, _folder: &Path) -> bool {
        let disk = self.disk();
        disk.content.is_some() && !disk.late
    }

    fn open(&self, _folder: &Path) -> Result<Box<dyn Store>, StoreError> {
        let mut disk = self.disk();
        disk.opened += 1;
        disk.content.get_or_insert_default();
        Ok(Box::new(MemoryStore { disk: Arc::clone(&self.disk) }))
    }

    fn set_aside(&self, folder: &Path, _now_ns: u64) -> Result<PathBuf, StoreError> {
        let mut disk = self.disk();
        disk.content = None;
        disk.aside += 1;
        Ok(folder.join("aside"))
    }

    fn free_bytes(&self, _folder: &Path) -> io::Result<u64> {
        Ok(self.disk().free_bytes.unwrap_or(u64::MAX))
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

struct MemoryStore {
    disk: Arc<Mutex<Disk>>,
}

impl MemoryStore {
    fn with<T>(&self, what: impl FnOnce(&mut Content) -> T) -> T {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        what(disk.content.get_or_insert_default())
    }
}

impl Store for MemoryStore {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.with(|content| content.records.get(key).cloned()))
    }

    fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
        Ok(self.with(|content| content.segments.keys().copied().collect()))
    }

    fn read(
        &mut self,
        segment: u64,
        visit: &mut dyn FnMut(u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        let chunks = self.with(|content| content.segments.get(&segment).cloned());
        chunks.into_iter().flatten().for_each(|(first, chunk)| visit(first, chunk));
        Ok(())
    }

    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.with(|content| content.segments.get(&segment)?.get(&first).cloned()))
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        let bytes: u64 = changes.iter().map(size).sum();
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if disk.broken {
            return Err(StoreError::Io(io::Error::other("the disk is broken")));
        }
        if let Some(free) = &mut disk.free_bytes {
            *free = free
                .checked_sub(bytes)
                .ok_or_else(|| StoreError::Io(io::ErrorKind::StorageFull.into()))?;
        }
        for change in changes {
            if !matches!(change, Change::Append { .. }) {
                disk.sync()?;
            }
            let content = disk.content.get_or_insert_default();
            match change {
                Change::Put(key, value) => {
                    content.records.insert(key.to_owned(), value);
                }
                Change::Append { segment, first, chunk } => {
                    content.segments.entry(segment).or_default().insert(first, chunk);
                    content.forgotten.remove(&(segment, first));
                    content.unsynced.insert((segment, first));
                }
                Change::Cut { segment, from } => {
                    content.segments.entry(segment).or_default().split_off(&from);
                }
            }
        }
        if sync { disk.sync() } else { Ok(()) }
    }

    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError> {
        self.with(|content| content.segments.remove(&segment));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).sync()
    }

    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError> {
        self.with(|content| content.acknowledged = record.to_vec());
        if sync { self.sync() } else { Ok(()) }
    }

    fn acknowledged(&mut self) -> Result<Vec<u8>, StoreError> {
        Ok(self.with(|content| content.acknowledged.clone()))
    }

    fn boot(&mut self) -> Option<u128> {
        Some(1 + self.disk.lock().unwrap_or_else(PoisonError::into_inner).power_failures)
    }
}

fn size(change: &Change) -> u64 {
    match change {
        Change::Put(_, bytes) | Change::Append { chunk: bytes, .. } => bytes.len() as u64,
        Change::Cut { .. } => 0,
    }
}
