//! Cross-crate tests.

pub mod bmc;
pub mod cluster;
pub mod guest;
pub mod man;
