//! The room that is made for chunks which are synced one by one: zeros behind the last, which are no chunk,
//! and what a crash leaves in them.

use crate::store::{copy_damaged, files, is_segment, items, lineage, open_store, short_segments};
use ftb_agent::journal::keeper::Keeper;
use ftb_core::frame::Item;
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use std::path::{Path, PathBuf};

/// Where a write began and ended in its segment, by the index of its last entry.
struct Written {
    until: u64,
    begun: usize,
    ended: usize,
}

fn open(journal: &Path) -> (Keeper, Restored) {
    Keeper::open(open_store(journal), "test", short_segments(), 2_000).unwrap()
}

fn write(keeper: &mut Keeper, first: u64, last: u64) {
    let begin = JournalBegin { lineage: lineage(), after: 0, anew: Some(Default::default()) };
    let write = JournalWrite {
        generation: 1,
        begin: (first == 1).then_some(begin),
        items: items(first, last),
        until: last,
        roster: None,
    };
    keeper.write(&write, 1_000, true).unwrap();
}

/// Where the zeros begin.
fn end_of(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The store of a journal as a crash leaves it whose twelve writes of ten entries were synced one by one, and
/// where in its one segment they are.
fn crashed(journal: &Path) -> (Vec<(PathBuf, Vec<u8>)>, Vec<Written>) {
    let (mut keeper, _) = open(journal);
    let mut writes: Vec<Written> = Vec::new();
    for first in (1..=120).step_by(10) {
        write(&mut keeper, first, first + 9);
        let files = files(journal);
        let segment = files.iter().find(|(path, _)| is_segment(path)).unwrap();
        assert_eq!(segment.1.len(), 64 << 10, "there is room behind the chunk");
        let begun = writes.last().map_or(0, |written| written.ended);
        // The last byte of a chunk is text.
        writes.push(Written { until: first + 9, begun, ended: end_of(&segment.1) });
    }
    let left = files(journal);
    drop(keeper);
    let sizes: Vec<usize> =
        files(journal).iter().filter(|(path, _)| is_segment(path)).map(|f| f.1.len()).collect();
    assert_eq!(sizes, [writes.last().unwrap().ended], "the room goes with who has made it");
    (left, writes)
}

/// What follows, in this life and the next: `good` is there, and what is written behind it.
fn goes_on(journal: &Path, good: u64, what: &str) {
    let all = items(1, good + 20);
    let told = |restored: &Restored| (restored.damage.clone(), restored.lost_until);
    let (mut keeper, restored) = open(journal);
    assert!(restored.items == all[..good as usize], "{what}: {} entries", restored.items.len());
    assert_eq!(told(&restored), (None, None), "{what}");
    write(&mut keeper, good + 1, good + 10);
    // Without room, behind room.
    let plain =
        JournalWrite { items: items(good + 11, good + 20), until: good + 20, ..Default::default() };
    keeper.write(&plain, 1_000, false).unwrap();
    drop(keeper);
    let (_, restored) = open(journal);
    assert!(restored.items == all, "{what}, then: {} entries", restored.items.len());
    assert_eq!(told(&restored), (None, None), "{what}, then");
}

/// Sets what was acknowledged back to what it was before the last write.
fn acknowledge_less(journal: &Path, before: &[u8]) {
    std::fs::write(journal.join("acknowledged"), before).unwrap();
}

/// After a crash the room is the end of the log, and what is written then comes in its place.
#[test]
fn room_is_not_taken_for_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let (left, _) = crashed(&journal);
    let copy = dir.path().join("copy");
    copy_damaged(&left, &journal, &copy, |_, _| {});
    goes_on(&copy, 120, "after a crash");
}

/// The last write is torn: its end, or some of its pages, are still room. Nobody was told of it, so the log
/// ends before it and nothing looks damaged; what follows comes in its place.
#[test]
fn a_write_that_is_torn_in_its_room_was_never_there() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let (left, writes) = crashed(&journal);
    let [.., before, last] = &writes[..] else { panic!("there are twelve") };
    let acknowledged = {
        // As it was when the last write was not there yet.
        let one = dir.path().join("one");
        let (mut keeper, _) = open(&one);
        write(&mut keeper, 1, before.until);
        drop(keeper);
        std::fs::read(one.join("acknowledged")).unwrap()
    };
    let len = last.ended - last.begun;
    for torn in (0..len).step_by(len / 50) {
        for pages in ["the end", "the beginning"] {
            let copy = dir.path().join(format!("{pages}-{torn}"));
            copy_damaged(&left, &journal, &copy, |file, bytes| {
                if is_segment(&left[file].0) {
                    let chunk = &mut bytes[last.begun..last.ended];
                    let (begin, end) = chunk.split_at_mut(torn);
                    // One byte at least.
                    match pages {
                        "the end" => end.fill(0),
                        _ if torn == 0 => end[0] = !end[0],
                        _ => begin.fill(0),
                    }
                }
            });
            acknowledge_less(&copy, &acknowledged);
            goes_on(
                &copy,
                before.until,
                &format!("{pages} of the last write torn at {torn} of {len}"),
            );
            std::fs::remove_dir_all(copy).unwrap();
        }
    }
}

/// The same of a write that was acknowledged is told: it is missing.
#[test]
fn what_is_missing_before_room_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let (left, writes) = crashed(&journal);
    let all: Vec<Item> = items(1, 120);
    for Written { begun, ended, until } in &writes[1..] {
        for at in [*begun, (begun + ended) / 2, ended - 1] {
            let copy = dir.path().join(format!("{at}"));
            copy_damaged(&left, &journal, &copy, |file, bytes| {
                if is_segment(&left[file].0) {
                    bytes[at..*ended].fill(0);
                }
            });
            let (_, restored) = open(&copy);
            let what = format!("zeros from {at} to {ended}, before {until}");
            assert!(restored.items.len() < 120 && restored.damage.is_some(), "{what}: not told");
            let from = restored.items.first().map_or(0, |item| item.index as usize - 1);
            let good = all[from..].iter().zip(&restored.items).all(|(all, read)| all == read);
            assert!(good, "{what}: a wrong entry");
            std::fs::remove_dir_all(copy).unwrap();
        }
    }
}
