//! How long a launch takes: two agents on this host, `ftb-launch run` with N processes on two
//! nodes, from its start until every process has printed a line, and until nothing of the job is
//! left; see docs/performance.md. `cargo bench -p ftb-launcher --bench launch`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "report/mod.rs"]
mod report;

use ftb_tests::cluster::{Plan, binary, tied};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs of each size; the median is reported with the best and the worst.
const RUNS: usize = 7;
/// The largest size, and how long its start may take.
const MOST: usize = 256;
const ALLOWED: Duration = Duration::from_secs(2);

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Plan::new(2, 2).start()).unwrap();
    let nodes: Vec<String> = (0..cluster.len())
        .map(|rank| format!("{}={}", cluster.host(rank), cluster.socket(rank).display()))
        .collect();
    let jobs = tempfile::tempdir().unwrap();
    let [program, nla] =
        ["ftb-launch", "ftb-nla"].map(|name| binary("ftb-launcher", name).unwrap());
    let mut table = report::Table::new("launcher launch");
    for size in [2, 64, MOST] {
        let runs: Vec<[Duration; 3]> = (0..RUNS)
            .map(|_| {
                let mut command = Command::new(&program);
                command.env("FTB_JOBS_DIR", jobs.path()).args(["run", "-q", "--no-stdin"]);
                command.args(["-n", &size.to_string(), "--local-nodes", &nodes.join(",")]);
                command.arg("--nla").arg(&nla).args(["--", "/bin/echo", "up"]);
                launch(command, size)
            })
            .collect();
        let of = |which: usize| runs.iter().map(|run| run[which]).collect();
        let allowed = (size == MOST).then_some(ALLOWED);
        table.times(&format!("{size} processes: all are up"), of(0), allowed);
        table.times(&format!("{size} processes: the job is over"), of(1), None);
        table.times(&format!("{size} processes: processor time of it all"), of(2), None);
    }
    table.write();
}

/// One launch: until all are up, until its end, and the processor time of it all.
fn launch(command: Command, size: usize) -> [Duration; 3] {
    let before = processor_time();
    let begin = Instant::now();
    let mut launcher = tied(&command).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let up = lines.take(size).filter(|line| line.as_ref().is_ok_and(|line| line == "up")).count();
    let all_up = begin.elapsed();
    assert!(launcher.wait().unwrap().success() && up == size, "{up} of {size} came up");
    [all_up, begin.elapsed(), processor_time() - before]
}

/// Of all children that have ended, with theirs.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let time = |value: nix::sys::time::TimeVal| {
        Duration::new(value.tv_sec().unsigned_abs(), 0)
            + Duration::from_micros(value.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}
