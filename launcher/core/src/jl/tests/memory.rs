//! What the death of a node would cost a job with a set in memory.

use super::*;
use crate::memory::Scheme;
use std::collections::BTreeMap;

/// Two nodes with a rank each, whose images protect each other.
fn protected() -> Jl {
    let mut jl = jl();
    let (scheme, racks) = (Scheme::Xor(2), BTreeMap::new());
    let memory = MemoryConfig { scheme, interval: Interval::Never, first: true, racks };
    jl.job.config.memory = Some(memory);
    for (name, state) in
        [("a", MigrationState::Ready), ("b", MigrationState::Ready), ("s", MigrationState::Spare)]
    {
        jl.job.nodes.get_mut(&node(name)).unwrap().state = Some(state);
    }
    let sizes = [(0, 80), (1, 80)].into();
    jl.job.memory = Some(jl.job.memory_set(&SetId::of_memory(Episode(2)), &sizes).unwrap());
    jl.job.episode = Episode(2);
    jl.job.met = true;
    jl
}

fn words(jl: &Jl, name: &str) -> String {
    jl.job.what_if(&node(name)).unwrap().words
}

#[test]
fn what_a_death_would_cost_depends_on_what_the_job_does_then() {
    let mut jl = protected();
    for (on_death, expected) in [
        (OnDeath::Rollback, "s takes its place, and all ranks go back to set mem-000002 (memory)"),
        (
            OnDeath::Restart,
            "s takes its place, and all ranks start again from set mem-000002 (memory)",
        ),
        (OnDeath::Stop, "and the job ends (--on-death stop)"),
        (OnDeath::Continue, "and the others go on without it (--on-death continue)"),
    ] {
        jl.job.config.on_death = on_death;
        let found = jl.job.what_if(&node("b")).unwrap();
        assert!(found.words.contains(expected), "{on_death:?}: {}", found.words);
        let goes_back = matches!(on_death, OnDeath::Rollback | OnDeath::Restart);
        assert_eq!((found.set.is_some(), found.spare.is_some()), (goes_back, goes_back));
    }
    jl.job.config.on_death = OnDeath::Rollback;
    jl.job.restarts = jl.job.config.restarts_max;
    let found = words(&jl, "b");
    assert!(found.contains("the job ends after 3 recoveries without a new set"), "{found}");
}

/// A program that has refused to divide its state starts again, from a set of the store.
#[test]
fn what_a_shrink_would_cost_depends_on_the_program_and_on_the_sets_in_the_store() {
    let mut jl = protected();
    jl.job.config.on_death = OnDeath::Shrink;
    jl.job.nodes.get_mut(&node("s")).unwrap().lost = true;
    let found = jl.job.what_if(&node("b")).unwrap();
    assert_eq!((found.left.as_slice(), found.ends), (&[1][..], false), "{found:?}");
    jl.job.undivided = true;
    let found = jl.job.what_if(&node("b")).unwrap();
    assert!(found.ends && found.words.contains("the job ends"), "{found:?}");
    jl.job.sets.push(SetId::of_checkpoint(Episode(1)));
    let found = jl.job.what_if(&node("b")).unwrap();
    assert_eq!((found.set, found.ends), (Some(SetId::of_checkpoint(Episode(1))), false));
    assert!(found.words.contains("fewer ranks start again from set set-000001"), "{}", found.words);
}

#[test]
fn what_a_death_would_cost_names_parked_processes() {
    let mut jl = protected();
    let parked = |waiting: &[u32]| ParkedProcesses {
        wanted: 2,
        waiting: waiting.to_vec(),
        ..ParkedProcesses::default()
    };
    jl.job.nodes.get_mut(&node("s")).unwrap().parked = parked(&[70, 71]);
    jl.job.nodes.get_mut(&node("b")).unwrap().parked = parked(&[80]);
    let found = jl.job.what_if(&node("b")).unwrap();
    assert_eq!((found.parked, found.adopts), (1, 1));
    assert!(
        found.words.ends_with(
            "(memory); 1 of its 1 ranks go on in parked processes; 1 parked processes of b end"
        ),
        "{}",
        found.words
    );
    let idle = jl.job.what_if(&node("s")).unwrap();
    assert_eq!((idle.parked, idle.adopts, idle.ends), (2, 0, false));
    assert!(idle.words.ends_with("all ranks go on; 2 parked processes of s end"), "{}", idle.words);
}

