//! The shape of the tree beside what every run checks of it.

use crate::ops::Op;
use crate::world::{Setup, World, boot};
use ftb_core::Rank;
use ftb_core::node::NodeConfig;
use ftb_core::node::api::MemberState;

/// A parent that has all the children it may have takes no more, and names agents below it: every
/// agent finds a parent. An agent with the lowest rank, and with children of its own, gets the
/// place of the child with the highest.
#[test]
fn a_full_parent_takes_no_more_and_sends_to_its_children() {
    (1..40).for_each(lose_two_of_a_full_tree);
}

fn lose_two_of_a_full_tree(seed: u64) {
    const MOST: usize = 3;
    let tune = |config: &mut NodeConfig| config.children_max = MOST;
    let lossy = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(15, 2) };
    let mut world = boot(Setup { tune, ..lossy }, seed).unwrap();
    for rank in [1, 2] {
        world.operate(Op::HostDown(rank)).unwrap();
    }
    for _ in 0..100 {
        world.run_ms(100).unwrap();
        for parent in (0..15).filter(|parent| ![1, 2].contains(parent)) {
            let below = (3..15).filter(|at| world.parent_of(*at) == Some(Rank(parent))).count();
            assert!(below <= MOST, "seed {seed}: {parent} has {below} children");
        }
    }
    assert_eq!(world.outside_the_tree(), 0, "seed {seed}");
    let rejected = |at: usize| {
        let counters = world.counters(at);
        counters.iter().find(|(name, _)| *name == "rejected").map_or(0, |(_, count)| *count)
    };
    assert!((3..15).map(rejected).sum::<u64>() > 0, "seed {seed}: no agent was sent on");
}

/// All agents start together: the root knows that no other log can come as soon as all are in its
/// tree.
#[test]
fn a_subscription_is_active_as_soon_as_the_first_tree_stands() {
    for seed in 0..10 {
        let mut world = World::new(Setup { announcements: false, ..Setup::new(7, 2) }, seed);
        for agent in 0..7 {
            world.start(agent).unwrap();
        }
        let mut waited_ms = 0;
        while world.states_at(0).iter().filter(|(_, state)| *state == MemberState::Up).count() < 7 {
            world.run_ms(1).unwrap();
            waited_ms += 1;
            assert!(waited_ms < 1_000, "seed {seed}: no tree after {waited_ms} ms");
        }
        for agent in 0..7 {
            world.add_subscriber(agent, "").unwrap();
        }
        world.run_ms(10).unwrap();
        for subscriber in &world.subscribers {
            let agent = subscriber.agent;
            assert!(subscriber.active_at.is_some(), "seed {seed}: agent {agent} waits");
        }
    }
}
