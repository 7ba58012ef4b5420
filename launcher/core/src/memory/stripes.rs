//! The XOR code of a group with n members.
//!
//! Symbols: n members, each with a share of bytes. A share is padded with zeros and cut into n-1
//! chunks of equal length. There are n stripes; stripe k has one cell of each member:
//!
//! - the cell of member k is its **parity**,
//! - the cell of any other member is one of its chunks; it puts its chunks into the stripes other
//!   than its own, in order.
//!
//! Rule: the XOR of all n cells of a stripe is zero. So each cell is the XOR of the n-1 others:
//!
//! - *encode*: member k computes cell (k, k);
//! - *decode and gather*: the successor of a lost member l computes cell (l, k) for every k. This
//!   returns all chunks and the parity, so the group is protected again.
//!
//! One cell is computed along a [`path`] through the n-1 other members: the last one sends its
//! cell, each other one combines what it gets with its own cell and sends it on. That is FMI's ring
//! of n steps. All stripes proceed at once, and each path begins at another member. So a node of s
//! bytes sends and receives about s bytes to encode, and memory beyond the parity is one buffer for
//! each stream.

/// Where a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The parity of the member.
    Parity,
    /// The chunk of its share with this offset.
    Chunk { offset: u64 },
}

/// Bytes of a chunk, and of the parity, in a group whose largest share has `largest` bytes.
pub fn chunk_bytes(members: usize, largest: u64) -> u64 {
    largest.div_ceil(others(members))
}

fn others(members: usize) -> u64 {
    (members as u64).saturating_sub(1).max(1)
}

/// The cell of `member` in `stripe`.
pub fn cell(member: usize, stripe: usize, chunk_bytes: u64) -> Cell {
    if member == stripe {
        return Cell::Parity;
    }
    let chunk = stripe - usize::from(stripe > member);
    Cell::Chunk { offset: (chunk as u64).saturating_mul(chunk_bytes) }
}

/// The members whose cells make the cell of `wanted` in `stripe`, the one that sends to it first.
pub fn path(members: usize, wanted: usize, stripe: usize) -> Vec<usize> {
    let leftward = (1..=members).map(|step| (stripe + members - step % members) % members);
    leftward.filter(|member| *member != wanted).collect()
}

/// Combines `cell` with `sum`; beyond its end a cell is zero.
pub fn combine(sum: &mut [u8], cell: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(cell) {
        *sum ^= byte;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A member's memory: its share and its parity.
    #[derive(Clone, Debug, PartialEq)]
    struct Memory {
        share: Vec<u8>,
        parity: Vec<u8>,
    }

    impl Memory {
        fn cell(&self, member: usize, stripe: usize, chunk: usize) -> &[u8] {
            match cell(member, stripe, chunk as u64) {
                Cell::Parity => &self.parity,
                Cell::Chunk { offset } => {
                    let from = (offset as usize).min(self.share.len());
                    &self.share[from..(from + chunk).min(self.share.len())]
                }
            }
        }
    }

    /// What arrives at the end of a path: hop by hop, as the nodes do it.
    fn arrives(all: &[Option<Memory>], wanted: usize, stripe: usize, chunk: usize) -> Vec<u8> {
        let mut sum = vec![0; chunk];
        for hop in path(all.len(), wanted, stripe).into_iter().rev() {
            combine(&mut sum, all[hop].as_ref().unwrap().cell(hop, stripe, chunk));
        }
        sum
    }

    fn encoded(shares: Vec<Vec<u8>>) -> (Vec<Option<Memory>>, usize) {
        let largest = shares.iter().map(Vec::len).max().unwrap() as u64;
        let chunk = chunk_bytes(shares.len(), largest) as usize;
        let memory = |share| Some(Memory { share, parity: Vec::new() });
        let mut all: Vec<Option<Memory>> = shares.into_iter().map(memory).collect();
        let parities: Vec<Vec<u8>> =
            (0..all.len()).map(|member| arrives(&all, member, member, chunk)).collect();
        for (memory, parity) in all.iter_mut().zip(parities) {
            memory.as_mut().unwrap().parity = parity;
        }
        (all, chunk)
    }

    fn shares() -> impl Strategy<Value = Vec<Vec<u8>>> {
        (2_usize..=17).prop_flat_map(|members| {
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), members)
        })
    }

    proptest! {
        #[test]
        fn any_lost_member_comes_back_to_the_bit_with_its_parity(shares in shares()) {
            let (all, chunk) = encoded(shares);
            for lost in 0..all.len() {
                let mut left = all.clone();
                let before = left[lost].take().unwrap();
                let share = vec![0; (all.len() - 1) * chunk];
                let mut back = Memory { share, parity: Vec::new() };
                for stripe in 0..all.len() {
                    let sum = arrives(&left, lost, stripe, chunk);
                    match cell(lost, stripe, chunk as u64) {
                        Cell::Parity => back.parity = sum,
                        Cell::Chunk { offset } => {
                            back.share[offset as usize..][..chunk].copy_from_slice(&sum);
                        }
                    }
                }
                let padding = back.share.split_off(before.share.len());
                prop_assert!(padding.iter().all(|byte| *byte == 0));
                prop_assert_eq!(back, before);
            }
        }
    }

    #[test]
    fn a_path_visits_each_other_member_once_and_paths_begin_at_different_members() {
        for members in 2..=33 {
            let mut first = BTreeSet::new();
            for stripe in 0..members {
                let encode = path(members, stripe, stripe);
                first.insert(encode[0]);
                for wanted in 0..members {
                    let visited: BTreeSet<usize> =
                        path(members, wanted, stripe).into_iter().collect();
                    let others: BTreeSet<usize> = (0..members).filter(|m| *m != wanted).collect();
                    assert_eq!(visited, others);
                }
            }
            assert_eq!(first.len(), members, "each member ends one path of the encoding");
        }
    }

    #[test]
    fn the_chunks_of_a_member_lie_in_the_stripes_of_the_others_in_order() {
        for members in 2..=17 {
            for member in 0..members {
                let offsets: Vec<u64> = (0..members)
                    .filter_map(|stripe| match cell(member, stripe, 10) {
                        Cell::Parity => None,
                        Cell::Chunk { offset } => Some(offset),
                    })
                    .collect();
                let expected: Vec<u64> = (0..members as u64 - 1).map(|chunk| 10 * chunk).collect();
                assert_eq!(offsets, expected);
            }
        }
    }
}
