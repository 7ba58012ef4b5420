//! ftb-act: acts on the conditions of a cluster, one for each site.
//!
//! Rules lead from conditions to programs, web requests, events, and hosts out of service. What
//! decides is pure: [`act`]. [`config`] reads the rules, [`store`] keeps what was done on disk,
//! [`watch`] connects both with agent, programs and web servers; [`replay`] asks the rules about
//! the log. Not responsible for: Slurm (ftb-slurm drains what is out of service), jobs (launcher).
#![forbid(unsafe_code)]

pub mod act;
pub mod cli;
pub mod config;
pub mod pages;
pub mod post;
pub mod program;
pub mod publish;
pub mod replay;
pub mod status;
pub mod store;
pub mod watch;
