//! C programs against the headers and the libraries, with a real agent.
//!
//! The programs are in `tests/c`, what they print is in `tests/golden` (`FTB_BLESS=1` writes it).
#![allow(clippy::unwrap_used)]

mod agent;
mod behaviour;
mod layout;
mod sanity;
mod support;
