//! A rolling upgrade: sixteen real agents of the previous release are replaced one by one under a
//! steady load, while programs of the previous release run on.
//!
//! The previous release is built from the history by `tests/previous/build.sh`, once.
#![allow(clippy::unwrap_used)]

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Cluster, Plan, binary, outside_cargo};
use ftb_tests::load::{Load, LoadPlan};
use ftb_tests::skip::skip;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const AGENTS: usize = 16;
const FANOUT: u32 = 4;
/// Publishers, each on an agent of its own, and what each publishes: 1,000 events/s.
const PUBLISHERS: usize = 10;
const PER_S: u32 = 100;
/// Events of each publisher between two upgrades.
const EVENTS_BETWEEN: u64 = 100;
/// Agents say goodbye when they are replaced: no time decides. Long ones leave unoptimised programs
/// in peace on a busy machine.
const DETECTION: &str = "[detection]\nsearch = \"300ms\"\nprobe = \"500ms\"\nsilence = \"30s\"\n\
                         dial = \"10s\"\n[limits]\nhello = \"30s\"\n";
/// Gaps of each subscriber that are shown.
const GAPS_SHOWN: usize = 3;
/// Exit status of the script where there can be no previous release; its line says why.
const SKIPPED: i32 = 77;

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The folder with the previous release; `None`, and a line, where there can be none.
fn previous() -> Result<Option<PathBuf>> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("the test runs outside a target folder")?;
    let mut command = Command::new(at("previous/build.sh"));
    command.arg(target.join("previous"));
    let output = outside_cargo(&mut command).output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.code() == Some(SKIPPED) {
        skip(&said);
        return Ok(None);
    }
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(said.into()))
}

/// A program of the previous release; it ends with the value.
struct Program {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts it and waits until it is ready.
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("it has an output")?;
        let mut program = Self { child, output: BufReader::new(output) };
        let mut line = String::new();
        program.output.read_line(&mut line)?;
        ensure!(line == "ready\n", "{command:?} said {line:?}");
        Ok(program)
    }

    /// What it says in the end. It must have received all that it has published, once.
    fn check(mut self) -> Result<u64> {
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        ensure!(self.child.wait()?.success(), "{said}");
        let number = said.strip_prefix("published ").and_then(|rest| rest.split(',').next());
        let number: u64 = number.and_then(|n| n.parse().ok()).context(said.clone())?;
        let perfect = format!("published {number}, last {number}, doubled 0, lost 0\n");
        ensure!(said == perfect && number > 0, "{said}");
        Ok(number)
    }
}

/// A C program that links the static library of the previous release.
fn c_program(previous: &Path, cluster: &Cluster, rank: usize, stop: &Path) -> Result<Program> {
    let program = cluster.dir().join("old-program");
    let built = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(at("tests/upgrade/program.c"))
        .arg("-I")
        .arg(previous.join("include"))
        .arg(previous.join("libftb.a"))
        .args(["-lpthread", "-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"])
        .output()?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(program);
    Program::start(command.arg(stop).env("FTB_AGENT_SOCKET", cluster.socket(rank)))
}

/// A Python program with the package of the previous release.
fn python_program(previous: &Path, cluster: &Cluster, rank: usize, stop: &Path) -> Result<Program> {
    let mut command = Command::new("python3");
    command.arg(at("tests/upgrade/program.py")).arg(cluster.socket(rank)).arg(stop);
    Program::start(command.env("PYTHONPATH", previous.join("python")))
}

