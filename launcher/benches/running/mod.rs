//! A running job of the launcher's benches: agents on this host, `ftb-launch run` with the bench
//! itself as the ranks, and the moments at which launcher and ranks report something.

#![allow(unreachable_pub, dead_code)]

use ftb_client::{Client, Delivery, Event, Received, Start, Subscription};
use ftb_job::{Error, ImageError, Job, Op, Reader, State, Writer};
use ftb_tests::cluster::{Cluster, binary, tied};
use ftb_tests::netns::Net;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// One step of a rank.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// It waits this long.
    Sleep(Duration),
    /// It computes: this number of thousand multiplications.
    Compute(u64),
}

/// The program of the ranks: what is to be saved, and what they do.
#[derive(Clone, Debug)]
pub struct Program {
    pub ballast_mib: usize,
    pub step: Step,
    /// Where rank 0 writes how many steps it has made.
    pub steps: Option<PathBuf>,
    /// The folder in which each rank writes when it was called back.
    pub notices: Option<PathBuf>,
}

impl Program {
    fn words(&self) -> Vec<String> {
        let (kind, amount) = match self.step {
            Step::Sleep(time) => ("sleep", time.as_micros().to_string()),
            Step::Compute(thousands) => ("compute", thousands.to_string()),
        };
        let mut words = vec![self.ballast_mib.to_string(), kind.to_owned(), amount];
        let paths = [("steps", &self.steps), ("notices", &self.notices)];
        let word = |(name, path): (&str, &Option<PathBuf>)| {
            path.as_ref().map(|path| format!("{name}={}", path.display()))
        };
        words.extend(paths.into_iter().filter_map(word));
        words
    }

