//! Alarms of the building, which ftb-bridge imports for the hosts of a rack.

use super::conditions::{says, stated, unusable};
use super::*;
use ftb_core::condition::Truth;

/// The account ftb-bridge; the owner of the job is another one.
const BRIDGE: u32 = 997;

/// An alarm about a node, from the host with the bridge.
fn alarm(seq: u64, name: &str, number: u32, key: &str) -> Report {
    let truth = if name == "FTB_FACILITY_CLEARED" { Truth::False } else { Truth::True };
    Report { uid: BRIDGE, ..stated(seq, name, number, key, truth) }
}

#[test]
fn a_leak_or_lost_power_in_a_rack_moves_its_nodes_and_keeps_them_out_until_it_is_over() {
    for (name, key) in [("FTB_FACILITY_LEAK", "LEAK"), ("FTB_FACILITY_POWER", "FACILITY_POWER")] {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        let mut wanted = Vec::new();
        for number in 1..=2 {
            let alarm = alarm(u64::from(number), name, number, key);
            let actions = says(&mut policy, 1, &alarm, 4);
            assert!(unusable(&actions).is_some(), "no rank may go to {number}: {actions:?}");
            wanted.extend(wants(&actions));
        }
        assert_eq!(wanted, [], "the whole rack is known first");
        wanted.extend(wants(&policy.tick(at(6), &facts(4))));
        let moved = |number| {
            let is_move =
                |w: &&Request| matches!(w, Request::Migrate { node: n, .. } if *n == node(number));
            wanted.iter().filter(is_move).count()
        };
        assert_eq!((moved(1), moved(2), wanted.len()), (1, 1, 2), "{wanted:?}");
        let over = says(&mut policy, 100, &alarm(3, "FTB_FACILITY_CLEARED", 1, key), 4);
        assert_eq!(wants(&over), [Request::Usable { node: node(1) }]);
        assert!(policy.conditions.out(&node(2)).is_some(), "its alarm holds");
    }
}

#[test]
fn an_alarm_for_most_nodes_of_the_job_saves_it_and_moves_no_rank() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let mut all = Vec::new();
    for number in 1..=4 {
        let alarm =
            alarm(number, "FTB_FACILITY_POWER", u32::try_from(number).unwrap(), "FACILITY_POWER");
        all.extend(says(&mut policy, 1, &alarm, 4));
    }
    all.extend(policy.tick(at(60), &facts(4)));
    assert!(matches!(&wants(&all)[..], [Request::Checkpoint { .. }]), "{all:?}");
}

#[test]
fn a_power_failure_that_passes_at_once_and_a_breaker_move_no_rank() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let breaker = alarm(1, "FTB_FACILITY_BREAKER", 2, "BREAKER");
    let mut all = says(&mut policy, 1, &breaker, 4);
    assert_eq!(unusable(&all), None);
    all.extend(says(&mut policy, 1, &alarm(2, "FTB_FACILITY_POWER", 1, "FACILITY_POWER"), 4));
    all.extend(says(&mut policy, 3, &alarm(3, "FTB_FACILITY_CLEARED", 1, "FACILITY_POWER"), 4));
    all.extend(policy.tick(at(60), &facts(4)));
    assert_eq!(wants(&all), [Request::Usable { node: node(1) }], "{all:?}");
}

/// The same condition in a space where every user may publish.
#[test]
fn an_alarm_of_an_ordinary_user_moves_no_rank() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let mut forged = alarm(1, "FTB_FACILITY_LEAK", 1, "LEAK");
    assert_eq!(policy.check(&forged, &node(1), 500), Ok(()), "the space is trusted");
    forged.event = event("site.facility", "FTB_FACILITY_LEAK");
    assert!(policy.check(&forged, &node(1), 500).is_err(), "about another host");
    forged.host = "node01".to_owned();
    assert_eq!(policy.check(&forged, &node(1), 500), Ok(()), "about its own");
    let mut all = says(&mut policy, 1, &forged, 4);
    all.extend(policy.tick(at(60), &facts(4)));
    assert_eq!((wants(&all), unusable(&all)), (vec![], None), "{all:?}");
    let owners = Report { uid: 500, ..alarm(2, "FTB_FACILITY_LEAK", 1, "LEAK") };
    all.extend(says(&mut policy, 61, &owners, 4));
    assert!(is_migration(&policy.tick(at(66), &facts(4)), 1), "the owner of the job may");
}
