//! What the JL knows of its job: nodes, ranks, sets, counters. Workflows read and change it; it
//! decides nothing.

mod disks;
mod memory;
mod movable;
mod parked;
pub(super) mod shrink;
mod what_if;

pub use what_if::WhatIf;

use super::JlOutput;
use super::barrier::Barrier;
use super::config::{JlConfig, OnDeath};
use super::initiator::Faults;
use super::node_wait::NodeWait;
use crate::manner::{Manner, Moves, Saver};
use crate::memory::MemorySet;
use crate::message::{ExitCause, FromJl, Placement, Protocol};
use crate::migration_state::MigrationState;
use crate::names::{Episode, NodeName, Ranks, SetId};
use crate::progress::Activity;
use crate::warm::ParkedProcesses;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Unanswered questions after which an NLA counts as lost when the next one is due.
pub(super) const SILENCES_MAX: u32 = 5;
/// Most spares that a message explains one by one.
const SPARES_SHOWN: usize = 4;
/// Unanswered questions, the newest included, at which the user is informed.
pub(super) const SILENCES_WARN: u32 = 4;
/// Most answers each second. NLAs of large jobs are asked less often.
const ANSWERS_PER_SECOND: u32 = 500;

/// Why a node gets no ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusable {
    /// Rule and condition.
    pub why: String,
    /// No condition that clears will end it.
    pub lasts: bool,
}

/// One node of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Last reported state; `None` before the first report.
    pub state: Option<MigrationState>,
    /// How often the state had changed by then.
    #[serde(default)]
    pub(super) changes: u64,
    pub lost: bool,
    /// Why it is lost, for the user.
    #[serde(default)]
    pub(super) lost_why: String,
    /// It may be used again; it is informed when it can become a spare.
    pub usable: bool,
    /// Its ranks were moved away. It gets none until it is marked as usable.
    #[serde(default)]
    pub avoid: bool,
    /// A fault of the node: it gets no ranks until it is marked as usable.
    #[serde(default)]
    pub unusable: Option<Unusable>,
    pub silences: u32,
    /// It counts as lost until its launch agent, which is being started, reports.
    #[serde(default)]
    pub arriving: bool,
    /// When it is given up if it is still arriving, in monotonic nanoseconds.
    #[serde(skip)]
    pub(super) arrive_ns: u64,
    /// Requests to answer when it is a spare again.
    #[serde(default)]
    pub(super) asked_usable: Vec<u64>,
    /// Its processes without a rank, as it reported them.
    #[serde(default)]
    pub parked: ParkedProcesses,
}

impl Node {
    /// A node that has not reported.
    pub(super) fn new() -> Self {
        Self {
            state: None,
            changes: 0,
            lost: false,
            lost_why: String::new(),
            usable: false,
            avoid: false,
            unusable: None,
            silences: 0,
            arriving: false,
            arrive_ns: 0,
            asked_usable: Vec::new(),
            parked: ParkedProcesses::default(),
        }
    }
}

/// One rank of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rank {
    pub node: NodeName,
    pub incarnation: u64,
    pub ended: Option<ExitCause>,
    #[serde(default)]
    pub protocol: Protocol,
    /// It has died, and the job goes on without it (`job/shrink.rs`).
    #[serde(default)]
    pub left_out: bool,
}

/// What a rank had done when a set was made; `None`, if not measured, counts as progress.
type Done = Option<Activity>;

/// Whether a rank has made progress from `then` to `now`.
fn is_beyond(now: &Done, then: &Done) -> bool {
    let (Some(now), Some(then)) = (now, then) else {
        return true;
    };
    now.cpu_ms > then.cpu_ms && now.sent > then.sent
}

/// The images of a set on the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LocalCopies {
    set: SetId,
    /// A node may have images of ranks that have moved.
    placement: Placement,
}

/// Whether a node with a fault keeps its ranks in a new placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFaults {
    /// It keeps them.
    Ignore,
    /// It keeps them if there is no spare.
    Avoid,
    /// It gets none.
    Refuse,
}

