//! The launcher's processes: `ftb-launch`, the job launcher, and `ftb-nla`, the node launch agent.
//!
//! They carry inputs to the state machines of `ftb-launcher-core` and execute the outputs:
//! processes, sockets, files, the clock and the command line. They decide nothing.
//! `docs/launcher.md` is the user's page.
#![allow(missing_docs, reason = "names of plain data fields say what they are")]

pub mod addresses;
pub mod backplane;
pub mod clash;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod connection;
pub mod console;
pub mod control;
pub mod drills;
pub mod guard;
pub mod hang_conditions;
pub mod image_request;
pub mod image_server;
pub mod jl;
pub mod jobdir;
pub mod links;
pub mod listener;
mod loops;
pub mod memory;
pub mod nla;
pub mod nodedir;
pub mod output;
pub mod own;
pub mod own_agent;
mod parking;
pub mod plan;
pub mod program;
pub mod progress;
mod rank_server;
pub mod rankfile;
pub mod ranks;
pub mod refused;
pub mod remote_kill;
pub mod reports;
pub mod running;
pub mod sets;
pub mod spec;
pub mod starter;
pub mod streams;
pub mod transfer;
pub mod waiting;
