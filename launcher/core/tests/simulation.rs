//! The launcher's protocol under a seeded simulation: every message may be lost, doubled or
//! delayed; nodes, images, copies and the job launcher fail at any step. The job always ends with
//! the right answer or in a named state. `FTB_SEED=n` runs one seed, `FTB_RUNS=n` that many.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod sim;

use core::time::Duration;
use ftb_core::{Event, Now, Tag};
use ftb_launcher_core::jl::{self, Interval, JlConfig, OnDeath};
use ftb_launcher_core::message::{FromRank, RankMessage};
use ftb_launcher_core::migration_state::MigrationState;
use ftb_launcher_core::names::{Episode, FaultId, NodeName, SetId};
use ftb_launcher_core::policy::{Action, DEFAULT, Facts, Policy, Report};
use sim::happens::{Fate, Faults, Happens};
use sim::world::{World, node};
use sim::{COMMAND, CRIU, HOUR_MS, checkpoint, config, migrate, moved, seeds, usable, with};

#[test]
fn the_thesis_path_a_node_moves_to_a_spare_and_becomes_a_spare_again() {
    let mut world = World::new(1, config(2, 2, 1), Faults::default());
    world.at(500, migrate("node01"));
    world.at(2000, usable("node01"));
    world.at(2500, migrate("node00"));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert_eq!(moved(&world), 2, "{:#?}", world.reported);
    assert_eq!(world.left.len(), 3);
}

#[test]
fn without_a_spare_the_job_is_saved_and_goes_on() {
    let mut world = World::new(1, config(2, 1, 0), Faults::default());
    world.at(500, migrate("node01"));
    assert_eq!(world.run(HOUR_MS), 0);
    assert_eq!(moved(&world), 0);
    assert!(world.closed.contains(&("checkpoint".to_owned(), true)));
}

#[test]
fn when_no_target_can_take_the_images_the_source_takes_its_ranks_back() {
    let faults = Faults { copy: 100, ..Faults::default() };
    let mut world = World::new(1, config(2, 2, 2), faults);
    world.at(500, migrate("node01"));
    world.at(1500, Happens::Work);
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert_eq!(moved(&world), 0);
    assert!(world.reported.iter().any(|line| line.contains("takes its ranks back")));
}

#[test]
fn when_no_image_can_be_written_all_ranks_stay() {
    let faults = Faults { image: 100, ..Faults::default() };
    let mut world = World::new(1, config(2, 2, 1), faults);
    world.at(500, migrate("node01"));
    world.at(1500, checkpoint());
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.closed.contains(&("migration".to_owned(), false)));
    assert!(world.closed.contains(&("checkpoint".to_owned(), false)));
}

#[test]
fn a_dead_node_is_replaced_by_a_spare_from_the_last_set() {
    let mut world = World::new(1, config(3, 2, 1), Faults::default());
    world.at(500, checkpoint());
    world.at(2000, Happens::KillNode(node("node02")));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert_eq!(world.state_of("spare00"), None, "all have left");
    assert!(
        world.has_reported("4 ranks went back to set set-000002 in place"),
        "{:#?}",
        world.reported
    );
    assert_eq!(world.spawned, 6 + 2, "none was started but the dead");
}

/// Whenever a checkpoint is given up, also while its set is being stored: of it nothing stays in
/// the store.
#[test]
fn a_set_that_does_not_count_is_not_kept() {
    let mut given_up = 0;
    for after in (0..200).step_by(4) {
        let mut world = World::new(1, config(2, 2, 1), Faults::default());
        world.at(500, checkpoint());
        world.at(1000, checkpoint());
        world.at(1000 + after, Happens::KillRank(1));
        assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
        given_up += usize::from(world.closed.contains(&("checkpoint".to_owned(), false)));
        let sets = &world.jl.as_ref().expect("it has just ended the job").job().sets;
        let kept = world.store.keys().all(|(set, _)| sets.contains(set));
        assert!(kept, "{after} ms: {:?}, and {sets:?} count", world.store.keys());
    }
    assert!(given_up > 10, "{given_up}");
}

#[test]
fn a_dead_node_without_a_set_ends_the_job_with_a_reason() {
    let mut world = World::new(1, config(2, 1, 1), Faults::default());
    world.at(500, Happens::KillNode(node("node01")));
    assert_eq!(world.run(HOUR_MS), 1);
    assert!(world.reported.iter().any(|line| line.contains("no set to restart from")));
}

