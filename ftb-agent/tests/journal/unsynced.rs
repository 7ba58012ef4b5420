//! What a sync that failed has left: it reads well, and no other sync writes it. It is there after a power failure
//! all the same, or was not believed.

use crate::common::{MemoryCluster, until};
use crate::store::{bounds, epochs, items, open_store, short_segments, write_journal};
use ftb_agent::journal::Opened;
use ftb_agent::journal::config::{Fsync, JournalConfig};
use ftb_agent::journal::keeper::Keeper;
use ftb_agent::journal::memory::MemoryStorage;
use ftb_agent::journal::record::{Mark, encode_mark};
use ftb_agent::memory::MemoryNetwork;
use ftb_agent::world::Storage as _;
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

fn more(from: u64, until: u64) -> JournalWrite {
    let items = items(from, until);
    JournalWrite { generation: 1, items, until, ..JournalWrite::default() }
}

fn open(journal: &Path) -> (Keeper, Restored) {
    Keeper::open(open_store(journal), "test", short_segments(), 2_000).unwrap()
}

/// Which file each name of a store is, and what it holds.
fn files(journal: &Path) -> BTreeMap<String, (u64, Vec<u8>)> {
    let entries = std::fs::read_dir(journal.join("store")).unwrap().map(|entry| entry.unwrap());
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, (entry.metadata().unwrap().ino(), std::fs::read(entry.path()).unwrap()))
    };
    entries.map(file).collect()
}

fn newest(files: &BTreeMap<String, (u64, Vec<u8>)>) -> String {
    files.keys().rfind(|name| name.starts_with("log-")).unwrap().clone()
}

/// The files of these two that are not the same, by name; what they hold is.
fn replaced<'a>(
    before: &'a BTreeMap<String, (u64, Vec<u8>)>,
    after: &BTreeMap<String, (u64, Vec<u8>)>,
) -> Vec<&'a str> {
    assert!(before.keys().eq(after.keys()));
    let both = before.iter().zip(after.values());
    let replaced = both.filter(|((_, (old, held)), (new, holds))| {
        assert!(held == holds, "other bytes");
        old != new
    });
    replaced.map(|((name, _), _)| name.as_str()).collect()
}

/// A segment that has something behind what is known to be synced is another file after it was made sure, with
/// the same bytes; the others are left alone. It is read from and written to as before.
#[test]
fn what_is_not_known_to_be_synced_is_written_to_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let all = write_journal(dir.path());
    let synced = files(dir.path());
    open(dir.path()).0.make_sure(u64::MAX).unwrap();
    assert!(replaced(&synced, &files(dir.path())).is_empty(), "all of it was synced");
    let mut keeper = open(dir.path()).0;
    keeper.write(&more(1_001, 1_010), 2_000, false).unwrap();
    drop(keeper);
    let before = files(dir.path());
    // What a life has left that was killed while it did the same.
    std::fs::write(dir.path().join("store/segment.new"), vec![7; 1 << 20]).unwrap();
    let (mut keeper, restored) = open(dir.path());
    assert_eq!(restored.stored.last, 1_010);
    keeper.make_sure(u64::MAX).unwrap();
    assert_eq!(replaced(&before, &files(dir.path())), [newest(&before)]);
    // The first write of a life says which log it is: the records, too, may be what could not be synced.
    let records = files(dir.path()).remove("records");
    let begin = JournalBegin { epochs: epochs(), after: 1_010, anew: None };
    let write = JournalWrite { begin: Some(begin), ..more(1_011, 1_020) };
    keeper.write(&write, 2_000, false).unwrap();
    assert_ne!(files(dir.path()).remove("records").unwrap().0, records.unwrap().0);
    keeper.acknowledge().unwrap();
    drop(keeper);
    let (_, restored) = open(dir.path());
    assert!(restored.items == [all, items(1_001, 1_020)].concat());
    assert_eq!((restored.damage, restored.lost_until), (None, None));
}

/// What reads differently by the time that it is written again is not what was found: it stays as it is, for who
/// opens it next.
#[test]
fn what_reads_differently_the_second_time_is_not_made_sure_of() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let mut keeper = open(dir.path()).0;
    keeper.write(&more(1_001, 1_010), 2_000, false).unwrap();
    drop(keeper);
    let mut keeper = open(dir.path()).0;
    let newest = newest(&files(dir.path()));
    let mut bytes = std::fs::read(dir.path().join("store").join(&newest)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(dir.path().join("store").join(newest), bytes).unwrap();
    let before = files(dir.path());
    let error = keeper.make_sure(u64::MAX).unwrap_err().to_string();
    assert!(error.contains("reads differently"), "{error}");
    assert!(replaced(&before, &files(dir.path())).is_empty());
}

