//! The launcher's processes: `ftb-launch`, the job launcher, and `ftb-nla`, the node launch agent.
//!
//! They carry inputs to the state machines of `ftb-launcher-core` and do what these want: processes, sockets, files,
//! the clock and the command line. Nothing is decided here. `docs/launcher.md` is the user's page.

pub mod clash;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod console;
pub mod control;
pub mod far;
pub mod guard;
pub mod jl;
pub mod jobdir;
pub mod link;
pub mod live;
pub mod nla;
pub mod nodedir;
pub mod output;
pub mod own;
pub mod plan;
pub mod program;
pub mod progress;
pub mod rankfile;
pub mod ranks;
pub mod refused;
pub mod seal;
pub mod secret;
pub mod spec;
pub mod starter;
pub mod streams;
pub mod transfer;
pub mod waiting;
