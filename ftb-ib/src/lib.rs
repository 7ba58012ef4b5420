//! ftb-ib: publishes what happens to the InfiniBand and RoCE adapters of a node.
//!
//! The core is pure: [`monitor`], [`port`], [`counter`], [`kind`], [`finding`]. The shell is thin:
//! [`sysfs`], [`verbs`], [`uevent`], [`watch`]. The verbs library is loaded at run time: on a node
//! without rdma-core the daemon starts and waits.

pub mod cli;
pub mod config;
pub mod counter;
pub mod facts;
pub mod finding;
pub mod kind;
pub mod monitor;
pub mod port;
pub mod sysfs;
pub mod uevent;
pub mod verbs;
pub mod watch;
