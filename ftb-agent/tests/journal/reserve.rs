//! What a journal retains of segments that go.

use crate::common;
use crate::store::{bounds, epochs, open_store};
use ftb_agent::journal::log_store::{Bounds, LogStore};
use ftb_core::filter::{Filter, FilterSet};
use ftb_core::frame::{Content, Item};
use ftb_core::node::api::{JournalBegin, JournalRead, JournalWrite};
use ftb_core::{EventId, PublisherId, Severity};
use ftb_proto::event::{Stamps, seal};
use std::collections::BTreeMap;
use std::path::Path;

const SECOND: u64 = 1_000_000_000;

fn small() -> Bounds {
    Bounds { bytes: 256 << 10, ..bounds() }
}

fn item(index: u64, space: &str, severity: Severity) -> Item {
    let id = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: index.into() };
    let stamps = Stamps { id, host: "node01", uid: 0, pid: 1, republished: false };
    let event = common::event_with(space, &"x".repeat(100), severity);
    Item {
        index: index.into(),
        content: Content::Events(seal(&stamps, &event, 1 << 20).unwrap().into()),
    }
}

/// Writes batches of entries; each a second later.
fn write(log_store: &mut LogStore, items: &[Item]) {
    for (at, items) in items.chunks(50).enumerate() {
        let anew = Some(Default::default());
        let begin = JournalBegin { epochs: epochs(), after: 0.into(), anew };
        let begins = log_store.stored().epochs.is_empty();
        let write = JournalWrite {
            generation: 1,
            begin: begins.then_some(begin),
            items: items.to_vec(),
            until: items.last().unwrap().last(),
            ..JournalWrite::default()
        };
        log_store.write(&write, (1 + at as u64) * SECOND, false).unwrap();
    }
}

/// All that is on disk: how many events by space, and how many are missing; each index is one or
/// the other.
fn read(log_store: &mut LogStore, until: u64) -> (BTreeMap<String, u64>, u64) {
    let filters = FilterSet::merge([&Filter::everything()]);
    let (mut after, mut events, mut missing) = (0, BTreeMap::new(), 0);
    while after < until {
        let read = JournalRead {
            read: 1,
            after: after.into(),
            until: until.into(),
            since_ns: None,
            filters: filters.clone(),
        };
        let page = log_store.page(&read).unwrap();
        assert_eq!(page.after, after.into(), "nothing is left out without a word");
        for item in page.items {
            assert_eq!(item.covers_after(), after.into(), "{item:?}");
            after = item.last().get();
            match item.content {
                Content::Events(run) => {
                    for event in run.iter() {
                        *events.entry(event.space().to_owned()).or_insert(0) += 1;
                    }
                }
                Content::Gap(gap) => {
                    assert!(gap.count.is_some() && gap.severity_max.is_some(), "{gap:?}");
                    missing += gap.count.unwrap();
                }
            }
        }
        assert_eq!(page.until, after.into());
    }
    (events, missing)
}

#[test]
fn a_flood_of_fatal_events_leaves_those_of_protected_spaces_on_disk() {
    const REAL: u64 = 20;
    const LAST: u64 = 12_000;
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<Item> =
        (1..=REAL).map(|index| item(index, "ftb.ipmi.fans", Severity::Error)).collect();
    all.extend((REAL + 1..=LAST).map(|index| item(index, "app.flood", Severity::Fatal)));
    let (mut log_store, _) =
        LogStore::open(open_store(dir.path()), "test", small(), SECOND).unwrap();
    write(&mut log_store, &all);
    assert!(log_store.bytes() <= small().bytes + small().bytes / 8 + 1024, "{}", log_store.bytes());
    let check = |log_store: &mut LogStore| {
        let (events, missing) = read(log_store, LAST);
        assert_eq!(events.get("ftb.ipmi.fans"), Some(&REAL));
        assert_eq!(events.values().sum::<u64>() + missing, LAST);
        assert!(missing > LAST / 2, "{missing} are missing");
    };
    check(&mut log_store);
    drop(log_store);
    let (mut log_store, restored) =
        LogStore::open(open_store(dir.path()), "test", small(), SECOND).unwrap();
    assert_eq!((restored.damage, restored.stored.last), (None, LAST.into()));
    check(&mut log_store);
}

#[test]
fn a_look_back_that_the_disk_cannot_reach_begins_with_a_gap() {
    const LAST: u64 = 6_000;
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<Item> = (1..=LAST).map(|index| item(index, "app.load", Severity::Info)).collect();
    let (mut log_store, _) =
        LogStore::open(open_store(dir.path()), "test", small(), SECOND).unwrap();
    write(&mut log_store, &all);
    let filters = FilterSet::merge([&Filter::everything()]);
    let read =
        JournalRead { read: 1, after: 0.into(), until: LAST.into(), since_ns: Some(1), filters };
    let page = log_store.page(&read).unwrap();
    let Some(Content::Gap(gap)) = page.items.first().map(|item| &item.content) else {
        panic!("no gap comes first")
    };
    assert_eq!(gap.severity_max, Some(Severity::Info));
    assert_eq!(gap.count, Some(gap.until.index.get()));
}

/// A crash leaves the reserve and the segment that was to go: nothing is read twice.
#[test]
fn a_segment_that_should_have_gone_is_not_read_twice() {
    const LAST: u64 = 4_000;
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<Item> = (1..=LAST).map(|index| item(index, "app.x", Severity::Error)).collect();
    let (mut log_store, _) =
        LogStore::open(open_store(dir.path()), "test", small(), SECOND).unwrap();
    let mut oldest: Option<(std::path::PathBuf, Vec<u8>)> = None;
    for items in all.chunks(50) {
        let before = segments(dir.path());
        write(&mut log_store, items);
        let after = segments(dir.path());
        if let Some(gone) = before.iter().find(|(path, _)| after.iter().all(|(p, _)| p != path)) {
            oldest = Some(gone.clone());
        }
    }
    drop(log_store);
    let (path, bytes) = oldest.unwrap();
    std::fs::write(path, bytes).unwrap();
    let (mut log_store, restored) =
        LogStore::open(open_store(dir.path()), "test", small(), SECOND).unwrap();
    assert_eq!(restored.stored.last, LAST.into());
    let (events, missing) = read(&mut log_store, LAST);
    assert_eq!(events.values().sum::<u64>() + missing, LAST);
}

fn segments(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let store = std::fs::read_dir(folder.join("store")).unwrap();
    let paths = store.map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("log-"));
    logs.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}
