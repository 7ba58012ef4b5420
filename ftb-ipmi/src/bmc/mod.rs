//! Talking to a BMC: one request, its own answer, or an error within a deadline.
//!
//! Responsible for: the session (local device, RMCP+ or IPMI 1.5 over UDP), sending again, proving
//! that an answer belongs to its request, and renewing what expired. Not for: what to ask, and what
//! answers mean. Message and command types are those of `ipmi-rs`; its transports are not used,
//! since they take a late answer for the next one, never send again and panic on refused packets.

pub mod command;
mod device;
#[cfg(test)]
pub(crate) mod fake;
mod ioctl;
mod ipmb;
mod lan;
mod login;
mod numbers;
mod packet;
mod rakp;
mod suite;
#[cfg(test)]
mod tests;

pub use command::{Command, Destination};
pub use device::DeviceConfig;
pub use lan::{LanConfig, Protocol};
pub(crate) use login::{USER_BYTES_MAX, password_bytes_max};
pub use rakp::LoginError;
pub use suite::CipherSuite;

use crate::sdr::Controller;
use ipmi_rs::connection::{CompletionErrorCode, Message};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How often a command is repeated to a BMC that says that it is busy.
const BUSY_REPEATS_MAX: u32 = 4;
/// How long to leave a busy BMC alone.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum BmcError {
    /// Nothing came, however often the request was sent.
    #[error("no answer from {target} within {waited_ms} ms: {advice}")]
    Timeout {
        /// Who was asked.
        target: String,
        /// How long all attempts took.
        waited_ms: u128,
        /// What to look at.
        advice: &'static str,
    },
    /// Its name has no address.
    #[error("{target}: {reason}: check the name of the BMC")]
    Resolve {
        /// Name.
        target: String,
        /// What the resolver said.
        reason: String,
    },
    /// The session was refused.
    #[error("{target}: {error}")]
    Login {
        /// Who refused.
        target: String,
        /// Why.
        error: LoginError,
    },
    /// The device cannot be opened.
    #[error("{}: {source}: {}", path.display(), device::advice(source))]
    Open {
        /// Device file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The local side failed.
    #[error("{target}: {source}")]
    Io {
        /// Who was asked.
        target: String,
        /// Why.
        source: io::Error,
    },
    /// The BMC understood and said no.
    #[error("command {command:#04x} is refused: {}", refusal(*.code))]
    Refused {
        /// Command number.
        command: u8,
        /// Completion code.
        code: u8,
    },
    /// The BMC is there, a controller behind it does not answer.
    #[error("the controller {controller} behind the BMC does not answer")]
    Relay {
        /// Which.
        controller: Controller,
    },
    /// The answer is shorter than the command's answers are.
    #[error("the answer to command {command:#04x} is too short")]
    Short {
        /// Command number.
        command: u8,
    },
}

impl BmcError {
    /// Whether the BMC itself is out of reach, as against one command having no result.
    pub fn is_lost(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Relay { .. } | Self::Short { .. })
    }

    /// Whether trying again without a change on either side is useless.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Login { error, .. } => error.is_permanent(),
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

/// A BMC.
pub struct Bmc {
    way: Way,
    commands: u64,
}

/// How it is reached.
enum Way {
    /// That of this machine, through the kernel.
    Device(device::Device),
    /// That of any machine, through the network.
    Lan(Box<lan::Lan>),
}

/// Where a BMC is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Of this machine.
    Device(DeviceConfig),
    /// On the network.
    Lan(LanConfig),
}

impl Target {
    /// What people call it.
    pub fn name(&self) -> String {
        match self {
            Self::Device(config) => config.path.display().to_string(),
            Self::Lan(config) => config.name(),
        }
    }
}

impl Bmc {
    /// Opens the device, or the session.
    ///
    /// # Errors
    /// [`BmcError`], after at most the target's deadline for a whole login.
    pub async fn connect(target: &Target) -> Result<Self, BmcError> {
        match target {
            Target::Device(config) => device::Device::open(config).map(Way::Device),
            Target::Lan(config) => {
                lan::Lan::open(config.clone()).await.map(|lan| Way::Lan(Box::new(lan)))
            }
        }
        .map(|way| Self { way, commands: 0 })
    }

    /// How many commands it was asked to run.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Sends a command and gives its result. A BMC that is busy is asked again.
    ///
    /// # Errors
    /// [`BmcError`]; after one that says "lost" the session is gone and this must be dropped.
    pub async fn run<C: Command>(&mut self, command: C) -> Result<C::Output, BmcError> {
        let to = command.to();
        let message: Message = command.into();
        self.commands += 1;
        let mut repeats = 0;
        let data = loop {
            let (code, data) = match &mut self.way {
                Way::Device(device) => device.call(&message, to).await?,
                Way::Lan(lan) => lan.call(&message, to).await?,
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

    /// Waits for the next event that the BMC pushes; never returns where it pushes none (LAN).
    ///
    /// # Errors
    /// [`BmcError::Io`] when the device is gone.
    pub async fn event(&mut self) -> Result<[u8; 16], BmcError> {
        match &mut self.way {
            Way::Device(device) => device.event().await,
            Way::Lan(_) => std::future::pending().await,
        }
    }

    /// Ends the session, so that the BMC need not wait until it expires. Best effort.
    pub async fn close(self) {
        if let Way::Lan(lan) = self.way {
            lan.close().await;
        }
    }
}
