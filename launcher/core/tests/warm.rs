//! Warm spares under the seeded simulation: parked processes become ranks, and where they fail the
//! rank is started as without them. Every message may be lost, doubled or delayed. `FTB_SEED=n`
//! runs one seed, `FTB_RUNS=n` that many.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod sim;

use ftb_launcher_core::warm::WarmProcesses;
use sim::happens::{Faults, Happens};
use sim::world::{World, node};
use sim::{HOUR_MS, checkpoint, config, migrate, moved, range, usable};

const WARM: WarmProcesses = WarmProcesses { spare: 2, local: 1 };

/// A job that has lost a rank and then a node, and has ended well; of 100 parked processes `fails`
/// cannot be adopted.
fn after_two_deaths(fails: u64) -> World {
    let mut world = World::new(1, config(3, 2, 1), Faults::default());
    world.parks(WARM, fails);
    world.at(500, checkpoint());
    world.at(2000, Happens::KillRank(0));
    world.at(4000, Happens::KillNode(node("node02")));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    world
}

#[test]
fn a_dead_rank_and_the_ranks_of_a_dead_node_go_on_in_parked_processes() {
    let world = after_two_deaths(0);
    assert_eq!((world.parked.adopted, world.spawned), (3, 6 + 3), "{:#?}", world.reported);
    assert_eq!(world.parked_alive(), 0, "all have ended with the job");
    for words in [
        "node node00: parked processes have become rank 0",
        "node spare00: parked processes have become rank 4,5",
        "4 ranks went back to set set-000002 in place",
    ] {
        assert!(world.has_reported(words), "{words}: {:#?}", world.reported);
    }
}

/// What is said of a node before its loss, and what follows.
#[test]
fn what_a_lost_node_costs_counts_parked_processes() {
    let mut world = World::new(1, config(3, 2, 1), Faults::default());
    world.parks(WARM, 0);
    world.at(500, checkpoint());
    world.run_until(2000);
    let found = world.jl.as_ref().unwrap().job().what_if(&node("node02")).unwrap();
    assert_eq!((found.parked, found.adopts), (1, 2), "{}", found.words);
    let (alive, adopted) = (world.parked_alive(), world.parked.adopted);
    world.at(0, Happens::Gone(node("node02")));
    world.run_until_closed("rollback");
    assert_eq!(world.parked.adopted - adopted, 2, "{:#?}", world.reported);
    assert_eq!(alive - world.parked_alive(), found.parked + found.adopts);
}

#[test]
fn ranks_that_move_become_parked_processes_and_the_left_node_parks_none() {
    let mut world = World::new(1, config(2, 2, 1), Faults::default());
    world.parks(WARM, 0);
    world.at(600, migrate("node01"));
    world.at(1200, usable("node01"));
    world.at(2000, migrate("node00"));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert_eq!((moved(&world), world.parked.adopted), (2, 4), "{:#?}", world.reported);
    assert_eq!(world.parked_alive(), 0);
}

#[test]
fn without_a_process_that_can_be_adopted_the_ranks_are_started() {
    let world = after_two_deaths(100);
    assert_eq!((world.parked.adopted, world.spawned), (0, 6 + 3), "{:#?}", world.reported);
    assert!(world.has_reported("no process is left; 0 of 2 are parked"), "{:#?}", world.reported);
}

/// Parked processes die at any time, also in the moment of their adoption, and some hang then.
#[test]
fn whatever_fails_of_a_parked_process_no_rank_is_lost_or_runs_twice() {
    let seeds = range(500);
    let (mut adopted, mut failed, mut unsaved) = (0, 0, 0);
    for seed in seeds.clone() {
        let faults = Faults {
            lost: seed % 3 * 4,
            doubled: seed % 2 * 10,
            delay_ms_max: [0, 5, 60][seed as usize % 3],
            ..Faults::default()
        };
        let mut world = World::new(seed, config(3, 2, 2), faults);
        world.parks(WARM, seed % 5 * 15);
        world.work = 1500;
        // Every message has been repeated by then, if it was lost.
        world.at(3000, checkpoint());
        let first = 7000 + world.rng.below(1500);
        world.at(first, Happens::KillRank(seed as u32 % 6));
        let second = first + world.rng.below(3000);
        match seed % 4 {
            0 => world.at(second, Happens::KillNode(node("node01"))),
            1 => world.at(second, migrate("node01")),
            2 => world.at(second, Happens::KillRank((seed as u32 + 3) % 6)),
            _ => {
                world.at(second, Happens::KillJl);
                world.at(second + 1500, Happens::ReviveJl);
            }
        }
        let code = world.run(HOUR_MS);
        // The set may have been lost with its messages.
        let named = code != 0 && world.has_reported("no set to restart from");
        assert!(code == 0 || named, "FTB_SEED={seed}: {code} {:#?}", world.reported);
        unsaved += u32::from(named);
        assert_eq!(world.parked_alive(), 0, "FTB_SEED={seed}: {:#?}", world.reported);
        adopted += world.parked.adopted;
        failed += world.parked.failed;
    }
    if seeds.end - seeds.start > 100 {
        let seen = adopted > 100 && failed > 20 && unsaved < 50;
        assert!(seen, "{adopted} adopted, {failed} failed, {unsaved} ended without a set");
    }
}
