//! What one node holds in memory, within its budget: images of its own ranks, copies and parity for
//! its group, by set.
//!
//! `T` is the memory itself: a descriptor in the launch agent, a number in the simulation.

use crate::names::{NodeName, SetId};
use std::collections::{BTreeMap, VecDeque};

/// Images or parity in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    pub bytes: u64,
    pub data: T,
}

/// To whose share an image belongs; `None`: to none, it is here because its rank has moved.
type Owner = Option<NodeName>;

#[derive(Clone, Debug)]
struct OfSet<T> {
    images: BTreeMap<(Owner, u32), Stored<T>>,
    /// By the member whose parity it is.
    parity: BTreeMap<NodeName, Stored<T>>,
    /// Bytes that are kept for images that ranks write.
    kept: BTreeMap<u32, u64>,
}

impl<T> Default for OfSet<T> {
    fn default() -> Self {
        Self { images: BTreeMap::new(), parity: BTreeMap::new(), kept: BTreeMap::new() }
    }
}

/// The memory of a node.
#[derive(Clone, Debug)]
pub struct Shares<T> {
    budget: u64,
    used: u64,
    sets: BTreeMap<SetId, OfSet<T>>,
    /// The last dropped sets: what comes late for them is not kept.
    dropped: VecDeque<SetId>,
}

/// Most dropped sets that are remembered; the oldest is forgotten.
const DROPPED_MAX: usize = 8;

