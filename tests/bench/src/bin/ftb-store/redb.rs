//! redb as a store of the journal.

use crate::damaged;
use anyhow::Result;
use ftb_agent::world::{Change, Store, StoreError};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use std::path::Path;

/// redb: one table of records, one of chunks.
pub(crate) struct RedbStore {
    database: Database,
}

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
const CHUNKS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("chunks");

impl RedbStore {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(Self { database: Database::create(path)? })
    }
}

impl Store for RedbStore {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = self.database.begin_read().map_err(damaged)?;
        let Ok(table) = read.open_table(RECORDS) else { return Ok(None) };
        Ok(table.get(key).map_err(damaged)?.map(|value| value.value().to_vec()))
    }

    fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
        let read = self.database.begin_read().map_err(damaged)?;
        let Ok(table) = read.open_table(CHUNKS) else { return Ok(Vec::new()) };
        let mut segments = Vec::new();
        for chunk in table.iter().map_err(damaged)? {
            segments.push(chunk.map_err(damaged)?.0.value().0);
        }
        segments.dedup();
        Ok(segments)
    }

    fn read(
        &mut self,
        segment: u64,
        visit: &mut dyn FnMut(u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        let read = self.database.begin_read().map_err(damaged)?;
        let table = read.open_table(CHUNKS).map_err(damaged)?;
        for chunk in table.range((segment, 0)..=(segment, u64::MAX)).map_err(damaged)? {
            let (key, chunk) = chunk.map_err(damaged)?;
            visit(key.value().1, chunk.value().to_vec());
        }
        Ok(())
    }

    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let read = self.database.begin_read().map_err(damaged)?;
        let table = read.open_table(CHUNKS).map_err(damaged)?;
        Ok(table.get((segment, first)).map_err(damaged)?.map(|value| value.value().to_vec()))
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        let mut write = self.database.begin_write().map_err(damaged)?;
        // Without a sync nothing reaches the file: such a commit does not survive the process.
        let durability = if sync { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(damaged)?;
        {
            let mut records = write.open_table(RECORDS).map_err(damaged)?;
            let mut chunks = write.open_table(CHUNKS).map_err(damaged)?;
            for change in changes {
                match change {
                    Change::Put(key, value) => {
                        records.insert(key, value.as_slice()).map_err(damaged)?;
                    }
                    Change::Append { segment, first, chunk } => {
                        chunks.insert((segment, first), chunk.as_slice()).map_err(damaged)?;
                    }
                    Change::Cut { segment, from } => {
                        let range = (segment, from)..=(segment, u64::MAX);
                        chunks.retain_in(range, |_, _| false).map_err(damaged)?;
                    }
                }
            }
        }
        write.commit().map_err(damaged)
    }

    fn remove_segment(&mut self, _segment: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.write(vec![Change::Put("synced", Vec::new())], true)
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