/// For each part of a log that was synced, and each that the next sync has failed for: once it was made sure of,
/// a power failure takes nothing of it.
#[test]
fn nothing_that_was_made_sure_of_goes_with_the_power() {
    let folder = Path::new("/journal");
    for (synced, failed) in (0..=6).flat_map(|synced| (synced..=6).map(move |to| (synced, to))) {
        let disk = MemoryStorage::default();
        let open = || {
            let store = disk.open(folder).unwrap();
            Keeper::open(store, "test", bounds(), 1).unwrap()
        };
        let mut keeper = open().0;
        let begin = JournalBegin { epochs: epochs(), after: 0, anew: Some(Default::default()) };
        let begin = JournalWrite { begin: Some(begin), ..JournalWrite::default() };
        keeper.write(&begin, 1, true).unwrap();
        for index in 1..=6 {
            disk.set_unsyncable(index == failed && synced < failed);
            let written = keeper.write(&more(index, index), 1, [synced, failed].contains(&index));
            assert_eq!(written.is_err(), index == failed && synced < failed);
            disk.set_unsyncable(false);
            if written.is_err() {
                break;
            }
            keeper.acknowledge().unwrap();
        }
        drop(keeper);
        let (mut keeper, restored) = open();
        keeper.make_sure(u64::MAX).unwrap();
        drop(keeper);
        disk.power_failure_that_takes_all_it_may();
        let what = format!("synced up to {synced}, failed up to {failed}");
        assert_eq!(open().1.items, restored.items, "{what}");
        assert!(restored.items.len() as u64 >= failed, "{what}");
    }
}

/// What becomes of a lone root after a sync that failed.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// It goes on, and its disk is good again.
    GoesOn,
    /// It is killed, and the next one finds a disk that is good again.
    Killed,
    /// It is killed, and the disk of the next one is good only after a while.
    KilledInVain,
}

/// A lone root whose sync fails, and what it had written by then: it is there in each life, and after a power
/// failure, with what was confirmed behind it. A gap would be told.
async fn has_all_after_a_power_failure(config: &'static str, then: Then) {
    let mut cluster = MemoryCluster::start_with(1, 2, config).await;
    let disk = cluster.network.disk(&cluster.hosts[0]);
    let mut publisher = cluster.client(0, "publisher").await;
    let last = publisher.publish("site", &["synced"]).await;
    publisher.confirmed(last).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    disk.set_unsyncable(true);
    let last = publisher.publish("site", &["in doubt"]).await;
    publisher.confirmed(last).await;
    until_journal_is(&cluster, "degraded").await;
    if !matches!(then, Then::GoesOn) {
        cluster.crash(0);
        // Its sockets are closed when its tasks have ended.
        tokio::time::sleep(Duration::from_secs(1)).await;
        disk.set_unsyncable(matches!(then, Then::KilledInVain));
        cluster.run(0).await;
        read(&cluster, &["synced", "in doubt"]).await;
        publisher = cluster.client(0, "publisher").await;
        publisher.next_seq = last + 1;
    }
    disk.set_unsyncable(false);
    until_journal_is(&cluster, "ok").await;
    let last = publisher.publish("site", &["behind it"]).await;
    publisher.confirmed(last).await;
    // Until all of it is synced and marked as such.
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.crash(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    disk.power_failure_that_takes_all_it_may();
    cluster.run(0).await;
    read(&cluster, &["synced", "in doubt", "behind it"]).await;
}

async fn until_journal_is(cluster: &MemoryCluster, state: &str) {
    until(state, async || cluster.status(0).await.journal.unwrap().state == state).await;
}

async fn read(cluster: &MemoryCluster, all: &[&str]) {
    let mut subscriber = cluster.client(0, "subscriber").await;
    subscriber.subscribe_from_the_beginning(1, "event_space=site").await;
    assert_eq!(subscriber.payloads(all.len()).await, all);
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_sync_has_left_is_not_lost_by_the_power_failing_later() {
    let configs = [
        "[journal]\npath = \"/journal\"\nfsync = \"batch\"\n",
        "[journal]\npath = \"/journal\"\nfsync = \"interval:100ms\"\n",
    ];
    for config in configs {
        for then in [Then::GoesOn, Then::Killed, Then::KilledInVain] {
            has_all_after_a_power_failure(config, then).await;
        }
    }
}

/// A log that ends before what its mark knows: what is written in the place of what is missing, and could not be
/// synced, is not taken for what had been synced there.
#[test]
fn what_is_written_in_the_place_of_what_is_missing_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let all = write_journal(dir.path());
    let path = dir.path().join("store").join(newest(&files(dir.path())));
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
    let (mut keeper, restored) = open(dir.path());
    assert_eq!((restored.stored.last, restored.lost_until), (975, Some(1_000)));
    keeper.make_sure(u64::MAX).unwrap();
    let begin = JournalBegin { epochs: epochs(), after: 975, anew: None };
    let write = JournalWrite { begin: Some(begin), ..more(976, 980) };
    keeper.write(&write, 2_000, false).unwrap();
    // Killed before it was synced and acknowledged.
    drop(keeper);
    let before = files(dir.path());
    let (mut keeper, restored) = open(dir.path());
    assert!(restored.items == all[..980]);
    assert_eq!(
        restored.lost_until,
        Some(1_000),
        "that it is missing is told until the log goes on"
    );
    keeper.make_sure(u64::MAX).unwrap();
    assert_eq!(replaced(&before, &files(dir.path())), [newest(&before)]);
}

/// Which segments are written again, by what the mark knows: all that have something behind that, and all where there
/// is none, or one of another log.
#[test]
fn what_the_mark_does_not_know_to_be_synced_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mark = |segment, synced| {
        let mark = Mark { segment, acknowledged: 1_000, synced, unsynced: true, boot: None };
        Some(encode_mark(&mark))
    };
    let cases = [
        (None, 0),
        (Some(b"torn".to_vec()), 0),
        (mark(2, 1_000), 0),
        (mark(1, 0), 0),
        (mark(1, 450), 450),
        (mark(1, 999), 999),
        (mark(1, 1_000), 1_000),
    ];
    for (number, (mark, synced)) in cases.into_iter().enumerate() {
        let journal = dir.path().join(format!("{number}"));
        write_journal(&journal);
        let acknowledged = journal.join("acknowledged");
        match mark {
            Some(mark) => std::fs::write(acknowledged, mark).unwrap(),
            None => std::fs::remove_file(acknowledged).unwrap(),
        }
        let mut store = open_store(&journal);
        let mut behind = Vec::new();
        for segment in store.segments().unwrap() {
            let mut last = 0;
            store.read(segment, &mut |first, _| last = first + 24).unwrap();
            if last > synced {
                behind.push(format!("log-{segment:020}"));
            }
        }
        drop(store);
        let before = files(&journal);
        open(&journal).0.make_sure(u64::MAX).unwrap();
        assert_eq!(replaced(&before, &files(&journal)), behind, "case {number}");
    }
}