/// No node is left that could answer: the job does not wait for it.
#[test]
fn when_all_nodes_are_lost_the_job_ends_with_a_reason() {
    let mut world = World::new(1, config(2, 1, 1), Faults::default());
    world.at(500, checkpoint());
    for name in ["spare00", "node00", "node01"] {
        world.at(2000, Happens::Gone(node(name)));
    }
    assert_eq!(world.run(HOUR_MS), 1, "{:#?}", world.reported);
    assert!(world.has_reported("no hot spare is left"), "{:#?}", world.reported);
}

/// The questions find a node that no other part reports.
#[test]
fn a_silent_node_is_found_by_asking() {
    let faults = Faults { delay_ms_max: 2, ..Faults::default() };
    let mut world = World::new(1, config(2, 1, 1), faults);
    world.at(500, checkpoint());
    world.at(2000, Happens::Silence(node("node01")));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.reported.iter().any(|line| line.contains("does not answer")));
}

#[test]
fn lost_doubled_and_delayed_messages_change_nothing() {
    seeds("messages", 500, |seed| {
        let faults = Faults {
            lost: seed % 4 * 4,
            doubled: seed % 3 * 10,
            delay_ms_max: [0, 5, 50, 400][seed as usize % 4],
            ..Faults::default()
        };
        let mut world = World::new(seed, config(3, 2, 2), faults);
        let (a, b) = (400 + world.rng.below(2000), 400 + world.rng.below(4000));
        world.at(a, migrate("node01"));
        world.at(b, checkpoint());
        let c = b + world.rng.below(2000);
        world.at(c, usable("node01"));
        world.at(c + 300, migrate("node02"));
        assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
        assert!(moved(&world) <= 2);
    });
}

/// The reasons for which a job may end without its answer.
const NAMED: [&str; 3] =
    ["no set to restart from", "no hot spare is left", "recoveries without a new set"];

#[test]
fn nodes_images_copies_and_the_launcher_fail_at_any_step() {
    seeds("faults", 500, |seed| {
        let faults = Faults {
            lost: seed % 3 * 4,
            doubled: seed % 2 * 10,
            delay_ms_max: [0, 5, 60][seed as usize % 3],
            image: seed % 5 * 5,
            copy: seed % 7 * 4,
        };
        let mut world = World::new(seed, config(3, 2, 2), faults);
        world.at(300, checkpoint());
        let first = 800 + world.rng.below(1500);
        world.at(first, migrate("node01"));
        let victims = ["node00", "node01", "node02", "spare00", "spare01"];
        for _ in 0..1 + seed % 2 {
            let victim = node(victims[world.rng.below(5) as usize]);
            let when = first + world.rng.below(700);
            world.at(when, Happens::KillNode(victim));
        }
        if seed % 2 == 0 {
            let when = first + world.rng.below(600);
            world.at(when, Happens::KillJl);
            let back = when + 100 + world.rng.below(3000);
            world.at(back, Happens::ReviveJl);
        }
        let code = world.run(HOUR_MS);
        let named = |line: &String| NAMED.iter().any(|name| line.contains(name));
        let reason = world.reported.iter().any(named);
        assert!(code == 0 || reason, "exit {code}: {:#?}", world.reported);
    });
}

/// A job of six ranks on three nodes that is saved once; a rank dies later.
fn one_dies(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, config(3, 2, 1), faults);
    world.at(500, checkpoint());
    world.at(2000, Happens::KillRank(3));
    world
}

#[test]
fn a_rank_that_dies_takes_no_other_with_it() {
    let mut world = one_dies(1, Faults::default());
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(
        world.has_reported("5 ranks went back to set set-000002 in place"),
        "{:#?}",
        world.reported
    );
    assert_eq!(world.spawned, 6 + 1);
}

#[test]
fn a_program_that_cannot_go_back_in_place_is_started_anew() {
    let mut world = one_dies(1, Faults::default());
    world.recovers = false;
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.has_reported("the job restarts from set"), "{:#?}", world.reported);
    assert_eq!(world.spawned, 6 + 1 + 6, "the dead rank, and then all");
}

#[test]
fn ranks_that_moved_after_the_set_was_made_get_their_images_of_it() {
    let mut world = one_dies(1, Faults::default());
    world.at(1000, migrate("node00"));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.has_reported("5 ranks went back"), "{:#?}", world.reported);
    assert!(world.has_reported("copy="), "{:#?}", world.reported);
}

