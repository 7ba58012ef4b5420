//! Checkpoints in the memory of nodes: what they cost beside the model of FMI, how soon a job
//! computes again beside a restart from the store, and what protection and deaths cost a job that
//! computes. All nodes are on this host and share its cores; see docs/performance.md. `cargo bench
//! -p ftb-launcher --bench memory`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "memory/floor.rs"]
mod floor;
#[path = "report/mod.rs"]
mod report;
#[path = "running/mod.rs"]
mod running;

use floor::Floor;
use ftb_tests::cluster::{Cluster, Plan};
use ftb_tests::netns::{self, Net, Way};
use nix::sys::signal::{Signal, kill};
use running::{Hosts, Program, Running, Step, be_a_rank, steps_in};
use std::path::Path;
use std::time::{Duration, Instant};

/// Deaths of each kind, and windows of each way to run; medians are reported.
const RUNS: usize = 5;
const WINDOWS: usize = 3;
/// Sizes of groups.
const GROUPS: [usize; 7] = [2, 3, 4, 6, 8, 12, 16];
/// What a rank saves, where groups are compared, and elsewhere.
const GROUP_MIB: usize = 32;
const BALLAST_MIB: usize = 1;
const SOLVER_MIB: usize = 8;
/// Times the model that a checkpoint may take.
const MODEL_ALLOWED: f64 = 1.5;
/// Until all compute again: after the death of a rank, and of a node with its detection.
const DEATH_ALLOWED: Duration = Duration::from_millis(200);
const NODE_ALLOWED: Duration = Duration::from_millis(2500);
/// Least gain over a restart.
const GAIN: f64 = 4.0;
/// What protection every ten seconds may cost, and a death each minute.
const PROTECTION_ALLOWED: f64 = 0.03;
const DEATHS_ALLOWED: f64 = 0.15;
/// The options of a job that is protected every ten seconds, and of one whose nodes fail each
/// minute: the interval follows from that, as in FMI.
const PROTECTED: [&str; 4] = ["--memory", "xor:4", "--memory-every", "10s"];
const FAILING: [&str; 6] = ["--memory", "xor:4", "--memory-every", "auto", "--mtbf", "1m"];
/// A job of which a rank dies each half minute, and what checkpoints and recoveries may take of it.
const SHARED: [&str; 6] = ["--memory", "xor:4", "--memory-every", "auto", "--mtbf", "30s"];
const SHARE_EVERY: Duration = Duration::from_secs(30);
const SHARE_DEATHS: u32 = 4;
const CHECKPOINTS_ALLOWED: f64 = 0.05;
const RECOVERIES_ALLOWED: f64 = 0.015;
const WINDOW: Duration = Duration::from_secs(30);
const DEATH_EVERY: Duration = Duration::from_secs(60);

fn main() {
    be_a_rank();
    let only = std::env::var("FTB_BENCH_ONLY").unwrap_or_default();
    let is_wanted = |part: &str| only.is_empty() || only.split(',').any(|word| word == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut table = report::Table::new("launcher memory");
        if is_wanted("groups") {
            for size in GROUPS {
                group(size, &mut table).await;
            }
        }
        for size in sizes() {
            if is_wanted("ranks") {
                rank_deaths(size, &mut table).await;
            }
            if is_wanted("hosts") {
                node_deaths(size, &mut table).await;
            }
        }
        if is_wanted("overhead") {
            overhead(&mut table).await;
        }
        if is_wanted("shares") {
            for size in [8, 64] {
                shares(size, &mut table).await;
            }
        }
        table.write();
    });
}

/// Numbers of ranks: those of `FTB_BENCH_SIZES`, as `8,64,256,512`.
fn sizes() -> Vec<usize> {
    let text = std::env::var("FTB_BENCH_SIZES").unwrap_or_else(|_| "8,64".to_owned());
    text.split(',').map(|size| size.parse().unwrap()).collect()
}

fn program(ballast_mib: usize, step_ms: u64) -> Program {
    Program {
        ballast_mib,
        step: Step::Sleep(Duration::from_millis(step_ms)),
        steps: None,
        notices: None,
    }
}

