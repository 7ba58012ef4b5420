//! What the loss of a node would cost the job now. It follows what [`crate::jl`] does then, and a
//! test loses nodes and compares (`launcher/core/tests/what_if.rs`).

use super::memory::{hosts, words_of};
use super::{Job, NodeFaults};
use crate::jl::config::OnDeath;
use crate::names::{NodeName, Ranks, SetId};
use serde::Serialize;

/// What the loss of a node would cost now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    pub node: NodeName,
    /// Its ranks, which would die.
    pub ranks: Vec<u32>,
    /// The set that the job would go back to.
    pub set: Option<SetId>,
    /// The node that would take its place.
    pub spare: Option<NodeName>,
    /// The ranks that the job would go on without.
    pub left: Vec<u32>,
    /// Whether the job would end.
    pub ends: bool,
    /// Its parked processes, which would die.
    pub parked: usize,
    /// Parked processes of the spare that would become ranks.
    pub adopts: usize,
    pub words: String,
}

/// What follows the death of ranks.
#[derive(Default)]
struct Aftermath {
    set: Option<SetId>,
    spare: Option<NodeName>,
    left: Ranks,
    ends: bool,
    words: String,
}

impl Aftermath {
    fn goes_on(words: impl Into<String>) -> Self {
        Self { words: words.into(), ..Self::default() }
    }

    fn ends(words: impl Into<String>) -> Self {
        Self { ends: true, ..Self::goes_on(words) }
    }
}

impl Job {
    /// What would be lost if that node were lost now.
    ///
    /// # Errors
    /// It is no node of the job, or lost already.
    pub fn what_if(&self, node: &NodeName) -> Result<WhatIf, String> {
        let mut then = self.clone();
        let row = then.nodes.get_mut(node).ok_or("it is not part of the job")?;
        if core::mem::replace(&mut row.lost, true) {
            return Err("it is lost already".to_owned());
        }
        let parked = core::mem::take(&mut row.parked).waiting.len();
        then.check_levels();
        let ranks = self.ranks_on(node);
        let mut after = match ranks.is_empty() {
            true => Aftermath::goes_on(self.what_if_idle(&then, node)),
            false => then.aftermath(&ranks),
        };
        let host = after.spare.as_ref().and_then(|spare| then.nodes.get(spare));
        let adopts = host.map_or(0, |spare| spare.parked.waiting.len().min(ranks.len()));
        if !ranks.is_empty() {
            after.words = format!("rank {} dies, {}", ranks.brief(), after.words);
        }
        if adopts > 0 {
            after.words.push_str(&format!(
                "; {adopts} of its {} ranks go on in parked processes",
                ranks.len()
            ));
        }
        if parked > 0 {
            after.words.push_str(&format!("; {parked} parked processes of {node} end"));
        }
        let Aftermath { set, spare, left, ends, words } = after;
        let (ranks, left) = (ranks.iter().collect(), left.iter().collect());
        Ok(WhatIf { node: node.clone(), ranks, set, spare, left, ends, parked, adopts, words })
    }

    fn what_if_idle(&self, then: &Self, node: &NodeName) -> String {
        let mut words = "it has no ranks: all ranks go on".to_owned();
        if let (Some(set), None) = (self.disk_set(), then.disk_set()) {
            words.push_str(&format!(", but set {set} is lost with the images that it has"));
        }
        let Some(memory) = self.memory.as_ref().filter(|memory| memory.is_host(node)) else {
            return words;
        };
        let set = &memory.set;
        if then.memory.is_none() {
            return format!("{words}, but set {set} in memory is lost with the images that it has");
        }
        let of = memory.groups.iter().find(|group| hosts(group).any(|host| host == node));
        let group = of.map(words_of).unwrap_or_default();
        format!(
            "{words}, but with the images that it has the group {group} of set {set} in memory \
             bears one loss less until the next set"
        )
    }

