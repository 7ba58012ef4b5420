//! The vocabulary: events, severities, spaces, filters, host lists, ids, limits.
//!
//! Responsible for: what these values are and how they compare. Not responsible for: the log
//! ([`crate::log`]) and what agents do with it ([`crate::node`]).

pub mod catalog;
pub mod condition;
pub mod confirm_level;
pub mod event;
pub mod filter;
pub mod group;
pub mod hostlist;
pub mod ident;
pub mod latest;
pub mod limits;
pub mod member;
pub mod numbers;
pub mod protocol;
pub mod racks;
pub mod run;
pub mod sealed;
pub mod severity;
pub mod space;
pub mod spaces;
pub mod storm;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;
pub mod time;
pub mod trace;
pub mod tree;
