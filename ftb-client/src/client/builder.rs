//! Makes a client step by step.

use crate::client::Client;
use crate::config::ClientConfig;
use crate::error::ConfigError;
use core::time::Duration;
use ftb_core::ConfirmLevel;
use std::path::PathBuf;

/// Makes a [`Client`] step by step.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder(ClientConfig);

impl ClientBuilder {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self(ClientConfig::new(name))
    }

    /// The Unix socket of the agent; without this [`default_socket`](crate::default_socket).
    pub fn agent(mut self, socket: impl Into<PathBuf>) -> Self {
        self.0.socket = socket.into();
        self
    }

    /// The job that the client belongs to.
    pub fn job_id(mut self, job_id: impl Into<String>) -> Self {
        self.0.job_id = job_id.into();
        self
    }

    /// See [`ClientConfig::buffer_bytes`].
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.0.buffer_bytes = bytes;
        self
    }

    /// See [`ClientConfig::queue_bytes`].
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.0.queue_bytes = bytes;
        self
    }

    /// See [`ClientConfig::retry_max`].
    pub fn retry_max(mut self, pause: Duration) -> Self {
        self.0.retry_max = pause;
        self
    }

    /// See [`ClientConfig::confirm`].
    pub fn confirm(mut self, level: ConfirmLevel) -> Self {
        self.0.confirm = Some(level);
        self
    }

    /// The configuration so far.
    pub fn config(self) -> ClientConfig {
        self.0
    }

    /// Makes the client: see [`Client::connect`].
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn build(self) -> Result<Client, ConfigError> {
        Client::connect(self.0)
    }
}
