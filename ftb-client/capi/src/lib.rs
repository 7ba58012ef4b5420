//! `libftb`: the client API 0.5 of CIFTS FTB, in C, on top of [`ftb_client`].
//!
//! Programs written for the Fault Tolerance Backplane compile against the headers in `include/` and
//! link `libftb.so` (or `libftb.a`) unchanged. Names, codes, layouts and rules are those of CIFTS
//! FTB 0.6.2; where that crashed, blocked or leaked, a documented code is returned. The manual is
//! `docs/capi.md`.
//!
//! - [`abi`]: structures, constants and codes as C sees them;
//! - [`ffi`]: the nine functions and our extension, and everything that is `unsafe`;
//! - `subscription`, `schema`, `declared`, `space`, `table`, `queue`, `gaps`, `ending`: the rules,
//!   without I/O;
//! - `convert`: an event here and there;
//! - `process`, `common`, `client`, `delivery`, `engine`: the shell: one runtime thread for the
//!   process, one attachment for each connected client, one callback thread for each that wants
//!   callbacks;
//! - `settings`, `report`: what the environment says, and what is said to the user.
//!
//! Responsible for: the C API. Not responsible for: reaching the agent and keeping events until
//! they are confirmed, which is `ftb_client`'s.

pub mod abi;
mod client;
mod common;
mod convert;
mod declared;
mod delivery;
mod ending;
mod engine;
pub mod ffi;
mod gaps;
mod process;
mod queue;
mod report;
mod schema;
mod settings;
mod space;
mod streams;
mod subscription;
mod table;
mod text;
