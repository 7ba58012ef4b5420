//! The journal: what is confirmed is there after kill -9; what is damaged is told and never served; a
//! full disk costs the journal and not the agent.
#![allow(clippy::unwrap_used)]

mod common;

use common::process::{Process, agent};
use common::{MemoryCluster, TestClient, payloads_of, until};
use ftb_agent::journal::fjall::DiskStorage;
use ftb_agent::journal::keeper::{Bounds, KeepError, Keeper};
use ftb_agent::journal::memory::MemoryStorage;
use ftb_agent::world::Storage as _;
use ftb_core::frame::{Content, Item};
use ftb_core::lineage::Lineage;
use ftb_core::node::api::{JournalBegin, JournalWrite};
use ftb_core::{Epoch, EventId, OriginId, PublisherId, Rank};
use ftb_proto::event::{Stamps, seal};
use ftb_proto::v1::{self, to_agent, to_client};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A lone agent as a process, its journal there.
fn start(dir: &Path, journal: &Path, extra: &str) -> Process {
    Process::start(dir, &mut agent(&write_config(dir, "test", journal, extra)))
}

fn write_config(dir: &Path, cluster: &str, journal: &Path, extra: &str) -> PathBuf {
    let table = format!("threads = 1\n[journal]\npath = \"{}\"\n{extra}", journal.display());
    common::process::write_config(dir, cluster, "node01", &table)
}

/// A publisher that behaves as the client library does: it keeps what is not confirmed.
struct Publisher {
    published: u64,
    confirmed: u64,
}

impl Publisher {
    fn payloads(first: u64, last: u64) -> Vec<bytes::Bytes> {
        (first..=last).map(|seq| common::event("site.load", &format!("event {seq}"))).collect()
    }

    /// Publishes again what an earlier agent has not confirmed.
    async fn again(&self, client: &mut TestClient) {
        if self.confirmed < self.published {
            let events = Self::payloads(self.confirmed + 1, self.published);
            let first_seq = self.confirmed + 1;
            let publish = v1::Publish { first_seq, events, again: true };
            client.say(to_agent::Message::Publish(publish)).await;
        }
    }

    async fn publish(&mut self, client: &mut TestClient, count: u64) {
        let events = Self::payloads(self.published + 1, self.published + count);
        let publish = v1::Publish { first_seq: self.published + 1, events, again: false };
        self.published += count;
        client.say(to_agent::Message::Publish(publish)).await;
    }

