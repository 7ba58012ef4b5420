//! A store that fails in the middle, and logs that begin without an entry: what the lives after it
//! find.

use crate::forward::forward;
use crate::store::{epochs, items, open_store, short_segments, write_journal};
use ftb_agent::journal::log_store::LogStore;
use ftb_agent::world::{Change, Store, StoreError};
use ftb_core::frame::Item;
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use ftb_core::{Epoch, OriginId};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(journal: &Path) -> (LogStore, Restored) {
    LogStore::open(open_store(journal), "test", short_segments(), 2_000).unwrap()
}

/// Entries behind those that are there.
fn more(items: Vec<Item>) -> JournalWrite {
    let until = items.last().unwrap().index;
    JournalWrite { generation: 2, items, until, ..JournalWrite::default() }
}

/// A log begins anew, and the agent ends before it has an entry: what the next life writes is there
/// in the one after it, and so is what that writes after another such beginning.
#[test]
fn a_log_that_begins_without_an_entry_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    for after in [2_000, 3_000] {
        let begin =
            JournalBegin { epochs: epochs(), after: after.into(), anew: Some(Default::default()) };
        let begin =
            JournalWrite { begin: Some(begin), until: after.into(), ..JournalWrite::default() };
        open(dir.path()).0.write(&begin, 2_000, false).unwrap();
        let (mut log_store, restored) = open(dir.path());
        assert_eq!((restored.stored.last, restored.lost_until), (after.into(), None));
        log_store.write(&more(items(after + 1, after + 10)), 2_000, false).unwrap();
        drop(log_store);
        let (mut log_store, restored) = open(dir.path());
        assert_eq!(restored.items, items(after + 1, after + 10));
        assert_eq!((restored.damage, restored.lost_until), (None, None));
        log_store.write(&more(items(after + 11, after + 20)), 2_000, false).unwrap();
        drop(log_store);
        assert_eq!(open(dir.path()).1.items, items(after + 1, after + 20));
    }
}

/// A store whose syncs, or reads of a segment, fail while a switch is on.
struct Failing {
    store: Box<dyn Store>,
    /// Segment, and number of chunks (its head counted) behind which reading it fails.
    unreadable: Option<(u64, usize)>,
    syncs_fail: Arc<AtomicBool>,
}

impl Failing {
    fn open(
        journal: &Path,
        unreadable: Option<(u64, usize)>,
        syncs_fail: &Arc<AtomicBool>,
    ) -> (LogStore, Restored) {
        let store = open_store(journal);
        let syncs_fail = Arc::clone(syncs_fail);
        let store = Box::new(Self { store, unreadable, syncs_fail });
        LogStore::open(store, "test", short_segments(), 2_000).unwrap()
    }

    fn check_sync(&self) -> Result<(), StoreError> {
        match self.syncs_fail.load(Ordering::Relaxed) {
            true => Err(StoreError::Unsynced(std::io::Error::other("no sync"))),
            false => Ok(()),
        }
    }
}

impl Store for Failing {
    forward!(get, segments, chunk, remove_segment, acknowledged, boot);

