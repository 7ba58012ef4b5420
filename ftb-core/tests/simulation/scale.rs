//! Clusters of a size that no test machine has.

use crate::ops::Op;
use crate::world::{Setup, World, boot};
use ftb_core::Severity;
use std::time::Instant;

/// Three times the 2 s after which a silent link is lost.
const DETECTION_PERIODS_MS: u64 = 6_000;

fn big(agents: u32) -> Setup {
    Setup {
        clients_every: agents / 32,
        gaps_allowed: true,
        losses_allowed: true,
        announcements: false,
        start_apart_ns: 500_000 * 4_096 / u64::from(agents.max(4_096)),
        ..Setup::new(agents, 16)
    }
}

/// What this thread has had of a core, whatever else the machine did, in nanoseconds.
fn cpu_ns() -> u64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

/// The hosts of one rack of 64 die at the same moment; three detection periods later all others
/// are one tree again.
fn lose_a_rack(agents: u32, first: u32) -> World {
    let mut world = boot(big(agents), u64::from(first)).unwrap();
    let rack = first..(first + 64).min(agents);
    for rank in rack {
        world.operate(Op::HostDown(rank)).unwrap();
    }
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(DETECTION_PERIODS_MS).unwrap();
    assert_eq!(world.outside_the_tree(), 0, "OneTree: three detection periods after {first}");
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(20_000).unwrap();
    world.check_events().unwrap();
    world
}

/// A size beyond today's clusters (`make test-long`): prints what an agent and an event cost.
#[test]
#[ignore = "takes minutes and gigabytes: `make test-long` runs it"]
fn a_hundred_thousand_agents_are_one_tree_again_after_a_rack_is_lost() {
    const AGENTS: u32 = 100_000;
    let (started, begun_ns) = (Instant::now(), cpu_ns());
    let mut world = boot(big(AGENTS), 1).unwrap();
    let booted_ns = cpu_ns();
    let before = world.delivered();
    let publishers = world.publishers.len();
    for _ in 0..100 {
        world.operate(Op::Publish(10)).unwrap();
        world.run_ms(10).unwrap();
    }
    let events = 1_000 * publishers;
    let published_ns = cpu_ns();
    for rank in 1_024..1_088 {
        world.operate(Op::HostDown(rank)).unwrap();
    }
    world.run_ms(DETECTION_PERIODS_MS).unwrap();
    assert_eq!(world.outside_the_tree(), 0, "OneTree: three detection periods after a rack");
    world.run_ms(20_000).unwrap();
    world.check_events().unwrap();
    let held: usize = (0..AGENTS as usize).map(|agent| world.held_bytes(agent)).sum();
    println!(
        "{AGENTS} agents, {publishers} publishers: boot {:.0} us of a core an agent, {:.1} us an \
         event with \
         {} deliveries, {} bytes held an agent, {} happenings in {:.0} s of a core, {:.0} s in all",
        (booted_ns - begun_ns) as f64 / 1e3 / f64::from(AGENTS),
        (published_ns - booted_ns) as f64 / 1e3 / events as f64,
        (world.delivered() - before) / events,
        held / AGENTS as usize,
        world.happenings,
        (cpu_ns() - begun_ns) as f64 / 1e9,
        started.elapsed().as_secs_f64(),
    );
}

/// What one event and one change of subscriptions cost all agents together, in frames beside the
/// heartbeats: an event from the last leaf to the first, a subscription of the first.
fn frames_of_one(agents: u32, fanout: u32) -> (u64, u64) {
    let setup = Setup { clients_every: agents, announcements: false, ..Setup::new(agents, fanout) };
    let mut world = boot(setup, u64::from(agents)).unwrap();
    let first_leaf = (agents - 1).div_ceil(fanout) as usize;
    world.add_publisher(agents as usize - 1).unwrap();
    world.run_ms(10_000).unwrap();
    let before = world.frames;
    world.add_subscriber(first_leaf, "").unwrap();
    world.run_ms(10_000).unwrap();
    let subscription = world.frames - before;
    assert!(world.subscribers.iter().all(|subscriber| subscriber.active_at.is_some()));
    let before = world.frames;
    world.publish(world.publishers.len() - 1, 1, Severity::Info).unwrap();
    world.run_ms(10_000).unwrap();
    world.check_events().unwrap();
    (world.frames - before, subscription)
}

/// Both cost as much as the tree is deep, however many agents there are.
#[test]
fn an_event_and_a_subscription_cost_what_the_tree_is_deep() {
    for (agents, fanout) in [(7, 2), (63, 2), (511, 2), (4_095, 2), (21, 4), (341, 4), (4_369, 16)]
    {
        let (mut depth, mut width, mut above) = (0_u64, 1, 1);
        while above < agents {
            width *= fanout;
            above += width;
            depth += 1;
        }
        let (event, subscription) = frames_of_one(agents, fanout);
        println!(
            "{agents} agents, fan-out {fanout}, {depth} levels below the root: {event} frames for \
             an event, \
             {subscription} for a subscription"
        );
        // Up, down to the subscriber, the confirmation; and what root and standby say to each
        // other.
        let (few, many) = (2 * depth, 3 * depth + 6);
        assert!((few..=many).contains(&event), "{agents} agents: {event} frames for an event");
        // Up, and the answer.
        assert_eq!(subscription, 2 * depth, "{agents} agents: frames for a subscription");
    }
}

/// Any rack of 16, wherever it is in the tree: three detection periods later all others are one
/// tree.
#[test]
fn any_single_rack_may_be_lost() {
    for rack in 0..16 {
        let mut world = boot(big(256), u64::from(rack)).unwrap();
        for rank in rack * 16..(rack + 1) * 16 {
            world.operate(Op::HostDown(rank)).unwrap();
        }
        world.run_ms(DETECTION_PERIODS_MS).unwrap();
        assert_eq!(world.outside_the_tree(), 0, "OneTree: rack {rack}");
    }
}

#[test]
fn four_thousand_agents_are_one_tree_again_after_a_rack_is_lost() {
    // Inner agents with many children, the root and its neighbours, leaves.
    for first in [16, 0, 2_048] {
        let world = lose_a_rack(4_096, first);
        println!("{} happenings, {} deliveries", world.happenings, world.delivered());
    }
}
