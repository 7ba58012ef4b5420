//! Who is in the tree, and how a silent member is confirmed dead.

pub(in crate::node) mod dynamic;
pub(in crate::node) mod members;
pub(in crate::node) mod probes;
pub(in crate::node) mod snapshot;
pub(in crate::node) mod suspicion;
