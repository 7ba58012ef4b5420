//! The launcher dies after each of its outputs, and another takes the job over from the state on
//! disk. Cancelled requests. Simulated, in virtual time.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod sim;

use core::time::Duration;
use ftb_launcher_core::jl::{Initiator, JlConfig, JlInput, NO_NODES, OnDeath, Request};
use ftb_launcher_core::manner::Manner;
use ftb_launcher_core::message::Placement;
use ftb_launcher_core::names::FaultId;
use sim::happens::{Faults, Happens};
use sim::world::{World, node};
use sim::{COMMAND, CRIU, HOUR_MS, checkpoint, config, migrate, moved, usable, with};

/// How much longer a job may take when its launcher dies: until it is replaced, and a phase of
/// which an answer was lost.
const LONGER_MS: u64 = 20_000;

/// Dies after each of its steps in turn: what the job comes to is the same.
fn replaced_at_each_step(name: &str, config: &JlConfig, plan: impl Fn(&mut World)) {
    for world in replaced(name, config, plan) {
        assert!(!world.has_reported("restarts from"), "{name}: {:#?}", world.reported);
    }
}

/// The same; returns what happened.
fn replaced(name: &str, config: &JlConfig, plan: impl Fn(&mut World)) -> Vec<World> {
    let mut worlds = Vec::new();
    let run = |dies_after: Option<u64>| {
        let mut world = World::new(3, config.clone(), Faults::default());
        plan(&mut world);
        world.work = 1000;
        world.dies_after = dies_after;
        let code = world.run(HOUR_MS);
        (world, code)
    };
    let (calm, code) = run(None);
    assert_eq!(code, 0, "{name}: {:#?}", calm.reported);
    assert!(calm.steps > 30, "{name}: only {} steps", calm.steps);
    for step in 0..calm.steps {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(Some(step))));
        let (world, code) = ran.unwrap_or_else(|_| panic!("{name}: killed after step {step}"));
        let why = || format!("{name}, killed after step {step}: {:#?}", world.reported);
        assert!(world.dies_after.is_none(), "it has not come so far: {}", why());
        assert_eq!(code, 0, "{}", why());
        assert_eq!(world.torn.len(), calm.torn.len(), "{}", why());
        assert!(world.now_ms < calm.now_ms + LONGER_MS, "{} ms: {}", world.now_ms, why());
        // Open work is finished, not given up.
        assert_eq!(placed(&world), placed(&calm), "{}", why());
        worlds.push(world);
    }
    worlds
}

fn placed(world: &World) -> Placement {
    world.jl.as_ref().expect("it has ended the job").job().placement()
}

fn saves_and_moves(world: &mut World) {
    world.at(400, checkpoint());
    world.at(1000, migrate("node01"));
    world.at(1800, usable("node01"));
    world.at(2300, migrate("node00"));
}

/// Its release and its end are published once.
#[test]
fn pods_join_their_bridge_after_a_checkpoint_on_disks_in_which_the_launcher_dies() {
    let config = with(CRIU, config(4, 1, 0));
    let run = |dies_after: Option<u64>| {
        let mut world = World::new(3, config.clone(), Faults::default());
        (world.work, world.dies_after) = (3000, dies_after);
        let reason = "the test".to_owned();
        world.at(1000, Happens::Request(Request::DiskCheckpoint { reason }));
        world
    };
    let mut calm = run(None);
    calm.run_until(900);
    let from = calm.steps;
    calm.run_until_closed("checkpoint");
    assert!(calm.steps - from > 5, "{} steps", calm.steps - from);
    for step in from..calm.steps + 3 {
        let mut world = run(Some(step));
        world.run_until(12_000);
        let why = || format!("killed after step {step}: {:#?}", world.reported);
        assert!(world.dies_after.is_none() && world.exit.is_none(), "{}", why());
        assert!(world.cut.is_empty(), "{:?} are off their bridge: {}", world.cut, why());
    }
}

#[test]
fn a_launcher_that_dies_at_any_step_is_replaced() {
    let config = with(Manner::default(), config(2, 2, 1));
    replaced_at_each_step("app", &config, saves_and_moves);
}

#[test]
fn a_launcher_that_dies_at_any_step_is_replaced_where_agents_move_ranks() {
    replaced_at_each_step("criu", &with(CRIU, config(2, 2, 1)), saves_and_moves);
}

#[test]
fn a_launcher_that_dies_at_any_step_is_replaced_where_the_job_starts_elsewhere() {
    let plan = |world: &mut World| world.at(600, migrate("node01"));
    replaced_at_each_step("command", &with(COMMAND, config(2, 2, 1)), plan);
}

/// Phase I is cancelled, and the source takes its ranks back: the ways back are finished too.
#[test]
fn a_launcher_that_dies_at_any_step_of_a_way_back_is_replaced() {
    let plan = |world: &mut World| {
        world.faults.copy = 100;
        world.at(500, migrate("node01"));
    };
    replaced_at_each_step("back", &config(2, 2, 1), plan);
    let plan = |world: &mut World| {
        world.faults.image = 100;
        world.at(500, migrate("node01"));
    };
    replaced_at_each_step("abort", &config(2, 2, 1), plan);
}

#[test]
fn a_launcher_that_dies_at_any_step_of_a_recovery_is_replaced() {
    let plan = |world: &mut World| {
        world.at(500, checkpoint());
        world.at(1500, Happens::KillRank(3));
        // In the middle of it: a further round.
        world.at(1560, Happens::KillRank(0));
    };
    replaced_at_each_step("rollback", &config(3, 2, 1), plan);
}

