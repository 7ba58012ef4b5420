//! A machine that loses power: unsynced entries may be gone, and the next life of the agent reports
//! that.

use crate::common::{MemoryCluster, payloads_of};
use crate::forward::forward;
use crate::store::{bounds, items, open_store, short_segments, write_journal};
use crate::{Publisher, start};
use ftb_agent::journal::log_store::LogStore;
use ftb_agent::journal::record::{Checkpoint, decode_checkpoint};
use ftb_agent::world::{Change, Store, StoreError};
use ftb_core::epochs::EpochHistory;
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use ftb_core::{Epoch, OriginId};
use ftb_proto::v1::to_client;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a power failure may leave of a store, besides all of it.
#[derive(Clone, Default)]
struct Left {
    /// Up to where the segments were synced, in bytes,
    synced: BTreeMap<PathBuf, u64>,
    /// and the checkpoints that may be there: the last that was synced, and those since.
    checkpoints: Vec<Vec<u8>>,
}

/// A store on disk, in a boot of its machine, whose syncs are noted.
struct Watched {
    store: Box<dyn Store>,
    boot: Option<u128>,
    folder: PathBuf,
    left: Arc<Mutex<Left>>,
}

impl Watched {
    fn open(folder: &Path, boot: Option<u128>, left: &Arc<Mutex<Left>>) -> (LogStore, Restored) {
        let (store, left) = (open_store(folder), Arc::clone(left));
        let store = Box::new(Self { store, boot, folder: folder.to_owned(), left });
        LogStore::open(store, "test", bounds(), 1_000).unwrap()
    }

    fn synced(&self) {
        self.left.lock().unwrap().synced = segments(&self.folder);
    }
}

impl Store for Watched {
    forward!(get, segments, read, chunk, remove_segment, acknowledged);

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        // One by one: what stands before a record or a cut is synced with that.
        for change in changes {
            let syncs = !matches!(change, Change::Append { .. });
            self.store.write(vec![change], syncs)?;
            if syncs {
                self.synced();
            }
        }
        if sync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync()?;
        self.synced();
        Ok(())
    }

    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError> {
        let checkpoints = &mut self.left.lock().unwrap().checkpoints;
        if sync {
            checkpoints.clear();
        }
        checkpoints.push(record.to_vec());
        self.store.acknowledge(record, sync)
    }

    fn boot(&mut self) -> Option<u128> {
        self.boot
    }
}

/// The segments of a journal and how long they are.
fn segments(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = std::fs::read_dir(folder.join("store")).unwrap().map(|entry| entry.unwrap());
    let logs = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with("log-"));
    logs.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect()
}

/// What happens to a journal.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// This number of entries is written and acknowledged, synced before that or not.
    Write(u64, bool),
    /// Another log wins: it lacks this number of the last entries and has as many others.
    Fork(u64),
    /// What follows a write after a while.
    Settle,
    /// The agent ends in order,
    End,
    /// or not, and starts again on the same machine.
    Kill,
}

/// A journal in use, and the acknowledgements that its core received.
struct Life {
    folder: PathBuf,
    left: Arc<Mutex<Left>>,
    log_store: Option<LogStore>,
    written: u64,
    acknowledged: u64,
    epochs: EpochHistory,
}

impl Life {
    fn new(folder: &Path) -> Self {
        // Before the first checkpoint there is none.
        let left = Arc::new(Mutex::new(Left { checkpoints: vec![Vec::new()], ..Left::default() }));
        let (folder, log_store) =
            (folder.to_owned(), Some(Watched::open(folder, Some(1), &left).0));
        let epochs = EpochHistory::new();
        Self { folder, left, log_store, written: 0, acknowledged: 0, epochs }
    }

    fn log_store(&mut self) -> &mut LogStore {
        self.log_store.as_mut().unwrap()
    }

