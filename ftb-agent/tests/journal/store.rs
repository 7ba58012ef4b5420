//! The files of a journal: what is read of damaged ones, how large they grow, what is cut off.

use crate::common::disk::MemoryStorage;
use crate::common::{self, payloads_of};
use crate::start;
use ftb_agent::journal::files::DiskStorage;
use ftb_agent::journal::log_store::{Bounds, LogStore, LogStoreError};
use ftb_agent::world::{Storage, Store, StoreError};
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Content, Item};
use ftb_core::node::api::{JournalBegin, JournalWrite};
use ftb_core::{Epoch, EventId, OriginId, PublisherId, Rank};
use ftb_proto::event::{Stamps, seal};
use ftb_proto::v1::to_client;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) fn bounds() -> Bounds {
    let protected = ftb_core::node::protected_by_default();
    let (bytes, age) = (64 << 20, Duration::from_secs(3600));
    Bounds { bytes, age, memory_bytes: 64 << 20, protected, conditions: Default::default() }
}

pub(crate) fn items(from: u64, until: u64) -> Vec<Item> {
    let publisher = PublisherId { account: 1, token: 2 };
    let item = |index: u64| {
        let id = EventId { publisher, seq: index.into() };
        let stamps = Stamps { id, host: "node01", uid: 0, pid: 1, republished: false };
        let text = format!("event {index} {}", "x".repeat((index % 90) as usize));
        let sealed = seal(&stamps, &common::event("site.load", &text), 1 << 20).unwrap();
        Item { index: index.into(), content: Content::Events(sealed.into()) }
    };
    (from..=until).map(item).collect()
}

pub(crate) fn epochs() -> EpochHistory {
    let mut epochs = EpochHistory::new();
    epochs.open(Epoch { number: 1, root: OriginId(9) }, 1.into(), false);
    epochs
}

/// Of a journal that lies in several segments.
pub(crate) fn short_segments() -> Bounds {
    Bounds { bytes: 256 << 10, ..bounds() }
}

/// A journal with 40 chunks of 25 entries.
pub(crate) fn write_journal(folder: &Path) -> Vec<Item> {
    let all = items(1, 1000);
    let (mut log_store, _) =
        LogStore::open(open_store(folder), "test", short_segments(), 1_000).unwrap();
    for (at, chunk) in all.chunks(25).enumerate() {
        let begin =
            JournalBegin { epochs: epochs(), after: 0.into(), anew: Some(Default::default()) };
        let write = JournalWrite {
            generation: 1,
            begin: (at == 0).then_some(begin),
            items: chunk.to_vec(),
            until: chunk[24].index,
            ..JournalWrite::default()
        };
        log_store.write(&write, 1_000 + at as u64, at == 39).unwrap();
    }
    log_store.acknowledge().unwrap();
    all
}

/// The files of a store with their bytes.
pub(crate) fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push((path.clone(), std::fs::read(&path).unwrap())),
            }
        }
    }
    files.sort();
    files
}

