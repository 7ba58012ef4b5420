//! Nothing is left behind, however a job comes to its end: of every kind of thing that one has on a
//! host (`site/traces.rs`) it is looked by name whether something is there, for plain processes and
//! for pods.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Result, ensure};
use ftb_tests::cluster::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::criu_file;
use site::traces::{self, Before, Traces};
use site::{Site, run, text};
use std::process::{Child, Stdio};

/// A rank that has started another process, as scripts do.
const SCRIPT: &str = "sleep 1007 & wait";
/// The process that the script starts.
const SLEEPER: &str = "sleep 1007 ";

/// A job in its middle.
struct Job {
    site: Site,
    name: &'static str,
    launcher: Child,
    traces: Traces,
}

impl Job {
    /// Two ranks on two nodes, and whatever `backend` says.
    async fn start(site: Site, name: &'static str, backend: &str) -> Result<Self> {
        let before = Before::of_host()?;
        let arguments = ["-n", "2", "--job", name, "--orphan-grace", "4s", "--backend", backend];
        let mut command = site.launch(&arguments, &["sh", "-c", SCRIPT]);
        let launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        wait_for("both ranks to have started a child", async || {
            let known = ["node01", "node02"].iter().all(|node| site.nla_of(name, node).is_ok());
            Ok((known && traces::count(&site, SLEEPER) == 2).then_some(()))
        })
        .await?;
        let traces = before.traces(&site, name)?;
        ensure!(traces.has_pods() == (backend != "app"), "{backend}: pods or none");
        Ok(Self { site, name, launcher, traces })
    }

    fn kill_launcher(&mut self) -> Result<()> {
        self.launcher.kill()?;
        self.launcher.wait()?;
        Ok(())
    }

    /// Nothing is there any more, and after the next start of a job not even the directory of this
    /// one.
    async fn has_left_nothing(mut self) -> Result<()> {
        self.traces.gone().await?;
        self.launcher.wait()?;
        let next = run(self.site.launch(&["-n", "1", "-q"], &["true"])).await?;
        ensure!(next.status.success(), "{}", text(&next.stderr));
        self.traces.gone().await?;
        let dir = self.site.jobs.path().join(self.name);
        ensure!(!dir.exists(), "{} stays", dir.display());
        Ok(())
    }
}

async fn ends_by_itself_or_is_ended(backend: &str) -> Result<()> {
    let job = Job::start(Site::new(2).await?, "ended", backend).await?;
    job.site.ask(&["kill", "ended"]).await?;
    job.has_left_nothing().await
}

async fn its_launcher_is_killed(backend: &str) -> Result<()> {
    let mut job = Job::start(Site::new(2).await?, "orphaned", backend).await?;
    job.kill_launcher()?;
    job.has_left_nothing().await
}

async fn a_launch_agent_is_killed(backend: &str) -> Result<()> {
    let job = Job::start(Site::new(2).await?, "halved", backend).await?;
    kill(job.site.nla_of("halved", "node02")?, Signal::SIGKILL)?;
    job.has_left_nothing().await
}

async fn the_launcher_and_all_launch_agents_are_killed(backend: &str) -> Result<()> {
    let mut job = Job::start(Site::new(2).await?, "headless", backend).await?;
    let agents = ["node01", "node02"].map(|node| job.site.nla_of("headless", node));
    job.kill_launcher()?;
    for agent in agents {
        kill(agent?, Signal::SIGKILL)?;
    }
    job.has_left_nothing().await
}

/// Everything at once, guards too: no process can clean up, so named things stay until the next
/// launch agent starts on that host.
async fn everything_is_killed(backend: &str) -> Result<()> {
    let job = Job::start(Site::new(2).await?, "dead", backend).await?;
    let before = Pid::from_raw(i32::try_from(job.launcher.id())?);
    kill(before, Signal::SIGSTOP)?;
    let Job { site, name, mut launcher, traces } = job;
    let reaper = std::thread::spawn(move || launcher.wait());
    traces.kill_everything().await?;
    ensure!(reaper.join().is_ok_and(|ended| ended.is_ok()), "the launcher has ended");
    let left = traces.kinds_left()?;
    ensure!(left.contains("directory"), "nothing can have cleared it: {left:?}");
    let backend = backend.to_owned();
    let next = ["-n", "1", "-q", "--backend", &backend];
    let next = run(site.launch(&next, &["true"])).await?;
    ensure!(next.status.success(), "{}", text(&next.stderr));
    traces.gone().await?;
    ensure!(!site.jobs.path().join(name).exists(), "there was no set to start again from");
    Ok(())
}

async fn however_it_ends(backend: &str) -> Result<()> {
    ends_by_itself_or_is_ended(backend).await?;
    its_launcher_is_killed(backend).await?;
    a_launch_agent_is_killed(backend).await?;
    the_launcher_and_all_launch_agents_are_killed(backend).await?;
    everything_is_killed(backend).await
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_leave_nothing_behind_however_their_job_ends() -> Result<()> {
    however_it_ends("app").await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_nothing_behind_however_their_job_ends() -> Result<()> {
    let site = Site::new(2).await?;
    match criu_file(&site, "")? {
        Some(backend) => however_it_ends(&backend).await,
        None => Ok(()),
    }
}
