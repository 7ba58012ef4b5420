//! Checkpoints in memory under the seeded simulation: nodes, ranks and the launcher die at every
//! message of a checkpoint, of its protection and of a recovery. A rank never starts from a state
//! that it has not saved: that leads to the generation before, to the store, or to a named end.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod sim;

use core::time::Duration;
use ftb_launcher_core::jl::{Interval, JlConfig, MemoryConfig, OnDeath, Request};
use ftb_launcher_core::manner::Manner;
use ftb_launcher_core::memory::Scheme;
use ftb_launcher_core::names::NodeName;
use sim::happens::{Fate, Faults, Happens};
use sim::world::{World, node};
use sim::{COMMAND, CRIU, HOUR_MS, checkpoint, config, migrate, seeds, with};

/// The reasons for which a job may end without its answer.
const NAMED: [&str; 4] = [
    "no set to restart from",
    "no hot spare is left",
    "recoveries without a new set",
    "ended during the start",
];

fn protected(scheme: Scheme, nodes: u32, spares: u32) -> JlConfig {
    let memory = MemoryConfig {
        scheme,
        interval: Interval::Never,
        first: true,
        racks: std::collections::BTreeMap::new(),
    };
    JlConfig { memory: Some(memory), ..config(nodes, 2, spares) }
}

fn saved_in_memory() -> Happens {
    Happens::Request(Request::MemoryCheckpoint { reason: "the test".to_owned() })
}

fn ends_well(world: &mut World) {
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
}

fn ends_well_or_named(world: &mut World, what: &str) -> i32 {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run(HOUR_MS)));
    let why = || format!("{what}: {:#?}", world.reported);
    let code = ran.unwrap_or_else(|_| panic!("{}", why()));
    assert!(code == 0 || NAMED.iter().any(|name| world.has_reported(name)), "{code}: {}", why());
    code
}

/// Whether there was a set when the first node or rank was lost.
fn was_protected(world: &World) -> bool {
    let at = |words: &[&str]| {
        let has = |line: &String| words.iter().any(|word| line.contains(word));
        world.reported.iter().position(has).unwrap_or(usize::MAX)
    };
    at(&["is protected in memory"]) < at(&["is lost", "died", "signal"])
}

/// Whether nodes of at most one member of the group are lost by it, and node02: spare00 may have
/// taken its place.
fn is_borne(fate: &Fate) -> bool {
    match fate {
        Fate::Lost | Fate::Doubled | Fate::Late => true,
        Fate::Before(what) | Fate::After(what) => match what {
            Happens::KillNode(name) => *name != node("node00"),
            _ => true,
        },
    }
}

#[test]
fn a_job_is_protected_before_its_first_step_and_a_lost_node_comes_back_without_a_store() {
    for scheme in [Scheme::Buddy(1), Scheme::Buddy(2), Scheme::Xor(2), Scheme::Xor(4)] {
        let mut world = World::new(1, protected(scheme, 4, 1), Faults::default());
        world.at(900, Happens::KillNode(node("node02")));
        ends_well(&mut world);
        assert!(world.store.is_empty());
        assert!(
            world.has_reported("6 ranks went back to set mem-000002 (memory) in place"),
            "{scheme}: {:#?}",
            world.reported
        );
        assert_eq!(world.spawned, 8 + 2, "{scheme}: no other rank was started");
    }
}

#[test]
fn a_dead_rank_starts_from_the_memory_of_its_node() {
    let mut world = World::new(1, protected(Scheme::Xor(4), 4, 0), Faults::default());
    world.at(900, saved_in_memory());
    world.at(1800, Happens::KillRank(3));
    ends_well(&mut world);
    assert!(
        world.has_reported("7 ranks went back to set mem-000003 (memory) in place"),
        "{:#?}",
        world.reported
    );
}

/// The spare that took its place is protected by the group, and protects it.
#[test]
fn nodes_lost_one_after_the_other_all_come_back() {
    for scheme in [Scheme::Buddy(1), Scheme::Xor(4)] {
        let mut world = World::new(1, protected(scheme, 4, 3), Faults::default());
        world.work = 2000;
        for (after, name) in [(900, "node02"), (4000, "node00"), (8000, "spare00")] {
            world.at(after, Happens::KillNode(node(name)));
        }
        ends_well(&mut world);
        let back = world.reported.iter().filter(|line| line.contains("went back to set mem-"));
        assert_eq!(back.count(), 3, "{scheme}: {:#?}", world.reported);
        assert!(!world.has_reported("restarts from"), "{scheme}: {:#?}", world.reported);
    }
}

