//! fjall as a store of the journal: a keyspace for each segment, one for the records.

use crate::damaged;
use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use ftb_agent::world::{Change, Store, StoreError};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of the block cache: the journal is read once, in order.
const CACHE_BYTES: u64 = 1024 * 1024;
/// Bytes that wait in memory until a segment is written in its final form; they are in fjall's own
/// journal at once.
const MEMTABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of fjall's own journal, beside the log itself; the least that it allows.
const WRITE_AHEAD_BYTES: u64 = 64 * 1024 * 1024;

const RECORDS: &str = "records";
const SEGMENT: &str = "log-";

pub(crate) struct FjallStore {
    database: Database,
    records: Keyspace,
    segments: BTreeMap<u64, Keyspace>,
}

impl FjallStore {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(WRITE_AHEAD_BYTES)
            .worker_threads(1)
            .open()?;
        let records = database.keyspace(RECORDS, KeyspaceCreateOptions::default)?;
        Ok(Self { database, records, segments: BTreeMap::new() })
    }

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
        let name = format!("{SEGMENT}{id:020}");
        let keyspace = self.database.keyspace(&name, options).map_err(damaged)?;
        self.segments.insert(id, keyspace.clone());
        Ok(keyspace)
    }
}

impl Store for FjallStore {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.records.get(key).map_err(damaged)?.map(|value| value.to_vec()))
    }

    fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
        let names = self.database.list_keyspace_names();
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
        for chunk in self.segment(segment)?.iter() {
            let (key, chunk) = chunk.into_inner().map_err(damaged)?;
            let key: [u8; 8] = key.as_ref().try_into().map_err(damaged)?;
            visit(u64::from_be_bytes(key), chunk.to_vec());
        }
        Ok(())
    }

    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.segment(segment)?.get(first.to_be_bytes()).map_err(damaged)?;
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
                Change::Cut { segment, from } => {
                    let keyspace = self.segment(segment)?;
                    for chunk in keyspace.range(from.to_be_bytes()..) {
                        batch.remove(&keyspace, chunk.key().map_err(damaged)?);
                    }
                }
            }
        }
        batch.commit().map_err(damaged)
    }

    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError> {
        let keyspace = self.segment(segment)?;
        self.segments.remove(&segment);
        self.database.delete_keyspace(keyspace).map_err(damaged)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncData).map_err(damaged)
    }

    fn acknowledge(&mut self, _record: &[u8], _sync: bool) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledged(&mut self) -> Result<Vec<u8>, StoreError> {
        Ok(Vec::new())
    }

    fn boot(&mut self) -> Option<u128> {
        None
    }
}
