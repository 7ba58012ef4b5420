//! What `status --what-if` says of a node is what its loss costs: jobs of all kinds lose a node in
//! simulation, and what follows is compared. `FTB_SEED=n` runs one seed, `FTB_RUNS=n` that many.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod sim;

use core::time::Duration;
use ftb_launcher_core::jl::{
    Interval, JlConfig, JlInput, Job, MemoryConfig, OnDeath, Request, Unusable, WhatIf,
};
use ftb_launcher_core::memory::Scheme;
use ftb_launcher_core::names::{NodeName, Ranks, SetId};
use sim::happens::{Faults, Happens};
use sim::world::{World, node};
use sim::{CRIU, checkpoint, config, migrate, range, with};
use std::collections::BTreeMap;

/// A job with some levels, some spares, and a past.
fn job(seed: u64) -> World {
    let bit = |n: u64| seed >> n & 1 == 1;
    let schemes = [None, Some(Scheme::Xor(4)), Some(Scheme::Buddy(1)), Some(Scheme::Xor(2))];
    let memory = schemes[(seed & 3) as usize].map(|scheme| MemoryConfig {
        scheme,
        interval: Interval::Never,
        first: true,
        racks: BTreeMap::new(),
    });
    let on_death = [OnDeath::Rollback, OnDeath::Shrink, OnDeath::Restart, OnDeath::Shrink];
    let on_death = on_death[(seed >> 2 & 3) as usize];
    let wait = if bit(4) { Duration::from_secs(600) } else { Duration::ZERO };
    let spares = (seed % 3) as u32;
    let config = JlConfig { memory, on_death, wait_for_nodes: wait, ..config(4, 2, spares) };
    let is_pod = bit(5) && on_death != OnDeath::Shrink;
    let config = if is_pod { with(CRIU, config) } else { config };
    let mut world = World::new(seed, config, Faults::default());
    (world.work, world.divides) = (3000, !bit(6));
    for (is_there, after, what) in [
        (bit(7), 2500, checkpoint()),
        (bit(8), 3500, saved_on_disks()),
        (bit(9), 4500, Happens::KillRank(3)),
        (bit(10), 6000, migrate("node01")),
        (bit(11), 8000, Happens::Gone(node("node03"))),
        (bit(12), 12_000, saved_on_disks()),
        (bit(13), 7000, unusable("node02")),
        (bit(14), 1000, unusable("spare00")),
    ] {
        if is_there {
            world.at(after, what);
        }
    }
    world
}

fn unusable(name: &str) -> Happens {
    let why = Unusable { why: "fan failed".to_owned(), lasts: false };
    Happens::ToJl(Box::new(JlInput::Unusable { node: node(name), why }))
}

/// The sets in memory and on disks.
fn levels(job: &Job) -> [Option<SetId>; 2] {
    [job.memory.as_ref().map(|memory| memory.set.clone()), job.disk_set().cloned()]
}

/// The sets that are lost with a node without ranks are those that were said.
fn check_levels(found: &WhatIf, before: &[Option<SetId>; 2], after: &[Option<SetId>; 2]) {
    for (before, after) in before.iter().zip(after) {
        let Some(set) = before else { continue };
        assert!(after.as_ref().is_none_or(|after| after == set), "a newer one: {after:?}");
        let place = if set.is_in_memory() { " in memory" } else { "" };
        let said = found.words.contains(&format!("but set {set}{place} is lost with the images"));
        assert_eq!(said, after.is_none(), "{found:?}");
    }
}

fn saved_on_disks() -> Happens {
    Happens::Request(Request::DiskCheckpoint { reason: "the test".to_owned() })
}

/// Whether nothing goes on but the work of the ranks.
fn is_quiet(world: &World) -> bool {
    world.jl.as_ref().is_some_and(|jl| jl.open().is_none() && jl.job().met)
}

/// Runs until nothing goes on; false if the job is over, or waits for a node.
fn becomes_quiet(world: &mut World) -> bool {
    let waits = |world: &World| world.jl.as_ref().is_some_and(|jl| jl.waits_for_nodes());
    let until = world.now_ms + 60_000;
    loop {
        world.run_until(world.now_ms + 20);
        if world.exit.is_some() || waits(world) {
            return false;
        }
        if is_quiet(world) {
            return true;
        }
        assert!(world.now_ms < until, "{:#?}", world.reported);
    }
}

