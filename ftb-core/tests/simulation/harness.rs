//! The harness itself: a run that breaks a promise says which, with what seed, and by how little.

use crate::ops::{Op, Script};
use crate::world::{Setup, must_hold};
use std::panic::catch_unwind;

const S: u64 = 1_000_000;

/// Root and standby die together, which may not go without a gap; nothing else of this matters.
#[test]
fn a_failing_run_says_its_seed_and_the_few_operations_that_it_takes() {
    let script: Script = vec![
        (S / 2, Op::ClockJump(2, 30)),
        (S, Op::Publish(5)),
        (S + 1, Op::HostDown(0)),
        (S + 1, Op::HostDown(1)),
        (2 * S, Op::Publish(1)),
        (3 * S, Op::Pause(3)),
        (4 * S, Op::Continue(3)),
    ];
    let failed = catch_unwind(|| must_hold("a lie", &Setup::new(4, 2), 77, &script));
    let panic = failed.err().expect("a gap is reported, and none is allowed");
    let words = panic.downcast_ref::<String>().unwrap();
    assert!(words.starts_with("a lie: GaplessOrTold is broken with seed 77: "), "{words}");
    let shown: Vec<&str> = words.lines().filter(|line| line.contains("Op::")).collect();
    assert!(shown.iter().any(|line| line.contains("Op::HostDown(0)")), "{words}");
    assert!(shown.len() < 4 && words.contains("of 7 operations"), "{words}");
    assert!(!words.contains("ClockJump") && !words.contains("Pause"), "{words}");
}