fn two_of_one_group(stored: bool) -> World {
    let mut world = World::new(1, protected(Scheme::Xor(4), 4, 2), Faults::default());
    world.work = 1000;
    if stored {
        world.at(500, checkpoint());
    }
    world.at(1500, saved_in_memory());
    world.at(3000, Happens::Silence(node("node01")));
    world.at(3001, Happens::Gone(node("node03")));
    world.at(3001, Happens::Gone(node("node01")));
    world
}

#[test]
fn two_nodes_of_one_group_lead_to_the_store() {
    let mut world = two_of_one_group(true);
    ends_well(&mut world);
    assert!(world.has_reported("in memory is lost: of its group"), "{:#?}", world.reported);
    assert!(world.has_reported("set set-000003"), "{:#?}", world.reported);
}

#[test]
fn two_nodes_of_one_group_without_a_store_end_the_job_with_the_reason() {
    let mut world = two_of_one_group(false);
    assert_ne!(world.run(HOUR_MS), 0);
    assert!(world.has_reported("in memory is lost: of its group"), "{:#?}", world.reported);
    assert!(world.has_reported("no set to restart from"), "{:#?}", world.reported);
}

#[test]
fn ranks_that_moved_go_back_with_the_images_of_the_node_that_they_left() {
    let mut world = World::new(1, protected(Scheme::Xor(4), 4, 2), Faults::default());
    world.work = 1000;
    world.at(900, migrate("node01"));
    world.run_until_closed("migration");
    world.at(1, Happens::KillRank(3));
    world.at(5000, Happens::KillNode(node("node00")));
    ends_well(&mut world);
    assert!(world.has_reported("went back to set mem-000002"), "{:#?}", world.reported);
    let back = world.reported.iter().filter(|line| line.contains("went back to set mem-"));
    assert_eq!(back.count(), 2, "{:#?}", world.reported);
}

/// A failing node is left, and then taken away: its images are gone, and its group would bear no
/// further loss.
#[test]
fn a_job_is_protected_anew_after_a_node_with_images_was_left_or_is_lost() {
    for (scheme, is_early) in
        [(Scheme::Xor(4), false), (Scheme::Xor(4), true), (Scheme::Buddy(1), false)]
    {
        let mut world = World::new(1, protected(scheme, 4, 3), Faults::default());
        world.work = 1500;
        world.at(900, migrate("node01"));
        world.run_until_closed("migration");
        world.at(if is_early { 1 } else { 3000 }, Happens::Gone(node("node01")));
        for (after, name) in [(6000, "node02"), (10_000, "node00")] {
            world.at(after, Happens::KillNode(node(name)));
        }
        ends_well(&mut world);
        let has_images = world.has_reported("node node01 had images of set mem-");
        assert_eq!(has_images, is_early, "{scheme}: {:#?}", world.reported);
        assert!(world.store.is_empty());
        let back = world.reported.iter().filter(|line| line.contains("went back to set mem-"));
        assert_eq!(back.count(), 2, "{scheme}: {:#?}", world.reported);
    }
}

/// Of two nodes that are lost at once neither can copy the other.
#[test]
fn a_job_is_protected_anew_after_copies_could_not_be_made() {
    let mut world = World::new(1, protected(Scheme::Buddy(2), 4, 4), Faults::default());
    world.work = 1500;
    world.at(1500, Happens::Silence(node("node02")));
    world.at(1500, Happens::Gone(node("node01")));
    world.at(1501, Happens::Gone(node("node02")));
    world.at(6000, Happens::Silence(node("node00")));
    world.at(6000, Happens::Gone(node("spare01")));
    world.at(6001, Happens::Gone(node("node00")));
    ends_well(&mut world);
    assert!(world.has_reported("the job goes back to set mem-000002"), "{:#?}", world.reported);
    assert!(!world.has_reported("in memory is lost"), "{:#?}", world.reported);
    assert!(!world.has_reported("put aside"), "{:#?}", world.reported);
    let made = |line: &&String| line.contains("is protected in memory: 8 ranks");
    assert_eq!(world.reported.iter().filter(made).count(), 3, "{:#?}", world.reported);
}

#[test]
fn a_first_set_that_could_not_be_made_is_tried_again() {
    for manner in [Manner::default(), CRIU] {
        let config = with(manner, protected(Scheme::Xor(4), 4, 1));
        let mut world = World::new(1, config, Faults::default());
        (world.work, world.breaks) = (1500, 5);
        world.at(12_000, Happens::KillNode(node("node02")));
        ends_well(&mut world);
        assert!(world.has_reported("is protected in memory"), "{:#?}", world.reported);
    }
}