#[test]
fn without_a_spare_fewer_ranks_take_over_where_that_is_wanted() {
    let shrinks = JlConfig { on_death: OnDeath::Shrink, ..config(3, 2, 1) };
    let mut world = World::new(1, shrinks, Faults::default());
    world.divides = false;
    world.at(500, checkpoint());
    // The first is replaced by the spare.
    world.at(800, Happens::KillNode(node("node00")));
    world.at(3000, Happens::KillNode(node("node01")));
    world.at(5300, checkpoint());
    // With a set of its own the smaller job is as any other.
    world.at(6200, Happens::KillRank(1));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(
        world.has_reported("4 ranks went back to set set-000002 in place"),
        "{:#?}",
        world.reported
    );
    assert!(world.has_reported("4 ranks take over what 6 have done"), "{:#?}", world.reported);
    assert!(world.has_reported("3 ranks went back to set"), "{:#?}", world.reported);
    assert_eq!(world.spawned, 6 + 2 + 4 + 1);
}

#[test]
fn recoveries_without_progress_come_to_an_end() {
    let mut world = one_dies(1, Faults::default());
    for n in 1..9 {
        world.at(2000 + 300 * n, Happens::KillRank(3));
    }
    assert_ne!(world.run(HOUR_MS), 0);
    assert!(world.has_reported("5 recoveries without a new set"), "{:#?}", world.reported);
}

#[test]
fn a_job_is_saved_by_itself_also_when_another_launcher_has_taken_it_over() {
    let interval = Interval::Every(Duration::from_millis(700));
    let mut world = World::new(1, JlConfig { interval, ..config(2, 2, 0) }, Faults::default());
    world.at(1000, Happens::KillJl);
    world.at(1100, Happens::ReviveJl);
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    let saved = ("checkpoint".to_owned(), true);
    let count = world.closed.iter().filter(|closed| **closed == saved).count();
    assert!((4..=6).contains(&count), "{count}: {:#?}", world.reported);
}

#[test]
fn on_death_stop_ends_the_job_at_the_first_death() {
    let mut world =
        World::new(1, JlConfig { on_death: OnDeath::Stop, ..config(2, 1, 1) }, Faults::default());
    world.at(300, checkpoint());
    world.at(310, Happens::KillNode(node("node01")));
    assert_eq!(world.run(HOUR_MS), 1, "{:#?}", world.reported);
    assert!(!world.has_reported("set-000002 in place") && !world.has_reported("restarts from"));
}

/// At every moment of a recovery another rank dies, or the one that was just started: the others
/// stay.
#[test]
fn a_second_death_joins_the_recovery_under_way() {
    let (mut joined, mut anew) = (0, 0);
    for victim in [Happens::KillRank(0), Happens::KillRank(2), Happens::KillRank(3)] {
        for after in 1..60 {
            let mut world = one_dies(1, Faults { delay_ms_max: 5, ..Faults::default() });
            world.at(2000 + after, victim.clone());
            assert_eq!(world.run(HOUR_MS), 0, "{victim:?} {after}: {:#?}", world.reported);
            assert!(
                !world.has_reported("restarts from"),
                "{victim:?} {after}: {:#?}",
                world.reported
            );
            assert!((7..=8).contains(&world.spawned), "{victim:?} {after}: {:#?}", world.reported);
            joined += usize::from(world.has_reported("it is started too"));
            let backs = world.closed.iter().filter(|(kind, _)| kind == "rollback").count();
            anew += usize::from(backs == 2);
        }
    }
    assert!(joined > 10 && anew > 10, "{joined} in the round of the first, {anew} after it");
}

#[test]
fn a_node_that_dies_while_others_go_back_is_replaced_too() {
    for (after, spares) in (1..40).flat_map(|after| [(after, 2), (after, 1)]) {
        let mut world = World::new(after, config(3, 2, spares), Faults::default());
        world.at(500, checkpoint());
        world.at(2000, Happens::Gone(node("node02")));
        world.at(2000 + after, Happens::Gone(node("node00")));
        let ended = world.run(HOUR_MS);
        if spares == 1 {
            assert!(
                ended == 1 && world.has_reported("no hot spare is left"),
                "{:#?}",
                world.reported
            );
            continue;
        }
        assert_eq!(ended, 0, "{after}: {:#?}", world.reported);
        assert!(!world.has_reported("restarts from"), "{after}: {:#?}", world.reported);
        assert!((8..=10).contains(&world.spawned), "{after}: {:#?}", world.reported);
    }
}

