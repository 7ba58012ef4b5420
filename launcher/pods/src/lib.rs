//! How the ranks of a node are saved, moved and restored: checkpoint backends and pods.
//!
//! A pod has all ranks of a node in namespaces of their own, with a network address that moves with
//! them ([`pod`]). [`backend`] describes each way to save ranks as commands, [`steps`] runs these,
//! [`images`] is their result. Not responsible for: when this happens (`ftb-launcher-core`), and
//! connections to other nodes (`ftb-launcher`).
#![allow(missing_docs, reason = "names of plain data fields say what they are")]

pub mod activity;
pub mod backend;
pub mod counter;
pub mod document;
pub mod images;
pub mod input;
pub mod installed;
pub mod memory;
pub mod output;
pub mod owner;
pub mod packets;
pub mod pod;
pub mod rank_hooks;
mod sockets;
pub mod spec;
pub mod steps;
pub mod timeline;
