//! The launcher is killed in each phase of a migration, with real processes, and another takes the
//! job over. Each phase is held by stopping who would end it, and is known by the state on disk;
//! nothing here waits for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{Delivery, Start, Subscription};
use ftb_tests::cluster::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::{Site, nothing_left, text};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const JOB: &str = "phases";

/// A job that stays in its middle, and its launcher of now.
struct Held {
    site: Site,
    client: ftb_client::Client,
    launcher: Child,
    /// How many launchers there were.
    count: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
    }
}

impl Held {
    async fn new() -> Result<Self> {
        let site = Site::new(3).await?;
        // A stopped process must not count as lost while this machine is busy.
        let deadlines = site.jobs.path().join("deadlines.toml");
        std::fs::write(&deadlines, "silence = \"10m\"\n")?;
        let deadlines = deadlines.display().to_string();
        let options = ["--hosts", "node[01-02]", "--spares", "node03", "--deadlines", &deadlines];
        let command = site.counting(JOB, &options);
        let launcher = spawn(&site, command, 0)?;
        site.wait_met(JOB).await?;
        let client = ftb_client::Client::builder("test").agent(site.cluster.socket(0)).build()?;
        Ok(Self { site, client, launcher, count: 0 })
    }

    fn launcher(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.launcher.id())?), signal)?;
        Ok(())
    }

    fn agent(&self, node: &str, signal: Signal) -> Result<()> {
        kill(self.site.nla_of(JOB, node)?, signal)?;
        Ok(())
    }

    fn rank(&self, rank: u32, signal: Signal) -> Result<()> {
        Ok(kill(self.rank_pid(rank)?, signal)?)
    }

    /// Waits until these ranks stay in a read of their PMI socket, although their launch agent
    /// runs: they are in a barrier.
    async fn in_barrier(&self, ranks: &[u32]) -> Result<()> {
        let mut looks = 0;
        wait_for("ranks in a barrier", async || {
            let mut all = true;
            for rank in ranks {
                let dir = PathBuf::from(format!("/proc/{}", self.rank_pid(*rank)?));
                let environ = text(&std::fs::read(dir.join("environ"))?);
                let fd = environ.split('\0').find_map(|word| word.strip_prefix("PMI_FD="));
                let fd: u32 = fd.context("no PMI_FD")?.parse()?;
                let tasks = std::fs::read_dir(dir.join("task"))?.filter_map(Result::ok);
                let call = |task: std::fs::DirEntry| {
                    std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default()
                };
                // read or recvfrom
                let waits = ["0", "45"].map(|call| format!("{call} {fd:#x} "));
                let reads = |call: String| waits.iter().any(|wait| call.starts_with(wait));
                all &= tasks.map(call).any(reads);
            }
            looks = if all { looks + 1 } else { 0 };
            Ok((looks > 10).then_some(()))
        })
        .await
    }

    fn rank_pid(&self, rank: u32) -> Result<Pid> {
        let own = format!("FTB_RANK={rank}\0");
        let job = format!("FTB_JOB_ID={JOB}\0");
        let entries = std::fs::read_dir("/proc")?.filter_map(Result::ok);
        let of = |entry: std::fs::DirEntry| {
            let environ = text(&std::fs::read(entry.path().join("environ")).ok()?);
            let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let is =
                [&own, &job].iter().all(|word| environ.contains(*word)) && site::is_ours(&environ);
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some(Pid::from_raw(pid)).filter(|_| is && comm.trim_end() == "count")
        };
        entries.filter_map(of).next().context("no such rank")
    }

    /// Asks for the migration, and does not wait for what becomes of it.
    async fn ask_for_migration(&self, source: &str) -> Result<()> {
        let mut command = self.site.command(&["migrate", JOB, source]);
        let mut asker = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let started = wait_for("a migration", async || {
            let state = self.state()?;
            Ok(state["jl"]["open"]["workflow"]["Migration"].is_object().then_some(()))
        });
        let started = started.await;
        asker.kill()?;
        asker.wait()?;
        started
    }

    fn state(&self) -> Result<serde_json::Value> {
        let path = self.site.jobs.path().join(JOB).join("state.json");
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    async fn phase(&self, phase: &str) -> Result<()> {
        self.site.wait_phase(JOB, phase).await
    }

    async fn listen(&self) -> Result<Subscription> {
        let filter = format!("jobid={JOB}");
        Ok(self.client.subscribe(&filter, Start::Now).await?)
    }

    /// The launcher is killed in that phase, and not in another; what was held goes on; another
    /// launcher comes.
    async fn replace(
        &mut self,
        phase: &str,
        go_on: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        self.launcher.kill()?;
        self.launcher.wait()?;
        let open = &self.state()?["jl"]["open"];
        ensure!(open["phase"] == phase, "killed in {}, not in {phase}", open["phase"]);
        go_on(self)?;
        self.count += 1;
        self.launcher = spawn(&self.site, self.site.command(&["attach", JOB]), self.count)?;
        Ok(())
    }

    /// The migration that was open comes to its end, and its source becomes the spare of the next.
    async fn moved(&self, source: &str, target: &str) -> Result<()> {
        let words = format!("ranks 2 and 3 to be on {target}");
        let is_there = |status: &serde_json::Value| {
            status["nodes"][target]["ranks"] == serde_json::json!([2, 3])
        };
        self.site.wait_status(JOB, &words, is_there).await?;
        self.site.ask(&["usable", JOB, source]).await?;
        self.site.wait_spare(JOB, source).await?;
        // The ranks look up the addresses of those that moved at the next safe point, and need
        // their launch agents for it: afterwards a test may stop one.
        self.site.checkpoint(JOB).await
    }

    /// The output of all launchers.
    fn printed(&self, stream: &str) -> Result<String> {
        let path = |count| output(&self.site, count, stream);
        (0..=self.count).map(|count| Ok(std::fs::read_to_string(path(count))?)).collect()
    }
}