/// A checkpoint of a group with one rank on each node, beside the model.
async fn group(size: usize, table: &mut report::Table) {
    let bytes = GROUP_MIB << 20;
    let before = Floor::measure(size, bytes);
    let cluster = Plan::new(size, 4).start().await.unwrap();
    let hosts = format!("node[01-{size:02}]");
    let scheme = format!("xor:{size}");
    let options = ["--hosts", &hosts, "--ppn", "1", "--checkpoint-every", "never"];
    let options = [&options[..], &["--memory", &scheme, "--memory-every", "1s"]].concat();
    let program = program(GROUP_MIB, 50);
    let mut running = Running::start(&cluster, size, &options, &program, Hosts::This).await;
    let (mut whole, mut saves) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (save, protect) = running.protected().await;
        whole.push(Duration::from_secs_f64((save + protect) / 1e3));
        saves.push(Duration::from_secs_f64(save / 1e3));
    }
    running.end();
    // The machine may have become busier, or idle.
    let floor = before.or(Floor::measure(size, bytes));
    let model = floor.model(size, bytes);
    println!(
        "a group of {size}: {floor}; model {:.0} ms with sealed, {:.0} ms with plain connections; \
         ranks stand still for {:.0} ms",
        model.as_secs_f64() * 1e3,
        floor.plain_model(size, bytes).as_secs_f64() * 1e3,
        median(&saves) * 1e3
    );
    let what = format!("xor:{size}, {GROUP_MIB} MiB a node: saved and protected");
    table.times(&what, whole, Some(model.mul_f64(MODEL_ALLOWED)));
}

/// One rank dies: back from memory in place, beside a restart of all ranks from the store.
async fn rank_deaths(size: usize, table: &mut report::Table) {
    let cluster = Plan::new(5, 4).start().await.unwrap();
    let program = program(BALLAST_MIB, 5);
    let rank = |run: usize| run * (size - 1) / (RUNS - 1);
    let options = options(&["--spares", "node05", "--memory", "xor:4", "--memory-every", "1s"]);
    let mut running = Running::start(&cluster, size, &options, &program, Hosts::This).await;
    let mut memory = Vec::new();
    for run in 0..RUNS {
        running.protected().await;
        let pid = running.rank_pid(rank(run));
        let begin = Instant::now();
        kill(pid, Signal::SIGKILL).unwrap();
        running.resumed().await;
        memory.push(begin.elapsed());
        running.closed("rollback").await;
    }
    running.end();
    let options = self::options(&["--spares", "node05", "--on-death", "restart"]);
    let mut running = Running::start(&cluster, size, &options, &program, Hosts::This).await;
    let mut restart = Vec::new();
    for run in 0..RUNS {
        running.checkpoint().await;
        let pid = running.rank_pid(rank(run));
        let begin = Instant::now();
        kill(pid, Signal::SIGKILL).unwrap();
        // It is closed when all ranks are restored and have met, just before they compute.
        running.closed("start").await;
        restart.push(begin.elapsed());
    }
    running.end();
    let what = format!("a rank dies: all {size} compute again");
    beside(&what, memory, restart, DEATH_ALLOWED, table);
}

/// The host of a node is cut off: it is found dead, and its ranks start on a spare. Each host is a
/// network namespace.
async fn node_deaths(size: usize, table: &mut report::Table) {
    if let Some(why) = netns::impossible() {
        return println!("no host is cut off: {why}");
    }
    let memory = ["--memory", "xor:4", "--memory-every", "1s"];
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for (options, times) in [(&memory[..], &mut fast), (&["--on-death", "restart"], &mut slow)] {
        let mut net = Net::new(4 + WINDOWS).unwrap();
        let cluster = Plan::new(4 + WINDOWS, 4).extra("").on(&net).start().await.unwrap();
        let spares = format!("node[05-{:02}]", 4 + WINDOWS);
        let options = self::options(&[&["--spares", &spares], options].concat());
        let (program, hosts) = (program(BALLAST_MIB, 5), Hosts::Net(&net));
        let mut running = Running::start(&cluster, size, &options, &program, hosts).await;
        for run in 0..WINDOWS {
            let from_memory = options.contains(&"--memory");
            match from_memory {
                true => drop(running.protected().await),
                false => running.checkpoint().await,
            }
            let begin = Instant::now();
            // A primary node at first, then the spare that has its ranks.
            net.isolate(3 + run, Way::Both).unwrap();
            match from_memory {
                true => drop(running.resumed().await),
                false => drop(running.closed("start").await),
            }
            times.push(begin.elapsed());
        }
        running.end();
    }
    let what = format!("a host is cut off: all {size} compute again");
    beside(&what, fast, slow, NODE_ALLOWED, table);
}