/// The last messages of a rank whose launch agent dies have no effect, whether they arrive before
/// that death, after it, or never, at every moment of a recovery.
#[test]
fn last_messages_of_a_rank_do_not_change_the_effect_of_its_agents_death() {
    // The agent is silent from the first moment on, its death is known then.
    let known = 8;
    let decided = |after: u64, words: Option<u64>| {
        let mut world = World::new(after, config(3, 2, 2), Faults::default());
        world.at(500, checkpoint());
        world.at(2000, Happens::Gone(node("node02")));
        let dies = 2000 + after;
        world.at(dies, Happens::Silence(node("node00")));
        world.at(dies + known, Happens::Gone(node("node00")));
        if let Some(heard) = words {
            let set = SetId::of_checkpoint(Episode(2));
            let message = FromRank::RollbackFailed { set, reason: "no answer".to_owned() };
            let says = RankMessage { episode: Episode(3), rank: 1, message };
            world.at(dies + heard, Happens::ToJl(Box::new(jl::JlInput::Rank(says))));
        }
        assert_eq!(world.run(HOUR_MS), 0, "{after}, words {words:?}: {:#?}", world.reported);
        assert!(
            !world.has_reported("restarts from"),
            "{after}, words {words:?}: {:#?}",
            world.reported
        );
        let jl = world.jl.as_ref().expect("it has just ended the job");
        (world.closed.clone(), world.spawned, jl.job().placement())
    };
    for after in (1..40).step_by(3) {
        let alone = decided(after, None);
        // Behind it also while its ranks are started elsewhere.
        for words in (3..150).step_by(7) {
            assert_eq!(decided(after, Some(words)), alone, "{after} ms, words after {words}");
        }
    }
}

#[test]
fn a_rank_that_always_dies_does_not_block_the_others_forever() {
    let mut world = one_dies(1, Faults::default());
    world.dies_at_start = Some(3);
    assert_ne!(world.run(HOUR_MS), 0);
    assert!(world.has_reported("5 recoveries without a new set"), "{:#?}", world.reported);
    assert_eq!(world.spawned, 6 + 5, "{:#?}", world.reported);
}

/// One fault before, at and after every single message of a recovery in place.
#[test]
fn a_recovery_survives_a_fault_at_each_of_its_messages() {
    let mut calm = one_dies(7, Faults::default());
    assert_eq!(calm.run(HOUR_MS), 0);
    let place = |kind: &str| calm.closed.iter().position(|(of, _)| of == kind).unwrap();
    let (from, to) = (calm.closed_at[place("checkpoint")], calm.closed_at[place("rollback")]);
    assert!(to - from > 50, "{from} to {to}");
    let happens = || {
        [
            Happens::KillJl,
            Happens::KillRank(0),
            Happens::KillRank(3),
            Happens::KillNode(node("node00")),
            Happens::KillNode(node("node01")),
            Happens::KillNode(node("spare00")),
        ]
    };
    let mut fates = vec![Fate::Lost, Fate::Doubled, Fate::Late];
    fates.extend(happens().map(Fate::Before));
    fates.extend(happens().map(Fate::After));
    for number in from..=to + 10 {
        for fate in &fates {
            let mut world = one_dies(7, Faults::default());
            world.fate = Some((number, fate.clone()));
            // Only a person brings a launcher back.
            world.at(6000, Happens::ReviveJl);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run(HOUR_MS)));
            let why = || format!("message {number}, {fate:?}: {:#?}", world.reported);
            let code = ran.unwrap_or_else(|_| panic!("{}", why()));
            assert!(
                code == 0 || NAMED.iter().any(|name| world.has_reported(name)),
                "{code}: {}",
                why()
            );
        }
    }
}

/// Faults that differ from seed to seed; `image` and `copy` say how much those fail.
fn faults(seed: u64, image: u64, copy: u64) -> Faults {
    Faults {
        lost: seed % 3 * 4,
        doubled: seed % 2 * 10,
        delay_ms_max: [0, 5, 60, 400][seed as usize % 4],
        image: seed % 5 * image,
        copy: seed % 7 * copy,
    }
}

/// One of three nodes with two ranks each and two spares.
fn some_node(world: &World) -> NodeName {
    node(["node00", "node01", "node02", "spare00", "spare01"][world.rng.0 as usize % 5])
}

/// A node, a rank, or the launcher dies; the launcher comes back.
fn a_process_dies(world: &mut World, when: u64, who: u64) {
    let what = match who {
        0 => Happens::KillNode(some_node(world)),
        1 => Happens::KillRank(world.rng.0 as u32 % 6),
        _ => {
            world.at(when + 2000, Happens::ReviveJl);
            Happens::KillJl
        }
    };
    world.at(when, what);
}