/// Opens a store, whenever it is free: a process that another test starts holds its lock from fork
/// to exec.
fn open_when_free(disk: &dyn Storage, folder: &Path) -> Result<Box<dyn Store>, StoreError> {
    loop {
        match disk.open(folder) {
            Err(StoreError::Locked) => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

pub(crate) fn open_store(folder: &Path) -> Box<dyn Store> {
    open_when_free(&DiskStorage, folder).unwrap()
}

fn is_segment(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("log-")
}

/// Which of the files are segments, the oldest first.
pub(crate) fn segments(files: &[(PathBuf, Vec<u8>)]) -> Vec<usize> {
    let logs: Vec<usize> = (0..files.len()).filter(|file| is_segment(&files[*file].0)).collect();
    assert!(logs.len() > 3, "the log lies in {} files", logs.len());
    logs
}

/// Puts a copy of a store somewhere, damaged.
pub(crate) fn copy_damaged(
    files: &[(PathBuf, Vec<u8>)],
    from: &Path,
    to: &Path,
    damage: impl Fn(usize, &mut Vec<u8>),
) {
    for (number, (path, bytes)) in files.iter().enumerate() {
        let mut bytes = bytes.clone();
        damage(number, &mut bytes);
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, bytes).unwrap();
    }
}

/// What is read of a damaged copy is nothing but what was written, without a hole, and what is
/// missing is reported. Gives how many entries were read; `None`: the store is to be set aside.
fn read_damaged(folder: &Path, all: &[Item], what: &str) -> Option<usize> {
    let opened = open_when_free(&DiskStorage, folder).map_err(LogStoreError::from);
    match opened.and_then(|store| LogStore::open(store, "test", bounds(), 2_000)) {
        Ok((_, restored)) => {
            let first = restored.items.first().map_or(1, |item| item.index.get());
            for (at, item) in restored.items.iter().enumerate() {
                assert_eq!(item.index, (first + at as u64).into(), "{what}: a hole");
                assert_eq!(item, &all[(item.index - 1.into()) as usize], "{what}: a wrong entry");
            }
            let missing = restored.items.len() < all.len();
            assert!(!missing || restored.damage.is_some(), "{what}: a loss is not reported");
            Some(restored.items.len())
        }
        Err(LogStoreError::Store(StoreError::Io(error))) => {
            panic!("{what}: damage was taken for a failing disk: {error}")
        }
        Err(_) => None,
    }
}

/// The newest segment torn at many lengths, and single bits flipped all over all files.
#[test]
fn nothing_wrong_is_read_from_torn_files_and_flipped_bits() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let all = write_journal(&journal);
    let files = files(&journal);
    let logs = segments(&files);
    let newest = *logs.last().unwrap();
    let len = files[newest].1.len();
    let mut whole = 0;
    let mut part = 0;
    let mut aside = 0;
    let mut count = |read: Option<usize>| match read {
        Some(1000) => whole += 1,
        Some(_) => part += 1,
        None => aside += 1,
    };
    for step in 0..40 {
        let cut = len - 1 - step * step * len / 1600;
        let copy = dir.path().join(format!("torn-{step}"));
        copy_damaged(&files, &journal, &copy, |file, bytes| {
            if file == newest {
                bytes.truncate(cut);
            }
        });
        count(read_damaged(&copy, &all, &format!("torn at {cut} of {len}")));
        std::fs::remove_dir_all(copy).unwrap();
    }
    let mut random = 7_u64;
    for step in 0..120 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Half of them in the log itself, the others anywhere.
        let any = (random >> 8) as usize;
        let file = if step % 2 == 0 { logs[any % logs.len()] } else { any % files.len() };
        let bytes = files[file].1.len();
        if bytes == 0 {
            continue;
        }
        let bit = (random >> 20) as usize % (bytes * 8);
        let copy = dir.path().join(format!("flip-{step}"));
        copy_damaged(&files, &journal, &copy, |number, bytes| {
            if number == file {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        });
        let name = files[file].0.strip_prefix(&journal).unwrap().display();
        count(read_damaged(&copy, &all, &format!("bit {bit} of {name}")));
        std::fs::remove_dir_all(copy).unwrap();
    }
    assert!(
        part + aside > 40,
        "hardly anything was damaged: {whole} whole, {part} part, {aside} aside"
    );
}

/// The log ends before a segment whose beginning is damaged, and the loss is reported.
#[test]
fn a_segment_whose_head_is_damaged_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let all = write_journal(&journal);
    let files = files(&journal);
    let logs = segments(&files);
    for log in &logs {
        let copy = dir.path().join(format!("beginning-{log}"));
        copy_damaged(&files, &journal, &copy, |file, bytes| {
            if file == *log {
                bytes[5] ^= 1;
            }
        });
        let read = read_damaged(&copy, &all, &format!("the beginning of file {log}")).unwrap();
        assert!(read < 1_000 && (read > 0 || *log == logs[0]), "{read} of file {log}");
    }
}

