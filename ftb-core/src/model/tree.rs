//! The rules of the tree as pure functions of ranks: who should be whose parent, and whom to try in
//! which order. An agent links only to a lower rank, so no set of links has a cycle.

use crate::ident::Rank;

/// The parent that an agent should have, `(r - 1) / k`; `None` for rank 0. A fan-out of 0 counts
/// as 1.
pub fn wanted_parent(rank: Rank, fanout: u32) -> Option<Rank> {
    rank.0.checked_sub(1).map(|below| Rank(below / fanout.max(1)))
}

/// The wanted parent, its wanted parent, and so on up to rank 0.
pub fn ancestors(rank: Rank, fanout: u32) -> impl Iterator<Item = Rank> {
    std::iter::successors(wanted_parent(rank, fanout), move |above| wanted_parent(*above, fanout))
}

/// How many wanted ancestors a rank has: 0 for rank 0.
pub fn depth(rank: Rank, fanout: u32) -> usize {
    ancestors(rank, fanout).count()
}

/// Whether an agent of rank `rank` would rather be below `a` than below `b`: the wanted parent
/// before its ancestors (nearest first), these before all others, and among others the lowest.
pub fn prefers(rank: Rank, fanout: u32, a: Rank, b: Rank) -> bool {
    let place = |candidate: Rank| {
        let above = ancestors(rank, fanout).position(|ancestor| ancestor == candidate);
        (above.unwrap_or(usize::MAX), candidate)
    };
    place(a) < place(b)
}

/// Every rank that an agent may have as its parent, in the order in which to try them. First the
/// wanted parent and its ancestors, then `hints` (ranks seen alive lately), then all other lower
/// ranks: the lowest and the nearest in turn. The lowest is where the root of the component is. The
/// nearest is what a rack that is cut off has left. `lost_parent` comes last.
pub fn candidates(
    rank: Rank,
    fanout: u32,
    hints: &[Rank],
    lost_parent: Option<Rank>,
) -> impl Iterator<Item = Rank> + use<> {
    let mut first: Vec<Rank> = Vec::new();
    let hinted = hints.iter().copied().filter(|hint| *hint < rank);
    for candidate in ancestors(rank, fanout).chain(hinted) {
        if !first.contains(&candidate) && Some(candidate) != lost_parent {
            first.push(candidate);
        }
    }
    let tried = first.clone();
    let others = (0..rank.0)
        .map(move |turn| Rank(if turn % 2 == 0 { turn / 2 } else { rank.0 - 1 - turn / 2 }))
        .filter(move |candidate| !tried.contains(candidate) && Some(*candidate) != lost_parent);
    first.into_iter().chain(others).chain(lost_parent.filter(|lost| *lost < rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn parents_have_lower_ranks_and_at_most_k_children() {
        for fanout in [0, 1, 2, 3, 32] {
            let mut children = std::collections::BTreeMap::<Rank, u32>::new();
            for rank in (1..500).map(Rank) {
                let parent = wanted_parent(rank, fanout);
                assert!(parent.is_some_and(|parent| parent < rank));
                *children.entry(parent.unwrap_or(Rank(0))).or_default() += 1;
            }
            assert!(children.values().all(|count| *count <= fanout.max(1)));
        }
        assert_eq!(wanted_parent(Rank(0), 2), None);
        assert_eq!(ancestors(Rank(6), 2).collect::<Vec<_>>(), [Rank(2), Rank(0)]);
    }

    #[test]
    fn every_lower_rank_is_tried_exactly_once_and_the_lost_parent_last() {
        for (rank, fanout) in [(1, 2), (2, 1), (9, 2), (40, 3)] {
            let lost_parent = wanted_parent(Rank(rank), fanout);
            let hints = [Rank(3), Rank(1), Rank(77)];
            let order: Vec<Rank> = candidates(Rank(rank), fanout, &hints, lost_parent).collect();
            let distinct: BTreeSet<u32> = order.iter().map(|rank| rank.0).collect();
            assert_eq!(order.len(), distinct.len());
            assert!(distinct.into_iter().eq(0..rank));
            assert_eq!(order.last().copied(), lost_parent);
        }
    }

    #[test]
    fn the_wanted_parent_is_preferred_then_its_ancestors_then_the_lowest() {
        let prefers = |a, b| prefers(Rank(6), 2, Rank(a), Rank(b));
        assert!(prefers(2, 0) && prefers(0, 1) && prefers(1, 3) && !prefers(3, 1));
        assert!(!prefers(2, 2));
    }
}
