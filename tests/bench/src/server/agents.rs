//! Trees of agents on loopback: their configuration, their certificates, their start.

use super::{Started, agent};
use crate::load::{Endpoint, Load};
use crate::process::{Ready, Server, free_ports};
use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room beyond the load in the bounds of an agent.
const SPARE_CLIENTS: usize = 64;

/// How agents stand to each other, and where the load meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// How many.
    pub(crate) agents: usize,
    /// Children of each.
    pub(crate) fanout: usize,
    /// Mutual TLS between them; else plain TCP.
    pub(crate) tls: bool,
    /// Rank of the agent that publishers attach to.
    pub(crate) publish_at: usize,
    /// Rank of the agent that subscribers and bystanders attach to.
    pub(crate) subscribe_at: usize,
    /// Only this agent's use of the machine is counted; else that of all agents together.
    pub(crate) only: Option<usize>,
    /// With a journal, synced as seldom as JetStream's file store does by default.
    pub(crate) journal: bool,
}

impl Layout {
    /// One agent.
    pub(crate) const ONE: Self = Self::chain(1);

    /// Each the child of the one before; publishers at the last, subscribers at the root.
    pub(crate) const fn chain(agents: usize) -> Self {
        let publish_at = agents - 1;
        Self {
            agents,
            fanout: 1,
            tls: false,
            publish_at,
            subscribe_at: 0,
            only: None,
            journal: false,
        }
    }

    /// A root with two children; publishers at one, subscribers at the other.
    pub(crate) const SIBLINGS: Self =
        Self { fanout: 2, publish_at: 2, subscribe_at: 1, ..Self::chain(3) };

    /// A root with this number of children; all clients at the root, which alone is measured.
    pub(crate) const fn star(children: usize) -> Self {
        Self { fanout: children, publish_at: 0, only: Some(0), ..Self::chain(children + 1) }
    }

    /// A binary tree; publishers at its last leaf, subscribers at its first: on the other side of
    /// the root.
    pub(crate) const fn tree(agents: usize) -> Self {
        Self { fanout: 2, publish_at: agents - 1, subscribe_at: agents / 2, ..Self::chain(agents) }
    }

    /// A binary tree of two levels below its root, with a client at the agent of that rank and one
    /// at the last leaf; only the former agent is counted.
    pub(crate) const fn member(rank: usize) -> Self {
        Self { publish_at: rank, subscribe_at: 6, only: Some(rank), ..Self::tree(7) }
    }

    /// With mutual TLS.
    pub(crate) const fn tls(self) -> Self {
        Self { tls: true, ..self }
    }

    /// With a journal.
    pub(crate) const fn journal(self) -> Self {
        Self { journal: true, ..self }
    }

    /// What it is called in tables.
    pub(crate) fn name(&self) -> String {
        let shape = match (self.agents, self.fanout) {
            (1, _) => "1 agent".to_owned(),
            (agents, 1) => format!("{agents} agents in a chain"),
            (3, 2) => "leaf to leaf over a root".to_owned(),
            (agents, 2) => format!("{agents} agents in a binary tree"),
            (agents, _) => format!("a root with {} children", agents - 1),
        };
        let tls = if self.tls { ", mutual TLS" } else { "" };
        let journal = if self.journal { ", journal" } else { "" };
        format!("**ftb**, {shape}{tls}{journal}")
    }
}

fn host(rank: usize) -> String {
    format!("node{rank:03}")
}

/// Where an agent that is to be started has its things.
struct Configured {
    /// What it is called.
    host: String,
    /// Its configuration.
    file: PathBuf,
    /// Where its clients will find it.
    socket: PathBuf,
}

/// Starts them in rank order, so that each finds its parent at once.
pub(super) fn start(layout: Layout, load: &Load, dir: &Path) -> Started {
    let agent = agent()?;
    let configured = configure(layout, load, dir)?;
    let mut servers = Vec::new();
    for Configured { host, file, socket } in &configured {
        let mut command = Command::new(&agent);
        command.arg("--config").arg(file);
        servers.push(Server::start(host, &command, dir, &Ready::Socket(socket))?);
    }
    let socket = |rank: usize| configured[rank].socket.clone();
    let endpoint = Endpoint::Ftb {
        publish: socket(layout.publish_at),
        subscribe: socket(layout.subscribe_at),
    };
    Ok((servers, endpoint))
}

