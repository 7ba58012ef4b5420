//! What a cluster is made of: host names, addresses, and the configuration of each agent.

use super::part::{AGENTS_MAX, Part};
use super::programs::binary;
use super::{AgentProcess, Cluster};
use crate::netns::Net;
use anyhow::{Result, bail, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Where every agent of a cluster listens, on its own loopback address.
const PORT: u16 = 14451;
/// Where it serves metrics, if it does.
const METRICS_PORT: u16 = 9464;
/// Fresh clusters that are started until one has published nothing.
const QUIET_STARTS_MAX: usize = 20;

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

    /// Agents state conditions of their own hosts only, as `ftbctl init` has it.
    #[must_use]
    pub fn without_monitors(mut self) -> Self {
        self.extra.insert_str(0, "monitors = \"\"\n");
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
pub(super) fn metrics_address(address: &str) -> String {
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
