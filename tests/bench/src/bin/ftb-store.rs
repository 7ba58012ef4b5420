//! Which store the journal deserves: the same log, written by the agent's own keeper into fjall, redb
//! and a plain file, synced with every write or not at all. `ftb-store FOLDER [MIB]`.
//!
//! A write is what the driver hands out at once: 1, 32 or 1,024 events of 200 bytes. Each row says
//! events and writes a second, the median and the worst write, what lies on the disk for each byte of
//! events, and how long it takes to open it again and read everything.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use ftb_agent::journal::fjall::DiskStorage;
use ftb_agent::journal::keeper::{Bounds, Keeper};
use ftb_agent::world::{Change, Storage as _, Store, StoreError};
use ftb_core::frame::{Content, Item, Marks};
use ftb_core::lineage::Lineage;
use ftb_core::node::api::{JournalBegin, JournalWrite};
use ftb_core::{Epoch, Event, EventId, EventName, EventSpace, OriginId, PublisherId};
use ftb_proto::event::{Stamps, encode_event, seal};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PAYLOAD: usize = 200;
/// A run ends after that, whatever is written by then.
const RUN: Duration = Duration::from_secs(4);
const NAMES: [&str; 3] = ["fjall", "redb", "plain file"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ftb-store: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ftb-store FOLDER [MIB]";
    let folder = arguments.next().context(usage)?;
    let mib: u64 = arguments.next().unwrap_or_else(|| "96".to_owned()).parse().context(usage)?;
    println!(
        "| store | write | synced | events/s | writes/s | median | worst | bytes on disk for each | read again |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for sync in [false, true] {
        for batch in [1, 32, 1024] {
            for name in NAMES {
                let dir = tempfile::Builder::new().prefix("ftb-store.").tempdir_in(&folder)?;
                let row = measure(name, dir.path(), batch, sync, mib << 20)?;
                println!("{row}");
            }
        }
    }
    Ok(())
}

fn open(name: &str, folder: &Path) -> Result<Box<dyn Store>> {
    Ok(match name {
        "fjall" => DiskStorage.open(folder)?,
        "redb" => Box::new(RedbStore { database: Database::create(folder.join("redb"))? }),
        _ => Box::new(FileStore(
            File::options().create(true).append(true).read(true).open(folder.join("file"))?,
        )),
    })
}

fn measure(name: &str, folder: &Path, batch: u64, sync: bool, bytes: u64) -> Result<String> {
    let bounds =
        || Bounds { bytes: 1 << 40, age: Duration::from_secs(1 << 20), memory_bytes: usize::MAX };
    let (mut keeper, _) = Keeper::open(open(name, folder)?, "bench", bounds(), 1)?;
    let items = items(batch)?;
    let each = items.first().map_or(0, |item| item.content.len()) as u64;
    let mut lineage = Lineage::new();
    lineage.open(Epoch { number: 1, root: OriginId(1) }, 1, false);
    let mut begin = Some(JournalBegin { lineage, after: 0, anew: Some(Marks::default()) });
    let mut times = Vec::new();
    let mut index = 0;
    let start = Instant::now();
    while start.elapsed() < RUN && index * each < bytes {
        let numbered = items.iter().zip(index + 1..);
        let items = numbered.map(|(item, index)| Item { index, ..item.clone() }).collect();
        index += batch;
        let write =
            JournalWrite { generation: 1, begin: begin.take(), items, until: index, roster: None };
        let before = Instant::now();
        keeper.write(&write, 1, sync)?;
        times.push(before.elapsed());
    }
    let took = start.elapsed().as_secs_f64();
    // What is only in memory so far does not count as written.
    if !sync {
        keeper.sync()?;
    }
    drop(keeper);
    let on_disk = disk_bytes(folder)?;
    let before = Instant::now();
    if name != "plain file" {
        let (_, restored) = Keeper::open(open(name, folder)?, "bench", bounds(), 1)?;
        ensure!(restored.stored.last == index, "{} of {index} entries", restored.stored.last);
    } else {
        let mut all = Vec::new();
        File::open(folder.join("file"))?.read_to_end(&mut all)?;
    }
    let read = before.elapsed();
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    let worst = times[times.len() - 1].as_secs_f64() * 1e3;
    Ok(format!(
        "| {name} | {batch} | {} | {:.0} | {:.0} | {median:.0} µs | {worst:.1} ms | {:.2} | {:.0} ms |",
        if sync { "yes" } else { "no" },
        index as f64 / took,
        times.len() as f64 / took,
        on_disk as f64 / (index * each) as f64,
        read.as_secs_f64() * 1e3,
    ))
}

fn items(count: u64) -> Result<Vec<Item>> {
    let publisher = PublisherId { account: 1, token: 2 };
    let mut event = Event::new(EventSpace::new("bench.store")?, EventName::new("EVENT")?);
    event.payload = Bytes::from(vec![b'x'; PAYLOAD]);
    let event = encode_event(&event);
    let item = |seq| {
        let stamps = Stamps {
            id: EventId { publisher, seq },
            host: "node001",
            uid: 0,
            pid: 1,
            republished: false,
        };
        let sealed = seal(&stamps, &event, 1 << 20)?;
        Ok(Item { index: seq, content: Content::Events(sealed.into()) })
    };
    (1..=count).map(item).collect()
}

fn disk_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// redb: one table of records, one of chunks.
struct RedbStore {
    database: Database,
}

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
const CHUNKS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("chunks");

fn damaged(error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(error.to_string())
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
                    Change::Remove { segment, first } => {
                        chunks.remove((segment, first)).map_err(damaged)?;
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

    fn acknowledge(&mut self, _record: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledged(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// The bound: the same bytes, appended.
struct FileStore(File);

impl Store for FileStore {
    fn get(&mut self, _key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    fn read(
        &mut self,
        _segment: u64,
        _visit: &mut dyn FnMut(u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        Ok(())
    }

    fn chunk(&mut self, _segment: u64, _first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        for change in changes {
            if let Change::Put(_, bytes) | Change::Append { chunk: bytes, .. } = change {
                self.0.write_all(&bytes)?;
            }
        }
        match sync {
            true => self.sync(),
            false => Ok(()),
        }
    }

    fn remove_segment(&mut self, _segment: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(self.0.sync_data()?)
    }

    fn acknowledge(&mut self, _record: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledged(&mut self) -> Option<Vec<u8>> {
        None
    }
}
