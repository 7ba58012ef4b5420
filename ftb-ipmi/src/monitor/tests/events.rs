//! Events of the BMC and the readings that confirm or refute them.

use super::*;

#[test]
fn an_event_and_its_polls_give_one_finding() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.raw[0] = Some(8);
    node.event(FAN, 1, 2, true, EventSource::Pushed);
    assert_eq!(node.reread(), [FANFAIL], "event and reading agree: no debounce");
    node.event(FAN, 1, 2, true, EventSource::Logged);
    assert_eq!(node.reread(), [""; 0], "the same event from the log");
    assert_eq!(node.polls(3), [""; 0]);
    node.raw[0] = Some(34);
    node.now_ms += 5000;
    node.event(FAN, 1, 2, false, EventSource::Logged);
    assert_eq!(node.reread(), [CLEARED, NORMAL]);
    assert_eq!(node.polls(5), [""; 0]);
}

#[test]
fn an_event_that_the_reading_refutes_is_ignored() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(FAN, 1, 2, true, EventSource::Pushed);
    assert_eq!(node.reread(), [""; 0]);
    assert_eq!(node.polls(3), [""; 0]);
    node.event(FAN, 1, 0, true, EventSource::Pushed);
    assert!(node.monitor.take_rereads().is_empty(), "a non-critical threshold needs no reading");
}

#[test]
fn an_event_of_a_sensor_without_a_reading_is_accepted() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 1, true, EventSource::Logged);
    assert_eq!(node.monitor.take_rereads(), [2]);
    node.give(Input::Lost("no answer".to_owned()));
    node.give(Input::Back);
    node.take();
    let samples = node.samples().into_iter().filter(|(index, _)| *index != 2).collect();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    assert_eq!(states(&node.take_findings()), [(Severity::Error, 1, 1)]);
}

#[test]
fn events_open_and_end_the_fault_of_an_event_only_sensor() {
    let mut node = Node::with(|sensors| {
        let mut psu = watched("PS2 Status", 0xC1, 0x08, 0x6F);
        psu.sensor.event_only = true;
        sensors.push(psu);
    });
    node.poll();
    node.take();
    let failed = SensorEvent {
        record: 1,
        time_s: 77,
        sensor: Some(SensorKey::bmc(0xC1)),
        number: 0xC1,
        sensor_type: 8,
        reading_type: 0x6F,
        is_asserted: true,
        offset: 1,
    };
    node.give(Input::Event { event: failed, source: EventSource::Logged });
    assert_eq!(node.take(), [PSUFAIL]);
    let mended = SensorEvent { is_asserted: false, time_s: 99, ..failed };
    node.give(Input::Event { event: mended, source: EventSource::Logged });
    assert_eq!(node.take(), [CLEARED, NORMAL]);
}

#[test]
fn an_internal_error_before_a_reset_is_published() {
    let mut node = Node::with(|sensors| sensors[2] = watched("P1 Status", DIMM, 0x07, 0x6F));
    node.states[0] = 0x80;
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 0, true, EventSource::Logged);
    node.event(DIMM, 0x6F, 0, false, EventSource::Logged);
    let findings = node.reread_findings();
    assert_eq!((findings.len(), findings[0].kind), (1, FindingKind::CpuFail));
    assert_eq!(states(&findings), [(Severity::Fatal, 0, 1)]);
}

#[test]
fn an_event_only_processor_that_becomes_worse_is_published_again() {
    let mut node = Node::with(|sensors| {
        sensors[2] = watched("P1 Status", DIMM, 0x07, 0x6F);
        sensors[2].sensor.event_only = true;
    });
    for (offset, severity) in [(1, Severity::Error), (0, Severity::Fatal)] {
        node.event(DIMM, 0x6F, offset, true, EventSource::Logged);
        assert_eq!(states(&node.take_findings()), [(severity, offset, 1)]);
    }
}

#[test]
fn a_full_log_is_published_once_and_again_when_it_drops_events() {
    let mut node = Node::new();
    node.poll();
    node.take();
    let (full, cleared) = ("FTB_IPMI_SEL_FULL", "FTB_IPMI_SEL_CLEARED");
    let by_sensor = SensorEvent { sensor_type: 0x10, offset: 4, ..from_firmware(0) };
    node.give(Input::Event { event: by_sensor, source: EventSource::Logged });
    assert_eq!(node.take(), [full]);
    node.give(Input::Log(LogState::Full));
    assert_eq!(node.take(), [""; 0], "the sensor has reported it");
    node.give(Input::Log(LogState::Overflowed));
    assert_eq!(node.take(), [full]);
    assert_eq!(node.monitor.health(), Health::Healthy, "the node itself has no fault");
    assert_eq!(node.polls(601), [full], "published again");
    for _ in 0..2 {
        node.give(Input::Log(LogState::HasRoom));
    }
    assert_eq!(node.take(), [cleared]);
    assert_eq!(node.polls(700), [""; 0]);
}
