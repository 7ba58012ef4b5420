//! Starts the systems under test as processes of their own: how each is configured, and where its
//! clients find it.

use crate::load::{Endpoint, Load};
use crate::process::{Ready, Server, free_port};
use crate::wire::nats::Storage;
use crate::wire::zenoh;
use anyhow::{Context as _, Result, bail};
use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(crate) mod agents;

use agents::Layout;

/// A system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum System {
    /// Agents in that layout.
    Ftb(Layout),
    /// NATS core.
    Nats,
    /// NATS with JetStream; one replica.
    JetStream(Storage),
    /// Mosquitto at that QoS.
    Mosquitto(u8),
    /// The plain relay of framed bytes.
    Plain,
    /// A router of Zenoh.
    Zenoh,
}

impl System {
    /// What it is called in tables.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Ftb(layout) => layout.name(),
            Self::Nats => "NATS core".to_owned(),
            Self::JetStream(Storage::Memory) => "JetStream, memory".to_owned(),
            Self::JetStream(Storage::File) => "JetStream, file".to_owned(),
            Self::Mosquitto(qos) => format!("Mosquitto QoS {qos}"),
            Self::Plain => "plain TCP relay".to_owned(),
            Self::Zenoh => "Zenoh router".to_owned(),
        }
    }
}

/// A system that runs. Its processes end and its files go when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    servers: Vec<Server>,
    /// Places of the servers whose use of the machine is measured.
    measured: Range<usize>,
    endpoint: Endpoint,
    // Behind the servers: they are killed before their folder goes.
    _dir: TempDir,
}

impl Running {
    /// Starts it and waits until it can be used.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub(crate) fn start(system: System, load: &Load) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ftb-bench.").tempdir()?;
        let (servers, endpoint) = match system {
            System::Ftb(layout) => agents::start(layout, load, dir.path())?,
            System::Nats => start_nats(None, dir.path())?,
            System::JetStream(storage) => start_nats(Some(storage), dir.path())?,
            System::Mosquitto(qos) => start_mosquitto(qos, dir.path())?,
            System::Plain => start_plain(dir.path())?,
            System::Zenoh => start_zenoh(dir.path())?,
        };
        let measured = match system {
            System::Ftb(Layout { only: Some(rank), .. }) => rank..rank + 1,
            _ => 0..servers.len(),
        };
        Ok(Self { servers, measured, endpoint, _dir: dir })
    }

    /// Where clients find it.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// The processes whose use of the machine is measured.
    pub(crate) fn measured(&self) -> Vec<u32> {
        self.servers[self.measured.clone()].iter().map(Server::pid).collect()
    }

    /// What its processes said last, for a run that failed.
    pub(crate) fn last_words(&self) -> String {
        let words = self.servers.iter().map(Server::last_words);
        words.collect::<Vec<_>>().join("; ")
    }
}

type Started = Result<(Vec<Server>, Endpoint)>;

fn start_nats(stream: Option<Storage>, dir: &Path) -> Started {
    let port = free_port()?;
    let mut command = Command::new(installed("nats-server")?);
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string()]);
    if stream.is_some() {
        command.arg("--jetstream").arg("--store_dir").arg(dir.join("store"));
    }
    let server = Server::start("nats-server", &command, dir, &Ready::Port(port))?;
    Ok((vec![server], Endpoint::Nats { port, stream }))
}

fn start_mosquitto(qos: u8, dir: &Path) -> Started {
    let port = free_port()?;
    let file = dir.join("mosquitto.conf");
    // 0 lifts the bounds on what may be queued: none is dropped, the window of the load holds it.
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n\
         max_inflight_messages 0\nmax_queued_messages 0\npersistence false\nsys_interval 0\n"
    );
    fs::write(&file, text)?;
    let mut command = Command::new(installed("mosquitto")?);
    command.arg("-c").arg(&file);
    let server = Server::start("mosquitto", &command, dir, &Ready::Port(port))?;
    Ok((vec![server], Endpoint::Mqtt { port, qos }))
}

fn start_plain(dir: &Path) -> Started {
    let (server, port) = start_own("relay", dir)?;
    Ok((vec![server], Endpoint::Plain { port }))
}

fn start_zenoh(dir: &Path) -> Started {
    let library = zenoh::library().context("Zenoh was not built: run `make bench`")?;
    let (server, port) = start_own("zenoh-router", dir)?;
    Ok((vec![server], Endpoint::Zenoh { port, library }))
}

/// A server that is a part of this program, at a port.
fn start_own(part: &str, dir: &Path) -> Result<(Server, u16)> {
    let port = free_port()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args([part, &port.to_string()]);
    Ok((Server::start(part, &command, dir, &Ready::Port(port))?, port))
}

/// Where a program of the system is: in the path, or where Debian keeps servers.
///
/// # Errors
/// It is in neither.
pub(crate) fn installed(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = dirs.map(|dir| dir.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("{program} is not installed; `make bench` installs it"))
}

/// The program of an agent: beside this one, or in the folder of finished binaries that
/// `FTB_BIN_DIR` names.
///
/// # Errors
/// It was not built.
pub(crate) fn agent() -> Result<PathBuf> {
    const AGENT: &str = "ftb-agent";
    let Some(dir) = std::env::var_os("FTB_BIN_DIR") else {
        return beside_this(AGENT);
    };
    let file = PathBuf::from(dir).join(AGENT);
    if !file.is_file() {
        bail!("{}, which FTB_BIN_DIR asks for, is missing", file.display());
    }
    Ok(file)
}

/// A program that was built together with this one.
///
/// # Errors
/// It was not built.
pub(crate) fn beside_this(program: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let file = this.with_file_name(program);
    if !file.is_file() {
        bail!("{} is missing: build it first, or run `make bench`", file.display());
    }
    Ok(file)
}
