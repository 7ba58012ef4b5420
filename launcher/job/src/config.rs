//! The environment of a rank (launcher/core/protocol.md).
//!
//! Also runs without a launcher, as a job of one rank, and under any other PMI-1 launcher, then
//! without checkpoints.

use crate::error::{Error, Result};
use crate::limits;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What a rank knows before it has contacted another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The job, `FTB_JOB_ID`.
    pub job_id: String,
    /// This process, `FTB_RANK` or `PMI_RANK`.
    pub rank: u32,
    /// How many there are, `FTB_SIZE` or `PMI_SIZE`.
    pub size: u32,
    /// The node's name, `FTB_NODE`; without it each rank counts as on its own node.
    pub node: String,
    /// The socket of the node's agent, `FTB_AGENT_SOCKET`; without it the rank receives no
    /// requests.
    pub agent_socket: Option<PathBuf>,
    /// Where images go, `FTB_IMAGE_DIR`.
    pub image_dir: Option<PathBuf>,
    /// The set to start from, `FTB_RESTORE`.
    pub restore: Option<PathBuf>,
    /// How many ranks made that set, if not [`Config::size`], `FTB_RESTORE_SIZE`.
    pub restore_size: Option<u32>,
    /// The episode that started this process, `FTB_EPISODE`.
    pub episode: u64,
    /// Larger at each start of this rank, `FTB_INCARNATION`.
    pub incarnation: u64,
    /// The descriptor of the PMI socket, `PMI_FD`.
    pub pmi_fd: Option<i32>,
    /// The descriptor of the counter of steps, `FTB_PROGRESS_FD`.
    pub progress_fd: Option<i32>,
    /// Whether the job is saved in memory before its first step, `FTB_MEMORY_FIRST=1`.
    pub memory_first: bool,
    /// Whether the ranks go on without dead ones, `FTB_ON_DEATH=continue`.
    pub goes_on: bool,
    /// The address for other nodes, `FTB_JOB_ADDRESS`; default: the local address of the route to
    /// `MASTER_ADDR`.
    pub address: IpAddr,
    /// Most bytes that wait from one peer, `FTB_JOB_RECEIVE_BYTES`.
    pub receive_bytes_max: usize,
    /// How long to wait for the launcher after the loss of a peer, `FTB_JOB_PEER_GRACE_S` in
    /// seconds.
    pub peer_grace: Duration,
}

impl Config {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// [`Error::Environment`] names the variable, its value and what was expected.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(&|name| std::env::var(name).ok())
    }

    /// Reads an environment from a function.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let env = Env(lookup);
        let size = env.first(&["FTB_SIZE", "PMI_SIZE"])?.unwrap_or(1);
        let rank = env.first(&["FTB_RANK", "PMI_RANK"])?.unwrap_or(0);
        if size == 0 || size > limits::RANKS_MAX {
            let expected = format!("expected 1 to {}", limits::RANKS_MAX);
            return Err(wrong("FTB_SIZE", size.to_string(), expected));
        }
        if rank >= size {
            let expected = format!("expected less than the size, {size}");
            return Err(wrong("FTB_RANK", rank.to_string(), expected));
        }
        let pmi_fd = env.number("PMI_FD")?;
        if size > 1 && pmi_fd.is_none() {
            let problem = "not set, but the job has more than one rank: start it by ftb-launch";
            return Err(wrong("PMI_FD", String::new(), problem.to_owned()));
        }
        let job_id = env.name("FTB_JOB_ID")?.unwrap_or_default();
        let node = env.name("FTB_NODE")?.unwrap_or_default();
        Ok(Self {
            job_id,
            rank,
            size,
            node,
            agent_socket: env.path("FTB_AGENT_SOCKET"),
            image_dir: env.path("FTB_IMAGE_DIR"),
            restore: env.path("FTB_RESTORE"),
            restore_size: env.number("FTB_RESTORE_SIZE")?.filter(|before| *before != size),
            episode: env.number("FTB_EPISODE")?.unwrap_or(0),
            incarnation: env.number("FTB_INCARNATION")?.unwrap_or(0),
            pmi_fd,
            progress_fd: env.number("FTB_PROGRESS_FD")?,
            memory_first: env.number::<u32>("FTB_MEMORY_FIRST")? == Some(1),
            goes_on: env.get("FTB_ON_DEATH").as_deref() == Some("continue"),
            address: env.address()?,
            receive_bytes_max: env
                .number("FTB_JOB_RECEIVE_BYTES")?
                .unwrap_or(limits::RECEIVE_BYTES_DEFAULT),
            peer_grace: env
                .number("FTB_JOB_PEER_GRACE_S")?
                .map_or(limits::PEER_GRACE_DEFAULT, Duration::from_secs),
        })
    }
}

