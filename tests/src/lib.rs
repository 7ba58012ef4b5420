//! Cross-crate tests.

pub mod bmc;
pub mod cluster;
pub mod guest;
pub mod http;
pub mod load;
pub mod man;
pub mod netns;
pub mod pages;
pub mod python;
pub mod reported;
pub mod roff;
pub mod samples;
pub mod skip;
pub mod slurm;
pub mod unix;
pub mod user;
