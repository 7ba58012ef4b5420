//! FMI with ranks as threads, real sockets and real images: communicators, posted receives, a loop
//! that ignores failures, and ranks that die.
#![allow(clippy::unwrap_used)]

mod harness;

use ftb_job::fmi::{Combine, Fmi, FmiError, Grid, Primitive};
use ftb_job::{Error, Job, Notice, Result, StartState};
use harness::chain::two_nodes;
use harness::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const STEPS: u64 = 40;

/// What the loop protects.
#[derive(Debug, Default, PartialEq)]
#[repr(C)]
struct Protected {
    step: u64,
    sum: u64,
}

/// A program that stays in its middle until `enough`, and whose rank `dies - 1` dies there.
#[derive(Clone, Default)]
struct Program {
    enough: Arc<AtomicBool>,
    dies: Arc<AtomicU32>,
}

fn job_error(error: FmiError) -> Error {
    match error {
        FmiError::Job(error) => error,
        other => panic!("{other}"),
    }
}

impl Program {
    fn run(&self, job: Job) -> Result<Ended<(u64, u64)>> {
        let (rank, node) = (job.rank(), job.size() / 2);
        let mut fmi = Fmi::new(job).map_err(job_error)?;
        let mut start = if rank == 0 { vec![7] } else { Vec::new() };
        fmi.broadcast(Fmi::WORLD, 0, &mut start).map_err(job_error)?;
        let all = fmi.duplicate(Fmi::WORLD).map_err(job_error)?;
        poll(&mut fmi, all).map_err(job_error)?;
        let half = fmi.split(all, Some(rank / node), -(rank as i32)).map_err(job_error)?.unwrap();
        let mut state = Protected { step: 0, sum: start[0].into() };
        while state.step < STEPS {
            let memory = [((&raw mut state).cast(), size_of::<Protected>())];
            // SAFETY: it is the memory of `state`, which is not in use meanwhile.
            #[expect(unsafe_code, reason = "memory of this test")]
            unsafe { fmi.pass(&memory) }.map_err(job_error)?;
            if self.dies.load(Ordering::Relaxed) == rank + 1 {
                return Ok(Ended::MovedAway);
            }
            // From here on failures are ignored: only the loop ends a recovery.
            let waits = u8::from(state.step == STEPS / 2 && !self.enough.load(Ordering::Relaxed));
            let mut waits = [waits];
            let _ = fmi.allreduce(all, Combine::Max, Primitive::U8, &mut waits);
            if waits == [0] {
                let came = exchange(&mut fmi, half, state.sum).unwrap_or(99);
                state.sum = state.sum.wrapping_mul(31).wrapping_add(came);
                state.step += 1;
            }
            let _ = fmi.duplicate(half).and_then(|made| fmi.free(made));
        }
        let rest = fmi.gather(all, 0, &state.sum.to_le_bytes()).map_err(job_error)?;
        assert_eq!(rest.len() as u32, if rank == 0 { fmi.size(all).unwrap() } else { 0 });
        fmi.finalize().map_err(job_error)?;
        Ok(Ended::Finished((state.step, state.sum)))
    }
}

/// The second of two receives is ready first, and the first one only after a while.
fn poll(fmi: &mut Fmi, all: u16) -> Result<(), FmiError> {
    let (place, size) = (fmi.rank(all)?, fmi.size(all)?);
    let (next, last) = ((place + 1) % size, (place + size - 1) % size);
    let first = fmi.post(all, Some(last), Some(1))?;
    let second = fmi.post(all, Some(last), Some(2))?;
    assert!(!fmi.is_ready(first)?);
    fmi.send(all, next, 2, &[2])?;
    assert_eq!(fmi.wait_ready(&[first, second])?, 1);
    assert_eq!(fmi.wait(second)?.payload, [2]);
    assert!(!fmi.is_ready(first)?);
    let mut sum = [1];
    fmi.allreduce(all, Combine::Max, Primitive::U8, &mut sum)?;
    fmi.send(all, next, 1, &[1])?;
    while !fmi.is_ready(first)? {
        std::thread::yield_now();
    }
    assert_eq!(fmi.wait(first)?.payload, [1]);
    Ok(())
}

