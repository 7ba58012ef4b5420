//! The agent of one node: the thin shell around the state machine of `ftb-core`.
//!
//! Responsible for: sockets and TLS, links and clients over gRPC, peer credentials and access
//! rules, the journal, configuration, log, orderly start and stop. Not responsible for: anything
//! that decides; tree, log, routing, retention and shedding are [`ftb_core::node`].

#![forbid(unsafe_code)]

pub mod access;
pub mod admin;
pub mod agent;
mod alarm;
pub mod announce;
pub mod clients;
pub mod config;
pub mod delivery_filter;
pub mod driver;
pub mod expiry;
pub mod handle;
mod heap;
pub mod host_lists;
pub mod journal;
pub mod links;
pub mod logging;
pub mod monitor;
pub mod nvhcd;
pub mod process;
pub mod public_reading;
pub mod queries;
mod repeats;
pub mod serve;
pub mod signing;
pub mod system;
pub mod transports;
mod trust;
pub mod world;
