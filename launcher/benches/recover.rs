//! How long deaths and migrations interrupt a job: agents on this host, `ftb-launch run` with this
//! very program as the ranks, processes killed, and the moments at which ranks say that they
//! compute again; see docs/performance.md. `cargo bench -p ftb-launcher --bench recover`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "report/mod.rs"]
mod report;

use ftb_client::{Client, Delivery, Received, Start, Subscription};
use ftb_job::{ImageError, Job, Op, Reader, State, Writer};
use ftb_tests::cluster::{Cluster, Plan, binary, tied};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Deaths of each kind; the median is reported with the best and the worst.
const RUNS: usize = 5;
/// How long the death of a rank may interrupt, that of a node with its detection, and a migration.
const DEATH_ALLOWED: Duration = Duration::from_millis(500);
const NODE_ALLOWED: Duration = Duration::from_secs(3);
const MOVE_ALLOWED: Duration = Duration::from_secs(1);

fn main() {
    if std::env::var_os("FTB_RANK").is_some() {
        return rank(std::env::args().nth(1).and_then(|mib| mib.parse().ok()).unwrap_or(0));
    }
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

/// The work of the ranks: messages to both neighbours and a reduction, hundreds of times a second,
/// until they are killed.
struct Work {
    steps: u64,
    ballast: Vec<u8>,
}

impl State for Work {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64("steps", self.steps)?;
        writer.bytes("ballast", &self.ballast)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        self.steps = reader.u64("steps")?;
        self.ballast = reader.bytes("ballast")?;
        Ok(())
    }
}

fn rank(ballast_mib: usize) {
    let mut job = Job::init().unwrap();
    let mut work = Work { steps: 0, ballast: vec![0xa5; ballast_mib << 20] };
    let ended = job.run(&mut work, |job, work| {
        let (rank, size) = (job.rank(), job.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        job.send(left, 1, &work.steps.to_le_bytes())?;
        job.send(right, 2, &work.steps.to_le_bytes())?;
        job.recv(right, 1)?;
        job.recv(left, 2)?;
        job.allreduce(Op::Max, &mut [work.steps])?;
        work.steps += 1;
        std::thread::sleep(Duration::from_millis(5));
        Ok(ControlFlow::Continue(()))
    });
    panic!("a rank came to an end: {ended:?}");
}

/// A running job and its words.
struct Running {
    name: String,
    size: usize,
    launcher: Child,
    jobs: tempfile::TempDir,
    words: Subscription,
    _client: Client,
}

impl Running {
    async fn start(cluster: &Cluster, size: usize, arguments: &[&str], ballast_mib: usize) -> Self {
        let jobs = tempfile::tempdir().unwrap();
        let name = format!("bench-{size}");
        let nodes: Vec<String> = (0..cluster.len())
            .map(|rank| format!("{}={}", cluster.host(rank), cluster.socket(rank).display()))
            .collect();
        let client = Client::builder("bench").agent(cluster.socket(0)).build().unwrap();
        let words = client.subscribe(&format!("jobid={name}"), Start::Now).await.unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-launch"));
        command.env("FTB_JOBS_DIR", jobs.path()).args(["run", "--no-stdin", "--job", &name]);
        command.args(["-n", &size.to_string(), "--local-nodes", &nodes.join(",")]);
        command.arg("--nla").arg(binary("ftb-launcher", "ftb-nla").unwrap()).args(arguments);
        command.arg("--").arg(std::env::current_exe().unwrap()).arg(ballast_mib.to_string());
        let launcher = tied(&command).stdout(Stdio::null()).spawn().unwrap();
        let mut running = Self { name, size, launcher, jobs, words, _client: client };
        running.closed("start").await;
        running
    }

    async fn next(&mut self) -> Received {
        match self.words.next().await.expect("the agent lives") {
            Delivery::Event(event) => *event,
            Delivery::Gap(gap) => panic!("events are missing: {gap:?}"),
        }
    }

    /// Waits until an episode of that kind is closed.
    async fn closed(&mut self, kind: &str) {
        loop {
            let event = self.next().await.event;
            if event.name.as_str() == "FTB_JL_EPISODE" && event.tag("kind") == Some(kind) {
                let words = String::from_utf8_lossy(&event.payload).into_owned();
                assert_eq!(event.tag("outcome"), Some("done"), "{words}");
                return;
            }
        }
    }

    /// Waits until every rank has said that it computes again; how long each has not, where it says
    /// so.
    async fn resumed(&mut self) -> Vec<Duration> {
        let (mut ranks, mut stood) = (BTreeSet::new(), Vec::new());
        while ranks.len() < self.size {
            let event = self.next().await.event;
            if event.name.as_str() == "FTB_MPI_RESUMED"
                && ranks.insert(event.tag("rank").map(str::to_owned))
            {
                let us = event.tag("us").and_then(|us| us.parse().ok()).unwrap_or(0);
                stood.push(Duration::from_micros(us));
            }
        }
        stood
    }

    fn ask(&self, words: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-launch"));
        command.env("FTB_JOBS_DIR", self.jobs.path()).args(words).stdout(Stdio::null());
        assert!(command.status().unwrap().success(), "{words:?}");
    }

    async fn checkpoint(&mut self) {
        self.ask(&["checkpoint", &self.name]);
        self.closed("checkpoint").await;
    }

    fn rank_pid(&self, rank: usize) -> Pid {
        let own = [format!("FTB_JOB_ID={}", self.name), format!("FTB_RANK={rank}")];
        let is = |path: &Path| {
            let environ = std::fs::read(path.join("environ")).unwrap_or_default();
            own.iter().all(|word| environ.split(|b| *b == 0).any(|pair| pair == word.as_bytes()))
        };
        let mut entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let found = entries.find(|entry| is(&entry.path())).unwrap();
        Pid::from_raw(found.file_name().to_string_lossy().parse().unwrap())
    }

    fn nla_pid(&self, node: &str) -> Pid {
        let path = self.jobs.path().join(&self.name).join("state.json");
        let state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        Pid::from_raw(i32::try_from(state["nlas"][node].as_i64().unwrap()).unwrap())
    }

    fn end(mut self) {
        self.ask(&["kill", &self.name]);
        self.launcher.wait().unwrap();
    }
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
    let mut running = Running::start(&cluster, size, &arguments, 0).await;
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
    let mut running = Running::start(&cluster, size, &arguments, ballast_mib).await;
    let (mut whole, mut longest) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let node = taken_over(run);
        let begin = Instant::now();
        running.ask(&["migrate", &running.name, &node]);
        let stood = running.resumed().await;
        whole.push(begin.elapsed());
        longest.push(stood.into_iter().max().unwrap());
    }
    running.end();
    let what = format!("2 of {size} ranks with {ballast_mib} MiB each move");
    table.times(&format!("{what}: from the request to the last rank"), whole, None);
    table.times(&format!("{what}: ranks stand still"), longest, Some(MOVE_ALLOWED));
}