/// Everything the JL knows of its job; also its state on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub config: JlConfig,
    pub nodes: BTreeMap<NodeName, Node>,
    pub ranks: Vec<Rank>,
    pub episode: Episode,
    pub incarnation: u64,
    pub barrier: Barrier,
    /// Whether all ranks have met since the last start. Only then can they be asked anything.
    pub met: bool,
    /// Ranks of [`Saver::Loop`] wait in their first call for the first checkpoint.
    #[serde(default)]
    pub(super) ranks_wait: bool,
    /// Saves in a row that were void because a rank was behind the loop id.
    #[serde(default)]
    pub(super) loop_misses: u32,
    /// Committed sets in the store, oldest first.
    pub sets: Vec<SetId>,
    /// The set in the memory of the nodes that every group has protected.
    #[serde(default)]
    pub memory: Option<MemorySet>,
    /// The last sets in memory and on disks that were dropped. A node that missed it holds one
    /// still.
    #[serde(default)]
    pub(super) dropped: VecDeque<SetId>,
    /// The last set, as the nodes have it.
    #[serde(default)]
    pub(super) held: Option<LocalCopies>,
    /// For which node the job waits, or has waited in this restart.
    #[serde(default)]
    pub(super) waits: Option<NodeWait>,
    /// How many ranks made a set, where the number has changed since.
    #[serde(default)]
    pub set_sizes: BTreeMap<SetId, u32>,
    /// The ranks that made a set in the store, where others were left out before.
    #[serde(default)]
    pub(super) set_members: BTreeMap<SetId, Ranks>,
    /// The program has refused to divide its state among fewer ranks in place.
    #[serde(default)]
    pub(super) undivided: bool,
    /// What the ranks had done when each of these sets was made, if measured.
    #[serde(default)]
    pub(super) activity: BTreeMap<SetId, Vec<Done>>,
    /// The newest set after which every rank made progress.
    #[serde(default)]
    pub(super) proven: Option<SetId>,
    /// Ranks without progress between the last two sets.
    #[serde(default)]
    still: Ranks,
    /// Recoveries since the last new set.
    pub restarts: u32,
    /// Messages refused because of their episode, start or sender.
    pub refused: u64,
    #[serde(default)]
    pub faults: Faults,
    #[serde(skip)]
    pub(super) out: Vec<JlOutput>,
}

impl Job {
    pub(super) fn new(config: JlConfig) -> Self {
        let names = config.placement.keys().chain(&config.spares);
        let nodes = names.map(|name| (name.clone(), Node::new())).collect();
        let sets = config.restore.iter().cloned().collect();
        let mut job = Self {
            nodes,
            ranks: Vec::new(),
            episode: Episode(0),
            incarnation: 0,
            barrier: Barrier::new(1),
            met: false,
            ranks_wait: false,
            loop_misses: 0,
            sets,
            memory: None,
            dropped: VecDeque::new(),
            held: None,
            waits: None,
            set_sizes: BTreeMap::new(),
            set_members: BTreeMap::new(),
            undivided: false,
            activity: BTreeMap::new(),
            proven: None,
            still: Ranks::default(),
            restarts: 0,
            refused: 0,
            faults: Faults::default(),
            out: Vec::new(),
            config,
        };
        let placement = job.config.placement.clone();
        job.place(&placement);
        job
    }

    /// Interval of FTB_JL_ASK.
    pub(super) fn ask_every(&self) -> Duration {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let often = self.config.deadlines.silence / SILENCES_MAX;
        often.max(Duration::from_secs(1) * nodes / ANSWERS_PER_SECOND)
    }

    /// Whether node agents save the ranks, or have them stop to save themselves.
    pub(super) fn agents_save(&self) -> bool {
        self.saver() != Saver::Ranks
    }

    pub(super) fn saver(&self) -> Saver {
        self.config.manner.saver
    }