/// It ends with the right answer, or says in which of the named states.
fn ends_well_or_named(world: &mut World) {
    let code = world.run(HOUR_MS);
    let named = world.has_reported("ended during the start")
        || NAMED.iter().any(|name| world.has_reported(name));
    assert!(code == 0 || named, "exit {code}: {:#?}", world.reported);
}

#[test]
fn recoveries_end_well_or_in_a_named_state_with_any_failure() {
    seeds("recoveries", 1000, |seed| {
        let faults = faults(seed, 2, 2);
        let (spares, on_death) = match seed % 13 {
            0..4 => (1, OnDeath::Shrink),
            _ => (2, OnDeath::Rollback),
        };
        let config = JlConfig { on_death, ..config(3, 2, spares) };
        let mut world = World::new(seed, config, faults);
        world.recovers = seed % 11 != 10;
        world.divides = seed % 7 != 6;
        world.at(300, checkpoint());
        let first = 800 + world.rng.below(1500);
        world.at(first, Happens::KillRank(seed as u32 % 6));
        let when = first + world.rng.below(600);
        match seed / 5 % 5 {
            who @ 0..3 => a_process_dies(&mut world, when, (who + 1) % 3),
            3 => world.at(when, migrate("node01")),
            _ => world.at(when, checkpoint()),
        }
        ends_well_or_named(&mut world);
    });
}

#[test]
fn agents_move_ranks_that_know_nothing_of_it() {
    let mut world = World::new(1, with(CRIU, config(2, 2, 1)), Faults::default());
    world.at(500, migrate("node01"));
    world.at(1000, checkpoint());
    world.at(2000, usable("node01"));
    world.at(2500, migrate("node00"));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert_eq!(moved(&world), 2, "{:#?}", world.reported);
    assert!(world.closed.contains(&("checkpoint".to_owned(), true)), "{:#?}", world.closed);
}

/// The job starts again while a node restores ranks: that node gives the restore up, so it neither
/// counts as lost nor takes the set with it.
#[test]
fn a_restore_that_is_replaced_costs_neither_its_node_nor_the_set() {
    let mut world = World::new(1, with(CRIU, config(2, 2, 2)), Faults::default());
    world.slow_restore = Some(node("spare00"));
    world.at(500, checkpoint());
    world.at(2000, migrate("node01"));
    world.at(3000, Happens::KillRank(0));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.slow_restore.is_none() && world.slow.is_empty(), "it was replaced");
    assert!(!world.has_reported("is lost"), "{:#?}", world.reported);
    assert!(!world.has_reported("is put aside"), "{:#?}", world.reported);
    assert!(world.now_ms < 20_000, "{} ms", world.now_ms);
}

#[test]
fn where_ranks_cannot_move_alone_the_job_starts_again_elsewhere() {
    let mut world = World::new(1, with(COMMAND, config(2, 2, 1)), Faults::default());
    world.at(500, migrate("node01"));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.reported.iter().any(|line| line.contains("starts again without node node01")));
    let restored = ("start".to_owned(), true);
    assert_eq!(world.closed.iter().filter(|closed| **closed == restored).count(), 2);
}

#[test]
fn sets_of_agents_are_of_one_moment_with_any_failure() {
    seeds("agents", 600, |seed| {
        let faults = faults(seed, 4, 3);
        let manner = if seed % 3 == 2 { COMMAND } else { CRIU };
        let mut world = World::new(seed, with(manner, config(3, 2, 2)), faults);
        world.at(300, checkpoint());
        let first = 800 + world.rng.below(1500);
        world.at(first, migrate("node01"));
        let second = first + world.rng.below(700);
        world.at(second, migrate("node02"));
        world.at(second + 200, checkpoint());
        let when = first + world.rng.below(900);
        if seed % 4 < 3 {
            a_process_dies(&mut world, when, seed % 4);
        }
        ends_well_or_named(&mut world);
    });
}

#[test]
fn the_states_of_the_nodes_after_a_migration_are_those_of_the_thesis() {
    let mut world = World::new(3, config(2, 1, 1), Faults::default());
    world.at(500, migrate("node01"));
    world.at(1000, Happens::KillJl);
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run(3000)));
    assert!(run.is_err(), "without a launcher nothing ends the job");
    assert_eq!(world.state_of("node00"), Some(MigrationState::Ready));
    assert_eq!(world.state_of("node01"), Some(MigrationState::Inactive));
    assert_eq!(world.state_of("spare00"), Some(MigrationState::Ready));
}

