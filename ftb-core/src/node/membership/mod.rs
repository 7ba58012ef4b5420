//! The members of the tree, and how a silent one is confirmed dead.

mod claims;
mod dynamic;
mod members;
mod moves;
mod probes;
mod re_proposal_rate;
mod snapshot;
mod suspicion;

pub(crate) use claims::RefusedClaim;
pub(crate) use dynamic::Assignment;

use crate::ident::OriginId;
use claims::Claims;
use dynamic::DynamicMembers;
use members::Members;
use snapshot::Snapshot;
use std::collections::VecDeque;
use suspicion::Suspicions;

/// The part of an agent that knows the other agents.
#[derive(Default)]
pub(crate) struct Membership {
    members: Members,
    claims: Claims,
    /// Agents that are in no member list.
    pub(crate) dynamic: DynamicMembers,
    /// What the tree must learn of them.
    assignments: VecDeque<Assignment>,
    suspicions: Suspicions,
    snapshot: Snapshot,
}

impl Membership {
    /// When a tree query has waited long enough.
    pub(crate) fn tree_query_ns(&self) -> Option<u64> {
        self.members.deadline_ns()
    }

    /// The incarnations that are known to be somewhere below.
    pub(crate) fn origins_up(&self) -> impl Iterator<Item = OriginId> {
        self.members.origins_up()
    }

    /// Whether the power of a suspect's host would decide.
    pub(crate) fn asks_for_power(&self) -> bool {
        self.suspicions.asks_for_power()
    }

    /// Whether all agents that are known to be somewhere below know folds of groups.
    pub(crate) fn all_know_folds(&self) -> bool {
        self.members.all_know_folds()
    }

    /// Whether that many listed agents are known to be somewhere below.
    pub(crate) fn are_listed_up(&self, count: usize) -> bool {
        self.members.are_listed_up(count)
    }

    /// What the acting root has said of a host, once.
    pub(crate) fn next_assignment(&mut self) -> Option<Assignment> {
        self.assignments.pop_front()
    }
}
