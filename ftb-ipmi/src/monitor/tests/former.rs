//! Conditions of an earlier life: cleared by the first good reading, restated if only an event can
//! end them.

use super::*;
use crate::event::to_event;
use ftb_core::condition::{Condition, Truth};

fn row(component: &str, kind: FindingKind, key: &str) -> FormerCondition {
    let component = component.to_owned();
    FormerCondition { component, key: key.to_owned(), severity: Severity::Error, onset_ns: 7, kind }
}

/// A node with two sensors that have only events, of a processor and of a power supply.
fn node_with_events() -> Node {
    let mut node = Node::with(|sensors| {
        sensors.push(watched("P2 Status", 0xF3, 0x07, 0x6F));
        sensors.push(watched("PS2 Status", 0xC1, 0x08, 0x6F));
        for sensor in &mut sensors[4..] {
            sensor.sensor.event_only = true;
        }
    });
    node.monitor.former.is_awaited = true;
    node
}

fn processor_event(is_asserted: bool) -> Input {
    let event = SensorEvent {
        sensor: Some(SensorKey::bmc(0xF3)),
        number: 0xF3,
        sensor_type: 7,
        is_asserted,
        ..from_firmware(0)
    };
    Input::Event { event, source: EventSource::Logged }
}

/// What each finding states.
fn stated(findings: &[Finding]) -> Vec<(String, Truth)> {
    let conditions = findings.iter().filter_map(condition);
    conditions.map(|condition| (condition.subject("").to_string(), condition.truth)).collect()
}

fn condition(finding: &Finding) -> Option<Condition> {
    to_event("n1", "bmc", 9, finding).condition
}

fn is(subject: &str, truth: Truth) -> (String, Truth) {
    (subject.to_owned(), truth)
}

#[test]
fn a_fault_that_only_an_event_can_end_outlives_a_restart() {
    let mut node = node_with_events();
    assert_eq!(node.polls(3), [""; 0], "not healthy before the table was read");
    node.give(Input::Former(vec![row("P2 Status", FindingKind::CpuFail, "CPUFAIL")]));
    let findings = node.take_findings();
    assert_eq!(stated(&findings), [is("n1 P2 Status CPUFAIL", Truth::True)]);
    let restated = condition(&findings[0]).unwrap();
    assert_eq!((findings[0].severity, restated.onset_ns), (Severity::Error, 7));
    assert_eq!(node.polls(5), [""; 0]);
    assert_eq!(node.monitor.health(), Health::Failing);
    node.give(processor_event(false));
    let ended = stated(&node.take_findings());
    assert_eq!(ended[0], is("n1 P2 Status CPUFAIL", Truth::False));
    assert_eq!(node.monitor.health(), Health::Healthy);
}

#[test]
fn the_end_of_a_fault_during_a_restart_is_found_before_and_after_the_table() {
    for log_first in [true, false] {
        let mut node = node_with_events();
        let former = Input::Former(vec![row("P2 Status", FindingKind::CpuFail, "CPUFAIL")]);
        let inputs = [processor_event(false), former];
        match log_first {
            true => inputs.into_iter().for_each(|input| node.give(input)),
            false => inputs.into_iter().rev().for_each(|input| node.give(input)),
        }
        let last = stated(&node.take_findings()).pop();
        assert_eq!(last, Some(is("n1 P2 Status CPUFAIL", Truth::False)), "{log_first}");
        assert_eq!(node.poll(), [NORMAL]);
    }
}

#[test]
fn a_fault_that_was_over_before_the_restart_does_not_begin_again() {
    let mut node = node_with_events();
    let rows = [
        row("P2 Status", FindingKind::Cleared, "CPUFAIL"),
        row("PS2 Status", FindingKind::PsuFail, "PSUFAIL"),
    ];
    node.give(Input::Former(rows.to_vec()));
    let expected =
        [is("n1 P2 Status CPUFAIL", Truth::False), is("n1 PS2 Status PSUFAIL", Truth::True)];
    assert_eq!(stated(&node.take_findings()), expected);
    assert!(node.monitor.tracks[4].open.is_none() && node.monitor.tracks[5].open.is_some());
}

