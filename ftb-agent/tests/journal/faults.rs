//! A store that fails in the middle, and logs that begin without an entry: what the lives after it find.

use crate::store::{items, lineage, open_store, short_segments, write_journal};
use ftb_agent::journal::keeper::Keeper;
use ftb_core::frame::Item;
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use std::path::Path;

fn open(journal: &Path) -> (Keeper, Restored) {
    Keeper::open(open_store(journal), "test", short_segments(), 2_000).unwrap()
}

/// Entries behind those that are there.
fn more(items: Vec<Item>) -> JournalWrite {
    let until = items.last().unwrap().index;
    JournalWrite { generation: 2, items, until, ..JournalWrite::default() }
}

/// A log begins anew, and the agent ends before it has an entry: what the next life writes is there in
/// the one after it, and so is what that writes after another such beginning.
#[test]
fn a_log_that_begins_without_an_entry_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    for after in [2_000, 3_000] {
        let begin = JournalBegin { lineage: lineage(), after, anew: Some(Default::default()) };
        let begin = JournalWrite { begin: Some(begin), until: after, ..JournalWrite::default() };
        open(dir.path()).0.write(&begin, 2_000, false).unwrap();
        let (mut keeper, restored) = open(dir.path());
        assert_eq!((restored.stored.last, restored.lost_until), (after, None));
        keeper.write(&more(items(after + 1, after + 10)), 2_000, false).unwrap();
        drop(keeper);
        let (mut keeper, restored) = open(dir.path());
        assert_eq!(restored.items, items(after + 1, after + 10));
        assert_eq!((restored.damage, restored.lost_until), (None, None));
        keeper.write(&more(items(after + 11, after + 20)), 2_000, false).unwrap();
        drop(keeper);
        assert_eq!(open(dir.path()).1.items, items(after + 1, after + 20));
    }
}
