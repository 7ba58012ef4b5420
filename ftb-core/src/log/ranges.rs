//! Which events of which publisher were seen: sets of sequence numbers, kept as ranges, bounded.
//!
//! The acting root asks it whether an event is in its log already; a subscriber's agent asks
//! whether it has delivered one before. Exact as long as nothing was forgotten, and what is
//! forgotten first is what was touched longest ago.

use crate::ident::{EventId, PublisherId};
use crate::numbers::PublisherSeq;
use crate::run::{Run, Stretch};
use std::collections::BTreeMap;

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
    by_publisher: BTreeMap<PublisherId, Entry>,
    /// When each publisher was last touched, to find the one that is forgotten.
    by_age: BTreeMap<u64, PublisherId>,
    touches: u64,
    publishers_max: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    seqs: RangeSet,
    touched: u64,
}

/// A publisher's age is refreshed only when it is older than this many touches: the hot path then
/// changes one map, not two.
const AGE_GRAIN: u64 = 256;

impl PublisherRanges {
    /// Nothing seen yet; at most that many publishers are remembered.
    pub const fn new(publishers_max: usize) -> Self {
        Self { by_publisher: BTreeMap::new(), by_age: BTreeMap::new(), touches: 0, publishers_max }
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
        let by_age = &mut self.by_age;
        let entry = self.by_publisher.entry(publisher).or_insert_with(|| {
            by_age.insert(touched, publisher);
            Entry { seqs: RangeSet::default(), touched }
        });
        if touched - entry.touched > AGE_GRAIN {
            by_age.remove(&entry.touched);
            by_age.insert(touched, publisher);
            entry.touched = touched;
        }
        let new = entry.seqs.insert_range(first.get(), last.get());
        if entry.seqs.ranges.len() > RANGES_PER_PUBLISHER_MAX {
            entry.seqs.ranges.remove(0);
        }
        if self.by_publisher.len() > self.publishers_max
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_publisher.remove(&oldest);
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
