//! What a life that was killed has left, settled by one that writes nothing.

use crate::store::{bounds, items, lineage};
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
        let store = network.disk(HOST).open(Path::new(FOLDER)).unwrap();
        let (mut keeper, _) = Keeper::open(store, "test", bounds(), 1).unwrap();
        let begin = JournalBegin { lineage: lineage(), after: 0, anew: Some(Default::default()) };
        keeper.write(&JournalWrite { begin: Some(begin), ..more(1) }, 1, false).unwrap();
        keeper.acknowledge().unwrap();
        drop(keeper);
        let opened = Self::open(&network, fsync).await;
        assert_eq!((opened.failed.as_ref(), opened.restored.unclean.as_ref()), (None, None));
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
        Self::open(network, Fsync::Never).await.restored.unclean
    }
}

/// One entry.
fn more(index: u64) -> JournalWrite {
    let items = items(index, index);
    JournalWrite { generation: 1, items, until: index, ..Default::default() }
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
    for fsync in [Fsync::Interval(hour), Fsync::Never] {
        for fails in [false, true] {
            let mut idle = Idle::start(fsync).await;
            if fails {
                idle.fail().await;
            }
            drop(idle.pen);
            idle.running.await.unwrap();
            let unclean = Idle::unclean(&idle.network).await;
            assert_eq!(unclean, None, "{fsync:?}, {fails}");
        }
    }
}
