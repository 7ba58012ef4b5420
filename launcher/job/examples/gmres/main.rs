//! GMRES(m), restarted: a sparse non-symmetric system, its rows divided among the ranks. Each cycle
//! of m steps is a step of the job, so the only state is the solution.
//!
//! When ranks die, the others take over their rows in the same processes (`--on-death shrink`), or
//! other processes take their place. The last line is the result: residual and error. Runs with the
//! same number of ranks in each cycle have the same bits; others add in another order, and their
//! residuals differ by less than `TOLERANCE` of the residual.
//!
//! ```text
//! ftb-launch run -n 8 --memory buddy:1 --on-death shrink ... -- gmres --grid 48 --cycles 40
//! ```
//! Exit codes: 0 ok, 1 failed, 64 bad input, 65 an image that must not be restored.

mod solver;
mod system;

use clap::Parser;
use ftb_job::{Job, Result};
use solver::Solver;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use system::Rows;

/// Solves a convection-diffusion equation on a square, divided among the ranks of a job.
#[derive(Parser)]
struct Options {
    /// Points of the grid in each direction
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(2..=4096))]
    grid: u32,
    /// Cycles of GMRES
    #[arg(long, default_value_t = 40)]
    cycles: u64,
    /// Steps of a cycle
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=200))]
    restart: u32,
    /// Pause after each cycle, in milliseconds, to make a run longer
    #[arg(long, default_value_t = 0)]
    sleep_ms: u64,
    /// Begin the last cycle when this file exists
    #[arg(long)]
    gate: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = ftb_cli::parse::<Options>();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gmres: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut job = Job::init()?;
    if job.size() > options.grid {
        eprintln!("gmres: {} ranks, and {} rows of points: --grid", job.size(), options.grid);
        job.abort(2);
    }
    let rows = Rows::of(options.grid as usize, job.rank(), job.size());
    let mut solver = Solver::new(rows, options.restart as usize);
    job.run(&mut solver, |job, solver| {
        if solver.cycle() >= options.cycles {
            return Ok(ControlFlow::Break(()));
        }
        let is_closed = options.gate.as_ref().is_some_and(|gate| !gate.exists());
        // All ranks do the same: the first one looks.
        let mut waits = [u64::from(job.rank() == 0 && is_closed)];
        job.allreduce(ftb_job::Op::Max, &mut waits)?;
        if waits[0] == 0 || solver.cycle() + 1 < options.cycles {
            solver.improve(job)?;
            report(job, options, solver);
        }
        thread::sleep(Duration::from_millis(options.sleep_ms));
        Ok(ControlFlow::Continue(()))
    })?;
    let (residual, error) = solver.quality(&mut job)?;
    if job.rank() == 0 {
        println!(
            "result: ranks {} cycles {} residual {residual:.12e} ({:016x}) error {error:.6e}",
            job.size(),
            solver.cycle(),
            residual.to_bits()
        );
    }
    job.finalize()
}

fn report(job: &Job, options: &Options, solver: &Solver) {
    if job.rank() == 0 {
        println!(
            "gmres: cycle {}/{} of {} ranks, residual {:.6e}",
            solver.cycle(),
            options.cycles,
            job.size(),
            solver.residual()
        );
    }
}
