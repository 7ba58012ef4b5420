//! Collective operations, made of messages between pairs.
//!
//! Results are identical to the bit on every rank and in every run with the same number of ranks:
//! values are combined along a tree given by the ranks' numbers. A safe point is outside all
//! operations, so a suspended channel holds only whole messages ([`crate::agreement`]).

use super::Job;
use crate::error::{Error, Result};
use crate::frame::{Class, array};

/// How [`Job::allreduce`] combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The sum; of integers modulo 2^64.
    Sum,
    /// The least; of numbers in IEEE total order, where -0 is less than 0 and NaN greatest.
    Min,
    /// The greatest, in the same order.
    Max,
}

/// What [`Job::allreduce`] takes.
pub trait Number: Copy + private::Sealed {
    /// Eight bytes on the wire.
    #[doc(hidden)]
    fn to_wire(self) -> [u8; 8];
    #[doc(hidden)]
    fn from_wire(bytes: [u8; 8]) -> Self;
    #[doc(hidden)]
    fn combine(self, op: Op, other: Self) -> Self;
}

mod private {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for u64 {}
}

impl Number for f64 {
    fn to_wire(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn from_wire(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }

    fn combine(self, op: Op, other: Self) -> Self {
        match op {
            Op::Sum => self + other,
            Op::Min if self.total_cmp(&other).is_le() => self,
            Op::Max if self.total_cmp(&other).is_ge() => self,
            Op::Min | Op::Max => other,
        }
    }
}

impl Number for u64 {
    fn to_wire(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn from_wire(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }

    fn combine(self, op: Op, other: Self) -> Self {
        match op {
            Op::Sum => self.wrapping_add(other),
            Op::Min => self.min(other),
            Op::Max => self.max(other),
        }
    }
}

impl Job {
    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn barrier(&mut self) -> Result<()> {
        self.allreduce::<u64>(Op::Sum, &mut [])
    }

    /// Combines the values of all ranks, place by place; all get the result.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] where another rank gave another number of values.
    pub fn allreduce<T: Number>(&mut self, op: Op, values: &mut [T]) -> Result<()> {
        const OPERATION: &str = "allreduce";
        let tag = self.next_collective();
        let tree = Tree::new(self.rank(), self.size(), 0);
        for child in tree.children() {
            let bytes = self.take_sized(OPERATION, child, tag, 8 * values.len())?;
            for (value, other) in values.iter_mut().zip(decode(&bytes)) {
                *value = value.combine(op, other);
            }
        }
        if let Some(parent) = tree.parent() {
            self.give(parent, Class::Collective, tag, &encode(values))?;
            let bytes = self.take_sized(OPERATION, parent, tag, 8 * values.len())?;
            for (value, result) in values.iter_mut().zip(decode(&bytes)) {
                *value = result;
            }
        }
        let result = encode(values);
        for child in tree.children() {
            self.give(child, Class::Collective, tag, &result)?;
        }
        Ok(())
    }

    /// Gives `message` of the root to all ranks and replaces theirs.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn broadcast(&mut self, root: u32, message: &mut Vec<u8>) -> Result<()> {
        self.check_rank(root)?;
        let tag = self.next_collective();
        let tree = Tree::new(self.rank(), self.size(), root);
        if let Some(parent) = tree.parent() {
            *message = self.take_collective(parent, tag)?;
        }
        for child in tree.children() {
            self.give(child, Class::Collective, tag, message)?;
        }
        Ok(())
    }

    /// Brings the messages of all ranks to the root in the order of ranks; other ranks get an empty
    /// result.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn gather(&mut self, root: u32, message: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check_rank(root)?;
        let tag = self.next_collective();
        if self.rank() != root {
            self.give(root, Class::Collective, tag, message)?;
            return Ok(Vec::new());
        }
        let mut gathered = Vec::new();
        for rank in 0..self.size() {
            gathered.push(if rank == root {
                message.to_vec()
            } else {
                self.take_collective(rank, tag)?
            });
        }
        Ok(gathered)
    }

    /// Wraps around: two operations of one tag never overlap.
    pub(crate) fn next_collective(&mut self) -> u32 {
        self.collectives = self.collectives.wrapping_add(1);
        self.collectives
    }

    fn check_rank(&self, rank: u32) -> Result<()> {
        let size = self.size();
        if rank < size { Ok(()) } else { Err(Error::NoSuchRank { rank, size }) }
    }

    fn take_collective(&mut self, from: u32, tag: u32) -> Result<Vec<u8>> {
        self.take(from, Class::Collective, tag)
    }

    fn take_sized(
        &mut self,
        operation: &'static str,
        from: u32,
        tag: u32,
        expected: usize,
    ) -> Result<Vec<u8>> {
        let bytes = self.take_collective(from, tag)?;
        if bytes.len() != expected {
            return Err(Error::CollectiveMismatch {
                operation,
                rank: from,
                expected,
                found: bytes.len(),
            });
        }
        Ok(bytes)
    }
}

fn encode<T: Number>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_wire()).collect()
}

fn decode<T: Number>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(8).map(|word| T::from_wire(array(word)))
}

/// A binomial tree over the ranks, counted from the root.
pub(crate) struct Tree {
    place: u32,
    size: u32,
    root: u32,
}

impl Tree {
    pub(crate) fn new(rank: u32, size: u32, root: u32) -> Self {
        let place = (rank + size - root) % size;
        Self { place, size, root }
    }

    /// The place without its lowest bit.
    pub(crate) fn parent(&self) -> Option<u32> {
        let parent = self.place & self.place.wrapping_sub(1);
        (self.place != 0).then(|| self.rank(parent))
    }

    /// The place with one bit more below its lowest, the smallest first.
    pub(crate) fn children(&self) -> impl Iterator<Item = u32> + use<> {
        let (place, size, root) = (self.place, self.size, self.root);
        let bits = if place == 0 { u32::BITS } else { place.trailing_zeros() };
        (0..bits)
            .map(move |bit| place.saturating_add(1_u32 << bit))
            .take_while(move |child| *child < size)
            .map(move |child| (child + root) % size)
    }

    fn rank(&self, place: u32) -> u32 {
        (place + self.root) % self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_rank_is_the_child_of_its_parent_and_the_root_reaches_all() {
        for size in 1..70 {
            for root in [0, size / 2, size - 1] {
                let tree = |rank| Tree::new(rank, size, root);
                assert_eq!(tree(root).parent(), None);
                let mut reached = BTreeSet::from([root]);
                let mut next = vec![root];
                while let Some(rank) = next.pop() {
                    for child in tree(rank).children() {
                        assert_eq!(tree(child).parent(), Some(rank));
                        assert!(reached.insert(child), "{child} twice");
                        next.push(child);
                    }
                }
                assert_eq!(reached.len(), size as usize);
            }
        }
    }

    #[test]
    fn min_and_max_are_decided_by_bits_alone() {
        let min = |a: f64, b| a.combine(Op::Min, b).to_bits();
        assert_eq!(min(0.0, -0.0), min(-0.0, 0.0));
        assert_eq!(min(f64::NAN, 1.0), 1.0_f64.to_bits());
        assert_eq!(1.0.combine(Op::Max, f64::NAN).to_bits(), f64::NAN.to_bits());
        assert_eq!(u64::MAX.combine(Op::Sum, 2), 1);
    }
}
