//! The hash tree of events that are signed together (SHA-256).
//!
//! Leaves fill up with zeros to a power of two. Leaves and inner nodes are hashed with different
//! first bytes, so that none can stand for the other.

use sha2::{Digest as _, Sha256};

/// A hash.
pub type Hash = [u8; 32];

const LEAF: u8 = 0;
const INNER: u8 = 1;

/// The leaf of an event, from its bytes in parts.
pub fn leaf(parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new_with_prefix([LEAF]);
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

fn inner(left: &Hash, right: &Hash) -> Hash {
    let mut hash = Sha256::new_with_prefix([INNER]);
    hash.update(left);
    hash.update(right);
    hash.finalize().into()
}

/// A tree over some leaves.
pub struct HashTree {
    /// From the leaves to the root, which is alone.
    levels: Vec<Vec<Hash>>,
}

impl HashTree {
    /// The tree over these leaves.
    pub fn over(mut leaves: Vec<Hash>) -> Self {
        leaves.resize(leaves.len().next_power_of_two(), Hash::default());
        let mut levels = vec![leaves];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let (pairs, _) = last.as_chunks::<2>();
            let next = pairs.iter().map(|[left, right]| inner(left, right)).collect();
            levels.push(next);
        }
        Self { levels }
    }

    /// The root.
    pub fn root(&self) -> Hash {
        self.levels.last().and_then(|root| root.first().copied()).unwrap_or_default()
    }

    /// The hashes beside the way from a leaf to the root.
    pub fn path(&self, place: usize) -> Vec<Hash> {
        let beside =
            |(height, level): (usize, &Vec<Hash>)| level.get((place >> height) ^ 1).copied();
        self.levels.iter().enumerate().filter_map(beside).collect()
    }
}

/// The root of a tree that has this leaf at this place.
pub fn root_of<'a>(leaf: Hash, place: u32, path: impl Iterator<Item = &'a Hash>) -> Hash {
    let (root, _) = path.fold((leaf, place), |(hash, place), beside| {
        let above = if place & 1 == 0 { inner(&hash, beside) } else { inner(beside, &hash) };
        (above, place >> 1)
    });
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_of_a_tree_leads_to_its_root_and_no_other_does() {
        for count in 1..=64_u8 {
            let leaves: Vec<Hash> = (0..count).map(|at| leaf(&[&[at], b"event"])).collect();
            let tree = HashTree::over(leaves.clone());
            for (place, leaf) in leaves.iter().enumerate() {
                let path = tree.path(place);
                assert_eq!(1 << path.len(), usize::from(count).next_power_of_two());
                assert_eq!(root_of(*leaf, place as u32, path.iter()), tree.root());
                let other = leaves[(place + 1) % leaves.len()];
                let is_root = root_of(other, place as u32, path.iter()) == tree.root();
                assert_eq!(is_root, count == 1, "{place} of {count}");
            }
        }
        assert_eq!(leaf(&[b"ab", b"c"]), leaf(&[b"a", b"bc"]), "parts are no part of the hash");
    }
}