/// The lost node cost what was said.
fn check(world: &World, found: &WhatIf, before: (usize, usize), goes_on: bool) {
    let (said, count) = before;
    let heard = &world.reported[said..];
    let why = || format!("{found:?}: {heard:#?}");
    let back: Vec<&String> = heard
        .iter()
        .filter(|line| {
            ["goes back to set", "restarts from set", "have done, from set"]
                .iter()
                .any(|words| line.contains(words))
        })
        .collect();
    let ends = heard.iter().any(|line| line.contains("the job ends"));
    assert_eq!(found.ends, ends, "{}", why());
    let jl = world.jl.as_ref().unwrap();
    if found.ends || !goes_on {
        assert!(found.ends || jl.waits_for_nodes(), "{}", why());
        assert_eq!((&found.set, &found.spare), (&None, &None), "{}", why());
        return;
    }
    let Some(set) = &found.set else {
        assert!(found.ranks.is_empty() && back.is_empty(), "{}", why());
        return;
    };
    assert!(back.last().unwrap().contains(&format!("set {set}")), "{}", why());
    match &found.spare {
        Some(spare) => {
            let ranks: Ranks = found.ranks.iter().copied().collect();
            assert_eq!(jl.job().ranks_on(spare), ranks, "{}", why());
            assert_eq!(jl.job().count(), count, "{}", why());
        }
        None => assert_eq!(jl.job().count(), count - found.ranks.len(), "{}", why()),
    }
    let members = jl.job().members();
    assert!(found.left.iter().all(|rank| !members.has(*rank)), "{}", why());
}

#[test]
fn a_lost_node_costs_what_was_said_before() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let seeds = range(2000);
    for seed in seeds.clone() {
        let mut world = job(seed.wrapping_mul(0x9e37_79b9) >> 3);
        let when = 9000 + world.rng.below(6000);
        world.run_until(when);
        if !becomes_quiet(&mut world) {
            continue;
        }
        let job = world.jl.as_ref().unwrap().job();
        let alive: Vec<NodeName> = job.alive();
        let victim = alive[world.rng.below(alive.len() as u64) as usize].clone();
        let job = world.jl.as_ref().unwrap().job();
        let (found, count) = (job.what_if(&victim).unwrap(), job.count());
        if !world.divides && !found.left.is_empty() {
            // The program has not been asked yet.
            assert!(found.words.ends_with("if the program divides its state"), "{found:?}");
            continue;
        }
        let before = (world.reported.len(), count);
        let (had, faults) = (levels(job), job.nodes.values().any(|row| row.unusable.is_some()));
        world.at(0, Happens::Gone(victim));
        world.run_until(world.now_ms + 1);
        let has = levels(world.jl.as_ref().unwrap().job());
        let goes_on = becomes_quiet(&mut world);
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&world, &found, before, goes_on);
            if found.ranks.is_empty() {
                check_levels(&found, &had, &has);
            }
        }));
        assert!(checked.is_ok(), "FTB_SEED={seed}");
        let level = |set: &str| found.set.as_ref().is_some_and(|of| of.as_str().starts_with(set));
        for (what, is_so) in [
            ("the job ends", found.ends),
            ("it waits", !goes_on && !found.ends),
            ("memory", level("mem")),
            ("disks", level("disk")),
            ("store", level("set")),
            ("a spare", found.spare.is_some()),
            ("fewer ranks in place", !found.left.is_empty()),
            ("fewer ranks again", found.set.is_some() && found.spare.is_none()),
            ("idle", found.ranks.is_empty()),
            ("its disk", found.ranks.is_empty() && had[1] != has[1]),
            ("an unusable node", faults && found.spare.is_some()),
        ] {
            *seen.entry(what).or_default() += u32::from(is_so);
        }
    }
    if seeds.end - seeds.start > 1000 {
        // A set on disks bears the loss of a node only if another one has fetched its images. One
        // in memory bears the loss of one node: that of a node without ranks never ends it here.
        seen.remove("disks");
        assert!(seen.values().all(|count| *count > 0), "{seen:?}");
    }
}
