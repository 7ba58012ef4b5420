//! What the suites of this crate share: the simulated BMC.
#![allow(dead_code, unreachable_pub, reason = "each suite uses its part")]

#[path = "../../../tests/src/bmc.rs"]
pub mod bmc;
