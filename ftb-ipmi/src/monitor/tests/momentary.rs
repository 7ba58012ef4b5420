//! Errors without a lasting state: counted, rate-limited, never delayed by lesser ones.

use super::*;

#[test]
fn memory_errors_without_a_lasting_state_are_counted() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 0, true, EventSource::Logged);
    node.monitor.take_rereads();
    let samples = node.samples();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    let findings = node.take_findings();
    assert_eq!((findings.len(), findings[0].kind, findings[0].count), (1, FindingKind::MemErr, 1));
    assert_eq!(findings[0].severity, Severity::Warning, "a corrected error");
    assert!(findings[0].is_momentary);
    for _ in 0..40 {
        node.now_ms += 1000;
        node.event(DIMM, 0x6F, 0, true, EventSource::Logged);
        assert_eq!(node.reread(), [""; 0], "published once a minute");
    }
    node.now_ms += 60_000;
    node.poll_powered(true);
    let findings = node.take_findings();
    assert_eq!((findings.len(), findings[0].count), (1, 40));
    assert_eq!(node.monitor.health(), Health::Healthy);
}

#[test]
fn a_corrected_error_delays_no_uncorrectable_one() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 0, true, EventSource::Logged);
    node.reread_findings();
    node.now_ms += 4000;
    node.event(DIMM, 0x6F, 1, true, EventSource::Logged);
    assert_eq!(states(&node.reread_findings()), [(Severity::Error, 1, 1)]);
    for offset in [0, 1] {
        node.now_ms += 1000;
        node.give(Input::Event { event: from_firmware(offset), source: EventSource::Logged });
    }
    let expected = [(Severity::Warning, 0, 1), (Severity::Error, 1, 1)];
    assert_eq!(states(&node.take_findings()), expected);
}

#[test]
fn events_of_one_read_of_the_log_are_all_published_in_any_order() {
    for offsets in [[0, 1, 0], [1, 0, 0], [0, 0, 1]] {
        let mut node = Node::new();
        node.poll();
        node.take();
        for offset in offsets {
            node.now_ms += 1;
            node.event(DIMM, 0x6F, offset, true, EventSource::Logged);
        }
        node.event(DIMM, 0x6F, 1, false, EventSource::Logged);
        let expected = [(Severity::Warning, 0, 2), (Severity::Error, 1, 1)];
        assert_eq!(states(&node.reread_findings()), expected, "{offsets:?}");
    }
}

#[test]
fn delayed_events_have_their_own_state_and_count() {
    let mut node = Node::new();
    node.poll();
    for _ in 0..4 {
        node.now_ms += 1;
        node.event(DIMM, 0x6F, 1, true, EventSource::Logged);
        node.reread_findings();
        node.give(Input::Event { event: from_firmware(5), source: EventSource::Logged });
    }
    node.take();
    node.now_ms += 60_000;
    node.poll_powered(true);
    let expected = [(Severity::Error, 1, 3), (Severity::Warning, 5, 3)];
    assert_eq!(states(&node.take_findings()), expected);
}

#[test]
fn a_momentary_error_is_published_beside_an_open_fault_of_another_state() {
    let mut node = Node::new();
    node.poll();
    node.states[0] = 0x41;
    node.polls(3);
    node.event(DIMM, 0x6F, 1, true, EventSource::Logged);
    assert_eq!(states(&node.reread_findings()), [(Severity::Error, 1, 1)]);
}

#[test]
fn only_errors_of_firmware_are_published_without_a_record() {
    let mut node = Node::new();
    node.poll();
    node.take();
    let event = from_firmware(1);
    node.give(Input::Event { event, source: EventSource::Logged });
    let findings = node.take_findings();
    assert_eq!(
        (findings.len(), findings[0].kind, findings[0].severity),
        (1, FindingKind::MemErr, Severity::Error)
    );
    node.give(Input::Event {
        event: SensorEvent { sensor_type: 0x12, ..event },
        source: EventSource::Logged,
    });
    assert_eq!(node.take(), [""; 0]);
}
