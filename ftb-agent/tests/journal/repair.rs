//! Damage is cut off when the journal is opened, the peer brings what is missing, and the next life
//! reports nothing.

use crate::common::{MemoryCluster, until};
use crate::store::{
    bounds, copy_damaged, epochs, files, items, open_store, segments, short_segments, write_journal,
};
use ftb_agent::journal::log_store::LogStore;
use ftb_agent::world::Storage as _;
use ftb_core::frame::{Content, Item};
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use ftb_proto::v1::{JournalState, to_client};
use std::path::Path;
use std::time::Duration;

fn open(journal: &Path) -> (LogStore, Restored) {
    LogStore::open(open_store(journal), "test", short_segments(), 2_000).unwrap()
}

/// Writes the entries that the peer has, as after a restart.
fn go_on(log_store: &mut LogStore, after: u64) {
    let begin = JournalBegin { epochs: epochs(), after: after.into(), anew: None };
    let items = items(after + 1, 1_000);
    let write = JournalWrite {
        generation: 1,
        begin: Some(begin),
        items,
        until: 1_000.into(),
        ..JournalWrite::default()
    };
    log_store.write(&write, 3_000, true).unwrap();
    log_store.acknowledge().unwrap();
}

/// Flipped bits in each segment, in its head and in its chunks: the log ends before the damage,
/// which is reported once. With the rest from the peer the log is complete again.
#[test]
fn damage_is_cut_off_and_not_reported_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let all = write_journal(&journal);
    let files = files(&journal);
    for log in segments(&files) {
        let len = files[log].1.len();
        for byte in [6, 30, len / 3, len / 2, len - 1] {
            let what = format!("byte {byte} of file {log}");
            let copy = dir.path().join(format!("{log}-{byte}"));
            copy_damaged(&files, &journal, &copy, |file, bytes| {
                if file == log {
                    bytes[byte] ^= 1;
                }
            });
            let (mut log_store, found) = open(&copy);
            assert!(found.damage.is_some(), "{what}");
            assert_eq!(found.lost_until, Some(1_000.into()), "{what}");
            let last = found.stored.last;
            assert!(
                last < 1_000.into() && found.items == all[..last.get() as usize],
                "{what}: {last}"
            );
            log_store.repair(2_000).unwrap();
            assert_eq!(log_store.stored().last, last, "{what}");
            drop(log_store);
            let (mut log_store, again) = open(&copy);
            let missing =
                format!("the journal is damaged: entries {} to 1000 are missing", last + 1);
            assert_eq!(again.damage, Some(missing), "{what}: the damage itself is gone");
            assert!(again.items == found.items && again.dedup == found.dedup, "{what}");
            log_store.repair(2_000).unwrap();
            go_on(&mut log_store, last.get());
            drop(log_store);
            let (_, whole) = open(&copy);
            assert_eq!((whole.damage, whole.lost_until), (None, None), "{what}");
            assert!(whole.items == all, "{what}: {} entries", whole.items.len());
            std::fs::remove_dir_all(copy).unwrap();
        }
    }
}

/// A log that ends before its checkpoint: entries that are written in place of the missing ones,
/// and could not be synced, do not count as synced.
#[test]
fn what_is_written_in_the_place_of_what_is_missing_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let all = write_journal(dir.path());
    let newest = *open_store(dir.path()).segments().unwrap().last().unwrap();
    let path = dir.path().join(format!("store/log-{newest:020}"));
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
    let (mut log_store, restored) = open(dir.path());
    assert_eq!((restored.stored.last, restored.lost_until), (975.into(), Some(1_000.into())));
    log_store.repair(2_000).unwrap();
    let begin = JournalBegin { epochs: epochs(), after: 975.into(), anew: None };
    let write = JournalWrite {
        begin: Some(begin),
        items: items(976, 980),
        until: 980.into(),
        ..JournalWrite::default()
    };
    log_store.write(&write, 2_000, false).unwrap();
    // Killed before it was synced and acknowledged.
    drop(log_store);
    let (_, restored) = open(dir.path());
    assert!(restored.items == all[..980]);
    assert_eq!(
        restored.lost_until,
        Some(1_000.into()),
        "the loss is reported until the log goes on"
    );
}

/// The disk of the standby is damaged while it is away. It returns, reports that once, gets the log
/// from the acting root and writes it again: its next life finds a complete journal.
#[tokio::test(start_paused = true)]
async fn the_log_of_a_damaged_disk_is_written_again_from_the_peer() {
    let journal = "[journal]\npath = \"/journal\"\nfsync = \"batch\"\n";
    let mut cluster = MemoryCluster::start_with(2, 2, journal).await;
    let mut publisher = cluster.client(0, "publisher").await;
    for number in 0..100 {
        let payload = format!("event {number}");
        let last = publisher.publish("site", &[&payload]).await;
        publisher.confirmed(last).await;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let disk = cluster.network.disk(&cluster.hosts[1]);
    for life in 1..=2 {
        cluster.crash(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut chunk = 0;
        disk.damage_chunks(|bytes| {
            chunk += 1;
            if life == 1 && chunk == 20 {
                bytes[20] ^= 1;
            }
        });
        cluster.run(1).await;
        until("the standby", async || {
            let journal = cluster.status(1).await.journal;
            journal.is_some_and(|journal| journal.state() == JournalState::Ok)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let next_seq = publisher.next_seq;
        publisher = cluster.client(0, "publisher").await;
        publisher.next_seq = next_seq;
        let last = publisher.publish("site", &[&format!("end {life}")]).await;
        publisher.confirmed(last).await;
        let mut client = cluster.client(0, "reader").await;
        client.subscribe_from_the_beginning(1, "").await;
        let mut damaged = 0;
        loop {
            let Some(message) = client.hear().await else { panic!("the stream ended") };
            let to_client::Message::Deliver(deliver) = message else { continue };
            let texts: Vec<String> =
                deliver.items.into_iter().flat_map(crate::payloads_of).collect();
            damaged += texts.iter().filter(|text| text.contains("the journal is damaged")).count();
            if texts.iter().any(|text| *text == format!("end {life}")) {
                break;
            }
        }
        assert_eq!(damaged, 1, "in life {life}");
    }
    cluster.crash(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let store = disk.open(Path::new("/journal")).unwrap();
    let (_, restored) = LogStore::open(store, "test", bounds(), u64::MAX / 2).unwrap();
    assert_eq!((restored.damage, restored.lost_until), (None, None));
    let is_gap = |item: &Item| matches!(item.content, Content::Gap(_));
    assert!(!restored.items.iter().any(is_gap) && restored.items.len() > 100);
    assert_eq!(restored.items.first().map(|item| item.index), Some(1.into()), "nothing is missing");
}
