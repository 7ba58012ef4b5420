//! A token goes round all ranks; each adds to it. The last line is the result: it shows whether any
//! message was lost, doubled or taken twice.
//!
//! ```text
//! ftb-launch run -n 4 ... -- ring --laps 1000
//! ```
//! Exit codes: 0 ok, 1 failed, 64 bad input, 65 an image that must not be restored.

use clap::Parser;
use ftb_job::{ImageError, Job, Reader, Result, State, Writer};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Passes a token round all ranks of a job.
#[derive(Parser)]
struct Options {
    /// How often round
    #[arg(long, default_value_t = 100)]
    laps: u64,
    /// Pause before each rank passes the token on, in microseconds
    #[arg(long, default_value_t = 0)]
    sleep_us: u64,
    /// A progress line every N laps; 0: none
    #[arg(long, default_value_t = 0)]
    report: u64,
}

/// What each rank must keep: the token as it left it.
#[derive(Default)]
struct Ring {
    lap: u64,
    token: u64,
}

const TAG: u32 = 1;

fn main() -> ExitCode {
    match run(&ftb_cli::parse::<Options>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ring: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut job = Job::init()?;
    let mut ring = Ring::default();
    job.run(&mut ring, |job, ring| {
        if ring.lap == options.laps {
            return Ok(ControlFlow::Break(()));
        }
        // A lap is between two safe points of every rank: its token is nowhere when the next one
        // begins.
        ring.run_lap(job, options)?;
        Ok(ControlFlow::Continue(()))
    })?;
    if job.rank() == 0 {
        println!("result: ranks {} laps {} token {:016x}", job.size(), ring.lap, ring.token);
    }
    job.finalize()
}

impl Ring {
    fn run_lap(&mut self, job: &mut Job, options: &Options) -> Result<()> {
        let (rank, size) = (job.rank(), job.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        if rank == 0 {
            self.pass_on(job, right, options)?;
        }
        self.token = take(&job.recv(left, TAG)?);
        if rank != 0 {
            self.pass_on(job, right, options)?;
        }
        self.lap += 1;
        if rank == 0 && options.report > 0 && self.lap.is_multiple_of(options.report) {
            println!("ring: lap {}/{} token {:016x}", self.lap, options.laps, self.token);
        }
        Ok(())
    }

    fn pass_on(&mut self, job: &mut Job, right: u32, options: &Options) -> Result<()> {
        // The order of the ranks shows in the token.
        self.token = self.token.wrapping_mul(0x0100_0000_01b3) ^ u64::from(job.rank() + 1);
        thread::sleep(Duration::from_micros(options.sleep_us));
        job.send(right, TAG, &self.token.to_le_bytes())
    }
}

/// The neighbour runs this same program: its tokens have eight bytes.
fn take(message: &[u8]) -> u64 {
    message.iter().rev().fold(0, |token, byte| token << 8 | u64::from(*byte))
}

impl State for Ring {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64s("ring", &[self.lap, self.token])
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        let [lap, token] = reader.u64s("ring")?[..] else {
            return Err(reader.refuse("lap and token were expected"));
        };
        (self.lap, self.token) = (lap, token);
        println!("ring: goes on behind lap {lap}");
        Ok(())
    }
}
