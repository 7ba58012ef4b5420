//! The journal's store on disk, by fjall: a keyspace for each segment, one for the records.
//!
//! Responsible for: fjall's options, and errors in place of its panics. Not responsible for: what the
//! bytes mean. docs/journal.md says why it is fjall.

use crate::world::{Change, Storage, Store, StoreError};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Where the database lies in the journal's folder.
const DATABASE: &str = "store";
/// The record of what was acknowledged: beside the database, to be read when that is damaged.
const ACKNOWLEDGED: &str = "acknowledged";
/// Databases that were set aside; the oldest beyond it is removed.
const SET_ASIDE_MAX: usize = 2;
/// What set-aside databases are called, with the time behind it.
const SET_ASIDE: &str = "store.damaged-";
/// Bytes of the block cache: the journal is read once, in order.
const CACHE_BYTES: u64 = 1024 * 1024;
/// Bytes that wait in memory until a segment is written in its final form; they are in fjall's own
/// journal at once.
const MEMTABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of fjall's own journal, beside the log itself; the least that it allows.
const WRITE_AHEAD_BYTES: u64 = 64 * 1024 * 1024;
/// Longest record of what was acknowledged, in bytes.
const ACKNOWLEDGED_BYTES_MAX: usize = 64;

const RECORDS: &str = "records";
const SEGMENT: &str = "log-";

/// Stores on the disks of this host.
pub struct DiskStorage;

impl Storage for DiskStorage {
    fn exists(&self, folder: &Path) -> bool {
        folder.join(DATABASE).exists()
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Store>, StoreError> {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
        let acknowledged = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(folder.join(ACKNOWLEDGED))?;
        let path = folder.join(DATABASE);
        let opened = guarded(|| {
            let database = Database::builder(&path)
                .cache_size(CACHE_BYTES)
                .max_journaling_size(WRITE_AHEAD_BYTES)
                .worker_threads(1)
                .open()?;
            let records = database.keyspace(RECORDS, KeyspaceCreateOptions::default)?;
            Ok((database, records))
        });
        let (database, records) = opened?;
        Ok(Box::new(FjallStore { database, records, segments: BTreeMap::new(), acknowledged }))
    }

    fn set_aside(&self, folder: &Path, now_ns: u64) -> io::Result<PathBuf> {
        let mut old: Vec<PathBuf> = std::fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(SET_ASIDE))
            })
            .collect();
        old.sort();
        for path in old.iter().take(old.len().saturating_sub(SET_ASIDE_MAX - 1)) {
            std::fs::remove_dir_all(path)?;
        }
        let aside = folder.join(format!("{SET_ASIDE}{:020}", now_ns / 1_000_000_000));
        std::fs::rename(folder.join(DATABASE), &aside)?;
        Ok(aside)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let stat = nix::sys::statvfs::statvfs(there)?;
        // Their types differ between platforms.
        #[allow(clippy::useless_conversion)]
        let (blocks, size): (u64, u64) =
            (stat.blocks_available().into(), stat.fragment_size().into());
        Ok(blocks.saturating_mul(size))
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

struct FjallStore {
    database: Database,
    records: Keyspace,
    segments: BTreeMap<u64, Keyspace>,
    acknowledged: File,
}

/// Runs something of fjall's. It meets bytes that are damaged with errors, and now and then with a
/// panic: either way the store is not to be used any more.
fn guarded<T>(what: impl FnOnce() -> fjall::Result<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(what)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)))) => {
            Err(failed(error))
        }
        Ok(Err(fjall::Error::Locked)) => Err(StoreError::Locked),
        Ok(Err(fjall::Error::Poisoned)) => {
            Err(StoreError::Io(io::Error::other("an earlier write has failed")))
        }
        Ok(Err(error)) => Err(StoreError::Damaged(format!("{error:?}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(StoreError::Damaged(text.unwrap_or("the store panicked").to_owned()))
        }
    }
}

/// What an error of the file system means: a file that is not where another says it is, or ends too
/// early, is damage.
fn failed(error: io::Error) -> StoreError {
    use io::ErrorKind::{AlreadyExists, InvalidData, InvalidInput, NotFound, UnexpectedEof};
    match error.kind() {
        AlreadyExists | InvalidData | InvalidInput | NotFound | UnexpectedEof => {
            StoreError::Damaged(error.to_string())
        }
        _ => StoreError::Io(error),
    }
}

fn name_of(segment: u64) -> String {
    format!("{SEGMENT}{segment:020}")
}

impl FjallStore {
    fn segment(&mut self, id: u64) -> Result<Keyspace, StoreError> {
        if let Some(keyspace) = self.segments.get(&id) {
            return Ok(keyspace.clone());
        }
        let options = || {
            // Chunks are large, come in order, and are read once: no need to compress or filter.
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .data_block_compression_policy(fjall::config::CompressionPolicy::disabled())
        };
        let keyspace = guarded(|| self.database.keyspace(&name_of(id), options))?;
        self.segments.insert(id, keyspace.clone());
        Ok(keyspace)
    }
}

impl Store for FjallStore {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value = guarded(|| self.records.get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
        let names = guarded(|| Ok(self.database.list_keyspace_names()))?;
        let ids = names.iter().filter_map(|name| name.strip_prefix(SEGMENT)?.parse().ok());
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn read(
        &mut self,
        segment: u64,
        visit: &mut dyn FnMut(u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        let keyspace = self.segment(segment)?;
        let mut chunks = guarded(|| Ok(keyspace.iter()))?;
        loop {
            let Some((key, chunk)) =
                guarded(|| chunks.next().map(fjall::Guard::into_inner).transpose())?
            else {
                return Ok(());
            };
            let key: [u8; 8] = key
                .as_ref()
                .try_into()
                .map_err(|_| StoreError::Damaged("a key that is no index".to_owned()))?;
            visit(u64::from_be_bytes(key), chunk.to_vec());
        }
    }

    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let keyspace = self.segment(segment)?;
        let value = guarded(|| keyspace.get(first.to_be_bytes()))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        let mode = if sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.database.batch().durability(Some(mode));
        for change in changes {
            match change {
                Change::Put(key, value) => batch.insert(&self.records, key, value),
                Change::Append { segment, first, chunk } => {
                    batch.insert(&self.segment(segment)?, first.to_be_bytes(), chunk);
                }
                Change::Remove { segment, first } => {
                    batch.remove(&self.segment(segment)?, first.to_be_bytes());
                }
            }
        }
        guarded(|| batch.commit())
    }

    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError> {
        let keyspace = self.segment(segment)?;
        self.segments.remove(&segment);
        guarded(|| self.database.delete_keyspace(keyspace))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        guarded(|| self.database.persist(PersistMode::SyncData))
    }

    fn acknowledge(&mut self, record: &[u8]) -> Result<(), StoreError> {
        Ok(self.acknowledged.write_all_at(record, 0)?)
    }

    fn acknowledged(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; ACKNOWLEDGED_BYTES_MAX];
        let len = self.acknowledged.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(len);
        Some(bytes)
    }
}
