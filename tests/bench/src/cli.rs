//! The command line.

use crate::case::{self, Case, Row};
use crate::heal;
use crate::load::Order;
use crate::run::{CaseRuns, Effort, run_case};
use crate::server::{System, agent};
use crate::wire::{plain, zenoh};
use crate::{machine, micro, report, worker};
use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::runtime::Builder;

/// Measures ftb beside NATS, Zenoh, Mosquitto and a plain relay, in one run on this machine.
///
/// Without options everything is measured (some eighteen minutes) and the tables and plots of the
/// report are written anew. Exit codes: 0 everything kept its promise; 1 a run failed, lost or
/// reordered something; 64 wrong usage.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// Only these cases; may be given more than once. See --list.
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Says what cases there are.
    #[arg(long)]
    list: bool,
    /// Only rows whose system or label contains this text, and those they are compared to.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The main cases, once and short: a look, not a measurement.
    #[arg(long)]
    quick: bool,
    /// Runs of each row.
    #[arg(long, value_name = "COUNT")]
    repetitions: Option<usize>,
    /// Milliseconds measured in each run.
    #[arg(long, value_name = "MS", default_value_t = 700)]
    measure_ms: u64,
    /// Also writes every run to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The report: its tables are replaced, missing ones are added.
    #[arg(long, value_name = "FILE", default_value = "target/bench.md")]
    report: PathBuf,
    /// Writes the tables of the chosen cases into the report even if they are not all or are quick.
    #[arg(long)]
    write: bool,
}

/// What else this program does; mostly what the bench starts from it as processes of their own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Writes what the micro-benches have printed into the report, with instructions and
    /// allocations of the routing beside it.
    Micro {
        /// What `cargo bench -p ftb-bench --bench micro` has printed.
        printed: PathBuf,
    },
    /// Drives one load: takes an order on standard input, answers on standard output.
    #[command(hide = true)]
    Worker,
    /// The plain relay.
    #[command(hide = true)]
    Relay {
        /// On loopback.
        port: u16,
    },
    /// A router of Zenoh.
    #[command(hide = true)]
    ZenohRouter {
        /// On loopback.
        port: u16,
    },
}

impl Arguments {
    /// Does what was asked.
    ///
    /// # Errors
    /// Wrong usage, or files that cannot be written. A failed run is no error here but an exit
    /// code.
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.part {
            Some(Part::Worker) => serve_order(),
            Some(Part::Micro { printed }) => {
                micro::write(&printed, &self.report)?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Part::Relay { port }) => {
                let runtime = Builder::new_multi_thread().enable_all().build()?;
                runtime.block_on(plain::relay(port))?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Part::ZenohRouter { port }) => {
                zenoh::route(port)?;
                Ok(ExitCode::SUCCESS)
            }
            None if self.list => {
                for case in case::all() {
                    println!("{:12}{}", case.name, case.title);
                }
                println!("{:12}{}", heal::NAME, heal::TITLE);
                Ok(ExitCode::SUCCESS)
            }
            None => self.bench(),
        }
    }

    fn bench(&self) -> Result<ExitCode> {
        let Some(cases) = self.chosen() else { return Ok(ExitCode::from(ftb_cli::USAGE)) };
        let ours = |row: &Row| matches!(row.system, System::Ftb(_));
        if (self.heals() || cases.iter().flat_map(|case| &case.rows).any(ours))
            && let Err(error) = agent()
        {
            eprintln!("ftb-bench: {error:#}");
            return Ok(ExitCode::from(ftb_cli::USAGE));
        }
        let effort = Effort {
            warm_up_ms: if self.quick { 200 } else { 300 },
            measure_ms: if self.quick { self.measure_ms / 2 } else { self.measure_ms },
            repetitions: self.repetitions.or(self.quick.then_some(1)),
        };
        let facts = machine::describe();
        let results: Vec<CaseRuns> = cases.into_iter().map(|case| run_case(case, effort)).collect();
        println!("{}", report::terminal(&facts, &results));
        let healed = match self.heals() {
            true => Some(heal::run(self.repetitions.unwrap_or(heal::RUNS))?),
            false => None,
        };
        if let Some(healed) = &healed {
            println!("## {}\n\n{}", heal::TITLE, heal::table(healed));
        }
        if let Some(file) = &self.json {
            let mut all = report::json(&facts, &results);
            all[heal::NAME] = healed.as_deref().map(heal::json).into();
            let text = serde_json::to_string_pretty(&all)?;
            std::fs::write(file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let whole = self.case.is_empty() && self.only.is_none() && !self.quick;
        if whole || self.write {
            report::write(&self.report, &facts, &results)?;
            if let Some(healed) = &healed {
                report::write_section(&self.report, heal::NAME, &heal::table(healed))?;
            }
        }
        let failed = results.iter().flat_map(|case| &case.rows).any(|row| !row.failures.is_empty())
            || healed.iter().flatten().any(|healed| !healed.is_good());
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Whether healing is measured too.
    fn heals(&self) -> bool {
        match self.case.is_empty() {
            true => !self.quick && self.only.is_none(),
            false => self.case.iter().any(|name| name == heal::NAME),
        }
    }

    /// The cases asked for; `None`, said on standard error, when one is not known.
    fn chosen(&self) -> Option<Vec<Case>> {
        let mut cases = case::all();
        for name in &self.case {
            if name != heal::NAME && !cases.iter().any(|case| case.name == name) {
                let known = cases.iter().map(|case| case.name).chain([heal::NAME]);
                let known: Vec<_> = known.collect();
                eprintln!(
                    "ftb-bench: there is no case {name:?}: it must be one of {}",
                    known.join(", ")
                );
                return None;
            }
        }
        match (self.case.is_empty(), self.quick) {
            (false, _) => cases.retain(|case| self.case.iter().any(|name| case.name == name)),
            (true, true) => cases.retain(|case| case.quick),
            (true, false) => {}
        }
        if let Some(text) = &self.only {
            cases.iter_mut().for_each(|case| case.keep_only(text));
            cases.retain(|case| !case.rows.is_empty());
        }
        leave_out_unbuilt(&mut cases);
        Some(cases)
    }
}

/// Leaves out what `make bench` could not build, and says so.
fn leave_out_unbuilt(cases: &mut [Case]) {
    let unbuilt = |row: &Row| row.system == System::Zenoh;
    if zenoh::library().is_some() || !cases.iter().flat_map(|case| &case.rows).any(unbuilt) {
        return;
    }
    eprintln!(
        "ftb-bench: without Zenoh, which was not built: `make bench` does, from tests/bench/zenoh"
    );
    cases.iter_mut().for_each(|case| case.keep(|row| !unbuilt(row)));
}

/// The longest order that makes sense, in bytes.
const ORDER_BYTES_MAX: u64 = 1 << 20;

fn serve_order() -> Result<ExitCode> {
    let mut text = String::new();
    std::io::stdin().take(ORDER_BYTES_MAX).read_to_string(&mut text)?;
    let order: Order = serde_json::from_str(&text).context("this is for the bench to start")?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    // As a task of the runtime, as in a daemon: from outside of it each message would wake a thread
    // more, with every system.
    let work = runtime.spawn(worker::work(order));
    let outcome = runtime.block_on(work)?;
    // Connections of a failed run must not hold the process up.
    runtime.shutdown_background();
    println!("{}", serde_json::to_string(&outcome?)?);
    Ok(ExitCode::SUCCESS)
}
