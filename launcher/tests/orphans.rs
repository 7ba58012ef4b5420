//! Conditions that must not stop a launcher, and its reports of waits: output that cannot be
//! written, a launcher that is killed early, an agent that hangs. Real processes on this host.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{binary, wait_for};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::{Site, nothing_left, run, start, text};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The exit code of a job that ended well and lost output.
const OUTPUT_LOST: i32 = 74;

fn full() -> Result<Stdio> {
    Ok(File::options().write(true).open("/dev/full")?.into())
}

fn closed() -> Result<Stdio> {
    let (_, to) = nix::unistd::pipe()?;
    Ok(to.into())
}

/// A full pipe without a reader.
fn stopped() -> Result<(File, Stdio)> {
    let (from, to) = nix::unistd::pipe()?;
    let mut to = File::from(to);
    fcntl(&to, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    while to.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&to, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok((from.into(), to.into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_output_cannot_be_written_ends_well_and_its_exit_code_says_so() -> Result<()> {
    let site = Site::without_examples(2).await?;
    let script = ["sh", "-c", "echo out; echo err >&2"];
    let job = |job: &str| site.launch(&["-n", "2", "--job", job], &script);

    let mut command = job("full-out");
    let output = run(command.stdout(full()?).take()).await?;
    let reported = text(&output.stderr);
    ensure!(output.status.code() == Some(OUTPUT_LOST), "{:?} {reported}", output.status);
    assert_eq!(reported.matches("standard output cannot be written").count(), 1, "{reported}");

    let output = run(job("full-err").stderr(full()?).take()).await?;
    assert_eq!(output.status.code(), Some(OUTPUT_LOST));
    assert_eq!(text(&output.stdout), "out\nout\n");

    // As `2>&1 | head` leaves it.
    let output = run(job("closed").stdout(closed()?).stderr(closed()?).take()).await?;
    assert_eq!(output.status.code(), Some(OUTPUT_LOST));

    let (_reader, pipe) = stopped()?;
    let mut silent = site.launch(&["-n", "2", "--job", "stopped"], &["true"]);
    let output = run(silent.stderr(pipe).take()).await?;
    assert_eq!(output.status.code(), Some(OUTPUT_LOST));

    // A failure of the program, or of the command line, counts more.
    let mut fails = site.launch(&["-n", "1", "--job", "fails"], &["sh", "-c", "echo x; exit 7"]);
    let output = run(fails.stdout(full()?).stderr(full()?).take()).await?;
    assert_eq!(output.status.code(), Some(7));
    let output = run(site.command(&["kill", "unknown"]).stderr(full()?).take()).await?;
    assert_eq!(output.status.code(), Some(64));

    let left: Vec<_> = fs::read_dir(site.jobs.path())?.collect();
    assert!(left.is_empty(), "{left:?}");
    nothing_left("FTB_JOB_ID=").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_begins_when_the_job_has_ended_gets_all_output() -> Result<()> {
    let site = Site::without_examples(1).await?;
    // 241,788 bytes: more than the pipe of stdout holds, less than a node may send unprinted, so
    // the job ends although nothing is read.
    let script = "i=0; while [ $i -lt 12000 ]; do i=$((i+1)); echo line $i; done";
    let mut command = site.launch(&["-n", "2"], &["sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().context("no stderr")?;
    let stdout = child.stdout.take().context("no stdout")?;
    let lines = tokio::task::spawn_blocking(move || {
        // Nothing reads stdout before: an open stderr is needed to the end.
        let mut stderr = BufReader::new(stderr);
        said(&mut stderr, "waiting for the ranks' output to be printed since ")?;
        let lines = BufReader::new(stdout).lines().count();
        std::io::copy(&mut stderr, &mut std::io::sink())?;
        anyhow::Ok(lines)
    })
    .await??;
    assert_eq!(lines, 24_000);
    ensure!(child.wait()?.success(), "output is not lost");
    Ok(())
}

/// Takes a command out of a chain of calls.
trait Take {
    fn take(&mut self) -> Command;
}

impl Take for Command {
    fn take(&mut self) -> Command {
        std::mem::replace(self, Self::new("true"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_launcher_is_gone_is_killed_without_another_launcher() -> Result<()> {
    let site = Site::new(2).await?;
    let mut launcher =
        site.counting("left", &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("left").await?;
    launcher.kill()?;
    launcher.wait()?;
    let killed = run(site.command(&["kill", "left", "--json"])).await?;
    ensure!(killed.status.success(), "{}", text(&killed.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&killed.stdout)?;
    assert_eq!(answer["outcome"], "Done", "{answer}");
    nothing_left("FTB_JOB_ID=left").await?;
    let again = run(site.command(&["kill", "left"])).await?;
    assert_eq!(again.status.code(), Some(64), "{}", text(&again.stderr));
    Ok(())
}

/// Launch agents that do not begin before a gate is open.
struct Gated<'a> {
    site: &'a Site,
    program: PathBuf,
}

impl<'a> Gated<'a> {
    fn new(site: &'a Site) -> Result<Self> {
        let program = site.cluster.dir().join("gated-nla");
        let nla = binary("ftb-launcher", "ftb-nla")?;
        let dir = site.cluster.dir().display();
        let script = format!(
            "#!/bin/sh\necho $$ >> {dir}/started\n\
             while [ ! -e {dir}/gate ]; do sleep 0.02; done\nexec {} \"$@\"\n",
            nla.display()
        );
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(Self { site, program })
    }

    /// Starts a job, and waits until its launcher says what it waits for. Its stderr goes on to be
    /// read.
    async fn launch(&self, job: &str) -> Result<Child> {
        let program = self.program.display().to_string();
        let options = ["-n", "2", "--job", job, "--nla", &program];
        let mut command = self.site.launch(&options, &["sh", "-c", "echo rank $FTB_RANK"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        tokio::task::spawn_blocking(move || {
            said(stderr, "ftb-launch: waiting for start 1: gather (node[01-02]) since ")
        })
        .await??;
        Ok(child)
    }

    fn started(&self) -> Result<Vec<Pid>> {
        let text = fs::read_to_string(self.site.cluster.dir().join("started"))?;
        text.lines().map(|line| Ok(Pid::from_raw(line.parse()?))).collect()
    }
}

/// Reads lines until one has these words.
fn said(from: impl std::io::Read, words: &str) -> Result<()> {
    let mut all = String::new();
    for line in BufReader::new(from).lines() {
        let line = line?;
        if line.contains(words) {
            return Ok(());
        }
        all = format!("{all}{line}\n");
    }
    anyhow::bail!("never said {words:?}:\n{all}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_killed_before_its_launch_agents_are_up_is_taken_over_at_once() -> Result<()> {
    for job in ["none-began", "all-began"] {
        let site = Site::without_examples(2).await?;
        let gated = Gated::new(&site)?;
        let mut launcher = gated.launch(job).await?;
        launcher.kill()?;
        launcher.wait()?;
        if job == "none-began" {
            for pid in gated.started()? {
                kill(pid, Signal::SIGKILL)?;
            }
        }
        let started = gated.started()?.len();
        let attached = start(site.command(&["attach", job]));
        wait_for("launch agents to be started again", async || {
            Ok((gated.started()?.len() == started + 2).then_some(()))
        })
        .await?;
        site.release()?;
        let output = attached.await??;
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{job}: {:?} {err}", output.status);
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["rank 0", "rank 1"], "{job}: {err}");
        nothing_left(&format!("FTB_JOB_ID={job}")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_waits_for_its_agent_says_so() -> Result<()> {
    let site = Site::without_examples(1).await?;
    site.cluster.signal(0, Signal::SIGSTOP)?;
    let mut command = site.launch(&["-n", "1"], &["true"]);
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().context("no stderr")?;
    let words = format!("waiting for the agent at {} since ", site.cluster.socket(0).display());
    let heard = tokio::task::spawn_blocking(move || said(stderr, &words)).await?;
    site.cluster.signal(0, Signal::SIGCONT)?;
    child.wait()?;
    heard
}
