//! The invariants, each by its name: what must hold at every step, and what when faults are over.

use super::World;
use crate::clients::{Violation, broken};
use ftb_core::ConfirmLevel;
use ftb_core::ident::{EventId, OriginId, Rank};
use ftb_core::node::{Node, NodeConfig};
use ftb_core::position::{Epoch, Position};
use ftb_core::tree;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn check_step(&mut self, agent: usize) -> Result<(), Violation> {
        let state = &mut self.agents[agent];
        let Some(node) = &state.node else { return Ok(()) };
        if let Some(parent) = node.parent_rank()
            && parent.0 as usize >= agent
        {
            return broken("Acyclic", format!("agent {agent} is below {parent}"));
        }
        if node.impossible_states() > 0 {
            let what = format!("agent {agent} reached a state that cannot be");
            return broken("Possible", what);
        }
        if node.refused_claims() > 0 {
            let what = format!("agent {agent} refused what an honest child said");
            return broken("NeverFalselyRefused", what);
        }
        let epoch = node.position().epoch.max(node.epoch());
        if epoch < state.epoch {
            let what = format!("agent {agent} went back from epoch {} to {epoch}", state.epoch);
            return broken("Fenced", what);
        }
        state.epoch = epoch;
        let Position { epoch, index } = node.position();
        let heard = state.heard.entry(epoch).or_insert(index);
        *heard = index.max(*heard);
        let (held, bound) = (node.held_bytes(), node.held_bytes_max());
        if held > bound {
            return broken("Bounded", format!("agent {agent} holds {held} bytes of {bound}"));
        }
        if self.setup.conditions {
            self.check_conditions(agent)?;
        }
        Ok(())
    }

    /// All agents that are up form one tree of the wanted shape, as far as its members are up.
    pub fn check_tree(&self) -> Result<(), Violation> {
        let up: BTreeSet<u32> = (0..self.agents.len())
            .filter(|at| self.agents[*at].node.is_some())
            .map(Self::rank)
            .collect();
        let listed = self.setup.agents - self.setup.unlisted;
        let mut ranks = BTreeMap::new();
        for rank in &up {
            let Some(node) = &self.agents[*rank as usize].node else { continue };
            let is_lowest = up.first() == Some(rank);
            let parent = node.parent_rank();
            if node.is_root() != is_lowest {
                let what = format!("agent {rank}: root {}, parent {parent:?}", node.is_root());
                return broken("OneTree", what);
            }
            let Some(given) = node.rank() else {
                return broken("OneTree", format!("agent {rank} has no rank"));
            };
            if let Some(other) = ranks.insert(given, *rank) {
                return broken("OneTree", format!("agents {other} and {rank} have rank {given}"));
            }
            let place = match given.is_unlisted() {
                true => Rank(listed + given.0 - Rank::UNLISTED_FIRST.0),
                false => given,
            };
            let wanted = tree::ancestors(place, self.setup.fanout)
                .find(|above| above.0 < listed && up.contains(&above.0));
            let fits = match wanted {
                Some(wanted) => parent == Some(wanted),
                None => is_lowest || parent.is_some(),
            };
            if !fits {
                let what = format!("agent {rank} is below {parent:?}, wanted {wanted:?}");
                return broken("OneTree", what);
            }
        }
        Ok(())
    }

    /// How many agents are there and not in one tree with the lowest.
    pub fn outside_the_tree(&self) -> usize {
        let lowest = self.agents.iter().position(|agent| agent.node.is_some());
        let Some(lowest) = lowest else { return 0 };
        (0..self.agents.len())
            .filter(|at| self.agents[*at].node.is_some())
            .filter(|at| {
                let mut at = *at;
                while at != lowest {
                    let parent = self.agents[at].node.as_ref().and_then(Node::parent_rank);
                    let Some(parent) = parent else { return true };
                    at = parent.0 as usize;
                    if self.agents[at].node.is_none() {
                        return true;
                    }
                }
                false
            })
            .count()
    }

    /// Bytes of events that an agent holds.
    pub fn held_bytes(&self, agent: usize) -> usize {
        self.agents[agent].node.as_ref().map_or(0, Node::held_bytes)
    }

    /// The epoch of the log that an agent follows.
    pub fn epoch(&self, agent: usize) -> Epoch {
        self.agents[agent].node.as_ref().unwrap().epoch()
    }

    /// Which rank an agent has.
    pub fn rank_of(&self, agent: usize) -> Option<Rank> {
        self.agents[agent].node.as_ref().and_then(Node::rank)
    }

    /// Whether an agent has an event.
    pub fn holds(&self, agent: usize, id: EventId) -> bool {
        self.agents[agent].node.as_ref().is_some_and(|node| node.holds(id))
    }

    /// Whether an agent's disk has an event.
    pub fn disk_holds(&self, agent: usize, id: EventId) -> bool {
        self.agents[agent].disk.holds(id)
    }

    /// Below whom an agent is.
    pub fn parent_of(&self, agent: usize) -> Option<Rank> {
        self.agents[agent].node.as_ref().and_then(Node::parent_rank)
    }

    /// Every promise about events holds for every subscriber.
    pub fn check_events(&self) -> Result<(), Violation> {
        for publisher in &self.publishers {
            if !publisher.unconfirmed.is_empty() && self.agents[publisher.agent].node.is_some() {
                let what = format!(
                    "{} events of a publisher at agent {} were never confirmed",
                    publisher.unconfirmed.len(),
                    publisher.agent
                );
                return broken("GaplessOrTold", what);
            }
        }
        for subscriber in &self.subscribers {
            if self.agents[subscriber.agent].node.is_some() {
                subscriber.check_complete(&self.books, !self.setup.losses_allowed)?;
                subscriber.check_gaps(&self.books)?;
            }
        }
        Ok(())
    }

    /// Events that were confirmed on disk are there, unless as many disks have lost them. A root
    /// without its disk installs what the memory of the other has, so older entries go: logs that
    /// memory does not hold as a whole are left out.
    pub fn check_on_disk(&self) -> Result<(), Violation> {
        let mut config = NodeConfig::new("sim", "", OriginId(1), self.members.clone());
        let log_bytes = config.log_bytes;
        (self.setup.tune)(&mut config);
        if config.log_bytes < log_bytes {
            return Ok(());
        }
        for (id, published) in &self.books.published {
            let disks = match published.level {
                None | Some(ConfirmLevel::Memory) => continue,
                Some(ConfirmLevel::OneDisk) => 1,
                Some(ConfirmLevel::Disk) => 2,
            };
            if published.disks_lost < disks && !self.is_held(*id) {
                let what = format!("{id} was confirmed at level {:?}", published.level);
                return broken("DurableStays", what);
            }
        }
        Ok(())
    }

    pub fn counters(&self, agent: usize) -> Vec<(&'static str, u64)> {
        self.agents[agent].node.as_ref().unwrap().status().counters
    }

    pub fn delivered(&self) -> usize {
        self.subscribers.iter().map(|subscriber| subscriber.got.len()).sum()
    }
}
