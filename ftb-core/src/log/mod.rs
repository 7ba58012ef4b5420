//! The log of a component: entries and gaps, epochs, positions, readers.
//!
//! Responsible for: what a log holds and how two logs compare. Not responsible for: which agent
//! appends, replicates or delivers ([`crate::node`]).

pub mod conditions;
pub(crate) mod entries;
pub mod epochs;
pub(crate) mod followed;
pub mod gap;
pub mod item;
pub mod position;
pub mod ranges;
pub(crate) mod reader;
pub(crate) mod retained;
pub mod table_view;