    fn write(&mut self, after: u64, count: u64, sync: bool) {
        let is_first = self.epochs.is_empty();
        let begin = (is_first || after < self.written).then(|| {
            let number = self.epochs.head().number + 1;
            self.epochs.open(Epoch { number, root: OriginId(9) }, (after + 1).into(), false);
            let anew = is_first.then(Default::default);
            JournalBegin { epochs: self.epochs.clone(), after: after.into(), anew }
        });
        self.written = after + count;
        let (items, until) = (items(after + 1, after + count), self.written);
        let write = JournalWrite {
            generation: 1,
            begin,
            items,
            until: until.into(),
            ..JournalWrite::default()
        };
        self.log_store().write(&write, 1_000, sync).unwrap();
        self.log_store().acknowledge().unwrap();
        self.acknowledged = self.written;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(count, sync) => self.write(self.written, count, sync),
            Step::Fork(count) => self.write(self.written - count, count, false),
            Step::Settle => drop(self.log_store().settle(false).unwrap()),
            Step::End | Step::Kill => {
                if matches!(step, Step::End) {
                    self.log_store().settle(true).unwrap();
                }
                self.log_store = None;
                let (mut log_store, restored) = Watched::open(&self.folder, Some(1), &self.left);
                let found = (restored.unclean, restored.damage, restored.lost_until);
                assert_eq!(found, (None, None, None), "the machine goes on");
                log_store.repair(1_000).unwrap();
                self.log_store = Some(log_store);
            }
        }
    }
}

/// What a machine that starts again finds, for all that its end may have left: each length of what
/// was not synced, with each checkpoint that may be there. Nothing that was acknowledged is missing
/// unreported. Returns how often something was reported, and how often not.
fn fail(life: &Life, scratch: &Path, what: &str) -> (usize, usize) {
    let (mut reported, mut silent) = (0, 0);
    let left = life.left.lock().unwrap().clone();
    let (newest, len) = segments(&life.folder).pop_last().unwrap();
    let synced = left.synced.get(&newest).copied().unwrap_or(0);
    let bytes = std::fs::read(&newest).unwrap();
    copy(&life.folder, scratch);
    let newest = scratch.join("store").join(newest.file_name().unwrap());
    for checkpoint in &left.checkpoints {
        std::fs::write(scratch.join("acknowledged"), checkpoint).unwrap();
        for cut in synced..=len {
            std::fs::write(&newest, &bytes[..cut as usize]).unwrap();
            let (_, restored) = Watched::open(scratch, Some(2), &Arc::default());
            let last = restored.stored.last;
            let what = format!(
                "{what}: {cut} of {synced} to {len} bytes, {:?}",
                decode_checkpoint(checkpoint.clone())
            );
            assert_eq!(restored.items, items(1, last.get()), "{what}");
            let is_reported = restored.unclean.is_some() || restored.lost_until.is_some();
            let is_lost = last < life.acknowledged.into();
            assert!(is_reported || !is_lost, "{what}: a silent loss behind {last}");
            if is_reported {
                reported += 1;
            } else {
                silent += 1;
            }
        }
    }
    std::fs::remove_dir_all(scratch).unwrap();
    (reported, silent)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("store")).unwrap();
    for name in ["acknowledged", "store/records"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for path in segments(from).into_keys() {
        std::fs::copy(&path, to.join("store").join(path.file_name().unwrap())).unwrap();
    }
}

/// Power fails after each of these steps, and leaves whatever it may.
fn live(steps: &[Step]) -> Vec<(usize, usize)> {
    let dir = tempfile::tempdir().unwrap();
    let mut life = Life::new(&dir.path().join("journal"));
    let mut found = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        life.step(*step);
        let what = format!("after step {number}, {step:?}");
        found.push(fail(&life, &dir.path().join("after"), &what));
    }
    found
}

/// Synced at intervals: after a power failure the agent reports that the end may be missing, unless
/// nothing was acknowledged since all of it was synced.
#[test]
fn what_was_acknowledged_and_not_synced_is_never_missing_without_a_word() {
    use Step::{End, Fork, Kill, Settle, Write};
    let w = Write(1, false);
    let found = live(&[
        w,
        w,
        Settle,
        w,
        Settle,
        Settle,
        w,
        Kill,
        w,
        w,
        End,
        w,
        Fork(2),
        w,
        Settle,
        Fork(1),
        Settle,
        Settle,
        Write(3, false),
        Kill,
        Settle,
        w,
        Write(2, false),
        Kill,
        Settle,
        Settle,
        End,
        Write(2, false),
        Settle,
        Settle,
    ]);
    let quiet: Vec<usize> = (0..found.len()).filter(|step| found[*step].0 == 0).collect();
    assert_eq!(quiet, [5, 10, 17, 20, 24, 25, 26, 29], "with nothing to report: {found:?}");
    assert!(quiet.iter().all(|step| found[*step].1 > 0));
}

