//! The cost of one migration for a solver: Jacobi's method on a plate, eight ranks on four nodes
//! with 64 MiB of state each, for about a minute; then the same number of steps again, in which the
//! two ranks of a node move to a spare. Prints both times; see docs/performance.md. `cargo bench -p
//! ftb-launcher --bench solver`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "report/mod.rs"]
mod report;
#[path = "../tests/site/mod.rs"]
mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_job::{Error, ImageError, Job, Op, Reader, State, Writer};
use ftb_tests::cluster::tied;
use site::{Site, run, start, text};
use std::ops::ControlFlow;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long the undisturbed run takes, in seconds.
const SECONDS: u64 = 60;
/// Largest allowed cost of a migration, as a share of that time.
const ALLOWED: f64 = 0.05;
/// State of one rank.
const STATE_BYTES: usize = 64 << 20;
const COLUMNS: usize = 1024;
const ROWS: usize = STATE_BYTES / 8 / COLUMNS;
/// This number of steps makes one sweep over the plate: ranks can be saved between two steps.
const BANDS: usize = 64;
const RANKS: &str = "8";

fn main() -> Result<()> {
    if std::env::var_os("FTB_RANK").is_some() {
        let number = |index| std::env::args().nth(index).and_then(|word| word.parse().ok());
        return Ok(solve(number(1).context("seconds")?, number(2).context("steps")?)?);
    }
    tokio::runtime::Runtime::new()?.block_on(compare())
}

async fn compare() -> Result<()> {
    let site = Site::without_examples(5).await?;
    let program = std::env::current_exe()?.display().to_string();
    let launch = |job: &str, seconds: u64, steps: u64| {
        let (seconds, steps) = (seconds.to_string(), steps.to_string());
        let nodes = ["--hosts", "node[01-04]", "--spares", "node05", "--job", job];
        let mut launch = tied(
            &site.launch(&[&["-n", RANKS], &nodes[..]].concat(), &[&program, &seconds, &steps]),
        );
        launch.stdin(Stdio::null());
        launch
    };
    let (steps, alone) = reported(&run(launch("alone", SECONDS, u64::MAX)).await?)?;
    let moved = start(launch("moved", u64::MAX, steps));
    site.wait_met("moved").await?;
    tokio::time::sleep(Duration::from_secs(SECONDS / 3)).await;
    let words = site.ask(&["migrate", "moved", "node02"]).await?;
    let (_, with) = reported(&moved.await??)?;
    let mib = STATE_BYTES >> 20;
    println!("{steps} steps: {alone:.2} s undisturbed, {with:.2} s with one migration ({words})");
    let mut table = report::Table::new("launcher solver");
    let seconds = |seconds: f64| vec![Duration::from_secs_f64(seconds)];
    table.times(&format!("{RANKS} ranks with {mib} MiB each, undisturbed"), seconds(alone), None);
    table.times("the same steps, and one node's two ranks move", seconds(with), None);
    table.share("what the migration costs", with / alone - 1.0, ALLOWED);
    table.write();
    Ok(())
}

/// The steps that a run has made, and its seconds.
fn reported(output: &std::process::Output) -> Result<(u64, f64)> {
    let said = text(&output.stdout);
    ensure!(output.status.success(), "{said}{}", text(&output.stderr));
    let line = said.lines().find_map(|line| line.strip_prefix("steps "));
    let (steps, seconds) = line.and_then(|line| line.split_once(' ')).context("no result")?;
    Ok((steps.parse()?, seconds.parse()?))
}

/// One rank's rows.
struct Plate {
    step: u64,
    cells: Vec<f64>,
}

impl State for Plate {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64("step", self.step)?;
        writer.f64s("cells", &self.cells)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        self.step = reader.u64("step")?;
        self.cells = reader.f64s("cells")?;
        Ok(())
    }
}

/// A rank: until rank 0 has worked for `seconds`, or all have made `steps`.
fn solve(seconds: u64, steps: u64) -> Result<(), Error> {
    let mut job = Job::init()?;
    let begin = Instant::now();
    let cells = (0..ROWS * COLUMNS).map(|cell| (cell % 97) as f64).collect();
    let mut plate = Plate { step: 0, cells };
    job.run(&mut plate, |job, plate| {
        // All must end in the same step.
        let mut over = [u64::from(job.rank() == 0 && begin.elapsed().as_secs() >= seconds)];
        job.allreduce(Op::Max, &mut over)?;
        if over[0] > 0 || plate.step >= steps {
            return Ok(ControlFlow::Break(()));
        }
        exchange(job, &mut plate.cells)?;
        sweep(&mut plate.cells, plate.step as usize % BANDS);
        plate.step += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    if job.rank() == 0 {
        println!("steps {} {}", plate.step, begin.elapsed().as_secs_f64());
    }
    job.finalize()
}

/// Neighbours get each other's outermost rows.
fn exchange(job: &mut Job, cells: &mut [f64]) -> Result<(), Error> {
    let (rank, size) = (job.rank(), job.size());
    let bytes = |row: &[f64]| row.iter().flat_map(|cell| cell.to_le_bytes()).collect::<Vec<_>>();
    let last = cells.len() - COLUMNS;
    if rank > 0 {
        job.send(rank - 1, 1, &bytes(&cells[..COLUMNS]))?;
    }
    if rank + 1 < size {
        job.send(rank + 1, 2, &bytes(&cells[last..]))?;
    }
    let fill = |row: &mut [f64], from: &[u8]| {
        for (cell, bytes) in row.iter_mut().zip(from.as_chunks().0) {
            *cell = f64::from_le_bytes(*bytes);
        }
    };
    if rank + 1 < size {
        fill(&mut cells[last..], &job.recv(rank + 1, 1)?);
    }
    if rank > 0 {
        fill(&mut cells[..COLUMNS], &job.recv(rank - 1, 2)?);
    }
    Ok(())
}

/// One band of the plate, in place.
fn sweep(cells: &mut [f64], band: usize) {
    let rows = ROWS / BANDS;
    for row in (band * rows).max(1)..((band + 1) * rows).min(ROWS - 1) {
        for cell in row * COLUMNS + 1..(row + 1) * COLUMNS - 1 {
            let around =
                cells[cell - 1] + cells[cell + 1] + cells[cell - COLUMNS] + cells[cell + COLUMNS];
            cells[cell] = 0.2 * (cells[cell] + around);
        }
    }
}
