//! A model rank: follows `launcher/core/protocol.md` and checks its inputs.

use super::happens::Happens;
use super::world::World;
use ftb_launcher_core::message::{ExitCause, FromJl, FromRank};
use ftb_launcher_core::names::{Episode, NodeName, SetId};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the barrier of this episode.
    Barrier(Episode),
    Running,
    /// Writing an image; `leaves` when it is to exit after that.
    Writing {
        episode: Episode,
        leaves: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Proc {
    pub node: NodeName,
    pub rank: u32,
    pub incarnation: u64,
    pub phase: Phase,
    pub done: u64,
    pub zombie: bool,
    /// The episode that started it.
    pub born: Episode,
    /// The episode in which it went back last.
    pub back: Episode,
    /// The episode in which it published its address last.
    pub published: Episode,
    /// The episode in which it met the others last.
    met: Episode,
    /// The rollback that it missed.
    recall: Option<(Episode, SetId)>,
    /// Whether the program can go back in place.
    pub recovers: bool,
    /// Whether it divides its state among fewer ranks in place.
    pub divides: bool,
    /// The set that it was restored from.
    pub restored: Option<SetId>,
    /// The last answer to each episode, to be said again.
    answers: BTreeMap<Episode, FromRank>,
    /// Messages from before it could act.
    pending: Vec<FromJl>,
    aborted: Option<Episode>,
}

impl Proc {
    pub fn new(
        node: NodeName,
        rank: u32,
        incarnation: u64,
        episode: Episode,
        state: Option<u64>,
        restored: Option<SetId>,
    ) -> Self {
        Self {
            node,
            rank,
            incarnation,
            phase: Phase::Barrier(episode),
            done: state.unwrap_or(0),
            zombie: false,
            born: episode,
            back: Episode(0),
            published: episode,
            met: Episode(0),
            recall: None,
            recovers: true,
            divides: true,
            restored,
            answers: BTreeMap::new(),
            pending: Vec::new(),
            aborted: None,
        }
    }
}

impl World {
    pub fn proc_hears(&mut self, id: u64, message: &FromJl) {
        let deaf = !self.ranks_save();
        let Some(proc) = self.procs.get_mut(&id).filter(|_| !deaf) else {
            return;
        };
        let rank = proc.rank;
        match message {
            FromJl::MigrateAbort { episode, .. } => proc.aborted = Some(*episode),
            FromJl::Checkpoint { episode, .. } | FromJl::Migrate { episode, .. } => {
                if *episode <= proc.born.max(proc.back) {
                    return;
                }
                if let Some(answer) = proc.answers.get(episode).cloned() {
                    if !matches!(answer, FromRank::Suspended) {
                        self.rank_says(rank, *episode, answer);
                    }
                } else if proc.phase == Phase::Running {
                    self.act(id, message);
                } else if !proc.pending.contains(message) {
                    proc.pending.push(message.clone());
                }
            }
            FromJl::Rollback { episode, set, ranks, left } => {
                if !left.is_empty() && !proc.divides {
                    let reason = "the program does not divide its state".to_owned();
                    let set = set.clone();
                    return self.rank_says(
                        rank,
                        *episode,
                        FromRank::RollbackFailed { set, reason },
                    );
                }
                if *episode <= proc.born.max(proc.back) || ranks.has(rank) {
                    return;
                }
                // One that waits in a barrier hears nothing before it is complete.
                if matches!(proc.phase, Phase::Barrier(_)) {
                    proc.recall = Some((*episode, set.clone()));
                } else {
                    self.go_back(id, *episode, set);
                }
            }
            _ => {}
        }
    }

    /// Takes back its own state of a set, wherever it is, and enters the barrier.
    fn go_back(&mut self, id: u64, episode: Episode, set: &SetId) {
        let Some(proc) = self.procs.get_mut(&id) else {
            return;
        };
        let rank = proc.rank;
        if !proc.recovers {
            let reason = "the program does not take it".to_owned();
            return self.rank_says(
                rank,
                episode,
                FromRank::RollbackFailed { set: set.clone(), reason },
            );
        }
        let key = (proc.node.clone(), set.clone(), rank);
        let state = *self.images.get(&key).expect("who goes back has its image beside it");
        proc.done = state;
        proc.back = episode;
        proc.restored = Some(set.clone());
        proc.answers.clear();
        proc.pending.clear();
        proc.recall = None;
        self.check_state(set, rank, state);
        self.barrier_in(id, episode, false);
    }

    /// At the safe point.
    fn act(&mut self, id: u64, message: &FromJl) {
        let Some(proc) = self.procs.get_mut(&id) else {
            return;
        };
        let (rank, aborted) = (proc.rank, proc.aborted);
        let (FromJl::Checkpoint { episode, .. } | FromJl::Migrate { episode, .. }) = message else {
            return;
        };
        let episode = *episode;
        if proc.answers.keys().next_back().is_some_and(|last| *last > episode) {
            return;
        }
        proc.answers.insert(episode, FromRank::Suspended);
        self.rank_says(rank, episode, FromRank::Suspended);
        match message {
            FromJl::Checkpoint { set, .. } => self.write(id, episode, set, false),
            FromJl::Migrate { set, ranks, .. } if ranks.has(rank) && aborted != Some(episode) => {
                self.write(id, episode, set, true);
            }
            _ => self.barrier_in(id, episode, true),
        }
    }

    fn write(&mut self, id: u64, episode: Episode, set: &SetId, leaves: bool) {
        if let Some(proc) = self.procs.get_mut(&id) {
            proc.phase = Phase::Writing { episode, leaves };
        }
        let after = self.times.image_ms + self.rng.below(80);
        self.at(after, Happens::Written(id, episode, set.clone()));
    }

    pub fn image_written(&mut self, id: u64, episode: Episode, set: &SetId) {
        let failed = self.rng.chance(self.faults.image);
        let Some(proc) = self.procs.get_mut(&id) else {
            return;
        };
        let Phase::Writing { leaves, episode: of } = proc.phase else {
            return;
        };
        if of != episode {
            return;
        }
        let (set, node, rank, state) = (set.clone(), proc.node.clone(), proc.rank, proc.done);
        let failed = failed || !self.has_room(&node, &set, rank);
        let answer = if failed {
            let reason = "disk full".to_owned();
            FromRank::CheckpointFailed { set, reason }
        } else {
            self.keep_image(&node, &set, rank, state);
            FromRank::CheckpointDone { set, bytes: Self::image_bytes(rank), activity: None }
        };
        if let Some(proc) = self.procs.get_mut(&id) {
            proc.answers.insert(episode, answer.clone());
        }
        self.rank_says(rank, episode, answer);
        match (leaves, failed) {
            (true, false) => self.end_proc(id, ExitCause::Exit(0)),
            (true, true) => self.barrier_in(id, episode, true),
            (false, _) => self.resume(id, episode),
        }
    }

    fn resume(&mut self, id: u64, episode: Episode) {
        let Some(proc) = self.procs.get_mut(&id) else {
            return;
        };
        proc.phase = Phase::Running;
        let rank = proc.rank;
        let pending = core::mem::take(&mut proc.pending);
        self.rank_says(rank, episode, FromRank::Resumed);
        for message in pending {
            self.proc_hears(id, &message);
        }
    }

    /// A line of the NLA: the barrier opens, or an address.
    pub fn pmi_reply(&mut self, name: &NodeName, rank: u32, line: &str) {
        let here = |p: &Proc| p.rank == rank && p.node == *name;
        let Some((id, proc)) = self.procs.iter().find(|(_, p)| here(p)) else {
            return;
        };
        let (id, phase, incarnation, met) = (*id, proc.phase, proc.incarnation, proc.met);
        if line.starts_with("cmd=get_result") {
            assert!(line.contains("rc=0"), "rank {rank} misses an address: {line}");
            self.check_address(line, met);
            return;
        }
        if !line.starts_with("cmd=barrier_out") {
            return;
        }
        let Phase::Barrier(episode) = phase else {
            panic!("rank {rank} is released from a barrier that it is not in: {phase:?}");
        };
        self.check_meeting(episode);
        self.check_inherited(id, episode);
        if let Some(proc) = self.procs.get_mut(&id) {
            proc.met = episode;
        }
        let others: Vec<u32> = self.procs.values().map(|proc| proc.rank).collect();
        for other in others {
            let line = format!("cmd=get kvsname=job key=ftb-addr-{other}");
            let input = ftb_launcher_core::nla::NlaInput::PmiLine { rank, incarnation, line };
            self.at(0, Happens::ToNla(name.clone(), Box::new(input)));
        }
        self.resume(id, episode);
        // The rollback that it missed.
        let recall = self.procs.get_mut(&id).and_then(|proc| proc.recall.take());
        if let Some((episode, set)) = recall {
            self.go_back(id, episode, &set);
        }
    }

    /// For a rank that met the others in that episode: an address is not that of a process that had
    /// died, and was started again, before the barrier was open.
    fn check_address(&self, line: &str, met: Episode) {
        let value = line.split_once("value=").map(|(_, value)| value.trim()).unwrap_or_default();
        let mut words = value.split(':').skip(1).map(|word| word.parse::<u64>().expect("a number"));
        let (id, rank) = (words.next(), words.next());
        let of = |p: &Proc| Some(u64::from(p.rank)) == rank && p.published <= met;
        let twin = self.procs.iter().find(|(_, p)| of(p));
        assert!(twin.is_none_or(|(now, _)| Some(*now) == id), "an address of before: {line}");
    }

    /// A rank has the images of those that are left out and whose successor it is.
    fn check_inherited(&self, id: u64, episode: Episode) {
        let (Some(proc), Some(jl)) = (self.procs.get(&id), &self.jl) else { return };
        let (members, Some(set)) = (jl.job().members(), &proc.restored) else { return };
        // The launcher may be beyond this barrier.
        let same_set = jl.job().set_sizes.get(set).is_none_or(|of| *of == jl.job().config.size);
        // A rank that meets others who moved has gone back before, to a set that may be gone.
        let is_newest = jl.job().newest_set().as_ref() == Some(set);
        if jl.job().episode != episode || !same_set || !is_newest {
            return;
        }
        for ((of, rank), state) in &self.saved_states {
            let left_out = of == set && !members.has(*rank);
            if left_out && members.successor(*rank) == Some(proc.rank) {
                let image = self.images.get(&(proc.node.clone(), set.clone(), *rank));
                assert_eq!(image, Some(state), "{} misses what rank {rank} left", proc.rank);
            }
        }
    }

    /// A rank leaves a barrier with a consistent job: each rank once, and all restored ranks from
    /// one set.
    fn check_meeting(&self, episode: Episode) {
        let mut sets: Vec<&SetId> = Vec::new();
        for proc in self.procs.values() {
            if let (Phase::Barrier(of), Some(set)) = (proc.phase, &proc.restored)
                && of == episode
                && proc.answers.is_empty()
            {
                sets.push(set);
            }
        }
        sets.sort();
        sets.dedup();
        assert!(sets.len() <= 1, "ranks of one barrier come from {sets:?}");
    }
}