    fn read(
        &mut self,
        segment: u64,
        visit: &mut dyn FnMut(u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        let Some((_, most)) = self.unreadable.filter(|(id, _)| *id == segment) else {
            return self.store.read(segment, visit);
        };
        let mut seen = 0;
        self.store.read(segment, &mut |first, chunk| {
            if seen < most {
                visit(first, chunk);
            }
            seen += 1;
        })?;
        Err(StoreError::Io(std::io::Error::other("a sector cannot be read")))
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        self.store.write(changes, false)?;
        if sync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.check_sync()?;
        self.store.sync()
    }

    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError> {
        self.store.acknowledge(record, sync)
    }
}

/// The newest segment of a journal.
fn newest(journal: &Path) -> u64 {
    *open_store(journal).segments().unwrap().last().unwrap()
}

/// Other entries than those that were there.
fn other(from: u64, until: u64) -> Vec<Item> {
    let others = items(from + 5_000, until + 5_000).into_iter();
    others.map(|item| Item { index: (item.index - 5_000.into()).into(), ..item }).collect()
}

/// The newest segment fails when it is read, in its middle and at once, and can be read again in
/// the next life: that finds what was written after the failure, and nothing of what was void then.
#[test]
fn what_could_not_be_read_is_not_believed_later() {
    let dir = tempfile::tempdir().unwrap();
    let good = Arc::new(AtomicBool::new(false));
    for (case, seen) in [0, 1, 2].into_iter().enumerate() {
        for begin_after in [None, Some(0), Some(300)] {
            let what = format!("{seen} chunks seen, new from {begin_after:?} before the end");
            let journal = dir.path().join(format!("{case}-{begin_after:?}"));
            write_journal(&journal);
            let (mut log_store, _) = open(&journal);
            log_store.write(&more(items(1_001, 1_025)), 2_000, false).unwrap();
            log_store.write(&more(items(1_026, 1_050)), 2_000, false).unwrap();
            drop(log_store);
            let all = items(1, 1_050);
            let bad = Some((newest(&journal), seen));
            let (mut log_store, restored) = Failing::open(&journal, bad, &good);
            let last = restored.stored.last;
            assert!(
                (500..1_050).contains(&last.get()) && restored.damage.is_some(),
                "{what}: {last}"
            );
            assert_eq!(restored.items, all[..last.get() as usize], "{what}: the good part");
            let after = last - begin_after.unwrap_or(0).into();
            let mut winning = epochs();
            winning.open(Epoch { number: 2, root: OriginId(8) }, (after + 1).into(), false);
            let begin = JournalBegin { epochs: winning, after: after.into(), anew: None };
            let begin = begin_after.map(|_| begin);
            let write = JournalWrite { begin, ..more(other(after + 1, after + 10)) };
            // Late enough for a new segment, whatever became of the newest.
            log_store.write(&write, 500_000_000_000, false).unwrap();
            log_store.acknowledge().unwrap();
            drop(log_store);
            let expected = [&all[..after as usize], &write.items].concat();
            for life in ["next", "second"] {
                let (_, restored) = Failing::open(&journal, None, &good);
                assert!(restored.items == expected, "{what}: another log in the {life} life");
                let found = (restored.damage, restored.lost_until);
                assert_eq!(found, (None, None), "{what}: in the {life} life");
            }
        }
    }
}

/// A file that ends while it is read: the chunks before that are there, can be read, and are gone
/// on from.
#[test]
fn the_good_part_of_a_file_that_fails_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let chunk = |first| Change::Append { segment: 1, first, chunk: vec![1; 200 << 10] };
    let record = Change::Put("format", Vec::new());
    open_store(dir.path()).write(vec![record, chunk(1), chunk(2), chunk(3)], false).unwrap();
    let path = dir.path().join("store/log-00000000000000000001");
    let whole = std::fs::read(&path).unwrap();
    let mut store = open_store(dir.path());
    let mut seen = Vec::new();
    let read = store.read(1, &mut |first, _| {
        seen.push(first);
        // Beyond what was read ahead.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(300 << 10).unwrap();
    });
    assert!(read.is_err(), "the file ended before its chunks");
    assert_eq!(seen, [1]);
    std::fs::write(&path, whole).unwrap();
    assert_eq!(store.chunk(1, 1).unwrap().map(|chunk| chunk.len()), Some(200 << 10));
    store.write(vec![chunk(2)], false).unwrap();
    drop(store);
    let mut store = open_store(dir.path());
    let mut seen = Vec::new();
    store.read(1, &mut |first, _| seen.push(first)).unwrap();
    assert_eq!(seen, [1, 2]);
    // A segment that was not read is neither written over nor cut.
    drop(store);
    let mut store = open_store(dir.path());
    assert!(store.write(vec![chunk(3)], false).is_err());
    assert!(store.write(vec![Change::Cut { segment: 1, from: 1 }], false).is_err());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * (200 << 10) + 32);
}

/// What a life before has written, which may never have been synced, is synced with the rest.
#[test]
fn what_an_earlier_life_wrote_is_synced_too() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let mut store = open_store(dir.path());
    store.sync().unwrap();
    store.sync().unwrap();
    drop(store);
    let mut store = open_store(dir.path());
    std::fs::remove_file(dir.path().join("store/log-00000000000000000001")).unwrap();
    assert!(store.sync().is_err(), "what is gone cannot have been synced");
    assert!(store.sync().is_err(), "and is not forgotten");
}
