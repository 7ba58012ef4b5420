//! The links of an agent: the search for a parent, the parent, the children.

pub(in crate::node) mod children;
pub(in crate::node) mod mismatches;
pub(in crate::node) mod plausible;
pub(in crate::node) mod search;
pub(in crate::node) mod uplink;
