//! Errors of a session.

use crate::Controller;
use crate::config::PASSWORD_15_BYTES_MAX;
use std::io;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The BMC answered none of the attempts.
    #[error(
        "no answer from {target} within {waited_ms} ms: check that it is up, its address, and that \
         it has IPMI over LAN enabled"
    )]
    Timeout {
        /// Name of the BMC.
        target: String,
        /// Duration of all attempts.
        waited_ms: u128,
    },
    /// The name of the BMC has no address.
    #[error("{target}: {reason}: check the name of the BMC")]
    Resolve {
        /// Name of the BMC.
        target: String,
        /// Message of the resolver.
        reason: String,
    },
    /// The BMC refused the session.
    #[error("{target}: {error}")]
    Login {
        /// Name of the BMC.
        target: String,
        /// The reason.
        error: LoginError,
    },
    /// The local side failed.
    #[error("{target}: {source}")]
    Io {
        /// Name of the BMC.
        target: String,
        /// The cause.
        source: io::Error,
    },
    /// The BMC answers, but a controller behind it does not.
    #[error("the controller {controller} behind the BMC does not answer")]
    Relay {
        /// The silent controller.
        controller: Controller,
    },
}

impl SessionError {
    /// Whether another attempt is useless until one side is changed.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Login { error, .. } if error.is_permanent())
    }
}

/// Why a BMC refuses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The proof in the key exchange is wrong, on either side.
    #[error("the password is wrong: correct password, password_file or FTB_IPMI_PASSWORD")]
    Password,
    /// The BMC proved that it has the same password, but the session keys differ.
    #[error("the key of the BMC differs: correct group_key, or remove it")]
    GroupKey,
    /// The BMC rejects our proof, although it proved that it has the same password.
    #[error("the BMC rejects the proof of the password, although it has the same password")]
    Proof,
    /// No such user.
    #[error("the BMC knows no such user: correct user, or create it on the BMC")]
    User,
    /// The user may not have the requested privilege.
    #[error(
        "the user may not have that privilege level: request a lower one (privilege), or raise \
         the limit of the user"
    )]
    Privilege,
    /// The BMC does not offer these algorithms.
    #[error("the BMC does not offer this cipher suite: set another cipher_suite, or none")]
    Suite,
    /// The BMC has no free session.
    #[error("the BMC has no free session: close others, or wait until they expire")]
    Busy,
    /// The BMC answers IPMI 1.5 only, which was not requested.
    #[error(
        "the BMC does not offer RMCP+: enable it on the BMC, or set protocol = \"ipmi-1.5\", whose \
         sessions others on the network can read and forge"
    )]
    NoRmcpPlus,
    /// With IPMI 1.5: the BMC offers no authentication that we have.
    #[error("the BMC offers no IPMI 1.5 authentication that this program has: enable MD5")]
    NoAuthentication,
    /// The password is too long for IPMI 1.5.
    #[error(
        "passwords of IPMI 1.5 have at most {PASSWORD_15_BYTES_MAX} bytes: shorten the password"
    )]
    LongPassword,
    /// An answer during the login is too short.
    #[error("the BMC answers the login with a message that is too short")]
    Malformed,
    /// Any other status.
    #[error("the BMC refuses a session with status {0:#04x}")]
    Status(u8),
}

impl LoginError {
    /// From the status of an answer in the key exchange of RMCP+.
    pub(crate) fn from_status(status: u8) -> Self {
        match status {
            0x01 | 0x0B => Self::Busy,
            0x04..=0x07 | 0x10 | 0x11 => Self::Suite,
            0x09 | 0x0A => Self::Privilege,
            0x0C | 0x0D => Self::User,
            0x0F => Self::Password,
            other => Self::Status(other),
        }
    }

    /// Whether another attempt is useless until one side is changed.
    pub fn is_permanent(self) -> bool {
        !matches!(self, Self::Busy | Self::Malformed | Self::Status(_))
    }
}
