//! Who is called dead, and who must not be.

use crate::ops::{Op, Script};
use crate::world::{Setup, World, must_hold};

const S: u64 = 1_000_000;

fn said(world: &World, name: &str, host: &str) -> usize {
    world.announced.iter().filter(|(n, h)| *n == name && h == host).count()
}

fn seven() -> Setup {
    Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(7, 2) }
}

#[test]
fn a_silent_host_is_called_dead_once_and_back_when_it_returns() {
    let script: Script = vec![(S, Op::HostDown(5)), (12 * S, Op::Start(5))];
    let world = must_hold("dead host", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node5"), 1);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node5"), 1);
    assert_eq!(said(&world, "FTB_NODE_BACK", "node5"), 1);
    let others = world.announced.iter().filter(|(name, _)| *name == "FTB_NODE_DEAD").count();
    assert_eq!(others, 1, "{:?}", world.announced);
}

#[test]
fn a_crashed_agent_on_a_live_host_is_no_dead_node() {
    let script: Script = vec![(S, Op::Kill(5)), (12 * S, Op::Start(5))];
    let world = must_hold("crashed agent", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_AGENT_LOST", "node5"), 1, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node5"), 0);
    assert_eq!(said(&world, "FTB_AGENT_RESTARTED", "node5"), 1);
}

#[test]
fn a_stopped_agent_is_no_dead_node_and_takes_nobody_with_it() {
    let script: Script = vec![(S, Op::Pause(1)), (9 * S, Op::Continue(1))];
    let world = must_hold("stopped agent", &seven(), 1, &script);
    let dead = world.announced.iter().any(|(name, _)| *name == "FTB_NODE_DEAD");
    assert!(!dead, "{:?}", world.announced);
}

#[test]
fn an_agent_that_stops_in_order_is_suspected_of_nothing() {
    let script: Script = vec![(S, Op::Stop(6)), (9 * S, Op::Start(6))];
    let world = must_hold("planned stop", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node6"), 0, "{:?}", world.announced);
}