/// A write that a crash has torn is no damage if it was not acknowledged, and is
/// written over.
#[test]
fn a_torn_tail_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let all = write_journal(&journal);
    let files = files(&journal);
    let newest = *segments(&files).last().unwrap();
    let len = files[newest].1.len();
    for cut in [1, 8, 200, len / 2, len - 3] {
        let copy = dir.path().join(format!("torn-{cut}"));
        copy_damaged(&files, &journal, &copy, |file, bytes| {
            if file == newest {
                bytes.truncate(len - cut);
            }
        });
        let open = || LogStore::open(open_store(&copy), "test", short_segments(), 2_000).unwrap();
        let (mut log_store, restored) = open();
        let last = restored.stored.last;
        assert!(last < 1_000.into() && restored.lost_until == Some(1_000.into()), "{last}");
        let write = JournalWrite {
            items: items(last.get() + 1, 1_000),
            until: 1_000.into(),
            ..Default::default()
        };
        log_store.write(&write, 2_000, false).unwrap();
        drop(log_store);
        let (log_store, restored) = open();
        assert!(restored.items == all, "{cut} bytes short: {:?}", restored.damage);
        assert_eq!((restored.damage, restored.lost_until), (None, None), "{cut} bytes short");
        drop(log_store);
    }
}

/// A store has one user; and one that an older version has written is left alone.
#[test]
fn a_store_that_is_in_use_or_of_an_older_format_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let first = open_store(&journal);
    assert!(matches!(DiskStorage.open(&journal), Err(StoreError::Locked)));
    drop(first);
    drop(open_store(&journal));
    let old = dir.path().join("old");
    std::fs::create_dir_all(old.join("store/keyspaces")).unwrap();
    let error = DiskStorage.open(&old).err().unwrap();
    assert!(
        matches!(&error, StoreError::Foreign(text) if text.contains("ftb journal 1")),
        "{error}"
    );
    assert!(files(&old).is_empty(), "something was written");
}

/// A store is set aside by its one user only, who holds the lock before and after; what was
/// acknowledged of it goes with it.
#[test]
fn a_store_in_use_is_not_set_aside_and_takes_what_was_acknowledged_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    write_journal(&journal);
    let store = open_store(&journal);
    assert!(matches!(DiskStorage.set_aside(&journal, 1), Err(StoreError::Locked)));
    drop(store);
    let aside = loop {
        match DiskStorage.set_aside(&journal, 1) {
            Err(StoreError::Locked) => std::thread::yield_now(),
            moved => break moved.unwrap(),
        }
    };
    assert!(aside.join("acknowledged").exists());
    let mut fresh = open_store(&journal);
    assert!(matches!(DiskStorage.open(&journal), Err(StoreError::Locked)), "the lock has stayed");
    assert!(fresh.acknowledged().unwrap().is_empty());
}

/// Only what has a segment's exact name is one; one that is gone already is no failure.
#[test]
fn a_file_that_only_looks_like_a_segment_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let real = open_store(dir.path()).segments().unwrap();
    let strange = ["log-1", "log-+0000000000000000001", "log-000000000000000000001", "log-x"];
    strange
        .iter()
        .for_each(|name| std::fs::write(dir.path().join("store").join(name), "").unwrap());
    let mut store = open_store(dir.path());
    assert_eq!(store.segments().unwrap(), real);
    store.remove_segment(77).unwrap();
}

/// A folder that cannot be looked into may hold a journal: it is not taken for a fresh one.
#[test]
fn a_journal_that_cannot_be_looked_at_may_be_there() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!DiskStorage.exists(dir.path()));
    std::os::unix::fs::symlink("store", dir.path().join("store")).unwrap();
    assert!(DiskStorage.exists(dir.path()));
}