    pub(super) fn moves(&self) -> Moves {
        self.config.manner.moves
    }

    /// Whether nodes keep the images of the last set, so that ranks may go back in place.
    pub(super) fn keeps_images(&self) -> bool {
        let able = self.config.manner == Manner { saver: Saver::Ranks, moves: Moves::Meeting };
        able && matches!(self.config.on_death, OnDeath::Rollback | OnDeath::Shrink)
    }

    /// The nodes have these images of `set`; images of the set before are dropped.
    pub(super) fn hold(&mut self, set: &SetId, placement: &Placement) {
        if self.held.as_ref().is_some_and(|held| held.set != *set) {
            self.release_held();
        }
        self.held = Some(LocalCopies { set: set.clone(), placement: placement.clone() });
    }

    /// Drops the nodes' images of a set that no rank goes back to.
    pub(super) fn release(&mut self, set: &SetId) {
        if self.held.as_ref().is_some_and(|held| held.set == *set) {
            self.release_held();
        }
    }

    /// The nodes delete the images that they hold.
    pub(super) fn release_held(&mut self) {
        let Some(LocalCopies { set, .. }) = self.held.take() else { return };
        if set.is_on_disks() {
            self.set_sizes.remove(&set);
            self.set_members.remove(&set);
            return self.drop_from_nodes(set);
        }
        let episode = self.episode;
        self.publish(FromJl::Drop { episode, set });
    }

    /// A new set with what the ranks have done so far. Finds the newest set after which all ranks
    /// made progress: it is older than a hang that the new set may contain.
    pub(super) fn prove_sets(&mut self, set: &SetId, activity: &BTreeMap<u32, Activity>) {
        // Ranks that save themselves have reached a safe point.
        if activity.is_empty() {
            self.proven = Some(set.clone());
            return;
        }
        let now: Vec<Done> =
            (0..).zip(&self.ranks).map(|(rank, _)| activity.get(&rank).copied()).collect();
        let proven = |of: &&SetId| {
            let then = self.activity.get(*of).filter(|then| then.len() == now.len());
            then.is_some_and(|then| now.iter().zip(then).all(|(now, then)| is_beyond(now, then)))
        };
        if let Some(found) = self.sets.iter().rfind(proven) {
            self.proven = Some(found.clone());
        }
        self.tell_still(&now);
        self.activity.insert(set.clone(), now);
    }

    /// Informs the user of ranks without progress since the last set, on each change.
    fn tell_still(&mut self, now: &[Done]) {
        let Some(last) = self.sets.last().cloned() else {
            return;
        };
        let then = self.activity.get(&last).map(Vec::as_slice).unwrap_or_default();
        let pairs = now.iter().zip(then).zip(0..);
        let still = pairs.filter(|((now, then), _)| !is_beyond(now, then));
        let still: Ranks = still.map(|(_, rank)| rank).collect();
        if !still.is_empty() && still != self.still {
            let stays = self.proven.as_ref().or_else(|| self.sets.first());
            let stays =
                stays.map(|set| format!(", set {set} stays in the store")).unwrap_or_default();
            self.tell(format!("ranks {still} have made no progress since set {last}{stays}"));
        }
        self.still = still;
    }

    /// Drops sets beyond `sets_max`, the oldest first. The newest proven set stays; if none is
    /// proven, the oldest.
    pub(super) fn drop_old_sets(&mut self) {
        let proven = self.proven.clone().filter(|set| self.sets.contains(set));
        let stays = proven.or_else(|| self.sets.first().cloned());
        let newest = self.sets.split_off(self.sets.len().saturating_sub(self.config.sets_max));
        for old in core::mem::take(&mut self.sets) {
            if Some(&old) == stays.as_ref() {
                self.sets.push(old);
                continue;
            }
            self.set_sizes.remove(&old);
            self.set_members.remove(&old);
            self.activity.remove(&old);
            self.out.push(JlOutput::DropStored(old));
        }
        self.sets.extend(newest);
    }

