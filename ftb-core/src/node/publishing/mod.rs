//! What the clients of this agent publish, on its way to the acting root.

pub(in crate::node) mod delayed_acks;
pub(in crate::node) mod outbox;
pub(in crate::node) mod publish;
pub(in crate::node) mod storm;
pub(in crate::node) mod upward;