#[test]
fn former_conditions_of_sensors_end_with_their_first_good_reading() {
    let mut node = node_with_events();
    node.raw = [Some(8), Some(40)];
    node.states[1] = 0x03;
    let rows = [
        row("CPU 1 FAN", FindingKind::FanFail, "FANFAIL"),
        row("Inlet Temp", FindingKind::OverTemp, "OVERTEMP"),
        row("PS1 Status", FindingKind::PsuFail, "PSUFAIL"),
        row("CHASSIS FAN", FindingKind::FanFail, "FANFAIL"),
    ];
    node.give(Input::Former(rows.to_vec()));
    assert_eq!(stated(&node.take_findings()), [], "nothing was read");
    node.poll_powered(true);
    let cleared = [
        is("n1 Inlet Temp OVERTEMP", Truth::False),
        // The inventory does not have it.
        is("n1 CHASSIS FAN FANFAIL", Truth::False),
    ];
    assert_eq!(stated(&node.take_findings()), cleared);
    // A fault of another sensor, which lasts, does not keep the fan.
    node.poll_powered(true);
    let bad = [is("n1 CPU 1 FAN FANFAIL", Truth::True), is("n1 PS1 Status PSUFAIL", Truth::True)];
    assert_eq!(stated(&node.take_findings()), bad);
    node.raw[0] = Some(34);
    for _ in 0..5 {
        node.poll_powered(true);
    }
    assert_eq!(stated(&node.take_findings()), [is("n1 CPU 1 FAN FANFAIL", Truth::False)]);
    assert_eq!(node.monitor.health(), Health::Failing);
}

#[test]
fn a_sensor_that_was_read_before_the_table_ends_its_former_condition_at_once() {
    let mut node = node_with_events();
    node.poll();
    node.raw[1] = Some(95);
    node.poll();
    let rows = [
        row("CPU 1 FAN", FindingKind::FanFail, "FANFAIL"),
        row("Inlet Temp", FindingKind::OverTemp, "OVERTEMP"),
    ];
    node.give(Input::Former(rows.to_vec()));
    assert_eq!(stated(&node.take_findings()), [is("n1 CPU 1 FAN FANFAIL", Truth::False)]);
}

#[test]
fn former_conditions_without_a_sensor_end_when_log_and_controller_answer() {
    let backplane = Controller { channel: 0, slave: 0xC0 };
    let mut node = Node::with(|sensors| sensors[0].sensor.key.owner = backplane);
    let rows = [
        row("bmc", FindingKind::LogFull, "SEL_FULL"),
        row("", FindingKind::ChassisOff, "CHASSIS_OFF"),
        row(&backplane.to_string(), FindingKind::ControllerLost, "CONTROLLER_LOST"),
    ];
    node.give(Input::Former(rows.to_vec()));
    assert_eq!(stated(&node.take_findings()), []);
    node.give(Input::Log(LogState::HasRoom));
    assert_eq!(stated(&node.take_findings()), [is("n1 bmc SEL_FULL", Truth::False)]);
    let samples = node.samples().into_iter().skip(1).collect();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    assert_eq!(stated(&node.take_findings()), [], "it did not answer");
    let samples = node.samples();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    let back = format!("n1 {backplane} CONTROLLER_LOST");
    assert_eq!(stated(&node.take_findings()), [is(&back, Truth::False)]);
    assert_eq!(node.polls(2), [NORMAL], "no sensor says whether the chassis is off");
}

#[test]
fn a_person_ends_the_fault_of_a_sensor_without_readings_and_of_no_other() {
    let mut node = node_with_events();
    node.give(Input::Former(vec![row("P2 Status", FindingKind::CpuFail, "CPUFAIL")]));
    node.raw[0] = Some(8);
    node.polls(2);
    for (component, key) in [("P2 Status", "CPUFAIL"), ("CPU 1 FAN", "FANFAIL")] {
        node.give(Input::ClearedByHand { component: component.to_owned(), key: key.to_owned() });
    }
    assert_eq!(stated(&node.take_findings()), [is("n1 P2 Status CPUFAIL", Truth::False)]);
    node.give(processor_event(true));
    assert_eq!(stated(&node.take_findings()), [is("n1 P2 Status CPUFAIL", Truth::True)]);
}