    /// Waits until more than that is confirmed.
    async fn beyond(&mut self, client: &mut TestClient, seq: u64) {
        while self.confirmed <= seq {
            match client.hear().await {
                Some(to_client::Message::Confirmed(confirmed)) => self.confirmed = confirmed.seq,
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    }
}

/// Reads the whole log of an agent up to an event; gives the numbers of all, in order.
async fn read_log(process: &Process, until: u64) -> Vec<u64> {
    let mut client = process.client().await;
    client.subscribe_from_the_beginning(1, "event_space=site.load").await;
    numbers(&mut client, until).await.0
}

/// The numbers of all events that come up to one, in order, and the position of the last.
async fn numbers(client: &mut TestClient, until: u64) -> (Vec<u64>, Option<v1::Position>) {
    let mut seqs: Vec<u64> = Vec::new();
    let mut position = None;
    while seqs.last() != Some(&until) {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                let (epoch, epoch_root) = (deliver.epoch, deliver.epoch_root);
                position = deliver.items.last().map(|last| {
                    let index = last.index + last.sealed.len() as u64 - 1;
                    v1::Position { epoch, epoch_root, index }
                });
                let numbers = deliver.items.into_iter().flat_map(payloads_of);
                seqs.extend(numbers.map(|text| text["event ".len()..].parse::<u64>().unwrap()));
            }
            Some(to_client::Message::Gap(gap)) => panic!("{gap:?}"),
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    (seqs, position)
}

/// Six lives under load, each ended by kill -9 while events are under way: after each everything that
/// was confirmed is there, and in the end everything is there once and in order.
#[tokio::test]
async fn kill_9_under_load_loses_nothing_and_doubles_nothing() {
    for fsync in ["batch", "interval:100ms", "never"] {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let extra = format!("fsync = \"{fsync}\"\n");
        let mut publisher = Publisher { published: 0, confirmed: 0 };
        for life in 0..6 {
            let process = start(dir.path(), &journal, &extra);
            let mut client = process.client().await;
            publisher.again(&mut client).await;
            let mut goal = publisher.confirmed;
            for _ in 0..20 + life {
                publisher.publish(&mut client, 50).await;
                publisher.beyond(&mut client, goal).await;
                goal = publisher.confirmed;
            }
            // These may be logged or not, and confirmed or not.
            publisher.publish(&mut client, 500).await;
            process.kill();
        }
        let process = start(dir.path(), &journal, &extra);
        let mut client = process.client().await;
        publisher.again(&mut client).await;
        publisher.publish(&mut client, 1).await;
        let last = publisher.published;
        publisher.beyond(&mut client, last - 1).await;
        drop(client);
        let seqs = read_log(&process, last).await;
        assert_eq!(seqs, (1..=last).collect::<Vec<u64>>(), "fsync = {fsync}");
    }
}

/// Memory holds a little of the log, the disk all of it: who asks for everything gets everything, and who
/// resumes from long ago gets what it has not had, once and in order; after kill -9 too.
#[tokio::test]
async fn what_memory_has_given_up_is_read_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let extra = "fsync = \"never\"\n[limits]\nlog_bytes = 262144\n";
    let process = start(dir.path(), &journal, extra);
    let mut client = process.client().await;
    let mut publisher = Publisher { published: 0, confirmed: 0 };
    client.subscribe(1, "event_space=site.load").await;
    publisher.publish(&mut client, 100).await;
    let (_, early) = numbers(&mut client, 100).await;
    drop(client);
    let mut client = process.client().await;
    for _ in 0..30 {
        publisher.publish(&mut client, 1_000).await;
        let behind = publisher.published - 1_000;
        publisher.beyond(&mut client, behind).await;
    }
    let last = publisher.published;
    publisher.beyond(&mut client, last - 1).await;
    drop(client);
    let all: Vec<u64> = (1..=last).collect();
    // Not asserted as equal: nobody wants to read thirty thousand numbers.
    assert!(read_log(&process, last).await == all, "not all, once and in order");
    process.kill();
    let process = start(dir.path(), &journal, extra);
    assert!(read_log(&process, last).await == all, "not all, once and in order, after kill -9");
    let mut client = process.client().await;
    let start = early.map(v1::subscribe::Start::After);
    let filter = "event_space=site.load".to_owned();
    let wanted = v1::Subscribe { subscription: 1, filter, start, ..v1::Subscribe::default() };
    client.say(to_agent::Message::Subscribe(wanted)).await;
    let rest = numbers(&mut client, last).await.0;
    assert!(rest == all[100..], "not what followed the first hundred");
}

/// What says nothing of the log, and comes when a disk is open again, does not make entries look written
/// that never were.
#[test]
fn ranks_that_are_written_alone_move_no_log() {
    let storage = MemoryStorage::default();
    let folder = Path::new("/journal");
    let open = || {
        let bounds = Bounds { bytes: 1 << 20, age: Duration::from_secs(60), memory_bytes: 1 << 20 };
        Keeper::open(storage.open(folder).unwrap(), "test", bounds, 1).unwrap()
    };
    let (mut keeper, _) = open();
    let roster = Some(vec![("node09".to_owned(), Rank(262_144))]);
    keeper.write(&JournalWrite { until: 50, roster, ..JournalWrite::default() }, 1, true).unwrap();
    assert_eq!(keeper.stored().last, 0);
    drop(keeper);
    let (_, restored) = open();
    assert_eq!((restored.lost_until, restored.damage, restored.roster.len()), (None, None, 1));
}

/// A position that was read before kill -9 is good afterwards: a subscriber goes on behind it.
#[tokio::test]
async fn a_subscriber_resumes_by_position_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    client.subscribe(1, "event_space=site").await;
    client.publish("site", &["a", "b", "c"]).await;
    let mut position = None;
    while position.is_none() {
        if let Some(to_client::Message::Deliver(deliver)) = client.hear().await {
            // Of the second of the three.
            let index = deliver.items[0].index + 1;
            let (epoch, epoch_root) = (deliver.epoch, deliver.epoch_root);
            position = Some(v1::Position { epoch, epoch_root, index });
        }
    }
    process.kill();
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    let start = position.map(v1::subscribe::Start::After);
    let filter = "event_space=site".to_owned();
    client
        .say(to_agent::Message::Subscribe(v1::Subscribe {
            subscription: 1,
            filter,
            start,
            ..v1::Subscribe::default()
        }))
        .await;
    assert_eq!(client.payloads(1).await, ["c"]);
}

