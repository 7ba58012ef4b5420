//! ftb-bridge: between a cluster and NATS JetStream, and to a collector of traces.
//!
//! It exports events, conditions and gaps as CloudEvents, each once, imports alarms of the
//! facility, and sends traces of the episodes of jobs. The core is pure: [`cloud_event`],
//! [`export`], [`import`], [`otlp`], [`service`]. The shell is thin: [`shell`] owns the
//! connections, the state file and the time.
#![forbid(unsafe_code)]

pub mod cli;
pub mod cloud_event;
pub mod config;
pub mod export;
pub mod import;
pub mod otlp;
pub mod service;
pub mod shell;