/// Two numbers around a ring, waited for in the other order.
fn exchange(fmi: &mut Fmi, half: u16, sum: u64) -> Result<u64, FmiError> {
    let (place, size) = (fmi.rank(half)?, fmi.size(half)?);
    let (next, last) = ((place + 1) % size, (place + size - 1) % size);
    let first = fmi.post(half, Some(last), None)?;
    let second = fmi.post(half, None, Some(2))?;
    fmi.send(half, next, 5, &sum.to_le_bytes())?;
    fmi.send(half, next, 2, &(sum % 7).to_le_bytes())?;
    let (later, earlier) = (fmi.wait(second)?, fmi.wait(first)?);
    assert_eq!((earlier.tag, later.tag, later.from), (5, 2, last));
    let number = |payload: Vec<u8>| u64::from_le_bytes(payload.try_into().unwrap());
    Ok(number(earlier.payload).wrapping_mul(3).wrapping_add(number(later.payload)) % 1_000_003)
}

fn undisturbed() -> Vec<(u64, u64)> {
    let program = Program::default();
    program.enough.store(true, Ordering::Relaxed);
    finish_all(Harness::new(4).spawn_all(two_nodes, move |job| program.run(job)))
}

/// The second to die is the root of all reductions.
#[test]
fn survivors_that_ignore_failures_and_replacements_come_to_the_same_bits() {
    let expected = undisturbed();
    let harness = Harness { remedied: true, ..Harness::new(4) };
    let program = Program::default();
    let own = program.clone();
    let mut running = harness.spawn_all(two_nodes, move |job| own.run(job));
    harness.bus.request(&checkpoint(1, "s1"), 4, is_done);
    for (episode, dead) in [(5, 2), (6, 0)] {
        let of_episode = |notice: &Notice| notice.episode() == Some(episode);
        program.dies.store(dead + 1, Ordering::Relaxed);
        let dead_rank = running.remove(dead as usize);
        assert!(matches!(dead_rank.join().unwrap().unwrap(), Ended::MovedAway));
        program.dies.store(0, Ordering::Relaxed);
        let node = two_nodes(dead);
        let config = harness.config(dead, &node, episode, Some(harness.set_dir(&node, "s1")));
        let own = program.clone();
        running.insert(dead as usize, harness.spawn(config, move |job| own.run(job)));
        let request = rollback(episode, "s1", &[dead]);
        harness.bus.request(&request, 4, |notice| is_resumed(notice) && of_episode(notice));
    }
    program.enough.store(true, Ordering::Relaxed);
    assert_eq!(finish_all(running), expected);
}

/// No call but that of the loop shows them the death.
#[test]
fn survivors_in_their_loop_begin_at_their_point_again() {
    let harness = Harness { remedied: true, ..Harness::new(3) };
    let shared = Program::default();
    let Program { enough, dies } = shared.clone();
    let program = move |job: Job| {
        let rank = job.rank();
        let mut fmi = Fmi::new(job).map_err(job_error)?;
        let mut starts = vec![fmi.restart_point()];
        while !enough.load(Ordering::Relaxed) {
            // SAFETY: there is no memory.
            #[expect(unsafe_code, reason = "an unsafe function")]
            let passed = unsafe { fmi.pass(&[]) };
            match passed {
                Err(FmiError::RolledBack) => starts.push(fmi.restart_point()),
                passed => drop(passed.map_err(job_error)?),
            }
            if dies.load(Ordering::Relaxed) == rank + 1 {
                return Ok(Ended::MovedAway);
            }
            std::thread::yield_now();
        }
        fmi.finalize().map_err(job_error)?;
        Ok(Ended::Finished(starts))
    };
    let mut running = harness.spawn_all(two_nodes, program.clone());
    harness.bus.request(&checkpoint(1, "s1"), 3, is_done);
    shared.dies.store(2, Ordering::Relaxed);
    assert!(matches!(running.remove(1).join().unwrap().unwrap(), Ended::MovedAway));
    shared.dies.store(0, Ordering::Relaxed);
    let node = two_nodes(1);
    let config = harness.config(1, &node, 5, Some(harness.set_dir(&node, "s1")));
    running.insert(1, harness.spawn(config, program));
    harness.bus.request(&rollback(5, "s1", &[1]), 3, |notice| {
        is_resumed(notice) && notice.episode() == Some(5)
    });
    shared.enough.store(true, Ordering::Relaxed);
    let lived = vec![StartState::New, StartState::Restarted];
    assert_eq!(finish_all(running), [lived.clone(), vec![StartState::Added], lived]);
}

