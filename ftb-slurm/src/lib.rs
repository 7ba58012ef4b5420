//! ftb-slurm: the bridge between ftb and Slurm, one for each site.
//!
//! Conditions drain nodes; the end of the conditions resumes those that the bridge has drained.
//! What people and Slurm do to nodes becomes events. The core is pure: [`rules`] says which
//! conditions count, [`bridge`] what is done, [`service`] what the bridge states of itself,
//! [`reason`] and [`notices`] how it is written. The shell is thin: [`slurm`] runs `scontrol`,
//! [`store`] has what survives the bridge, [`watch`] connects all. [`health`] answers for one
//! node, [`advice`] names nodes that a job should not get.
#![forbid(unsafe_code)]

pub mod advice;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod health;
pub mod notices;
pub mod reason;
pub mod rules;
pub mod service;
pub mod slurm;
pub mod store;
pub mod watch;
