//! What a life that was killed has left, and becomes of it in one that writes nothing.

use crate::common::disk::MemoryStorage;
use crate::common::network::MemoryNetwork;
use crate::store::{bounds, epochs, items};
use ftb_agent::handle::{Command, Inbox, channel};
use ftb_agent::journal::config::{Fsync, JournalConfig};
use ftb_agent::journal::log_store::LogStore;
use ftb_agent::journal::{LogWriter, Opened};
use ftb_agent::world::{Change, Storage, Store, StoreError, World};
use ftb_core::node::api::{Input, JournalBegin, JournalWrite};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The world of a journal that lies in memory, and the life of an agent that writes nothing to it.
struct Idle {
    network: MemoryNetwork,
    log_writer: LogWriter,
    inbox: Inbox,
    running: JoinHandle<()>,
}

const FOLDER: &str = "/journal";
const HOST: &str = "node01";

impl Idle {
    /// On a disk with what a life that was killed has confirmed and not synced.
    async fn start(fsync: Fsync) -> Self {
        let network = MemoryNetwork::default();
        kill(&network, 0, 1);
        let opened = Self::open(&network, fsync).await;
        assert_eq!((opened.failed.as_ref(), opened.restored.unclean.as_ref()), (None, None));
        Self::run(network, opened)
    }

    fn run(network: MemoryNetwork, opened: Opened) -> Self {
        let (handle, inbox) = channel();
        let (log_writer, running) = opened.start(&network.world(HOST, 1), handle);
        Self { network, log_writer, inbox, running }
    }

    async fn open(network: &MemoryNetwork, fsync: Fsync) -> Opened {
        let (config, world) =
            (JournalConfig { fsync, ..JournalConfig::default() }, network.world(HOST, 1));
        Opened::read(&config, "test", FOLDER.into(), 1 << 20, &world).await.unwrap()
    }

    async fn input(&mut self) -> Input {
        match self.inbox.links.recv().await {
            Some(Command::Input { input, .. }) => input,
            _ => panic!("something else than an input"),
        }
    }

    /// The disk fails when it is written to, and is open again.
    async fn fail(&mut self) {
        let disk = self.network.disk(HOST);
        disk.set_broken(true);
        self.log_writer.writes.send(more(2)).await.unwrap();
        assert!(matches!(self.input().await, Input::JournalFailed { .. }));
        disk.set_broken(false);
        assert!(matches!(self.input().await, Input::JournalOpened { .. }));
    }

    /// The report after a power failure.
    async fn unclean(network: &MemoryNetwork) -> Option<String> {
        network.disk(HOST).power_failure();
        Self::open(network, Fsync::Batch).await.restored.unclean
    }
}

/// A life that has confirmed this number of entries, the first of them synced, and is killed.
fn kill(network: &MemoryNetwork, synced: u64, last: u64) {
    let store = network.disk(HOST).open(Path::new(FOLDER)).unwrap();
    let (mut log_store, _) = LogStore::open(store, "test", bounds(), 1).unwrap();
    let begin = JournalBegin { epochs: epochs(), after: 0.into(), anew: Some(Default::default()) };
    let begin = JournalWrite { begin: Some(begin), ..JournalWrite::default() };
    log_store.write(&begin, 1, false).unwrap();
    for index in 1..=last {
        log_store.write(&more(index), 1, index == synced).unwrap();
    }
    log_store.acknowledge().unwrap();
}

/// One entry.
fn more(index: u64) -> JournalWrite {
    let items = items(index, index);
    JournalWrite { generation: 1, items, until: index.into(), ..JournalWrite::default() }
}

/// A killed life leaves a checkpoint that may be older than what it confirmed. The next life syncs
/// everything, writes nothing, and loses power after a while: nothing is reported. It wakes once.
#[tokio::test(start_paused = true)]
async fn what_a_killed_life_has_left_is_settled_by_one_that_writes_nothing() {
    let hour = Duration::from_secs(3600);
    for (fails, settles) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut idle = Idle::start(Fsync::Interval(hour)).await;
        if fails {
            idle.fail().await;
        }
        if settles {
            tokio::time::sleep(hour + Duration::from_secs(1)).await;
            // One more sync would arrive here.
            idle.network.disk(HOST).set_unsyncable(true);
            tokio::time::sleep(10 * hour).await;
            assert!(idle.inbox.links.try_recv().is_err(), "it was synced again");
        }
        idle.running.abort();
        assert!(idle.running.await.is_err_and(|ended| ended.is_cancelled()));
        let unclean = Idle::unclean(&idle.network).await;
        assert_eq!(unclean.is_some(), !settles, "{fails}, {settles}: {unclean:?}");
    }
}

/// The same of an agent that ends in order before that, also where its disk was opened again and
/// not written to since.
#[tokio::test(start_paused = true)]
async fn what_a_killed_life_has_left_is_settled_by_an_end_in_order() {
    let hour = Duration::from_secs(3600);
    for fails in [false, true] {
        let mut idle = Idle::start(Fsync::Interval(hour)).await;
        if fails {
            idle.fail().await;
        }
        drop(idle.log_writer);
        idle.running.await.unwrap();
        let unclean = Idle::unclean(&idle.network).await;
        assert_eq!(unclean, None, "{fails}");
    }
}

