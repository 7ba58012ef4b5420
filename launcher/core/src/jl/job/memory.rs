//! Sets in the memory of the nodes ([`crate::memory`]), as the job knows them.

use super::Job;
use crate::jl::JlOutput;
use crate::jl::config::OnDeath;
use crate::jl::start::copies;
use crate::manner::Saver;
use crate::memory::set::From;
use crate::memory::{Group, MemorySet};
use crate::message::{FromJl, Placement};
use crate::names::{Episode, NodeName, Ranks, SetId};
use std::collections::BTreeMap;

/// Most dropped sets of memory, and as many of disks, that nodes hear of again; the oldest is
/// forgotten.
const DROPPED_MAX: usize = 4;

impl Job {
    /// The newest set that all ranks can go back to: in memory, on disks or in the store.
    pub fn newest_set(&self) -> Option<SetId> {
        let stored = self.sets.last();
        let memory = self.memory.as_ref().map(|memory| &memory.set);
        // Of those with the highest episode there is one.
        let all = stored.into_iter().chain(memory).chain(self.disk_set());
        all.max_by_key(|set| set.episode()).cloned()
    }

    /// Whether ranks of [`Saver::Loop`] wait for the first checkpoint in memory.
    pub(in crate::jl) fn first_waits(&self) -> bool {
        let first = self.config.memory.as_ref().is_some_and(|memory| memory.first);
        first && self.config.manner.saver == Saver::Loop
    }

    /// A rank of [`Saver::Loop`] has refused the set that it was started from: it does not count
    /// any more.
    pub(in crate::jl) fn put_aside(&mut self, rank: u32) {
        let Some(set) = self.newest_set() else { return };
        let words =
            format!("set {set} cannot be restored and is put aside: rank {rank} refused its image");
        if set.is_in_memory() {
            return self.drop_memory(&words);
        }
        self.tell(words);
        self.sets.retain(|other| *other != set);
        self.release(&set);
    }

    /// The set with its level, for the user.
    pub(in crate::jl) fn named(set: &SetId) -> String {
        match set.is_in_memory() {
            true => format!("{set} (memory)"),
            false if set.is_on_disks() => format!("{set} (node disks)"),
            false => set.to_string(),
        }
    }

    pub(in crate::jl::job) fn is_lost(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_none_or(|node| node.lost)
    }

    /// Drops the set in memory if the lost nodes were more than a group bears.
    fn check_memory(&mut self) {
        let Some(memory) = &self.memory else { return };
        let Some(group) = memory.broken(&|node| self.is_lost(node)) else { return };
        let lost: Vec<&str> = hosts(group).filter(|host| self.is_lost(host)).map(as_str).collect();
        let bears = group.scheme.tolerates();
        // A member that was lost before had nothing to copy from another one that was lost too.
        let fewer = if lost.len() > bears { "" } else { ", where all copies could be made" };
        let words = format!(
            "set {} in memory is lost: of its group {} the nodes {} are lost, and {} bears the \
             loss of {bears}{fewer}",
            memory.set,
            words_of(group),
            lost.join(" "),
            group.scheme,
        );
        self.drop_memory(&words);
    }

    /// The first group of the set in memory that bears fewer losses than its scheme promises: a
    /// member is lost, or its ranks have left its node, which may be taken away.
    pub(in crate::jl) fn weakened(&self) -> Option<&Group> {
        let is_left = |node: &NodeName| self.is_lost(node) || self.ranks_on(node).is_empty();
        self.memory.as_ref()?.weakened(&is_left)
    }

    /// A node without ranks is lost. It may have images of the set in memory.
    pub(in crate::jl) fn lost_without_ranks(&mut self, node: &NodeName) {
        self.check_disks();
        let Some(memory) = self.memory.as_ref().filter(|memory| memory.is_host(node)) else {
            return;
        };
        let words = format!("node {node} had images of set {} in memory", memory.set);
        self.tell(words);
        self.check_memory();
    }

    /// Drops the sets of which lost nodes had the images.
    pub(in crate::jl) fn check_levels(&mut self) {
        self.check_memory();
        self.check_disks();
    }

    /// Whether these nodes could protect each other now.
    pub(in crate::jl) fn can_protect(&self) -> bool {
        let nodes: Vec<NodeName> = self.placement().into_keys().collect();
        let memory = self.config.memory.as_ref();
        memory.is_some_and(|memory| memory.scheme.groups(&nodes, &memory.racks).is_ok())
    }