    /// The nodes that lack images of `set` for `placement`.
    pub(super) fn without_images(&self, set: &SetId, placement: &Placement) -> Placement {
        let held = self.held.as_ref().filter(|held| held.set == *set);
        let memory = self.memory.as_ref().filter(|memory| memory.set == *set);
        let has = |node: &NodeName, rank| {
            if let Some(memory) = memory {
                return memory.has(node, rank);
            }
            let here = held.and_then(|held| held.placement.get(node));
            here.is_some_and(|ranks| ranks.has(rank))
        };
        let lacking = |(node, ranks): (&NodeName, &Ranks)| {
            let all: Ranks = ranks.iter().filter(|rank| !has(node, *rank)).collect();
            (!all.is_empty()).then(|| (node.clone(), all))
        };
        placement.iter().filter_map(lacking).collect()
    }

    pub(super) fn open(&mut self) -> Episode {
        self.episode = Episode(self.episode.0 + 1);
        self.episode
    }

    /// Adopts a placement of all ranks that are not left out.
    pub(super) fn place(&mut self, placement: &Placement) {
        let of_node = |(node, ranks): (&NodeName, &Ranks)| {
            ranks.iter().map(|rank| (rank, node.clone())).collect::<Vec<_>>()
        };
        let nodes: BTreeMap<u32, NodeName> = placement.iter().flat_map(of_node).collect();
        let incarnation = self.incarnation;
        let (protocol, ended) = (Protocol::default(), None);
        let row = |node| Rank { node, incarnation, ended, protocol, left_out: false };
        let mut nodes = nodes;
        let mut ranks: Vec<Rank> = self
            .ranks
            .drain(..)
            .zip(0..)
            .take_while(|(_, rank)| *rank < self.config.size)
            .filter_map(|(old, rank)| match nodes.remove(&rank) {
                Some(node) => Some(row(node)),
                None => old.left_out.then_some(old),
            })
            .collect();
        ranks.extend(nodes.into_values().map(row));
        self.ranks = ranks;
    }

    /// Starts ranks on a node as the newest start.
    pub(super) fn start_on(&mut self, node: &NodeName, ranks: &Ranks) {
        for rank in ranks.iter() {
            if let Some(row) = self.ranks.get_mut(rank as usize) {
                row.node = node.clone();
                row.incarnation = self.incarnation;
                row.ended = None;
            }
        }
    }

    pub fn placement(&self) -> Placement {
        let mut placement = Placement::new();
        for (rank, row) in self.rows() {
            placement.entry(row.node.clone()).or_default().0.insert(rank);
        }
        placement
    }

    /// The ranks placed on a node.
    pub fn ranks_on(&self, node: &NodeName) -> Ranks {
        self.rows().filter(|(_, row)| row.node == *node).map(|(rank, _)| rank).collect()
    }

    /// Whether the last process of that rank has ended, or its node is lost.
    pub(super) fn has_died(&self, rank: u32) -> bool {
        let dead = |row: &Rank| {
            row.ended.is_some() || self.nodes.get(&row.node).is_none_or(|node| node.lost)
        };
        self.ranks.get(rank as usize).is_none_or(dead)
    }

    /// The nodes that are not lost.
    pub fn alive(&self) -> Vec<NodeName> {
        let alive = self.nodes.iter().filter(|(_, node)| !node.lost);
        alive.map(|(name, _)| name.clone()).collect()
    }

    /// The lost nodes whose launch agents are being started.
    pub(super) fn arriving(&self) -> Vec<NodeName> {
        let arriving = self.nodes.iter().filter(|(_, node)| node.lost && node.arriving);
        arriving.map(|(name, _)| name.clone()).collect()
    }

