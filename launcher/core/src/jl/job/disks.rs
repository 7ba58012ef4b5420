//! Sets on the disks of the nodes: each rank's image is where the rank is, and nowhere else. Such a
//! set bears the death of ranks and of the launcher, not the loss of a node.

use super::Job;
use crate::jl::JlOutput;
use crate::message::{FromJl, Placement};
use crate::names::{Episode, NodeName, Ranks, SetId};

impl Job {
    /// The newest set on the disks of the nodes, if all its images are there.
    pub fn disk_set(&self) -> Option<&SetId> {
        self.held.as_ref().map(|held| &held.set).filter(|set| set.is_on_disks())
    }

    /// The first node that has images of this set for all these ranks.
    fn disk_of(&self, set: &SetId, ranks: &Ranks) -> Option<&NodeName> {
        let held = self.held.as_ref().filter(|held| held.set == *set)?;
        let has = |(node, here): &(&NodeName, &Ranks)| {
            !self.is_lost(node) && ranks.iter().all(|rank| here.has(rank))
        };
        held.placement.iter().find(has).map(|(node, _)| node)
    }

    /// Drops the set on the disks of the nodes if a lost node had images that no other one has.
    pub(in crate::jl) fn check_disks(&mut self) {
        let Some(set) = self.disk_set().cloned() else { return };
        let is_gone = |rank: &u32| self.disk_of(&set, &Ranks::from_iter([*rank])).is_none();
        let gone: Ranks = self.members_of(&set).iter().filter(is_gone).collect();
        if gone.is_empty() {
            return;
        }
        let words = format!(
            "set {set} on the disks of the nodes is lost: that of rank {} was on a lost node",
            gone.brief()
        );
        self.release_held();
        self.tell(words);
        self.out.push(JlOutput::Save);
    }

    /// Of these ranks the first one, with those whose images are on the same node.
    pub(in crate::jl) fn of_one_disk(&self, set: &SetId, ranks: &Ranks) -> Ranks {
        let first = ranks.iter().take(1).collect();
        let held = self.held.as_ref().filter(|held| held.set == *set);
        let place = self.disk_of(set, &first).and_then(|node| held?.placement.get(node));
        place.map_or(first, |here| ranks.iter().filter(|rank| here.has(*rank)).collect())
    }

    /// The requests that bring images to nodes from the nodes that have them.
    ///
    /// # Errors
    /// No node has them.
    pub(super) fn fetches_from_disks(
        &self,
        episode: Episode,
        set: &SetId,
        missing: &Placement,
    ) -> Result<Vec<FromJl>, String> {
        let fetch = |(target, ranks): (&NodeName, &Ranks)| {
            let from = self.disk_of(set, ranks).cloned();
            let from = from.ok_or_else(|| {
                format!("no node has the image of rank {} of set {set}", ranks.brief())
            })?;
            let (set, ranks, target) = (set.clone(), ranks.clone(), target.clone());
            Ok(FromJl::Copy { episode, from: Some(from), target, set, ranks })
        };
        missing.iter().map(fetch).collect()
    }

    /// The nodes have these images too now.
    pub(super) fn has_on_disks(&mut self, set: &SetId, placement: &Placement) {
        let Some(held) = self.held.as_mut().filter(|held| held.set == *set) else { return };
        for (node, ranks) in placement {
            held.placement.entry(node.clone()).or_default().0.extend(ranks.iter());
        }
    }
}