    /// Whether the job would go back to a set in memory if a node were lost now. A job that ends
    /// takes it with it.
    pub(in crate::jl) fn goes_on_from_memory(&self) -> bool {
        let goes_back =
            matches!(self.config.on_death, OnDeath::Rollback | OnDeath::Restart | OnDeath::Shrink);
        let waits = !self.config.wait_for_nodes.is_zero();
        let shrinks = self.shrinks() && self.keeps_images();
        goes_back && (waits || shrinks || self.spare(&[]).is_some())
    }

    /// The set in memory does not count any more.
    pub(in crate::jl) fn drop_memory(&mut self, words: &str) {
        let Some(MemorySet { set, .. }) = self.memory.take() else { return };
        self.set_sizes.remove(&set);
        self.drop_from_nodes(set);
        self.tell(words);
        self.out.push(JlOutput::Save);
    }

    /// Has the nodes free a set in memory or on their disks.
    pub(in crate::jl) fn drop_from_nodes(&mut self, set: SetId) {
        let episode = self.episode;
        self.publish(FromJl::Drop { episode, set: set.clone() });
        self.dropped.retain(|other| *other != set);
        let is_alike = |other: &&SetId| other.is_on_disks() == set.is_on_disks();
        if self.dropped.iter().filter(is_alike).count() >= DROPPED_MAX
            && let Some(oldest) = self.dropped.iter().position(|other| is_alike(&other))
        {
            self.dropped.remove(oldest);
        }
        self.dropped.push_back(set);
    }

    /// FTB_JL_DROP has no answer. A node that missed one keeps the images: in memory it may have no
    /// room for a further set, on a disk they would stay. It must hear it again.
    pub(in crate::jl) fn drop_again(&mut self, of: &SetId) {
        let episode = self.episode;
        let is_alike = |other: &&SetId| other.is_on_disks() == of.is_on_disks();
        for set in self.dropped.iter().filter(is_alike).cloned().collect::<Vec<_>>() {
            self.publish(FromJl::Drop { episode, set });
        }
    }

    /// The requests that bring images of `set` to nodes without them.
    ///
    /// # Errors
    /// They cannot be had.
    pub(in crate::jl) fn fetches(
        &mut self,
        episode: Episode,
        set: &SetId,
        missing: &Placement,
    ) -> Result<Vec<FromJl>, String> {
        if set.is_on_disks() {
            return self.fetches_from_disks(episode, set, missing);
        }
        if !set.is_in_memory() {
            return Ok(copies(episode, set, missing));
        }
        let Self { memory, nodes, .. } = self;
        let memory = memory.as_mut().filter(|memory| memory.set == *set);
        let memory = memory.ok_or_else(|| format!("set {set} is not in memory any more"))?;
        let is_gone = |node: &NodeName| nodes.get(node).is_none_or(|node| node.lost);
        memory.asks_anew();
        let fetch = |(target, ranks): (&NodeName, &Ranks)| match memory.source(ranks, &is_gone)? {
            From::Node(node) => {
                let (from, target) = (Some(node), target.clone());
                let (set, ranks) = (set.clone(), ranks.clone());
                Ok(FromJl::Copy { episode, from, target, set, ranks })
            }
            From::Group { group, member } => {
                let task = memory.gathering(episode, (group, member), target, &is_gone);
                task.map(FromJl::Gather).ok_or_else(|| "there is no such group".to_owned())
            }
        };
        missing.iter().map(fetch).collect()
    }

    /// The nodes have the images of `set` for this placement now.
    pub(in crate::jl) fn has_fetched(&mut self, set: &SetId, placement: &Placement) {
        if set.is_on_disks() {
            return self.has_on_disks(set, placement);
        }
        if !set.is_in_memory() {
            return self.hold(set, placement);
        }
        let missing = self.without_images(set, placement);
        let Some(memory) = self.memory.as_mut().filter(|memory| memory.set == *set) else { return };
        for (node, ranks) in &missing {
            memory.has_fetched(node, ranks);
        }
    }

    /// The set that a checkpoint in memory makes, with the sizes of its images.
    ///
    /// # Errors
    /// The nodes cannot be divided into groups.
    pub(in crate::jl) fn memory_set(
        &self,
        set: &SetId,
        sizes: &BTreeMap<u32, u64>,
    ) -> Result<MemorySet, String> {
        let config = self.config.memory.as_ref().ok_or("the job saves nothing in memory")?;
        let (scheme, racks) = (config.scheme, &config.racks);
        MemorySet::new(set.clone(), scheme, &self.placement(), sizes, racks)
    }
}

pub(super) fn hosts(group: &Group) -> impl Iterator<Item = &NodeName> {
    group.members.iter().map(|of| &of.host)
}

fn as_str(node: &NodeName) -> &str {
    node.as_str()
}

pub(super) fn words_of(group: &Group) -> String {
    hosts(group).map(as_str).collect::<Vec<_>>().join(" ")
}