/// Synced before it is acknowledged: a power failure takes nothing, and nothing is reported. The
/// checkpoint is on disk a while after the last write, so that a damaged end is reported.
#[test]
fn synced_entries_need_no_report_but_their_damage_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = Life::new(&dir.path().join("journal"));
    for number in 0..6 {
        life.step(Step::Write(2, true));
        let (reported, silent) = fail(&life, &dir.path().join("after"), &format!("write {number}"));
        assert!(reported == 0 && silent > 0, "write {number}: reported {reported} times");
    }
    life.step(Step::Settle);
    life.left.lock().unwrap().synced.values_mut().for_each(|len| *len -= 600);
    let (reported, silent) = fail(&life, &dir.path().join("after"), "a damaged end");
    assert_eq!((reported, silent), (600, 1), "each end but the whole one");
}

/// Without a boot id every unclean end counts as a power failure. The checkpoint is not synced more
/// often for that.
#[test]
fn without_a_boot_id_every_unclean_end_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = Life::new(dir.path());
    life.log_store = None;
    for (in_order, is_reported) in [(false, false), (true, true), (false, false), (false, true)] {
        let (log_store, restored) = Watched::open(dir.path(), None, &life.left);
        assert_eq!(restored.unclean.is_some(), is_reported, "{:?}", restored.unclean);
        life.log_store = Some(log_store);
        (0..5).for_each(|_| life.step(Step::Write(1, false)));
        let checkpoints = life.left.lock().unwrap().checkpoints.len();
        assert_eq!(checkpoints, 5, "the first is synced, and no other");
        if in_order {
            life.log_store().settle(true).unwrap();
        }
        life.log_store = None;
    }
}

/// A checkpoint that cannot be read is reported.
#[test]
fn a_damaged_checkpoint_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let path = dir.path().join("acknowledged");
    let checkpoint = std::fs::read(&path).unwrap();
    for cut in 1..checkpoint.len() {
        std::fs::write(&path, &checkpoint[..cut]).unwrap();
        let (_, restored) = LogStore::open(open_store(dir.path()), "test", bounds(), 1).unwrap();
        assert_eq!(restored.items.len(), 1_000);
        let damage = restored.damage.unwrap_or_default();
        assert!(damage.contains("how far it was acknowledged"), "{cut} bytes: {damage}");
    }
}

/// A torn head of the newest segment without entries is no damage. A damaged head with entries
/// behind it ends the log.
#[test]
fn a_torn_head_is_reported_if_entries_follow_it() {
    let dir = tempfile::tempdir().unwrap();
    let all = write_journal(dir.path());
    let logs: Vec<PathBuf> = segments(dir.path()).into_keys().collect();
    let newest = std::fs::read(logs.last().unwrap()).unwrap();
    let head = 16 + u32::from_le_bytes(newest[4..8].try_into().unwrap()) as usize;
    let next = dir.path().join(format!("store/log-{:020}", logs.len() as u64 + 1));
    let open = || LogStore::open(open_store(dir.path()), "test", short_segments(), 1).unwrap().1;
    for zeros in 16..head {
        let mut torn = newest[..head].to_vec();
        torn[zeros..].fill(0);
        if torn == newest[..head] {
            continue;
        }
        std::fs::write(&next, torn).unwrap();
        let restored = open();
        assert_eq!((restored.damage, restored.lost_until), (None, None), "zeros from {zeros}");
        assert!(restored.items == all && !next.exists(), "zeros from {zeros}");
    }
    // The oldest goes: the log begins with the next.
    std::fs::remove_file(&logs[0]).unwrap();
    let first = open().items[0].index;
    let mut bytes = std::fs::read(&logs[1]).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&logs[1], bytes).unwrap();
    let restored = open();
    assert!(
        first > 1.into()
            && restored.items.is_empty()
            && restored.stored.last == (first - 1.into()).into()
    );
    let damage = restored.damage.unwrap();
    assert!(damage.contains("the head of segment 2"), "{damage}");
    assert_eq!(restored.lost_until, Some(1_000.into()), "the log ends before the damage");
}

