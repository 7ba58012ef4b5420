//! A small program for the launcher's own tests: the ranks add up numbers in step and print what
//! came out. Any lost, doubled or stale step changes the sum.
//!
//! `count ITERATIONS PAUSE_US [GATE]`, started by `ftb-launch run`. With a gate the ranks stay in
//! the middle, at work but without progress, until a file of that name is there: a test has all the
//! time it needs.

use ftb_job::{Error, ImageError, Job, Op, Reader, State, Writer};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

struct Count {
    iteration: u64,
    sum: u64,
}

impl State for Count {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64("iteration", self.iteration)?;
        writer.u64("sum", self.sum)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        self.iteration = reader.u64("iteration")?;
        self.sum = reader.u64("sum")?;
        println!("goes on at {}", self.iteration);
        Ok(())
    }
}

fn main() -> ExitCode {
    let number = |index, default| {
        let argument = std::env::args().nth(index);
        argument.map_or(Some(default), |text: String| text.parse().ok())
    };
    let (Some(iterations), Some(pause_us)) = (number(1, 1000), number(2, 0)) else {
        eprintln!("usage: count ITERATIONS PAUSE_US [GATE]");
        return ExitCode::from(2);
    };
    let gate = std::env::args_os().nth(3).map(PathBuf::from);
    match count(iterations, pause_us, gate.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("count: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count(iterations: u64, pause_us: u64, gate: Option<&Path>) -> Result<(), Error> {
    let mut job = Job::init()?;
    let mut state = Count { iteration: 0, sum: u64::from(job.rank()) };
    job.run(&mut state, |job, state| {
        if state.iteration == iterations {
            return Ok(ControlFlow::Break(()));
        }
        if state.iteration == iterations / 2 && !is_open(job, gate)? {
            // In step with all ranks, without progress.
            std::thread::sleep(Duration::from_millis(2));
            return Ok(ControlFlow::Continue(()));
        }
        // Each step depends on all ranks' steps before it.
        let mut step = [state.sum.rotate_left(7) ^ state.iteration];
        job.allreduce(Op::Sum, &mut step)?;
        state.sum = state.sum.wrapping_mul(31).wrapping_add(step[0]);
        state.iteration += 1;
        std::thread::sleep(Duration::from_micros(pause_us));
        Ok(ControlFlow::Continue(()))
    })?;
    let mut result = [state.sum];
    job.allreduce(Op::Sum, &mut result)?;
    if job.rank() == 0 {
        println!("result {:016x}", result[0]);
    }
    job.finalize()
}

/// Whether any rank sees the gate: all ranks get the same answer.
fn is_open(job: &mut Job, gate: Option<&Path>) -> Result<bool, Error> {
    let mut open = [u64::from(gate.is_none_or(Path::exists))];
    job.allreduce(Op::Max, &mut open)?;
    Ok(open[0] == 1)
}
