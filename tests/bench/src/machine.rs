//! The machine that the numbers are from, and the versions of what was measured.

use crate::server::installed;
use crate::wire::zenoh;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Facts, as (name, value).
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("processor", format!("{} × {}", processors(), first_value("/proc/cpuinfo", "model name"))),
        ("memory", gibibytes(&first_value("/proc/meminfo", "MemTotal"))),
        ("kernel", line_of("/proc/sys/kernel/osrelease")),
        ("ftb", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (program, argument) in [("nats-server", "--version"), ("mosquitto", "-h")] {
        facts.push((program, version(program, argument)));
    }
    facts.push(("Zenoh", zenoh::version()));
    facts.push(("taken from a thread that never waits", stolen()));
    facts
}

/// How long a thread that never waits is watched.
const WATCHED: Duration = Duration::from_secs(2);
/// A step that takes longer than this was interrupted by more than an interrupt.
const STOLEN: Duration = Duration::from_micros(100);

/// What the machine takes from a thread that never waits: an event that is an event is under
/// way has his share of the 99th percentiles, whatever system he measures.
fn stolen() -> String {
    let begun = Instant::now();
    let (mut last, mut sum, mut longest) = (begun, Duration::ZERO, Duration::ZERO);
    while last.duration_since(begun) < WATCHED {
        let now = Instant::now();
        let step = now.duration_since(last);
        if step > STOLEN {
            sum += step;
            longest = longest.max(step);
        }
        last = now;
    }
    let percent = sum.as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
    format!("{percent:.1} % of its time, up to {:.1} ms at once", longest.as_secs_f64() * 1e3)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What stands behind the first line that begins with `key`.
fn first_value(file: &str, key: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
}

fn gibibytes(kib: &str) -> String {
    let kib = kib.split(' ').next().and_then(|kib| kib.parse::<f64>().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{:.0} GiB", kib / 1024.0 / 1024.0))
}

fn line_of(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The first line that a program says about itself.
fn version(program: &str, argument: &str) -> String {
    let Ok(path) = installed(program) else { return "not installed".to_owned() };
    // Mosquitto says its version with the help, and fails: only the words matter.
    let Ok(output) = Command::new(path).arg(argument).output() else {
        return "does not start".to_owned();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or("says nothing");
    line.rsplit(' ').next().unwrap_or(line).trim_start_matches('v').to_owned()
}
