//! Files that are gone from a journal's folder: the checkpoint, the store, the records, segments;
//! and a log whose numbers are out of range. Each is reported, and damaged parts are not used.

use crate::common::{TestClient, payloads_of};
use crate::start;
use crate::store::{bounds, epochs, items, open_store, short_segments, write_journal};
use ftb_agent::journal::files::DiskStorage;
use ftb_agent::journal::log_store::{LogStore, LogStoreError};
use ftb_agent::world::Storage as _;
use ftb_core::epochs::EpochHistory;
use ftb_core::node::api::{JournalBegin, JournalWrite, Restored};
use ftb_core::{Epoch, OriginId, Rank};
use ftb_proto::v1::{self, to_client};
use std::path::{Path, PathBuf};

fn open(journal: &Path) -> Result<(LogStore, Restored), LogStoreError> {
    LogStore::open(open_store(journal), "test", short_segments(), 2_000)
}

fn begun(epochs: EpochHistory, last: u64) -> JournalWrite {
    let begin = JournalBegin { epochs, after: 0.into(), anew: Some(Default::default()) };
    let (items, until) = (items(1, last), last);
    JournalWrite {
        generation: 1,
        begin: Some(begin),
        items,
        until: until.into(),
        ..JournalWrite::default()
    }
}

fn newest_segment(journal: &Path) -> PathBuf {
    let newest = *open_store(journal).segments().unwrap().last().unwrap();
    journal.join(format!("store/log-{newest:020}"))
}

/// Takes the last chunk from the end of the newest segment: what is left reads well.
fn cut_newest(journal: &Path) {
    let path = newest_segment(journal);
    let bytes = std::fs::read(&path).unwrap();
    let (mut at, mut last) = (0, 0);
    while at < bytes.len() {
        last = at;
        at += 16 + u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    std::fs::write(&path, &bytes[..last]).unwrap();
}

fn without_checkpoint(journal: &Path, is_empty: bool) {
    let path = journal.join("acknowledged");
    match is_empty {
        true => std::fs::write(path, "").unwrap(),
        false => std::fs::remove_file(path).unwrap(),
    }
}

/// Without a checkpoint the end of the log is unknown. That is reported, whether the end is there
/// or not, until the next acknowledgement.
#[test]
fn a_missing_or_empty_checkpoint_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    for (case, (is_empty, is_cut)) in
        [(true, true), (true, false), (false, true), (false, false)].into_iter().enumerate()
    {
        let journal = dir.path().join(format!("{case}"));
        let all = write_journal(&journal);
        without_checkpoint(&journal, is_empty);
        if is_cut {
            cut_newest(&journal);
        }
        for _ in 0..2 {
            let (_, restored) = open(&journal).unwrap();
            let left = restored.items.len();
            assert_eq!(left < 1_000, is_cut, "{left} entries");
            assert!(restored.items == all[..left] && restored.end_unknown);
            let damage = restored.damage.unwrap_or_default();
            assert!(damage.contains("the checkpoint is missing or empty"), "{damage}");
        }
        open(&journal).unwrap().0.acknowledge().unwrap();
        let (_, restored) = open(&journal).unwrap();
        assert_eq!((restored.damage, restored.end_unknown), (None, false));
    }
}

/// The checkpoint records where the log begins, so a removed segment does not look like retention.
#[test]
fn an_oldest_segment_that_is_gone_is_reported_with_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let all = write_journal(dir.path());
    let oldest = open_store(dir.path()).segments().unwrap()[0];
    std::fs::remove_file(dir.path().join(format!("store/log-{oldest:020}"))).unwrap();
    for _ in 0..2 {
        let (_, restored) = open(dir.path()).unwrap();
        let first = restored.items[0].index;
        assert!(first > 1.into() && restored.items == all[(first - 1.into()) as usize..]);
        let damage = restored.damage.unwrap_or_default();
        let range =
            format!("entries 1 to {} are missing: the oldest segment is gone", first - 1.into());
        assert!(damage.contains(&range), "{damage}");
    }
    open(dir.path()).unwrap().0.acknowledge().unwrap();
    assert_eq!(open(dir.path()).unwrap().1.damage, None, "reported until the log goes on");
}

/// What retention removes is no damage, also after an agent that was killed before it acknowledged
/// the write with which the oldest segment went.
#[test]
fn a_segment_that_retention_removed_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    let (mut log_store, _) = open(dir.path()).unwrap();
    let oldest = oldest_segment(dir.path());
    for first in (1_001..).step_by(25) {
        let (items, until) = (items(first, first + 24), first + 24);
        let write =
            JournalWrite { generation: 1, items, until: until.into(), ..JournalWrite::default() };
        log_store.write(&write, 2_000, false).unwrap();
        if oldest_segment(dir.path()) != oldest {
            break;
        }
        log_store.acknowledge().unwrap();
    }
    drop(log_store);
    let (_, restored) = open(dir.path()).unwrap();
    assert!(restored.damage.is_none() && restored.stored.after > 0.into(), "{:?}", restored.damage);
}

fn oldest_segment(journal: &Path) -> PathBuf {
    let names = std::fs::read_dir(journal.join("store")).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    let logs = paths.filter(|path| path.to_string_lossy().contains("/log-"));
    logs.min().unwrap()
}

/// A store that was never written to has no log, and needs no checkpoint; nor does one with ranks
/// only. A life that ends before its first acknowledgement has lost nothing.
#[test]
fn where_nothing_was_acknowledged_nothing_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let dynamic_members = Some(vec![("guest".to_owned(), Rank::UNLISTED_FIRST)]);
    let ranks = JournalWrite { dynamic_members, ..JournalWrite::default() };
    for write in [JournalWrite::default(), ranks, begun(epochs(), 50)] {
        let (mut log_store, restored) = open(dir.path()).unwrap();
        assert_eq!((restored.damage, restored.end_unknown), (None, false));
        log_store.write(&write, 2_000, false).unwrap();
    }
    let (_, restored) = open(dir.path()).unwrap();
    assert_eq!((restored.damage, restored.end_unknown), (None, false));
    assert_eq!(restored.items, items(1, 50));
}

