//! Small clusters of real agents on loopback, for tests of every crate.
//!
//! Responsible for: real `ftb-agent` processes, each with a configuration, a socket and a log in a
//! folder of its own that goes away with the cluster; signals to them; waiting until they are one
//! tree. Not responsible for: what is published. Agents listen on addresses of a part of
//! 127.0.0.0/8 that no other process has ([`Part`]), or each in a network namespace of its own
//! ([`crate::netns`]).

use crate::netns::Net;
use anyhow::{Context as _, Result, bail, ensure};
use ftb_core::{Rank, tree};
use ftb_proto::v1::admin_client::AdminClient;
use ftb_proto::v1::{self, AgentRole, MemberState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where every agent of a cluster listens, on its own loopback address.
const PORT: u16 = 14451;
/// Where it serves metrics, if it does.
const METRICS_PORT: u16 = 9464;
/// Most agents of one cluster: what one random part of 127.0.0.0/8 has addresses for.
pub const AGENTS_MAX: usize = 250;
/// Random parts of 127.0.0.0/8 that are tried until one is free.
const PARTS_TRIED_MAX: u32 = 100;
/// Fresh clusters that are started until one has published nothing.
const QUIET_STARTS_MAX: usize = 20;
/// How long to wait for a condition before a test fails. Only a failing run waits that long: a
/// machine may be slow.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// How long an agent may take to answer before a failed test goes on without its state.
const STATE_MAX: Duration = Duration::from_secs(2);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Host names in rank order.
    pub hosts: Vec<String>,
    /// Children that the wanted tree gives one agent.
    pub fanout: u32,
    /// More top-level keys and tables of every agent's configuration.
    pub extra: String,
    /// Where each agent lives; loopback addresses of their own if empty.
    places: Vec<Place>,
    /// The agents have certificates.
    is_certified: bool,
    /// The agents serve metrics.
    is_monitored: bool,
}

/// Where an agent lives.
#[derive(Clone, Debug)]
struct Place {
    address: String,
    /// What its command line begins with.
    through: Vec<String>,
}

impl Plan {
    /// `n` hosts `node01`, `node02`, ..., with detection times that suit tests.
    pub fn new(n: usize, fanout: u32) -> Self {
        let hosts = (1..=n).map(|i| format!("node{i:02}")).collect();
        let extra = "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n".to_owned();
        Self { hosts, fanout, extra, places: Vec::new(), is_certified: false, is_monitored: false }
    }

    /// With each agent on a host of that network, in the same order.
    #[must_use]
    pub fn on(mut self, net: &Net) -> Self {
        let place = |host| Place {
            address: format!("{}:{PORT}", net.address(host)),
            through: net.enter(host),
        };
        self.places = (0..self.hosts.len()).map(place).collect();
        self
    }

    /// With mutual TLS: certificates of `ftbctl ca`.
    #[must_use]
    pub fn certified(mut self) -> Self {
        self.is_certified = true;
        self
    }

    /// With metrics at port 9464 of the address where each agent listens.
    #[must_use]
    pub fn monitored(mut self) -> Self {
        self.is_monitored = true;
        self
    }

    /// With other text at the end of every agent's configuration (default: short `[detection]`
    /// times).
    #[must_use]
    pub fn extra(mut self, text: &str) -> Self {
        text.clone_into(&mut self.extra);
        self
    }

