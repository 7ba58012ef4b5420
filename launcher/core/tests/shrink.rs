//! A job that goes on with fewer ranks in the same processes: the images of the dead are at their
//! successors when all have met, at every moment of a further death.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod sim;

use ftb_launcher_core::jl::{Interval, JlConfig, MemoryConfig, OnDeath};
use ftb_launcher_core::memory::Scheme;
use sim::happens::{Faults, Happens};
use sim::world::{World, node};
use sim::{HOUR_MS, checkpoint, config};
use std::collections::BTreeMap;

/// Four nodes with two ranks each, and spares.
fn shrinking(scheme: Option<Scheme>, spares: u32) -> JlConfig {
    let memory = scheme.map(|scheme| MemoryConfig {
        scheme,
        interval: Interval::Never,
        first: true,
        racks: BTreeMap::new(),
    });
    JlConfig { on_death: OnDeath::Shrink, memory, ..config(4, 2, spares) }
}

fn ends_well(world: &mut World) {
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
}

#[test]
fn four_dead_ranks_in_a_row_are_left_out_and_no_process_is_started() {
    for scheme in [Some(Scheme::Xor(4)), Some(Scheme::Buddy(1)), None] {
        let mut world = World::new(1, shrinking(scheme, 0), Faults::default());
        world.work = 1200;
        for (round, rank) in [7, 0, 3, 4].into_iter().enumerate() {
            if scheme.is_none() {
                world.at(1000 + 2000 * round as u64, checkpoint());
            }
            world.at(2000 + 2000 * round as u64, Happens::KillRank(rank));
        }
        ends_well(&mut world);
        for words in ["7 ranks went back", "6 ranks went", "5 ranks went", "4 ranks went back"] {
            assert!(world.has_reported(words), "{words}: {:#?}", world.reported);
        }
        assert_eq!(world.spawned, 8, "{:#?}", world.reported);
        if scheme.is_some() {
            let protected = "is protected in memory: 4 ranks";
            assert!(world.has_reported(protected), "{:#?}", world.reported);
        }
    }
}

/// The share of the lost node is computed at its successor, which is a member of the same group.
#[test]
fn a_lost_node_without_a_spare_is_left_out_and_with_one_it_is_replaced() {
    for (scheme, spares) in [
        (Scheme::Xor(4), 0),
        (Scheme::Xor(2), 0),
        (Scheme::Buddy(1), 0),
        (Scheme::Buddy(2), 0),
        (Scheme::Xor(4), 1),
    ] {
        let mut world = World::new(1, shrinking(Some(scheme), spares), Faults::default());
        world.work = 700;
        world.at(2000, Happens::KillNode(node("node01")));
        world.at(5000, Happens::KillNode(node("node03")));
        ends_well(&mut world);
        let left = |words: &str| world.has_reported(words);
        assert_eq!(left("without rank 2,3"), spares == 0, "{scheme}: {:#?}", world.reported);
        assert!(left("without rank 6,7"), "{scheme}: {:#?}", world.reported);
        assert_eq!(world.spawned, 8 + 2 * spares, "{scheme}");
    }
}

/// At every moment of a recovery another rank or another node dies.
#[test]
fn a_further_death_at_any_moment_of_a_shrink_leads_to_fewer_ranks_or_to_a_restart() {
    let mut joined = 0;
    let victims = [Happens::KillRank(0), Happens::KillRank(4), Happens::KillNode(node("node02"))];
    for scheme in [Scheme::Xor(4), Scheme::Buddy(1)] {
        for victim in &victims {
            for after in 0..120 {
                let faults = Faults { delay_ms_max: 5, ..Faults::default() };
                let mut world = World::new(after, shrinking(Some(scheme), 0), faults);
                world.work = 600;
                world.at(2000, Happens::KillRank(3));
                world.at(2000 + 3 * after, victim.clone());
                ends_well(&mut world);
                joined += u32::from(world.has_reported("it is left out too"));
            }
        }
    }
    assert!(joined > 20, "{joined} deaths joined a recovery");
}

/// The launcher dies at any moment of a shrink: its successor goes on with the same ranks.
#[test]
fn a_launcher_that_is_replaced_within_a_shrink_leaves_the_same_ranks_out() {
    for after in 0..60 {
        let faults = Faults { delay_ms_max: 5, ..Faults::default() };
        let mut world = World::new(after, shrinking(Some(Scheme::Xor(4)), 0), faults);
        world.work = 3000;
        world.at(2000, Happens::KillNode(node("node01")));
        world.at(2000 + 10 * after, Happens::KillJl);
        world.at(2100 + 10 * after, Happens::ReviveJl);
        ends_well(&mut world);
        assert_eq!(world.spawned, 8, "{after}: {:#?}", world.reported);
    }
}

#[test]
fn a_program_that_does_not_divide_its_state_is_asked_once() {
    let mut world = World::new(1, shrinking(Some(Scheme::Xor(4)), 0), Faults::default());
    (world.work, world.divides) = (800, false);
    world.at(2000, Happens::KillRank(3));
    world.at(5000, Happens::KillRank(5));
    ends_well(&mut world);
    assert!(world.has_reported("does not divide its state"), "{:#?}", world.reported);
    assert!(world.has_reported("7 ranks went back to set"), "{:#?}", world.reported);
    assert_eq!(world.spawned, 8 + 8 + 1, "{:#?}", world.reported);
}
