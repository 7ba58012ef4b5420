//! A crash in the middle of a new beginning, after each of its steps.

use crate::forward::forward;
use crate::store::{epochs, items, open_store, short_segments, write_journal};
use ftb_agent::journal::log_store::LogStore;
use ftb_agent::world::{Change, Store, StoreError};
use ftb_core::frame::{Content, DedupRanges, Item};
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use ftb_core::ranges::RangeSet;
use ftb_core::{Epoch, OriginId, PublisherId};
use std::path::Path;

/// A store that fails after a number of changes.
struct Dying {
    store: Box<dyn Store>,
    steps: usize,
}

impl Dying {
    fn step(&mut self) -> Result<(), StoreError> {
        let dead = || StoreError::Io(std::io::Error::other("the process is gone"));
        self.steps = self.steps.checked_sub(1).ok_or_else(dead)?;
        Ok(())
    }
}

impl Store for Dying {
    forward!(get, segments, read, chunk, acknowledged, boot);

    fn write(&mut self, changes: Vec<Change>, _sync: bool) -> Result<(), StoreError> {
        let is_record = |change: &Change| matches!(change, Change::Put(..));
        for together in changes.chunk_by(|one, next| is_record(one) && is_record(next)) {
            self.step()?;
            self.store.write(together.to_vec(), false)?;
        }
        Ok(())
    }

    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError> {
        self.step()?;
        self.store.remove_segment(segment)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError> {
        self.step()?;
        self.store.acknowledge(record, sync)
    }
}

/// Another log wins, and the agent dies after each step of the change: its next life finds the old
/// log at least up to where they part, or the new one up to some entry, never a mixture; it knows
/// exactly which events are in it, and nothing of it looks lost.
#[test]
fn a_crash_in_the_middle_of_a_new_beginning_leaves_one_log() {
    let all = items(1, 1_000);
    let mut winning = epochs();
    // Within a chunk, between two, within the first one, behind the last.
    for after in [310, 300, 5, 1_000] {
        winning = epochs();
        winning.open(Epoch { number: 2, root: OriginId(8) }, (after + 1).into(), false);
        let other = items(5_001, 5_030).into_iter().zip(after + 1..);
        let other: Vec<Item> =
            other.map(|(item, index)| Item { index: index.into(), ..item }).collect();
        let new = [&all[..after as usize], &other[..]].concat();
        let write = JournalWrite {
            generation: 2,
            begin: Some(JournalBegin { epochs: winning.clone(), after: after.into(), anew: None }),
            items: other,
            until: (after + 30).into(),
            ..JournalWrite::default()
        };
        crash_after_each_step(&write, |restored, what| {
            let log: &[Item] = match restored.stored.epochs == epochs() {
                true => &all,
                false => &new,
            };
            let read = &restored.items;
            assert!(read.len() >= after as usize, "{what}: only {}", read.len());
            assert!(log.starts_with(read), "{what}: another entry");
        });
    }
    let begin = JournalBegin { epochs: winning.clone(), after: 4_000.into(), anew: Some(before()) };
    let write = JournalWrite {
        generation: 2,
        begin: Some(begin),
        items: items(4_001, 4_030),
        until: 4_030.into(),
        ..JournalWrite::default()
    };
    crash_after_each_step(&write, |restored, what| match restored.stored.epochs == epochs() {
        true => assert!(restored.items == all, "{what}: another entry"),
        false => assert!(items(4_001, 4_030).starts_with(&restored.items), "{what}: another entry"),
    });
}

/// The same with a head that a power failure has torn: where nothing but what is there anyhow
/// follows it, it is no damage, and nothing of it is taken for the log.
#[test]
fn a_torn_head_of_a_beginning_that_was_not_finished_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let all = items(1, 1_000);
    let mut winning = epochs();
    winning.open(Epoch { number: 2, root: OriginId(8) }, 311.into(), false);
    let begin = JournalBegin { epochs: winning, after: 310.into(), anew: None };
    let write = JournalWrite {
        generation: 2,
        begin: Some(begin),
        items: items(311, 340),
        until: 340.into(),
        ..JournalWrite::default()
    };
    let mut torn = 0;
    for steps in 0.. {
        let journal = dir.path().join(format!("{steps}"));
        write_journal(&journal);
        let before = open_store(&journal).segments().unwrap();
        let store = Box::new(Dying { store: open_store(&journal), steps });
        let (mut log_store, restored) =
            LogStore::open(store, "test", short_segments(), 2_000).unwrap();
        let old = restored.stored.epochs;
        let done = log_store.write(&write, 2_000, false).is_ok();
        drop(log_store);
        let newest = *open_store(&journal).segments().unwrap().last().unwrap();
        let open =
            || LogStore::open(open_store(&journal), "test", short_segments(), 2_000).unwrap();
        let is_cut = open().1.items.len() < all.len();
        if !before.contains(&newest) && !is_cut {
            // As it was before it was opened, but for the middle of what its head says.
            std::fs::remove_dir_all(&journal).unwrap();
            write_journal(&journal);
            let store = Box::new(Dying { store: open_store(&journal), steps });
            let opened = LogStore::open(store, "test", short_segments(), 2_000);
            drop(opened.unwrap().0.write(&write, 2_000, false));
            let path = journal.join(format!("store/log-{newest:020}"));
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[16 + 8..16 + 16].fill(0xa5);
            std::fs::write(&path, bytes).unwrap();
            torn += 1;
            let (mut log_store, restored) = open();
            assert_eq!((restored.damage, restored.lost_until), (None, None), "{steps} steps");
            assert!(restored.items == all && restored.stored.epochs == old, "{steps} steps");
            log_store.write(&write, 2_000, false).unwrap();
            drop(log_store);
            let (_, restored) = open();
            assert!(restored.items == [&all[..310], &items(311, 340)].concat(), "{steps} steps");
            assert_eq!(restored.damage, None, "{steps} steps");
        }
        if done {
            assert!(torn > 1, "a head alone, and one with what follows it");
            return;
        }
    }
}