/// A node that does not hear that a set was dropped has no room for the one after the next.
#[test]
fn a_lost_message_on_a_tight_budget_does_not_end_the_protection() {
    let tight = || {
        let mut config = protected(Scheme::Xor(4), 4, 0);
        let every = Interval::Every(Duration::from_millis(600));
        config.memory.as_mut().unwrap().interval = every;
        let mut world = World::new(1, config, Faults::default());
        world.work = 900;
        // Two generations of the largest share: 40 bytes, and 14 of parity.
        world.budget = Some(2 * (40 + 14));
        world
    };
    let saved = |world: &World| {
        world.closed.iter().filter(|(kind, done)| kind == "checkpoint" && *done).count()
    };
    let mut calm = tight();
    ends_well(&mut calm);
    assert!(saved(&calm) > 6, "{:#?}", calm.closed);
    let (mut failed, third) = (0, calm.closed_at[3]);
    for number in third - 40..third {
        let mut world = tight();
        world.fate = Some((number, Fate::Lost));
        ends_well(&mut world);
        failed += usize::from(world.closed.contains(&("checkpoint".to_owned(), false)));
        assert!(saved(&world) + 3 > saved(&calm), "message {number}: {:#?}", world.reported);
    }
    assert!(failed > 0, "no node missed it");
}

/// The newest of all levels is taken, so that the least work is lost.
#[test]
fn a_set_of_the_store_that_is_newer_than_the_one_in_memory_is_taken() {
    let mut world = World::new(1, protected(Scheme::Buddy(1), 4, 1), Faults::default());
    world.at(1200, checkpoint());
    world.at(2500, Happens::KillRank(3));
    ends_well(&mut world);
    assert!(world.has_reported("went back to set set-000003 in place"), "{:#?}", world.reported);
}

fn saved_on_disks() -> Happens {
    Happens::Request(Request::DiskCheckpoint { reason: "the test".to_owned() })
}

#[test]
fn a_dead_rank_goes_back_to_the_newest_set_on_the_disks_of_the_nodes() {
    for (manner, back) in [
        (Manner::default(), "7 ranks went back to set disk-000004 (node disks) in place"),
        (CRIU, "restarts from set disk-000004 (node disks)"),
        (COMMAND, "restarts from set disk-000003 (node disks)"),
    ] {
        let config = match manner {
            COMMAND => with(manner, config(4, 2, 0)),
            _ => with(manner, protected(Scheme::Xor(4), 4, 0)),
        };
        let mut world = World::new(1, config, Faults::default());
        world.work = 1000;
        world.at(3000, checkpoint());
        world.at(4000, saved_on_disks());
        world.at(5000, Happens::KillRank(3));
        ends_well(&mut world);
        assert!(world.has_reported(back), "{manner:?}: {:#?}", world.reported);
        let stored = world.store.keys().all(|(set, _)| !set.is_on_disks());
        assert!(stored && !world.store.is_empty());
    }
}

/// The image of its rank is nowhere else: the next level is taken.
#[test]
fn a_set_on_disks_is_lost_with_a_node_and_an_older_level_is_taken() {
    let mut world = World::new(1, protected(Scheme::Xor(4), 4, 1), Faults::default());
    world.work = 1000;
    world.at(2000, saved_on_disks());
    world.at(4000, Happens::KillNode(node("node02")));
    ends_well(&mut world);
    let lost = "set disk-000003 on the disks of the nodes is lost: that of rank 4,5 was on a lost";
    assert!(world.has_reported(lost), "{:#?}", world.reported);
    let back = "6 ranks went back to set mem-000002 (memory) in place";
    assert!(world.has_reported(back), "{:#?}", world.reported);
}

/// Their lists are longer than a tag of an event.
#[test]
fn half_of_a_job_of_600_ranks_dies_with_its_node_and_comes_back_or_is_left_out() {
    let per_node = 300;
    for on_death in [OnDeath::Rollback, OnDeath::Shrink] {
        let spares = u32::from(on_death == OnDeath::Rollback);
        let placed = config(2, per_node, spares);
        // As with a rank file that deals them out: no range shortens their lists.
        let placement = (0..2).map(|n| {
            let ranks = (0..2 * per_node).filter(|rank| rank % 2 == n).collect();
            (node(&format!("node{n:02}")), ranks)
        });
        let placement = placement.collect();
        let memory = protected(Scheme::Buddy(1), 2, 0).memory;
        let config = JlConfig { memory, on_death, placement, ..placed };
        let mut world = World::new(1, config, Faults::default());
        (world.work, world.checks_wire) = (100, true);
        world.run_until_closed("checkpoint");
        world.at(1, Happens::Gone(node("node01")));
        ends_well(&mut world);
        let back = match on_death {
            OnDeath::Shrink => format!("{per_node} ranks went back to set mem-000002 (memory)"),
            _ => format!("{per_node} ranks went back to set mem-000002 (memory) in place, started"),
        };
        assert!(world.has_reported(&back), "{:#?}", world.reported);
    }
}