/// What a program with `ftb_loop` knows from its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopConfig {
    /// Empty without a launcher.
    pub job_id: String,
    pub rank: u32,
    pub size: u32,
    /// Whether the launch agent saves the program, `FTB_LOOP=1`.
    pub is_saved: bool,
    pub progress_fd: Option<i32>,
    pub image_dir: Option<PathBuf>,
    /// The set to start from.
    pub restore: Option<PathBuf>,
    pub memory_first: bool,
}

impl LoopConfig {
    /// # Errors
    /// As [`Config::from_env`].
    pub(crate) fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let env = Env(lookup);
        let size = env.first(&["FTB_SIZE", "PMI_SIZE", "WORLD_SIZE"])?.unwrap_or(1);
        let rank = env.first(&["FTB_RANK", "PMI_RANK", "RANK"])?.unwrap_or(0);
        if rank >= size {
            let expected = format!("expected less than the size, {size}");
            return Err(wrong("FTB_RANK", rank.to_string(), expected));
        }
        Ok(Self {
            job_id: env.name("FTB_JOB_ID")?.unwrap_or_default(),
            rank,
            size,
            is_saved: env.number::<u32>("FTB_LOOP")? == Some(1),
            progress_fd: env.number("FTB_PROGRESS_FD")?,
            image_dir: env.path("FTB_IMAGE_DIR"),
            restore: env.path("FTB_RESTORE"),
            memory_first: env.number::<u32>("FTB_MEMORY_FIRST")? == Some(1),
        })
    }
}

/// Whether a text can be a job id, a node name or a set id: part of a file name, a tag and a PMI
/// value.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= limits::NAME_BYTES_MAX
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn wrong(variable: &'static str, value: String, problem: String) -> Error {
    Error::Environment { variable, value: value.chars().take(80).collect(), problem }
}

struct Env<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    fn get(&self, variable: &str) -> Option<String> {
        (self.0)(variable).filter(|value| !value.is_empty())
    }

    fn number<T: FromStr>(&self, variable: &'static str) -> Result<Option<T>> {
        let Some(value) = self.get(variable) else {
            return Ok(None);
        };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(wrong(variable, value, "expected a decimal number".into())),
        }
    }

    fn first<T: FromStr>(&self, variables: &[&'static str]) -> Result<Option<T>> {
        for variable in variables {
            if let Some(number) = self.number(variable)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn name(&self, variable: &'static str) -> Result<Option<String>> {
        match self.get(variable) {
            Some(value) if !is_name(&value) => {
                let expected = format!(
                    "expected at most {} letters, digits, '.', '_' and '-'",
                    limits::NAME_BYTES_MAX
                );
                Err(wrong(variable, value, expected))
            }
            value => Ok(value),
        }
    }

    fn path(&self, variable: &str) -> Option<PathBuf> {
        self.get(variable).map(PathBuf::from)
    }

    fn address(&self) -> Result<IpAddr> {
        const VARIABLE: &str = "FTB_JOB_ADDRESS";
        if let Some(value) = self.get(VARIABLE) {
            return value
                .parse()
                .map_err(|_| wrong(VARIABLE, value, "expected an IP address".into()));
        }
        let master = self.get("MASTER_ADDR").and_then(|host| address_towards(&host));
        Ok(master.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }
}

/// The local address of packets to that host. Nothing is sent.
fn address_towards(host: &str) -> Option<IpAddr> {
    const DISCARD_PORT: u16 = 9;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((host, DISCARD_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Result<Config> {
        let lookup = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        };
        Config::from_lookup(&lookup)
    }

    #[test]
    fn without_a_launcher_it_is_a_job_of_one() {
        let config = config(&[]).unwrap();
        assert_eq!((config.rank, config.size), (0, 1));
        assert_eq!(config.agent_socket, None);
    }

    #[test]
    fn the_launchers_environment_is_read_and_pmi_variables_stand_in() {
        let config = config(&[
            ("FTB_JOB_ID", "job-7"),
            ("PMI_RANK", "3"),
            ("FTB_SIZE", "4"),
            ("PMI_FD", "5"),
            ("FTB_EPISODE", "12"),
            ("MASTER_ADDR", "127.0.0.1"),
        ])
        .unwrap();
        assert_eq!((config.rank, config.size, config.episode), (3, 4, 12));
        assert_eq!(config.address, IpAddr::V4(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn a_wrong_variable_is_named_with_its_value() {
        for (pairs, words) in [
            (&[("FTB_RANK", "two")][..], ["FTB_RANK", "two"]),
            (&[("FTB_SIZE", "0")], ["FTB_SIZE", "1 to 1024"]),
            (&[("FTB_RANK", "1")], ["FTB_RANK", "less than"]),
            (&[("FTB_SIZE", "2")], ["PMI_FD", "ftb-launch"]),
            (&[("FTB_NODE", "../x")], ["FTB_NODE", "../x"]),
        ] {
            let error = config(pairs).unwrap_err();
            assert_eq!(error.exit_code(), 64);
            for word in words {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
    }
}
