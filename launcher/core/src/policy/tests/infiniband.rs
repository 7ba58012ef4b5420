//! What ftb-ib publishes, and the built-in rules about it.

use super::*;
use ftb_core::catalog::{EVENTS, EventEntry};

/// Descriptions, recoveries, and queues in normal use: a comment of the policy says so.
const WITHOUT_RULE: [&str; 10] = [
    "FTB_IB_ADAPTER_AVAILABLE",
    "FTB_IB_ADAPTER_INFO",
    "FTB_IB_PORT_INFO",
    "FTB_IB_PORT_ACTIVE",
    "FTB_IB_PORT_STEADY",
    "FTB_IB_PORT_RECOVERED",
    "FTB_IB_EVENT_COMM_EST",
    "FTB_IB_EVENT_SQ_DRAINED",
    "FTB_IB_EVENT_SRQ_LIMIT_REACHED",
    "FTB_IB_EVENT_QP_LAST_WQE_REACHED",
];

#[test]
fn every_infiniband_finding_has_a_rule_and_so_has_every_condition_of_one() {
    let policy = Policy::parse(DEFAULT).unwrap();
    let of_ib = EVENTS.iter().filter(|entry| entry.space == "ftb.ib");
    let (without, with): (Vec<&EventEntry>, Vec<&EventEntry>) =
        of_ib.partition(|entry| policy.reactions("ftb.ib", entry.name, &[]).is_empty());
    assert!(without.iter().all(|entry| entry.severity == "info"), "{without:?}");
    let names: BTreeSet<&str> = without.iter().map(|entry| entry.name).collect();
    assert_eq!(names, BTreeSet::from(WITHOUT_RULE));
    for condition in with.iter().flat_map(|entry| entry.sets()) {
        assert!(!policy.reactions("", "", &[condition.key]).is_empty(), "{}", condition.key);
    }
}

#[test]
fn every_built_in_rule_has_its_reason_above_it() {
    let lines: Vec<&str> = DEFAULT.lines().collect();
    for at in (0..lines.len()).filter(|at| lines[*at] == "[[rule]]") {
        assert!(lines[at - 1].starts_with("# "), "line {}: no reason", at + 1);
    }
}

/// The next switch fails for all nodes alike.
#[test]
fn a_failed_path_is_only_reported_with_its_rule() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    for (number, name) in [(1, "FTB_IB_EVENT_PATH_MIG"), (2, "FTB_IB_EVENT_PATH_MIG_ERR")] {
        let report = plain(&event("ftb.ib", name));
        let actions = policy.event(at(1), &report, &node(number), &facts(4));
        let of = format!("(InfiniBand path failed, node node0{number})");
        let words = format!("fault {number}: tell {of}: {name}");
        assert_eq!(actions, [Action::Notify(words)]);
        assert!(policy.conditions.out(&node(number)).is_none(), "it may get ranks");
    }
}
