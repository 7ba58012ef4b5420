//! What an agent knows of its parent.

use crate::ident::{OriginId, Rank};
use crate::node::api::LinkId;
use crate::node::membership::members::Sighting;
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
    pub(in crate::node) subscribe_due: bool,
    pub(in crate::node) ack_due: bool,
    pub(in crate::node) path: Vec<Rank>,
    pub(in crate::node) standby: Option<Rank>,
}

impl Parent {
    /// Which agent it is. It does not say which of its hellos made it what it is.
    pub(in crate::node) fn sighting(&self) -> Sighting {
        Sighting { rank: self.rank, origin: self.origin, attempt: 0 }
    }
}
