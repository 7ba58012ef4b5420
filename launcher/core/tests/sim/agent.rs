//! Node agents that save ranks which know nothing of it, in the model. The one thing that must
//! never happen: a set counts of which an image was made while something could still pass between
//! nodes.

use super::happens::Happens;
use super::proc::Phase;
use super::world::World;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::names::{Episode, NodeName, Ranks, SetId};
use ftb_launcher_core::nla;

impl World {
    /// Whether ranks act on what the launcher says.
    pub fn ranks_save(&self) -> bool {
        self.manner.saver == ftb_launcher_core::manner::Saver::Ranks
    }

    fn later(&mut self, name: &NodeName, after: u64, input: nla::NlaInput) {
        self.at(after, Happens::ToNla(name.clone(), Box::new(input)));
    }

    fn ids_on(&self, name: &NodeName, ranks: &Ranks) -> Vec<u64> {
        let here = self.procs.iter().filter(|(_, p)| p.node == *name && ranks.has(p.rank));
        here.map(|(id, _)| *id).collect()
    }

    pub fn agent(&mut self, name: &NodeName, output: nla::NlaOutput) {
        match output {
            nla::NlaOutput::Prepare { episode, .. } => {
                let failed = self.rng.chance(self.faults.image);
                let result = if failed { Err("no such link".to_owned()) } else { Ok(()) };
                self.cut.insert(name.clone());
                let after = 1 + self.rng.below(30);
                self.later(name, after, nla::NlaInput::Prepared { episode, result });
            }
            nla::NlaOutput::Save { episode, set, ranks, leave, .. } => {
                self.save_ranks(name, episode, &set, &ranks, leave);
            }
            nla::NlaOutput::Release { .. } => {
                self.cut.remove(name);
            }
            nla::NlaOutput::Restore { episode, incarnation, set, ranks } => {
                if self.slow_restore.take_if(|slow| slow == name).is_some() {
                    self.slow.insert(name.clone(), incarnation);
                    let result = Err("not done in 60s: killed".to_owned());
                    let restored = nla::NlaInput::Restored { incarnation, result };
                    return self.later(name, 60_000, restored);
                }
                self.restore_ranks(name, episode, incarnation, &set, &ranks);
            }
            nla::NlaOutput::CancelRestore { incarnation } => {
                if self.slow.get(name) == Some(&incarnation) {
                    self.slow.remove(name);
                    let result = Err("it was replaced".to_owned());
                    self.later(name, 20, nla::NlaInput::Restored { incarnation, result });
                }
            }
            nla::NlaOutput::PublishFor(says) => {
                self.rank_says(says.rank, says.episode, says.message)
            }
            other => panic!("not for the agent: {other:?}"),
        }
    }

    fn save_ranks(
        &mut self,
        name: &NodeName,
        episode: Episode,
        set: &SetId,
        ranks: &Ranks,
        leave: bool,
    ) {
        assert!(self.cut.contains(name), "{name} is saved and was never prepared");
        if !leave {
            // One that could not save goes on at once: the set must not count then.
            if self.procs.values().any(|p| !self.cut.contains(&p.node)) {
                self.torn.insert(set.clone());
            }
        }
        let after = 10 + self.rng.below(80);
        let fits = ranks.iter().all(|rank| self.has_room(name, set, rank));
        if self.rng.chance(self.faults.image) || !fits {
            let result = Err("disk full".to_owned());
            return self.later(name, after, nla::NlaInput::Saved { episode, result });
        }
        for id in self.ids_on(name, ranks) {
            let proc = &self.procs[&id];
            assert!(!matches!(proc.phase, Phase::Barrier(_)), "saved in a barrier: {proc:?}");
            let (rank, state) = (proc.rank, proc.done);
            self.keep_image(name, set, rank, state);
            if leave {
                self.procs.remove(&id);
            }
        }
        if leave {
            self.cut.remove(name);
        }
        // A rank may have ended meanwhile: then its end is on its way, and there is no image of it.
        let there = |rank: &u32| self.images.contains_key(&(name.clone(), set.clone(), *rank));
        let sized = |rank| (rank, Self::image_bytes(rank));
        let sizes: Vec<(u32, u64)> = ranks.iter().filter(there).map(sized).collect();
        let all = sizes.len() == ranks.len();
        let result = if all { Ok(sizes) } else { Err("a rank is gone".to_owned()) };
        self.later(name, after, nla::NlaInput::Saved { episode, result });
    }

    fn restore_ranks(
        &mut self,
        name: &NodeName,
        episode: Episode,
        incarnation: u64,
        set: &SetId,
        ranks: &Ranks,
    ) {
        let after = 10 + self.rng.below(50);
        if self.rng.chance(self.faults.copy) {
            let result = Err("no such interpreter".to_owned());
            return self.later(name, after, nla::NlaInput::Restored { incarnation, result });
        }
        assert!(!self.torn.contains(set), "{set} is not of one moment");
        for rank in ranks.iter() {
            let id = self.new_proc(name, rank, incarnation, episode, Some(set.clone()));
            if let Some(proc) = self.procs.get_mut(&id) {
                proc.phase = Phase::Running;
            }
        }
        let restored: Vec<_> = self
            .procs
            .values()
            .filter(|p| p.incarnation == incarnation)
            .map(|p| &p.restored)
            .collect();
        assert!(restored.windows(2).all(|two| two[0] == two[1]), "of different sets: {restored:?}");
        self.later(name, after, nla::NlaInput::Restored { incarnation, result: Ok(String::new()) });
    }

    /// A rank dies by itself.
    pub fn kill_rank(&mut self, rank: u32) {
        let found = self.procs.iter().find(|(_, p)| p.rank == rank).map(|(id, _)| *id);
        if let Some(id) = found {
            self.end_proc(id, ExitCause::Signal(11));
        }
    }
}