fn options<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--hosts", "node[01-04]", "--checkpoint-every", "never"], more].concat()
}

fn beside(
    what: &str,
    memory: Vec<Duration>,
    restart: Vec<Duration>,
    allowed: Duration,
    table: &mut report::Table,
) {
    let gain = median(&restart) / median(&memory);
    table.times(&format!("{what}, from memory"), memory, Some(allowed));
    table.times(&format!("{what}, all started again from the store"), restart, None);
    table.gain(&format!("{what}: from memory, times faster"), gain, GAIN);
}

fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

/// The shares of the time in which ranks stand still: for checkpoints at Daly's interval, and for
/// the recoveries from four deaths.
async fn shares(size: usize, table: &mut report::Table) {
    let cluster = Plan::new(5, 4).start().await.unwrap();
    let step = Step::Compute(100);
    let program = Program { ballast_mib: BALLAST_MIB, step, steps: None, notices: None };
    let options = options(&[&["--spares", "node05"], &SHARED[..]].concat());
    let mut running = Running::start(&cluster, size, &options, &program, Hosts::This).await;
    running.protected().await;
    let (begin, mut saves, mut recoveries) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    for death in 1..=SHARE_DEATHS + 1 {
        let (save, recovery) = running.stands_still(begin + SHARE_EVERY * death).await;
        (saves, recoveries) = (saves + save, recoveries + recovery);
        if death <= SHARE_DEATHS {
            let rank = (death as usize * 7) % size;
            kill(running.rank_pid(rank), Signal::SIGKILL).unwrap();
        }
    }
    let all = begin.elapsed().as_secs_f64();
    running.end();
    let what = format!("{size} ranks, {SHARE_DEATHS} deaths in {all:.0} s");
    let share = saves.as_secs_f64() / all;
    table.share(&format!("{what}: checkpoints at Daly's interval"), share, CHECKPOINTS_ALLOWED);
    let share = recoveries.as_secs_f64() / all;
    table.share(&format!("{what}: recoveries"), share, RECOVERIES_ALLOWED);
}

/// Steps of a job that computes: alone, protected, and protected with a death each minute. In turn,
/// as the load of the machine changes.
async fn overhead(table: &mut report::Table) {
    let cluster = Plan::new(5, 4).start().await.unwrap();
    let (mut protected, mut killed) = (Vec::new(), Vec::new());
    for window in 0..WINDOWS {
        let alone = steps_each_second(&cluster, &[], false).await;
        let with = steps_each_second(&cluster, &PROTECTED, false).await;
        let died = steps_each_second(&cluster, &FAILING, true).await;
        println!(
            "window {window}: {alone:.1} steps/s alone, {with:.1} protected, {died:.1} with a \
             death a minute"
        );
        protected.push(1.0 - with / alone);
        killed.push(1.0 - died / alone);
    }
    let middle = |shares: &mut Vec<f64>| {
        shares.sort_by(f64::total_cmp);
        shares[shares.len() / 2]
    };
    let what = format!("8 ranks with {SOLVER_MIB} MiB each on 4 nodes");
    let share = middle(&mut protected);
    table.share(&format!("{what}, protected every 10 s: steps lost"), share, PROTECTION_ALLOWED);
    let share = middle(&mut killed);
    table.share(&format!("{what}, a rank dies each minute: steps lost"), share, DEATHS_ALLOWED);
}

/// Steps a second of a job in a window, in the middle of which a rank may die.
async fn steps_each_second(cluster: &Cluster, more: &[&str], dies: bool) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps");
    let step = Step::Compute(1000);
    let program =
        Program { ballast_mib: SOLVER_MIB, step, steps: Some(path.clone()), notices: None };
    let options = options(&[&["--spares", "node05"], more].concat());
    let running = Running::start(cluster, 8, &options, &program, Hosts::This).await;
    wait_for_steps(&path).await;
    let (begin, first) = (Instant::now(), steps_in(&path));
    let length = if dies { DEATH_EVERY } else { WINDOW };
    if dies {
        tokio::time::sleep(length / 2).await;
        kill(running.rank_pid(3), Signal::SIGKILL).unwrap();
    }
    tokio::time::sleep_until((begin + length).into()).await;
    let rate = (steps_in(&path) - first) as f64 / begin.elapsed().as_secs_f64();
    running.end();
    rate
}

async fn wait_for_steps(path: &Path) {
    while steps_in(path) < 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
