//! The second demonstration: a node of an unmodified MPI program is lost, and all ranks go back to
//! the images that the nodes hold in memory. No file is written.

use crate::run::{Launched, launch};
use crate::timeline::Timeline;
use anyhow::{Context as _, Result, bail, ensure};
use ftb_client::{Client, Delivery, Received, Start, event::now_ns};
use ftb_tests::cluster::{Cluster, Plan};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

const NODES: usize = 5;
/// The node that is lost, by rank.
const VICTIM: usize = 2;
const RANKS: &str = "4";
/// The program: heat on a plate; in its middle it waits for a file, in step.
const PROGRAM: &str = include_str!("../../../launcher/tests/stencil.c");
/// Interval at which the state of the launcher is read.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The request by which the ranks go on from a set.
const RESTORE: &str = "FTB_JL_LAUNCH";
/// How long the job goes on after the recovery before it may come to its end.
const GOES_ON: Duration = Duration::from_secs(1);

/// What a run has printed.
#[derive(Default)]
struct Printed {
    results: BTreeSet<String>,
    /// When all ranks went on after a pause, Unix nanoseconds.
    went_on_ns: Vec<u64>,
}

/// Where it happens.
struct Scene {
    cluster: Cluster,
    program: PathBuf,
}

impl Scene {
    async fn start() -> Result<Self> {
        let cluster = Plan::new(NODES, 2).start().await?;
        let (source, program) = (cluster.dir().join("plate.c"), cluster.dir().join("plate"));
        std::fs::write(&source, PROGRAM)?;
        let mut compile = Command::new("mpicc.mpich");
        let compiled = compile.arg("-O2").arg(&source).arg("-o").arg(&program).status().await;
        let compiled = compiled.context("mpicc.mpich (Debian's package libmpich-dev has it)")?;
        ensure!(compiled.success(), "mpicc.mpich failed");
        Ok(Self { cluster, program })
    }

    fn gate(&self) -> PathBuf {
        self.cluster.dir().join("gate")
    }

    /// Starts the program in pods that are saved in memory.
    fn run(&self, job: &str) -> Result<Launched> {
        launch(&self.cluster, job, |command| {
            command
                .args(["-n", RANKS, "--hosts", "node[01-04]", "--spares", "node05"])
                .args(["--backend", "criu", "--checkpoint-every", "never"])
                .args(["--memory", "xor:4", "--memory-every", "2s", "--"])
                .arg(&self.program)
                .args(["400", "64", "256", &self.gate().display().to_string(), "2000"]);
        })
    }

    /// The state of the launcher; null before the first one.
    fn state(&self, job: &str) -> serde_json::Value {
        let path = self.cluster.dir().join("ftb/jobs").join(job).join("state.json");
        serde_json::from_slice(&std::fs::read(path).unwrap_or_default()).unwrap_or_default()
    }

    /// Whether the job was restarted since that start, and runs.
    fn is_whole_again(&self, job: &str, start: u64) -> bool {
        let state = self.state(job);
        let (open, job) = (&state["jl"]["open"], &state["jl"]["job"]);
        open.is_null() && job["incarnation"].as_u64() > Some(start) && job["met"] == true
    }

