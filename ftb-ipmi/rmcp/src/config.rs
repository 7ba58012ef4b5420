//! Configuration of a session.

use crate::CipherSuite;
use std::time::Duration;

/// Longest user name in bytes.
pub const USER_BYTES_MAX: usize = 16;
/// Longest password of IPMI 1.5 in bytes; shorter ones are padded with zeros.
pub(crate) const PASSWORD_15_BYTES_MAX: usize = 16;
/// Longest password of RMCP+ in bytes; shorter ones are padded with zeros.
const PASSWORD_BYTES_MAX: usize = 20;

/// The protocol of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RMCP+ with these suites, in this order. No answer of a BMC changes it to IPMI 1.5.
    RmcpPlus([Option<CipherSuite>; 2]),
    /// IPMI 1.5, for boards without RMCP+. Others on the network can read and forge its messages,
    /// and can find the password from a recorded login.
    Ipmi15,
}

impl Protocol {
    /// RMCP+ with the strongest suite that the BMC offers.
    pub const RMCP_PLUS: Self =
        Self::RmcpPlus([Some(CipherSuite::Seventeen), Some(CipherSuite::Three)]);

    /// Longest password in bytes.
    pub fn password_bytes_max(self) -> usize {
        match self {
            Self::Ipmi15 => PASSWORD_15_BYTES_MAX,
            Self::RmcpPlus(_) => PASSWORD_BYTES_MAX,
        }
    }
}

/// A BMC on the network and how to log in to it.
#[derive(Clone, PartialEq, Eq)]
pub struct LanConfig {
    /// Host name or IP address.
    pub host: String,
    /// UDP port; the standard port is 623.
    pub port: u16,
    /// User name, at most [`USER_BYTES_MAX`] bytes.
    pub user: String,
    /// Password, at most [`Protocol::password_bytes_max`] bytes.
    pub password: String,
    /// The key of the BMC (K_G), if it has one.
    pub group_key: Option<Vec<u8>>,
    /// Requested privilege level: 2 user, 3 operator, 4 administrator. Reading needs level 2.
    pub privilege: u8,
    /// The protocol.
    pub protocol: Protocol,
    /// Wait for an answer, before the request is sent again.
    pub timeout: Duration,
    /// How many times a request is sent again.
    pub retries: u32,
}

impl std::fmt::Debug for LanConfig {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LanConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl LanConfig {
    /// Host, and the port if it is not the standard port.
    pub fn name(&self) -> String {
        match self.port {
            623 => self.host.clone(),
            port => format!("{}:{port}", self.host),
        }
    }
}
