//! Gaps: the table of conditions is read again.

use super::conditions::{ROW, fan, says, stated, unusable};
use super::*;
use crate::policy::conditions::CONDITIONS_MAX;
use ftb_core::condition::Truth;
use ftb_core::log::table_view::ReadPlace;

fn row(place: ReadPlace, report: Report) -> Report {
    Report { place, ..report }
}

/// The end of the reading after the first one.
fn ended() -> ReadPlace {
    ReadPlace { is_row: false, ..ROW.next_reading() }
}

#[test]
fn a_node_is_used_again_whose_fault_is_not_in_the_table_after_a_gap() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    for number in [5, 6, 7] {
        says(&mut policy, 1, &row(ROW, fan(1, number, Truth::True)), 4);
    }
    says(&mut policy, 2, &stated(2, "FTB_IPMI_PSUFAIL", 7, "PSUFAIL", Truth::True), 4);
    let other = ReadPlace { subscription: 1, ..ROW };
    says(&mut policy, 2, &row(other, fan(1, 8, Truth::True)), 4);
    let again = ROW.next_reading();
    says(&mut policy, 3, &row(again, fan(1, 6, Truth::True)), 4);
    let supply = stated(2, "FTB_IPMI_PSUFAIL", 7, "PSUFAIL", Truth::True);
    says(&mut policy, 3, &row(again, supply), 4);
    let actions = policy.end_reading(at(4), ended(), &facts(4));
    assert_eq!(wants(&actions), [Request::Usable { node: node(5) }]);
    let why = "power supply failed: sensor PSUFAIL".to_owned();
    assert_eq!(unusable(&actions), Some((node(7), why, false)), "for another reason than before");
    let out = [5, 6, 7, 8].map(|number| policy.conditions.out(&node(number)).is_some());
    assert_eq!(out, [false, true, true, true]);
    assert_eq!(policy.end_reading(at(5), ended(), &facts(4)), []);
    // It is stated again: that is a fault of its own.
    assert!(unusable(&says(&mut policy, 6, &fan(2, 5, Truth::True), 4)).is_some());
}

#[test]
fn what_waits_for_a_fault_that_a_gap_has_ended_is_cancelled() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let hot = stated(1, "FTB_IPMI_OVERTEMP", 2, "OVERTEMP", Truth::True);
    says(&mut policy, 1, &hot, 4);
    let actions = policy.end_reading(at(2), ended(), &facts(4));
    assert_eq!(wants(&actions), [Request::Usable { node: node(2) }]);
    assert_eq!(policy.tick(at(60), &facts(4)), []);
}

/// An ordinary user has replaced the row by a clear of the own, which does not count here.
#[test]
fn a_row_that_is_refused_ends_no_fault() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    says(&mut policy, 1, &row(ROW, fan(1, 5, Truth::True)), 4);
    let mut forged = row(ROW.next_reading(), fan(2, 5, Truth::False));
    (forged.uid, forged.event.space) = (1000, EventSpace::new("site.x").unwrap());
    assert!(policy.check(&forged, &node(5), 500).is_err());
    policy.on_refused(&forged, &node(5));
    assert_eq!(policy.end_reading(at(2), ended(), &facts(4)), []);
    assert!(policy.conditions.out(&node(5)).is_some());
}

#[test]
fn a_fault_that_began_in_a_gap_is_not_overruled_by_an_order_from_before() {
    let held = |onset_ns: u64, report: Report| {
        let mut report = report;
        report.stated.as_mut().unwrap().condition.onset_ns = onset_ns;
        report
    };
    let after_gap = |report: Report| {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        says(&mut policy, 1, &row(ROW, held(500, fan(1, 5, Truth::True))), 4);
        policy.usable(Now { mono_ns: at(2).mono_ns, wall_ns: 1000 }, &node(5));
        unusable(&says(&mut policy, 9, &row(ROW.next_reading(), report), 4)).is_some()
    };
    assert!(after_gap(held(2000, fan(3, 5, Truth::True))), "it cleared and failed anew in the gap");
    assert!(!after_gap(held(500, fan(3, 5, Truth::True))), "its publisher has stated it again");
    assert!(!after_gap(held(500, fan(1, 5, Truth::True))), "the same statement");
    let mut undated = fan(3, 5, Truth::True);
    undated.event.time_ns = 2000;
    assert!(after_gap(undated), "without an onset the time of the event counts");
    let other = stated(3, "FTB_IPMI_PSUFAIL", 5, "PSUFAIL", Truth::True);
    assert!(!after_gap(held(900, other)), "it held before the order, and was missed");
}

/// A job that runs for weeks hears of ever new subjects.
#[test]
fn a_fault_counts_although_conditions_that_are_over_fill_the_memory() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let mut over = stated(1, "FTB_IPMI_SENSOR_CLEARED", 4, "FANFAIL", Truth::False);
    for number in 0..u32::try_from(CONDITIONS_MAX).unwrap() {
        over.stated.as_mut().unwrap().condition.component = format!("FAN {number}");
        policy.conditions.take(&node(10 + number % 4096), &over, Concerned::default(), false);
    }
    assert!(unusable(&says(&mut policy, 2, &fan(2, 5, Truth::True), 4)).is_some());
    assert!(policy.conditions.out(&node(5)).is_some());
}
