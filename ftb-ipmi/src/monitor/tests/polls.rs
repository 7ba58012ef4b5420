//! Faults found by polls: debounce, hysteresis, prediction, repetition.

use super::*;

#[test]
fn a_node_is_unknown_until_the_first_pass_and_then_healthy() {
    let mut node = Node::new();
    assert_eq!(node.monitor.health(), Health::Unknown);
    assert_eq!(node.polls(5), [NORMAL]);
    assert_eq!(node.monitor.health(), Health::Healthy);
}

#[test]
fn a_fault_needs_two_bad_readings_and_ends_after_three_good_ones() {
    let mut node = Node::new();
    assert_eq!(node.poll(), [NORMAL]);
    node.raw[0] = Some(8);
    assert_eq!(node.poll(), [""; 0]);
    node.raw[0] = Some(34);
    assert_eq!(node.poll(), [""; 0], "a single bad reading is not published");
    node.raw[0] = Some(8);
    assert_eq!(node.polls(6), [FANFAIL]);
    node.raw[0] = Some(34);
    assert_eq!(node.polls(2), [""; 0]);
    assert_eq!(node.polls(3), [CLEARED, NORMAL]);
}

#[test]
fn a_node_that_fails_at_the_start_is_never_reported_healthy() {
    let mut node = Node::new();
    node.raw[0] = Some(8);
    assert_eq!(node.polls(4), [FANFAIL]);
    assert_eq!(node.monitor.health(), Health::Failing);
}

#[test]
fn hysteresis_keeps_a_fault_open_near_its_limit() {
    let mut node = Node::new();
    node.raw[0] = Some(10);
    assert_eq!(node.polls(3), [FANFAIL], "a value at the threshold is below it");
    node.raw[0] = Some(11);
    assert_eq!(node.polls(10), [""; 0], "one step above is inside the hysteresis");
    node.raw[0] = Some(12);
    assert_eq!(node.polls(4), [CLEARED, NORMAL]);
}

#[test]
fn a_stopped_or_removed_fan_has_failed_and_an_empty_slot_has_not() {
    for raw in [Some(0), None] {
        let mut node = Node::new();
        node.poll();
        node.take();
        node.raw[0] = raw;
        assert_eq!(node.polls(3), [FANFAIL]);
    }
    let mut empty_slot = Node::new();
    empty_slot.raw[0] = None;
    assert_eq!(empty_slot.polls(4), [NORMAL], "with the power on");
    let mut resting = Node::with(|sensors| sensors[0].policy.zero_is_good = true);
    resting.raw[0] = Some(0);
    assert_eq!(resting.polls(4), [NORMAL]);
}

#[test]
fn a_node_is_healthy_only_after_its_last_fault() {
    let mut node = Node::new();
    node.raw = [Some(5), Some(95)];
    assert_eq!(node.polls(3), [FANFAIL, OVERTEMP]);
    node.raw[0] = Some(34);
    assert_eq!(node.polls(5), [CLEARED]);
    node.raw[1] = Some(40);
    assert_eq!(node.polls(5), [CLEARED, NORMAL]);
}

#[test]
fn a_predicted_overheating_is_reported_with_the_seconds_left() {
    let mut node = Node::new();
    node.polls(30);
    for step in 0..35_u8 {
        node.raw[1] = Some(40 + step);
        node.poll_powered(true);
    }
    let findings = node.take_findings();
    let heat = findings.iter().find(|f| f.kind == FindingKind::OverTemp).expect("a prediction");
    let Some(Cause::Predicted(forecast)) = heat.cause else { panic!("{heat:?}") };
    // One degree a second.
    let left = 90.0 - heat.value.unwrap();
    assert!((forecast.seconds_left / left - 1.0).abs() < 0.2, "{left} s: {forecast:?}");
    assert!(forecast.sure_percent > 90.0);
    for step in 35..60_u8 {
        node.raw[1] = Some((40 + step).min(95));
        node.poll_powered(true);
    }
    let findings = node.take_findings();
    assert!(findings.iter().all(|finding| finding.is_repeat), "{findings:?}");
    let is_above = |finding: &&Finding| matches!(finding.cause, Some(Cause::Above { .. }));
    assert_eq!(findings.iter().filter(is_above).count(), 1, "the limit is reached: {findings:?}");
    assert!(is_above(&findings.last().unwrap()) && findings.len() <= 2);
}

