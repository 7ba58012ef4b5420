//! What the clients of this agent want and read.

pub(in crate::node) mod budget;
pub(in crate::node) mod clients;
pub(in crate::node) mod deliver;
pub(in crate::node) mod history;
pub(in crate::node) mod history_sources;
pub(in crate::node) mod index;
pub(in crate::node) mod interest;
pub(in crate::node) mod subscriptions;