#[tokio::test]
async fn the_journal_of_another_cluster_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    let last = client.publish("site", &["kept"]).await;
    client.confirmed(last).await;
    process.kill();
    let output = agent(&write_config(dir.path(), "other", &journal, "")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("it is the journal of cluster \"test\""), "{error}");
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    client.subscribe_from_the_beginning(1, "event_space=site").await;
    assert_eq!(client.payloads(1).await, ["kept"]);
}

fn bounds() -> Bounds {
    Bounds { bytes: 64 << 20, age: Duration::from_secs(3600), memory_bytes: 64 << 20 }
}

fn items(from: u64, until: u64) -> Vec<Item> {
    let publisher = PublisherId { account: 1, token: 2 };
    let item = |index| {
        let id = EventId { publisher, seq: index };
        let stamps = Stamps { id, host: "node01", uid: 0, pid: 1, republished: false };
        let text = format!("event {index} {}", "x".repeat((index % 90) as usize));
        let sealed = seal(&stamps, &common::event("site.load", &text), 1 << 20).unwrap();
        Item { index, content: Content::Events(sealed.into()) }
    };
    (from..=until).map(item).collect()
}

fn lineage() -> Lineage {
    let mut lineage = Lineage::new();
    lineage.open(Epoch { number: 1, root: OriginId(9) }, 1, false);
    lineage
}

/// A journal with 40 chunks of 25 entries.
fn write_journal(folder: &Path) -> Vec<Item> {
    let all = items(1, 1000);
    let store = DiskStorage.open(folder).unwrap();
    let (mut keeper, _) = Keeper::open(store, "test", bounds(), 1_000).unwrap();
    for (at, chunk) in all.chunks(25).enumerate() {
        let begin = JournalBegin { lineage: lineage(), after: 0, anew: Some(Default::default()) };
        let write = JournalWrite {
            generation: 1,
            begin: (at == 0).then_some(begin),
            items: chunk.to_vec(),
            until: chunk[24].index,
            roster: None,
        };
        keeper.write(&write, 1_000 + at as u64, at == 39).unwrap();
    }
    all
}

/// The files of a store with their bytes, without the zeros that the store has reserved behind them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            bytes.truncate(end);
            files.push((path, bytes));
        }
    }
    files.sort();
    files
}