/// Which program each agent is: a link that its next start follows.
struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// All agents start as `agent`.
    fn new(cluster: &mut Cluster, agent: &Path) -> Result<Self> {
        let binaries = Self { folder: cluster.dir().to_owned() };
        for rank in 0..cluster.len() {
            binaries.set(rank, agent)?;
            let script = binaries.folder.join(format!("start-{rank}"));
            let link = binaries.link(rank);
            // With a journal, as its unit says. Its first argument is the program that it replaces.
            let state = binaries.folder.join(format!("state-{rank}"));
            fs::create_dir(&state)?;
            let (state, link) = (state.display(), link.display());
            let text =
                format!("#!/bin/sh\nshift\nexport STATE_DIRECTORY={state}\nexec {link} \"$@\"\n");
            fs::write(&script, text)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
            cluster.through(rank, &[script.display().to_string()]);
        }
        Ok(binaries)
    }

    fn link(&self, rank: usize) -> PathBuf {
        self.folder.join(format!("agent-{rank}"))
    }

    /// The next start of that agent is this program.
    fn set(&self, rank: usize, agent: &Path) -> Result<()> {
        let link = self.link(rank);
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        Ok(symlink(agent, link)?)
    }
}

/// The program that the agent of that rank runs.
fn program_of(cluster: &Cluster, rank: usize) -> Result<PathBuf> {
    let pid = cluster.pid(rank).context("it runs")?;
    Ok(fs::read_link(format!("/proc/{pid}/exe"))?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "builds the release before: make test-long"]
async fn a_rolling_upgrade_loses_and_doubles_no_event() -> Result<()> {
    let Some(previous) = previous()? else { return Ok(()) };
    let (old, new) =
        (previous.join("ftb-agent"), fs::canonicalize(binary("ftb-agent", "ftb-agent")?)?);
    let mut cluster = Plan::new(AGENTS, FANOUT).extra(DETECTION).prepare()?;
    let binaries = Binaries::new(&mut cluster, &old)?;
    for rank in 0..AGENTS {
        cluster.run(rank)?;
    }
    cluster.wait_wanted().await?;
    ensure!(program_of(&cluster, 0)? == fs::canonicalize(&old)?);
    let stop = cluster.dir().join("stop");
    let programs =
        [c_program(&previous, &cluster, 5, &stop)?, python_program(&previous, &cluster, 6, &stop)?];
    let sockets = |ranks: &[usize]| ranks.iter().map(|r| cluster.socket(*r).to_owned()).collect();
    let publishers: Vec<usize> =
        (0..PUBLISHERS).map(|number| number * AGENTS / PUBLISHERS).collect();
    let subscribers = [0, 7, 15];
    let plan = LoadPlan {
        publishers: sockets(&publishers),
        per_s: PER_S,
        subscribers: sockets(&subscribers),
    };
    let load = Load::start(plan).await?;
    cluster.must(load.wait_flow(EVENTS_BETWEEN, |_| true, |_| true).await).await;
    // Leaves first, the acting root last: the log changes hands between releases twice.
    for rank in (0..AGENTS).rev() {
        cluster.wait_safe().await?;
        let stopped = cluster.stop(rank).await?;
        ensure!(stopped.success(), "{stopped}: {}", cluster.log(rank));
        binaries.set(rank, &new)?;
        cluster.run(rank)?;
        cluster.wait_safe().await?;
        ensure!(program_of(&cluster, rank)? == new);
        cluster.must(load.wait_flow(EVENTS_BETWEEN, |_| true, |_| true).await).await;
    }
    cluster.wait_wanted().await?;
    let gaps: Vec<_> =
        load.readers().iter().map(|reader| reader.ledger().gaps().to_vec()).collect();
    let account = load.finish().await;
    let account = cluster.must(account).await;
    let faults = account.all_faults();
    for (reader, gaps) in gaps.iter().enumerate() {
        gaps.iter().take(GAPS_SHOWN).for_each(|gap| println!("  subscriber {reader}: {gap:?}"));
    }
    ensure!(faults.is_none(), "{account:#?}\n{}", cluster.logs());
    fs::write(&stop, "")?;
    for program in programs {
        let number = program.check().with_context(|| cluster.logs())?;
        println!("an old program has published and received {number} events");
    }
    println!("the load: {} events", account.sent.iter().sum::<u64>());
    Ok(())
}
