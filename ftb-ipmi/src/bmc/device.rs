//! The BMC of this machine through `/dev/ipmi0`. The driver numbers requests, so a late answer has
//! another number and is dropped.

use super::BmcError;
use super::ioctl::{self, RECEIVED_ANSWER, RECEIVED_EVENT};
use ftb_rmcp::Destination;
use ipmi_rs::connection::Message;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Most events kept while a command waits for its answer. When full, the oldest is dropped (the
/// event log still has it).
const EVENTS_MAX: usize = 64;

/// Longest wait for a controller behind the BMC. The driver tries for ten seconds, and all other
/// sensors wait.
const RELAY_DEADLINE: Duration = Duration::from_secs(1);

/// The local device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Device file.
    pub path: PathBuf,
    /// Deadline of one command.
    pub deadline: Duration,
}

/// What an administrator can do if the device does not open.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "load the module ipmi_devintf, or set the address of the BMC",
        io::ErrorKind::PermissionDenied => {
            "run as root, or give the group of the service access (see docs/ipmi.md)"
        }
        _ => "see the kernel log for the IPMI driver",
    }
}

pub(super) struct Device {
    file: AsyncFd<File>,
    config: DeviceConfig,
    last_id: i64,
    events: VecDeque<[u8; 16]>,
}

impl Device {
    pub(super) fn open(config: &DeviceConfig) -> Result<Self, BmcError> {
        let failed = |source| BmcError::Open { path: config.path.clone(), source };
        let file = File::options().read(true).write(true).open(&config.path).map_err(failed)?;
        // A driver without an event buffer refuses. The event log is read anyway.
        if let Err(error) = ioctl::enable_events(&file) {
            tracing::info!(device = %config.path.display(), %error, "the driver pushes no events");
        }
        let file = ioctl::watch(file).map_err(failed)?;
        Ok(Self { file, config: config.clone(), last_id: 0, events: VecDeque::new() })
    }

    fn io_error(&self, source: io::Error) -> BmcError {
        BmcError::Io { path: self.config.path.clone(), source }
    }

    pub(super) async fn call(
        &mut self,
        message: &Message,
        to: Destination,
    ) -> Result<(u8, Vec<u8>), BmcError> {
        self.last_id += 1;
        let (id, file) = (self.last_id, self.file.get_ref());
        ioctl::send(file, id, to, message.netfn_raw(), message.cmd(), message.data())
            .map_err(|error| self.io_error(error))?;
        let started = Instant::now();
        let is_relayed = !to.controller.is_bmc();
        let deadline = started
            + self.config.deadline.min(if is_relayed { RELAY_DEADLINE } else { Duration::MAX });
        loop {
            let received = match tokio::time::timeout_at(deadline, self.receive()).await {
                Ok(received) => received?,
                Err(_) if is_relayed => {
                    return Err(BmcError::Relay { controller: to.controller });
                }
                Err(_) => {
                    return Err(BmcError::Timeout {
                        path: self.config.path.clone(),
                        waited_ms: started.elapsed().as_millis(),
                    });
                }
            };
            let is_ours = received.kind == RECEIVED_ANSWER
                && received.id == id
                && received.netfn == message.netfn().response_value()
                && received.command == message.cmd();
            match received.data.split_first() {
                Some((code, data)) if is_ours => return Ok((*code, data.to_vec())),
                _ => self.on_other(&received),
            }
        }
    }

    async fn receive(&self) -> Result<ioctl::Received, BmcError> {
        self.file
            .async_io(Interest::READABLE, ioctl::receive)
            .await
            .map_err(|error| self.io_error(error))
    }

    /// Keeps an event, drops a late answer.
    fn on_other(&mut self, received: &ioctl::Received) {
        match received.data.first_chunk() {
            Some(record) if received.kind == RECEIVED_EVENT => {
                if self.events.len() >= EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(*record);
            }
            _ => tracing::debug!(id = received.id, "late answer dropped"),
        }
    }

    pub(super) async fn event(&mut self) -> Result<[u8; 16], BmcError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let received = self.receive().await?;
            self.on_other(&received);
        }
    }
}
