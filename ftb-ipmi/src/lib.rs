//! `ftb-ipmi`: watches the hardware of nodes through their BMCs and publishes what fails.
//!
//! From the outside in: [`config`] says which BMCs and which rules; [`watch`] keeps one task for
//! each BMC, which asks it through [`bmc`], learns its sensors with [`inventory`], and hands what it
//! hears to a [`monitor::Monitor`]; what that finds becomes an event in [`finding`] and leaves
//! through [`publish`]. [`sdr`], [`rules`], [`sel`] and [`monitor`] decide without I/O or clock.

pub mod bmc;
pub mod cli;
pub mod config;
pub mod finding;
pub mod inventory;
pub mod monitor;
pub mod publish;
pub mod rules;
pub mod sdr;
pub mod sel;
pub mod service;
pub mod table;
pub mod watch;