/// What was logged before a log that begins anew.
fn before() -> DedupRanges {
    DedupRanges { publishers: vec![(PublisherId { account: 1, token: 2 }, vec![(3_000, 4_000)])] }
}

/// Does a write to a journal of 1,000 entries, and dies after each step; shows what is read then.
fn crash_after_each_step(write: &JournalWrite, check: impl Fn(&Restored, &str)) {
    let dir = tempfile::tempdir().unwrap();
    let anew = write.begin.as_ref().is_some_and(|begin| begin.anew.is_some());
    let open = |journal: &Path, steps| {
        let store = Box::new(Dying { store: open_store(journal), steps });
        LogStore::open(store, "test", short_segments(), 2_000).unwrap()
    };
    for steps in 0.. {
        let journal = dir.path().join(format!("{steps}"));
        write_journal(&journal);
        let (mut log_store, _) = open(&journal, steps);
        let written = log_store.write(write, 2_000, false);
        let done = written.and_then(|()| log_store.acknowledge()).is_ok();
        drop(log_store);
        for life in ["next", "second"] {
            let what = format!("after {steps} steps, in the {life} life");
            let (_, restored) = open(&journal, usize::MAX);
            check(&restored, &what);
            assert_eq!((&restored.damage, restored.lost_until), (&None, None), "{what}");
            let mut logged = RangeSet::default();
            if anew && restored.stored.epochs != epochs() {
                logged.insert_range(3_000, 4_000);
            }
            for item in &restored.items {
                let Content::Events(run) = &item.content else { panic!("{what}: a gap") };
                for event in run.iter() {
                    logged.insert(event.id().seq.get());
                }
            }
            assert_eq!(restored.dedup.publishers[0].1, logged.ranges(), "{what}");
        }
        let (_, restored) = open(&journal, usize::MAX);
        if done {
            assert_eq!(restored.stored.last, write.until, "all of it is there");
            assert!(steps > 2, "a beginning takes {steps} steps");
            return;
        }
        std::fs::remove_dir_all(journal).unwrap();
    }
}
