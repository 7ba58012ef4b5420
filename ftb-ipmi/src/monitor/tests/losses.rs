//! Lost BMCs and controllers, and new inventories.

use super::*;

#[test]
fn a_lost_bmc_makes_the_node_unknown_until_its_sensors_are_read() {
    let mut node = Node::new();
    node.raw[0] = Some(8);
    assert_eq!(node.polls(3), [FANFAIL]);
    node.give(Input::Lost("no answer".to_owned()));
    node.give(Input::Lost("no answer".to_owned()));
    assert_eq!(node.take(), ["FTB_IPMI_BMC_LOST"]);
    assert_eq!(node.monitor.health(), Health::Unknown);
    node.give(Input::Back);
    assert_eq!(node.take(), ["FTB_IPMI_BMC_BACK"]);
    assert_eq!(node.polls(3), [""; 0], "the open fault is already published");
    assert_eq!(node.monitor.health(), Health::Failing);

    let mut healed = Node::new();
    healed.raw[0] = Some(8);
    healed.polls(3);
    healed.give(Input::Lost("no answer".to_owned()));
    healed.give(Input::Back);
    healed.raw[0] = Some(34);
    healed.take();
    assert_eq!(healed.polls(4), [CLEARED, NORMAL]);
}

#[test]
fn a_new_inventory_keeps_open_faults_and_ends_those_of_removed_sensors() {
    let mut node = Node::new();
    node.raw[0] = Some(8);
    node.polls(3);
    node.give(Input::Inventory(node.monitor.watched().to_vec()));
    assert_eq!(node.polls(3), [""; 0]);
    let without_fan = node.monitor.watched()[1..].to_vec();
    node.give(Input::Inventory(without_fan));
    assert_eq!(node.take(), [CLEARED]);
    assert_eq!(node.monitor.health(), Health::Failing, "until the other sensors are read");

    let mut starting = Node::new();
    starting.raw[0] = Some(8);
    starting.polls(3);
    starting.give(Input::Inventory(Vec::new()));
    starting.take();
    starting.give(Input::Samples { samples: Vec::new(), is_whole: false, is_powered: true });
    assert_eq!(starting.take(), [""; 0], "a node without sensors is not healthy");
}

#[test]
fn a_node_is_not_healthy_while_a_controller_behind_its_bmc_is_lost() {
    let backplane = Controller { channel: 0, slave: 0xC0 };
    let mut node = Node::with(|sensors| sensors[0].sensor.key.owner = backplane);
    node.poll_powered(true);
    let lost = Input::Controller { controller: backplane, reason: Some("silent".to_owned()) };
    node.give(lost);
    assert_eq!(node.monitor.health(), Health::Unknown);
    node.give(Input::Unread(1));
    let samples = Vec::new();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    assert_eq!(node.monitor.health(), Health::Unknown);
    node.give(Input::Controller { controller: backplane, reason: None });
    node.poll_powered(true);
    let kinds: Vec<_> = node.findings.iter().map(|finding| finding.kind).collect();
    use FindingKind::{ControllerBack, ControllerLost, Normal};
    assert_eq!(kinds, [Normal, ControllerLost, ControllerBack, Normal]);
    let unread: Vec<_> = node.findings.iter().map(|finding| finding.unread).collect();
    assert_eq!(unread, [0, 0, 0, 1]);
}