    /// Waits until the program waits in its middle and a set begun since then counts: the second
    /// new one. Returns it and the process id of the launch agent of the node that is to be lost.
    async fn protected(&self, job: &str, run: &mut Launched) -> Result<(String, Pid)> {
        let victim = self.cluster.host(VICTIM);
        let (mut seen, mut last) = (0, None);
        loop {
            let state = self.state(job);
            let set = state["jl"]["job"]["memory"]["set"].as_str().map(str::to_owned);
            let pid = state["nlas"][victim].as_i64().and_then(|pid| i32::try_from(pid).ok());
            let reached = self.gate().with_extension("reached").exists();
            if reached && set.is_some() && set != last {
                last.clone_from(&set);
                seen += 1;
            }
            if let (3.., Some(set), Some(pid), true) =
                (seen, set, pid, state["jl"]["open"].is_null())
            {
                return Ok((set, Pid::from_raw(pid)));
            }
            if run.child.try_wait()?.is_some() {
                bail!("the job ended early; ftb-launch said:\n{}", run.said());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Images of the job in files.
    fn images(&self) -> Vec<PathBuf> {
        let (mut folders, mut found) = (vec![self.cluster.dir().to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
                let path = entry.path();
                match path.extension().is_some_and(|of| of == "img") {
                    true => found.push(path),
                    false if path.is_dir() => folders.push(path),
                    false => {}
                }
            }
        }
        found
    }
}

/// Waits for the end; returns what all ranks have printed.
async fn finished(mut run: Launched) -> Result<Printed> {
    let mut printed = Printed::default();
    while let Some(line) = run.lines.next_line().await? {
        let mut words = line.split(' ');
        match (words.next(), words.next().map(str::parse::<u64>)) {
            (Some("stood"), Some(Ok(us))) => printed.went_on_ns.push(us * 1000),
            (Some("result"), _) => drop(printed.results.insert(line)),
            _ => {}
        }
    }
    let status = run.child.wait().await?;
    ensure!(status.success(), "the job ended with {status}; ftb-launch said:\n{}", run.said());
    Ok(printed)
}

/// Kills a node of a job that is saved in memory; `true`: the results are those of a calm run.
pub(crate) async fn play() -> Result<bool> {
    let scene = Scene::start().await?;
    println!("five agents as a tree; an unmodified MPI program in pods, {RANKS} ranks on 4 nodes");
    std::fs::write(scene.gate(), "")?;
    let expected = finished(scene.run("calm")?).await?.results;
    std::fs::remove_file(scene.gate())?;
    let _ = std::fs::remove_file(scene.gate().with_extension("reached"));
    println!("\nthe same again with --memory xor:4 --memory-every 2s; then a node dies\n");
    let mut run = scene.run("storm")?;
    let (set, agent) = scene.protected("storm", &mut run).await?;
    let Loss { mut timeline, killed_ns, restoring_ns } = lose(&scene, agent, &set).await?;
    tokio::time::sleep(GOES_ON).await;
    let images = scene.images();
    std::fs::write(scene.gate(), "")?;
    let (log, printed) = (run.log.clone(), finished(run).await?);
    let answer = printed.results;
    // A checkpoint is a pause too: only one that ends after the ranks were restored counts.
    let again_ns = printed.went_on_ns.into_iter().filter(|at_ns| *at_ns > restoring_ns).min();
    let again_ns = again_ns.context("rank 0 saw no pause")?;
    timeline.note(again_ns, "rank 0", "all ranks compute again");
    println!("{timeline}");
    let took = Duration::from_nanos(again_ns - killed_ns);
    println!("  node killed to all ranks computing again: {:.0} ms", took.as_secs_f64() * 1e3);
    println!("  images in files: {}", images.len());
    for (name, results) in [("without a fault", &expected), ("with the fault", &answer)] {
        println!("  answer {name}");
        results.iter().for_each(|line| println!("    {line}"));
    }
    let same = answer == expected && !answer.is_empty();
    println!("{}", if same { "the same to the bit" } else { "THEY DIFFER" });
    let said = std::fs::read_to_string(log)?;
    let from_memory = said.contains("(memory)") && said.contains("restarts from set");
    if !from_memory {
        println!("but the job did not go back to a set in memory:\n{said}");
    }
    Ok(same && images.is_empty() && from_memory)
}

/// The loss of a node, until the job is whole again.
struct Loss {
    timeline: Timeline,
    killed_ns: u64,
    /// When the request to go on from the set was published.
    restoring_ns: u64,
}

/// Kills the node, and follows what happens.
async fn lose(scene: &Scene, agent: Pid, set: &str) -> Result<Loss> {
    let client = Client::builder("demo").agent(scene.cluster.socket(0)).build()?;
    client.wait_connected(crate::DEADLINE).await?;
    let mut events = client.subscribe("event_space=ftb.*", Start::Now).await?;
    let (mut timeline, mut seen) = (Timeline::default(), BTreeSet::new());
    let start = scene.state("storm")["jl"]["job"]["incarnation"].as_u64().unwrap_or_default();
    let killed_ns = now_ns();
    kill(agent, Signal::SIGKILL)?;
    let victim = scene.cluster.host(VICTIM);
    timeline.note(killed_ns, "kill -9", format!("{victim}: its launch agent, and so its pod"));
    let mut restoring_ns = killed_ns;
    let mut look = tokio::time::interval(LOOK_EVERY);
    while !scene.is_whole_again("storm", start) {
        tokio::select! {
            _ = look.tick() => {}
            delivery = events.next() => match delivery.context("the subscription ended")? {
                Delivery::Event(received) => {
                    if received.event.name.as_str() == RESTORE {
                        restoring_ns = restoring_ns.max(received.event.time_ns);
                    }
                    let words = words(&received, set);
                    if let Some(words) = words.filter(|words| seen.insert(words.clone())) {
                        timeline.note(received.event.time_ns, &who(&received), words);
                    }
                }
                Delivery::Gap(gap) => timeline.note(now_ns(), "subscription", format!("{gap:?}")),
            },
        }
    }
    client.close(Duration::from_secs(2)).await.ok();
    Ok(Loss { timeline, killed_ns, restoring_ns })
}

fn who(received: &Received) -> String {
    match received.event.client_name.as_str() {
        "" => received.host.clone(),
        client => format!("{client} on {}", received.host),
    }
}

/// What an event says about the recovery.
fn words(received: &Received, set: &str) -> Option<String> {
    let event = &received.event;
    let (payload, host) = (String::from_utf8_lossy(&event.payload), &received.host);
    let bytes = event.tag("bytes").unwrap_or("?");
    Some(match event.name.as_str() {
        "FTB_JL_RESET" => "all ranks that live end".to_owned(),
        "FTB_NLA_RESET" => format!("the ranks of {host} have ended"),
        "FTB_NLA_COPIED" => {
            format!("{host} has computed the images of the lost node ({bytes} bytes)")
        }
        RESTORE => format!("all nodes restore their ranks from {set}"),
        "FTB_NLA_LAUNCHED" => format!("the ranks of {host} run"),
        "FTB_JL_EPISODE" => payload.into_owned(),
        _ => return None,
    })
}
