//! The wire: types generated from `ftb/v1/*.proto` and `nvhcd/nvhcd.proto`, and conversions that
//! check every size.
//!
//! Responsible for: what crosses a socket. Whatever comes in is hostile until converted: the
//! conversions to core types check bounds, texts and numbers once, later hops trust them. Not
//! responsible for: sockets, and what is done with a message.

#![forbid(unsafe_code)]

pub mod client;
mod common;
pub mod condition_state;
pub mod event;
#[cfg(test)]
mod golden;
pub mod json;
pub mod link;
pub mod silence;
pub mod wire;

/// The generated messages and services, version 1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::use_self)]
pub mod v1 {
    tonic::include_proto!("ftb.v1");
}

/// The generated health service of NVIDIA's Resiliency Extension.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::use_self)]
pub mod nvhcd {
    tonic::include_proto!("nvhcd");
}
