//! Sets in the memory of the nodes ([`crate::memory`]), as the job knows them.

use super::Job;
use crate::jl::JlOutput;
use crate::jl::config::OnDeath;
use crate::jl::start::copies;
use crate::manner::Saver;
use crate::memory::MemorySet;
use crate::memory::set::From;
use crate::message::{FromJl, Placement};
use crate::names::{Episode, NodeName, Ranks, SetId};
use serde::Serialize;
use std::collections::BTreeMap;

impl Job {
    /// The newest set that all ranks can go back to: in memory or in the store.
    pub fn newest_set(&self) -> Option<SetId> {
        let stored = self.sets.last();
        let memory = self.memory.as_ref().map(|memory| &memory.set);
        let newer = |set: &&SetId| stored.is_none_or(|stored| set.episode() > stored.episode());
        memory.filter(newer).or(stored).cloned()
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
    }

    /// The set with its level, for the user.
    pub(in crate::jl) fn named(set: &SetId) -> String {
        if set.is_in_memory() { format!("{set} (memory)") } else { set.to_string() }
    }

    fn is_lost(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_none_or(|node| node.lost)
    }

    /// Drops the set in memory if the lost nodes were more than a group bears.
    pub(in crate::jl) fn check_memory(&mut self) {
        let Some(memory) = &self.memory else { return };
        let Some(group) = memory.broken(&|node| self.is_lost(node)) else { return };
        let hosts: Vec<&NodeName> = group.members.iter().map(|of| &of.host).collect();
        let words = |hosts: Vec<&NodeName>| {
            hosts.into_iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ")
        };
        let words = format!(
            "set {} in memory is lost: of its group {} the nodes {} are lost, and {} bears the \
             loss of {}",
            memory.set,
            words(hosts.clone()),
            words(hosts.into_iter().filter(|host| self.is_lost(host)).collect()),
            group.scheme,
            group.scheme.tolerates()
        );
        self.drop_memory(&words);
    }

    /// The set in memory does not count any more.
    pub(in crate::jl) fn drop_memory(&mut self, words: &str) {
        let Some(MemorySet { set, .. }) = self.memory.take() else { return };
        self.set_sizes.remove(&set);
        let episode = self.episode;
        self.publish(FromJl::Drop { episode, set });
        self.tell(words);
        self.out.push(JlOutput::Save);
    }

    /// The requests that bring images of `set` to nodes without them.
    ///
    /// # Errors
    /// They cannot be had.
    pub(in crate::jl) fn fetches(
        &self,
        episode: Episode,
        set: &SetId,
        missing: &Placement,
    ) -> Result<Vec<FromJl>, String> {
        if !set.is_in_memory() {
            return Ok(copies(episode, set, missing));
        }
        let memory = self.memory.as_ref().filter(|memory| memory.set == *set);
        let memory = memory.ok_or_else(|| format!("set {set} is not in memory any more"))?;
        let is_gone = |node: &NodeName| self.is_lost(node);
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
        if !set.is_in_memory() {
            return self.hold(set, placement);
        }
        let missing = self.without_images(set, placement);
        let lost: Vec<NodeName> =
            self.nodes.iter().filter(|(_, node)| node.lost).map(|(name, _)| name.clone()).collect();
        let Some(memory) = self.memory.as_mut().filter(|memory| memory.set == *set) else { return };
        for (node, ranks) in &missing {
            match memory.source(ranks, &|node| lost.contains(node)) {
                Ok(From::Group { group, member }) => memory.replace(group, member, node),
                Ok(From::Node(_)) | Err(_) => memory.add_loose(node, ranks),
            }
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

/// What the death of a node would cost now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    pub node: NodeName,
    /// Its ranks, which would die.
    pub ranks: Vec<u32>,
    /// The set that the job would go back to.
    pub set: Option<SetId>,
    /// The node that would take its place.
    pub spare: Option<NodeName>,
    pub words: String,
}

impl Job {
    /// What would be lost if that node died now.
    ///
    /// # Errors
    /// It is no node of the job, or lost already.
    pub fn what_if(&self, node: &NodeName) -> Result<WhatIf, String> {
        let mut then = self.clone();
        let row = then.nodes.get_mut(node).ok_or("it is not part of the job")?;
        if core::mem::replace(&mut row.lost, true) {
            return Err("it is lost already".to_owned());
        }
        then.check_memory();
        let (ranks, set) = (self.ranks_on(node), then.newest_set());
        let spare = then.spare(&[]);
        let dies = format!("rank {} dies", ranks.join(","));
        let named = set.as_ref().map(Self::named);
        let words = match (&named, &spare) {
            _ if ranks.is_empty() => "it has no ranks: all ranks go on".to_owned(),
            (None, _) => format!("{dies}, and there is no set to go back to: the job ends"),
            (Some(set), Some(spare)) => {
                format!("{dies}, {spare} takes its place, and all ranks go back to set {set}")
            }
            (Some(set), None) if self.config.on_death == OnDeath::Shrink => {
                format!("{dies}, and no hot spare is left: fewer ranks go on from set {set}")
            }
            (Some(set), None) if !self.config.wait_for_nodes.is_zero() => {
                format!("{dies}, and the job waits for a node to go back to set {set}")
            }
            (Some(set), None) => {
                format!("{dies}, and no hot spare is left: the job ends, its last set is {set}")
            }
        };
        Ok(WhatIf { node: node.clone(), ranks: ranks.iter().collect(), set, spare, words })
    }
}
