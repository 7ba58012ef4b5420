//! The communicators of a rank. They are part of its image: after a recovery they are those of the
//! set, with the same numbers, and a process that replaces a rank has them too.
//!
//! All members of a communicator make a new one of it together. Its number is the highest that any
//! of them would take, so no rank is in two communicators of one number. Pure.

use super::FmiError;
use crate::limits;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A communicator: the number of it in messages.
pub type Comm = u16;

/// All ranks.
pub(super) const WORLD: Comm = 0;
/// This rank alone.
pub(super) const ALONE: Comm = 1;

/// A grid of ranks, the last dimension fastest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// How many ranks, and whether the last is a neighbour of the first.
    pub dims: Vec<(u32, bool)>,
}

impl Grid {
    /// Ranks of the grid; beyond 2^64 - 1 that number.
    pub fn size(&self) -> u64 {
        self.dims.iter().fold(1, |size: u64, (len, _)| size.saturating_mul((*len).into()))
    }

    /// Where that rank is.
    pub fn coords(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut coords: Vec<u32> = Vec::new();
        for (len, _) in self.dims.iter().rev() {
            coords.push(rest % len.max(&1));
            rest /= len.max(&1);
        }
        coords.reverse();
        coords
    }

    /// The rank at these coordinates; `None` beyond an end.
    pub fn rank_at(&self, coords: &[i64]) -> Option<u32> {
        let mut rank = 0;
        for ((len, wraps), at) in self.dims.iter().zip(coords) {
            let len = i64::from(*len);
            let at = if *wraps { at.rem_euclid(len.max(1)) } else { *at };
            if !(0..len).contains(&at) {
                return None;
            }
            rank = rank * len + at;
        }
        u32::try_from(rank).ok()
    }

    /// The neighbours of a rank in a direction, `steps` away: whom it receives from and sends to.
    pub fn shift(&self, rank: u32, dim: usize, steps: i32) -> (Option<u32>, Option<u32>) {
        let here: Vec<i64> = self.coords(rank).into_iter().map(i64::from).collect();
        let away = |steps: i64| {
            let mut coords = here.clone();
            *coords.get_mut(dim)? += steps;
            self.rank_at(&coords)
        };
        (away(-i64::from(steps)), away(steps.into()))
    }
}

/// What one member says when a communicator is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    /// The number that it would take.
    pub(super) next: u32,
    /// Members of one colour are together; `None` is in no new communicator.
    pub(super) color: Option<u32>,
    /// Their order, before that in the old one.
    pub(super) key: i32,
}

const PROPOSAL_BYTES: usize = 16;

