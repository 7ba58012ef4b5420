//! Who is in the tree, and how a silent member is confirmed dead.

mod dynamic;
mod members;
mod probes;
mod snapshot;
mod suspicion;

pub(in crate::node) use dynamic::Assignment;

use crate::ident::Rank;
use crate::node::api::LinkId;
use dynamic::DynamicMembers;
use members::Members;
use snapshot::Snapshot;
use std::collections::VecDeque;
use suspicion::Suspicions;

/// The part of an agent that knows the other agents.
#[derive(Default)]
pub(in crate::node) struct Membership {
    members: Members,
    /// Agents that are in no member list.
    dynamic: DynamicMembers,
    /// What the tree must learn of them.
    assignments: VecDeque<Assignment>,
    suspicions: Suspicions,
    snapshot: Snapshot,
}

impl Membership {
    /// When a tree query has waited long enough.
    pub(in crate::node) fn tree_query_ns(&self) -> Option<u64> {
        self.members.deadline_ns()
    }

    /// Whether that many listed agents are known to be somewhere below.
    pub(in crate::node) fn are_listed_up(&self, count: usize) -> bool {
        self.members.are_listed_up(count)
    }

    /// What the acting root has said of a host, once.
    pub(in crate::node) fn next_assignment(&mut self) -> Option<Assignment> {
        self.assignments.pop_front()
    }

    /// A link without a hello is gone, and the join that waits on it.
    pub(in crate::node) fn on_handshake_gone(&mut self, link: LinkId) {
        self.dynamic.link_gone(link);
    }

    /// A child is gone, and the way to those below it.
    pub(in crate::node) fn on_child_gone(&mut self, link: LinkId) {
        self.dynamic.child_gone(link);
    }

    /// The dynamic members that the journal of an earlier life has.
    pub(in crate::node) fn restore(&mut self, entries: Vec<(String, Rank)>) {
        self.dynamic.restore(entries);
    }

    /// The rank of a dynamic member.
    pub(in crate::node) fn dynamic_rank(&self, host: &str) -> Option<Rank> {
        self.dynamic.rank_of(host)
    }

    /// The journal is another one now.
    pub(in crate::node) fn write_again(&mut self) {
        self.dynamic.write_again();
    }

    /// Whether the journal does not have all dynamic members.
    pub(in crate::node) fn is_unwritten(&self) -> bool {
        self.dynamic.is_unwritten()
    }

    /// The dynamic members for the journal, if it does not have them.
    pub(in crate::node) fn take_unwritten(&mut self) -> Option<Vec<(String, Rank)>> {
        self.dynamic.take_unwritten()
    }
}
