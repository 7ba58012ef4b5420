//! Disks that are full, or fail, under a running agent.

use crate::common::disk::MemoryStorage;
use crate::common::network::MemoryNetwork;
use crate::common::{MemoryCluster, TestClient, until};
use crate::store::{bounds, epochs, items};
use crate::{Publisher, read_log, start};
use ftb_agent::journal::Opened;
use ftb_agent::journal::config::{Fsync, JournalConfig};
use ftb_agent::journal::log_store::LogStore;
use ftb_core::node::api::{JournalBegin, JournalWrite};
use ftb_proto::v1::{JournalState, to_client};
use ftb_tests::skip::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A small file system of its own, gone with the test.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Waits for an event; gives the names of all up to it.
async fn announced(client: &mut TestClient, name: &str) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                let name_of = |bytes| {
                    let sealed = ftb_proto::event::decode_sealed(bytes).unwrap();
                    sealed.name().to_owned()
                };
                let events = deliver.items.into_iter().flat_map(|item| item.sealed);
                names.extend(events.map(name_of));
                if names.iter().any(|found| found == name) {
                    return names;
                }
            }
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
}

/// The disk fills up under a running agent: a FATAL event reports it, the log goes on in memory;
/// with room again the journal comes back by itself and has everything.
#[tokio::test]
async fn the_agent_reports_a_full_disk_and_goes_on_and_the_journal_returns() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let Some(_mounted) = Mounted::tmpfs(&disk, "size=96m") else {
        skip("only root can mount a small file system");
        return;
    };
    let journal = disk.join("journal");
    let process = start(dir.path(), &journal, "");
    let mut watcher = process.client().await;
    watcher.subscribe(1, "event_space=ftb.agent, event_name=FTB_JOURNAL_*").await;
    let mut client = process.client().await;
    let mut publisher = Publisher { published: 0, confirmed: 0 };
    publisher.publish(&mut client, 100).await;
    publisher.beyond(&mut client, 99).await;
    // Everything but a little is taken by another program.
    let mut filler = std::fs::File::create(disk.join("filler")).unwrap();
    let chunk = vec![1; 1 << 20];
    while std::io::Write::write_all(&mut filler, &chunk).is_ok() {}
    publisher.publish(&mut client, 100).await;
    publisher.beyond(&mut client, 199).await;
    announced(&mut watcher, "FTB_JOURNAL_FAILED").await;
    publisher.publish(&mut client, 100).await;
    publisher.beyond(&mut client, 299).await;
    drop(filler);
    std::fs::remove_file(disk.join("filler")).unwrap();
    announced(&mut watcher, "FTB_JOURNAL_BACK").await;
    publisher.publish(&mut client, 100).await;
    publisher.beyond(&mut client, 399).await;
    drop((client, watcher));
    process.kill();
    let process = start(dir.path(), &journal, "");
    assert_eq!(read_log(&process, 400).await, (1..=400).collect::<Vec<u64>>());
    drop(process);
}

/// A disk that can be opened and read, and fails each time that it is written: it is tried less and
/// less often, since each try reads all of it, and the journal comes back with it.
#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_when_it_is_written_is_not_opened_without_end() {
    let cluster = MemoryCluster::start_with(1, 2, "[journal]\npath = \"/journal\"\n").await;
    let disk = cluster.network.disk(&cluster.hosts[0]);
    let mut watcher = cluster.client(0, "watcher").await;
    watcher.subscribe(1, "event_name=FTB_JOURNAL_*").await;
    let mut publisher = cluster.client(0, "publisher").await;
    let last = publisher.publish("site", &["written"]).await;
    publisher.confirmed(last).await;
    disk.set_broken(true);
    let last = publisher.publish("site", &["in memory"]).await;
    publisher.confirmed(last).await;
    announced(&mut watcher, "FTB_JOURNAL_FAILED").await;
    let before = disk.opened();
    // Simulated: tried after 0.5, 1, 2, 4, 8, 10, 10, 10 and 10 s.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tries = disk.opened() - before;
    assert!((5..=12).contains(&tries), "{tries} tries in a minute");
    disk.set_broken(false);
    announced(&mut watcher, "FTB_JOURNAL_BACK").await;
}