    /// With other host names.
    #[must_use]
    pub fn hosts<S: Into<String>>(mut self, hosts: impl IntoIterator<Item = S>) -> Self {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Starts all agents and waits until they are one tree.
    ///
    /// # Errors
    /// An agent did not start or the tree did not form; the error has the logs.
    pub async fn start(self) -> Result<Cluster> {
        let mut cluster = self.prepare()?;
        for index in 0..cluster.agents.len() {
            cluster.run(index)?;
        }
        cluster.wait_whole().await?;
        Ok(cluster)
    }

    /// Starts the agents in rank order, each when those before it are one tree. The log of the
    /// cluster is empty then: an agent that is slow to find its place publishes that it moved, and
    /// the cluster is started anew.
    ///
    /// # Errors
    /// As [`Plan::start`]; or something was published in each of many attempts.
    pub async fn start_quietly(self) -> Result<Cluster> {
        for _ in 0..QUIET_STARTS_MAX {
            let mut cluster = self.clone().prepare()?;
            for index in 0..cluster.agents.len() {
                cluster.run(index)?;
                cluster.wait_whole().await?;
            }
            cluster.wait_wanted().await?;
            if cluster.status(0).await?.index == 0 {
                return Ok(cluster);
            }
        }
        bail!("something was published in each of {QUIET_STARTS_MAX} fresh clusters")
    }

    /// Writes the configurations and starts nothing.
    ///
    /// # Errors
    /// The agent's binary cannot be built or a file cannot be written.
    pub fn prepare(mut self) -> Result<Cluster> {
        ensure!(self.hosts.len() <= AGENTS_MAX, "at most {AGENTS_MAX} agents");
        let binary = binary("ftb-agent", "ftb-agent")?;
        let dir = tempfile::Builder::new().prefix("ftb-").tempdir()?;
        let mut part = None;
        if self.places.is_empty() {
            let part = part.insert(Part::claim(PORT, self.hosts.len())?);
            let place =
                |i| Place { address: format!("{}:{PORT}", part.address(i)), through: Vec::new() };
            self.places = (0..self.hosts.len()).map(place).collect();
        }
        let mut table = String::from("\n[addresses]\n");
        for (host, place) in self.hosts.iter().zip(&self.places) {
            writeln!(table, "\"{host}\" = \"{}\"", place.address)?;
        }
        if self.is_certified {
            certify(&self.hosts, dir.path())?;
        }
        let mut agents = Vec::new();
        for (host, place) in self.hosts.iter().zip(&self.places) {
            let agent = AgentProcess {
                host: host.clone(),
                socket: dir.path().join(format!("{host}.sock")),
                config: dir.path().join(format!("{host}.toml")),
                log: dir.path().join(format!("{host}.log")),
                through: place.through.clone(),
                child: None,
            };
            let tls = match self.is_certified {
                true => certified(host, dir.path()),
                false => String::new(),
            };
            let metrics = match self.is_monitored {
                true => format!("\n[metrics]\nlisten = {:?}\n", metrics_address(&place.address)),
                false => String::new(),
            };
            let text = format!(
                "cluster = \"test\"\ninsecure = {}\nthreads = 1\nfanout = {}\nmembers = \"{}\"\n\
                 host = \"{host}\"\nlisten = \"{}\"\nsocket = \"{}\"\n{}{table}{tls}{metrics}",
                !self.is_certified,
                self.fanout,
                self.hosts.join(","),
                place.address,
                agent.socket.display(),
                self.extra,
            );
            std::fs::write(&agent.config, text)?;
            agents.push(agent);
        }
        Ok(Cluster { agents, fanout: self.fanout, binary, dir, _part: part })
    }
}

/// Port 9464 beside the port of an address.
fn metrics_address(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!("{host}:{METRICS_PORT}")
}

/// Makes a CA and a certificate for each host, in a folder.
fn certify(hosts: &[String], dir: &Path) -> Result<()> {
    let ftbctl = binary("ftbctl", "ftbctl")?;
    let all = hosts.join(",");
    for words in [["init", "test"], ["issue", &all]] {
        let mut command = Command::new(&ftbctl);
        let output = command.args(["ca", "--dir"]).arg(dir.join("ca")).args(words).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ftbctl ca {words:?}: {errors}");
    }
    Ok(())
}

/// The table `[tls]` of a host.
fn certified(host: &str, dir: &Path) -> String {
    let file = |name: &str| dir.join("ca").join(name).display().to_string();
    let own = |kind: &str| file(&format!("hosts/{host}/agent.{kind}"));
    let (ca, cert, key) = (file("ca.pem"), own("pem"), own("key"));
    format!("\n[tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\n")
}

/// A /24 of 127.0.0.0/8 that no other process on this machine claims as long as this lives: neither
/// another test, nor what a test that was killed has left running.
#[derive(Debug)]
pub struct Part {
    prefix: String,
    _claim: TcpListener,
}

impl Part {
    /// One in which this number of addresses, from the first, are free at that port.
    ///
    /// # Errors
    /// There is none among many: there are no loopback addresses here but 127.0.0.1.
    pub fn claim(port: u16, addresses: usize) -> Result<Self> {
        let random = RandomState::new();
        for attempt in 0..PARTS_TRIED_MAX {
            let number = random.hash_one(attempt);
            let prefix = format!("127.{}.{}", 1 + number % 254, (number >> 32) % 256);
            let listen = |host: usize| TcpListener::bind((format!("{prefix}.{host}"), port));
            let Ok(claim) = listen(AGENTS_MAX + 1) else { continue };
            // Who was left behind by a test that was killed has no claim, but its address.
            if (1..=addresses).all(|host| listen(host).is_ok()) {
                return Ok(Self { prefix, _claim: claim });
            }
        }
        bail!("no part of 127.0.0.0/8 is free at port {port}: tried {PARTS_TRIED_MAX}")
    }