/// Writes their configurations, in rank order.
///
/// # Errors
/// Too few ports are free, or a file cannot be written.
fn configure(layout: Layout, load: &Load, dir: &Path) -> Result<Vec<Configured>> {
    let ports = free_ports(layout.agents)?;
    let authority = layout.tls.then(|| Authority::new(dir)).transpose()?;
    let mut configured = Vec::new();
    for (rank, port) in ports.iter().enumerate() {
        let host = host(rank);
        let mut text = common_config(layout, load, &ports);
        writeln!(text, "[log]\nlevel = \"warn\"")?;
        if layout.journal {
            let path = dir.join(format!("{host}.journal")).display().to_string();
            writeln!(text, "[journal]\npath = {path:?}\nfsync = \"interval:2m\"")?;
        }
        let secrets = authority.as_ref().map(|authority| authority.issue(dir, &host));
        let socket = dir.join(format!("{host}.sock"));
        let own = own_config(rank, *port, &socket, secrets.transpose()?)?;
        let file = dir.join(format!("{host}.toml"));
        fs::write(&file, own + &text)?;
        configured.push(Configured { host, file, socket });
    }
    Ok(configured)
}

/// What differs from agent to agent; comes first, since tables follow.
fn own_config(rank: usize, port: u16, socket: &Path, tls: Option<Secrets>) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "host = {:?}", host(rank))?;
    writeln!(text, "listen = \"127.0.0.1:{port}\"")?;
    writeln!(text, "socket = {:?}", socket.display().to_string())?;
    match tls {
        None => writeln!(text, "insecure = true")?,
        Some(Secrets { ca, cert, key }) => {
            // An inline table, so that keys of the file may still follow.
            let [ca, cert, key] = [ca, cert, key].map(|file| file.display().to_string());
            writeln!(text, "tls = {{ ca = {ca:?}, cert = {cert:?}, key = {key:?} }}")?;
        }
    }
    Ok(text)
}

/// What all agents of a run have in common.
fn common_config(layout: Layout, load: &Load, ports: &[u16]) -> String {
    let last = layout.agents - 1;
    let members = if last == 0 { host(0) } else { format!("node[000-{last:03}]") };
    let addresses = ports.iter().enumerate();
    let addresses: String =
        addresses.map(|(rank, port)| format!("{} = \"127.0.0.1:{port}\"\n", host(rank))).collect();
    let clients = load.publishers + load.subscribers + load.bystanders + SPARE_CLIENTS;
    let each = load.bystander_subscriptions / load.bystanders.max(1) + SPARE_CLIENTS;
    format!(
        "cluster = \"bench\"\nmembers = \"{members}\"\nfanout = {}\n\
         [addresses]\n{addresses}\
         [limits]\nclients_max = {clients}\nclients_per_user_max = {clients}\n\
         waiting_max = {clients}\nsubscriptions_per_client_max = {each}\n",
        layout.fanout
    )
}

/// Files of one agent.
struct Secrets {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

/// A certificate authority for one run.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(dir: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?;
        let file = dir.join("ca.pem");
        fs::write(&file, certificate.pem()).context("cannot write the certificates")?;
        Ok(Self { issuer: Issuer::new(params, key), file })
    }

    fn issue(&self, dir: &Path, host: &str) -> Result<Secrets> {
        let key_pair = KeyPair::generate()?;
        let params = CertificateParams::new(vec![host.to_owned()])?;
        let certificate = params.signed_by(&key_pair, &self.issuer)?;
        let (cert, key) = (dir.join(format!("{host}.pem")), dir.join(format!("{host}.key")));
        fs::write(&cert, certificate.pem())?;
        write_secret(&key, &key_pair.serialize_pem())?;
        Ok(Secrets { ca: self.file.clone(), cert, key })
    }
}

/// A key that others could read would be refused.
fn write_secret(file: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(file)?.write_all(text.as_bytes())?;
    Ok(())
}
