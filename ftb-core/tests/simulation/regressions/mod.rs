//! Runs that once broke a promise, shortened, each with its seed and what was wrong:
//! `roots`: what a root takes over, installs and hands on;
//! `subscribers`: the order, the gaps and the places of subscribers;
//! `forks`: events that only dead agents had confirmed;
//! `disks`: journals that come back;
//! `take_overs`: what a copy of the log that takes over means for readers.

mod disks;
mod forks;
mod roots;
mod subscribers;
mod take_overs;

use crate::ops::Script;
use crate::world::{Setup, World, must_hold};

/// A state that a run must have reached, or it does not test what it says.
enum Reached {
    /// A counter of some agent, in some of its lives, is not zero.
    Counter(&'static str),
    /// A role changed from the first to the second.
    Role(&'static str, &'static str),
}

/// As [`must_hold`]; the run also reaches each of these states.
fn must_reach(
    name: &str,
    setup: &Setup,
    seed: u64,
    script: &Script,
    witnesses: &[Reached],
) -> World {
    let world = must_hold(name, setup, seed, script);
    for witness in witnesses {
        let count = match witness {
            Reached::Counter(counter) => world.counted.get(counter),
            Reached::Role(from, to) => world.role_changes.get(&(*from, *to)),
        };
        let what = match witness {
            Reached::Counter(counter) => (*counter).to_owned(),
            Reached::Role(from, to) => format!("{from} -> {to}"),
        };
        assert!(
            count.is_some_and(|count| *count > 0),
            "{name}, seed {seed}: {what} is not reached"
        );
    }
    world
}

fn nine() -> Setup {
    Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) }
}