#[test]
fn a_node_that_has_images_and_no_ranks_is_missed_too() {
    let mut jl = protected();
    assert_eq!(words(&jl, "s"), "it has no ranks: all ranks go on");
    assert!(jl.job.weakened().is_none());
    jl.job.start_on(&node("s"), &Ranks::from_iter([0]));
    let found = words(&jl, "a");
    assert!(
        found.contains("the group a b of set mem-000002 in memory bears one loss less"),
        "{found}"
    );
    assert!(jl.job.weakened().is_some(), "its ranks have left it");
    jl.job.nodes.get_mut(&node("b")).unwrap().lost = true;
    let found = words(&jl, "a");
    assert!(found.contains("but set mem-000002 in memory is lost"), "{found}");
    let out = feed(&mut jl, JlInput::Gone { node: node("a"), reason: "power".to_owned() });
    assert!(jl.job.memory.is_none(), "{out:?}");
    let heard = |words: &str| {
        out.iter().any(|out| matches!(out, JlOutput::Notify(line) if line.contains(words)))
    };
    assert!(heard("node a had images of set mem-000002 in memory"), "{out:?}");
    assert!(heard("set mem-000002 in memory is lost: of its group a b"), "{out:?}");
}

/// While images are fetched from memory, of the nodes that fetch some.
#[test]
fn the_progress_of_a_restore_counts_the_nodes_that_fetch_images() {
    let mut jl = protected();
    feed(&mut jl, JlInput::Gone { node: node("b"), reason: "power".to_owned() });
    let open = jl.open.as_ref().unwrap();
    assert_eq!(
        (open.phase.as_str(), open.progress(Now::default(), &jl.job).done),
        ("copy", Some((0, 1)))
    );
    // The same where all ranks start again.
    let mut jl = protected();
    jl.job.config.on_death = OnDeath::Restart;
    feed(&mut jl, JlInput::Gone { node: node("b"), reason: "power".to_owned() });
    let episode = jl.open.as_ref().unwrap().episode;
    for name in ["a", "s"] {
        let message = FromNla::Reset { episode };
        feed(&mut jl, JlInput::Nla(NlaMessage { node: node(name), message }));
    }
    let open = jl.open.as_ref().unwrap();
    assert_eq!(
        (open.phase.as_str(), open.progress(Now::default(), &jl.job).done),
        ("copy", Some((0, 1)))
    );
}

#[test]
fn a_job_whose_set_is_weak_is_stopped_less_and_less_often() {
    for (has_set, longest) in [(true, 600), (false, 60)] {
        let mut jl = protected();
        jl.job.start_on(&node("s"), &Ranks::from_iter([0]));
        if !has_set {
            jl.job.memory = None;
        }
        jl.expect_first(Now::default());
        let mut waits = Vec::new();
        for _ in 0..16 {
            let due_ns = jl.first_set_ns();
            jl.first_set_tick(Now { mono_ns: due_ns, wall_ns: 0 });
            waits.push((jl.first_set_ns() - due_ns) / 1_000_000_000);
        }
        assert_eq!((waits[0], waits.last().copied()), (2, Some(longest)), "{waits:?}");
    }
}

#[test]
fn after_a_set_that_lacked_nothing_the_next_loss_does_not_wait_for_the_old_pause() {
    let mut jl = protected();
    jl.job.start_on(&node("s"), &Ranks::from_iter([0]));
    let mut now = Now::default();
    jl.expect_first(now);
    for _ in 0..8 {
        now.mono_ns = jl.first_set_ns();
        jl.first_set_tick(now);
        jl.expect_protection(now);
    }
    assert!(jl.first_set_ns() - now.mono_ns > 60_000_000_000, "all attempts have failed");
    // That of the interval succeeds.
    let sizes = [(0, 80), (1, 80)].into();
    jl.job.memory = Some(jl.job.memory_set(&SetId::of_memory(Episode(3)), &sizes).unwrap());
    jl.expect_protection(now);
    assert_eq!(jl.first_set_ns(), u64::MAX);
    jl.job.nodes.get_mut(&node("s")).unwrap().lost = true;
    jl.expect_protection(now);
    assert_eq!(jl.first_set_ns() - now.mono_ns, 1_000_000_000);
}