    /// A lost node is back as a spare. It has no images of before.
    pub(super) fn arrive(&mut self, name: &NodeName, changes: u64) {
        let Some(row) = self.nodes.get_mut(name) else { return };
        let (unusable, avoid) = (row.unusable.take(), row.avoid);
        *row = Node { state: Some(MigrationState::Spare), unusable, avoid, changes, ..Node::new() };
        if let Some(held) = &mut self.held {
            held.placement.remove(name);
        }
        if let Some(memory) = &mut self.memory {
            memory.lose(name);
        }
    }

    /// The first free hot spare in the configured order, then any other node in state SPARE.
    /// `tried` nodes are excluded.
    pub fn spare(&self, tried: &[NodeName]) -> Option<NodeName> {
        let free = |name: &&NodeName| self.is_spare(name) && !tried.contains(*name);
        let all = self.config.spares.iter().chain(self.nodes.keys());
        all.into_iter().find(free).cloned()
    }

    /// Why [`Job::spare`] chooses its node, and not one before it; without one, why none.
    pub(super) fn spares_words(&self, tried: &[NodeName]) -> String {
        let chosen = self.spare(tried);
        let others = self.config.spares.iter().take_while(|name| Some(*name) != chosen.as_ref());
        let why = |name: &NodeName| Some(format!("{name} {}", self.no_spare_words(name, tried)?));
        let mut words: Vec<String> = others.filter_map(why).collect();
        if words.len() > SPARES_SHOWN {
            let more = words.len() - SPARES_SHOWN;
            words.truncate(SPARES_SHOWN);
            words.push(format!("{more} more"));
        }
        let words = words.join("; ");
        match chosen {
            Some(name) if words.is_empty() => format!("{name} is the first free spare"),
            Some(name) => format!("{name} is the first free spare ({words})"),
            None if words.is_empty() => "the job has no spares".to_owned(),
            None => words,
        }
    }

    /// Why a node takes no ranks of another one.
    fn no_spare_words(&self, name: &NodeName, tried: &[NodeName]) -> Option<String> {
        let node = self.nodes.get(name)?;
        Some(match (&node.unusable, node.state) {
            _ if node.lost => "is lost".to_owned(),
            _ if tried.contains(name) => "could not take them".to_owned(),
            _ if node.avoid => "is to be left".to_owned(),
            (Some(fault), _) => format!("gets no ranks ({})", fault.why),
            (None, Some(MigrationState::Ready)) => "has ranks".to_owned(),
            (None, Some(MigrationState::Arm)) => "is being left".to_owned(),
            (None, Some(MigrationState::Inactive)) => "was left".to_owned(),
            (None, Some(MigrationState::Spare)) => return None,
            (None, None) => "has not reported".to_owned(),
        })
    }

    /// Whether that node can take ranks.
    pub(super) fn is_spare(&self, name: &NodeName) -> bool {
        let node = self.nodes.get(name);
        node.is_some_and(|n| {
            !n.lost && !n.avoid && n.unusable.is_none() && n.state == Some(MigrationState::Spare)
        })
    }

    /// How many ranks a PMI barrier waits for. In pods, ranks that ended with code 0 do not count.
    pub(super) fn barrier_size(&self) -> u32 {
        let gone = |row: &&Rank| match row.ended {
            _ if row.left_out => true,
            Some(ExitCause::Exit(0)) => self.moves() == Moves::Alone,
            _ => false,
        };
        let gone = u32::try_from(self.ranks.iter().filter(gone).count()).unwrap_or(u32::MAX);
        self.config.size.saturating_sub(gone)
    }

    /// Whether every rank has ended well.
    pub fn finished(&self) -> bool {
        self.rows().all(|(_, row)| row.ended == Some(ExitCause::Exit(0)))
    }

