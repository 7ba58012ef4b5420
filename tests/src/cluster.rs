//! Small clusters of real agents on loopback, for tests of every crate.
//!
//! Responsible for: real `ftb-agent` processes, each with a configuration, a socket and a log in a
//! folder of its own that goes away with the cluster; signals to them; waiting until they are one
//! tree. Not responsible for: what is published. Agents listen on addresses of a part of
//! 127.0.0.0/8 that no other process has ([`Part`]), or each in a network namespace of its own
//! ([`crate::netns`]).

mod part;
mod plan;
mod programs;

pub use part::{AGENTS_MAX, Part};
pub use plan::Plan;
pub use programs::{binary, example, library, outside_cargo, tied};

use anyhow::{Context as _, Result, bail, ensure};
use ftb_core::{Rank, tree};
use ftb_proto::v1::admin_client::AdminClient;
use ftb_proto::v1::{self, AgentRole, MemberState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plan::metrics_address;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long to wait for a condition before a test fails. Only a failing run waits that long: a
/// machine may be slow.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// How long an agent may take to answer before a failed test goes on without its state.
const STATE_MAX: Duration = Duration::from_secs(2);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Agents of one cluster; all are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    agents: Vec<AgentProcess>,
    fanout: u32,
    binary: PathBuf,
    dir: TempDir,
    /// Of a cluster whose agents share this host's network.
    _part: Option<Part>,
}

#[derive(Debug)]
struct AgentProcess {
    host: String,
    socket: PathBuf,
    config: PathBuf,
    log: PathBuf,
    through: Vec<String>,
    child: Option<Child>,
}