/// Its image is still on the node that it has left.
#[test]
fn a_rank_that_has_moved_gets_its_image_from_the_disk_of_the_other_node() {
    for manner in [Manner::default(), CRIU] {
        let mut world = World::new(1, with(manner, config(4, 2, 1)), Faults::default());
        world.work = 1500;
        world.at(2000, saved_on_disks());
        world.at(3000, migrate("node01"));
        world.run_until_closed("migration");
        world.at(1000, Happens::KillRank(3));
        ends_well(&mut world);
        assert!(world.has_reported("set disk-000002 (node disks)"), "{:#?}", world.reported);
        assert!(world.exit == Some(0) && world.store.is_empty(), "{:#?}", world.reported);
    }
}

/// Each at its own interval.
#[test]
fn a_job_saves_itself_on_three_levels_by_the_clock() {
    let every = |ms| Interval::Every(Duration::from_millis(ms));
    let mut config = protected(Scheme::Xor(4), 4, 0);
    config.memory.as_mut().unwrap().interval = every(400);
    (config.disk_interval, config.interval) = (every(900), every(2500));
    let mut world = World::new(1, config, Faults::default());
    world.work = 1200;
    ends_well(&mut world);
    let made = |level: &str| {
        let sets = world.saved_states.keys().map(|(set, _)| set.as_str());
        sets.filter(|set| set.starts_with(level)).collect::<std::collections::BTreeSet<_>>().len()
    };
    let (memory, disks, store) = (made("mem-"), made("disk-"), made("set-"));
    assert!(memory > disks && disks > store && store >= 3, "{memory} {disks} {store}");
}

#[test]
fn fewer_ranks_start_from_the_store_and_not_from_memory() {
    let shrinks = JlConfig { on_death: OnDeath::Shrink, ..protected(Scheme::Xor(4), 4, 0) };
    let mut world = World::new(1, shrinks, Faults::default());
    (world.work, world.divides) = (1000, false);
    world.at(500, checkpoint());
    world.at(1500, saved_in_memory());
    world.at(3000, Happens::KillNode(node("node01")));
    ends_well(&mut world);
    assert!(world.has_reported("6 ranks take over what 8 have done"), "{:#?}", world.reported);
    assert!(world.has_reported("fewer ranks cannot start from a set in memory"));
    assert!(world.has_reported("is protected in memory: 6 ranks"), "{:#?}", world.reported);
}

#[test]
fn a_job_saves_itself_in_memory_by_the_clock_and_two_generations_are_held_at_most() {
    let mut config = protected(Scheme::Xor(4), 4, 0);
    let every = Interval::Every(Duration::from_millis(600));
    config.memory.as_mut().unwrap().interval = every;
    let mut world = World::new(1, config, Faults::default());
    world.at(3000, Happens::KillJl);
    world.at(3500, Happens::ReviveJl);
    ends_well(&mut world);
    let saved = world.closed.iter().filter(|(kind, done)| kind == "checkpoint" && *done).count();
    assert!((4..12).contains(&saved), "{saved}: {:#?}", world.closed);
    let kept: std::collections::BTreeSet<_> =
        world.images.keys().map(|(_, set, _)| set).filter(|set| set.is_in_memory()).collect();
    assert!(kept.len() <= 2, "{kept:?}");
}

/// A second checkpoint in memory, then the loss of a node: the second generation is in the making,
/// or counts.
fn saved_and_lost(manner: Manner, scheme: Scheme) -> World {
    let mut world = World::new(7, with(manner, protected(scheme, 4, 2)), Faults::default());
    // Ranks in pods are saved for the first time a second after their start.
    let later = if manner == CRIU { 1300 } else { 0 };
    world.work += later / 2;
    world.at(900 + later, saved_in_memory());
    world.at(1700 + later, Happens::KillNode(node("node02")));
    world
}

