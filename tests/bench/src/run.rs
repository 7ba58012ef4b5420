//! Runs the cases: every repetition goes once through all rows, so that whatever else happens on
//! the machine hits all systems alike.

use crate::case::{Case, Row};
use crate::load::{Mode, Order, Outcome};
use crate::process::tied;
use crate::server::Running;
use crate::stats::Summary;
use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Messages in flight at full speed.
const WINDOW: u64 = 8192;
/// Bytes in flight at full speed, for large messages.
const WINDOW_BYTES: usize = 2 << 20;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Before measuring, in milliseconds.
    pub(crate) warm_up_ms: u64,
    /// Measured, in milliseconds.
    pub(crate) measure_ms: u64,
    /// In place of what the cases say.
    pub(crate) repetitions: Option<usize>,
}

/// All runs of one row.
#[derive(Clone, Debug)]
pub(crate) struct RowRuns {
    /// What was run.
    pub(crate) row: Row,
    /// The runs that kept every promise.
    pub(crate) outcomes: Vec<Outcome>,
    /// Why other runs do not count.
    pub(crate) failures: Vec<String>,
}

impl RowRuns {
    /// Median and spread of one number over the good runs.
    pub(crate) fn summary(&self, number: impl Fn(&Outcome) -> f64) -> Option<Summary> {
        Summary::of(self.outcomes.iter().map(number))
    }

    /// NaN without a good run.
    pub(crate) fn median(&self, number: impl Fn(&Outcome) -> f64) -> f64 {
        self.summary(number).map_or(f64::NAN, |summary| summary.median)
    }

    /// The name of the system in tables.
    pub(crate) fn name(&self) -> String {
        self.row.system.name()
    }
}

/// All runs of one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseRuns {
    /// What was run.
    pub(crate) case: Case,
    /// Row by row.
    pub(crate) rows: Vec<RowRuns>,
}

/// Runs one case and reports progress on standard error. A run that fails is part of the result.
pub(crate) fn run_case(case: Case, effort: Effort) -> CaseRuns {
    let blank = |row: &Row| RowRuns { row: row.clone(), outcomes: vec![], failures: vec![] };
    let mut rows: Vec<RowRuns> = case.rows.iter().map(blank).collect();
    let repetitions = effort.repetitions.unwrap_or(case.repetitions);
    let effort = Effort {
        warm_up_ms: effort.warm_up_ms * case.length_percent.min(100) / 100,
        measure_ms: effort.measure_ms * case.length_percent / 100,
        ..effort
    };
    for repetition in 1..=repetitions {
        for runs in &mut rows {
            let what = format!("{} ({})", runs.row.system.name().replace("**", ""), runs.row.label);
            match run_row(&runs.row, effort) {
                Ok(outcome) => {
                    let said = describe(&runs.row, &outcome);
                    eprintln!("{} {repetition}/{repetitions}: {what}: {said}", case.name);
                    runs.outcomes.push(outcome);
                }
                Err(error) => {
                    eprintln!("{} {repetition}/{repetitions}: {what}: {error:#}", case.name);
                    runs.failures.push(format!("{error:#}"));
                }
            }
        }
    }
    CaseRuns { case, rows }
}

fn describe(row: &Row, outcome: &Outcome) -> String {
    match row.load.mode {
        Mode::Full | Mode::Acknowledged => format!(
            "{:.0}/s, {:.3} us of server CPU and {:.3} us of client CPU each",
            outcome.deliveries_per_s(),
            outcome.server_us_per_delivery(),
            outcome.own_us_per_delivery()
        ),
        Mode::Paced(_) | Mode::PingPong | Mode::Resubscribe => format!(
            "p50 {:.0} us, p99 {:.0} us",
            outcome.latency.p50_ns as f64 / 1e3,
            outcome.latency.p99_ns as f64 / 1e3
        ),
        Mode::Idle => format!("{} KiB resident", outcome.servers.rss_kib),
    }
}

fn run_row(row: &Row, effort: Effort) -> Result<Outcome> {
    let running = Running::start(row.system, &row.load)?;
    let largest = (WINDOW_BYTES / row.load.size.max(1)) as u64;
    let order = Order {
        endpoint: running.endpoint(),
        load: row.load.clone(),
        window: WINDOW.min(largest).max(1),
        warm_up_ms: effort.warm_up_ms,
        measure_ms: effort.measure_ms,
        servers: running.measured(),
    };
    let outcome =
        run_worker(&order).with_context(|| format!("server: {}", running.last_words()))?;
    if !outcome.faults.is_clean() {
        let faults = outcome.faults;
        bail!(
            "of {} messages {} were missing, {} out of order, {} foreign",
            outcome.published,
            faults.missing,
            faults.disordered,
            faults.foreign
        );
    }
    Ok(outcome)
}

/// Carries an order out in a process of its own.
fn run_worker(order: &Order) -> Result<Outcome> {
    let mut child = tied(Command::new(std::env::current_exe()?).arg("worker"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a load process without input")?;
    input.write_all(&serde_json::to_vec(order)?)?;
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("the load failed: {}", words.trim_end().lines().last().unwrap_or("in silence"));
    }
    serde_json::from_slice(&output.stdout).context("the load process answered nonsense")
}
