//! What a life that was killed has left, and becomes of it in one that writes nothing.

use crate::common::until;
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
        Self::open(network, Fsync::Never).await.restored.unclean
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

/// What a killed life has left could not be synced when it was opened: it reads well from then on, and a second
/// sync has nothing to say. The agent begins with it, and told that some is missing; the journal is open once it was
/// written again, also where the disk has failed on the way, and after a power failure it is there.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_synced_when_it_was_opened_is_written_again() {
    let fsync = Fsync::Interval(Duration::from_secs(3600));
    for (synced, fails) in [(0, false), (4, false), (4, true)] {
        let network = MemoryNetwork::default();
        kill(&network, synced, 9);
        let disk = network.disk(HOST);
        let mut chunk = 0;
        disk.damage_chunks(|bytes| {
            chunk += 1;
            if chunk == 9 {
                *bytes.last_mut().unwrap() ^= 1;
            }
        });
        disk.set_unsyncable(true);
        let opened = Idle::open(&network, fsync).await;
        assert!(opened.failed.as_ref().is_some_and(|why| why.contains("could not be synced")));
        let restored = &opened.restored;
        assert_eq!((&restored.items, restored.lost_until), (&items(1, 8), Some(9)));
        assert!(restored.damage.is_some());
        disk.set_unsyncable(false);
        disk.set_broken(fails);
        let mut idle = Idle::run(network, opened);
        assert!(matches!(idle.told().await, Input::JournalFailed { .. }));
        if fails {
            let before = disk.opened();
            until("some tries", async || disk.opened() > before + 2).await;
            disk.set_broken(false);
        }
        let Input::JournalOpened { stored, restored, damage } = idle.told().await else {
            panic!("not opened");
        };
        assert_eq!((stored.last, restored, damage), (8, None, None), "the agent knows of it");
        idle.running.abort();
        disk.power_failure_that_takes_all_it_may();
        let again = Idle::open(&idle.network, fsync).await.restored;
        assert_eq!(again.items, items(1, 8), "{synced} entries had been synced");
    }
}
