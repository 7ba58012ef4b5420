//! Machines without power.

use super::*;

#[test]
fn fans_of_a_machine_without_power_have_not_failed() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.raw[0] = Some(0);
    assert!(node.monitor.needs_power(&node.samples()));
    for _ in 0..5 {
        node.poll_powered(false);
    }
    assert_eq!(node.take(), [""; 0]);
    node.raw[0] = Some(34);
    assert!(!node.monitor.needs_power(&node.samples()));
}

#[test]
fn a_machine_without_power_is_not_reported_healthy() {
    let mut node = Node::new();
    node.raw[0] = Some(0);
    for _ in 0..5 {
        node.poll_powered(false);
    }
    assert_eq!((node.take(), node.monitor.health()), (vec![], Health::Unknown));
    node.raw[0] = Some(34);
    assert_eq!(node.poll(), [NORMAL]);
}

#[test]
fn a_machine_with_a_turning_fan_is_on() {
    let mut node = Node::with(|sensors| sensors.push(watched("SYS FAN", 0x31, 4, 1)));
    let with_second = |node: &Node, raw: u8| {
        let answer = RawReading { value: Some(raw), states: 0 };
        let mut samples = node.samples();
        samples.push((4, node.monitor.watched()[4].reading(answer, None)));
        samples
    };
    node.raw[0] = Some(0);
    assert!(!node.monitor.needs_power(&with_second(&node, 30)));
    assert!(node.monitor.needs_power(&with_second(&node, 0)));
    let samples = with_second(&node, 30);
    node.give(Input::Samples { samples, is_whole: true, is_powered: true });
    let alone = &node.samples()[..1];
    assert!(!node.monitor.needs_power(alone), "the other fan turned at its last reading");
}
