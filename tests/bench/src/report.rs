//! Turns runs into tables, plots, and JSON, and writes them into the report between its markers.

use crate::case::Shows;
use crate::load::Outcome;
use crate::run::{CaseRuns, RowRuns};
use crate::stats::Summary;
use crate::stats::thousands;
use crate::svg::{self, Bar};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

mod targets;

/// Facts about the machine, as (name, value).
type Facts = [(&'static str, String)];

/// The heads of the columns in the middle of a table, and what fills them.
type Columns = (&'static [&'static str], fn(&RowRuns) -> Vec<String>);

/// What stands in a cell that has no number.
pub(crate) const NONE: &str = "–";

/// The number that a case is about: what plots show and ratios compare.
fn headline(shows: Shows) -> fn(&Outcome) -> f64 {
    match shows {
        Shows::Rate => Outcome::deliveries_per_s,
        Shows::Latency => |outcome| outcome.latency.p99_ns as f64 / 1e3,
        Shows::Rest => Outcome::server_sleeps_per_s,
        Shows::Memory => |outcome| outcome.servers.rss_kib as f64,
    }
}

/// Everything as text for a terminal; it is Markdown too.
pub(crate) fn terminal(facts: &Facts, results: &[CaseRuns]) -> String {
    let mut text = machine_table(facts, results);
    for case in results {
        let _ = write!(text, "\n## {}\n\n{}", case.case.title, table(case));
    }
    let _ = write!(text, "\n## Targets\n\n{}", targets::table(results));
    text
}

/// Everything, run by run.
pub(crate) fn json(facts: &Facts, results: &[CaseRuns]) -> Value {
    let row = |runs: &RowRuns| {
        json!({
            "system": runs.name().replace("**", ""),
            "label": runs.row.label,
            "load": runs.row.load,
            "runs": runs.outcomes,
            "failures": runs.failures,
        })
    };
    let case = |runs: &CaseRuns| {
        json!({
            "case": runs.case.name,
            "title": runs.case.title,
            "rows": runs.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    let machine: serde_json::Map<String, Value> =
        facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({ "machine": machine, "cases": results.iter().map(case).collect::<Vec<_>>() })
}

/// Writes tables and plots of these results into the report; others in it stay. A report that does
/// not exist is created.
///
/// # Errors
/// The report cannot be read or written.
pub(crate) fn write(file: &Path, facts: &Facts, results: &[CaseRuns]) -> Result<()> {
    let mut text = read(file)?;
    if !results.is_empty() {
        text = replace(&text, "machine", &machine_table(facts, results));
    }
    if let Some(verdict) = targets::whole_table(results) {
        text = replace(&text, "targets", &verdict);
    }
    let plots = file.with_extension("");
    fs::create_dir_all(&plots)?;
    let folder = plots.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    for case in results {
        let mut section = table(case);
        if let Some(plot) = plot(case) {
            let name = format!("{}.svg", case.case.name);
            fs::write(plots.join(&name), plot)?;
            let _ = write!(section, "\n![{}]({folder}/{name})\n", case.case.title);
        }
        text = replace(&text, case.case.name, &section);
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Writes one section of the report.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_section(file: &Path, name: &str, section: &str) -> Result<()> {
    fs::write(file, replace(&read(file)?, name, section))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn read(file: &Path) -> Result<String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.with_context(|| format!("cannot read the report {}", file.display())),
    }
}

/// Puts a new text between the two markers of that name; without markers, at the end.
fn replace(text: &str, name: &str, new: &str) -> String {
    let begin = format!("<!-- bench: {name} -->\n");
    let end = format!("<!-- end: {name} -->");
    let split = text.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let (before, after) = split.unwrap_or((text, "\n"));
    format!("{before}{begin}{new}{end}{after}")
}

fn machine_table(facts: &Facts, results: &[CaseRuns]) -> String {
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (name, value) in facts {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    let outcomes = results.iter().flat_map(|case| &case.rows).flat_map(|runs| &runs.outcomes);
    if let Some(other) = Summary::of(outcomes.map(Outcome::other_cores)) {
        let (median, max) = (other.median, other.max);
        let _ = writeln!(
            text,
            "| cores busy with other work | {median:.2} in the median run, {max:.2} at most |"
        );
    }
    text
}

fn table(case: &CaseRuns) -> String {
    let (head, cells): Columns = match case.case.shows {
        Shows::Rate => (
            &["deliveries/s", "±", "server CPU, µs each", "client CPU, µs each", "resident, MiB"],
            rate_cells,
        ),
        Shows::Latency => (
            &[
                "p50, µs",
                "p95, µs",
                "p99, µs",
                "± of p99",
                "server CPU, µs each",
                "server CPU, % of a core",
            ],
            latency_cells,
        ),
        Shows::Rest => (&["CPU, % of a core", "wake-ups/s", "resident, MiB"], rest_cells),
        Shows::Memory => (&["resident, MiB", "peak, MiB"], memory_cells),
    };
    let compared = if case.case.shows == Shows::Memory { "for each, KiB" } else { "compared" };
    let mut text = format!("| system | case | {} | {compared} |\n|---|---|", head.join(" | "));
    text.push_str(&"--:|".repeat(head.len() + 1));
    text.push('\n');
    for runs in &case.rows {
        let cells = if runs.outcomes.is_empty() {
            let reason = runs.failures.first().map_or(NONE, String::as_str);
            let mut cells = vec![String::new(); head.len()];
            cells[0] = format!("failed: {}", reason.replace('|', "/"));
            cells
        } else {
            cells(runs)
        };
        let _ = writeln!(
            text,
            "| {} | {}{} | {} | {} |",
            runs.name(),
            runs.row.label,
            failed_runs(runs),
            cells.join(" | "),
            compared_cell(case, runs)
        );
    }
    text
}

/// Says so when only a part of the runs counts.
fn failed_runs(runs: &RowRuns) -> String {
    if runs.failures.is_empty() || runs.outcomes.is_empty() {
        return String::new();
    }
    let all = runs.failures.len() + runs.outcomes.len();
    format!(" ({} of {all} runs failed)", runs.failures.len())
}

fn rate_cells(runs: &RowRuns) -> Vec<String> {
    let rate = runs.summary(Outcome::deliveries_per_s).unwrap_or_default();
    vec![
        thousands(rate.median),
        format!("{:.0} %", rate.spread() * 100.0),
        format!("{:.3}", runs.median(Outcome::server_us_per_delivery)),
        format!("{:.3}", runs.median(Outcome::own_us_per_delivery)),
        mebibytes(runs.median(|outcome| outcome.servers.rss_kib as f64)),
    ]
}

fn latency_cells(runs: &RowRuns) -> Vec<String> {
    let p99 = runs.summary(|outcome| outcome.latency.p99_ns as f64 / 1e3).unwrap_or_default();
    vec![
        format!("{:.0}", runs.median(|outcome| outcome.latency.p50_ns as f64 / 1e3)),
        format!("{:.0}", runs.median(|outcome| outcome.latency.p95_ns as f64 / 1e3)),
        format!("{:.0}", p99.median),
        format!("{:.0} %", p99.spread() * 100.0),
        format!("{:.1}", runs.median(Outcome::server_us_per_delivery)),
        format!("{:.1}", runs.median(Outcome::server_cores) * 100.0),
    ]
}

fn rest_cells(runs: &RowRuns) -> Vec<String> {
    vec![
        format!("{:.3}", runs.median(Outcome::server_cores) * 100.0),
        format!("{:.1}", runs.median(Outcome::server_sleeps_per_s)),
        mebibytes(runs.median(|outcome| outcome.servers.rss_kib as f64)),
    ]
}

fn memory_cells(runs: &RowRuns) -> Vec<String> {
    vec![
        mebibytes(runs.median(|outcome| outcome.servers.rss_kib as f64)),
        mebibytes(runs.median(|outcome| outcome.servers.rss_peak_kib as f64)),
    ]
}

/// The ratio to the row that this one is compared to; for memory the difference, for each.
fn compared_cell(case: &CaseRuns, runs: &RowRuns) -> String {
    let Some(other) = runs.row.against.and_then(|against| case.rows.get(against)) else {
        return NONE.to_owned();
    };
    let number = headline(case.case.shows);
    let (mine, theirs) = (runs.median(number), other.median(number));
    if let Some((count, what)) = runs.row.units {
        let each = (mine - theirs) / count as f64;
        return if each.is_finite() { format!("{each:.2} a {what}") } else { NONE.to_owned() };
    }
    if std::ptr::eq(other, runs) || !(mine / theirs).is_finite() {
        return NONE.to_owned();
    }
    let whose = if other.row.system == runs.row.system { &other.row.label } else { &other.name() };
    format!("{:.2} × {}", mine / theirs, whose.replace("**", ""))
}

/// Bars for the number that the case is about; `None` where a plot says nothing.
fn plot(case: &CaseRuns) -> Option<String> {
    let unit = match case.case.shows {
        Shows::Rate => "deliveries/s",
        Shows::Latency => "p99, µs",
        Shows::Rest | Shows::Memory => return None,
    };
    let bars: Vec<Bar> = case
        .rows
        .iter()
        .filter_map(|runs| {
            let name = runs.name();
            Some(Bar {
                label: format!("{}, {}", name.replace("**", ""), runs.row.label),
                ours: name.contains("**"),
                value: runs.summary(headline(case.case.shows))?,
            })
        })
        .collect();
    (!bars.is_empty()).then(|| svg::bars(case.case.title, unit, &bars))
}

fn mebibytes(kib: f64) -> String {
    format!("{:.1}", kib / 1024.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_keeps_its_other_sections_and_gains_missing_ones() {
        let text = "a\n<!-- bench: x -->\nold\n<!-- end: x -->\nb\n";
        let new = replace(text, "x", "new\n");
        assert_eq!(new, "a\n<!-- bench: x -->\nnew\n<!-- end: x -->\nb\n");
        assert_eq!(replace(&new, "x", "new\n"), new);
        let longer = replace(&new, "y", "more\n");
        assert_eq!(longer, format!("{new}<!-- bench: y -->\nmore\n<!-- end: y -->\n"));
        assert_eq!(replace(&longer, "y", "more\n"), longer);
    }

    #[test]
    fn numbers_get_commas() {
        for (number, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1234.4, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }
}