/// The disk is to say that entries may be confirmed that it does not have, or not any more.
fn mark(generation: u64, is_replicated: bool) -> JournalWrite {
    let until = 1.into();
    let write = JournalWrite { generation, until, is_replicated, ..JournalWrite::default() };
    JournalWrite { changes_mark: true, ..write }
}

/// A standby comes, and perhaps goes, and nothing is logged meanwhile.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_mark_without_entries_is_on_disk_before_it_is_acknowledged() {
    let second = Duration::from_secs(1);
    for fsync in [Fsync::Batch, Fsync::Interval(second)] {
        for marks in [[].as_slice(), &[true], &[true, false], &[true, false, true]] {
            let mut idle = Idle::start(fsync).await;
            tokio::time::sleep(60 * second).await;
            for (number, is_replicated) in (2..).zip(marks) {
                idle.log_writer.writes.send(mark(number, *is_replicated)).await.unwrap();
                let input = idle.input().await;
                let is_it =
                    matches!(input, Input::Journaled { generation, .. } if generation == number);
                assert!(is_it, "{marks:?}: {input:?}");
            }
            let is_marked = marks.last() == Some(&true);
            if !is_marked {
                tokio::time::sleep(60 * second).await;
            }
            idle.running.abort();
            assert!(idle.running.await.is_err_and(|ended| ended.is_cancelled()));
            let unclean = Idle::unclean(&idle.network).await;
            assert_eq!(unclean.is_some(), is_marked, "{fsync:?}, {marks:?}: {unclean:?}");
        }
    }
}

/// An fsync fails when the journal is opened, or later: the agent goes on with what was read,
/// reports the failure once, and never writes the journal again.
#[tokio::test(start_paused = true)]
async fn an_fsync_error_turns_the_journal_off_until_the_agent_restarts() {
    let fsync = Fsync::Interval(Duration::from_secs(1));
    for at_opening in [true, false] {
        let network = MemoryNetwork::default();
        kill(&network, 4, 9);
        let disk = network.disk(HOST);
        disk.set_unsyncable(at_opening);
        let opened = Idle::open(&network, fsync).await;
        assert_eq!(opened.failed.is_some(), at_opening);
        assert_eq!(opened.restored.items, items(1, 9));
        let mut idle = Idle::run(network, opened);
        if !at_opening {
            // The first is synced with the checkpoint, the second not.
            for index in [10, 11] {
                idle.log_writer.writes.send(more(index)).await.unwrap();
                let Input::Journaled { until, .. } = idle.input().await else { panic!("failed") };
                assert_eq!(until, index.into());
            }
            disk.set_unsyncable(true);
        }
        let Input::JournalFailed { error } = idle.input().await else { panic!("no failure") };
        assert!(error.contains("could not be synced"), "{error}");
        assert!(at_opening || error.contains("off until the agent restarts"), "{error}");
        disk.set_unsyncable(false);
        let opened = disk.opened();
        idle.log_writer.writes.send(more(12)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(idle.inbox.links.try_recv().is_err(), "the journal is used again");
        assert_eq!(disk.opened(), opened, "the journal was opened again");
        // After a power failure the next life reports the loss.
        idle.running.abort();
        disk.power_failure_that_takes_all_it_may();
        let restored = Idle::open(&idle.network, fsync).await.restored;
        let last = restored.stored.last;
        // Entries of the first life are too old to be kept.
        assert!(restored.items == items(restored.stored.after.get() + 1, last.get()));
        let expected = if at_opening { (9.into(), None) } else { (10.into(), Some(11.into())) };
        assert_eq!((last, restored.lost_until), expected);
    }
}

/// A storage that renames a store, and then fails.
struct HalfRenamed(Arc<MemoryStorage>);

impl Storage for HalfRenamed {
    fn exists(&self, folder: &Path) -> bool {
        self.0.exists(folder)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Store>, StoreError> {
        self.0.open(folder)
    }

    fn set_aside(&self, folder: &Path, now_ns: u64) -> Result<PathBuf, StoreError> {
        self.0.set_aside(folder, now_ns)?;
        Err(StoreError::Io(std::io::Error::other("the disk is slow")))
    }

    fn free_bytes(&self, folder: &Path) -> std::io::Result<u64> {
        self.0.free_bytes(folder)
    }

    fn is_blocking(&self) -> bool {
        false
    }
}

/// A damaged store was renamed, but with an error. The next attempt finds no store, and reports
/// what happened to the first.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_renamed_with_an_error_is_reported() {
    let network = MemoryNetwork::default();
    let disk = network.disk("node01");
    let folder = Path::new("/journal");
    let mut store = disk.open(folder).unwrap();
    store.write(vec![Change::Put("format", b"nonsense".to_vec())], true).unwrap();
    let world = World { storage: Arc::new(HalfRenamed(disk)), ..network.world("node01", 1) };
    let config = JournalConfig::default();
    let opened = Opened::read(&config, "test", folder.into(), 1 << 20, &world).await.unwrap();
    assert!(opened.failed.is_some());
    let (handle, mut inbox) = channel();
    let (_writer, _task) = opened.start(&world, handle);
    loop {
        let Some(Command::Input { input, .. }) = inbox.links.recv().await else {
            panic!("no input")
        };
        if let Input::JournalOpened { damage, .. } = input {
            let damage = damage.unwrap();
            return assert!(damage.contains("is being set aside"), "{damage}");
        }
    }
}
