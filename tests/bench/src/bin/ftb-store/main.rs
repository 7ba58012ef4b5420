//! Which store the journal deserves: the same log, written by the agent's own log_store into its
//! own files, fjall, redb and a plain file, synced with every write or not at all. `ftb-store
//! FOLDER [MIB]`.
//!
//! A write is what the driver hands out at once: 1, 32 or 1,024 events of 200 bytes. Each row says
//! events and writes a second, the median and the worst write, what lies on the disk for each byte
//! of events, and how long it takes to open it again and read everything.

mod fjall;
mod redb;

use crate::fjall::FjallStore;
use crate::redb::RedbStore;
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use ftb_agent::journal::files::DiskStorage;
use ftb_agent::journal::log_store::{Bounds, LogStore};
use ftb_agent::world::{Change, Storage as _, Store, StoreError};
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Content, DedupRanges, Item};
use ftb_core::node::api::{JournalBegin, JournalWrite};
use ftb_core::node::protected_by_default;
use ftb_core::{Epoch, Event, EventId, EventName, EventSpace, OriginId, PublisherId};
use ftb_proto::event::{Stamps, encode_event, seal};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PAYLOAD: usize = 200;
/// A run ends after that, whatever is written by then.
const RUN: Duration = Duration::from_secs(4);
const NAMES: [&str; 4] = ["own files", "fjall", "redb", "plain file"];

fn damaged(error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(error.to_string())
}

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
        "| store | write | synced | events/s | writes/s | median | worst | bytes on disk for each \
         | read again |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for sync in [false, true] {
        for batch in [1, 32, 1024] {
            for name in NAMES {
                let dir = tempfile::Builder::new().prefix("ftb-store.").tempdir_in(&folder)?;
                touch(&dir.path().join("touched"), mib << 20)?;
                let row = measure(name, dir.path(), batch, sync, mib << 20)?;
                println!("{row}");
            }
        }
    }
    Ok(())
}

/// Writes this number of bytes and removes them: the host of a virtual machine takes back unused
/// blocks, and who is first to use it again would pay for that.
fn touch(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let block = vec![1; 1 << 20];
    for _ in 0..bytes.div_ceil(block.len() as u64) {
        file.write_all(&block)?;
    }
    Ok(std::fs::remove_file(path)?)
}

fn open(name: &str, folder: &Path) -> Result<Box<dyn Store>> {
    Ok(match name {
        "own files" => DiskStorage.open(folder)?,
        "fjall" => Box::new(FjallStore::open(&folder.join("fjall"))?),
        "redb" => Box::new(RedbStore::open(&folder.join("redb"))?),
        _ => Box::new(FileStore(
            File::options().create(true).append(true).read(true).open(folder.join("file"))?,
        )),
    })
}

fn measure(name: &str, folder: &Path, batch: u64, sync: bool, bytes: u64) -> Result<String> {
    let bounds = || {
        let (age, protected) = (Duration::from_secs(1 << 20), protected_by_default());
        let conditions = Default::default();
        Bounds { bytes: 1 << 40, age, memory_bytes: usize::MAX, protected, conditions }
    };
    let (mut log_store, _) = LogStore::open(open(name, folder)?, "bench", bounds(), 1)?;
    let items = items(batch)?;
    let each = items.first().map_or(0, |item| item.content.len()) as u64;
    let mut epochs = EpochHistory::new();
    epochs.open(Epoch { number: 1, root: OriginId(1) }, 1.into(), false);
    let mut begin =
        Some(JournalBegin { epochs, after: 0.into(), anew: Some(DedupRanges::default()) });
    let mut times = Vec::new();
    let mut index = 0;
    let start = Instant::now();
    while start.elapsed() < RUN && index * each < bytes {
        let numbered = items.iter().zip(index + 1..);
        let items =
            numbered.map(|(item, index)| Item { index: index.into(), ..item.clone() }).collect();
        index += batch;
        let write = JournalWrite {
            generation: 1,
            begin: begin.take(),
            items,
            until: index.into(),
            dynamic_members: None,
        };
        let before = Instant::now();
        log_store.write(&write, 1, sync)?;
        log_store.acknowledge()?;
        times.push(before.elapsed());
    }
    let took = start.elapsed().as_secs_f64();
    // What is only in memory so far does not count as written.
    if !sync {
        log_store.sync()?;
    }
    drop(log_store);
    let on_disk = disk_bytes(folder)?;
    let before = Instant::now();
    if name != "plain file" {
        let (_, restored) = LogStore::open(open(name, folder)?, "bench", bounds(), 1)?;
        ensure!(
            restored.stored.last == index.into(),
            "{} of {index} entries",
            restored.stored.last
        );
    } else {
        let mut all = Vec::new();
        File::open(folder.join("file"))?.read_to_end(&mut all)?;
    }
    let read = before.elapsed();
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    let worst = times[times.len() - 1].as_secs_f64() * 1e3;
    Ok(format!(
        "| {name} | {batch} | {} | {:.0} | {:.0} | {median:.0} µs | {worst:.1} ms | {:.2} \
         | {:.0} ms |",
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
    let item = |seq: u64| {
        let stamps = Stamps {
            id: EventId { publisher, seq: seq.into() },
            host: "node001",
            uid: 0,
            pid: 1,
            republished: false,
        };
        let sealed = seal(&stamps, &event, 1 << 20)?;
        Ok(Item { index: seq.into(), content: Content::Events(sealed.into()) })
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
