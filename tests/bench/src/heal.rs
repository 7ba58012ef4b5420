//! How long a subscriber below a lost agent hears nothing, and what it loses: nothing.
//!
//! Real agents with the default detection times, seven in a binary tree, a thousand events a
//! second. Each run breaks a fresh cluster once, waits until everything flows again, mends it, and
//! keeps book of every event at every subscriber.

use anyhow::{Context as _, Result};
use ftb_client::now_ns;
use ftb_tests::cluster::{Cluster, Plan};
use ftb_tests::load::{Faults, Load, LoadPlan, Quiet};
use ftb_tests::netns::{Net, Way, impossible};
use ftb_tests::reported::Reported;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use tokio::runtime::Builder;

/// What it is called on the command line and in the report.
pub(crate) const NAME: &str = "heal";
/// What it shows.
pub(crate) const TITLE: &str = "How long a subscriber below a lost agent hears nothing";
/// Runs of each scenario by default.
pub(crate) const RUNS: usize = 8;
/// Agents of a cluster: 0; 1, 2 below it; 3, 4 below 1; 5, 6 below 2.
const AGENTS: usize = 7;
/// Events of each of the four publishers in a second.
const PER_S: u32 = 250;
/// Events of each publisher that pass before and after each change.
const PASSING: u64 = 50;

/// What is done to which agent.
struct Scenario {
    name: &'static str,
    /// What the original does then, measured in the same way.
    original: &'static str,
    rank: usize,
    what: What,
    /// Whose subscribers are below it.
    below: &'static [usize],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Kill,
    Stop,
    Cut,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "kill -9 of the parent of two leaves (it is the standby)",
        original: "8–17 ms to a new link, 1–10 events lost; 13 of 147 runs never recovered",
        rank: 1,
        what: What::Kill,
        below: &[3, 4],
    },
    Scenario {
        name: "kill -9 of the root",
        original: "3–4 events lost; 18 of 30 runs a silent partition for good",
        rank: 0,
        what: What::Kill,
        below: &[3, 4, 5, 6],
    },
    Scenario {
        name: "SIGSTOP of the parent of two leaves",
        original: "never noticed: events as late as the stop is long",
        rank: 1,
        what: What::Stop,
        below: &[3, 4],
    },
    Scenario {
        name: "the parent's host is cut off",
        original: "never noticed",
        rank: 1,
        what: What::Cut,
        below: &[3, 4],
    },
    Scenario {
        name: "the root's host is cut off",
        original: "never noticed",
        rank: 0,
        what: What::Cut,
        below: &[3, 4, 5, 6],
    },
];

/// All runs of one scenario.
pub(crate) struct Healed {
    name: &'static str,
    original: &'static str,
    /// The longest silence that a subscriber below heard, in each run and at each of them, in
    /// milliseconds, rising.
    silence_ms: Vec<f64>,
    /// From publication to delivery, the longest, likewise.
    latest_ms: Vec<f64>,
    /// From the cut to `FTB_NODE_DEAD`, likewise.
    dead_ms: Vec<f64>,
    faults: Faults,
    runs: usize,
    /// Why other runs do not count.
    failures: Vec<String>,
}

impl Healed {
    /// Whether every run kept every promise.
    pub(crate) fn is_good(&self) -> bool {
        self.failures.is_empty() && self.faults.is_none()
    }
}

/// Runs all scenarios this number of times, and reports progress on standard error.
///
/// # Errors
/// There is no runtime.
pub(crate) fn run(runs: usize) -> Result<Vec<Healed>> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let no_hosts = impossible();
    let mut all = Vec::new();
    for scenario in &SCENARIOS {
        if let (What::Cut, Some(why)) = (scenario.what, &no_hosts) {
            eprintln!("heal: {}: skipped, {why}", scenario.name);
            continue;
        }
        let mut healed = Healed {
            name: scenario.name,
            original: scenario.original,
            silence_ms: Vec::new(),
            latest_ms: Vec::new(),
            dead_ms: Vec::new(),
            faults: Faults::default(),
            runs: 0,
            failures: Vec::new(),
        };
        for number in 1..=runs {
            eprintln!("heal: {} {number}/{runs}", scenario.name);
            match runtime.block_on(once(scenario)) {
                Ok(outcome) => healed.add(outcome),
                Err(error) => healed.failures.push(format!("{error:#}")),
            }
        }
        for numbers in [&mut healed.silence_ms, &mut healed.latest_ms, &mut healed.dead_ms] {
            numbers.sort_by(f64::total_cmp);
        }
        all.push(healed);
    }
    Ok(all)
}

struct HealOutcome {
    quiet: Vec<Quiet>,
    dead_after: Option<Duration>,
    faults: Faults,
}

impl Healed {
    fn add(&mut self, outcome: HealOutcome) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        self.silence_ms.extend(outcome.quiet.iter().map(|quiet| ms(quiet.silence)));
        self.latest_ms.extend(outcome.quiet.iter().map(|quiet| ms(quiet.latest)));
        self.dead_ms.extend(outcome.dead_after.map(ms));
        self.faults = self.faults.and(outcome.faults);
        self.runs += 1;
    }
}