/// Puts a copy of a store somewhere, damaged.
fn copy_damaged(
    files: &[(PathBuf, Vec<u8>)],
    from: &Path,
    to: &Path,
    damage: impl Fn(usize, &mut Vec<u8>),
) {
    for folder in files.iter().map(|(path, _)| path.parent().unwrap()) {
        std::fs::create_dir_all(to.join(folder.strip_prefix(from).unwrap())).unwrap();
    }
    for (number, (path, bytes)) in files.iter().enumerate() {
        let mut bytes = bytes.clone();
        let whole = bytes.len();
        damage(number, &mut bytes);
        let torn = bytes.len() < whole;
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::write(&copy, &bytes).unwrap();
        if !torn && path.extension().is_some_and(|extension| extension == "jnl") {
            let reserved = std::fs::metadata(path).unwrap().len();
            std::fs::File::options().write(true).open(copy).unwrap().set_len(reserved).unwrap();
        }
    }
}

/// What is read of a damaged copy is nothing but what was written, without a hole, and what is missing
/// is told. Gives how many entries were read; `None`: the store is to be set aside.
fn read_damaged(folder: &Path, all: &[Item], what: &str) -> Option<usize> {
    let opened = DiskStorage.open(folder).map_err(KeepError::from);
    match opened.and_then(|store| Keeper::open(store, "test", bounds(), 2_000)) {
        Ok((_, restored)) => {
            let first = restored.items.first().map_or(1, |item| item.index);
            for (at, item) in restored.items.iter().enumerate() {
                assert_eq!(item.index, first + at as u64, "{what}: a hole");
                assert_eq!(item, &all[(item.index - 1) as usize], "{what}: a wrong entry");
            }
            let missing = restored.items.len() < all.len();
            assert!(!missing || restored.damage.is_some(), "{what}: a loss is not told");
            Some(restored.items.len())
        }
        Err(KeepError::Store(ftb_agent::world::StoreError::Io(error))) => {
            panic!("{what}: damage was taken for a failing disk: {error}")
        }
        Err(_) => None,
    }
}

/// The newest file torn at many lengths, and single bits flipped all over all files.
#[test]
fn nothing_wrong_is_read_from_torn_files_and_flipped_bits() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let all = write_journal(&journal);
    let files = files(&journal);
    let log =
        files.iter().position(|(path, _)| path.extension().is_some_and(|e| e == "jnl")).unwrap();
    let len = files[log].1.len();
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
            if file == log {
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
        let file = if step % 2 == 0 { log } else { (random >> 8) as usize % files.len() };
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
    let told = loop {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                break deliver.items.into_iter().flat_map(payloads_of).next().unwrap();
            }
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    };
    assert!(told.contains("journal"), "{told}");
    let last = client.publish("site", &["goes on"]).await;
    client.confirmed(last).await;
    assert!(process.log().contains("journal damaged"), "{}", process.log());
}

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

async fn announced(client: &mut TestClient, name: &str) {
    loop {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                let name_of = |bytes| {
                    let sealed = ftb_proto::event::decode_sealed(bytes).unwrap();
                    sealed.name().to_owned()
                };
                let mut events = deliver.items.into_iter().flat_map(|item| item.sealed);
                if events.any(|bytes| name_of(bytes) == name) {
                    return;
                }
            }
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
}