/// An agent whose journal is damaged starts, says so, and goes on.
#[tokio::test]
async fn an_agent_starts_with_a_damaged_journal_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    write_journal(&journal);
    for (path, bytes) in files(&journal) {
        // Every file, in its middle: whatever it is.
        let mut bytes = bytes;
        if bytes.len() > 40 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x55;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    client.subscribe_from_the_beginning(1, "event_name=FTB_JOURNAL_DAMAGED").await;
    let damage = loop {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                break deliver.items.into_iter().flat_map(payloads_of).next().unwrap();
            }
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    };
    assert!(damage.contains("journal"), "{damage}");
    let last = client.publish("site", &["goes on"]).await;
    client.confirmed(last).await;
    assert!(process.log().contains("journal damaged"), "{}", process.log());
}

/// What says nothing of the log, and comes when a disk is open again, does not make entries look
/// written that never were.
#[test]
fn ranks_that_are_written_alone_move_no_log() {
    let storage = MemoryStorage::default();
    let folder = Path::new("/journal");
    let open = || {
        let age = Duration::from_secs(60);
        let bounds = Bounds { bytes: 1 << 20, age, memory_bytes: 1 << 20, ..bounds() };
        LogStore::open(storage.open(folder).unwrap(), "test", bounds, 1).unwrap()
    };
    let (mut log_store, _) = open();
    let dynamic_members = Some(vec![("node09".to_owned(), Rank(262_144))]);
    log_store
        .write(
            &JournalWrite { until: 50.into(), dynamic_members, ..JournalWrite::default() },
            1,
            true,
        )
        .unwrap();
    assert_eq!(log_store.stored().last, 0.into());
    drop(log_store);
    let (_, restored) = open();
    assert_eq!(
        (restored.lost_until, restored.damage, restored.dynamic_members.len()),
        (None, None, 1)
    );
}

/// The oldest of the log goes when there is more than `bytes`, or when it is older than `age`; that
/// its events were logged stays known.
#[test]
fn the_journal_is_bounded_by_size_and_age() {
    let disk = crate::common::network::MemoryNetwork::default().disk("node01");
    bounded(disk.as_ref(), Path::new("/journal"));
    let dir = tempfile::tempdir().unwrap();
    bounded(&DiskStorage, dir.path());
    let left: Vec<_> = files(dir.path()).into_iter().filter(|(path, _)| is_segment(path)).collect();
    let on_disk = left.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    let (log_store, _) = LogStore::open(open_store(dir.path()), "test", bounds(), 2_100).unwrap();
    assert_eq!(log_store.bytes(), on_disk, "heads and what stands before chunks are counted");
    let left = left.len();
    assert!((2..=10).contains(&left), "{left} segments are left");
}

fn bounded(disk: &dyn Storage, folder: &Path) {
    let age = Duration::from_secs(800);
    let small = Bounds { bytes: 64 << 10, age, memory_bytes: 1 << 20, ..bounds() };
    let second = 1_000_000_000;
    let (mut log_store, _) =
        LogStore::open(open_when_free(disk, folder).unwrap(), "test", small.clone(), second)
            .unwrap();
    let begin = JournalBegin { epochs: epochs(), after: 0.into(), anew: Some(Default::default()) };
    let mut begin = Some(begin);
    for index in 1..=2_000 {
        let items = items(index, index);
        let write = JournalWrite {
            generation: 1,
            begin: begin.take(),
            items,
            until: index.into(),
            ..Default::default()
        };
        log_store.write(&write, second, false).unwrap();
        // The segment that is written to comes on top.
        assert!(
            log_store.bytes() <= (64 << 10) + (64 << 10) / 8 + 1024,
            "{} bytes",
            log_store.bytes()
        );
    }
    drop(log_store);
    let (mut log_store, restored) =
        LogStore::open(open_when_free(disk, folder).unwrap(), "test", small.clone(), second)
            .unwrap();
    assert_eq!(restored.stored.last, 2_000.into());
    assert!(
        restored.stored.after > 1_000.into() && restored.damage.is_none(),
        "{:?}",
        restored.damage
    );
    assert_eq!(restored.dedup.publishers[0].1, [(1, 2_000)], "that they were logged is known");
    for (at, index) in (2_001..=2_020).enumerate() {
        let items = items(index, index);
        let write = JournalWrite {
            generation: 2,
            begin: None,
            items,
            until: index.into(),
            ..Default::default()
        };
        log_store.write(&write, (at as u64 + 2) * 100 * second, false).unwrap();
    }
    drop(log_store);
    let (_, restored) =
        LogStore::open(open_when_free(disk, folder).unwrap(), "test", small, 2_100 * second)
            .unwrap();
    let first = restored.items.first().unwrap().index;
    assert!(
        (2_010..=2_015).contains(&first.get()),
        "kept from {first}: eight of twenty are young enough"
    );
    assert_eq!(restored.dedup.publishers[0].1, [(1, 2_020)]);
}