async fn once(scenario: &Scenario) -> Result<HealOutcome> {
    let mut net = match scenario.what {
        What::Cut => Some(Net::new(AGENTS)?),
        _ => None,
    };
    let plan = Plan::new(AGENTS, 2).extra("");
    let plan = if let Some(net) = &net { plan.on(net) } else { plan };
    let mut cluster = plan.start().await?;
    cluster.wait_wanted().await?;
    let reported = Reported::listen(cluster.socket(6)).await?;
    let socket = |rank: usize| cluster.socket(rank).to_owned();
    let load = Load::start(LoadPlan {
        publishers: [3, 4, 5, 6].map(socket).to_vec(),
        per_s: PER_S,
        subscribers: scenario.below.iter().copied().map(socket).collect(),
    })
    .await?;
    let all = |_| true;
    load.wait_flow(PASSING, all, all).await?;
    load.readers().iter().for_each(ftb_tests::load::Reader::listen_closely);
    let broken_ns = now_ns();
    match (scenario.what, &mut net) {
        (What::Kill, _) => cluster.crash(scenario.rank)?,
        (What::Stop, _) => cluster.signal(scenario.rank, Signal::SIGSTOP)?,
        (What::Cut, net) => {
            net.as_mut().context("hosts that can be cut off")?.isolate(scenario.rank, Way::Both)?;
        }
    }
    load.wait_flow(PASSING, all, all).await?;
    let quiet = load.readers().iter().map(ftb_tests::load::Reader::quiet).collect();
    let dead_after = match scenario.what {
        What::Cut => {
            let dead = reported.wait("FTB_NODE_DEAD", cluster.host(scenario.rank)).await?;
            Some(Duration::from_nanos(dead.time_ns.saturating_sub(broken_ns)))
        }
        _ => None,
    };
    mend(scenario, &mut cluster, net.as_mut()).await?;
    load.wait_flow(PASSING, all, all).await?;
    let faults = load.finish().await?.all_faults();
    Ok(HealOutcome { quiet, dead_after, faults })
}

async fn mend(scenario: &Scenario, cluster: &mut Cluster, net: Option<&mut Net>) -> Result<()> {
    match scenario.what {
        What::Kill => cluster.run(scenario.rank)?,
        What::Stop => cluster.signal(scenario.rank, Signal::SIGCONT)?,
        What::Cut => net.context("hosts that can be cut off")?.heal()?,
    }
    cluster.wait_wanted().await
}

/// The number that a part (0 to 1) of them does not exceed.
fn quantile(rising: &[f64], part: f64) -> Option<f64> {
    let place = (part * rising.len() as f64).ceil().max(1.0) as usize;
    rising.get(place - 1).copied()
}

/// p50, p99 and the largest, in milliseconds.
fn spread(rising: &[f64]) -> String {
    let number = |part| quantile(rising, part).map_or("–".to_owned(), |ms| format!("{ms:.0}"));
    match rising.is_empty() {
        true => "–".to_owned(),
        false => format!("{} / {} / {}", number(0.5), number(0.99), number(1.0)),
    }
}

/// The table of the report.
pub(crate) fn table(all: &[Healed]) -> String {
    let mut text =
        "| what is lost | silence at a subscriber below, ms: p50 / p99 / max | latest event, ms \
                    | host called dead, ms | lost | twice | runs | CIFTS FTB 0.6.2 |\n\
                    |---|--:|--:|--:|--:|--:|--:|---|\n"
            .to_owned();
    for healed in all {
        let Healed { name, original, silence_ms, latest_ms, dead_ms, faults, .. } = healed;
        let failed = match healed.failures.first() {
            Some(why) => {
                let why = why.replace(['|', '\n'], " ");
                format!(" ({} failed: {why:.200})", healed.failures.len())
            }
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {}{failed} | {original} |",
            spread(silence_ms),
            spread(latest_ms),
            spread(dead_ms),
            faults.lost,
            faults.doubled,
            healed.runs,
        );
    }
    text
}

/// Run by run.
pub(crate) fn json(all: &[Healed]) -> Value {
    let row = |healed: &Healed| {
        json!({
            "name": healed.name,
            "silence_ms": healed.silence_ms,
            "latest_ms": healed.latest_ms,
            "dead_ms": healed.dead_ms,
            "lost": healed.faults.lost,
            "doubled": healed.faults.doubled,
            "disordered": healed.faults.disordered,
            "gaps": healed.faults.gaps,
            "failures": healed.failures,
        })
    };
    all.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_in_three_numbers() {
        let rising: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(spread(&rising), "100 / 198 / 200");
        assert_eq!(spread(&[7.0]), "7 / 7 / 7");
        assert_eq!(spread(&[]), "–");
    }
}