/// The disk fills up under a running agent: it is told by a FATAL event, the log goes on in memory;
/// with room again the journal comes back by itself and has everything.
#[tokio::test]
async fn a_full_disk_is_told_the_agent_goes_on_and_the_journal_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let Some(_mounted) = Mounted::tmpfs(&disk, "size=96m") else {
        eprintln!("skipped: a file system that is full can only be mounted by root");
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
    // Everything but a little is taken by somebody else.
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

/// A disk that can be opened and read, and fails each time that it is written: it is tried less and less
/// often, since each try reads all of it, and the journal comes back with it.
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

/// Who asks is told how much is on disk, and whether the log is kept up there.
#[tokio::test(start_paused = true)]
async fn the_state_of_the_journal_is_told_to_who_asks() {
    let cluster = MemoryCluster::start_with(1, 2, "[journal]\npath = \"/journal\"\n").await;
    let journal = async || cluster.status(0).await.journal.unwrap();
    let mut publisher = cluster.client(0, "publisher").await;
    let last = publisher.publish("site", &["a", "b", "c"]).await;
    publisher.confirmed(last).await;
    until("the disk", async || journal().await.bytes > 0).await;
    let good = journal().await;
    assert_eq!(good.state, "ok");
    assert!(good.oldest_ns > 0);
    let disk = cluster.network.disk(&cluster.hosts[0]);
    disk.set_free(Some(0));
    let last = publisher.publish("site", &["d"]).await;
    publisher.confirmed(last).await;
    until("the failure", async || journal().await.state == "degraded").await;
    disk.set_free(None);
    until("the return", async || journal().await.state == "ok").await;
    until("all of it", async || journal().await.bytes > good.bytes).await;
    let without = MemoryCluster::start(1, 2).await;
    assert_eq!(without.status(0).await.journal, None);
}

/// Root and standby write, nobody else does; all of them are gone at once, and the log goes on.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_lost_power_goes_on_with_its_log() {
    let mut cluster = MemoryCluster::start_with(5, 2, "[journal]\npath = \"/journal\"\n").await;
    let role = async |cluster: &MemoryCluster, rank: usize| {
        cluster.agent(rank).handle().status().await.unwrap().node.role
    };
    until("a standby", async || role(&cluster, 1).await == "standby").await;
    let mut publisher = cluster.client(3, "publisher").await;
    let last = publisher.publish("site", &["a", "b", "c"]).await;
    publisher.confirmed(last).await;
    for writer in [0, 1] {
        let host = &cluster.hosts[writer];
        until("the disk", async || cluster.network.disk(host).segments() > 0).await;
    }
    for reader in [2, 3, 4] {
        let disk = cluster.network.disk(&cluster.hosts[reader]);
        assert_eq!(disk.segments(), 0, "only acting root and standby write");
    }
    // What both hold is on their disks a moment later.
    tokio::time::sleep(Duration::from_secs(1)).await;
    (0..5).for_each(|rank| cluster.crash(rank));
    // Their sockets are closed when their tasks have ended.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for rank in [4, 2, 1, 0, 3] {
        cluster.run(rank).await;
    }
    let mut subscriber = cluster.client(4, "subscriber").await;
    subscriber.subscribe_from_the_beginning(1, "event_space=site").await;
    assert_eq!(subscriber.payloads(3).await, ["a", "b", "c"]);
}

/// The oldest of the log goes when there is more than `bytes`, or when it is older than `age`; that its
/// events were logged stays known.
#[test]
fn the_journal_is_bounded_by_size_and_age() {
    let disk = ftb_agent::memory::MemoryNetwork::default().disk("node01");
    let small = Bounds { bytes: 64 << 10, age: Duration::from_secs(800), memory_bytes: 1 << 20 };
    let folder = Path::new("/journal");
    let second = 1_000_000_000;
    let (mut keeper, _) =
        Keeper::open(disk.open(folder).unwrap(), "test", small.clone(), second).unwrap();
    let begin = JournalBegin { lineage: lineage(), after: 0, anew: Some(Default::default()) };
    let mut begin = Some(begin);
    for index in 1..=2_000 {
        let items = items(index, index);
        let write = JournalWrite {
            generation: 1,
            begin: begin.take(),
            items,
            until: index,
            ..Default::default()
        };
        keeper.write(&write, second, false).unwrap();
        // The segment that is written to comes on top.
        assert!(keeper.bytes() <= (64 << 10) + (64 << 10) / 8 + 1024, "{} bytes", keeper.bytes());
    }
    let (mut keeper, restored) =
        Keeper::open(disk.open(folder).unwrap(), "test", small.clone(), second).unwrap();
    assert_eq!(restored.stored.last, 2_000);
    assert!(restored.stored.after > 1_000 && restored.damage.is_none(), "{:?}", restored.damage);
    assert_eq!(restored.marks.publishers[0].1, [(1, 2_000)], "that they were logged is known");
    for (at, index) in (2_001..=2_020).enumerate() {
        let items = items(index, index);
        let write =
            JournalWrite { generation: 2, begin: None, items, until: index, ..Default::default() };
        keeper.write(&write, (at as u64 + 2) * 100 * second, false).unwrap();
    }
    let (_, restored) =
        Keeper::open(disk.open(folder).unwrap(), "test", small, 2_100 * second).unwrap();
    let first = restored.items.first().unwrap().index;
    assert!(
        (2_010..=2_015).contains(&first),
        "kept from {first}: eight of twenty are young enough"
    );
    assert_eq!(restored.marks.publishers[0].1, [(1, 2_020)]);
}