fn output(site: &Site, count: u32, stream: &str) -> PathBuf {
    site.jobs.path().join(format!("{stream}.{count}"))
}

fn spawn(site: &Site, mut command: Command, count: u32) -> Result<Child> {
    let file = |stream| File::create(output(site, count, stream));
    Ok(command.stdout(file("out")?).stderr(file("err")?).spawn()?)
}

/// Waits for an event of a launch agent, or of the launcher for one.
async fn heard(events: &mut Subscription, name: &str, node: &str) -> Result<()> {
    while let Some(delivery) = events.next().await {
        if let Delivery::Event(received) = delivery
            && received.event.name.as_str() == name
            && [received.event.tag("node"), received.event.tag("target")].contains(&Some(node))
        {
            return Ok(());
        }
    }
    anyhow::bail!("the agent has ended the subscription")
}

/// The request is repeated until a launcher answers it, and moves the ranks once.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_no_launcher_has_heard_is_done_by_the_next() -> Result<()> {
    let mut held = Held::new().await?;
    let expected = held.site.undisturbed().await?;
    held.launcher.kill()?;
    held.launcher.wait()?;
    let mut events = held.listen().await?;
    let mut command = held.site.command(&["migrate", JOB, "node02", "--timeout", "2m"]);
    let asker = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    while let Some(delivery) = events.next().await {
        let is_request = |name: &str| name == "FTB_JOB_REQUEST";
        if matches!(delivery, Delivery::Event(got) if is_request(got.event.name.as_str())) {
            break;
        }
    }
    held.count += 1;
    held.launcher = spawn(&held.site, held.site.command(&["attach", JOB]), held.count)?;
    let asked = tokio::task::spawn_blocking(|| asker.wait_with_output()).await??;
    ensure!(asked.status.success(), "{}", text(&asked.stderr));
    let answer = text(&asked.stdout);
    ensure!(answer.contains("ranks 2,3 moved from node02 to node03"), "{answer}");
    held.site.release()?;
    let status = held.launcher.wait()?;
    let (out, err) = (held.printed("out")?, held.printed("err")?);
    ensure!(status.success(), "{status}\n{err}");
    ensure!(out.lines().any(|line| line == expected), "{out}\n{err}");
    ensure!(err.matches("ranks 2,3 moved").count() <= 1, "{err}");
    nothing_left(&format!("FTB_JOB_ID={JOB}\0")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_is_killed_in_any_phase_of_a_migration_is_replaced() -> Result<()> {
    let mut held = Held::new().await?;
    let expected = held.site.undisturbed().await?;
    let (mut source, mut target) = ("node02", "node03");

    // A rank of the source does not come to its safe point.
    held.rank(2, Signal::SIGSTOP)?;
    held.ask_for_migration(source).await?;
    held.phase("leave").await?;
    held.replace("leave", |held| held.rank(2, Signal::SIGCONT)).await?;
    held.moved(source, target).await?;
    (source, target) = (target, source);

    // The target fetches nothing.
    held.agent(target, Signal::SIGSTOP)?;
    held.ask_for_migration(source).await?;
    held.phase("copy").await?;
    held.replace("copy", |held| held.agent("node02", Signal::SIGCONT)).await?;
    held.moved(source, target).await?;
    (source, target) = (target, source);

    // It has fetched all, and starts nothing.
    held.agent(target, Signal::SIGSTOP)?;
    let mut events = held.listen().await?;
    held.ask_for_migration(source).await?;
    held.phase("copy").await?;
    // The state is on disk before the event is published.
    heard(&mut events, "FTB_JL_COPY", target).await?;
    held.launcher(Signal::SIGSTOP)?;
    held.agent(target, Signal::SIGCONT)?;
    heard(&mut events, "FTB_NLA_COPIED", target).await?;
    held.agent(target, Signal::SIGSTOP)?;
    held.launcher(Signal::SIGCONT)?;
    held.phase("restart").await?;
    held.replace("restart", |held| held.agent("node03", Signal::SIGCONT)).await?;
    held.moved(source, target).await?;
    (source, target) = (target, source);

    // The agent of the ranks that stay does not tell that they are in the barrier.
    held.agent("node01", Signal::SIGSTOP)?;
    held.ask_for_migration(source).await?;
    held.phase("join").await?;
    held.replace("join", |held| held.agent("node01", Signal::SIGCONT)).await?;
    held.moved(source, target).await?;
    (source, target) = (target, source);

    // All are in the barrier, and one of them does not go on.
    held.agent("node01", Signal::SIGSTOP)?;
    held.ask_for_migration(source).await?;
    held.phase("join").await?;
    held.launcher(Signal::SIGSTOP)?;
    held.agent("node01", Signal::SIGCONT)?;
    held.in_barrier(&[0, 1]).await?;
    held.rank(0, Signal::SIGSTOP)?;
    held.launcher(Signal::SIGCONT)?;
    held.phase("resume").await?;
    held.replace("resume", |held| held.rank(0, Signal::SIGCONT)).await?;
    held.moved(source, target).await?;

    held.site.release()?;
    let status = held.launcher.wait()?;
    let (out, err) = (held.printed("out")?, held.printed("err")?);
    ensure!(status.success(), "{status}\n{err}");
    ensure!(out.lines().any(|line| line == expected), "{out}\n{err}");
    ensure!(!err.contains("restarts from set") && !err.contains("is lost"), "{err}");
    nothing_left(&format!("FTB_JOB_ID={JOB}\0")).await
}