/// A loss is reported at each start until the next acknowledgement: an agent that ends before has
/// published no report.
#[test]
fn a_loss_is_reported_until_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let (newest, len) = segments(dir.path()).pop_last().unwrap();
    std::fs::File::options().write(true).open(newest).unwrap().set_len(len - 1).unwrap();
    let open = || LogStore::open(open_store(dir.path()), "test", short_segments(), 1).unwrap();
    let last = open().1.stored.last;
    let mut epochs = open().1.stored.epochs;
    epochs.open(Epoch { number: 2, root: OriginId(9) }, last + 1, false);
    let begin = JournalBegin { epochs, after: last, anew: None };
    let (items, until) = (items(last.get() + 1, last.get() + 1), last.next());
    let write =
        JournalWrite { generation: 1, begin: Some(begin), items, until, ..JournalWrite::default() };
    let (mut log_store, restored) = open();
    assert_eq!(restored.lost_until, Some(1_000.into()));
    log_store.write(&write, 1, true).unwrap();
    drop(log_store);
    let (mut log_store, restored) = open();
    assert_eq!((restored.stored.last, restored.lost_until), (last.next(), Some(1_000.into())));
    log_store.acknowledge().unwrap();
    drop(log_store);
    let found = open().1;
    assert_eq!((found.damage, found.lost_until), (None, None));
}

async fn names(cluster: &MemoryCluster, payload: &str) -> Vec<(String, String)> {
    let mut watcher = cluster.client(0, "watcher").await;
    watcher.subscribe_from_the_beginning(1, "severity>=INFO").await;
    let mut found = Vec::new();
    while !found.iter().any(|(_, text)| text == payload) {
        let Some(message) = watcher.hear().await else { panic!("the stream ended") };
        let to_client::Message::Deliver(deliver) = message else { continue };
        for item in deliver.items {
            let sealed = item.sealed.clone().into_iter().map(ftb_proto::event::decode_sealed);
            let names = sealed.map(|sealed| sealed.unwrap().name().to_owned());
            found.extend(names.zip(payloads_of(item)));
        }
    }
    found
}

/// An agent whose machine has ended says once that the end of its log may be missing; one that has
/// only been killed, or has synced since its last write, does not. Idle, it repeats its watch every
/// 10 minutes: 3 hours end between the sync and the next one.
#[tokio::test(start_paused = true)]
async fn an_agent_tells_that_the_end_of_its_journal_may_be_missing() {
    let journal = "[journal]\npath = \"/journal\"\nfsync = \"interval:1m\"\n";
    let mut cluster = MemoryCluster::start_with(1, 2, journal).await;
    let hour = Duration::from_secs(3600);
    for (life, loses_power, idle) in [(1, false, 0), (2, true, 0), (3, true, 3), (4, false, 0)] {
        let mut publisher = cluster.client(0, "publisher").await;
        publisher.next_seq = life;
        let payload = format!("life {life}");
        let last = publisher.publish("site", &[&payload]).await;
        publisher.confirmed(last).await;
        let events = names(&cluster, &payload).await;
        let unclean: Vec<_> =
            events.iter().filter(|(name, _)| name == "FTB_JOURNAL_UNCLEAN").collect();
        assert_eq!(unclean.len(), usize::from(life > 2), "in life {life}: {events:?}");
        assert!(unclean.iter().all(|(_, text)| text.contains("before the journal was synced")));
        tokio::time::sleep(hour * idle).await;
        // It ends without the last sync of an end in order.
        let disk = cluster.network.disk(&cluster.hosts[0]);
        disk.set_unsyncable(true);
        cluster.crash(0);
        // Its sockets are closed when its tasks have ended.
        tokio::time::sleep(Duration::from_secs(1)).await;
        disk.set_unsyncable(false);
        if loses_power {
            disk.power_failure();
        }
        cluster.run(0).await;
    }
}

fn checkpoint(journal: &Path) -> Checkpoint {
    std::fs::read(journal.join("acknowledged"))
        .ok()
        .and_then(|b| decode_checkpoint(b).ok())
        .unwrap_or_default()
}

/// From the first confirmation on, the checkpoint of a running agent states that more may have been
/// acknowledged. That of an agent that ended in order does not.
#[tokio::test]
async fn a_journal_is_marked_while_it_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let mut process = start(dir.path(), &journal, "fsync = \"interval:1h\"\n");
    let mut client = process.client().await;
    let mut publisher = Publisher { published: 0, confirmed: 0 };
    publisher.publish(&mut client, 100).await;
    publisher.beyond(&mut client, 99).await;
    assert!(checkpoint(&journal).unsynced && checkpoint(&journal).boot.is_some());
    drop(client);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended(), Some(0), "{}", process.log());
    let checkpoint = checkpoint(&journal);
    assert!(!checkpoint.unsynced && checkpoint.synced >= 100.into(), "{checkpoint:?}");
    assert_eq!(checkpoint.synced, checkpoint.acknowledged);
}
