//! The output of the launcher's benches: lines to read, and a table for a report.
//!
//! The table goes between the lines `<!-- bench: NAME -->` and `<!-- end: NAME -->` of the file
//! that the environment variable `FTB_BENCH_REPORT` names; without it there are only the lines.

#![allow(unreachable_pub, dead_code)]

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// The file with the tables.
const REPORT: &str = "FTB_BENCH_REPORT";

/// The rows of one bench.
pub struct Table {
    name: &'static str,
    rows: Vec<String>,
}

impl Table {
    pub fn new(name: &'static str) -> Self {
        Self { name, rows: Vec::new() }
    }

    /// One number of several runs: the median, the best and the worst; with how much of what is
    /// allowed it takes.
    pub fn times(&mut self, what: &str, mut times: Vec<Duration>, allowed: Option<Duration>) {
        times.sort();
        let ms = |at: usize| times[at].as_secs_f64() * 1e3;
        let last = times.len() - 1;
        let (median, best, worst) = (ms(times.len() / 2), ms(0), ms(last));
        println!("{what}: {median:.0} ms ({best:.0} to {worst:.0})");
        let allowed = allowed.map(|allowed| allowed.as_secs_f64() * 1e3);
        self.row(what, &format!("{median:.0} ms"), &format!("{best:.0} to {worst:.0}"), {
            allowed.map(|ms| (format!("{ms:.0} ms"), median / ms))
        });
    }

    /// One share of a whole.
    pub fn share(&mut self, what: &str, share: f64, allowed: f64) {
        println!("{what}: {:+.1} %", share * 100.0);
        let of = Some((format!("{:.0} %", allowed * 100.0), share / allowed));
        self.row(what, &format!("{:+.1} %", share * 100.0), "", of);
    }

    /// How many times faster, and how many times it must be.
    pub fn gain(&mut self, what: &str, gain: f64, least: f64) {
        println!("{what}: {gain:.1}");
        self.row(what, &format!("{gain:.1}"), "", Some((format!("≥ {least:.0}"), least / gain)));
    }

    fn row(&mut self, what: &str, median: &str, range: &str, allowed: Option<(String, f64)>) {
        let (most, ratio) = allowed.map_or_else(
            || ("–".to_owned(), "–".to_owned()),
            |(most, ratio)| (most, format!("{ratio:.2}")),
        );
        self.rows.push(format!("| {what} | {median} | {range} | {most} | {ratio} |"));
    }

    /// Writes the table between its markers; without them, at the end of the report.
    ///
    /// # Panics
    /// The report cannot be written.
    pub fn write(self) {
        let Some(file) = std::env::var_os(REPORT) else { return };
        let file = Path::new(&file);
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut table = "| what | median | best to worst | at most | share of that |\n".to_owned();
        table.push_str("|---|--:|--:|--:|--:|\n");
        for row in &self.rows {
            let _ = writeln!(table, "{row}");
        }
        let (begin, end) =
            (format!("<!-- bench: {} -->\n", self.name), format!("<!-- end: {} -->", self.name));
        let (before, rest) = text.split_once(&begin).unwrap_or((&text, ""));
        let (_, after) = rest.split_once(&end).unwrap_or(("", "\n"));
        std::fs::write(file, format!("{before}{begin}{table}{end}{after}"))
            .expect("the report can be written");
    }
}
