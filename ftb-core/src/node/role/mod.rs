//! The role of an agent in its component: one enum, one transition function, one table of edges.
//!
//! Responsible for (this file): which roles exist, which cause leads from which to which, and the
//! state that exists in one role only. A test renders [`EDGES`] into `docs/roles.md`. What an agent
//! does in a role is in the files of this folder, as methods of `Node`: [`root`], [`standby`],
//! [`follow`], [`install`].

pub(in crate::node) mod entry_refs;
pub(in crate::node) mod follow;
pub(in crate::node) mod forks;
pub(in crate::node) mod grouping;
pub(in crate::node) mod install;
pub(in crate::node) mod journal;
pub(in crate::node) mod offered;
pub(in crate::node) mod on_disk;
pub(in crate::node) mod parent;
pub(in crate::node) mod re_proposal;
pub(in crate::node) mod root;
pub(in crate::node) mod standby;

use crate::ranges::PublisherRanges;
use core::fmt;
use parent::Parent;
use root::{Root, RootPhase};
use standby::{LogShipper, Replica};

/// What an agent is in its component.
pub(in crate::node) enum Role {
    /// It has no parent and looks for one.
    Searching(KeptLog),
    /// It is below a parent.
    Member(Box<Parent>),
    /// It is below the acting root, which sends it the log.
    Syncing(Box<Parent>, Box<Replica>),
    /// It holds the whole log and acknowledges each new entry.
    Standby(Box<Parent>, Box<Replica>),
    /// It sends its own log to a new root that has none.
    Offering(Box<Parent>, Box<Offer>),
    /// It is the acting root.
    Root(Box<Root>),
}

/// A log from below the last parent.
pub(in crate::node) enum KeptLog {
    None,
    Copy(Box<Replica>),
    /// The agent's own log, which was offered; its publishers.
    Whole(PublisherRanges),
}

/// The agent's own log on its way up.
pub(in crate::node) struct Offer {
    pub(in crate::node) shipper: LogShipper,
    pub(in crate::node) published: PublisherRanges,
}

/// The name of a role. An acting root has three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoleName {
    /// It has no parent and looks for one.
    Searching,
    /// It is below a parent.
    Member,
    /// It receives a copy of the log.
    Syncing,
    /// It holds the whole log.
    Standby,
    /// It sends its log to a new root.
    Offering,
    /// It is acting root and waits for a log of its component.
    AwaitingLog,
    /// It is acting root and receives the log of a child.
    Installing,
    /// It is acting root.
    Root,
}

impl RoleName {
    /// The word in the log and in the docs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Searching => "searching",
            Self::Member => "member",
            Self::Syncing => "syncing",
            Self::Standby => "standby",
            Self::Offering => "offering",
            Self::AwaitingLog => "awaiting-log",
            Self::Installing => "installing",
            Self::Root => "root",
        }
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a role changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) enum RoleCause {
    /// The agent starts.
    Started,
    /// The parent is lost or has closed the link.
    ParentLost,
    /// No lower rank answers, or another agent has the same rank.
    NoParent,
    /// A parent is found.
    ParentTaken,
    /// A parent is found that wants the agent's log.
    LogWanted,
    /// The parent follows a log: the agent compares its own with it.
    TreeStateReceived,
    /// The acting root begins to send its log.
    CopyBegun,
    /// The whole log is here.
    CopyComplete,
    /// The copy is not kept up any more.
    CopyStopped,
    /// A child begins to send its log.
    LogOffered,
    /// The log of the child is complete.
    LogInstalled,
    /// The child with the log is gone, or its log comes too late.
    OfferLost,
    /// No log has come in time, or none can come.
    WaitOver,
}

/// One edge of the table.
#[derive(Clone, Copy, Debug)]
struct RoleEdge {
    /// From.
    from: RoleName,
    /// Why.
    cause: RoleCause,
    /// To.
    to: RoleName,
    /// What it means, for the reader of `docs/roles.md`.
    meaning: &'static str,
}

const fn edge(from: RoleName, cause: RoleCause, to: RoleName, meaning: &'static str) -> RoleEdge {
    RoleEdge { from, cause, to, meaning }
}