/// `status` shows how much is on disk, and whether the log on disk is complete.
#[tokio::test(start_paused = true)]
async fn status_shows_the_state_of_the_journal() {
    let cluster = MemoryCluster::start_with(1, 2, "[journal]\npath = \"/journal\"\n").await;
    let journal = async || cluster.status(0).await.journal.unwrap();
    let mut publisher = cluster.client(0, "publisher").await;
    let last = publisher.publish("site", &["a", "b", "c"]).await;
    publisher.confirmed(last).await;
    until("the disk", async || journal().await.bytes > 0).await;
    let good = journal().await;
    assert_eq!(good.state(), JournalState::Ok);
    assert!(good.oldest_ns.is_some());
    let disk = cluster.network.disk(&cluster.hosts[0]);
    disk.set_free(Some(0));
    let last = publisher.publish("site", &["d"]).await;
    publisher.confirmed(last).await;
    until("the failure", async || journal().await.state() == JournalState::Degraded).await;
    disk.set_free(None);
    until("the return", async || journal().await.state() == JournalState::Ok).await;
    until("all of it", async || journal().await.bytes > good.bytes).await;
    let without = MemoryCluster::start(1, 2).await;
    assert_eq!(without.status(0).await.journal, None);
}

/// An agent alone whose journal holds the events that one publisher has said, and who has crashed.
async fn crashed_with(events: &[&str]) -> (MemoryCluster, Arc<MemoryStorage>) {
    let mut cluster = MemoryCluster::start_with(1, 2, "[journal]\npath = \"/journal\"\n").await;
    let disk = cluster.network.disk(&cluster.hosts[0]);
    let mut publisher = cluster.client(0, "publisher").await;
    let last = publisher.publish("site", events).await;
    publisher.confirmed(last).await;
    cluster.crash(0);
    // Its sockets are closed when its tasks have ended.
    tokio::time::sleep(Duration::from_secs(1)).await;
    (cluster, disk)
}

/// The publisher of `a`, `b` and `c` goes on.
async fn say_d(cluster: &MemoryCluster) {
    let mut publisher = cluster.client(0, "publisher").await;
    publisher.next_seq = 4;
    let last = publisher.publish("site", &["d"]).await;
    publisher.confirmed(last).await;
}

async fn assert_all_are_in_the_log(cluster: &MemoryCluster) {
    let mut subscriber = cluster.client(0, "subscriber").await;
    subscriber.subscribe_from_the_beginning(1, "event_space=site").await;
    let mut all = subscriber.payloads(4).await;
    all.sort();
    assert_eq!(all, ["a", "b", "c", "d"]);
}

/// A disk that is mounted after the agent has started: what is on it is not written over, and is in
/// the log again.
#[tokio::test(start_paused = true)]
async fn a_disk_that_comes_late_is_taken_up() {
    let (mut cluster, disk) = crashed_with(&["a", "b", "c"]).await;
    disk.set_late(true);
    cluster.run(0).await;
    let journal = async || cluster.status(0).await.journal.unwrap().state();
    say_d(&cluster).await;
    // Until what was found is taken up and handed over.
    tokio::time::sleep(Duration::from_secs(10)).await;
    until("the journal", async || journal().await == JournalState::Ok).await;
    assert_all_are_in_the_log(&cluster).await;
}

