//! Which events of which publisher were seen: sets of sequence numbers, kept as ranges, bounded.
//!
//! The acting root asks it whether an event is in its log already; a subscriber's agent asks
//! whether it has delivered one before. Exact as long as nothing was forgotten. With too many
//! publishers, the account with the most of them forgets the one that was silent longest. So a user
//! that starts publishers without end makes this table forget only its own.

use crate::ident::{EventId, PublisherId};
use crate::numbers::PublisherSeq;
use crate::run::{Run, Stretch};
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most ranges kept for one publisher: with more holes than that the oldest range is forgotten.
pub const RANGES_PER_PUBLISHER_MAX: usize = 512;

/// A set of numbers as sorted, disjoint, never adjacent ranges (first and last).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangeSet {
    ranges: Vec<(u64, u64)>,
}

impl RangeSet {
    /// Adds a number; false where it was there.
    pub fn insert(&mut self, number: u64) -> bool {
        self.insert_range(number, number)
    }

    /// Adds all numbers of a range; false where all were there.
    pub fn insert_range(&mut self, first: u64, last: u64) -> bool {
        if let Some(newest) = self.ranges.last_mut()
            && first == newest.1.saturating_add(1)
        {
            newest.1 = last.max(first);
            return true;
        }
        let from = self.ranges.partition_point(|r| r.1.saturating_add(1) < first);
        let to = self.ranges.partition_point(|r| r.0 <= last.saturating_add(1));
        let touched = &self.ranges[from..to];
        if touched.len() == 1 && touched[0].0 <= first && last <= touched[0].1 {
            return false;
        }
        let first = touched.first().map_or(first, |r| r.0.min(first));
        let last = touched.last().map_or(last, |r| r.1.max(last));
        self.ranges.splice(from..to, [(first, last)]);
        true
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 < number);
        self.ranges.get(at).is_some_and(|r| r.0 <= number)
    }

    /// Whether any number of a range is in it.
    pub fn intersects(&self, first: u64, last: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 < first);
        self.ranges.get(at).is_some_and(|r| r.0 <= last)
    }

    /// Keeps only the first `ranges` ranges.
    pub fn truncate(&mut self, ranges: usize) {
        self.ranges.truncate(ranges);
    }

    /// The ranges, first and last number of each, rising.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

/// Sets of sequence numbers by publisher, bounded by the number of publishers.
#[derive(Clone, Debug)]
pub struct PublisherRanges {
    by_publisher: BTreeMap<PublisherId, SeenSeqs>,
    ages: Ages,
    touches: u64,
    publishers_max: usize,
}

#[derive(Clone, Debug)]
struct SeenSeqs {
    seqs: RangeSet,
    touched: u64,
}

/// When each publisher was last touched, and how many an account has: finds the one to forget.
#[derive(Clone, Debug, Default)]
struct Ages {
    /// Account, last touch, token.
    touched: BTreeSet<(u64, u64, u64)>,
    publishers: BTreeMap<u64, usize>,
    /// Each account by its publishers, and by the last touch of the one that was silent longest.
    largest: BTreeSet<(usize, Reverse<u64>, u64)>,
}

impl Ages {
    fn oldest(&self, account: u64) -> Option<(u64, u64)> {
        let first = self.touched.range((account, 0, 0)..).next()?;
        (first.0 == account).then_some((first.1, first.2))
    }

    /// Changes what is known of an account, and its place among the others with it.
    fn change(&mut self, account: u64, change: impl FnOnce(&mut Self)) {
        let place = |ages: &Self| {
            let (touched, _) = ages.oldest(account)?;
            Some((*ages.publishers.get(&account)?, Reverse(touched), account))
        };
        let before = place(self);
        change(self);
        let after = place(self);
        if before != after {
            if let Some(before) = before {
                self.largest.remove(&before);
            }
            self.largest.extend(after);
        }
    }

    fn add(&mut self, publisher: PublisherId, touched: u64) {
        let PublisherId { account, token } = publisher;
        self.change(account, |ages| {
            ages.touched.insert((account, touched, token));
            *ages.publishers.entry(account).or_default() += 1;
        });
    }

    fn touch(&mut self, publisher: PublisherId, before: u64, now: u64) {
        let PublisherId { account, token } = publisher;
        self.change(account, |ages| {
            ages.touched.remove(&(account, before, token));
            ages.touched.insert((account, now, token));
        });
    }

    /// The publisher to forget; it is not known here any more.
    fn pop(&mut self) -> Option<PublisherId> {
        let (_, _, account) = *self.largest.last()?;
        let (touched, token) = self.oldest(account)?;
        self.change(account, |ages| {
            ages.touched.remove(&(account, touched, token));
            if let Some(publishers) = ages.publishers.get_mut(&account) {
                *publishers -= 1;
                if *publishers == 0 {
                    ages.publishers.remove(&account);
                }
            }
        });
        Some(PublisherId { account, token })
    }
}

/// A publisher's age is refreshed only when it is older than this many touches: the hot path then
/// changes one map only.
const AGE_GRAIN: u64 = 256;

impl PublisherRanges {
    /// Nothing seen yet; at most that many publishers are remembered.
    pub const fn new(publishers_max: usize) -> Self {
        let ages = Ages {
            touched: BTreeSet::new(),
            publishers: BTreeMap::new(),
            largest: BTreeSet::new(),
        };
        Self { by_publisher: BTreeMap::new(), ages, touches: 0, publishers_max }
    }

    /// Notes an event and the sequences that it stands for as well; false where it was noted
    /// before.
    pub fn mark(&mut self, id: EventId, covers: u32) -> bool {
        match covers {
            0 => self.insert(id),
            _ if self.contains(id) => false,
            covers => self.insert_range(id.publisher, id.seq.back(covers.into()), id.seq),
        }
    }

