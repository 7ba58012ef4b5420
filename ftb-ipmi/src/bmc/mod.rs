//! Commands to a BMC, through the local device or a session over the network.
//!
//! Responsible for: one answer or one error for each command, before a deadline. Not for: which
//! commands to send and what their answers mean. Sessions are in `ftb-rmcp`.

pub mod command;
mod device;
mod ioctl;
#[cfg(test)]
pub(crate) mod tests;

pub use command::Command;
pub use device::DeviceConfig;
pub use ftb_rmcp::{CipherSuite, LanConfig, Protocol};

use ftb_rmcp::{Controller, Session, SessionError};
use ipmi_rs::connection::{CompletionErrorCode, Message};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How many times a command is sent again to a busy BMC.
const BUSY_REPEATS_MAX: u32 = 4;
/// First pause before a command is sent again to a busy BMC.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Completion codes of a BMC (or the kernel driver) for an unreachable controller: bus lost, bus
/// error, not acknowledged, timed out, destination unavailable.
const NOT_REACHED: [u8; 5] = [0x81, 0x82, 0x83, 0xC3, 0xD3];

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum BmcError {
    /// The session failed.
    #[error(transparent)]
    Session(SessionError),
    /// The local device does not answer.
    #[error(
        "no answer from {} within {waited_ms} ms: the BMC hangs, or is just starting",
        path.display()
    )]
    Timeout {
        /// Device file.
        path: PathBuf,
        /// Milliseconds since the command was sent.
        waited_ms: u128,
    },
    /// The device does not open.
    #[error("{}: {source}: {}", path.display(), device::advice(source))]
    Open {
        /// Device file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The device failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Device file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The BMC refused the command.
    #[error("command {command:#04x} is refused: {}", refusal(*.code))]
    Refused {
        /// Command number.
        command: u8,
        /// Completion code.
        code: u8,
    },
    /// The BMC answers, but a controller behind it does not.
    #[error("the controller {controller} behind the BMC does not answer")]
    Relay {
        /// The silent controller.
        controller: Controller,
    },
    /// The answer is too short for its command.
    #[error("the answer to command {command:#04x} is too short")]
    Short {
        /// Command number.
        command: u8,
    },
}

impl From<SessionError> for BmcError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Relay { controller } => Self::Relay { controller },
            error => Self::Session(error),
        }
    }
}

impl BmcError {
    /// Whether it means that this controller behind the BMC is unreachable.
    pub(crate) fn is_unreached(&self, controller: Controller) -> bool {
        let is_refused = self.code().is_some_and(|code| NOT_REACHED.contains(&code));
        !controller.is_bmc() && (is_refused || matches!(self, Self::Relay { .. }))
    }

    /// Whether the BMC is out of reach. Otherwise only this command has no result.
    pub fn is_lost(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Relay { .. } | Self::Short { .. })
    }

    /// Whether another attempt is useless until one side is changed.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Session(error) => error.is_permanent(),
            Self::Open { source, .. } => {
                matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
            }
            _ => false,
        }
    }

    /// The completion code of a refusal.
    pub(crate) fn code(&self) -> Option<u8> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

fn refusal(code: u8) -> String {
    match CompletionErrorCode::try_from(code) {
        Ok(known) => format!("{known:?} ({code:#04x})"),
        Err(()) => format!("completion code {code:#04x}"),
    }
}

/// The address of a BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The BMC of this machine.
    Device(DeviceConfig),
    /// A BMC on the network.
    Lan(LanConfig),
}

impl Target {
    /// Device file or host.
    pub fn name(&self) -> String {
        match self {
            Self::Device(config) => config.path.display().to_string(),
            Self::Lan(config) => config.name(),
        }
    }
}

enum Transport {
    Device(device::Device),
    Lan(Box<Session>),
}

/// A connected BMC.
pub struct Bmc {
    transport: Transport,
    commands: u64,
}

impl Bmc {
    /// Opens the device, or logs in.
    ///
    /// # Errors
    /// [`BmcError`], after at most the deadline of the target for each message of the login.
    pub async fn connect(target: &Target) -> Result<Self, BmcError> {
        let transport = match target {
            Target::Device(config) => Transport::Device(device::Device::open(config)?),
            Target::Lan(config) => Transport::Lan(Box::new(Session::open(config.clone()).await?)),
        };
        Ok(Self { transport, commands: 0 })
    }

    /// How many commands were run.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Sends a command and returns its result. Sends it again to a busy BMC.
    ///
    /// # Errors
    /// [`BmcError`]. After an error with [`BmcError::is_lost`], drop this and connect again.
    pub async fn run<C: Command>(&mut self, command: C) -> Result<C::Output, BmcError> {
        let to = command.to();
        let message: Message = command.into();
        self.commands += 1;
        let mut repeats = 0;
        let data = loop {
            let (code, data) = match &mut self.transport {
                Transport::Device(device) => device.call(&message, to).await?,
                Transport::Lan(session) => session.call(&message, to).await?,
            };
            match CompletionErrorCode::try_from(code) {
                Err(()) => break data,
                Ok(CompletionErrorCode::NodeBusy) if repeats < BUSY_REPEATS_MAX => {
                    repeats += 1;
                    tokio::time::sleep(BUSY_PAUSE * repeats).await;
                }
                Ok(_) => return Err(BmcError::Refused { command: message.cmd(), code }),
            }
        };
        C::parse_success_response(&data).map_err(|_| BmcError::Short { command: message.cmd() })
    }

    /// Waits for the next event that the BMC pushes. Never returns over the network, where BMCs
    /// push no events.
    ///
    /// # Errors
    /// [`BmcError::Io`] if the device is gone.
    pub async fn event(&mut self) -> Result<[u8; 16], BmcError> {
        match &mut self.transport {
            Transport::Device(device) => device.event().await,
            Transport::Lan(_) => std::future::pending().await,
        }
    }

    /// Ends the session, so that the BMC frees it before it expires. Best effort.
    pub async fn close(self) {
        if let Transport::Lan(mut session) = self.transport {
            session.close().await;
        }
    }
}
