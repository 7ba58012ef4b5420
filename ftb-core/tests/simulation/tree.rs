//! The shape of the tree beside what every run checks of it.

use crate::ops::Op;
use crate::world::{Setup, boot};
use ftb_core::Rank;
use ftb_core::node::NodeConfig;

/// A parent that has all the children it may have takes no more, and says who below it might: everybody
/// finds a place.
#[test]
fn a_full_parent_takes_no_more_and_sends_to_its_children() {
    const MOST: usize = 3;
    let tune = |config: &mut NodeConfig| config.children_max = MOST;
    let lossy = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(15, 2) };
    let mut world = boot(Setup { tune, ..lossy }, 1).unwrap();
    for rank in [1, 2] {
        world.operate(Op::HostDown(rank)).unwrap();
    }
    for _ in 0..100 {
        world.run_ms(100).unwrap();
        for parent in (0..15).filter(|parent| ![1, 2].contains(parent)) {
            let below = (3..15).filter(|at| world.parent_of(*at) == Some(Rank(parent))).count();
            assert!(below <= MOST, "{parent} has {below} children");
        }
    }
    assert_eq!(world.outside_the_tree(), 0);
    let rejected = |at: usize| {
        let counters = world.counters(at);
        counters.iter().find(|(name, _)| *name == "rejected").map_or(0, |(_, count)| *count)
    };
    assert!((3..15).map(rejected).sum::<u64>() > 0, "nobody was sent on");
}
