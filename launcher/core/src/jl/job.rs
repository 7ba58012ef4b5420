//! What the JL knows of its job: nodes, ranks, sets, counters. The remedies read and change it; none of it
//! decides anything.

use super::Output;
use super::faults::Faults;
use super::fence::Fence;
use super::pace::{Interval, MTBF};
use crate::manner::{Manner, Moves, Saver};
use crate::message::{Activity, FromJl, How, Placement, Protocol};
use crate::names::{Episode, JobId, NodeName, Ranks, SetId};
use crate::nla::MigrationState;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long each phase may take before its way back is taken. See the table in `docs/launcher.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deadlines {
    /// Until every NLA is there.
    #[serde(with = "humantime_serde")]
    pub gather: Duration,
    /// Until every NLA has started its ranks.
    #[serde(with = "humantime_serde")]
    pub launch: Duration,
    /// Until a target has started the ranks of a migration.
    #[serde(with = "humantime_serde")]
    pub restart: Duration,
    /// Until restarted or moved ranks are in the fence with all others.
    #[serde(with = "humantime_serde")]
    pub join: Duration,
    /// Until every rank computes again.
    #[serde(with = "humantime_serde")]
    pub resume: Duration,
    /// Until every node agent that saves its ranks has made them ready.
    #[serde(with = "humantime_serde")]
    pub prepare: Duration,
    /// Until every rank has written its image.
    #[serde(with = "humantime_serde")]
    pub save: Duration,
    /// Until the images of a checkpoint are in the store.
    #[serde(with = "humantime_serde")]
    pub store: Duration,
    /// Until the ranks of the source have left.
    #[serde(with = "humantime_serde")]
    pub leave: Duration,
    /// Until images are copied.
    #[serde(with = "humantime_serde")]
    pub copy: Duration,
    /// Until killed ranks are gone.
    #[serde(with = "humantime_serde")]
    pub reset: Duration,
    /// Until the NLAs have left at the end.
    #[serde(with = "humantime_serde")]
    pub end: Duration,
    /// Of no phase: how long an NLA may be silent at any time before its node counts as lost.
    #[serde(with = "humantime_serde")]
    pub silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            gather: s(60),
            launch: s(60),
            restart: s(30),
            join: s(60),
            resume: s(30),
            prepare: s(60),
            save: s(300),
            store: s(600),
            leave: s(60),
            copy: s(300),
            reset: s(20),
            end: s(15),
            silence: s(15),
        }
    }
}

/// What to do when a rank or a node dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeath {
    /// Those that live go back to the last set in place, the dead are started again from it; where that cannot be,
    /// as [`OnDeath::Restart`].
    #[default]
    Rollback,
    /// End all ranks and start the job anew from its last set; without one, stop.
    Restart,
    /// As [`OnDeath::Rollback`]; but where no hot spare is left for a lost node the job starts anew with fewer ranks,
    /// which divide the last set among them.
    Shrink,
    /// End the job with the code of the failed rank.
    Stop,
}

/// What the JL is told at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JlConfig {
    /// The job.
    pub job: JobId,
    /// How many ranks.
    pub size: u32,
    /// Who starts what at first.
    pub placement: Placement,
    /// Hot spares, in the order of their use.
    pub spares: Vec<NodeName>,
    /// The set in the store to start from.
    pub restore: Option<SetId>,
    /// See there.
    pub deadlines: Deadlines,
    /// See there.
    pub on_death: OnDeath,
    /// Recoveries without a new set in between before the job is given up.
    pub restarts_max: u32,
    /// How often it is saved by itself.
    #[serde(default)]
    pub interval: Interval,
    /// The mean time between failures, as far as anybody knows.
    #[serde(default = "mtbf", with = "humantime_serde")]
    pub mtbf: Duration,
    /// How many sets are kept.
    pub sets_max: usize,
    /// Who saves the ranks, and how they move.
    #[serde(default)]
    pub manner: Manner,
}

fn mtbf() -> Duration {
    MTBF
}

/// Unanswered questions after which an NLA counts as lost, when the next one is due.
pub(super) const SILENCES_MAX: u32 = 5;
/// Unanswered questions, the newest included, at which it is told that there may be trouble.
pub(super) const SILENCES_TOLD: u32 = 4;
/// How many answers a second all questions may lead to: the NLAs of a job of more nodes are asked less often.
const ANSWERS_PER_SECOND: u32 = 500;

/// One node of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Last told state; `None` before it was there.
    pub state: Option<MigrationState>,
    /// Where its image server is.
    pub images: String,
    /// Gone for good.
    pub lost: bool,
    /// Someone said that it may be used again; told to it when it can take it.
    pub usable: bool,
    /// Its ranks were moved away: it gets none until someone says that it may be used again.
    #[serde(default)]
    pub avoid: bool,
    /// Unanswered questions.
    pub silences: u32,
    /// Requests that are answered when it is a spare again.
    #[serde(default)]
    pub(super) asked_usable: Vec<u64>,
}

/// One rank of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rank {
    /// Where.
    pub node: NodeName,
    /// Of which start.
    pub incarnation: u64,
    /// How it ended.
    pub ended: Option<How>,
    /// What it has spoken so far.
    #[serde(default)]
    pub protocol: Protocol,
}

/// What a rank had done when a set was made; none where the kernel does not tell, which is taken for progress.
type Done = Option<Activity>;

/// Whether a rank has made progress from `then` to `now`.
fn is_beyond(now: &Done, then: &Done) -> bool {
    let (Some(now), Some(then)) = (now, then) else {
        return true;
    };
    now.cpu_ms > then.cpu_ms && now.sent > then.sent
}

/// Copies of a set's images that the nodes have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    set: SetId,
    placement: Placement,
}

/// Everything the JL knows of its job. Also its state on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// As given.
    pub config: JlConfig,
    /// By name.
    pub nodes: BTreeMap<NodeName, Node>,
    /// By rank.
    pub ranks: Vec<Rank>,
    /// The newest.
    pub episode: Episode,
    /// The newest start.
    pub incarnation: u64,
    /// The open fence.
    pub fence: Fence,
    /// Whether all ranks have met since the last start: only then can they be asked anything.
    pub met: bool,
    /// Committed sets in the store, oldest first.
    pub sets: Vec<SetId>,
    /// The last set, as the nodes have it.
    #[serde(default)]
    pub(super) held: Option<Held>,
    /// How many ranks have made a set, where that is not the number of now.
    #[serde(default)]
    pub set_sizes: BTreeMap<SetId, u32>,
    /// What the ranks had done when each of these sets was made, where that is measured.
    #[serde(default)]
    pub(super) activity: BTreeMap<SetId, Vec<Done>>,
    /// The newest set after which each rank was seen to make progress.
    #[serde(default)]
    pub(super) proven: Option<SetId>,
    /// Ranks that had made no progress between the last two sets.
    #[serde(default)]
    still: Ranks,
    /// Recoveries since the last new set: without progress between them they come to an end.
    pub restarts: u32,
    /// `host:port` of the image server of the store.
    pub store: String,
    /// Messages refused because their episode, start or sender was not of now.
    pub refused: u64,
    /// Which faults are closed.
    #[serde(default)]
    pub faults: Faults,
    #[serde(skip)]
    pub(super) out: Vec<Output>,
}

impl Job {
    pub(super) fn new(config: JlConfig) -> Self {
        let node = || Node {
            state: None,
            images: String::new(),
            lost: false,
            usable: false,
            avoid: false,
            silences: 0,
            asked_usable: Vec::new(),
        };
        let names = config.placement.keys().chain(&config.spares);
        let nodes = names.map(|name| (name.clone(), node())).collect();
        let sets = config.restore.iter().cloned().collect();
        let mut job = Self {
            nodes,
            ranks: Vec::new(),
            episode: Episode(0),
            incarnation: 0,
            fence: Fence::new(1),
            met: false,
            sets,
            held: None,
            set_sizes: BTreeMap::new(),
            activity: BTreeMap::new(),
            proven: None,
            still: Ranks::default(),
            restarts: 0,
            store: String::new(),
            refused: 0,
            faults: Faults::default(),
            out: Vec::new(),
            config,
        };
        let placement = job.config.placement.clone();
        job.place(&placement);
        job
    }

    /// How often every NLA is asked whether it is there.
    pub(super) fn ask_every(&self) -> Duration {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let often = self.config.deadlines.silence / SILENCES_MAX;
        often.max(Duration::from_secs(1) * nodes / ANSWERS_PER_SECOND)
    }

    /// Whether node agents save the ranks, which know nothing of it.
    pub(super) fn agents_save(&self) -> bool {
        self.config.manner.saver == Saver::Agent
    }

    /// How ranks get from one node to another.
    pub(super) fn moves(&self) -> Moves {
        self.config.manner.moves
    }

    /// Whether nodes keep the images of the last set: ranks may go back to them in place.
    pub(super) fn keeps_images(&self) -> bool {
        let able = self.config.manner == Manner { saver: Saver::Ranks, moves: Moves::Meeting };
        able && matches!(self.config.on_death, OnDeath::Rollback | OnDeath::Shrink)
    }

    /// The nodes have these images of `set`; those of the set before it have served.
    pub(super) fn hold(&mut self, set: &SetId, placement: &Placement) {
        if let Some(old) = self.held.take().filter(|held| held.set != *set) {
            self.drop_held(old.set);
        }
        self.held = Some(Held { set: set.clone(), placement: placement.clone() });
    }

    /// Nobody will go back to that set.
    pub(super) fn release(&mut self, set: &SetId) {
        if let Some(old) = self.held.take_if(|held| held.set == *set) {
            self.drop_held(old.set);
        }
    }

    fn drop_held(&mut self, set: SetId) {
        let episode = self.episode;
        self.publish(FromJl::Drop { episode, set });
    }

    /// A new set is about to count, in which the ranks have done so much. The newest set since which all have made progress
    /// is one from before a hang that may be in the new one.
    pub(super) fn prove_sets(&mut self, set: &SetId, activity: &BTreeMap<u32, Activity>) {
        // Ranks that save themselves have come to their safe point.
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

    /// Tells which ranks have made no progress since the last set, when they are others than before.
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

    /// Sets beyond those that are kept go, the oldest first. The newest one that is proven stays all the same; where none
    /// is, the oldest.
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
            self.activity.remove(&old);
            self.out.push(Output::DropStored(old));
        }
        self.sets.extend(newest);
    }

    /// Who lacks the images of `set` that `placement` needs.
    pub(super) fn without_images(&self, set: &SetId, placement: &Placement) -> Placement {
        let held = self.held.as_ref().filter(|held| held.set == *set);
        let has = |node: &NodeName, rank| {
            let here = held.and_then(|held| held.placement.get(node));
            here.is_some_and(|ranks| ranks.has(rank))
        };
        let lacking = |(node, ranks): (&NodeName, &Ranks)| {
            let all: Ranks = ranks.iter().filter(|rank| !has(node, *rank)).collect();
            (!all.is_empty()).then(|| (node.clone(), all))
        };
        placement.iter().filter_map(lacking).collect()
    }

    /// The next episode.
    pub(super) fn open(&mut self) -> Episode {
        self.episode = Episode(self.episode.0 + 1);
        self.episode
    }

    /// Takes a placement of all ranks over.
    pub(super) fn place(&mut self, placement: &Placement) {
        let of_node = |(node, ranks): (&NodeName, &Ranks)| {
            ranks.iter().map(|rank| (rank, node.clone())).collect::<Vec<_>>()
        };
        let nodes: BTreeMap<u32, NodeName> = placement.iter().flat_map(of_node).collect();
        let incarnation = self.incarnation;
        let row = |node| Rank { node, incarnation, ended: None, protocol: Protocol::default() };
        self.ranks = nodes.into_values().map(row).collect();
    }

    /// These ranks are started on that node, as the newest start.
    pub(super) fn start_on(&mut self, node: &NodeName, ranks: &Ranks) {
        for rank in ranks.iter() {
            if let Some(row) = self.ranks.get_mut(rank as usize) {
                row.node = node.clone();
                row.incarnation = self.incarnation;
                row.ended = None;
            }
        }
    }

    /// Who runs where now.
    pub fn placement(&self) -> Placement {
        let mut placement = Placement::new();
        for (rank, row) in (0..).zip(&self.ranks) {
            placement.entry(row.node.clone()).or_default().0.insert(rank);
        }
        placement
    }

    /// The ranks placed on a node.
    pub fn ranks_on(&self, node: &NodeName) -> Ranks {
        let here = (0..).zip(&self.ranks).filter(|(_, row)| row.node == *node);
        here.map(|(rank, _)| rank).collect()
    }

    /// Whether nothing comes any more of the process that was started last as that rank: it has ended, or its node is lost.
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

    /// The first hot spare that is free, in the order of the spares given, then any other node that has become
    /// one; not one of `tried`.
    pub fn spare(&self, tried: &[NodeName]) -> Option<NodeName> {
        let free = |name: &&NodeName| self.is_spare(name) && !tried.contains(*name);
        let all = self.config.spares.iter().chain(self.nodes.keys());
        all.into_iter().find(free).cloned()
    }

    /// Whether that node can take ranks over.
    pub(super) fn is_spare(&self, name: &NodeName) -> bool {
        let node = self.nodes.get(name);
        node.is_some_and(|n| !n.lost && !n.avoid && n.state == Some(MigrationState::Spare))
    }

    /// How many ranks a PMI fence waits for. An unmodified rank that has ended well was let out of the last fence: the
    /// others would wait for it for nothing.
    pub(super) fn fence_size(&self) -> u32 {
        let gone = |row: &&Rank| row.ended == Some(How::Exit(0)) && self.moves() == Moves::Alone;
        let gone = u32::try_from(self.ranks.iter().filter(gone).count()).unwrap_or(u32::MAX);
        self.config.size.saturating_sub(gone)
    }

    /// Whether every rank has ended well.
    pub fn finished(&self) -> bool {
        self.ranks.iter().all(|row| row.ended == Some(How::Exit(0)))
    }

    /// A placement without lost or inactive nodes: each such node's ranks go to one spare. Without
    /// a spare a node that was to be left, and lives, keeps its ranks.
    ///
    /// # Errors
    /// A node for which there is no spare.
    pub(super) fn replan(&self) -> Result<Placement, NodeName> {
        let mut placement = Placement::new();
        // A spare that has got ranks may not have said yet that it is none any more.
        let mut taken: Vec<NodeName> = self.placement().into_keys().collect();
        for (name, ranks) in self.placement() {
            let host = match self.is_good(&name) {
                true => name,
                false => match self.spare(&taken) {
                    Some(spare) => spare,
                    None if self.is_usable(&name) => name,
                    None => return Err(name),
                },
            };
            taken.push(host.clone());
            placement.entry(host).or_default().0.extend(ranks.0);
        }
        Ok(placement)
    }

    /// How many ranks have made that set, where the job has another number now.
    pub(super) fn other_size(&self, set: &SetId) -> Option<u32> {
        self.set_sizes.get(set).copied().filter(|size| *size != self.config.size)
    }

    /// The job goes on with the ranks that there are places for: each usable node that had any has as many as before.
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

    fn is_good(&self, name: &NodeName) -> bool {
        self.is_usable(name) && self.nodes.get(name).is_some_and(|n| !n.avoid)
    }

    /// Whether a node could have ranks, though they may better be elsewhere.
    fn is_usable(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_some_and(|n| {
            !n.lost && n.state.is_some() && n.state != Some(MigrationState::Inactive)
        })
    }

    /// Nodes that were to be left and have ranks all the same.
    pub(super) fn keep_avoided(&mut self, placement: &Placement) {
        for name in placement.keys() {
            if let Some(node) = self.nodes.get_mut(name).filter(|node| node.avoid) {
                node.avoid = false;
                self.tell(format!("no hot spare is left: node {name} keeps its ranks"));
            }
        }
    }

    pub(super) fn publish(&mut self, message: FromJl) {
        self.out.push(Output::Publish(message));
    }

    pub(super) fn tell(&mut self, words: impl Into<String>) {
        self.out.push(Output::Tell(words.into()));
    }
}