/// Every edge.
#[rustfmt::skip]
const EDGES: &[RoleEdge] = {
    use RoleCause::{
        CopyBegun, CopyComplete, CopyStopped, LogInstalled, LogOffered, LogWanted, NoParent,
        OfferLost, ParentLost, ParentTaken, Started, TreeStateReceived, WaitOver,
    };
    use RoleName::{
        AwaitingLog, Installing, Member, Offering, Root, Searching, Standby, Syncing,
    };
    &[
        edge(Searching, Started, Searching, "the first search"),
        edge(Searching, NoParent, AwaitingLog, "it was in no tree: it waits for a log"),
        edge(Searching, NoParent, Root, "its epoch is incomplete without a copy"),
        edge(Searching, ParentTaken, Member, "it follows the log of its parent"),
        edge(Member, ParentLost, Searching, "the next search begins at once"),
        edge(Member, NoParent, Root, "a duplicate of this rank lives: it stays out"),
        edge(Member, NoParent, AwaitingLog, "the same before it knows a log"),
        edge(Member, ParentTaken, Member, "it moves to a better parent"),
        edge(Member, LogWanted, Offering, "the parent is a root without a log"),
        edge(Member, CopyBegun, Syncing, "it is the next standby"),
        edge(Syncing, ParentLost, Searching, "an incomplete copy is of no use"),
        edge(Syncing, NoParent, Root, "a duplicate of this rank lives"),
        edge(Syncing, ParentTaken, Member, "a copy counts over one link only"),
        edge(Syncing, CopyBegun, Syncing, "the log has outrun the copy"),
        edge(Syncing, CopyComplete, Standby, "the root commits with it once it hears so"),
        edge(Syncing, CopyStopped, Member, "another standby, or another epoch"),
        edge(Standby, ParentLost, Searching, "as root it takes over with the copy"),
        edge(Standby, NoParent, Root, "a duplicate of this rank lives"),
        edge(Standby, ParentTaken, Member, "it re-proposes its copy beyond the fork"),
        edge(Standby, CopyBegun, Syncing, "the root begins again"),
        edge(Standby, CopyStopped, Member, "skipped, another standby, or another epoch"),
        edge(Offering, ParentLost, Searching, "the log stays here"),
        edge(Offering, NoParent, Root, "a duplicate of this rank lives"),
        edge(Offering, ParentTaken, Member, "it moves before its log was taken"),
        edge(Offering, TreeStateReceived, Member, "it re-proposes the rest"),
        edge(Offering, CopyBegun, Syncing, "the new root sends its log"),
        edge(AwaitingLog, WaitOver, Root, "it begins with its own log"),
        edge(AwaitingLog, LogOffered, Installing, "a child brings the log"),
        edge(AwaitingLog, ParentTaken, Member, "a lower rank is root"),
        edge(Installing, LogInstalled, Root, "it opens an epoch on top of that log"),
        edge(Installing, OfferLost, AwaitingLog, "another child may bring the log"),
        edge(Installing, OfferLost, Root, "it goes on with its own log"),
        edge(Installing, ParentTaken, Member, "a lower rank is root"),
        edge(Root, LogOffered, Installing, "with little of its own it takes a longer log"),
        edge(Root, ParentTaken, Member, "two components meet: it re-proposes its log"),
    ]
};

/// The table as Markdown.
pub fn role_table() -> String {
    let mut text = String::from("| from | cause | to | meaning |\n|---|---|---|---|\n");
    for RoleEdge { from, cause, to, meaning } in EDGES {
        text += &format!("| {from} | {cause:?} | {to} | {meaning} |\n");
    }
    text
}

impl Role {
    /// The only way to change the role. Gives the roles before and after; `None` without an edge.
    #[must_use]
    pub(in crate::node) fn transition(
        &mut self,
        cause: RoleCause,
        next: impl FnOnce(Self) -> Self,
    ) -> Option<(RoleName, RoleName)> {
        let from = self.name();
        *self = next(std::mem::replace(self, Self::idle()));
        let to = self.name();
        let known = EDGES.iter().any(|e| (e.from, e.cause, e.to) == (from, cause, to));
        known.then_some((from, to))
    }

    pub(in crate::node) fn name(&self) -> RoleName {
        match self {
            Self::Searching(_) => RoleName::Searching,
            Self::Member(_) => RoleName::Member,
            Self::Syncing(..) => RoleName::Syncing,
            Self::Standby(..) => RoleName::Standby,
            Self::Offering(..) => RoleName::Offering,
            Self::Root(root) => match root.phase {
                RootPhase::AwaitingLog { .. } => RoleName::AwaitingLog,
                RootPhase::Installing { .. } => RoleName::Installing,
                RootPhase::Leading => RoleName::Root,
            },
        }
    }

    pub(in crate::node) fn is_root(&self) -> bool {
        matches!(self, Self::Root(_))
    }

    /// Whether this is the acting root or its standby.
    pub(in crate::node) fn holds_log(&self) -> bool {
        self.is_root() || self.replica().is_some_and(|replica| replica.complete)
    }

    /// Until when an acting root waits for a log.
    pub(in crate::node) fn waits_until_ns(&self) -> Option<u64> {
        match self.root()?.phase {
            RootPhase::AwaitingLog { until_ns } => Some(until_ns),
            RootPhase::Installing { awaits, .. } => awaits,
            RootPhase::Leading => None,
        }
    }

    pub(in crate::node) fn is_searching(&self) -> bool {
        matches!(self, Self::Searching(_))
    }

