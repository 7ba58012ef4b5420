//! Conditions of an earlier life: cleared by the first good reading, restated if only an event can
//! end them.

use super::*;
use crate::event::to_event;
use ftb_core::condition::{Condition, Truth};
use std::collections::BTreeMap;

fn row(component: &str, kind: FindingKind, key: &str) -> FormerCondition {
    let (component, key, severity) = (component.to_owned(), key.to_owned(), Severity::Error);
    FormerCondition { component, key, severity, onset_ns: 7, kind, event_states: None }
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
    event_of(0xF3, 7, 0, is_asserted)
}

fn event_of(number: u8, sensor_type: u8, offset: u8, is_asserted: bool) -> Input {
    let sensor = Some(SensorKey::bmc(number));
    let event = SensorEvent { sensor, number, sensor_type, is_asserted, ..from_firmware(offset) };
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

#[test]
fn the_end_of_one_state_does_not_end_the_fault_of_another() {
    let mut node = node_with_events();
    let psu = |offset, is_asserted| event_of(0xC1, 8, offset, is_asserted);
    for (event, expected) in [
        // Failed, then its input is lost and back.
        (psu(1, true), Some(Truth::True)),
        (psu(3, true), None),
        (psu(3, false), None),
        (psu(1, false), Some(Truth::False)),
    ] {
        node.give(event);
        let found: Vec<_> = stated(&node.take_findings()).into_iter().map(|(_, t)| t).collect();
        assert_eq!(found, Vec::from_iter(expected));
    }
}

#[test]
fn a_former_fault_ends_only_with_a_state_that_its_event_may_have_had() {
    // A thermal trip, and an internal error.
    for (kind, severity, own, other) in [
        (FindingKind::OverTemp, Severity::Error, 1, 0),
        (FindingKind::CpuFail, Severity::Fatal, 0, 1),
    ] {
        for is_seen in [false, true] {
            let mut node = node_with_events();
            let former = FormerCondition { severity, ..row("P2 Status", kind, "CPUFAIL") };
            node.give(Input::Former(vec![former]));
            assert_eq!(stated(&node.take_findings()), [is("n1 P2 Status CPUFAIL", Truth::True)]);
            if is_seen {
                node.give(event_of(0xF3, 7, other, true));
                node.take();
            }
            node.give(event_of(0xF3, 7, other, false));
            assert_eq!(stated(&node.take_findings()), [], "{kind:?}");
            node.give(event_of(0xF3, 7, own, false));
            assert_eq!(stated(&node.take_findings()), [is("n1 P2 Status CPUFAIL", Truth::False)]);
        }
    }
}

#[test]
fn a_removed_sensor_ends_only_a_condition_that_a_reading_has_shown() {
    let mut node = node_with_events();
    let rows = [
        row("P3 Status", FindingKind::CpuFail, "CPUFAIL"),
        row("PS1 Status", FindingKind::CpuFail, "CPUFAIL"),
        row("CHASSIS FAN", FindingKind::FanFail, "FANFAIL"),
    ];
    node.give(Input::Former(rows.to_vec()));
    node.poll_powered(true);
    let normal = is("n1 ftb.ipmi WATCHED", Truth::True);
    let expected = [is("n1 CHASSIS FAN FANFAIL", Truth::False), normal];
    assert_eq!(stated(&node.take_findings()), expected);
}

/// What the life before has saved of its faults that only events report.
#[test]
fn states_that_were_saved_before_a_restart_tell_the_ends_of_others_apart() {
    const FAILED_AND_NO_INPUT: u16 = 1 << 1 | 1 << 3;
    let psu = |offset, is_asserted| event_of(0xC1, 8, offset, is_asserted);
    let over = is("n1 PS2 Status PSUFAIL", Truth::False);
    for log_first in [true, false] {
        let mut node = node_with_events();
        let mut former = row("PS2 Status", FindingKind::PsuFail, "PSUFAIL");
        former.event_states = Some(FAILED_AND_NO_INPUT);
        let mut inputs = vec![Input::Former(vec![former]), psu(3, false), psu(2, false)];
        inputs.rotate_left(usize::from(log_first));
        inputs.into_iter().for_each(|input| node.give(input));
        assert!(!stated(&node.take_findings()).contains(&over), "{log_first}: it has failed");
        let fault = ("PS2 Status".to_owned(), "PSUFAIL".to_owned());
        let saved = node.monitor.event_faults().unwrap();
        assert_eq!(saved, BTreeMap::from([(fault, 1 << 1)]), "{log_first}");
        node.give(psu(1, false));
        assert_eq!(stated(&node.take_findings())[0], over, "{log_first}");
        assert_eq!(node.monitor.event_faults(), Some(BTreeMap::new()));
    }
}

#[test]
fn a_removed_fan_that_only_events_report_has_not_recovered() {
    for (event_states, is_over) in [(None, true), (Some(0), false), (Some(2), false)] {
        let mut node = node_with_events();
        let former = row("CHASSIS FAN", FindingKind::FanFail, "FANFAIL");
        node.give(Input::Former(vec![FormerCondition { event_states, ..former }]));
        node.poll_powered(true);
        let over = is("n1 CHASSIS FAN FANFAIL", Truth::False);
        assert_eq!(stated(&node.take_findings()).contains(&over), is_over, "{event_states:?}");
        // The life after this one knows it, too.
        assert_eq!(node.monitor.event_faults().unwrap().is_empty(), is_over);
    }
}

#[test]
fn the_fault_of_a_removed_sensor_without_readings_goes_on_until_a_person_clears_it() {
    let mut node = node_with_events();
    node.give(Input::Former(Vec::new()));
    node.give(processor_event(true));
    let mut sensors = node.monitor.watched().to_vec();
    sensors[4].sensor.name = "CPU2 Status".to_owned();
    node.take();
    for _ in 0..2 {
        node.give(Input::Inventory(sensors.clone()));
        assert_eq!(node.polls(5), [""; 0]);
        assert_eq!(node.monitor.health(), Health::Failing);
    }
    let (component, key) = ("P2 Status".to_owned(), "CPUFAIL".to_owned());
    node.give(Input::ClearedByHand { component, key });
    let over = is("n1 P2 Status CPUFAIL", Truth::False);
    assert_eq!(stated(&node.take_findings())[0], over);
    assert_eq!(node.monitor.health(), Health::Healthy);
}

#[test]
fn a_failed_part_that_was_taken_out_during_a_restart_is_still_bad() {
    let gone = Reading { raw: None, value: None, states: 0 };
    for (index, name, kind, key) in [
        (0, "CPU 1 FAN", FindingKind::FanFail, "FANFAIL"),
        (3, "PS1 Status", FindingKind::PsuFail, "PSUFAIL"),
    ] {
        let mut node = Node::new();
        node.give(Input::Former(vec![row(name, kind, key)]));
        let poll = |node: &mut Node, is_gone: bool| {
            let mut samples = node.samples();
            if is_gone {
                samples[index].1 = gone;
            }
            node.give(Input::Samples { samples, is_whole: true, is_powered: true });
            let findings = node.take_findings();
            let of_part = findings.iter().filter(|finding| finding.sensor.is_some()).cloned();
            stated(&of_part.collect::<Vec<_>>())
        };
        assert_eq!(poll(&mut node, true), [], "a single reading may be missing");
        let subject = format!("n1 {name} {key}");
        assert_eq!(poll(&mut node, true), [is(&subject, Truth::True)]);
        assert_eq!(poll(&mut node, true), []);
        let put_in: Vec<_> = (0..5).flat_map(|_| poll(&mut node, false)).collect();
        assert_eq!(put_in, [is(&subject, Truth::False)]);
    }
}

#[test]
fn a_controller_that_was_taken_out_is_lost_no_more() {
    let backplane = Controller { channel: 0, slave: 0xC0 }.to_string();
    let mut node = Node::new();
    let rows = vec![row(&backplane, FindingKind::ControllerLost, "CONTROLLER_LOST")];
    node.give(Input::Former(rows));
    assert_eq!(stated(&node.take_findings()), [], "not all sensors are known");
    node.poll_powered(true);
    let findings = node.take_findings();
    let subject = format!("n1 {backplane} CONTROLLER_LOST");
    assert_eq!(stated(&findings)[0], is(&subject, Truth::False));
    let event = to_event("n1", "bmc", 9, &findings[0]);
    assert_eq!(event.tag("controller"), Some(&backplane[..]));
}

/// Its onset decides whether a person's order to use the node is older.
#[test]
fn a_fault_that_is_found_again_after_a_restart_holds_since_before() {
    for table_first in [true, false] {
        let mut node = node_with_events();
        node.raw[0] = Some(8);
        let rows = vec![
            row("CPU 1 FAN", FindingKind::FanFail, "FANFAIL"),
            row("Inlet Temp", FindingKind::Cleared, "OVERTEMP"),
        ];
        if table_first {
            node.give(Input::Former(rows.clone()));
        }
        node.raw[1] = Some(95);
        (0..3).for_each(|_| node.poll_powered(true));
        if !table_first {
            node.give(Input::Former(rows));
        }
        let findings = node.take_findings();
        let last = |key: &str| {
            let mut all = findings.iter().filter_map(condition);
            all.rfind(|condition| condition.key == key && condition.truth == Truth::True)
        };
        assert_eq!(last("FANFAIL").unwrap().onset_ns, 7, "{table_first}: {findings:?}");
        assert_eq!(last("OVERTEMP").unwrap().onset_ns, 0, "it was over");
        (0..601).for_each(|_| node.poll_powered(true));
        let again = node.take_findings();
        let fan = again.iter().filter_map(condition).find(|of| of.key == "FANFAIL").unwrap();
        assert_eq!(fan.onset_ns, 7);
    }
}
