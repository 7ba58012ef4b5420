//! ftb-bridge: between a cluster and NATS JetStream.
//!
//! It exports events, conditions and gaps as CloudEvents, each once, and imports alarms of the
//! facility. The core is pure: [`cloud_event`], [`export`], [`import`]. The shell is thin:
//! [`shell`] owns the connections, the state file and the time.
#![forbid(unsafe_code)]

pub mod cli;
pub mod cloud_event;
pub mod config;
pub mod export;
pub mod import;
pub mod shell;
