//! The agents around this one, as parts that have no links of their own see them.

use crate::ident::{OriginId, Rank};
use crate::node::api::LinkId;

/// One agent in one place: a later hello has a higher attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) rank: Rank,
    pub(crate) origin: OriginId,
    pub(crate) attempt: u64,
}

impl Sighting {
    /// An agent of which only the rank is known.
    pub(crate) fn unseen(rank: Rank) -> Self {
        Self { rank, origin: OriginId(0), attempt: 0 }
    }
}

/// What other parts see of parent and children.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) is_root: bool,
    /// Whether this is the acting root or its standby.
    pub(crate) holds_log: bool,
    /// Until when an acting root waits for a log.
    pub(crate) waits_until_ns: Option<u64>,
    /// The child that may hold more of the log than an acting root.
    pub(crate) log_holder: Option<LinkId>,
    /// Standby and syncing standby of an acting root.
    pub(crate) followers: Vec<LinkId>,
    pub(crate) parent: Option<ParentView>,
    pub(crate) children: Vec<ChildView>,
}

/// The parent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ParentView {
    pub(crate) link: LinkId,
    pub(crate) sighting: Sighting,
    pub(crate) host: String,
    /// The ranks from the acting root down to it.
    pub(crate) path: Vec<Rank>,
    pub(crate) standby: Option<Rank>,
    /// It follows a log, and knows where this agent resumes.
    pub(crate) has_resumed: bool,
}

/// A child.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ChildView {
    pub(crate) link: LinkId,
    pub(crate) sighting: Sighting,
    pub(crate) host: String,
    pub(crate) attached: bool,
}

impl Around {
    /// Whether this agent looks for a parent.
    pub(crate) fn is_searching(&self) -> bool {
        !self.is_root && self.parent.is_none()
    }

    pub(crate) fn parent_link(&self) -> Option<LinkId> {
        self.parent.as_ref().map(|parent| parent.link)
    }

    /// The children that have said where they resume.
    pub(crate) fn attached(&self) -> impl Iterator<Item = &ChildView> {
        self.children.iter().filter(|child| child.attached)
    }

    pub(crate) fn child(&self, link: LinkId) -> Option<&ChildView> {
        self.children.iter().find(|child| child.link == link)
    }
}