    /// These ranks have died with their node, which counts as lost.
    fn aftermath(&self, ranks: &Ranks) -> Aftermath {
        let lives = |(rank, _): (u32, _)| !ranks.has(rank) && !self.has_died(rank);
        match (self.config.on_death, self.newest_set()) {
            (OnDeath::Stop, _) => Aftermath::ends("and the job ends (--on-death stop)"),
            (OnDeath::Continue, _) if !self.rows().any(lives) => {
                Aftermath::ends("and no rank is left: the job ends")
            }
            (OnDeath::Continue, _) => {
                Aftermath::goes_on("and the others go on without it (--on-death continue)")
            }
            (_, None) => Aftermath::ends("and there is no set to go back to: the job ends"),
            (_, Some(set)) if self.restarts >= self.config.restarts_max => {
                let (restarts, named) = (self.restarts, Self::named(&set));
                Aftermath::ends(format!(
                    "and the job ends after {restarts} recoveries without a new set in between, \
                     its last set is {named}"
                ))
            }
            (OnDeath::Shrink, Some(set)) => self.aftermath_of_shrink(set, ranks),
            (_, Some(set)) => self.aftermath_of_set(set, ranks),
        }
    }

    fn goes_back_in_place(&self, set: &SetId) -> bool {
        self.met && self.keeps_images() && self.other_size(set).is_none()
    }

    /// All ranks go back to a set, those that have died on another node.
    fn aftermath_of_set(&self, set: SetId, ranks: &Ranks) -> Aftermath {
        let named = Self::named(&set);
        // In place no living rank leaves its node.
        let (back, faults) = match self.goes_back_in_place(&set) {
            true => ("go back to", NodeFaults::Ignore),
            false => ("start again from", NodeFaults::Avoid),
        };
        if let Ok(placement) = self.replan(faults) {
            let first = ranks.iter().next().unwrap_or_default();
            let host = placement.into_iter().find(|(_, here)| here.has(first));
            let spare = host.map(|(node, _)| node);
            let host = spare.as_ref().map(|spare| format!("{spare} takes its place, and "));
            let words = format!("{}all ranks {back} set {named}", host.unwrap_or_default());
            return Aftermath { set: Some(set), spare, ..Aftermath::goes_on(words) };
        }
        self.without_spare(named)
    }

    fn without_spare(&self, named: String) -> Aftermath {
        match self.config.wait_for_nodes.is_zero() {
            false => Aftermath::goes_on(format!(
                "and the job waits for a node to go back to set {named}"
            )),
            true => Aftermath::ends(format!(
                "and no hot spare is left: the job ends, its last set is {named}"
            )),
        }
    }

    /// Fewer ranks go on where there is no spare: in place, or others from a set of the store.
    fn aftermath_of_shrink(&self, set: SetId, ranks: &Ranks) -> Aftermath {
        let in_place = self.shrinks() && self.goes_back_in_place(&set);
        if let Some((placement, left)) = self.fewer().ok().filter(|_| in_place)
            && !placement.is_empty()
        {
            if left.is_empty() {
                return self.aftermath_of_set(set, ranks);
            }
            // The launcher learns it when the program has done it, or has refused.
            let unless =
                if self.has_left_out() { "" } else { ", if the program divides its state" };
            let words = format!(
                "and no hot spare is left: fewer ranks go on from set {}{unless}",
                Self::named(&set)
            );
            return Aftermath { set: Some(set), left, ..Aftermath::goes_on(words) };
        }
        // A program that has refused to divide its state still goes back in place with a spare.
        let faults = match self.goes_back_in_place(&set) && !self.shrinks() {
            true => NodeFaults::Ignore,
            false => NodeFaults::Avoid,
        };
        if self.replan(faults).is_ok() {
            return self.aftermath_of_set(set, ranks);
        }
        // Other processes share a set of the store only.
        let stored = match self.has_left_out() {
            true => Some(set.clone()),
            false => self.sets.last().cloned(),
        };
        let Some(stored) = stored.filter(|_| self.starts_fewer()) else {
            return self.without_spare(Self::named(&set));
        };
        let words = format!(
            "and no hot spare is left: fewer ranks start again from set {}",
            Self::named(&stored)
        );
        Aftermath { set: Some(stored), ..Aftermath::goes_on(words) }
    }
}
