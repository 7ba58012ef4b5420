//! Storm control in a whole cluster: nothing is counted twice, and all that is missing is
//! reported.

use crate::events::{SPACE, fold};
use crate::ops::{Op, Script};
use crate::world::{Setup, World, must_hold};
use ftb_core::node::{Folder, NodeConfig, StormRule};
use ftb_core::severity::Severity;
use ftb_core::spaces::Spaces;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

fn rule() -> StormRule {
    StormRule {
        space: None,
        severity_max: Severity::Warning,
        fold_ms: 0,
        group_by: Vec::new(),
        events_per_s: 0,
        burst: 1,
    }
}

fn folding(config: &mut NodeConfig) {
    config.storm = vec![StormRule { fold_ms: 500, ..rule() }];
    config.folder = Some(Folder(fold));
}

fn limiting(config: &mut NodeConfig) {
    config.storm = vec![StormRule { events_per_s: 100, burst: 100, ..rule() }];
}

/// Agent 4 storms for two seconds, two names in turn; all others go on as always.
fn storm(fault: Op) -> Script {
    let mut script: Script = (0..40).map(|at| (at * 50 * MS, Op::Storm(4, 30))).collect();
    script.extend((0..20).map(|at| (at * 100 * MS, Op::Publish(1))));
    script.push((S + 33 * MS, fault));
    script
}

/// What of agent 4's 1,200 events and 20 more its subscribers got: by themselves, and in folds.
fn counted(world: &World) -> Vec<(u64, u64)> {
    let of_four = |subscriber: &crate::clients::Subscriber| {
        let all = subscriber.filter.to_string() == "event_space=ftb.sim";
        all.then_some((subscriber.got.len() as u64, subscriber.folded))
    };
    world.subscribers.iter().filter_map(of_four).collect()
}

/// Each event is in exactly one place, also when an agent on the way, or the root, dies.
#[test]
fn a_storm_becomes_few_events_that_account_for_all_of_it() {
    for (seed, fault) in [(1, Op::Publish(1)), (2, Op::Kill(1)), (3, Op::Kill(0))] {
        let setup = Setup { tune: folding, ..Setup::new(7, 2) };
        let world = must_hold("folding", &setup, seed, &storm(fault));
        let published: u64 = world.publishers.iter().map(|publisher| publisher.published).sum();
        for (got, folded) in counted(&world) {
            assert_eq!(got + folded, published, "each is somewhere, once");
            assert!(got < published / 3, "{got} of {published}");
        }
    }
}

/// The storming agent dies: its clients say again what they have no receipt for, and what was
/// logged in a fold is known.
#[test]
fn folds_of_a_dead_agent_are_known_when_their_events_come_again() {
    for step in 0..20 {
        let mut script = storm(Op::Kill(4));
        script.push((S + 40 * MS + step * 20 * MS, Op::Start(4)));
        script.sort_by_key(|(at, _)| *at);
        let setup = Setup { tune: folding, ..Setup::new(7, 2) };
        must_hold("fold again", &setup, step, &script);
    }
}

/// What is refused is reported to its publisher one by one and to subscribers as a number.
#[test]
fn a_publisher_over_its_rate_is_refused_with_a_gap() {
    let setup = Setup { tune: limiting, gaps_allowed: true, ..Setup::new(7, 2) };
    let world = must_hold("limiting", &setup, 1, &storm(Op::Kill(1)));
    let refused: u64 = world.publishers.iter().map(|publisher| publisher.refused).sum();
    assert!(refused > 500, "{refused}");
    for subscriber in &world.subscribers {
        let reported: u64 = subscriber.gaps.iter().filter_map(|gap| gap.count).sum();
        if !subscriber.filter.may_want(Some(Severity::Warning), &Spaces::ANY) {
            assert_eq!(reported, 0, "what was refused is too mild for it");
            continue;
        }
        assert!(reported >= refused, "{reported} of {refused}");
        assert!(subscriber.gaps.iter().all(|gap| gap.severity_max <= Some(Severity::Warning)));
        assert!(subscriber.gaps.iter().all(|gap| gap.spaces == Spaces::of(SPACE)));
    }
    let limited = world.announced.iter().filter(|(name, _)| *name == "FTB_PUBLISHER_LIMITED");
    assert_eq!(limited.count(), 1);
}