/// The tail of a chunk is torn, and then a log wins that parts from it within that chunk: what both have
/// in common stays, and the journal can be written.
#[test]
fn a_torn_chunk_can_be_cut_where_another_log_begins() {
    let disk = ftb_agent::memory::MemoryNetwork::default().disk("node01");
    let folder = Path::new("/journal");
    let open = || Keeper::open(disk.open(folder).unwrap(), "test", bounds(), 1_000).unwrap();
    let write = |keeper: &mut Keeper, generation, begin, items: Vec<Item>| {
        let until = items.last().unwrap().index;
        let begin = Some(begin);
        let write = JournalWrite { generation, begin, items, until, ..Default::default() };
        keeper.write(&write, 1_000, false)
    };
    let (mut keeper, _) = open();
    let anew = JournalBegin { lineage: lineage(), after: 0, anew: Some(Default::default()) };
    write(&mut keeper, 1, anew, items(1, 50)).unwrap();
    disk.damage_chunks(|chunk| *chunk.last_mut().unwrap() ^= 1);
    let (mut keeper, restored) = open();
    assert_eq!((restored.stored.last, restored.lost_until), (49, Some(50)));
    let mut winning = lineage();
    winning.open(Epoch { number: 2, root: OriginId(8) }, 31, false);
    let begin = JournalBegin { lineage: winning.clone(), after: 30, anew: None };
    write(&mut keeper, 2, begin, items(31, 33)).unwrap();
    let (_, restored) = open();
    assert_eq!((restored.items, restored.damage), (items(1, 33), None));
    assert_eq!(restored.stored.lineage, winning);
}

/// A log that another has won against from an index on: what is behind it goes, the rest stays.
#[test]
fn what_lies_behind_a_fork_is_given_up() {
    let disk = ftb_agent::memory::MemoryNetwork::default().disk("node01");
    let folder = Path::new("/journal");
    let open = || Keeper::open(disk.open(folder).unwrap(), "test", bounds(), 1_000).unwrap();
    let (mut keeper, _) = open();
    let anew = JournalBegin { lineage: lineage(), after: 0, anew: Some(Default::default()) };
    let mut begin = Some(anew);
    for from in (1..100).step_by(10) {
        let items = items(from, from + 9);
        let write = JournalWrite {
            generation: 1,
            begin: begin.take(),
            items,
            until: from + 9,
            ..Default::default()
        };
        keeper.write(&write, 1_000, false).unwrap();
    }
    let mut winning = lineage();
    winning.open(Epoch { number: 2, root: OriginId(8) }, 56, false);
    let begin = Some(JournalBegin { lineage: winning.clone(), after: 55, anew: None });
    let other =
        items(1_056, 1_058).into_iter().zip(56..).map(|(item, index)| Item { index, ..item });
    let other: Vec<Item> = other.collect();
    let write = JournalWrite {
        generation: 2,
        begin,
        items: other.clone(),
        until: 58,
        ..Default::default()
    };
    keeper.write(&write, 1_000, false).unwrap();
    let (_, restored) = open();
    let expected: Vec<Item> = items(1, 55).into_iter().chain(other).collect();
    assert_eq!((restored.items, restored.stored.lineage), (expected, winning));
    assert!(restored.damage.is_none());
}
