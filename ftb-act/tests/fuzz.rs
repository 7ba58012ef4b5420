//! Hostile configurations, and state files that a crash has left (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

use ftb_act::act::{BreakerState, Cause, Delta, Kind, Order, Stage};
use ftb_act::config::Config;
use ftb_act::store::{self, Store};
use ftb_core::condition::Subject;
use ftb_fuzz::Target;
use std::fs;

#[test]
fn a_configuration_is_good_or_says_in_one_line_what_is_wrong() {
    let target = Target::new("act_config").files("deploy/config", "toml").rounds(1_500);
    target.check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Err(error) = Config::parse(text) {
            assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
        }
    });
}

fn order(id: u64, stage: Stage) -> Order {
    Order {
        id,
        rule: "drain".to_owned(),
        kind: Kind::Drain,
        group: "node07".to_owned(),
        causes: vec![Cause { subject: Subject::new("node07", "FAN 1", "FANFAIL"), onset_ns: 5 }],
        hosts: vec!["node07".to_owned()],
        stage,
        changes_hosts: true,
        is_persons: false,
        passes: false,
    }
}

#[test]
fn a_state_is_read_as_it_was_or_named_as_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut store = Store::open(folder.path(), 7).unwrap().0;
    let whole = fs::read(&path).unwrap();
    let reporting = Stage::Reporting { is_done: true, text: "exit 0".to_owned() };
    let open = BreakerState { is_open: true, is_confirmed: false, reason: "share".to_owned() };
    let deltas =
        [order(1, Stage::Live), order(2, Stage::Drained), order(1, reporting)].map(Delta::Put);
    store.append(&deltas).unwrap();
    store.append(&[Delta::Drop(2), Delta::Breaker(open)]).unwrap();
    drop(store);
    let changed = fs::read(&path).unwrap();
    let cut = changed[..changed.len() - 9].to_vec();
    let last = format!(
        "{{\"n\":1,\"v\":{}}}\n",
        serde_json::json!(Delta::Put(order(u64::MAX, Stage::Live)))
    );
    let last = [&whole[..], last.as_bytes()].concat();
    Target::new("act_state").seeds([whole, changed, cut, last]).rounds(1_000).check(move |bytes| {
        fs::write(&path, bytes).unwrap();
        match store::read(folder.path()) {
            Ok(None) | Err(_) => {}
            Ok(Some(saved)) => {
                let (store, opened) = Store::open(folder.path(), 9).unwrap();
                assert_eq!(opened, saved);
                drop(store);
                assert_eq!(store::read(folder.path()).unwrap(), Some(saved), "written anew");
            }
        }
    });
}
