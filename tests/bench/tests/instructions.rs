//! What the routing of one event costs in instructions, held by a budget: they do not depend on
//! what else the machine does.
#![allow(clippy::unwrap_used)]

use ftb_tests::skip::skip;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// How far from the budget is still the budget: beyond it the change says why, and what it is now.
const TOLERANCE: f64 = 0.05;
/// Events under callgrind, which is fifty times slower.
const EVENTS: u64 = 10_240;
/// Events in a batch of full size.
const BATCH: u64 = 256;

/// `instructions.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The compiler that it was measured with: another one makes other instructions.
    rustc: String,
    /// Instructions for one event of a full batch, from the publisher to delivery and confirmation.
    route: f64,
    /// The same beside 1,000 subscriptions that do not match.
    route_beside_1000: f64,
    /// For an event that comes alone.
    route_alone: f64,
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success())
}

fn rustc() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let said = Command::new(rustc).arg("--version").output().unwrap();
    String::from_utf8(said.stdout).unwrap().split(' ').nth(1).unwrap().to_owned()
}

/// Instructions within `OneAgent::route` for one event.
fn counted(others: u64, batch: u64) -> f64 {
    let dir = tempfile::Builder::new().prefix("ftb-instructions.").tempdir().unwrap();
    let out = dir.path().join("out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*OneAgent*route*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env!("CARGO_BIN_EXE_ftb-route"))
        .args([EVENTS / batch, others, batch].map(|number| number.to_string()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&out).unwrap();
    let totals = text.lines().find_map(|line| line.strip_prefix("totals:"));
    let total: u64 = totals.unwrap().trim().parse().unwrap();
    assert!(total > 0, "callgrind has seen no OneAgent::route");
    total as f64 / EVENTS as f64
}

#[test]
fn routing_one_event_stays_within_its_budget() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.toml");
    let budget: Budget = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    if !installed("valgrind") {
        skip("valgrind is not installed (make deps installs it)");
        return;
    }
    if rustc() != budget.rustc {
        skip(&format!("the budget is that of rustc {}, this is {}", budget.rustc, rustc()));
        return;
    }
    let rows = [
        ("route", 0, BATCH, budget.route),
        ("route_beside_1000", 1000, BATCH, budget.route_beside_1000),
        ("route_alone", 0, 1, budget.route_alone),
    ];
    let off: Vec<String> = rows
        .into_iter()
        .map(|(name, others, batch, allowed)| (name, counted(others, batch), allowed))
        .inspect(|(name, found, allowed)| println!("{name} = {found:.1} (budget {allowed})"))
        .filter(|(_, found, allowed)| (found / allowed - 1.0).abs() > TOLERANCE)
        .map(|(name, found, allowed)| format!("{name} = {found:.1}, the budget is {allowed}"))
        .collect();
    assert!(
        off.is_empty(),
        "instructions for an event have changed by more than 5 %: {off:?}; if that is meant, \
         write them into tests/bench/instructions.toml and say why in the commit"
    );
}
