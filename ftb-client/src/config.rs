//! What a client is made with.

use crate::error::ConfigError;
use core::time::Duration;
use ftb_core::{ConfirmLevel, EventRef, limits};
use std::path::PathBuf;

/// Environment variable with the path of the agent's socket.
pub const SOCKET_ENV: &str = "FTB_AGENT_SOCKET";
/// Environment variable with the level at which a program's events are confirmed: `memory` or
/// `disk`.
pub const CONFIRM_ENV: &str = "FTB_CONFIRM";
/// Default socket of an agent.
pub const SOCKET_DEFAULT: &str = "/run/ftb/agent.sock";
/// Default bound of the events that are not confirmed yet, in bytes.
pub const BUFFER_BYTES_DEFAULT: usize = 16 * 1024 * 1024;
/// Default bound of what one subscription holds for its reader, in bytes.
pub const QUEUE_BYTES_DEFAULT: usize = 4 * 1024 * 1024;
/// Default of the longest pause between two attempts to reach an agent.
pub const RETRY_MAX_DEFAULT: Duration = Duration::from_secs(2);

/// The socket of this node's agent: [`SOCKET_ENV`], else [`SOCKET_DEFAULT`].
pub fn default_socket() -> PathBuf {
    std::env::var_os(SOCKET_ENV)
        .filter(|path| !path.is_empty())
        .map_or_else(|| PathBuf::from(SOCKET_DEFAULT), PathBuf::from)
}

/// The level of [`CONFIRM_ENV`]; `None`: the agent's default.
fn default_confirm() -> Option<ConfirmLevel> {
    let level = std::env::var(CONFIRM_ENV).ok().filter(|level| !level.is_empty())?;
    let parsed = level.parse();
    if let Err(error) = &parsed {
        tracing::warn!(level, "{CONFIRM_ENV} is ignored: {error}");
    }
    parsed.ok()
}

/// The configuration of a client. [`Client::builder`](crate::Client::builder) sets its fields by
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// What the client calls itself, for people and for filters (`client_name=`); at most
    /// [`limits::CLIENT_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// The job it belongs to, may be empty; as long.
    pub job_id: String,
    /// The Unix socket of this node's agent.
    pub socket: PathBuf,
    /// Bound of the events that are not confirmed yet, in bytes. Full: the mildest and oldest of
    /// those that were not sent are shed and counted.
    pub buffer_bytes: usize,
    /// Bound of what one subscription holds for its reader, in bytes (overrun by at most one
    /// batch). Full: the subscription is paused and goes on from the log when half is read.
    pub queue_bytes: usize,
    /// Longest pause between two attempts to attach. Pauses grow from 20 ms, with jitter. While no
    /// agent listens, the client watches the socket's folder and attempts when the socket appears.
    pub retry_max: Duration,
    /// What events must survive before they are confirmed, if that can be had; `None`: the default
    /// of the agent. [`Client::confirming`](crate::Client::confirming) chooses for single events.
    pub confirm: Option<ConfirmLevel>,
}

impl ClientConfig {
    /// The defaults for a client of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            job_id: String::new(),
            socket: default_socket(),
            buffer_bytes: BUFFER_BYTES_DEFAULT,
            queue_bytes: QUEUE_BYTES_DEFAULT,
            retry_max: RETRY_MAX_DEFAULT,
            confirm: default_confirm(),
        }
    }

    /// Fills in empty client name and job id.
    pub(crate) fn fill_in<'a>(&'a self, event: &mut EventRef<'a>) {
        if event.client_name.is_empty() {
            event.client_name = &self.name;
        }
        if event.job_id.is_empty() {
            event.job_id = &self.job_id;
        }
    }

    /// Checks all bounds.
    ///
    /// # Errors
    /// [`ConfigError::TooLong`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let max = limits::CLIENT_NAME_BYTES_MAX;
        for (field, text) in [("client name", &self.name), ("job id", &self.job_id)] {
            let bytes = text.len();
            if bytes > max {
                return Err(ConfigError::TooLong { field, bytes, max });
            }
        }
        Ok(())
    }
}
