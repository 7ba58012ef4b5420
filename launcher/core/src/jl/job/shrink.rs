//! The job goes on with fewer ranks, in the same processes.
//!
//! Ranks that have died are left out: their rows stay, no process has their number again, and
//! nothing waits for them. So the numbers that launcher, launch agents and images use never change.
//! The program sees the ranks that are left, numbered anew in the same order: ftb-job translates.
//! The result of each barrier says who is left ([`MEMBERS`]), so all ranks know the same.
//!
//! The image of a rank that is left out goes to its successor: the next rank that is left, from the
//! highest to the lowest. Successors read those images when all have met, and give the others what
//! they ask for. Until the ranks that are left have made a set, a further death leads back to the
//! same set, with fewer ranks.

use super::{Job, Rank};
use crate::jl::OnDeath;
use crate::message::Placement;
use crate::names::{NodeName, Ranks, SetId};

/// The key of the members in the result of a barrier: the numbers of the ranks that are left, as
/// `0-2,5`. Missing while no rank is left out.
pub(in crate::jl) const MEMBERS: &str = "ftb-members";

impl Job {
    /// The ranks that are not left out.
    pub(in crate::jl) fn rows(&self) -> impl Iterator<Item = (u32, &Rank)> {
        (0..).zip(&self.ranks).filter(|(_, row)| !row.left_out)
    }

    /// How many ranks there are.
    pub fn count(&self) -> usize {
        self.rows().count()
    }

    /// The ranks that are not left out.
    pub fn members(&self) -> Ranks {
        self.rows().map(|(rank, _)| rank).collect()
    }

    /// Whether ranks are left out.
    pub(in crate::jl) fn has_left_out(&self) -> bool {
        self.ranks.iter().any(|row| row.left_out)
    }

    /// The value of [`MEMBERS`].
    pub(in crate::jl) fn members_value(&self) -> Option<String> {
        self.has_left_out().then(|| self.members().ranges())
    }

    /// The job goes on without these ranks, or with them again.
    pub(in crate::jl) fn leave_out(&mut self, ranks: &Ranks, out: bool) {
        for rank in ranks.iter() {
            if let Some(row) = self.ranks.get_mut(rank as usize) {
                row.left_out = out;
            }
        }
    }

    /// Remembers who has made a set in the store.
    pub(in crate::jl) fn keep_members(&mut self, set: &SetId) {
        if self.has_left_out() {
            self.set_members.insert(set.clone(), self.members());
        }
    }

    /// The ranks that have made a set.
    pub(in crate::jl) fn members_of(&self, set: &SetId) -> Ranks {
        if let Some(memory) = self.memory.as_ref().filter(|memory| memory.set == *set) {
            return memory.ranks();
        }
        let all = || (0..self.config.size).collect();
        self.set_members.get(set).cloned().unwrap_or_else(all)
    }

    /// The images of a set that each node needs: those of its ranks, and those that they inherit.
    pub(in crate::jl) fn needed(&self, set: &SetId, placement: &Placement) -> Placement {
        let mut needed = placement.clone();
        if !self.has_left_out() || self.other_size(set).is_some() {
            return needed;
        }
        let members: Ranks = placement.values().flat_map(Ranks::iter).collect();
        let host = |successor: u32| placement.iter().find(|(_, ranks)| ranks.has(successor));
        for rank in self.members_of(set).iter().filter(|rank| !members.has(*rank)) {
            if let Some((node, _)) = members.successor(rank).and_then(host) {
                needed.entry(node.clone()).or_default().0.insert(rank);
            }
        }
        needed
    }

    /// The images that nodes need and lack, of one share at a time.
    pub(in crate::jl) fn missing(&self, set: &SetId, placement: &Placement) -> Placement {
        let mut missing = self.without_images(set, &self.needed(set, placement));
        if set.is_on_disks() {
            missing.values_mut().for_each(|ranks| *ranks = self.of_one_disk(set, ranks));
        }
        if let Some(memory) = self.memory.as_ref().filter(|memory| memory.set == *set) {
            missing.values_mut().for_each(|ranks| *ranks = memory.of_one_share(ranks));
        }
        missing
    }

    /// Whether dead ranks may be left out.
    pub(in crate::jl) fn shrinks(&self) -> bool {
        self.config.on_death == OnDeath::Shrink && !self.undivided
    }

    /// Whether fewer ranks can be started again: with the numbers of before, or by other processes,
    /// which share a set of the store only.
    pub(in crate::jl) fn starts_fewer(&self) -> bool {
        let has_nodes = self.placement().keys().any(|name| self.is_good(name));
        let has_set = self.newest_set().is_some() && self.has_left_out() || !self.sets.is_empty();
        self.config.on_death == OnDeath::Shrink && self.keeps_images() && has_set && has_nodes
    }

    /// The placement of the ranks that go on, and the ranks that are left out: dead ones on living
    /// nodes, and those of lost nodes without a spare.
    ///
    /// # Errors
    /// A living rank has no place.
    pub(in crate::jl) fn fewer(&self) -> Result<(Placement, Ranks), &'static str> {
        let (mut placement, mut left) = (Placement::new(), Ranks::default());
        let mut taken: Vec<NodeName> = self.placement().into_keys().collect();
        for (name, ranks) in self.placement() {
            let dead: Ranks = ranks.iter().filter(|rank| self.has_died(*rank)).collect();
            let host = match self.is_good(&name) {
                true => Some(name),
                false => self.spare(&taken).or_else(|| self.is_usable(&name).then_some(name)),
            };
            let Some(host) = host else {
                if dead.len() < ranks.len() {
                    return Err("a living rank has no place");
                }
                left.0.extend(dead.0);
                continue;
            };
            let moves = self.ranks_on(&host).is_empty();
            let stay: Ranks = ranks.iter().filter(|rank| moves || !dead.has(*rank)).collect();
            if !moves {
                left.0.extend(dead.0);
            }
            taken.push(host.clone());
            if !stay.is_empty() {
                placement.entry(host).or_default().0.extend(stay.0);
            }
        }
        Ok((placement, left))
    }
}
