//! How long the ranks of a node are away when their pod moves, by the size of what they hold: an
//! unmodified MPI program (`tests/stencil.c`) of two ranks in two pods on this host, one of which
//! moves from node to node. Prints the phases, how long the rank that stayed has stood still, and
//! the time line of the move in the middle; see docs/performance.md. `cargo bench -p ftb-launcher
//! --bench migration [MIB...]`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "report/mod.rs"]
mod report;
#[path = "../tests/site/mod.rs"]
mod site;

use anyhow::{Context as _, Result, ensure};
use core::time::Duration;
use ftb_tests::cluster::tied;
use site::fixture::{Fixture, results};
use site::{Site, start, text};
use std::process::Stdio;
use std::time::SystemTime;

/// Moves of each size; the median is reported with the best and the worst.
const MOVES: usize = 5;
/// Between two of them.
const BETWEEN: Duration = Duration::from_secs(3);
/// How long the others may stand still, up to this much memory a rank, in MiB.
const ALLOWED: Duration = Duration::from_secs(1);
const ALLOWED_MIB: usize = 64;
/// Columns of the plate; two of a rank's rows are this many times sixteen bytes.
const COLUMNS: usize = 2048;

fn main() -> Result<()> {
    let all = [1, 16, 64, 256].map(|mib: usize| mib.to_string());
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|word| word.parse::<usize>().is_ok()).collect();
    let (sizes, whole) = if asked.is_empty() { (all.to_vec(), true) } else { (asked, false) };
    let mut table = report::Table::new("launcher migration");
    tokio::runtime::Runtime::new()?.block_on(async {
        for mib in sizes {
            moves(mib.parse()?, &mut table).await?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    if whole {
        table.write();
    }
    Ok(())
}

async fn moves(mib: usize, table: &mut report::Table) -> Result<()> {
    let site = Site::without_examples(2 + MOVES).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    let mut words = stencil.words();
    let (rows, columns) = ((mib << 20) / (16 * COLUMNS), COLUMNS.to_string());
    let rows = rows.max(1).to_string();
    words[1..4].copy_from_slice(&["8", &rows, &columns]);
    let job = format!("moves-{mib}");
    let all = ["-n", "2", "--backend", &stencil.backend, "--job", &job];
    let spares = format!("node[03-{:02}]", 2 + MOVES);
    let nodes = ["--hosts", "node[01-02]", "--spares", &spares];
    let mut launch = site.launch(&[&all[..], &nodes].concat(), &words);
    launch.env("FTB_LOG", "warn,ftb::timeline=debug").env("FTB_LOG_FORMAT", "json");
    let mut launch = tied(&launch);
    launch.stdin(Stdio::null());
    let running = start(launch);
    site.wait_met(&job).await?;
    for node in 2..2 + MOVES {
        site.ask(&["migrate", &job, site.cluster.host(node - 1)]).await?;
        // The ranks get on with their step before the next one.
        tokio::time::sleep(BETWEEN).await;
    }
    site.release()?;
    let output = running.await??;
    results(&output)?;
    let reported = text(&output.stderr);
    let phases: Vec<[u64; 3]> = reported.lines().filter_map(phases).collect();
    ensure!(phases.len() == MOVES, "{reported}");
    for (at, phase) in ["leave", "copy", "restart"].into_iter().enumerate() {
        let times = phases.iter().map(|move_| Duration::from_millis(move_[at])).collect();
        table.times(&format!("{mib} MiB a rank: {phase}"), times, None);
    }
    let mut stood: Vec<Stood> = text(&output.stdout).lines().filter_map(Stood::read).collect();
    stood.sort_by_key(|stood| stood.us);
    let middle = stood.get(stood.len() / 2).context("no rank stood still")?;
    let pauses = stood.iter().map(|stood| Duration::from_micros(stood.us)).collect();
    let allowed = (mib <= ALLOWED_MIB).then_some(ALLOWED);
    table.times(&format!("{mib} MiB a rank: the other rank stands still"), pauses, allowed);
    time_line(&reported, middle);
    Ok(())
}

/// `... moved from ... [leave=136 copy=24 restart=137]`; a phase that there was not took no time.
fn phases(line: &str) -> Option<[u64; 3]> {
    let (words, phases) = line.split_once(" [")?;
    let of = |name: &str| {
        let mut pairs = phases.trim_end_matches(']').split(' ').filter_map(|p| p.split_once('='));
        pairs.find(|(phase, _)| *phase == name).map_or(Some(0), |(_, ms)| ms.parse().ok())
    };
    let found = [of("leave")?, of("copy")?, of("restart")?];
    words.contains("moved from").then_some(found)
}

/// A step of the rank that stayed, in microseconds since 1970.
struct Stood {
    end: u64,
    us: u64,
}

impl Stood {
    /// `stood END US`
    fn read(line: &str) -> Option<Self> {
        let (end, us) = line.strip_prefix("stood ")?.split_once(' ')?;
        Some(Self { end: end.parse().ok()?, us: us.parse().ok()? })
    }
}

/// The steps while the rank stood still.
fn time_line(log: &str, stood: &Stood) {
    let begin = stood.end - stood.us;
    let mut steps: Vec<(u64, u64, String)> = log.lines().filter_map(step).collect();
    steps.retain(|(end, us, _)| *end > begin && end - us < stood.end);
    steps.sort_by_key(|(end, us, _)| end - us);
    let ms = |us: u64| us as f64 / 1000.0;
    for (end, us, words) in steps {
        let at = ms(end - us) - ms(begin);
        println!("  {at:8.1} ms {:8.1} ms  {words}", ms(us));
    }
    println!("  {:8.1} ms              the other rank goes on", ms(stood.us));
}

/// The end and the length of a step, in microseconds, and its words: a line of the log.
fn step(line: &str) -> Option<(u64, u64, String)> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let time = humantime::parse_rfc3339(line["timestamp"].as_str()?).ok()?;
    let end = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_micros();
    let words = format!("{}: {}", line["who"].as_str()?, line["message"].as_str()?);
    Some((u64::try_from(end).ok()?, line["us"].as_u64()?, words))
}
