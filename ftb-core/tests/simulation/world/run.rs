//! From a setup and a script to a run that is checked, shortened when it fails, and shown.

use super::{Happening, Setup, World};
use crate::clients::Violation;
use crate::ops::{Op, Script};

/// Starts a cluster, lets it settle, gives it clients.
pub fn boot(setup: Setup, seed: u64) -> Result<World, Violation> {
    let mut world = World::new(setup, seed);
    for agent in 0..world.setup.agents {
        world.start(agent as usize)?;
        world.run_until(world.now_ns + world.setup.start_apart_ns)?;
    }
    world.run_ms(15_000)?;
    world.check_tree()?;
    let every = world.setup.clients_every;
    for agent in (0..world.setup.agents).step_by(every as usize) {
        world.add_publisher(agent as usize)?;
        let filters = world.setup.filters;
        let filter = filters[(agent / every) as usize % filters.len()];
        world.add_subscriber(agent as usize, filter)?;
        if world.setup.condition_readers {
            world.read_conditions(agent as usize, "condition=*")?;
        }
    }
    world.run_ms(1_000)?;
    Ok(world)
}

/// Runs a script on a cluster, ends all faults, and checks every promise.
pub fn run(setup: &Setup, seed: u64, script: &Script) -> Result<World, Violation> {
    let mut world = boot(setup.clone(), seed)?;
    let start = world.now_ns;
    for (at_us, op) in script {
        world.schedule(start + at_us * 1_000, Happening::Op(*op));
    }
    let end = script.iter().map(|(at, _)| *at).max().unwrap_or(0);
    world.run_until(start + end * 1_000 + 1)?;
    world.operate(Op::Heal)?;
    for agent in 0..world.setup.agents {
        world.operate(Op::Continue(agent))?;
        world.operate(Op::Hear(agent))?;
        world.operate(Op::FreeDisk(agent))?;
        world.operate(Op::ResumeDisk(agent))?;
        world.operate(Op::Start(agent))?;
    }
    world.run_ms(60_000)?;
    world.check_tree()?;
    // What is published now reaches all.
    world.operate(Op::Publish(3))?;
    world.run_ms(10_000)?;
    world.check_events()?;
    world.check_on_disk()?;
    if setup.conditions {
        world.check_converged()?;
    }
    world.count_all();
    if std::env::var_os("FTB_SIM_WITNESS").is_some() {
        println!("WITNESS {seed} {:?} {:?}", world.counted, world.role_changes);
        println!("ROWS {seed} {:?}", world.role_rows);
    }
    Ok(world)
}

/// Runs a script; a failure is shortened and shown.
pub fn must_hold(name: &str, setup: &Setup, seed: u64, script: &Script) -> World {
    let violation = match run(setup, seed, script) {
        Ok(world) => return world,
        Err(violation) => violation,
    };
    let short = crate::ops::shorten(script, |ops| {
        run(setup, seed, ops).err().is_some_and(|v| v.invariant == violation.invariant)
    });
    let last = run(setup, seed, &short).err().map_or(violation.what.clone(), |v| v.what);
    panic!(
        "{name}: {} is broken with seed {seed}: {last}\nby {} of {} operations:\n{}",
        violation.invariant,
        short.len(),
        script.len(),
        crate::ops::show(&short)
    );
}