/// The tail of a chunk is torn, and then a log wins that parts from it within that chunk: what both
/// have in common stays, and the journal can be written.
#[test]
fn a_torn_chunk_can_be_cut_where_another_log_begins() {
    let disk = crate::common::network::MemoryNetwork::default().disk("node01");
    let folder = Path::new("/journal");
    let open = || LogStore::open(disk.open(folder).unwrap(), "test", bounds(), 1_000).unwrap();
    let write = |log_store: &mut LogStore, generation, begin, items: Vec<Item>| {
        let until = items.last().unwrap().index;
        let begin = Some(begin);
        let write = JournalWrite { generation, begin, items, until, ..Default::default() };
        log_store.write(&write, 1_000, false)?;
        log_store.acknowledge()
    };
    let (mut log_store, _) = open();
    let anew = JournalBegin { epochs: epochs(), after: 0.into(), anew: Some(Default::default()) };
    write(&mut log_store, 1, anew, items(1, 50)).unwrap();
    disk.damage_chunks(|chunk| *chunk.last_mut().unwrap() ^= 1);
    let (mut log_store, restored) = open();
    assert_eq!((restored.stored.last, restored.lost_until), (49.into(), Some(50.into())));
    let mut winning = epochs();
    winning.open(Epoch { number: 2, root: OriginId(8) }, 31.into(), false);
    let begin = JournalBegin { epochs: winning.clone(), after: 30.into(), anew: None };
    write(&mut log_store, 2, begin, items(31, 33)).unwrap();
    let (_, restored) = open();
    assert_eq!((restored.items, restored.damage), (items(1, 33), None));
    assert_eq!(restored.stored.epochs, winning);
}

/// A log that another has won against from an index on: what is behind it goes, the rest stays.
#[test]
fn what_lies_behind_a_fork_is_given_up() {
    let disk = crate::common::network::MemoryNetwork::default().disk("node01");
    let folder = Path::new("/journal");
    let open = || LogStore::open(disk.open(folder).unwrap(), "test", bounds(), 1_000).unwrap();
    let (mut log_store, _) = open();
    let anew = JournalBegin { epochs: epochs(), after: 0.into(), anew: Some(Default::default()) };
    let mut begin = Some(anew);
    for from in (1..100).step_by(10) {
        let items = items(from, from + 9);
        let write = JournalWrite {
            generation: 1,
            begin: begin.take(),
            items,
            until: (from + 9).into(),
            ..Default::default()
        };
        log_store.write(&write, 1_000, false).unwrap();
    }
    let mut winning = epochs();
    winning.open(Epoch { number: 2, root: OriginId(8) }, 56.into(), false);
    let begin = Some(JournalBegin { epochs: winning.clone(), after: 55.into(), anew: None });
    let other = items(1_056, 1_058)
        .into_iter()
        .zip(56..)
        .map(|(item, index)| Item { index: index.into(), ..item });
    let other: Vec<Item> = other.collect();
    let write = JournalWrite {
        generation: 2,
        begin,
        items: other.clone(),
        until: 58.into(),
        ..Default::default()
    };
    log_store.write(&write, 1_000, false).unwrap();
    let (_, restored) = open();
    let expected: Vec<Item> = items(1, 55).into_iter().chain(other).collect();
    assert_eq!((restored.items, restored.stored.epochs), (expected, winning));
    assert!(restored.damage.is_none());
}
