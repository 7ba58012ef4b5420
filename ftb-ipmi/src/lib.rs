//! `ftb-ipmi`: watches the hardware of nodes through their BMCs and publishes failures.
//!
//! From the outside in: [`config`] has the BMCs and the rules. [`watch`] runs one task for each
//! BMC. The task sends commands through [`bmc`], lists the sensors with [`inventory`], and gives
//! readings and events to a [`monitor::Monitor`]. [`event`] turns its findings into events;
//! [`publish`] publishes them. [`conditions`] follows what the cluster knows of them. [`sdr`],
//! [`rules`], [`sel`] and [`monitor`] have no I/O and no clock.

pub mod bmc;
pub mod cli;
pub mod conditions;
pub mod config;
pub mod event;
pub mod inventory;
pub mod monitor;
pub mod publish;
pub mod rules;
pub mod sdr;
pub mod sel;
pub mod service;
pub mod table;
pub mod watch;
