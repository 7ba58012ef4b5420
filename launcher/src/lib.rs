//! The launcher: starts the processes of a parallel job on its nodes and keeps them running when nodes fail.
//!
//! Three pure state machines decide: the job launcher ([`jl`]), the node launch agent ([`nla`]) and the
//! policy. [`message`] is what they say to each other, [`wire`] how that travels as events.
//! `docs/launcher-protocol.md` is the contract, `docs/launcher.md` the user's page.

pub mod backend;
pub mod cli;
pub mod commands;
pub mod jl;
pub mod message;
pub mod names;
pub mod nla;
pub mod policy;
pub mod shell;
pub mod tree;
pub mod wire;
