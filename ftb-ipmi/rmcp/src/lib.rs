//! Sessions with BMCs over UDP: RMCP+ (IPMI 2.0) and IPMI 1.5.
//!
//! Responsible for: packets, ciphers, the login, resending, and the match of an answer to its
//! request. Not for: which commands to send and what their answers mean, or local devices.
//!
//! `ipmi-rs` gives the message types. Its transports are not used: they take a late answer for the
//! next one, never resend, and panic on refused packets.
//!
//! From the outside in: `session` sends requests and matches answers, after `session::login` has
//! logged in with the proofs of `rakp`. `ipmb` makes messages, `packet` wraps them for the network,
//! `suite` encrypts and signs them. `numbers` rejects late and repeated packets. Only `session` has
//! I/O.

mod address;
mod config;
mod error;
mod ipmb;
mod numbers;
mod packet;
mod rakp;
mod session;
mod suite;
#[cfg(any(test, feature = "fake"))]
mod tests;

pub use address::{BMC_ADDRESS, Controller, Destination};
pub use config::{LanConfig, Protocol, USER_BYTES_MAX};
pub use error::{LoginError, SessionError};
pub use session::Session;
pub use suite::CipherSuite;
#[cfg(any(test, feature = "fake"))]
pub use tests::{fake, hostile};