/// One fault before, at and after every single message of a checkpoint, of its protection, and of
/// the recovery from it.
#[test]
fn a_fault_at_each_message_leads_to_a_generation_that_counts_or_to_a_named_end() {
    for (manner, scheme) in [
        (Manner::default(), Scheme::Xor(4)),
        (Manner::default(), Scheme::Buddy(1)),
        (CRIU, Scheme::Xor(4)),
    ] {
        let mut calm = saved_and_lost(manner, scheme);
        ends_well(&mut calm);
        let back = |(kind, _): &(String, bool)| kind == "rollback" || kind == "start";
        let place = |kind: &str| calm.closed.iter().position(|(of, _)| of == kind).unwrap();
        let last = calm.closed.iter().rposition(back).unwrap();
        let (from, to) = (calm.closed_at[place("start")], calm.closed_at[last]);
        assert!(to - from > 200, "{from} to {to}");
        let happens = || {
            [
                Happens::KillJl,
                Happens::KillRank(0),
                Happens::KillNode(node("node00")),
                Happens::KillNode(node("node02")),
                Happens::KillNode(node("spare00")),
            ]
        };
        let mut fates = vec![Fate::Lost, Fate::Doubled, Fate::Late];
        fates.extend(happens().map(Fate::Before));
        fates.extend(happens().map(Fate::After));
        let mut olders = 0;
        for number in from..=to + 10 {
            for fate in &fates {
                let mut world = saved_and_lost(manner, scheme);
                world.fate = Some((number, fate.clone()));
                world.at(6000, Happens::ReviveJl);
                let what = format!("{manner:?}, {scheme}, message {number}, {fate:?}");
                let code = ends_well_or_named(&mut world, &what);
                let bears = is_borne(fate) && was_protected(&world);
                assert!(code == 0 || !bears, "{what}: {code}: {:#?}", world.reported);
                let olders_words = ["went back to set mem-000002", "restarts from set mem-000002"];
                let went = |words: &str| world.has_reported(words);
                olders += u64::from(olders_words.into_iter().any(went));
            }
        }
        assert!(olders > 50, "{scheme}: only {olders} went back to the older generation");
    }
}

/// Ranks that know nothing of it are all restored; there is no barrier that they wait in.
#[test]
fn a_lost_node_of_ranks_in_pods_comes_back_without_a_store() {
    for scheme in [Scheme::Buddy(1), Scheme::Xor(4)] {
        let config = with(CRIU, protected(scheme, 4, 2));
        let mut world = World::new(1, config, Faults::default());
        world.work = 2000;
        for (after, name) in [(3000, "node02"), (7000, "spare00")] {
            world.at(after, Happens::KillNode(node(name)));
        }
        ends_well(&mut world);
        assert!(world.store.is_empty());
        let back = "the job restarts from set mem-000002 (memory)";
        let count = world.reported.iter().filter(|line| line.contains(back)).count();
        assert_eq!(count, 2, "{scheme}: {:#?}", world.reported);
    }
}

#[test]
fn any_failure_at_any_time_leads_to_a_state_that_was_saved_or_to_a_named_end() {
    seeds("any failure", 600, |seed| {
        let faults = Faults {
            lost: seed % 3 * 4,
            doubled: seed % 2 * 10,
            delay_ms_max: [0, 5, 60, 400][seed as usize % 4],
            image: seed % 5 * 3,
            copy: seed % 7 * 3,
        };
        let scheme = [Scheme::Xor(3), Scheme::Buddy(1), Scheme::Xor(6), Scheme::Buddy(2)];
        let mut config = protected(scheme[seed as usize / 4 % 4], 6, 3);
        let every = Interval::Every(Duration::from_millis(500 + 100 * (seed % 8)));
        config.memory.as_mut().unwrap().interval = every;
        if seed % 5 == 2 {
            config.disk_interval = Interval::Every(Duration::from_millis(900));
        }
        let manner = if seed % 4 == 1 { CRIU } else { Manner::default() };
        let mut world = World::new(seed, with(manner, config), faults);
        world.work = 600;
        if seed % 3 == 0 {
            world.at(1500, checkpoint());
        }
        for _ in 0..1 + seed % 4 {
            let when = 300 + world.rng.below(6000);
            let names = ["node00", "node01", "node02", "node03", "spare00", "spare01"];
            let victim: NodeName = node(names[world.rng.below(6) as usize]);
            let what = match world.rng.below(5) {
                0 => Happens::KillNode(victim),
                1 => Happens::Gone(victim),
                2 => migrate(victim.as_str()),
                3 => Happens::KillRank(world.rng.below(12) as u32),
                _ => {
                    world.at(when + 2000, Happens::ReviveJl);
                    Happens::KillJl
                }
            };
            world.at(when, what);
        }
        ends_well_or_named(&mut world, &format!("FTB_SEED={seed}"));
    });
}