/// The checkpoint lies beside the store and says that there was one.
#[test]
fn a_store_that_is_gone_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path());
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    assert!(DiskStorage.exists(dir.path()), "no agent would open it");
    for _ in 0..2 {
        let (_, restored) = open(dir.path()).unwrap();
        let damage = restored.damage.unwrap_or_default();
        assert!(damage.contains("the log is gone: entries up to 1000"), "{damage}");
    }
    let (mut log_store, _) = open(dir.path()).unwrap();
    log_store.write(&begun(epochs(), 20), 2_000, false).unwrap();
    drop(log_store);
    let (mut log_store, restored) = open(dir.path()).unwrap();
    assert_eq!((restored.items, restored.lost_until), (items(1, 20), None), "of another log");
    log_store.acknowledge().unwrap();
    drop(log_store);
    assert_eq!(open(dir.path()).unwrap().1.damage, None);
}

/// The records have a copy: a flipped bit in either, or the loss of either, costs nothing.
#[test]
fn damaged_records_are_mended_from_their_copy() {
    let dir = tempfile::tempdir().unwrap();
    let all = write_journal(dir.path());
    let [records, copy] =
        ["records", "records.copy"].map(|name| dir.path().join("store").join(name));
    let good = std::fs::read(&records).unwrap();
    for (path, is_reported) in [(&records, true), (&copy, false)] {
        for byte in 0..=good.len() {
            match good.get(byte) {
                Some(_) => {
                    let mut bytes = good.clone();
                    bytes[byte] ^= 1 << (byte % 8);
                    std::fs::write(path, bytes).unwrap();
                }
                None => std::fs::remove_file(path).unwrap(),
            }
            let (_, restored) = open(dir.path()).unwrap();
            assert!(restored.items == all, "byte {byte} of {}", path.display());
            let damage = restored.damage.unwrap_or_default();
            assert_eq!(damage.contains("taken from their copy"), is_reported, "{damage}");
            for both in [&records, &copy] {
                assert!(std::fs::read(both).unwrap() == good, "byte {byte} is not mended");
            }
            assert_eq!(open(dir.path()).unwrap().1.damage, None, "it was mended");
        }
    }
    for both in [&records, &copy] {
        std::fs::write(both, &good[..good.len() - 1]).unwrap();
    }
    assert!(DiskStorage.open(dir.path()).is_err(), "both are damaged");
}

/// A journal with an epoch, or an index, that a hostile neighbour has set.
fn poisoned(journal: &Path, number: u64, first: u64) {
    let mut epochs = EpochHistory::new();
    epochs.open(Epoch { number, root: OriginId(9) }, first.into(), false);
    let (mut log_store, _) = LogStore::open(open_store(journal), "test", bounds(), 1_000).unwrap();
    log_store.write(&begun(epochs, 50), 1_000, false).unwrap();
    log_store.acknowledge().unwrap();
}

#[test]
fn a_log_whose_numbers_are_out_of_range_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    for (number, first) in [((1 << 62) + 1, 1), (1, 1 << 62)] {
        let journal = dir.path().join(format!("{number}"));
        poisoned(&journal, number, first);
        let Err(LogStoreError::Damaged(why)) = open(&journal) else { panic!("it is used") };
        assert!(why.contains("out of range"), "{why}");
    }
}

/// What an agent that starts with a journal reports: of `FTB_JOURNAL_DAMAGED` the payload, and the
/// gaps.
async fn reported(client: &mut TestClient, gaps: usize) -> (String, Vec<v1::Gap>) {
    client.subscribe_from_the_beginning(1, "").await;
    let (mut damage, mut found) = (None, Vec::new());
    while damage.is_none() || found.len() < gaps {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                let mut texts = deliver.items.into_iter().flat_map(payloads_of);
                damage = damage.or(texts.find(|text| text.contains("journal")));
            }
            Some(to_client::Message::Gap(gap)) => found.push(gap.gap.unwrap()),
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    (damage.unwrap(), found)
}

/// The same with agents: an event, a line in the log, and a gap where the end of the log may be
/// missing.
#[tokio::test]
async fn an_agent_reports_what_is_gone_from_its_journal() {
    let cases = [("empty checkpoint", 1), ("no checkpoint", 1), ("no store", 0), ("epoch", 0)];
    for (case, gaps) in cases {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        if case == "epoch" {
            poisoned(&journal, (1 << 62) + 1, 1);
        } else {
            write_journal(&journal);
        }
        match case {
            "no store" => std::fs::remove_dir_all(journal.join("store")).unwrap(),
            "epoch" => {}
            _ => {
                without_checkpoint(&journal, case == "empty checkpoint");
                cut_newest(&journal);
            }
        }
        let process = start(dir.path(), &journal, "");
        let mut client = process.client().await;
        let (damage, found) = reported(&mut client, gaps).await;
        let words = match case {
            "no store" => "the log is gone",
            "epoch" => "out of range",
            _ => "the checkpoint is missing or empty",
        };
        assert!(damage.contains(words), "{case}: {damage}");
        assert!(process.log().contains(words), "{case}: {}", process.log());
        let lost = |gap: &v1::Gap| gap.reason() == v1::GapReason::LogLost && gap.count.is_none();
        assert!(found.len() == gaps && found.iter().all(lost), "{case}: {found:?}");
        let last = client.publish("site", &["goes on"]).await;
        client.confirmed(last).await;
    }
}
