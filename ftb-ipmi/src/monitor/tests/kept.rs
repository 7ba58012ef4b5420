//! Errors that only a person ends: their conditions are kept, and nothing lesser replaces them.

use super::*;
use crate::event::to_event;
use ftb_core::condition::{Condition, RecommendedAction, Truth};

fn condition(finding: &Finding) -> Option<Condition> {
    to_event("n1", "bmc", 9, finding).condition
}

/// Subject, truth and whether it is kept, of each finding.
fn stated(findings: &[Finding]) -> Vec<Option<(String, Truth, bool)>> {
    let text = |c: Condition| (c.subject("").to_string(), c.truth, c.is_kept);
    findings.iter().map(|finding| condition(finding).map(text)).collect()
}

fn kept(subject: &str) -> Option<(String, Truth, bool)> {
    Some((subject.to_owned(), Truth::True, true))
}

fn firmware(sensor_type: u8, offset: u8) -> Input {
    let event = SensorEvent { sensor_type, ..from_firmware(offset) };
    Input::Event { event, source: EventSource::Logged }
}

#[test]
fn errors_of_firmware_state_kept_conditions_unless_they_were_corrected() {
    let mut node = Node::new();
    for (sensor_type, offset, expected) in [
        (0x0C, 0, None),
        (0x0C, 1, kept("n1 firmware 0x87 MEMERR")),
        (0x0C, 5, None),
        (0x07, 0, kept("n1 firmware 0x87 CPUFAIL")),
        (0x07, 1, kept("n1 firmware 0x87 OVERTEMP")),
        (0x13, 5, None),
    ] {
        node.give(firmware(sensor_type, offset));
        let findings = node.take_findings();
        assert_eq!(stated(&findings), [expected], "{sensor_type} {offset}");
        let action = condition(&findings[0]).map(|condition| condition.action);
        assert!(action.is_none_or(|action| action == RecommendedAction::Replace));
    }
    node.now_ms += 60_000;
    node.give(firmware(0x0C, 1));
    let again = stated(&node.take_findings());
    assert_eq!(again, [kept("n1 firmware 0x87 MEMERR")], "a repeated error renews it");
}

#[test]
fn a_corrected_error_is_kept_by_no_rule() {
    for (severity, expected) in
        [(Severity::Fatal, kept("n1 DIMM A1 MEMERR")), (Severity::Warning, None)]
    {
        let mut node = Node::with(|sensors| sensors[2].policy.severity = Some(severity));
        node.poll();
        node.take();
        for (offset, expected) in [(0, None), (1, expected)] {
            node.event(DIMM, 0x6F, offset, true, EventSource::Logged);
            assert_eq!(stated(&node.reread_findings()), [expected], "{severity} {offset}");
        }
    }
}

#[test]
fn a_corrected_error_of_the_same_module_does_not_replace_an_uncorrectable_one() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 1, true, EventSource::Logged);
    assert_eq!(stated(&node.reread_findings()), [kept("n1 DIMM A1 MEMERR")]);
    let lasting = |node: &mut Node, states: u16| {
        node.states[0] = states;
        for _ in 0..3 {
            node.poll_powered(true);
        }
        stated(&node.take_findings())
    };
    assert_eq!(lasting(&mut node, 0x41), [None], "corrected");
    assert_eq!(lasting(&mut node, 0x40), [None], "the end of the corrected ones");
    assert_eq!(lasting(&mut node, 0x42), [kept("n1 DIMM A1 MEMERR")]);
    let (component, key) = ("DIMM A1".to_owned(), "MEMERR".to_owned());
    node.give(Input::ClearedByHand { component, key });
    node.take_findings();
    let over = Some(("n1 DIMM A1 MEMERR".to_owned(), Truth::False, false));
    let normal = Some(("n1 ftb.ipmi WATCHED".to_owned(), Truth::True, false));
    assert_eq!(lasting(&mut node, 0x40), [over, normal]);
}

#[test]
fn a_sensor_whose_reading_refutes_an_event_states_no_kept_condition() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(PSU, 0x6F, 1, true, EventSource::Logged);
    let findings = node.reread_findings();
    assert_eq!((findings[0].kind, findings[0].severity), (FindingKind::PsuFail, Severity::Error));
    assert_eq!(stated(&findings), [None], "its next readings say that it is well");
}

#[test]
fn a_refused_kept_condition_holds_back_no_fault_of_its_sensor() {
    let refused =
        || Input::KeptRefused { component: "DIMM A1".to_owned(), key: "memerr".to_owned() };
    let lasting = |truth| Some(("n1 DIMM A1 MEMERR".to_owned(), truth, false));
    let mut node = Node::new();
    node.poll();
    node.give(refused());
    node.take();
    let error = |node: &mut Node| {
        node.now_ms += 60_000;
        node.event(DIMM, 0x6F, 1, true, EventSource::Logged);
        assert_eq!(stated(&node.reread_findings()), [kept("n1 DIMM A1 MEMERR")]);
    };
    let polls = |node: &mut Node, states: u16| {
        node.states[0] = states;
        (0..3).for_each(|_| node.poll_powered(true));
        stated(&node.take_findings())
    };
    error(&mut node);
    // The refusal arrives while a corrected error lasts, which has stated nothing.
    assert_eq!(polls(&mut node, 0x41), [None]);
    node.give(refused());
    assert_eq!(stated(&node.take_findings()), [lasting(Truth::True)]);
    // It arrives after the end of a fault that was stated before the error.
    error(&mut node);
    assert_eq!(polls(&mut node, 0x40), [None]);
    node.give(refused());
    assert_eq!(stated(&node.take_findings()), [lasting(Truth::False)]);
    node.give(refused());
    assert_eq!(polls(&mut node, 0x41), [lasting(Truth::True)]);
    assert_eq!(polls(&mut node, 0x40), [lasting(Truth::False)]);
}