impl Proposal {
    pub(super) fn encode(self) -> [u8; PROPOSAL_BYTES] {
        let mut bytes = [0; PROPOSAL_BYTES];
        bytes[..4].copy_from_slice(&self.next.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.color.is_some()).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.color.unwrap_or_default().to_le_bytes());
        bytes[12..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let color = word(8)?;
        let color = (word(4)? == 1).then_some(color);
        Some(Self { next: word(0)?, color, key: word(12)?.cast_signed() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Communicator {
    /// Ranks of the job, by their numbers in it.
    pub(super) members: Vec<u32>,
    /// This rank's number in it.
    pub(super) place: u32,
    /// Collective operations so far.
    collectives: u32,
    pub(super) grid: Option<Grid>,
    /// Rounds of agreement so far; not in images.
    #[serde(skip)]
    rounds: u32,
    /// Dead members that the program has acknowledged.
    #[serde(skip)]
    pub(super) acked: BTreeSet<u32>,
}

impl Communicator {
    fn new(members: Vec<u32>, place: u32) -> Self {
        Self { members, place, collectives: 0, grid: None, rounds: 0, acked: BTreeSet::new() }
    }

    pub(super) fn size(&self) -> u32 {
        // A subset of the job's ranks.
        self.members.len() as u32
    }

    /// The number in the job of a member.
    pub(super) fn rank_of(&self, place: u32) -> Result<u32, FmiError> {
        self.members.get(place as usize).copied().ok_or_else(|| {
            FmiError::Invalid(format!("there is no rank {place} in {} ranks", self.size()))
        })
    }

    /// Which of those ranks of the job are members, in the order of their numbers in it.
    pub(super) fn among(&self, ranks: &BTreeSet<u32>) -> Vec<u32> {
        self.members.iter().filter(|member| ranks.contains(member)).copied().collect()
    }

    /// The number in it of a rank of the job.
    pub(super) fn place_of(&self, rank: u32) -> Option<u32> {
        self.members.iter().position(|member| *member == rank).map(|place| place as u32)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Communicators {
    next: u32,
    by_number: BTreeMap<Comm, Communicator>,
}

impl Communicators {
    pub(super) fn new(rank: u32, size: u32) -> Self {
        let world = Communicator::new((0..size).collect(), rank);
        let alone = Communicator::new(vec![rank], 0);
        Self { next: 2, by_number: BTreeMap::from([(WORLD, world), (ALONE, alone)]) }
    }

    pub(super) fn get(&self, comm: Comm) -> Result<&Communicator, FmiError> {
        self.by_number.get(&comm).ok_or_else(|| no_such(comm))
    }

    /// The number of the next collective operation. It wraps around: two of one number never
    /// overlap.
    pub(super) fn next_collective(&mut self, comm: Comm) -> Result<u32, FmiError> {
        let found = self.by_number.get_mut(&comm).ok_or_else(|| no_such(comm))?;
        found.collectives = found.collectives.wrapping_add(1);
        Ok(found.collectives)
    }

    /// The lowest number that this rank could give to a new communicator.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The number of the next round of agreement.
    pub(super) fn next_round(&mut self, comm: Comm) -> Result<u32, FmiError> {
        let found = self.by_number.get_mut(&comm).ok_or_else(|| no_such(comm))?;
        found.rounds += 1;
        Ok(found.rounds - 1)
    }

    /// The program acknowledges these dead members.
    pub(super) fn acknowledge(&mut self, comm: Comm, dead: Vec<u32>) -> Result<(), FmiError> {
        let found = self.by_number.get_mut(&comm).ok_or_else(|| no_such(comm))?;
        found.acked.extend(dead);
        Ok(())
    }

    /// Makes the communicator of the members that live, with a number on which they agree.
    pub(super) fn shrink(
        &mut self,
        comm: Comm,
        dead: &BTreeSet<u32>,
        number: u32,
    ) -> Result<Comm, FmiError> {
        let parent = self.get(comm)?;
        let own = parent.rank_of(parent.place)?;
        let lives = |member: &&u32| !dead.contains(member);
        let members: Vec<u32> = parent.members.iter().filter(lives).copied().collect();
        let Some(place) = members.iter().position(|member| *member == own) else {
            let problem = "the others have gone on without this rank: they take it for dead";
            return Err(FmiError::Invalid(problem.to_owned()));
        };
        let made = Comm::try_from(number).ok().filter(|_| number <= limits::COMMUNICATORS_MAX);
        let Some(made) = made else {
            let max = limits::COMMUNICATORS_MAX;
            return Err(FmiError::Full(format!("this job has made {max} communicators")));
        };
        self.next = self.next.max(number + 1);
        self.by_number.insert(made, Communicator::new(members, place as u32));
        Ok(made)
    }

    pub(super) fn propose(&self, color: Option<u32>, key: i32) -> Proposal {
        Proposal { next: self.next, color, key }
    }

    /// Makes what the members of `comm` have proposed, in the order of their places; `None` for one
    /// without a colour.
    pub(super) fn make(
        &mut self,
        comm: Comm,
        proposals: &[Proposal],
    ) -> Result<Option<Comm>, FmiError> {
        let number = proposals.iter().map(|proposal| proposal.next).max().unwrap_or(self.next);
        if number > limits::COMMUNICATORS_MAX {
            let max = limits::COMMUNICATORS_MAX;
            return Err(FmiError::Full(format!("this job has made {max} communicators")));
        }
        let parent = self.get(comm)?;
        let own = proposals.get(parent.place as usize).and_then(|proposal| proposal.color);
        let mut chosen: Vec<(i32, u32)> = (0..)
            .zip(proposals)
            .filter(|(_, proposal)| own.is_some() && proposal.color == own)
            .map(|(place, proposal)| (proposal.key, place))
            .collect();
        chosen.sort_unstable();
        let place = chosen.iter().position(|(_, place)| *place == parent.place);
        let members: Result<_, _> =
            chosen.iter().map(|(_, place)| parent.rank_of(*place)).collect();
        let members: Vec<u32> = members?;
        self.next = number + 1;
        let (Some(place), Ok(number)) = (place, Comm::try_from(number)) else { return Ok(None) };
        self.by_number.insert(number, Communicator::new(members, place as u32));
        Ok(Some(number))
    }

    /// Lays its ranks out as a grid.
    pub(super) fn lay_out(&mut self, comm: Comm, grid: Option<Grid>) -> Result<(), FmiError> {
        self.by_number.get_mut(&comm).ok_or_else(|| no_such(comm))?.grid = grid;
        Ok(())
    }

    /// The program no longer needs it.
    pub(super) fn free(&mut self, comm: Comm) -> Result<(), FmiError> {
        if comm == WORLD || comm == ALONE {
            return Err(FmiError::Invalid("this communicator cannot be freed".to_owned()));
        }
        self.by_number.remove(&comm).map(drop).ok_or_else(|| no_such(comm))
    }
}

fn no_such(comm: Comm) -> FmiError {
    FmiError::Invalid(format!("there is no communicator {comm}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// All ranks of a job make a communicator of another.
    fn split(ranks: &mut [Communicators], of: Comm, colors: &[(Option<u32>, i32)]) {
        let members = ranks[0].get(of).unwrap().members.clone();
        let proposals: Vec<Proposal> = members
            .iter()
            .zip(colors)
            .map(|(rank, (color, key))| ranks[*rank as usize].propose(*color, *key))
            .collect();
        for rank in members {
            ranks[rank as usize].make(of, &proposals).unwrap();
        }
    }

    #[test]
    fn a_grid_of_more_ranks_than_there_are_numbers_is_larger_than_any_job() {
        let grid = |len| Grid { dims: vec![(len, true); 16] };
        assert_eq!(
            (grid(1 << 31).size(), grid(16).size(), grid(0).size()),
            (u64::MAX, u64::MAX, 0)
        );
        assert_eq!(grid(2).size(), 1 << 16);
    }

    #[test]
    fn a_split_orders_by_key_and_old_place_and_leaves_out_who_has_no_colour() {
        let mut ranks: Vec<_> = (0..5).map(|rank| Communicators::new(rank, 5)).collect();
        let colors = [(Some(1), 9), (Some(0), 0), (Some(1), 2), (None, 0), (Some(1), 2)];
        split(&mut ranks, WORLD, &colors);
        let of = |rank: usize| ranks[rank].get(2).map(|made| (made.members.clone(), made.place));
        assert_eq!(of(0).unwrap(), (vec![2, 4, 0], 2));
        assert_eq!(of(1).unwrap(), (vec![1], 0));
        assert_eq!(of(4).unwrap(), (vec![2, 4, 0], 1));
        assert!(of(3).is_err());
        assert_eq!(ranks[3].next, 3, "it takes part in the numbers");
        assert_eq!(ranks[0].get(2).unwrap().place_of(4), Some(1));
    }

    #[test]
    fn a_shrunken_communicator_has_the_survivors_in_their_order() {
        let mut ranks: Vec<_> = (0..5).map(|rank| Communicators::new(rank, 5)).collect();
        let reversed: Vec<_> = (0..5).map(|rank| (Some(0), -rank)).collect();
        split(&mut ranks, WORLD, &reversed);
        for rank in [4, 2, 1] {
            let made = ranks[rank].shrink(2, &[0, 3].into(), 7).unwrap();
            let made = ranks[rank].get(made).unwrap();
            assert_eq!(made.members, [4, 2, 1]);
            assert_eq!(made.members[made.place as usize] as usize, rank);
            assert_eq!(ranks[rank].next(), 8);
        }
        let full = ranks[4].shrink(2, &BTreeSet::new(), 65_536).unwrap_err();
        assert!(matches!(full, FmiError::Full(_)), "{full}");
        let left_out = ranks[4].shrink(2, &[4].into(), 9).unwrap_err();
        assert!(matches!(left_out, FmiError::Invalid(_)), "{left_out}");
    }

    proptest! {
        /// However ranks split what they are in, two that share a number are in the same one.
        #[test]
        fn no_rank_is_in_two_communicators_of_one_number(
            steps in proptest::collection::vec((any::<u16>(), any::<[u8; 4]>()), 1..12),
        ) {
            let mut ranks: Vec<_> = (0..4).map(|rank| Communicators::new(rank, 4)).collect();
            for (pick, colors) in steps {
                let first = usize::from(pick) % 4;
                let numbers: Vec<Comm> = ranks[first].by_number.keys().copied().collect();
                let of = numbers[usize::from(pick / 4) % numbers.len()];
                let members = ranks[first].get(of).unwrap().members.clone();
                let proposals: Vec<_> = members.iter().zip(colors).map(|(rank, color)| {
                    let color = (color % 3 > 0).then_some(u32::from(color % 3));
                    ranks[*rank as usize].propose(color, 0)
                }).collect();
                for rank in &members {
                    ranks[*rank as usize].make(of, &proposals).unwrap();
                }
                for (rank, all) in ranks.iter().enumerate() {
                    for (number, made) in &all.by_number {
                        prop_assert_eq!(made.members[made.place as usize] as usize, rank);
                        for member in &made.members {
                            let theirs = ranks[*member as usize].get(*number).unwrap();
                            prop_assert_eq!(&theirs.members, &made.members);
                        }
                    }
                }
            }
        }

        #[test]
        fn proposals_survive_the_wire(next: u32, color: Option<u32>, key: i32) {
            let proposal = Proposal { next, color, key };
            prop_assert_eq!(Proposal::decode(&proposal.encode()), Some(proposal));
        }

        #[test]
        fn a_grid_finds_every_rank_where_it_is(dims in proptest::collection::vec(1_u32..5, 1..4)) {
            let grid = Grid { dims: dims.iter().map(|len| (*len, len % 2 == 0)).collect() };
            for rank in 0..u32::try_from(grid.size()).unwrap() {
                let coords: Vec<i64> = grid.coords(rank).into_iter().map(i64::from).collect();
                prop_assert_eq!(grid.rank_at(&coords), Some(rank));
                for dim in 0..dims.len() {
                    let (from, to) = grid.shift(rank, dim, 1);
                    let back = to.map(|to| grid.shift(to, dim, 1).0);
                    prop_assert!(to.is_none() || back == Some(Some(rank)));
                    let ends = u32::from(from.is_none()) + u32::from(to.is_none());
                    prop_assert!(ends == 0 || !grid.dims[dim].1);
                }
            }
        }
    }

    #[test]
    fn what_is_freed_or_unknown_is_refused_and_numbers_are_not_used_again() {
        let mut one = Communicators::new(0, 1);
        assert!(one.free(WORLD).is_err() && one.free(7).is_err());
        let proposals = [one.propose(Some(0), 0)];
        assert_eq!(one.make(WORLD, &proposals).unwrap(), Some(2));
        one.free(2).unwrap();
        assert!(one.get(2).is_err() && one.next_collective(2).is_err());
        let proposals = [one.propose(Some(0), 0)];
        assert_eq!(one.make(WORLD, &proposals).unwrap(), Some(3));
        let late = [Proposal { next: limits::COMMUNICATORS_MAX + 1, color: Some(0), key: 0 }];
        assert!(matches!(one.make(WORLD, &late), Err(FmiError::Full(_))));
    }
}