/// A journal that is damaged when its disk is back: the agent reports the damage once, whether the
/// store is set aside or goes on.
#[tokio::test(start_paused = true)]
async fn damage_found_when_a_disk_is_tried_again_is_reported() {
    let cluster = MemoryCluster::start_with(1, 2, "[journal]\npath = \"/journal\"\n").await;
    let disk = cluster.network.disk(&cluster.hosts[0]);
    let mut watcher = cluster.client(0, "watcher").await;
    watcher.subscribe(1, "event_name=FTB_JOURNAL_*").await;
    let mut publisher = cluster.client(0, "publisher").await;
    for is_set_aside in [true, false] {
        let last = publisher.publish("site", &["written"]).await;
        publisher.confirmed(last).await;
        disk.set_broken(true);
        let last = publisher.publish("site", &["in memory"]).await;
        publisher.confirmed(last).await;
        assert_eq!(announced(&mut watcher, "FTB_JOURNAL_FAILED").await, ["FTB_JOURNAL_FAILED"]);
        match is_set_aside {
            true => disk.damage_record("begun", Vec::clear),
            false => disk.damage_chunks(|chunk| *chunk.last_mut().unwrap() ^= 1),
        }
        let before = disk.opened();
        until("some tries", async || disk.opened() > before + 4).await;
        assert_eq!(disk.aside(), 1);
        disk.set_broken(false);
        let mut names = announced(&mut watcher, "FTB_JOURNAL_BACK").await;
        assert_eq!(names.pop().unwrap(), "FTB_JOURNAL_BACK");
        // What is missing is given up by the first try: the second finds the damage without that.
        let times = if is_set_aside { 1..2 } else { 1..3 };
        assert!(times.contains(&names.len()), "{names:?}");
        assert!(names.iter().all(|name| name == "FTB_JOURNAL_DAMAGED"), "{names:?}");
    }
}

/// The same of a disk that comes late: that its store cannot be read is found by who wants to write
/// to it.
#[tokio::test(start_paused = true)]
async fn damage_of_a_disk_that_is_mounted_late_is_reported() {
    let (mut cluster, disk) = crashed_with(&["written"]).await;
    disk.damage_record("begun", Vec::clear);
    disk.set_late(true);
    cluster.run(0).await;
    let mut watcher = cluster.client(0, "watcher").await;
    watcher.subscribe_from_the_beginning(1, "event_name=FTB_JOURNAL_*").await;
    let names = announced(&mut watcher, "FTB_JOURNAL_BACK").await;
    assert_eq!(names, ["FTB_JOURNAL_FAILED", "FTB_JOURNAL_DAMAGED", "FTB_JOURNAL_BACK"]);
    assert_eq!(disk.aside(), 1);
}

/// What an earlier life wrote counts as durable once the journal is open, so it is synced before
/// that, where anything is synced; a disk that cannot do it has failed.
#[tokio::test]
async fn a_journal_is_synced_before_it_is_begun_with() {
    let network = MemoryNetwork::default();
    let world = network.world("node01", 1);
    let folder = Path::new("/journal");
    let store = world.storage.open(folder).unwrap();
    let (mut log_store, _) = LogStore::open(store, "test", bounds(), 1).unwrap();
    let begin = JournalBegin { epochs: epochs(), after: 0.into(), anew: Some(Default::default()) };
    let write = JournalWrite {
        begin: Some(begin),
        items: items(1, 9),
        until: 9.into(),
        ..Default::default()
    };
    log_store.write(&write, 1, false).unwrap();
    network.disk("node01").set_unsyncable(true);
    let read = async || {
        let config = JournalConfig { fsync: Fsync::Batch, ..JournalConfig::default() };
        Opened::read(&config, "test", folder.to_owned(), 1 << 20, &world).await.unwrap()
    };
    let opened = read().await;
    assert!(opened.failed.is_some_and(|why| why.reason().contains("could not be synced")));
    assert_eq!(
        opened.restored.stored.last,
        9.into(),
        "it was read, and the agent can start with it"
    );
    network.disk("node01").set_unsyncable(false);
    network.disk("node01").set_free(Some(0));
    let opened = read().await;
    assert!(opened.failed.is_none(), "a full disk can be read and synced");
    assert_eq!(opened.restored.stored.last, 9.into());
}

/// A disk that comes late and fails at first, when it is opened or when its log is to be made sure
/// of: what is on it is in the log again once it is good, and is not written over.
#[tokio::test(start_paused = true)]
async fn a_disk_that_comes_late_and_fails_at_first_is_taken_up() {
    let (mut cluster, disk) = crashed_with(&["a", "b", "c"]).await;
    disk.set_late(true);
    disk.set_broken(true);
    cluster.run(0).await;
    say_d(&cluster).await;
    let state = async || cluster.status(0).await.journal.map(|journal| journal.state());
    until("the failure", async || state().await == Some(JournalState::Degraded)).await;
    disk.set_broken(false);
    until("the journal", async || state().await == Some(JournalState::Ok)).await;
    assert_all_are_in_the_log(&cluster).await;
}
