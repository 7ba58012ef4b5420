//! The client library of ftb.

pub mod daemon;