    /// The address of a host, counted from 0.
    pub fn address(&self, host: usize) -> String {
        format!("{}.{}", self.prefix, host + 1)
    }
}

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

/// The path of a binary of this workspace, built now if it is not up to date, in the profile of the
/// running test. `FTB_BIN_DIR` names a folder with finished binaries instead; a program that is no
/// test takes the binaries beside it.
///
/// # Errors
/// It cannot be built.
pub fn binary(package: &str, name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("FTB_BIN_DIR") {
        return Ok(PathBuf::from(dir).join(name));
    }
    let beside = std::env::current_exe()?.with_file_name(name);
    if beside.is_file() {
        return Ok(beside);
    }
    Ok(build(package, &["--bin", name])?.join(name))
}

/// The same command, ended by a signal when the thread that starts it ends, however that is: a
/// measurement that is killed leaves nothing running. (Needs util-linux.)
pub fn tied(command: &Command) -> Command {
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(key, value),
            None => tied.env_remove(key),
        };
    }
    tied
}

/// The path of an example program, built now if it is not up to date; in the directory `examples`
/// of `FTB_BIN_DIR` where that is set.
///
/// # Errors
/// It cannot be built.
pub fn example(package: &str, name: &str) -> Result<PathBuf> {
    let profile = match std::env::var_os("FTB_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => build(package, &["--example", name])?,
    };
    Ok(profile.join("examples").join(name))
}

/// The folder with the libraries of a package, built now if they are not up to date; `FTB_BIN_DIR`
/// where that is set.
///
/// # Errors
/// They cannot be built.
pub fn library(package: &str) -> Result<PathBuf> {
    match std::env::var_os("FTB_BIN_DIR") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => build(package, &["--lib"]),
    }
}

/// Builds in the profile of the running test; its folder.
fn build(package: &str, what: &[&str]) -> Result<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let test = std::env::current_exe()?;
    // .../target/PROFILE/deps/TEST
    let profile = test.ancestors().nth(2).context("the test runs outside a target folder")?;
    let _one = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", package]).args(what);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = outside_cargo(&mut command).current_dir(env!("CARGO_MANIFEST_DIR")).status()?;
    ensure!(built.success(), "cannot build {package} {what:?}");
    Ok(profile.to_owned())
}

/// Keeps from a command what cargo tells a test about its crate. Build scripts look at these
/// variables: a build out of a test and the next one from outside would each compile again what
/// depends on them.
pub fn outside_cargo(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let about = ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|word| name.starts_with(word));
        if about || name == "OUT_DIR" {
            command.env_remove(&*name);
        }
    }
    command
}