    fn parse(words: &[String]) -> Self {
        let amount: u64 = words[2].parse().unwrap();
        let step = match words[1].as_str() {
            "sleep" => Step::Sleep(Duration::from_micros(amount)),
            _ => Step::Compute(amount),
        };
        let path = |name: &str| {
            words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(Into::into)
        };
        let (steps, notices) = (path("steps"), path("notices"));
        Self { ballast_mib: words[0].parse().unwrap(), step, steps, notices }
    }
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

/// A rank, if this process is one; it never returns then.
pub fn be_a_rank() {
    if std::env::var_os("FTB_RANK").is_none() {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let program = Program::parse(&words);
    let mut job = Job::init().unwrap();
    let steps = program.steps.filter(|_| job.rank() == 0);
    let steps = steps.map(|path| std::fs::File::create(path).unwrap());
    let mut work = Work { steps: 0, ballast: vec![0xa5; program.ballast_mib << 20] };
    let notice = program.notices.map(|folder| folder.join(job.rank().to_string()));
    let ended = job.run(&mut work, |job, work| {
        let done = exchange(job, work);
        if let (Err(Error::RolledBack), Some(path)) = (&done, &notice) {
            std::fs::write(path, wall_ns().to_le_bytes()).unwrap();
        }
        done?;
        work.steps += 1;
        if let Some(file) = &steps {
            file.write_all_at(&work.steps.to_le_bytes(), 0).unwrap();
        }
        match program.step {
            Step::Sleep(time) => std::thread::sleep(time),
            Step::Compute(thousands) => drop(std::hint::black_box(compute(thousands))),
        }
        Ok(ControlFlow::Continue(()))
    });
    panic!("a rank came to an end: {ended:?}");
}

/// Nanoseconds of the clock that all processes of this host have.
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// Messages to both neighbours and a reduction.
fn exchange(job: &mut Job, work: &Work) -> Result<(), Error> {
    let (rank, size) = (job.rank(), job.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    job.send(left, 1, &work.steps.to_le_bytes())?;
    job.send(right, 2, &work.steps.to_le_bytes())?;
    job.recv(right, 1)?;
    job.recv(left, 2)?;
    job.allreduce(Op::Max, &mut [work.steps])
}

fn compute(thousands: u64) -> f64 {
    (0..thousands * 1000).fold(1.0, |x: f64, _| std::hint::black_box(x * 0.999_999 + 1e-6))
}

/// How many steps a job has made.
pub fn steps_in(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Where the launch agents are.
#[derive(Clone, Copy, Debug)]
pub enum Hosts<'a> {
    /// On this host, and the launcher knows it: the end of an agent is seen at once.
    This,
    /// Each beside its agent in a network namespace, started as over ssh. The launcher is on the
    /// first one.
    Net(&'a Net),
}

/// A running job and its words.
pub struct Running {
    name: String,
    size: usize,
    launcher: Child,
    jobs: tempfile::TempDir,
    words: Subscription,
    _client: Client,
}

impl Running {
    pub async fn start(
        cluster: &Cluster,
        size: usize,
        arguments: &[&str],
        program: &Program,
        hosts: Hosts<'_>,
    ) -> Self {
        let jobs = tempfile::tempdir().unwrap();
        let name = format!("bench-{size}");
        let client = Client::builder("bench").agent(cluster.socket(0)).build().unwrap();
        let words = client.subscribe(&format!("jobid={name}"), Start::Now).await.unwrap();
        let (mut launch, place) = match hosts {
            Hosts::This => (Vec::new(), vec!["--local-nodes".to_owned(), local(cluster)]),
            Hosts::Net(net) => (net.enter(0), others(cluster, net, jobs.path())),
        };
        launch.push(env!("CARGO_BIN_EXE_ftb-launch").to_owned());
        let mut command = Command::new(&launch[0]);
        command.args(&launch[1..]).env("FTB_JOBS_DIR", jobs.path());
        command.args(["run", "--no-stdin", "--job", &name, "-n", &size.to_string()]).args(place);
        command.arg("--nla").arg(binary("ftb-launcher", "ftb-nla").unwrap()).args(arguments);
        command.arg("--").arg(std::env::current_exe().unwrap()).args(program.words());
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
    pub async fn closed(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next().await.event;
            if event.name.as_str() == "FTB_JL_EPISODE" && event.tag("kind") == Some(kind) {
                let words = String::from_utf8_lossy(&event.payload).into_owned();
                assert_eq!(event.tag("outcome"), Some("done"), "{words}");
                return event;
            }
        }
    }

    /// Waits until every rank has said that it computes again; how long each has not, where it says
    /// so.
    pub async fn resumed(&mut self) -> Vec<Duration> {
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

    pub fn ask(&self, words: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-launch"));
        command.env("FTB_JOBS_DIR", self.jobs.path()).args(words).stdout(Stdio::null());
        assert!(command.status().unwrap().success(), "{words:?}");
    }

    pub async fn checkpoint(&mut self) {
        self.ask(&["checkpoint", &self.name]);
        self.closed("checkpoint").await;
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until a set in memory counts that was begun from now on; the milliseconds in which
    /// images were written, and were protected.
    pub async fn protected(&mut self) -> (f64, f64) {
        loop {
            let event = self.closed("checkpoint").await;
            let of = |name: &str| phases(&event).find(|(of, _)| of == name).map(|(_, ms)| ms);
            if let (Some(save), Some(protect)) = (of("save"), of("protect")) {
                return (save, protect);
            }
        }
    }

    /// How long ranks stand still for checkpoints, and for recoveries, until then.
    pub async fn stands_still(&mut self, until: Instant) -> (Duration, Duration) {
        let (mut saves, mut recoveries) = (0.0, 0.0);
        while let Ok(event) = tokio::time::timeout_at(until.into(), self.next()).await {
            let event = event.event;
            let kind = event.tag("kind").filter(|_| event.name.as_str() == "FTB_JL_EPISODE");
            match kind {
                Some("checkpoint") => {
                    let save = phases(&event).filter(|(name, _)| name == "save");
                    saves += save.map(|(_, ms)| ms).sum::<f64>();
                }
                Some("rollback") => recoveries += phases(&event).map(|(_, ms)| ms).sum::<f64>(),
                _ => {}
            }
        }
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        (ms(saves), ms(recoveries))
    }

    pub fn rank_pid(&self, rank: usize) -> Pid {
        let own = [format!("FTB_JOB_ID={}", self.name), format!("FTB_RANK={rank}")];
        let is = |path: &Path| {
            let environ = std::fs::read(path.join("environ")).unwrap_or_default();
            own.iter().all(|word| environ.split(|b| *b == 0).any(|pair| pair == word.as_bytes()))
        };
        let mut entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let found = entries.find(|entry| is(&entry.path())).unwrap();
        Pid::from_raw(found.file_name().to_string_lossy().parse().unwrap())
    }

    pub fn nla_pid(&self, node: &str) -> Pid {
        let path = self.jobs.path().join(&self.name).join("state.json");
        let state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        Pid::from_raw(i32::try_from(state["nlas"][node].as_i64().unwrap()).unwrap())
    }

    pub fn end(mut self) {
        self.ask(&["kill", &self.name]);
        self.launcher.wait().unwrap();
    }
}

/// The phases of a closed episode with their milliseconds.
fn phases(event: &Event) -> impl Iterator<Item = (String, f64)> {
    let text = event.tag("phases").unwrap_or_default().to_owned();
    let phase = |phase: &str| {
        let (name, ms) = phase.split_once('=')?;
        Some((name.to_owned(), ms.parse().ok()?))
    };
    text.split(' ').filter_map(phase).collect::<Vec<_>>().into_iter()
}

/// The nodes of `--local-nodes`.
fn local(cluster: &Cluster) -> String {
    let pair = |rank| format!("{}={}", cluster.host(rank), cluster.socket(rank).display());
    (0..cluster.len()).map(pair).collect::<Vec<_>>().join(",")
}

/// The options for launch agents in the namespaces of the hosts.
fn others(cluster: &Cluster, net: &Net, dir: &Path) -> Vec<String> {
    let (ssh, file) = (dir.join("as-ssh"), dir.join("nodes.toml"));
    let (mut script, mut nodes) = ("#!/bin/sh\ncase $1 in\n".to_owned(), String::new());
    for rank in 0..cluster.len() {
        let (name, socket) = (cluster.host(rank), cluster.socket(rank));
        let (enter, address) = (net.enter(rank).join(" "), net.address(rank));
        script.push_str(&format!("{name}) exec {enter} sh -c \"$2\" ;;\n"));
        nodes.push_str(&format!(
            "[[node]]\nname = {name:?}\nagent = {socket:?}\naddress = {address:?}\nimages = {:?}\n",
            dir.join("images")
        ));
    }
    std::fs::write(&ssh, script + "esac\n").unwrap();
    std::fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(&file, nodes).unwrap();
    let shown = |path: &Path| path.display().to_string();
    let (address, agent) = (net.address(0), shown(cluster.socket(0)));
    let words = ["--start", "ssh", "--address", &address, "--agent", &agent, "--ssh-command"];
    let mut words: Vec<String> = words.map(ToOwned::to_owned).to_vec();
    words.extend([shown(&ssh), "--nodes".to_owned(), shown(&file)]);
    words
}
