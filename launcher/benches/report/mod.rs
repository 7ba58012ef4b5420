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
    /// What, and its share of what is allowed.
    shares: Vec<(String, f64)>,
}

/// Pixels of the picture.
const ROW: usize = 22;
const LABELS: usize = 460;
const BARS: f64 = 240.0;
/// The longest bar, as a share of what is allowed; a longer one is cut, its number stands beside.
const SHARE_MAX: f64 = 3.0;

impl Table {
    pub fn new(name: &'static str) -> Self {
        Self { name, rows: Vec::new(), shares: Vec::new() }
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
        self.shares.extend(allowed.iter().map(|(_, ratio)| (what.to_owned(), *ratio)));
        let (most, ratio) = allowed.map_or_else(
            || ("–".to_owned(), "–".to_owned()),
            |(most, ratio)| (most, format!("{ratio:.2}")),
        );
        self.rows.push(format!("| {what} | {median} | {range} | {most} | {ratio} |"));
    }

    /// Bars: the share of what is allowed that each row takes. A line shows what is allowed.
    fn picture(&self) -> String {
        let (width, height) = (LABELS + BARS as usize + 60, ROW * (self.shares.len() + 2));
        let allowed = LABELS as f64 + BARS / SHARE_MAX;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"8\" y=\"16\" font-weight=\"bold\">{}: share of what is allowed</text>\n\
             <path d=\"M{allowed:.1} {ROW}V{height}\" stroke=\"#222222\"/>\n",
            self.name
        );
        for (place, (what, share)) in self.shares.iter().enumerate() {
            let top = ROW * (place + 1) + 4;
            let end = (share.clamp(0.0, SHARE_MAX) / SHARE_MAX * BARS).max(0.5);
            let colour = if *share <= 1.0 { "#0b6e4f" } else { "#b3541e" };
            let what = what.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{what}</text>\
                 <rect x=\"{LABELS}\" y=\"{top}\" width=\"{end:.1}\" height=\"14\" \
                 fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{share:.2}</text>",
                LABELS - 6,
                top + 11,
                LABELS as f64 + end + 6.0,
                top + 11,
            );
        }
        text.push_str("</svg>\n");
        text
    }

    /// Writes the table between its markers in the report that the environment names, and a picture
    /// beside it.
    ///
    /// # Panics
    /// They cannot be written.
    pub fn write(self) {
        if let Some(file) = std::env::var_os(REPORT) {
            self.write_to(Path::new(&file));
        }
    }

    /// The same, for this report. Without markers the table is at its end.
    ///
    /// # Panics
    /// They cannot be written.
    pub fn write_to(&self, file: &Path) {
        if !self.shares.is_empty() {
            let picture = file.with_file_name(format!("{}.svg", self.name.replace(' ', "-")));
            std::fs::write(picture, self.picture()).expect("the picture can be written");
        }
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
