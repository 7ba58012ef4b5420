//! The table of the micro-benches: what divan prints, and what the routing of an event allocates
//! and how many instructions it takes.

use crate::report;
use crate::server::{beside_this, installed};
use crate::stats;
use anyhow::{Context as _, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The name of its section in the report.
pub(crate) const NAME: &str = "micro";
/// Routes events of the fixture, and counts allocations.
const ROUTE: &str = "ftb-route";
/// Batches that it routes: enough that what grows step by step hardly counts for one.
const BATCHES: u64 = 400;
/// Events in one of full size.
const BATCH: u64 = 256;
/// Events routed under callgrind, which is fifty times slower.
const COUNTED_EVENTS: u64 = 10_240;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Bench {
    /// Function and argument.
    name: String,
    fastest: String,
    median: String,
    /// Of the median, where the bench handles many events.
    event: Option<String>,
}

/// Reads what `cargo bench` printed, measures what it does not, and writes the table into the
/// report.
///
/// # Errors
/// The file is not there or is something else, or the report has no place for the table.
pub(crate) fn write(printed: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(printed)
        .with_context(|| format!("cannot read {}", printed.display()))?;
    let benches = parse(&text);
    if benches.is_empty() {
        bail!("{} is not what the micro-benches print", printed.display());
    }
    let table = format!("{}\n{}", table(&benches), routing()?);
    print!("{table}");
    report::write_section(to, NAME, &table)
}

fn table(benches: &[Bench]) -> String {
    let mut text = "| what | median | fastest | an event |\n|---|--:|--:|--:|\n".to_owned();
    for Bench { name, fastest, median, event } in benches {
        let event = event.as_deref().unwrap_or(report::NONE);
        let _ = writeln!(text, "| {name} | {median} | {fastest} | {event} |");
    }
    text
}

/// The lines of divan's tree. A bench is a line with times; one with a rate below it, without a
/// name, belongs to it; one without times is a function whose arguments follow.
fn parse(text: &str) -> Vec<Bench> {
    let mut benches: Vec<Bench> = Vec::new();
    let mut function = String::new();
    for line in text.lines() {
        let is_tree = |sign: char| " │├╰─".contains(sign);
        let depth = line.chars().take_while(|sign| is_tree(*sign)).count();
        let line = line.trim_start_matches(is_tree);
        let mut cells = line.split('│').map(str::trim);
        let (first, rest) = (cells.next().unwrap_or_default(), cells.collect::<Vec<_>>());
        // slowest, median, mean, samples, iterations.
        let [_, median, _, _, _] = rest[..] else { continue };
        let (name, fastest) = first.rsplit_once("  ").unwrap_or(("", first));
        let name = name.trim();
        if median == "median" {
            continue;
        }
        if median.contains("item/s") {
            let last = benches.last_mut().filter(|bench| bench.event.is_none());
            if let Some(bench) = last {
                bench.event = each(median);
            }
        } else if median.is_empty() {
            function = first.to_owned();
        } else if !name.is_empty() {
            // Only arguments lie deeper than functions.
            let name = match depth > FUNCTION_DEPTH {
                true => format!("{function}: {}", name.trim_matches('"')),
                false => name.to_owned(),
            };
            let (fastest, median) = (fastest.trim().to_owned(), median.to_owned());
            benches.push(Bench { name, fastest, median, event: None });
        }
    }
    benches
}

/// Signs of the tree before a function.
const FUNCTION_DEPTH: usize = 3;

/// What one takes at this rate per second, as divan writes it: `22.8 Mitem/s`.
fn each(rate: &str) -> Option<String> {
    let (number, unit) = rate.split_once(' ')?;
    let items = match unit.strip_suffix("item/s")? {
        "" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    let ns = 1e9 / (number.parse::<f64>().ok()? * items);
    Some(if ns < 10.0 { format!("{ns:.1} ns") } else { format!("{ns:.0} ns") })
}

/// Allocations and instructions for one event, from the publisher's batch to delivery and
/// confirmation.
fn routing() -> Result<String> {
    let mut text =
        "| routing of an event | allocations | instructions |\n|---|--:|--:|\n".to_owned();
    let counts_instructions = installed("valgrind").is_ok();
    for (what, others, batch) in [
        ("in a batch of 256", 0, BATCH),
        ("in a batch of 256, beside 1,000 subscriptions that do not match", 1000, BATCH),
        ("alone", 0, 1),
    ] {
        let allocations = allocations(others, batch)?;
        let instructions = match counts_instructions {
            true => stats::thousands(instructions(others, batch)?),
            false => report::NONE.to_owned(),
        };
        let _ = writeln!(text, "| {what} | {allocations:.3} | {instructions} |");
    }
    Ok(text)
}

fn route(command: &mut Command, batches: u64, others: u64, batch: u64) -> Result<String> {
    let output = command
        .args([batches, others, batch].map(|number| number.to_string()))
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{ROUTE}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn allocations(others: u64, batch: u64) -> Result<f64> {
    let said = route(&mut Command::new(beside_this(ROUTE)?), BATCHES, others, batch)?;
    // `102400 events routed, 5600 allocations: 0.055 for each`
    let each = said.rsplit_once(": ").and_then(|(_, rest)| rest.split(' ').next());
    each.and_then(|each| each.parse().ok()).with_context(|| format!("{ROUTE} says {said:?}"))
}

fn instructions(others: u64, batch: u64) -> Result<f64> {
    let dir = tempfile::Builder::new().prefix("ftb-bench.").tempdir()?;
    let out = dir.path().join("out");
    let mut command = Command::new(installed("valgrind")?);
    command.args(["--tool=callgrind", "--toggle-collect=*OneAgent*route*"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(beside_this(ROUTE)?);
    route(&mut command, COUNTED_EVENTS / batch, others, batch)?;
    let counts = fs::read_to_string(&out).context("callgrind has written nothing")?;
    let total = counts.lines().find_map(|line| line.strip_prefix("totals:"));
    let total = total.and_then(|total| total.trim().parse::<u64>().ok()).unwrap_or(0);
    ensure!(total > 0, "callgrind has seen no routing");
    Ok(total as f64 / COUNTED_EVENTS as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PRINTED: &str = "\
Timer precision: 21 ns
micro                          fastest  │ slowest  │ median   │ mean     │ samples │ iters
├─ encode                      8.1 µs   │ 20.2 µs  │ 8.3 µs   │ 8.5 µs   │ 100 │ 100
│                              31.6 Mitem/s │ 12.6 Mitem/s │ 30.84 Mitem/s │ 30.1 Mitem/s │    │
╰─ filter_match                         │          │          │          │    │
   ├─ event_space=ftb.*, jobid=7  11.2 ns │ 14 ns    │ 11.4 ns  │ 11.5 ns  │ 100 │ 25600
   ╰─ 16                       1.2 ns   │ 4 ns     │ 1.4 ns   │ 1.5 ns   │ 100 │ 25600
";

    #[test]
    fn times_rates_and_arguments_are_read() {
        let bench = |name: &str, fastest: &str, median: &str, event: Option<&str>| Bench {
            name: name.to_owned(),
            fastest: fastest.to_owned(),
            median: median.to_owned(),
            event: event.map(str::to_owned),
        };
        let expected = [
            bench("encode", "8.1 µs", "8.3 µs", Some("32 ns")),
            bench("filter_match: event_space=ftb.*, jobid=7", "11.2 ns", "11.4 ns", None),
            bench("filter_match: 16", "1.2 ns", "1.4 ns", None),
        ];
        assert_eq!(parse(PRINTED), expected);
        assert_eq!(parse("error: no such bench"), []);
    }

    #[test]
    fn a_rate_is_turned_into_a_time() {
        assert_eq!(each("2.5 Gitem/s").as_deref(), Some("0.4 ns"));
        assert_eq!(each("800 Kitem/s").as_deref(), Some("1250 ns"));
        assert_eq!(each("7 B/s"), None);
    }
}
