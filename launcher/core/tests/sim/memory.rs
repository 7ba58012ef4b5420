//! Images in the memory of the nodes, with the real code of the groups. The one thing that must
//! never happen: a rank starts from a state that it has not saved.

use super::happens::Happens;
use super::world::World;
use ftb_launcher_core::memory::stripes::{self, Cell};
use ftb_launcher_core::memory::{GroupTask, Scheme};
use ftb_launcher_core::names::{NodeName, SetId};
use ftb_launcher_core::nla::NlaInput;

impl World {
    /// A rank takes a state from a set: it is the one that it has saved there.
    pub fn check_state(&self, set: &SetId, rank: u32, state: u64) {
        let saved = self.saved_states.get(&(set.clone(), rank));
        assert!(
            saved.is_none_or(|saved| *saved == state),
            "rank {rank}, {set}: {state}, {saved:?}"
        );
    }

    /// The share of a member on its host, if that lives and has all of it.
    fn share(&self, task: &GroupTask, member: usize) -> Option<Vec<u8>> {
        let of = &task.group.members[member];
        self.nlas.get(&of.host)?;
        let image = |rank: &u32| self.images.get(&(of.host.clone(), task.set.clone(), *rank));
        let images = of.images.keys().map(image).collect::<Option<Vec<&u64>>>()?;
        Some(images.into_iter().flat_map(|state| state.to_le_bytes()).collect())
    }

    /// The cell of `wanted` in a stripe, hop by hop.
    fn computed(&self, task: &GroupTask, wanted: usize, stripe: usize) -> Option<Vec<u8>> {
        let (members, chunk) = (task.group.members.len(), task.group.chunk_bytes() as usize);
        let mut sum = vec![0; chunk];
        for hop in stripes::path(members, wanted, stripe).into_iter().rev() {
            let of = &task.group.members[hop];
            let share = self.share(task, hop)?;
            match stripes::cell(hop, stripe, chunk as u64) {
                Cell::Parity => {
                    let parity = (of.host.clone(), task.set.clone(), of.owner.clone());
                    stripes::combine(&mut sum, self.parity.get(&parity)?);
                }
                Cell::Chunk { offset } => {
                    let from = (offset as usize).min(share.len());
                    stripes::combine(&mut sum, &share[from..(from + chunk).min(share.len())]);
                }
            }
        }
        Some(sum)
    }

    fn copy_share(&mut self, task: &GroupTask, from: &NodeName, of: usize) -> Option<()> {
        self.nlas.get(from)?;
        for rank in task.group.members[of].images.keys() {
            let state = *self.images.get(&(from.clone(), task.set.clone(), *rank))?;
            self.images.insert((task.target.clone(), task.set.clone(), *rank), state);
        }
        Some(())
    }

    /// Parity or copies for the member.
    fn made(&mut self, task: &GroupTask) -> Option<u64> {
        let of = &task.group.members[task.member];
        match task.group.scheme {
            Scheme::Xor(_) => {
                let parity = self.computed(task, task.member, task.member)?;
                let key = (task.target.clone(), task.set.clone(), of.owner.clone());
                self.parity.insert(key, parity);
            }
            Scheme::Buddy(_) => {
                for ward in task.group.wards(task.member) {
                    if !task.lost.contains(&ward) {
                        let from = task.group.members[ward].host.clone();
                        self.copy_share(task, &from, ward)?;
                    }
                }
            }
        }
        Some(task.group.protection_bytes(task.member))
    }

    pub fn protect(&mut self, name: &NodeName, task: &GroupTask) {
        let keeps = |set: &SetId| *set == task.set || Some(set) == task.keep.as_ref();
        let drops =
            |node: &NodeName, set: &SetId| node == name && set.is_in_memory() && !keeps(set);
        self.images.retain(|(node, set, _), _| !drops(node, set));
        self.parity.retain(|(node, set, _), _| !drops(node, set));
        let breaks = self.rng.chance(self.faults.copy);
        let made = if breaks { None } else { self.made(task) };
        let result = made.ok_or_else(|| "the stream broke".to_owned());
        let input = NlaInput::ProtectEnded { episode: task.episode, result };
        self.at(self.times.group_ms, Happens::ToNla(name.clone(), Box::new(input)));
    }

    fn gathered(&mut self, task: &GroupTask) -> Option<u64> {
        let (group, member) = (&task.group, task.member);
        let (members, chunk) = (group.members.len(), group.chunk_bytes() as usize);
        if matches!(group.scheme, Scheme::Buddy(_)) {
            let guards = group.guards(member).into_iter().filter(|by| !task.lost.contains(by));
            let hosts: Vec<NodeName> = guards.map(|by| group.members[by].host.clone()).collect();
            hosts.iter().find_map(|host| self.copy_share(task, host, member))?;
            return self.made(task);
        }
        let mut share = vec![0; (members - 1) * chunk];
        for stripe in 0..members {
            if let Cell::Chunk { offset } = stripes::cell(member, stripe, chunk as u64) {
                let cell = self.computed(task, member, stripe)?;
                share[offset as usize..][..chunk].copy_from_slice(&cell);
            }
        }
        for (rank, state) in group.members[member].images.keys().zip(share.chunks_exact(8)) {
            let state = u64::from_le_bytes(state.try_into().expect("eight bytes"));
            self.images.insert((task.target.clone(), task.set.clone(), *rank), state);
        }
        self.made(task)
    }

    pub fn gather(&mut self, name: &NodeName, task: &GroupTask) {
        if !self.nlas.contains_key(name) {
            return;
        }
        let breaks = self.rng.chance(self.faults.copy);
        let gathered = if breaks { None } else { self.gathered(task) };
        let result = gathered.ok_or_else(|| "the stream broke".to_owned());
        let input = NlaInput::CopyEnded { episode: task.episode, result };
        self.at(self.times.group_ms, Happens::ToNla(name.clone(), Box::new(input)));
    }
}
