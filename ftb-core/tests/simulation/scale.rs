//! Clusters of a size that no test machine has.

use crate::ops::Op;
use crate::world::{Setup, World, boot};

fn big(agents: u32) -> Setup {
    Setup {
        clients_every: agents / 32,
        gaps_allowed: true,
        losses_allowed: true,
        announcements: false,
        start_apart_ns: 500_000,
        ..Setup::new(agents, 16)
    }
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
    world.run_ms(6_000).unwrap();
    assert_eq!(world.outside_the_tree(), 0, "OneTree: three detection periods after {first}");
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(20_000).unwrap();
    world.check_events().unwrap();
    world
}

#[test]
fn four_thousand_agents_are_one_tree_again_after_a_rack_is_lost() {
    // Inner agents with many children, the root and its neighbours, leaves.
    for first in [16, 0, 2_048] {
        let world = lose_a_rack(4_096, first);
        println!("{} happenings, {} deliveries", world.happenings, world.delivered());
    }
}
