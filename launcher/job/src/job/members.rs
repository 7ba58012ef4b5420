//! The ranks that are left of a job, in order. The launcher, images and links know a process by its
//! number, which never changes; the program knows it by its rank, its place among those that are
//! left. Pure.

use std::collections::BTreeSet;

/// Numbers of processes, ascending: the n-th is rank n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members(Vec<u32>);

impl Members {
    /// All of a job that has left none out.
    pub(crate) fn all(size: u32) -> Self {
        Self((0..size).collect())
    }

    /// From numbers in ascending order below `size`.
    pub(crate) fn new(numbers: Vec<u32>, size: u32) -> Option<Self> {
        let ascend = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let fit = numbers.last().is_some_and(|last| *last < size);
        (ascend && fit).then_some(Self(numbers))
    }

    /// From the launcher's text: `0-2,5`.
    pub(crate) fn parse(text: &str, size: u32) -> Option<Self> {
        let mut numbers = BTreeSet::new();
        for word in text.split(',') {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last >= size {
                return None;
            }
            numbers.extend(first..=last);
        }
        Self::new(numbers.into_iter().collect(), size)
    }

    pub(crate) fn numbers(&self) -> &[u32] {
        &self.0
    }

    pub(crate) fn len(&self) -> u32 {
        // Made from numbers below a u32.
        self.0.len() as u32
    }

    pub(crate) fn number_of(&self, rank: u32) -> Option<u32> {
        self.0.get(rank as usize).copied()
    }

    pub(crate) fn rank_of(&self, number: u32) -> Option<u32> {
        self.0.binary_search(&number).ok().and_then(|rank| u32::try_from(rank).ok())
    }

    /// The member that has the image of a process: itself, or where it is left out its successor,
    /// the next one that is left; behind the highest number the lowest. The launcher brings images
    /// by the same rule.
    pub(crate) fn holder(&self, number: u32) -> u32 {
        let next = self.0.iter().find(|member| **member >= number);
        next.or(self.0.first()).copied().unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_are_the_order_of_the_numbers(
            numbers in prop::collection::btree_set(0_u32..64, 1..64),
            number in 0_u32..64,
        ) {
            let members = Members::new(numbers.iter().copied().collect(), 64).unwrap();
            for (rank, number) in (0..).zip(&numbers) {
                prop_assert_eq!(members.number_of(rank), Some(*number));
                prop_assert_eq!(members.rank_of(*number), Some(rank));
                prop_assert_eq!(members.holder(*number), *number);
            }
            prop_assert_eq!(members.number_of(members.len()), None);
            let holder = members.holder(number);
            prop_assert!(numbers.contains(&holder));
            let between = numbers.range(number..).next();
            prop_assert_eq!(holder, *between.unwrap_or(numbers.first().unwrap()));
        }
    }

    #[test]
    fn the_launchers_text_is_read_and_nonsense_is_refused() {
        assert_eq!(Members::parse("0-2,5", 6).unwrap().numbers(), [0, 1, 2, 5]);
        assert_eq!(Members::parse("3", 6).unwrap().numbers(), [3]);
        for text in ["", "x", "0-6", "6", "2-1", "1,,2", "-"] {
            assert_eq!(Members::parse(text, 6), None, "{text}");
        }
    }
}
