//! The list of metrics, and what `deploy/monitoring` makes of it.
#![allow(clippy::unwrap_used)]

use ftb_agent::monitor::metrics::{Metric, Snapshot, encode, metrics, table};
use ftb_core::node::Census;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn names() -> Vec<String> {
    metrics(&Snapshot::default()).iter().map(Metric::sample_name).collect()
}

/// Reads a file of `deploy/monitoring`.
fn deployed(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    (path, text)
}

#[test]
fn each_metric_has_a_name_of_its_own_and_a_meaning() {
    let all = metrics(&Snapshot::default());
    let without_ending = |metric: &Metric| {
        let name = metric.sample_name();
        let short = name.strip_suffix("_total").or(name.strip_suffix("_info"));
        short.unwrap_or(&name).to_owned()
    };
    let families: BTreeSet<String> = all.iter().map(without_ending).collect();
    assert_eq!(families.len(), all.len(), "a name occurs twice");
    for metric in &all {
        let name = metric.sample_name();
        assert!(!metric.meaning().is_empty(), "{name}");
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.starts_with("ftb_") && name.chars().all(is_plain), "{name}");
    }
}

#[test]
fn the_page_of_metrics_is_that_of_the_code() {
    let (path, _) = deployed("metrics.md");
    let head = "# Metrics of ftb-agent\n\nRendered from the code by `FTB_BLESS=1 cargo test -p \
                ftb-agent --test metrics`.\n\n";
    let page = format!("{head}{}", table());
    ftb_fuzz::kept::assert_file_is_current(path, page);
}

/// The words of a text that begin like a metric.
fn named(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_name(c)).filter(|word| word.starts_with("ftb_")).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let names = names();
    for file in ["dashboard.json", "alerts.yml"] {
        let (path, text) = deployed(file);
        let used = named(&text);
        assert!(used.len() >= 5, "{} names {used:?}", path.display());
        let is_unknown = |name: &&&str| !names.iter().any(|known| known == **name);
        let unknown: Vec<&&str> = used.iter().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "{}: no metric {unknown:?}", path.display());
    }
    let (_, dashboard) = deployed("dashboard.json");
    assert!(serde_json::from_str::<serde_json::Value>(&dashboard).is_ok());
}

#[test]
fn each_alert_has_its_section_in_the_runbook() {
    let (_, alerts) = deployed("alerts.yml");
    let (path, runbook) = deployed("runbook.md");
    let lines = || alerts.lines().map(str::trim);
    let names: Vec<&str> = lines().filter_map(|line| line.strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 5, "{names:?}");
    let links: Vec<String> =
        lines().filter_map(|line| line.strip_prefix("runbook_url: ")).map(str::to_owned).collect();
    let installed = "file:///usr/share/doc/ftb/deploy/monitoring/runbook.md";
    let expected: Vec<String> =
        names.iter().map(|name| format!("{installed}#{}", name.to_lowercase())).collect();
    assert_eq!(links, expected);
    let sections: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, names, "{}", path.display());
}

#[test]
fn samples_are_open_metrics() {
    let snapshot = Snapshot {
        host: "no\"de\n01".to_owned(),
        census: Some(Census { members: [1, 2, 3, 4, 5, 6], ..Census::default() }),
        certificate_end_ns: Some(1_800_000_000_500_000_000),
        peer_errors: vec![("hello_late", 7)],
        ..Snapshot::default()
    };
    let text = encode(snapshot).unwrap();
    for line in [
        "# TYPE ftb_peer_errors counter",
        "ftb_peer_errors_total{kind=\"hello_late\"} 7.0",
        "ftb_members{state=\"up\"} 2.0",
        "ftb_conditions{severity=\"unknown\"} 0.0",
        "ftb_certificate_end_timestamp_seconds 1800000000.5",
        "ftb_process_open_fds 0.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.ends_with("# EOF\n"));
}
