//! Who is in the tree, and how a lost member is confirmed dead.

pub(in crate::node) mod dynamic;
pub(in crate::node) mod members;
pub(in crate::node) mod reconciliation;
pub(in crate::node) mod root_watch;
pub(in crate::node) mod suspicion;
