//! ftb-slurm: the bridge between ftb and Slurm, one for each site.
//!
//! Conditions drain nodes; the end of the conditions resumes those that the bridge has drained.
//! What people and Slurm do to nodes becomes events. The core is pure: [`bridge`], [`reason`]. The
//! shell is thin: [`slurm`] runs `scontrol`, [`watch`] connects the three. [`health`] answers for
//! one node, [`advice`] names nodes that a job should not get.
#![forbid(unsafe_code)]

pub mod advice;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod health;
pub mod reason;
pub mod slurm;
pub mod watch;