/// What is left of a segment that a life was killed in the middle of is gone once the journal is opened, also where
/// nothing is written again.
#[test]
fn what_is_left_of_writing_again_is_gone_with_the_next_opening() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let before = files(dir.path());
    std::fs::write(dir.path().join("store/segment.new"), vec![7; 1 << 20]).unwrap();
    open(dir.path()).0.make_sure(u64::MAX).unwrap();
    assert!(files(dir.path()) == before);
}

/// A head that has nothing behind it is made sure of, too: what is written behind it must not go with it.
#[test]
fn a_head_that_stands_alone_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let segments = files(dir.path()).into_iter().filter(|(name, _)| name.starts_with("log-"));
    for (number, (name, (_, bytes))) in segments.enumerate() {
        let path = dir.path().join("store").join(name);
        match number {
            0 => {
                let head = 16 + u32::from_le_bytes(bytes[4..8].try_into().unwrap());
                std::fs::write(path, &bytes[..head as usize]).unwrap();
            }
            _ => std::fs::remove_file(path).unwrap(),
        }
    }
    std::fs::remove_file(dir.path().join("acknowledged")).unwrap();
    let before = files(dir.path());
    let (mut keeper, restored) = open(dir.path());
    assert_eq!(restored.stored.last, 0);
    assert!(restored.damage.is_some_and(|told| told.contains("the mark is missing")));
    keeper.make_sure(u64::MAX).unwrap();
    assert_eq!(replaced(&before, &files(dir.path())), [newest(&before)]);
}

/// A segment is written again only where it leaves others enough room: the disk is not filled to try it.
#[tokio::test]
async fn a_segment_is_not_written_again_where_there_is_little_room() {
    let network = MemoryNetwork::default();
    let (disk, world) = (network.disk("node01"), network.world("node01", 1));
    let folder = Path::new("/journal");
    let begin = JournalBegin { epochs: epochs(), after: 0, anew: Some(Default::default()) };
    let write = JournalWrite { begin: Some(begin), ..more(1, 1_000) };
    let store = disk.open(folder).unwrap();
    let (mut keeper, _) = Keeper::open(store, "test", bounds(), 1).unwrap();
    keeper.write(&write, 1, false).unwrap();
    let held = keeper.bytes();
    drop(keeper);
    // What a disk must have to be written to, and what is beside it.
    for beside in [held - 1, held] {
        let free = (16 << 20) + beside;
        disk.set_free(Some(free));
        let config = JournalConfig { fsync: Fsync::Batch, ..JournalConfig::default() };
        let opened = Opened::read(&config, "test", folder.into(), 1 << 20, &world).await.unwrap();
        assert_eq!(opened.failed.is_some(), beside < held, "{:?}", opened.failed);
        assert_eq!(opened.restored.stored.last, 1_000, "it is begun with in any case");
        let is_untouched = disk.free_bytes(folder).unwrap() == free;
        assert_eq!(is_untouched, beside < held);
    }
}
