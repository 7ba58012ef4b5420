//! What an agent knows of its parent.

use crate::frame::HelloAck;
use crate::ident::{OriginId, Rank};
use crate::node::api::LinkId;
use crate::node::around::Sighting;
use crate::position::Epoch;

/// The parent.
pub(in crate::node) struct Parent {
    pub(in crate::node) link: LinkId,
    pub(in crate::node) rank: Rank,
    pub(in crate::node) host: String,
    pub(in crate::node) origin: OriginId,
    /// The epoch of the epoch history that we answered with Resume.
    pub(in crate::node) resumed: Option<Epoch>,
    /// Bytes of events that may still be sent.
    pub(in crate::node) credit: i64,
    /// How many batches of events were sent.
    pub(in crate::node) batches: u64,
    pub(in crate::node) ack_due: bool,
    pub(in crate::node) path: Vec<Rank>,
    pub(in crate::node) standby: Option<Rank>,
}

impl Parent {
    /// An agent that has accepted this one as a child.
    pub(in crate::node) fn new(link: LinkId, hello_ack: &HelloAck) -> Self {
        Self {
            link,
            rank: hello_ack.rank,
            host: hello_ack.host.clone(),
            origin: hello_ack.origin,
            resumed: None,
            credit: i64::try_from(hello_ack.window_bytes).unwrap_or(i64::MAX),
            batches: 0,
            ack_due: false,
            path: Vec::new(),
            standby: None,
        }
    }

    /// Which agent it is. It does not say which of its hellos made it what it is.
    pub(in crate::node) fn sighting(&self) -> Sighting {
        Sighting { rank: self.rank, origin: self.origin, attempt: 0 }
    }
}
