//! The agents around this one, as parts that have no links of their own see them.

use crate::ident::{OriginId, Rank};
use crate::node::api::LinkId;

/// One agent in one place: a later hello has a higher attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node) struct Sighting {
    pub(in crate::node) rank: Rank,
    pub(in crate::node) origin: OriginId,
    pub(in crate::node) attempt: u64,
}

impl Sighting {
    /// An agent of which only the rank is known.
    pub(in crate::node) fn unseen(rank: Rank) -> Self {
        Self { rank, origin: OriginId(0), attempt: 0 }
    }
}

/// What other parts see of parent and children.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::node) struct Around {
    pub(in crate::node) is_root: bool,
    /// Whether this is the acting root or its standby.
    pub(in crate::node) holds_log: bool,
    /// Until when an acting root waits for a log.
    pub(in crate::node) waits_until_ns: Option<u64>,
    /// Standby and syncing standby of an acting root.
    pub(in crate::node) followers: Vec<LinkId>,
    pub(in crate::node) parent: Option<ParentView>,
    pub(in crate::node) children: Vec<ChildView>,
}

/// The parent.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::node) struct ParentView {
    pub(in crate::node) link: LinkId,
    pub(in crate::node) sighting: Sighting,
    pub(in crate::node) host: String,
    /// The ranks from the acting root down to it.
    pub(in crate::node) path: Vec<Rank>,
    pub(in crate::node) standby: Option<Rank>,
}

/// A child.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::node) struct ChildView {
    pub(in crate::node) link: LinkId,
    pub(in crate::node) sighting: Sighting,
    pub(in crate::node) host: String,
    pub(in crate::node) attached: bool,
}

impl Around {
    pub(in crate::node) fn parent_link(&self) -> Option<LinkId> {
        self.parent.as_ref().map(|parent| parent.link)
    }

    /// The children that have said where they resume.
    pub(in crate::node) fn attached(&self) -> impl Iterator<Item = &ChildView> {
        self.children.iter().filter(|child| child.attached)
    }

    pub(in crate::node) fn child(&self, link: LinkId) -> Option<&ChildView> {
        self.children.iter().find(|child| child.link == link)
    }
}
