//! A 3-D Poisson solver, as the Himeno benchmark is one: Jacobi steps with a 19-point stencil on a
//! grid that is divided among the ranks, each step with an exchange of faces and a reduction.
//!
//! The last line is the result. The field is the same to the bit for every number of ranks,
//! wherever they are and however often they were checkpointed or moved; the residual, a sum, is the
//! same for every run with the same number of ranks.
//!
//! ```text
//! ftb-launch run -n 4 ... -- poisson --grid 96 --iterations 500
//! ```
//! Exit codes: 0 ok, 1 failed, 64 bad input, 65 an image that must not be restored.

mod domain;
mod solver;

use clap::Parser;
use domain::{Axis, Domain};
use ftb_job::{Job, Result};
use solver::Solver;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Solves a Poisson equation on a cube, divided among the ranks of a job.
#[derive(Parser)]
struct Options {
    /// Points of the grid in each direction
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=2048))]
    grid: u32,
    /// Jacobi steps
    #[arg(long, default_value_t = 200)]
    iterations: u64,
    /// A progress line every N steps; 0: none
    #[arg(long, default_value_t = 50)]
    report: u64,
    /// Bytes of state beside the field, in MiB per rank, to make images larger
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=65_536))]
    state_mb: u32,
    /// Pause after each step, in microseconds, to make a run longer
    #[arg(long, default_value_t = 0)]
    sleep_us: u64,
}

fn main() -> ExitCode {
    let options = ftb_cli::parse::<Options>();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("poisson: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut job = Job::init()?;
    if !domain::is_divisible(options.grid, job.size()) {
        let (grid, size) = (options.grid, job.size());
        eprintln!("poisson: a grid of {grid}^3 points is too small for {size} ranks: --grid");
        job.abort(2);
    }
    let domain = Domain::new(job.rank(), job.size(), options.grid);
    let mut solver = Solver::new(domain, options.state_mb);
    let started = Instant::now();
    job.run(&mut solver, |job, solver| {
        if solver.iteration() == options.iterations {
            return Ok(ControlFlow::Break(()));
        }
        solver.step(job)?;
        report(job, options, solver, started);
        thread::sleep(Duration::from_micros(options.sleep_us));
        Ok(ControlFlow::Continue(()))
    })?;
    let field = solver.field_hash(&mut job)?;
    if job.rank() == 0 {
        let [x, y, z] = domain::divide(job.size());
        let (iterations, residual) = (solver.iteration(), solver.residual());
        println!("poisson: {} ranks as {x}x{y}x{z}, grid {}^3", job.size(), options.grid);
        println!(
            "result: iterations {iterations} residual {residual:.6e} ({:016x}) field {field:016x}",
            residual.to_bits()
        );
    }
    job.finalize()
}

fn report(job: &Job, options: &Options, solver: &Solver, started: Instant) {
    let iteration = solver.iteration();
    if job.rank() == 0 && options.report > 0 && iteration.is_multiple_of(options.report) {
        println!(
            "poisson: iteration {iteration}/{} residual {:.6e} after {:.2} s",
            options.iterations,
            solver.residual(),
            started.elapsed().as_secs_f64()
        );
    }
}
