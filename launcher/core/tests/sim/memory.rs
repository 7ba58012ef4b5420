//! Images in the memory of the nodes, with the real code of the groups. The one thing that must
//! never happen: a rank starts from a state that it has not saved.

use super::happens::Happens;
use super::world::World;
use ftb_launcher_core::memory::stripes::{self, Cell};
use ftb_launcher_core::memory::{GroupTask, Member, Scheme};
use ftb_launcher_core::names::{NodeName, SetId};
use ftb_launcher_core::nla::NlaInput;

impl World {
    /// A rank takes a state from a set: it is the one that it has saved there.
    pub fn check_state(&self, set: &SetId, rank: u32, state: u64) {
        let saved = self.saved_states.get(&(set.clone(), rank));
        assert!(
            saved.is_some_and(|saved| *saved == state),
            "rank {rank}, {set}: {state}, {saved:?}"
        );
    }

    /// Bytes of the image of a rank: shares are ragged.
    pub fn image_bytes(rank: u32) -> u64 {
        8 * (1 + u64::from(rank) % 3)
    }

    /// A rank has saved itself on a node: in memory the image is of this node's share.
    pub fn keep_image(&mut self, name: &NodeName, set: &SetId, rank: u32, state: u64) {
        self.images.insert((name.clone(), set.clone(), rank), state);
        self.saved_states.insert((set.clone(), rank), state);
        if set.is_in_memory() {
            self.shares.insert((name.clone(), set.clone(), name.clone(), rank));
        }
    }

    /// Whether an image of that rank fits into the memory of the node.
    pub fn has_room(&self, name: &NodeName, set: &SetId, rank: u32) -> bool {
        let Some(budget) = self.budget.filter(|_| set.is_in_memory()) else { return true };
        let held = self.shares.iter().filter(|(node, ..)| node == name);
        let images: u64 = held.map(|(.., rank)| Self::image_bytes(*rank)).sum();
        let parity = self.parity.iter().filter(|((node, ..), _)| node == name);
        let parity: u64 = parity.map(|(_, bytes)| bytes.len() as u64).sum();
        images + parity + Self::image_bytes(rank) <= budget
    }

    /// A node frees the sets that it does not keep.
    pub fn free_sets(&mut self, name: &NodeName, keeps: &dyn Fn(&SetId) -> bool) {
        let stays = |node: &NodeName, set: &SetId| node != name || keeps(set);
        self.images.retain(|(node, set, _), _| stays(node, set));
        self.shares.retain(|(node, set, ..)| stays(node, set));
        self.parity.retain(|(node, set, _), _| stays(node, set));
    }

    /// The share of a member on its host, if that lives and has all of it, as its own: images that
    /// are there because ranks have moved do not count.
    fn share(&self, task: &GroupTask, member: usize) -> Option<Vec<u8>> {
        let of = &task.group.members[member];
        self.nlas.get(&of.host)?;
        let image = |(rank, bytes): (&u32, &u64)| {
            let (host, set) = (of.host.clone(), task.set.clone());
            let its = self.shares.contains(&(host.clone(), set.clone(), of.owner.clone(), *rank));
            let state = self.images.get(&(host, set, *rank)).filter(|_| its)?;
            Some(state.to_le_bytes().repeat(*bytes as usize / 8))
        };
        let images = of.images.iter().map(image).collect::<Option<Vec<_>>>()?;
        Some(images.concat())
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
        let Member { owner, images, .. } = &task.group.members[of];
        for rank in images.keys() {
            let state = *self.images.get(&(from.clone(), task.set.clone(), *rank))?;
            let (target, set) = (task.target.clone(), task.set.clone());
            self.images.insert((target.clone(), set.clone(), *rank), state);
            self.shares.insert((target, set, owner.clone(), *rank));
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
        self.free_sets(name, &|set| !set.is_in_memory() || keeps(set));
        let breaks = self.rng.chance(self.faults.copy) || self.breaks > 0;
        self.breaks = self.breaks.saturating_sub(1);
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
        let (Member { owner, images, .. }, mut at) = (&group.members[member], 0);
        for (rank, bytes) in images {
            let image = &share[at..at + *bytes as usize];
            let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let mut states: Vec<u64> = image.chunks_exact(8).map(word).collect();
            states.dedup();
            assert_eq!(states.len(), 1, "an image of several states: {states:?}");
            let (target, set) = (task.target.clone(), task.set.clone());
            self.images.insert((target.clone(), set.clone(), *rank), states[0]);
            self.shares.insert((target, set, owner.clone(), *rank));
            at += *bytes as usize;
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
