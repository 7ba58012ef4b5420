//! How long deaths and migrations interrupt a job: agents on this host, `ftb-launch run` with this
//! very program as the ranks, processes killed, and the moments at which ranks say that they
//! compute again; see docs/performance.md. `cargo bench -p ftb-launcher --bench recover`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "report/mod.rs"]
mod report;
#[path = "running/mod.rs"]
mod running;

use ftb_tests::cluster::Plan;
use nix::sys::signal::{Signal, kill};
use running::{Hosts, Program, Running, Step, be_a_rank};
use std::time::{Duration, Instant};

/// Deaths of each kind; the median is reported with the best and the worst.
const RUNS: usize = 5;
/// How long the death of a rank may interrupt, that of a node with its detection, and a migration.
const DEATH_ALLOWED: Duration = Duration::from_millis(500);
const NODE_ALLOWED: Duration = Duration::from_secs(3);
const MOVE_ALLOWED: Duration = Duration::from_secs(1);

fn main() {
    be_a_rank();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut table = report::Table::new("launcher recover");
        for size in [8, 32, 64] {
            deaths(size, &mut table).await;
        }
        migration(8, 64, &mut table).await;
        table.write();
    });
}

/// Messages to both neighbours and a reduction, hundreds of times a second.
fn program(ballast_mib: usize) -> Program {
    Program { ballast_mib, step: Step::Sleep(Duration::from_millis(5)), steps: None, notices: None }
}

/// A primary node at first, then each time the spare that took over the last one's ranks.
fn taken_over(run: usize) -> String {
    if run == 0 { "node02".to_owned() } else { format!("node{:02}", 4 + run) }
}

/// From the death of a rank, and of a node, until all ranks compute again.
async fn deaths(size: usize, table: &mut report::Table) {
    let spares = format!("node[05-{:02}]", 4 + RUNS);
    let cluster = Plan::new(4 + RUNS, 4).start().await.unwrap();
    let arguments = ["--hosts", "node[01-04]", "--spares", &spares];
    let mut running = Running::start(&cluster, size, &arguments, &program(0), Hosts::This).await;
    let mut processes = Vec::new();
    for run in 0..RUNS {
        running.checkpoint().await;
        let pid = running.rank_pid(run * (size - 1) / (RUNS - 1));
        let begin = Instant::now();
        kill(pid, Signal::SIGKILL).unwrap();
        running.resumed().await;
        processes.push(begin.elapsed());
        running.closed("rollback").await;
    }
    let mut nodes = Vec::new();
    for run in 0..RUNS {
        running.checkpoint().await;
        let pid = running.nla_pid(&taken_over(run));
        let begin = Instant::now();
        kill(pid, Signal::SIGKILL).unwrap();
        running.resumed().await;
        nodes.push(begin.elapsed());
        running.closed("rollback").await;
    }
    running.end();
    table.times(&format!("a rank dies: all {size} compute again"), processes, Some(DEATH_ALLOWED));
    let what = format!("a launch agent dies with its ranks: all {size} compute again");
    table.times(&what, nodes, Some(NODE_ALLOWED));
}

/// Cost of the migration of a node's two ranks for all others.
async fn migration(size: usize, ballast_mib: usize, table: &mut report::Table) {
    let spares = format!("node[05-{:02}]", 4 + RUNS);
    let cluster = Plan::new(4 + RUNS, 4).start().await.unwrap();
    let arguments = ["--hosts", "node[01-04]", "--spares", &spares];
    let program = program(ballast_mib);
    let mut running = Running::start(&cluster, size, &arguments, &program, Hosts::This).await;
    let (mut whole, mut longest) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let node = taken_over(run);
        let begin = Instant::now();
        running.ask(&["migrate", running.name(), &node]);
        let stood = running.resumed().await;
        whole.push(begin.elapsed());
        longest.push(stood.into_iter().max().unwrap());
    }
    running.end();
    let what = format!("2 of {size} ranks with {ballast_mib} MiB each move");
    table.times(&format!("{what}: from the request to the last rank"), whole, None);
    table.times(&format!("{what}: ranks stand still"), longest, Some(MOVE_ALLOWED));
}