impl Cluster {
    /// `n` agents that are one tree.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub async fn start(n: usize, fanout: u32) -> Result<Self> {
        Plan::new(n, fanout).start().await
    }

    /// How many agents it was planned with.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Whether it was planned with none.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// The folder of the cluster, for files of the test.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The host of the agent with that rank.
    pub fn host(&self, rank: usize) -> &str {
        &self.agents[rank].host
    }

    /// Where the clients of that agent attach.
    pub fn socket(&self, rank: usize) -> &Path {
        &self.agents[rank].socket
    }

    /// The configuration file of that agent; a change counts from its next start or reload.
    pub fn config(&self, rank: usize) -> &Path {
        &self.agents[rank].config
    }

    /// Where that agent listens for others.
    ///
    /// # Errors
    /// Its configuration cannot be read.
    pub fn address(&self, rank: usize) -> Result<String> {
        let text = std::fs::read_to_string(self.config(rank))?;
        let config: toml::Table = text.parse()?;
        let listen = config.get("listen").and_then(toml::Value::as_str);
        Ok(listen.context("a configuration of ours says where it listens")?.to_owned())
    }

    /// Where that agent serves metrics, if it does.
    ///
    /// # Errors
    /// As [`Cluster::address`].
    pub fn metrics_address(&self, rank: usize) -> Result<String> {
        Ok(metrics_address(&self.address(rank)?))
    }

    /// The next start of that agent goes through another program, which becomes it (`env`).
    pub fn through(&mut self, rank: usize, command: &[String]) {
        self.agents[rank].through.extend_from_slice(command);
    }

    /// What that agent has logged so far, over all its starts.
    pub fn log(&self, rank: usize) -> String {
        std::fs::read_to_string(&self.agents[rank].log).unwrap_or_default()
    }

    /// Starts the agent of that rank, which is not running.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn run(&mut self, rank: usize) -> Result<()> {
        let agent = &mut self.agents[rank];
        ensure!(agent.child.is_none(), "agent {} is running", agent.host);
        let log = std::fs::File::options().create(true).append(true).open(&agent.log)?;
        let binary = self.binary.as_os_str();
        let mut line = agent.through.iter().map(OsStr::new).chain([binary]);
        let child = Command::new(line.next().unwrap_or(binary))
            .args(line)
            .arg("--config")
            .arg(&agent.config)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        agent.child = Some(child);
        Ok(())
    }

    /// Kills the agent of that rank at once, as a crash does (SIGKILL), and reaps it.
    ///
    /// # Errors
    /// It is not running.
    pub fn crash(&mut self, rank: usize) -> Result<()> {
        let mut child = self.take(rank)?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Tells the agent of that rank to stop (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// It is not running, or does not stop.
    pub async fn stop(&mut self, rank: usize) -> Result<ExitStatus> {
        self.signal(rank, Signal::SIGTERM)?;
        let host = self.agents[rank].host.clone();
        let mut child = self.take(rank)?;
        let status =
            wait_for(&format!("agent {host} to stop"), async || Ok(child.try_wait()?)).await;
        if status.is_err() {
            child.kill()?;
            child.wait()?;
        }
        status
    }

    /// Sends a signal to the agent of that rank (SIGSTOP, SIGCONT, SIGHUP).
    ///
    /// # Errors
    /// It is not running.
    pub fn signal(&self, rank: usize, signal: Signal) -> Result<()> {
        let agent = &self.agents[rank];
        let child = agent.child.as_ref();
        let child = child.with_context(|| format!("agent {} is not running", agent.host))?;
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        Ok(())
    }

    /// The process id of the agent of that rank; `None` when it was not started, or ended.
    pub fn pid(&self, rank: usize) -> Option<u32> {
        self.agents[rank].child.as_ref().map(Child::id)
    }

    /// Whether the process of that rank runs.
    pub fn is_running(&mut self, rank: usize) -> bool {
        let child = self.agents[rank].child.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn take(&mut self, rank: usize) -> Result<Child> {
        let agent = &mut self.agents[rank];
        agent.child.take().with_context(|| format!("agent {} is not running", agent.host))
    }

    /// Asks the agent of that rank how it is.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn status(&self, rank: usize) -> Result<v1::StatusReply> {
        let mut admin = admin(self.socket(rank)).await?;
        Ok(admin.status(v1::StatusRequest {}).await?.into_inner())
    }

    /// Asks the agent of that rank for the tree.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn tree(&self, rank: usize) -> Result<v1::TreeReply> {
        let mut admin = admin(self.socket(rank)).await?;
        Ok(admin.tree(v1::TreeRequest { timeout_ms: Some(1000) }).await?.into_inner())
    }

    /// Waits until all agents that run are one tree, as each of them and its acting root see it.
    ///
    /// # Errors
    /// It did not become one within [`PATIENCE`]; the error has the logs.
    pub async fn wait_whole(&mut self) -> Result<()> {
        let running: Vec<usize> = (0..self.len()).filter(|rank| self.is_running(*rank)).collect();
        let Some(&lowest) = running.first() else { bail!("no agent is running") };
        let whole = wait_for("one tree", async || {
            for &rank in &running {
                let Ok(status) = self.status(rank).await else { return Ok(None) };
                let is_root = status.role() == AgentRole::Root;
                if is_root != (rank == lowest) || (!is_root && status.parent.is_none()) {
                    return Ok(None);
                }
            }
            let Ok(tree) = self.tree(lowest).await else { return Ok(None) };
            let up = tree.nodes.iter().filter(|node| node.state() == MemberState::Up).count();
            Ok((tree.complete && up == running.len()).then_some(()))
        });
        whole.await.with_context(|| self.logs())
    }

    /// Waits until all agents that run are one tree and the acting root's standby has the whole
    /// log: from here on any one of them may die without a loss.
    ///
    /// # Errors
    /// As [`Cluster::wait_whole`].
    pub async fn wait_safe(&mut self) -> Result<()> {
        self.wait_whole().await?;
        let running: Vec<usize> = (0..self.len()).filter(|rank| self.is_running(*rank)).collect();
        let safe = wait_for("a standby that has the log", async || {
            let Some(&root) = running.first() else { return Ok(None) };
            let Ok(tree) = self.tree(root).await else { return Ok(None) };
            let standby = tree.nodes.iter().find(|node| node.role() == AgentRole::Standby);
            let Some(standby) = standby else { return Ok((running.len() == 1).then_some(())) };
            let status = self.status(standby.rank as usize).await;
            Ok(status.is_ok_and(|status| status.role() == AgentRole::Standby).then_some(()))
        });
        safe.await.with_context(|| self.logs())
    }

    /// Waits until all agents run and are the wanted tree, with its standby.
    ///
    /// # Errors
    /// As [`Cluster::wait_whole`].
    pub async fn wait_wanted(&mut self) -> Result<()> {
        let wanted = wait_for("the wanted tree", async || {
            let Ok(tree) = self.tree(0).await else { return Ok(None) };
            let wanted = tree.nodes.iter().all(|node| {
                let parent = tree::wanted_parent(Rank(node.rank), self.fanout);
                node.state() == MemberState::Up && node.parent == parent.map(|rank| rank.0)
            });
            Ok((tree.complete && wanted).then_some(()))
        });
        wanted.await.with_context(|| self.logs())?;
        self.wait_safe().await
    }

    /// Waits until all other agents are one tree without that one, which is stopped or cut off.
    ///
    /// # Errors
    /// As [`Cluster::wait_whole`].
    pub async fn wait_left(&self, gone: usize) -> Result<()> {
        let others: Vec<usize> = (0..self.len()).filter(|rank| *rank != gone).collect();
        let left = wait_for("a tree without one agent", async || {
            let Some(&root) = others.first() else { return Ok(None) };
            let Ok(tree) = self.tree(root).await else { return Ok(None) };
            let parent_of = |rank: &usize| tree.nodes.get(*rank).map(|node| node.parent);
            let at_home = others.iter().all(|rank| match parent_of(rank) {
                Some(parent) if *rank == root => parent.is_none(),
                Some(parent) => parent.is_some_and(|parent| parent as usize != gone),
                None => false,
            });
            Ok((tree.complete && at_home).then_some(()))
        });
        left.await.with_context(|| self.logs())
    }

    /// The value of a result.
    ///
    /// # Panics
    /// With the error, and with states and logs of all agents: a test that stands still says what
    /// waits for what.
    pub async fn must<T>(&self, result: Result<T>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => panic!("{error:?}\n{}{}", self.states().await, self.logs()),
        }
    }

    /// Role, parent, log, children, clients and counters of each agent that answers.
    async fn states(&self) -> String {
        let mut text = String::new();
        for (rank, agent) in self.agents.iter().enumerate() {
            let host = &agent.host;
            let asked = tokio::time::timeout(STATE_MAX, self.status(rank)).await;
            let Ok(Ok(status)) = asked else {
                let _ = writeln!(text, "--- {host} (rank {rank}) does not answer");
                continue;
            };
            let children: Vec<_> = status.children.iter().map(|child| &child.host).collect();
            let counters: BTreeMap<_, _> =
                status.counters.iter().filter(|(_, count)| **count > 0).collect();
            let _ = writeln!(
                text,
                "--- {host} (rank {rank}): {:?} below {:?}, epoch {} of {:x}, committed {}, \
                 journal {:?}, children {children:?}\n  clients {:?}\n  {counters:?}",
                status.role(),
                status.parent,
                status.epoch,
                status.epoch_root,
                status.index,
                status.journal,
                status.clients,
            );
        }
        text
    }

    /// The ends of all logs, for the message of a failed test.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for (rank, agent) in self.agents.iter().enumerate() {
            let log = self.log(rank);
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(30)..].join("\n");
            text.push_str(&format!("--- {} (rank {rank})\n{end}\n", agent.host));
        }
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().filter_map(|agent| agent.child.as_mut()) {
            // It may have ended by itself; there is nothing to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The admin service behind a socket.
///
/// # Errors
/// No agent listens there.
pub async fn admin(socket: &Path) -> Result<AdminClient<tonic::transport::Channel>> {
    let uri = format!("unix://{}", socket.display());
    let channel = tonic::transport::Endpoint::from_shared(uri)?.connect().await?;
    Ok(AdminClient::new(channel))
}

/// Looks at a condition until it gives something.
///
/// # Errors
/// The condition failed, or gave nothing within [`PATIENCE`].
pub async fn wait_for<T>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    wait_while_moving(what, async || Ok(condition().await?.ok_or(0))).await
}

/// The same where much has to happen, one after the other: what the condition gives for "not yet"
/// says how far things are, and patience begins anew whenever that has changed. So a machine may be
/// as slow as it likes.
///
/// # Errors
/// The condition failed, or nothing moved for [`PATIENCE`].
pub async fn wait_while_moving<T>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<std::result::Result<T, u64>>,
) -> Result<T> {
    let (mut since, mut known) = (Instant::now(), None);
    loop {
        match condition().await? {
            Ok(found) => return Ok(found),
            Err(far) if known != Some(far) => (since, known) = (Instant::now(), Some(far)),
            Err(_) => {}
        }
        ensure!(since.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
