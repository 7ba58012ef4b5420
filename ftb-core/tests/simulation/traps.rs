//! The traps of the design, each by name, and the plain cases before them.

use crate::ops::Op;
use crate::world::{Setup, must_hold};

#[test]
fn a_quiet_cluster_delivers_everything_to_everybody() {
    let script = (0..10).map(|at| (at * 100, Op::Publish(5))).collect();
    let world = must_hold("quiet", &Setup::new(7, 2), 1, &script);
    assert!(world.delivered() > 7 * 100);
}

#[test]
fn an_inner_agent_dies_under_load_and_nothing_is_lost() {
    let mut script: Vec<_> = (0..40).map(|at| (at * 10, Op::Publish(5))).collect();
    script.push((205, Op::Kill(1)));
    for seed in 0..20 {
        must_hold("inner death", &Setup::new(7, 2), seed, &script);
    }
}

#[test]
fn the_root_dies_under_load_and_its_standby_goes_on() {
    let mut script: Vec<_> = (0..40).map(|at| (at * 10, Op::Publish(5))).collect();
    script.push((205, Op::Kill(0)));
    for seed in 0..20 {
        must_hold("root death", &Setup::new(7, 2), seed, &script);
    }
}