#[test]
fn ranks_of_a_grid_find_their_neighbours_and_others_are_not_in_it() {
    let program = |job: Job| {
        let mut fmi = Fmi::new(job).map_err(job_error)?;
        assert_eq!(fmi.restart_point(), StartState::New);
        let rank = fmi.rank(Fmi::WORLD).unwrap();
        let too_large = Grid { dims: vec![(3, false), (2, false)] };
        assert!(matches!(fmi.lay_out(Fmi::WORLD, too_large), Err(FmiError::Invalid(_))));
        let grid = Grid { dims: vec![(2, false), (2, true)] };
        let made = fmi.lay_out(Fmi::WORLD, grid).map_err(job_error)?;
        let mut seen = None;
        if let Some(made) = made {
            let (from, to) = fmi.grid(made).unwrap().shift(rank, 0, 1);
            if let Some(to) = to {
                fmi.send(made, to, 0, &[rank as u8]).map_err(job_error)?;
            }
            if let Some(from) = from {
                seen = Some(fmi.recv(made, Some(from), Some(0)).map_err(job_error)?.payload);
            }
            let copy = fmi.duplicate(made).map_err(job_error)?;
            assert!(fmi.grid(copy).is_ok() && fmi.grid(Fmi::WORLD).is_err());
        }
        fmi.finalize().map_err(job_error)?;
        Ok(Ended::Finished((made.is_some(), seen)))
    };
    let ended = finish_all(Harness::new(5).spawn_all(two_nodes, program));
    let expected =
        [(true, None), (true, None), (true, Some(vec![0])), (true, Some(vec![1])), (false, None)];
    assert_eq!(ended, expected);
}

#[test]
fn operations_within_a_communicator_concern_its_members_alone() {
    let program = |job: Job| {
        let mut fmi = Fmi::new(job).map_err(job_error)?;
        let rank = fmi.rank(Fmi::WORLD).unwrap();
        let color = (rank != 4).then_some(rank % 2);
        let made = fmi.split(Fmi::WORLD, color, 0).map_err(job_error)?;
        let mut sum = f64::from(rank).to_le_bytes();
        let mut all = Vec::new();
        if let Some(made) = made {
            fmi.allreduce(made, Combine::Sum, Primitive::F64, &mut sum).map_err(job_error)?;
            all = fmi.allgather(made, &[rank as u8]).map_err(job_error)?.concat();
            fmi.barrier(made).map_err(job_error)?;
        }
        let mut product = 2_i32.to_le_bytes();
        let how = (Combine::Product, Primitive::I32);
        let here = fmi.reduce(Fmi::WORLD, 3, how, &mut product).map_err(job_error)?;
        assert_eq!(here.then_some(i32::from_le_bytes(product)), (rank == 3).then_some(64));
        fmi.finalize().map_err(job_error)?;
        Ok(Ended::Finished((f64::from_le_bytes(sum), all)))
    };
    let ended = finish_all(Harness::new(6).spawn_all(two_nodes, program));
    let even = (2.0, vec![0, 2]);
    let odd = (9.0, vec![1, 3, 5]);
    let expected = [&even, &odd, &even, &odd, &(4.0, vec![]), &odd].map(Clone::clone);
    assert_eq!(ended, expected);
}