    /// A placement without lost or inactive nodes: one spare for each. Without a spare, a live node
    /// that was to be left keeps its ranks.
    ///
    /// # Errors
    /// A node without a spare.
    pub(super) fn replan(&self, faults: NodeFaults) -> Result<Placement, NodeName> {
        let mut placement = Placement::new();
        // A spare with new ranks may not have reported its new state yet.
        let mut taken: Vec<NodeName> = self.placement().into_keys().collect();
        for (name, ranks) in self.placement() {
            let fails = self.nodes.get(&name).is_some_and(|node| node.unusable.is_some());
            let host = match self.is_good(&name) && !(fails && faults != NodeFaults::Ignore) {
                true => name,
                false => match self.spare(&taken) {
                    Some(spare) => spare,
                    None if self.is_usable(&name) && !(fails && faults == NodeFaults::Refuse) => {
                        name
                    }
                    None => return Err(name),
                },
            };
            taken.push(host.clone());
            placement.entry(host).or_default().0.extend(ranks.0);
        }
        Ok(placement)
    }

    /// How many ranks made that set, if not the present number.
    pub(super) fn other_size(&self, set: &SetId) -> Option<u32> {
        self.set_sizes.get(set).copied().filter(|size| *size != self.config.size)
    }

    /// The job goes on with fewer ranks: each usable node with ranks keeps its number.
    ///
    /// # Errors
    /// There is no such node.
    pub(super) fn shrink(&mut self) -> Result<Placement, &'static str> {
        let mut placement = Placement::new();
        let mut size = 0;
        for (name, ranks) in self.placement().into_iter().filter(|(name, _)| self.is_good(name)) {
            let next = size + u32::try_from(ranks.len()).unwrap_or(u32::MAX);
            placement.insert(name, (size..next).collect());
            size = next;
        }
        if size == 0 {
            return Err("no node is left");
        }
        for set in &self.sets {
            self.set_sizes.entry(set.clone()).or_insert(self.config.size);
        }
        self.config.size = size;
        Ok(placement)
    }

    pub(super) fn is_good(&self, name: &NodeName) -> bool {
        self.is_usable(name) && self.nodes.get(name).is_some_and(|n| !n.avoid)
    }

    /// Whether a node could have ranks.
    pub(super) fn is_usable(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_some_and(|n| {
            !n.lost && n.state.is_some() && n.state != Some(MigrationState::Inactive)
        })
    }

    /// Keeps ranks on nodes that were to be left.
    pub(super) fn keep_avoided(&mut self, placement: &Placement) {
        for name in placement.keys() {
            let is_avoided = |node: &&mut Node| node.avoid || node.unusable.is_some();
            if let Some(node) = self.nodes.get_mut(name).filter(is_avoided) {
                node.avoid = false;
                let why = node.unusable.as_ref().map(|fault| format!(" ({})", fault.why));
                let why = why.unwrap_or_default();
                self.tell(format!("no hot spare is left: node {name} keeps its ranks{why}"));
            }
        }
    }

    /// ` (its launch agent has left)`: why a node is lost or gets no ranks, for the user; may be
    /// empty.
    pub(super) fn why_lost(&self, name: &NodeName) -> String {
        let Some(node) = self.nodes.get(name) else { return String::new() };
        let fault = node.unusable.as_ref().map(|fault| fault.why.as_str());
        match if node.lost { node.lost_why.as_str() } else { fault.unwrap_or_default() } {
            "" => String::new(),
            why => format!(" ({why})"),
        }
    }

    /// Informs the user which spares take the place of nodes with a fault.
    pub(super) fn tell_replaced(&mut self, placement: &Placement) {
        let gone = |(name, ranks): (NodeName, Ranks)| {
            let fault = self.nodes.get(&name)?.unusable.as_ref()?;
            let (host, _) =
                placement.iter().find(|(host, new)| **new == ranks && **host != name)?;
            Some(format!("node {host} takes the place of {name} ({})", fault.why))
        };
        let words: Vec<String> = self.placement().into_iter().filter_map(gone).collect();
        words.into_iter().for_each(|words| self.tell(words));
    }

    pub(super) fn publish(&mut self, message: FromJl) {
        self.out.push(JlOutput::Publish(message));
    }

    pub(super) fn tell(&mut self, words: impl Into<String>) {
        self.out.push(JlOutput::Notify(words.into()));
    }
}