/// Also the launcher that decides to recover is replaced before it can save that.
#[test]
fn a_launcher_that_dies_while_its_disk_is_full_is_replaced_and_the_job_recovers_later() {
    const ROOM_MS: u64 = 4000;
    let plan = |world: &mut World| {
        world.at(500, checkpoint());
        world.at(1400, Happens::Full(true));
        world.at(1500, Happens::KillRank(3));
        world.at(1560, Happens::KillRank(0));
        world.at(ROOM_MS, Happens::Full(false));
    };
    replaced_at_each_step("full", &config(3, 2, 1), plan);
    let mut world = World::new(3, config(3, 2, 1), Faults::default());
    plan(&mut world);
    world.work = 1000;
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert!(world.has_reported("the recovery waits until the state can be saved"));
    let back = world.reported.iter().find(|line| line.contains("the job goes back to set"));
    let at_ms = back.and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(0);
    assert!(at_ms >= ROOM_MS, "{:#?}", world.reported);
}

/// A job that waits for a node: `adds`: one is added, else the lost one returns.
fn waits(name: &str, config: &JlConfig, adds: bool) {
    let wait_for_nodes = Duration::from_secs(600);
    let config = JlConfig { wait_for_nodes, on_death: OnDeath::Rollback, ..config.clone() };
    let plan = |world: &mut World| {
        world.at(600, checkpoint());
        world.at(1500, Happens::Down(node("node01")));
        match adds {
            true => world.at(30_000, Happens::Add(vec![node("more00")])),
            false => world.at(50_000, Happens::Up(node("node01"))),
        }
    };
    for world in replaced(name, &config, plan) {
        let why = || format!("{name}: {:#?}", world.reported);
        assert!(world.has_reported("the job waits up to"), "{}", why());
        let host = if adds { "more00" } else { "node01" };
        assert!(placed(&world).contains_key(&node(host)), "{}", why());
    }
}

#[test]
fn a_launcher_that_dies_while_its_job_waits_for_a_node_is_replaced_and_waits_on() {
    for adds in [true, false] {
        waits("app", &config(2, 2, 0), adds);
        waits("criu", &with(CRIU, config(2, 2, 0)), adds);
    }
}

/// Added while nothing is wrong: the launcher dies at each step of it, and the node is a spare.
#[test]
fn a_launcher_that_dies_while_a_node_is_added_is_replaced_and_adds_it() {
    let plan = |world: &mut World| {
        world.at(500, Happens::Add(vec![node("more00")]));
        world.at(7000, migrate("node01"));
    };
    replaced_at_each_step("add", &config(2, 2, 0), plan);
}

/// The time is up, also for a launcher that has taken the job over.
#[test]
fn a_job_that_waits_too_long_ends_in_time_with_a_code_of_its_own() {
    let wait_for_nodes = Duration::from_secs(600);
    let run = |dies: bool| {
        let config = JlConfig { wait_for_nodes, ..config(2, 2, 0) };
        let mut world = World::new(5, config, Faults::default());
        world.work = 1000;
        world.at(500, checkpoint());
        world.at(1500, Happens::Down(node("node01")));
        if dies {
            world.at(100_000, Happens::KillJl);
            world.at(200_000, Happens::ReviveJl);
        }
        (world.run(HOUR_MS), world)
    };
    for dies in [false, true] {
        let (code, world) = run(dies);
        assert_eq!(code, NO_NODES, "{:#?}", world.reported);
        assert!(world.has_reported("no node became usable within 10m"), "{:#?}", world.reported);
        let ended = (600_000..640_000).contains(&world.now_ms);
        assert!(ended, "{} ms: {:#?}", world.now_ms, world.reported);
    }
}

fn wanted(fault: u64, want: Request) -> Happens {
    let by = Initiator::Fault(FaultId(fault));
    Happens::ToJl(Box::new(JlInput::Request { want, by }))
}

/// Two nodes were to move for their heat, one after the other; meanwhile it is the whole room.
#[test]
fn what_waits_is_called_off_when_it_is_the_whole_room() {
    let mut world = World::new(1, config(4, 1, 2), Faults::default());
    for (fault, name) in [(1, "node01"), (2, "node02")] {
        let reason = "overheating".to_owned();
        world.at(500, wanted(fault, Request::Migrate { node: node(name), reason, fails_ns: None }));
    }
    let faults = [FaultId(1), FaultId(2)].into();
    let reason = "cooling has failed".to_owned();
    world.at(530, Happens::ToJl(Box::new(JlInput::Cancel { faults, reason: reason.clone() })));
    world.at(530, wanted(3, Request::Checkpoint { reason }));
    // It comes too late.
    let reason = "overheating".to_owned();
    world.at(540, wanted(2, Request::Migrate { node: node("node02"), reason, fails_ns: None }));
    assert_eq!(world.run(HOUR_MS), 0, "{:#?}", world.reported);
    assert_eq!(moved(&world), 1, "the one under way: {:#?}", world.reported);
    assert!(
        world.has_reported("the migration from node02 is cancelled (fault 2)"),
        "{:#?}",
        world.reported
    );
    assert!(world.closed.contains(&("checkpoint".to_owned(), true)), "{:#?}", world.closed);
}