/// The launcher counts on the time that was published.
#[test]
fn a_rise_that_becomes_steeper_is_published_again_with_less_time_and_the_same_onset() {
    let mut node = Node::new();
    node.polls(30);
    let mut half_degrees = 40 * 2;
    let mut rise = |node: &mut Node, polls: u16, by: u16| {
        for _ in 0..polls {
            half_degrees += by;
            node.raw[1] = u8::try_from(half_degrees / 2).ok();
            node.poll_powered(true);
        }
        node.take_findings()
    };
    let slow = rise(&mut node, 50, 1);
    let [first] = &slow[..] else { panic!("{slow:?}") };
    let began_ms = node.now_ms;
    assert_eq!(first.age_ms, 0);
    let steep = rise(&mut node, 12, 3);
    assert!((1..=3).contains(&steep.len()), "not each reading: {steep:?}");
    let left = |finding: &Finding| match finding.cause {
        Some(Cause::Predicted(forecast)) => forecast.seconds_left_min,
        _ => 0.0,
    };
    let last = steep.last().unwrap();
    assert!(last.is_repeat && left(last) < left(first) / 2.0, "{first:?}\n{last:?}");
    let ages = steep.iter().map(|finding| finding.age_ms);
    assert!(ages.clone().is_sorted() && ages.max() <= Some(node.now_ms - began_ms + 40_000));
    let onset = |finding: &Finding, at_ms: u64| {
        let event = crate::event::to_event("n1", "bmc", at_ms * 1_000_000, finding);
        (
            event.condition.unwrap().onset_ns,
            event.tags.into_iter().find(|tag| tag.key == "fails_at_min"),
        )
    };
    let (onset_ns, fails_at) = onset(last, 1_000_000);
    assert_eq!(onset_ns, (1_000_000 - last.age_ms) * 1_000_000);
    let fails_at: f64 = fails_at.unwrap().value.parse().unwrap();
    assert!((fails_at - 1000.0 - left(last)).abs() <= 1.0, "{fails_at}");
}

#[test]
fn uncorrectable_memory_errors_and_power_supplies_are_faults() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.states = [0x42, 0x03];
    node.polls(1);
    assert_eq!(node.poll(), [MEMERR, PSUFAIL]);
    node.states = [0x40, 0x01];
    assert_eq!(node.polls(5), [CLEARED, CLEARED, NORMAL]);
    node.states[1] = 0x00;
    assert_eq!(node.polls(3), [PSUFAIL], "pulled out");
}

#[test]
fn a_fault_that_becomes_worse_is_published_again() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.states[0] = 0x41;
    assert_eq!(node.polls(3), [MEMERR]);
    assert_eq!(node.monitor.health(), Health::Healthy, "corrected errors only warn");
    node.states[0] = 0x43;
    assert_eq!(node.polls(3), [MEMERR]);
    assert_eq!(node.monitor.health(), Health::Failing);
}

#[test]
fn a_lasting_fault_is_published_again_with_the_current_reading() {
    let mut node = Node::new();
    node.polls(2);
    node.raw[0] = Some(5);
    assert_eq!(node.polls(2), ["FTB_IPMI_FANFAIL"]);
    node.raw[0] = Some(3);
    assert!(node.polls(599).is_empty());
    node.poll_powered(true);
    let findings = node.take_findings();
    assert_eq!((findings.len(), findings[0].kind), (1, FindingKind::FanFail));
    assert_eq!((findings[0].is_repeat, findings[0].value), (true, Some(198.0)));
    // It holds since it was published first.
    let condition = crate::event::to_event("n1", "bmc", 700_000_000_000, &findings[0]).condition;
    assert_eq!(condition.unwrap().onset_ns, 100_000_000_000);
    assert!(node.polls(599).is_empty());
    assert_eq!(node.poll(), ["FTB_IPMI_FANFAIL"]);
}
