//! What a life that was killed has left, and becomes of it in one that writes nothing.

use crate::store::{bounds, epochs, items};
use ftb_agent::handle::{Command, Inbox, channel};
use ftb_agent::journal::config::{Fsync, JournalConfig};
use ftb_agent::journal::keeper::Keeper;
use ftb_agent::journal::{Opened, Pen};
use ftb_agent::memory::MemoryNetwork;
use ftb_agent::world::Storage as _;
use ftb_core::node::api::{Input, JournalBegin, JournalWrite};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The world of a journal that lies in memory, and the life of an agent that writes nothing to it.
struct Idle {
    network: MemoryNetwork,
    pen: Pen,
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
        let (pen, running) = opened.start(&network.world(HOST, 1), handle);
        Self { network, pen, inbox, running }
    }

    async fn open(network: &MemoryNetwork, fsync: Fsync) -> Opened {
        let (config, world) =
            (JournalConfig { fsync, ..JournalConfig::default() }, network.world(HOST, 1));
        Opened::read(&config, "test", FOLDER.into(), 1 << 20, &world).await.unwrap()
    }

    async fn told(&mut self) -> Input {
        match self.inbox.links.recv().await {
            Some(Command::Input { input, .. }) => input,
            _ => panic!("something else than an input"),
        }
    }

    /// The disk fails when it is written to, and is open again.
    async fn fail(&mut self) {
        let disk = self.network.disk(HOST);
        disk.set_broken(true);
        self.pen.writes.send(more(2)).await.unwrap();
        assert!(matches!(self.told().await, Input::JournalFailed { .. }));
        disk.set_broken(false);
        assert!(matches!(self.told().await, Input::JournalOpened { .. }));
    }

    /// What is told after a power failure.
    async fn unclean(network: &MemoryNetwork) -> Option<String> {
        network.disk(HOST).power_failure();
        Self::open(network, Fsync::Batch).await.restored.unclean
    }
}

/// A life that has confirmed so many entries, the first of them synced, and is killed.
fn kill(network: &MemoryNetwork, synced: u64, last: u64) {
    let store = network.disk(HOST).open(Path::new(FOLDER)).unwrap();
    let (mut keeper, _) = Keeper::open(store, "test", bounds(), 1).unwrap();
    let begin = JournalBegin { epochs: epochs(), after: 0, anew: Some(Default::default()) };
    let begin = JournalWrite { begin: Some(begin), ..JournalWrite::default() };
    keeper.write(&begin, 1, false).unwrap();
    for index in 1..=last {
        keeper.write(&more(index), 1, index == synced).unwrap();
    }
    keeper.acknowledge().unwrap();
}

/// One entry.
fn more(index: u64) -> JournalWrite {
    let items = items(index, index);
    JournalWrite { generation: 1, items, until: index, ..JournalWrite::default() }
}

/// A life that was killed has left a mark that may be older than what it confirmed; the next one has synced all
/// of it, writes nothing, and loses power after a while: nothing is told. It wakes once for that.
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
            // One more sync would be told.
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

/// The same of an agent that ends in order before that, also where its disk was opened again and not written to
/// since.
#[tokio::test(start_paused = true)]
async fn what_a_killed_life_has_left_is_settled_by_an_end_in_order() {
    let hour = Duration::from_secs(3600);
    for fails in [false, true] {
        let mut idle = Idle::start(Fsync::Interval(hour)).await;
        if fails {
            idle.fail().await;
        }
        drop(idle.pen);
        idle.running.await.unwrap();
        let unclean = Idle::unclean(&idle.network).await;
        assert_eq!(unclean, None, "{fails}");
    }
}

/// An fsync fails when the journal is opened, or later: the agent goes on with what was read, reports
/// the failure once, and never writes the journal again.
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
                idle.pen.writes.send(more(index)).await.unwrap();
                let Input::Journaled { until, .. } = idle.told().await else { panic!("failed") };
                assert_eq!(until, index);
            }
            disk.set_unsyncable(true);
        }
        let Input::JournalFailed { error } = idle.told().await else { panic!("no failure") };
        assert!(error.contains("could not be synced"), "{error}");
        assert!(at_opening || error.contains("off until the agent restarts"), "{error}");
        disk.set_unsyncable(false);
        let opened = disk.opened();
        idle.pen.writes.send(more(12)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(idle.inbox.links.try_recv().is_err(), "the journal is used again");
        assert_eq!(disk.opened(), opened, "the journal was opened again");
        // After a power failure the next life reports the loss.
        idle.running.abort();
        disk.power_failure_that_takes_all_it_may();
        let restored = Idle::open(&idle.network, fsync).await.restored;
        let last = restored.stored.last;
        // Entries of the first life are too old to be kept.
        assert!(restored.items == items(restored.stored.after + 1, last));
        let expected = if at_opening { (9, None) } else { (10, Some(11)) };
        assert_eq!((last, restored.lost_until), expected);
    }
}
