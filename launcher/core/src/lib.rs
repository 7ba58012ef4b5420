//! What the launcher decides: pure state machines without clock, I/O or tasks.
//!
//! - [`jl`]: the job launcher, one for each job
//! - [`nla`]: the node launch agent, one for each node of a job, with its PMI server
//! - [`policy`]: what becomes of a fault
//! - [`drill`]: what both would do about a fault, without doing it
//! - [`progress`]: which ranks are hung
//! - [`tree`]: the launch tree, which starts the launch agents
//! - [`link`]: the job connection along it
//! - [`packet`]: the format of what processes send each other
//! - [`memory`]: checkpoints in the memory of the nodes
//! - [`warm`]: processes that wait for a rank to replace
//! - [`repair`]: `revoke`, `agree` and `shrink` of a job that goes on without dead ranks
//!
//! [`message`] has the messages between them, [`migration_state`] the four states of a node,
//! [`wire`] encodes most of these as events of the backplane. `launcher/core/protocol.md` is the
//! contract. Not responsible for: processes, sockets, files (`ftb-launcher`, `ftb-launcher-pods`).
#![allow(missing_docs, reason = "names of plain data fields say what they are")]

pub mod drill;
pub mod jl;
pub mod link;
pub mod manner;
pub mod memory;
pub mod message;
pub mod migration_state;
pub mod names;
pub mod nla;
pub mod packet;
pub mod policy;
pub mod progress;
pub mod repair;
pub mod tree;
pub mod warm;
pub mod wire;
