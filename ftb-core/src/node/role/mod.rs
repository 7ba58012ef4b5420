//! The log and who holds it: acting root, standby, journal, and what happens when two logs meet.

pub(in crate::node) mod entry_refs;
pub(in crate::node) mod follow;
pub(in crate::node) mod install;
pub(in crate::node) mod journal;
pub(in crate::node) mod root;
pub(in crate::node) mod standby;