    /// Notes an event; false where it was noted before.
    pub fn insert(&mut self, id: EventId) -> bool {
        self.insert_range(id.publisher, id.seq, id.seq)
    }

    /// Notes a range of one publisher's events; false where all were noted before.
    pub fn insert_range(
        &mut self,
        publisher: PublisherId,
        first: PublisherSeq,
        last: PublisherSeq,
    ) -> bool {
        self.touches += 1;
        let touched = self.touches;
        let ages = &mut self.ages;
        let entry = self.by_publisher.entry(publisher).or_insert_with(|| {
            ages.add(publisher, touched);
            SeenSeqs { seqs: RangeSet::default(), touched }
        });
        if touched - entry.touched > AGE_GRAIN {
            ages.touch(publisher, entry.touched, touched);
            entry.touched = touched;
        }
        let new = entry.seqs.insert_range(first.get(), last.get());
        if entry.seqs.ranges.len() > RANGES_PER_PUBLISHER_MAX {
            entry.seqs.ranges.remove(0);
        }
        if self.by_publisher.len() > self.publishers_max
            && let Some(publisher) = self.ages.pop()
        {
            self.by_publisher.remove(&publisher);
        }
        new
    }

    /// Notes events; gives the places, rising, of those that were noted before.
    pub fn insert_run(&mut self, run: &Run) -> Vec<usize> {
        let mut known = Vec::new();
        for stretch in run.stretches() {
            let Stretch { at, publisher, first, last, covers } = stretch;
            if covers > 0 {
                if !self.mark(EventId { publisher, seq: last }, covers) {
                    known.push(at);
                }
                continue;
            }
            let entry = self.by_publisher.get(&publisher);
            if entry.is_none_or(|entry| !entry.seqs.intersects(first.get(), last.get())) {
                self.insert_range(publisher, first, last);
                continue;
            }
            for offset in 0..=last - first {
                if !self.insert(EventId { publisher, seq: first + offset }) {
                    known.push(at + usize::try_from(offset).unwrap_or(usize::MAX));
                }
            }
        }
        known
    }

    /// Whether an event was noted.
    pub fn contains(&self, id: EventId) -> bool {
        self.by_publisher.get(&id.publisher).is_some_and(|entry| entry.seqs.contains(id.seq.get()))
    }

    /// Everything noted, in order of the publishers' ids.
    pub fn iter(&self) -> impl Iterator<Item = (PublisherId, &RangeSet)> {
        self.by_publisher.iter().map(|(publisher, entry)| (*publisher, &entry.seqs))
    }

    /// How many publishers are remembered.
    pub fn len(&self) -> usize {
        self.by_publisher.len()
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.by_publisher.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_meet_and_answer_like_a_set() {
        let mut set = RangeSet::default();
        let mut plain = std::collections::BTreeSet::new();
        // A fixed walk over a small range visits every way to meet: before, behind, between.
        let mut number = 7_u64;
        for _ in 0..400 {
            number = (number * 37 + 11) % 101;
            assert_eq!(set.insert(number), plain.insert(number), "insert {number}");
            let rising = set.ranges().windows(2).all(|w| w[0].1 + 1 < w[1].0);
            assert!(rising, "{:?}", set.ranges());
        }
        for number in 0..=101 {
            assert_eq!(set.contains(number), plain.contains(&number), "contains {number}");
            for last in number..=101 {
                let any = plain.range(number..=last).next().is_some();
                assert_eq!(set.intersects(number, last), any, "{number} to {last}");
            }
        }
        assert!(set.insert_range(0, 200));
        assert_eq!(set.ranges(), [(0, 200)]);
        assert!(!set.insert_range(5, 9));
    }

    #[test]
    fn an_account_with_many_publishers_makes_the_table_forget_its_own() {
        let mut seen = PublisherRanges::new(100);
        let id =
            |account, token| EventId { publisher: PublisherId { account, token }, seq: 1.into() };
        for account in 1..=10 {
            for token in 0..5 {
                assert!(seen.insert(id(account, token)));
            }
        }
        for token in 0..100_000 {
            assert!(seen.insert(id(99, token)));
        }
        assert_eq!(seen.len(), 100);
        for account in 1..=10 {
            for token in 0..5 {
                assert!(seen.contains(id(account, token)), "{account} {token}");
            }
        }
        assert!(!seen.contains(id(99, 99_949)) && seen.contains(id(99, 99_950)));
        // Many accounts with one publisher each: the one that was silent longest.
        for account in 1_000..1_100 {
            assert!(seen.insert(id(account, 0)));
        }
        assert_eq!((seen.len(), seen.ages.largest.len()), (100, seen.ages.publishers.len()));
        let last_are_there = (1_050..1_100).all(|account| seen.contains(id(account, 0)));
        assert!(last_are_there);
    }

    #[test]
    fn the_publisher_that_was_silent_longest_is_forgotten() {
        let mut seen = PublisherRanges::new(2);
        let id = |token, seq: u64| {
            let publisher = PublisherId { account: 1, token };
            EventId { publisher, seq: seq.into() }
        };
        assert!(seen.insert(id(1, 1)) && !seen.insert(id(1, 1)));
        assert!(seen.insert(id(2, 1)));
        for seq in 2..1000 {
            seen.insert(id(1, seq));
        }
        assert!(seen.insert(id(3, 1)));
        assert_eq!(seen.len(), 2);
        assert!(!seen.contains(id(2, 1)) && seen.contains(id(1, 999)) && seen.contains(id(3, 1)));
    }
}