/// What the default policy wants at which time, when ftb-ipmi predicts a failure at `now_ms`.
fn predicted(now_ms: u64, name: &str, ramp_s: u64) -> (u64, Happens) {
    let at = |ms: u64| Now { mono_ns: ms * 1_000_000, wall_ns: ms * 1_000_000 };
    let space = "ftb.ipmi".parse().unwrap();
    let mut hot = Event::new(space, "FTB_IPMI_OVERTEMP".parse().unwrap());
    hot.time_ns = at(now_ms).wall_ns;
    let tag = |key: &str, value: String| Tag { key: key.to_owned(), value };
    hot.tags.push(tag("cause", "predicted".to_owned()));
    hot.tags.push(tag("seconds_left_min", ramp_s.to_string()));
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let facts = Facts { nodes: [node("node00"), node("spare00")].into(), owner: 0 };
    policy.event(at(now_ms), &Report::new(hot, name), &node(name), &facts);
    let due_ms = policy.next_deadline_ns() / 1_000_000;
    let wants = policy.tick(at(due_ms), &facts).into_iter().find_map(|action| match action {
        Action::Request { want, .. } => Some(Happens::Request(want)),
        _ => None,
    });
    (due_ms, wants.unwrap())
}

/// The node dies when the ramp ends. With time enough the ranks have left it by then.
#[test]
fn ramps_of_5_20_60_and_300_seconds_end_well_and_long_ones_without_a_loss() {
    const BEGIN_MS: u64 = 120_000;
    seeds("ramps", 10, |seed| {
        for ramp_s in [5, 20, 60, 300] {
            let faults = Faults { delay_ms_max: 1500, ..Faults::default() };
            let mut world = World::new(seed, config(2, 2, 1), faults);
            world.work = 50_000;
            world.at(10_000, checkpoint());
            world.at(40_000, migrate("node01"));
            world.at(90_000, usable("node01"));
            let (due_ms, wants) = predicted(BEGIN_MS, "node00", ramp_s);
            world.at(due_ms, wants);
            world.at(BEGIN_MS + ramp_s * 1000, Happens::KillNode(node("node00")));
            assert_eq!(world.run(HOUR_MS), 0, "{ramp_s}: {:#?}", world.reported);
            assert!(world.has_reported("node00 fails in"), "{ramp_s}: {:#?}", world.reported);
            if ramp_s >= 60 {
                let saved = ["checkpoint", "migration"].map(|kind| (kind.to_owned(), true));
                assert!(world.closed.ends_with(&end_of(saved)), "{ramp_s}: {:?}", world.closed);
            }
        }
    });
}

/// The job is being saved, as there is time enough; then the rise becomes steeper.
#[test]
fn ranks_leave_a_node_in_time_whose_ramp_becomes_steeper_while_the_job_is_saved() {
    const BEGIN_MS: u64 = 120_000;
    seeds("steeper", 10, |seed| {
        let faults = Faults { delay_ms_max: 200, ..Faults::default() };
        let mut world = World::new(seed, config(2, 2, 1), faults);
        world.work = 50_000;
        world.times.store_ms = 30_000;
        world.at(10_000, checkpoint());
        world.at(60_000, migrate("node01"));
        world.at(90_000, usable("node01"));
        let (due_ms, wants) = predicted(BEGIN_MS, "node00", 300);
        world.at(due_ms, wants);
        let steeper_ms = due_ms + 10_000;
        let dies_ms = steeper_ms + 15_000;
        let (fault, name) = (FaultId(1), node("node00"));
        let input = jl::JlInput::Sooner { fault, node: name, fails_ns: dies_ms * 1_000_000 };
        world.at(steeper_ms, Happens::ToJl(Box::new(input)));
        world.at(dies_ms, Happens::KillNode(node("node00")));
        assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
        assert!(world.has_reported("which is sooner than was predicted"), "{:#?}", world.reported);
        let closed = [("checkpoint", false), ("migration", true), ("end", true)];
        let closed = closed.map(|(kind, done)| (kind.to_owned(), done));
        assert!(world.closed.ends_with(&closed), "{:?}", world.closed);
    });
}

/// These episodes, and then the end of the job.
fn end_of(last: [(String, bool); 2]) -> Vec<(String, bool)> {
    last.into_iter().chain([("end".to_owned(), true)]).collect()
}
