//! The quiet path: how often an agent has something to do while nothing happens.

use crate::world::{Setup, boot};

/// Virtual seconds that are watched.
const WATCHED_S: u64 = 60;

/// A link carries one heartbeat a second each way, and nothing else: what an agent hears wakes it,
/// and what it says goes out at the same wake-ups, but at the root, whose timer begins the wave.
#[test]
fn an_idle_agent_wakes_once_a_second_for_each_link_and_only_the_root_by_a_timer() {
    let mut world = boot(Setup::new(15, 2), 1).unwrap();
    // Until what came with the start is settled.
    world.run_ms(60_000).unwrap();
    let before = world.woken.clone();
    world.run_ms(WATCHED_S * 1_000).unwrap();
    for (agent, before) in before.into_iter().enumerate() {
        let children = (1..=2).filter(|child| 2 * agent + child < 15).count() as u64;
        // The root has a timer where others have a parent.
        let links = children + 1;
        let wakes = world.woken[agent] - before;
        let expected = links * WATCHED_S;
        println!("agent {agent} with {children} children: {wakes} wake-ups in {WATCHED_S} s");
        assert!(wakes <= expected + links, "agent {agent}: {wakes} wake-ups, {expected} expected");
        assert!(wakes + links >= expected, "agent {agent}: {wakes}: does it run?");
    }
}

/// Without links there is nothing to wake for.
#[test]
fn a_lone_agent_sleeps() {
    let mut world = boot(Setup::new(1, 2), 1).unwrap();
    world.run_ms(60_000).unwrap();
    let before = world.woken.clone();
    world.run_ms(WATCHED_S * 1_000).unwrap();
    assert_eq!(world.woken, before);
}