impl<T: Clone> Shares<T> {
    pub fn new(budget: u64) -> Self {
        Self { budget, used: 0, sets: BTreeMap::new(), dropped: VecDeque::new() }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that still fit.
    pub fn left(&self) -> u64 {
        self.budget.saturating_sub(self.used)
    }

    /// Whether these further bytes fit.
    ///
    /// # Errors
    /// They do not, in words.
    pub fn admit(&self, bytes: u64) -> Result<(), String> {
        let needed = self.used.saturating_add(bytes);
        if needed <= self.budget {
            return Ok(());
        }
        Err(format!(
            "the memory for checkpoints is too small: {needed} bytes are needed, {} are allowed \
             (--memory-bytes)",
            self.budget
        ))
    }

    /// Keeps room for the image that a rank writes, until it is put.
    ///
    /// # Errors
    /// It does not fit, or its set was dropped.
    pub fn reserve(&mut self, set: &SetId, rank: u32, bytes: u64) -> Result<(), String> {
        self.check_open(set)?;
        let before = self.sets.get(set).and_then(|of| of.kept.get(&rank)).copied();
        self.replace(before.unwrap_or(0), bytes)?;
        self.sets.entry(set.clone()).or_default().kept.insert(rank, bytes);
        Ok(())
    }

    /// Frees the room that was kept for the image of a rank.
    pub fn release(&mut self, set: &SetId, rank: u32) {
        let kept = self.sets.get_mut(set).and_then(|of| of.kept.remove(&rank));
        self.used = self.used.saturating_sub(kept.unwrap_or(0));
    }

    /// Keeps an image. It replaces an earlier one of the same rank and share.
    ///
    /// # Errors
    /// It does not fit, or its set was dropped.
    pub fn put(
        &mut self,
        set: &SetId,
        owner: Option<&NodeName>,
        rank: u32,
        image: Stored<T>,
    ) -> Result<(), String> {
        self.check_open(set)?;
        let key = (owner.cloned(), rank);
        let before = self.sets.get(set).and_then(|of| of.images.get(&key));
        self.replace(before.map_or(0, |before| before.bytes), image.bytes)?;
        self.sets.entry(set.clone()).or_default().images.insert(key, image);
        Ok(())
    }

    /// Keeps the parity of a member.
    ///
    /// # Errors
    /// It does not fit.
    pub fn put_parity(
        &mut self,
        set: &SetId,
        owner: &NodeName,
        parity: Stored<T>,
    ) -> Result<(), String> {
        self.check_open(set)?;
        let before = self.sets.get(set).and_then(|of| of.parity.get(owner));
        self.replace(before.map_or(0, |before| before.bytes), parity.bytes)?;
        self.sets.entry(set.clone()).or_default().parity.insert(owner.clone(), parity);
        Ok(())
    }

    fn check_open(&self, set: &SetId) -> Result<(), String> {
        if self.dropped.contains(set) {
            return Err(format!("set {set} was dropped"));
        }
        Ok(())
    }

    fn replace(&mut self, before: u64, bytes: u64) -> Result<(), String> {
        self.admit(bytes.saturating_sub(before))?;
        self.used = self.used.saturating_sub(before).saturating_add(bytes);
        Ok(())
    }

    /// The image of a rank, from whichever share.
    pub fn image(&self, set: &SetId, rank: u32) -> Option<&Stored<T>> {
        let images = &self.sets.get(set)?.images;
        images.iter().find(|((_, of), _)| *of == rank).map(|(_, image)| image)
    }

    /// The images of a share in the order of their ranks.
    pub fn share(&self, set: &SetId, owner: &NodeName) -> Vec<(u32, Stored<T>)> {
        let images = self.sets.get(set).into_iter().flat_map(|of| &of.images);
        let its = images.filter(|((of, _), _)| of.as_ref() == Some(owner));
        its.map(|((_, rank), image)| (*rank, image.clone())).collect()
    }

    pub fn parity(&self, set: &SetId, owner: &NodeName) -> Option<&Stored<T>> {
        self.sets.get(set)?.parity.get(owner)
    }

    /// Replaces the memory of an image of a rank by other memory with the same bytes.
    pub fn exchange(&mut self, set: &SetId, rank: u32, data: &T) {
        let images = self.sets.get_mut(set).into_iter().flat_map(|of| &mut of.images);
        for (_, image) in images.filter(|((_, of), _)| *of == rank) {
            image.data = data.clone();
        }
    }

    /// Frees a set.
    pub fn drop_set(&mut self, set: &SetId) {
        if !self.dropped.contains(set) {
            if self.dropped.len() >= DROPPED_MAX {
                self.dropped.pop_front();
            }
            self.dropped.push_back(set.clone());
        }
        if let Some(of) = self.sets.remove(set) {
            let all = of.images.values().chain(of.parity.values());
            let freed: u64 = all.map(|stored| stored.bytes).chain(of.kept.into_values()).sum();
            self.used = self.used.saturating_sub(freed);
        }
    }

    /// Frees all sets but these.
    pub fn keep_only(&mut self, keep: &[&SetId]) {
        let others: Vec<SetId> =
            self.sets.keys().filter(|set| !keep.contains(set)).cloned().collect();
        others.iter().for_each(|set| self.drop_set(set));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::names::Episode;
    use proptest::prelude::*;

    fn set(n: u64) -> SetId {
        SetId::of_memory(Episode(n))
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn stored(bytes: u64) -> Stored<u64> {
        Stored { bytes, data: bytes }
    }

    proptest! {
        #[test]
        fn the_bytes_in_use_are_those_of_all_that_is_held_and_never_above_the_budget(
            steps in prop::collection::vec((0_u64..3, 0_u32..4, 0_u64..60, 0_u8..8), 1..60),
        ) {
            let mut shares = Shares::new(100);
            // A dropped set never comes back.
            let mut first = 0;
            for (n, rank, bytes, what) in steps {
                let (of, image) = (set(first + n), stored(bytes));
                let before = shares.used();
                let result = match what {
                    0..3 => shares.put(&of, Some(&node("a")), rank, image),
                    3 => shares.put(&of, None, rank, image),
                    4 => shares.put_parity(&of, &node("b"), image),
                    5 => shares.reserve(&of, rank, bytes),
                    6 => {
                        shares.release(&of, rank);
                        Ok(())
                    }
                    _ => {
                        shares.drop_set(&of);
                        first += 1 + n;
                        Ok(())
                    }
                };
                let of_set = |of: &OfSet<u64>| {
                    let stored = of.images.values().chain(of.parity.values());
                    stored.map(|stored| stored.bytes).sum::<u64>() + of.kept.values().sum::<u64>()
                };
                let held: u64 = shares.sets.values().map(of_set).sum();
                prop_assert_eq!(shares.used(), held);
                prop_assert!(held <= 100);
                prop_assert!(result.is_ok() || shares.used() == before);
            }
            shares.keep_only(&[]);
            prop_assert_eq!(shares.used(), 0);
        }
    }

    #[test]
    fn a_share_has_its_images_in_order_and_none_of_another_share() {
        let mut shares = Shares::new(1000);
        for (owner, rank) in [("a", 3), ("a", 1), ("b", 2)] {
            shares.put(&set(1), Some(&node(owner)), rank, stored(rank.into())).unwrap();
        }
        shares.put(&set(1), None, 7, stored(7)).unwrap();
        let ranks: Vec<u32> =
            shares.share(&set(1), &node("a")).into_iter().map(|(rank, _)| rank).collect();
        assert_eq!(ranks, [1, 3]);
        assert_eq!(shares.image(&set(1), 7).map(|image| image.bytes), Some(7));
        assert_eq!(shares.image(&set(2), 7), None);
        shares.keep_only(&[&set(2)]);
        assert_eq!(shares.image(&set(1), 7), None);
    }

    #[test]
    fn what_comes_late_for_a_dropped_set_is_not_kept() {
        let mut shares = Shares::new(100);
        shares.put(&set(1), None, 0, stored(1)).unwrap();
        shares.drop_set(&set(1));
        let late = shares.put(&set(1), None, 1, stored(1)).unwrap_err();
        assert!(late.contains("mem-000001 was dropped"), "{late}");
        assert!(shares.put_parity(&set(1), &node("a"), stored(1)).is_err());
        assert_eq!((shares.used(), shares.left()), (0, 100));
        for n in 2..20 {
            shares.drop_set(&set(n));
        }
        assert_eq!(shares.dropped.len(), DROPPED_MAX);
    }

    #[test]
    fn room_that_is_kept_for_an_image_is_not_given_to_another_and_ends_with_the_set() {
        let mut shares = Shares::new(10);
        shares.reserve(&set(1), 0, 4).unwrap();
        shares.reserve(&set(1), 0, 6).unwrap();
        assert!(shares.reserve(&set(1), 1, 5).unwrap_err().contains("11 bytes are needed"));
        assert!(shares.put(&set(1), None, 1, stored(5)).is_err());
        shares.release(&set(1), 0);
        shares.put(&set(1), None, 0, stored(5)).unwrap();
        shares.reserve(&set(2), 3, 5).unwrap();
        shares.drop_set(&set(2));
        assert_eq!((shares.used(), shares.left()), (5, 5));
        assert!(shares.reserve(&set(2), 3, 1).unwrap_err().contains("was dropped"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let mut shares = Shares::new(10);
        shares.put(&set(1), None, 0, stored(8)).unwrap();
        let error = shares.put(&set(1), None, 1, stored(3)).unwrap_err();
        assert!(error.contains("11 bytes") && error.contains("10 are allowed"), "{error}");
        // The same rank again replaces its image.
        shares.put(&set(1), None, 0, stored(10)).unwrap();
    }
}