    pub(in crate::node) fn root(&self) -> Option<&Root> {
        match self {
            Self::Root(root) => Some(root),
            _ => None,
        }
    }

    pub(in crate::node) fn root_mut(&mut self) -> Option<&mut Root> {
        match self {
            Self::Root(root) => Some(root),
            _ => None,
        }
    }

    pub(in crate::node) fn parent(&self) -> Option<&Parent> {
        match self {
            Self::Member(parent)
            | Self::Syncing(parent, _)
            | Self::Standby(parent, _)
            | Self::Offering(parent, _) => Some(parent),
            Self::Searching(_) | Self::Root(_) => None,
        }
    }

    pub(in crate::node) fn parent_mut(&mut self) -> Option<&mut Parent> {
        match self {
            Self::Member(parent)
            | Self::Syncing(parent, _)
            | Self::Standby(parent, _)
            | Self::Offering(parent, _) => Some(parent),
            Self::Searching(_) | Self::Root(_) => None,
        }
    }

    /// The copy of the acting root's log.
    pub(in crate::node) fn replica(&self) -> Option<&Replica> {
        match self {
            Self::Syncing(_, replica)
            | Self::Standby(_, replica)
            | Self::Searching(KeptLog::Copy(replica)) => Some(replica),
            _ => None,
        }
    }

    /// The copy of the acting root's log.
    pub(in crate::node) fn replica_mut(&mut self) -> Option<&mut Replica> {
        match self {
            Self::Syncing(_, replica)
            | Self::Standby(_, replica)
            | Self::Searching(KeptLog::Copy(replica)) => Some(replica),
            _ => None,
        }
    }

    /// Whether the agent's own log is complete and offered to a root that has not taken it.
    pub(in crate::node) fn is_offered(&self) -> bool {
        matches!(self, Self::Offering(..) | Self::Searching(KeptLog::Whole(_)))
    }

    /// The parent, the copy of its log, and the publishers of an offered log.
    fn into_parts(self) -> (Option<Box<Parent>>, KeptLog) {
        match self {
            Self::Searching(log) => (None, log),
            Self::Member(parent) => (Some(parent), KeptLog::None),
            Self::Syncing(parent, replica) | Self::Standby(parent, replica) => {
                (Some(parent), KeptLog::Copy(replica))
            }
            Self::Offering(parent, offer) => (Some(parent), KeptLog::Whole(offer.published)),
            Self::Root(_) => (None, KeptLog::None),
        }
    }

    /// Looks for a parent; the log of the last role stays.
    pub(in crate::node) fn into_search(self) -> Self {
        Self::Searching(self.into_log())
    }

    /// Below the same parent without a copy, or with another one.
    pub(in crate::node) fn with_copy(self, replica: Option<Replica>) -> Self {
        match (self.into_parts(), replica.map(Box::new)) {
            ((Some(parent), _), Some(replica)) => Self::Syncing(parent, replica),
            ((Some(parent), _), None) => Self::Member(parent),
            // The table has no such edge.
            ((None, log), _) => Self::Searching(log),
        }
    }

    /// The copy of the log is complete.
    pub(in crate::node) fn into_standby(self) -> Self {
        match self {
            Self::Syncing(parent, replica) => Self::Standby(parent, replica),
            other => other,
        }
    }

    /// Below the same parent, to which the agent's own log goes.
    fn with_offer(self, offer: Offer) -> Self {
        match self.into_parts() {
            (Some(parent), _) => Self::Offering(parent, Box::new(offer)),
            (None, log) => Self::Searching(log),
        }
    }

    /// An acting root in another phase.
    pub(in crate::node) fn with_phase(mut self, phase: RootPhase) -> Self {
        if let Self::Root(root) = &mut self {
            root.phase = phase;
        }
        self
    }

    /// The log that stays when the role ends; of an acting root nothing.
    pub(in crate::node) fn into_log(self) -> KeptLog {
        self.into_parts().1
    }

    /// A role without a search, for the moment before the first.
    pub(in crate::node) fn idle() -> Self {
        Self::Searching(KeptLog::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_role_has_two_edges_with_one_cause_and_one_end() {
        for edge in EDGES {
            let key = |e: &RoleEdge| (e.from, e.cause, e.to);
            assert_eq!(EDGES.iter().filter(|e| key(e) == key(edge)).count(), 1, "{edge:?}");
        }
    }

    #[test]
    fn the_page_of_roles_shows_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/roles.md");
        let mut wanted = String::from(
            "# Roles of an agent\n\n\
             Rendered from `ftb-core/src/node/role/mod.rs` by a test. The command \
             `FTB_BLESS=1 cargo test -p\nftb-core` writes it. Each change is one line in the \
             agent's log: machine `role`, the\ncause as its subject. A change without a row \
             counts as `impossible`.\n\n",
        );
        wanted += &role_table();
        ftb_fuzz::kept::assert_file_is_current(path, wanted);
    }
}
