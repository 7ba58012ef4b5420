//! Regressions: events that only dead agents had confirmed.

use super::{Reached, must_reach, nine};
use crate::ops::{Op, Script};
use crate::world::{Setup, boot};
use ftb_core::node::api::GapReason;

/// All agents of a component that was cut off died with what they had confirmed: no agent is left
/// that can report it.
#[test]
fn a_component_that_dies_as_a_whole_takes_its_events_with_it() {
    const WITNESS: &[Reached] = &[Reached::Counter("logs_lost")];
    let script: Script = vec![
        (5_098_393, Op::Split(7)),
        (9_100_000, Op::Publish(2)),
        (9_400_754, Op::Kill(7)),
        (9_610_567, Op::Kill(8)),
    ];
    must_reach("a component dies", &nine(), 30_391, &script, WITNESS);
}

/// A root that was cut off let its standby go, confirmed alone and died, before the others had
/// begun an epoch of their own: no agent of its epoch had heard of it.
#[test]
fn a_root_that_dies_cut_off_takes_what_it_confirmed_alone_with_it() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("standby_skipped"), Reached::Role("standby", "searching")];
    let script: Script = vec![
        (13_163_702, Op::Split(1)),
        (13_400_000, Op::Publish(2)),
        (14_899_523, Op::HostDown(0)),
        (15_200_000, Op::Publish(2)),
    ];
    let setup = Setup { unlisted: 3, ..nine() };
    must_reach("dies cut off", &setup, 90_452, &script, WITNESS);
}

/// Root and standby died, and a root without a copy waited for the rest of their epoch. Another one
/// took its log over before the time was up, and knew nothing of that: no gap reported what no
/// agent re-proposed.
#[test]
fn a_root_that_gives_its_log_up_passes_on_what_it_waits_for() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Counter("fork_gaps"),
        Reached::Role("member", "offering"),
    ];
    let script: Script = vec![
        (7_652_449, Op::Pause(2)),
        (11_100_000, Op::Publish(2)),
        (12_446_899, Op::HostDown(1)),
        (12_855_716, Op::HostDown(0)),
        (13_258_780, Op::Continue(2)),
        (17_450_220, Op::Start(1)),
        (17_600_000, Op::Publish(2)),
    ];
    must_reach("waits", &nine(), 90_594, &script, WITNESS);
    must_reach("waits", &Setup { unlisted: 3, ..nine() }, 90_594, &script, WITNESS);
}

/// A root that did not reach its standby went on alone, was heard by other children only, and died:
/// the standby took over with a whole copy that ended before, and no gap covered the rest.
#[test]
fn entries_of_a_lone_root_that_only_children_know_are_reported() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("standby_skipped"), Reached::Counter("fork_gaps")];
    let script: Script = vec![
        (1_620_434, Op::CutOneWay(0, 1)),
        (1_700_000, Op::Publish(2)),
        (2_973_071, Op::Kill(0)),
        (5_100_000, Op::Publish(2)),
    ];
    for unlisted in [0, 3] {
        must_reach("lone root", &Setup { unlisted, ..nine() }, 52_134, &script, WITNESS);
    }
}

/// The same, and the next root died before the grace time of what it waited for was over.
#[test]
fn what_a_root_waits_for_is_waited_for_by_the_next() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("fork_gaps"), Reached::Counter("logs_installed")];
    let script: Script = vec![
        (1_600_000, Op::Publish(2)),
        (1_620_434, Op::CutOneWay(0, 1)),
        (1_700_000, Op::Publish(2)),
        (2_973_071, Op::Kill(0)),
        (6_019_273, Op::Start(0)),
        (15_118_241, Op::Heal),
        (15_419_194, Op::Kill(0)),
    ];
    must_reach("waited for", &nine(), 52_134, &script, WITNESS);
}

/// A lone root was heard by all but its standby and one child, and died; so did the next, a child
/// of which each of them was by then, with what it waited for in its memory alone: that one child
/// got no gap.
#[test]
fn forks_known_to_a_dead_root_are_known_to_the_next() {
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 8) };
    for unlisted in [0, 3] {
        let mut world = boot(Setup { unlisted, ..setup.clone() }, 52_134).unwrap();
        let ops = [
            (100, Op::Publish(2)),
            (10, Op::CutOneWay(0, 1)),
            (80, Op::CutOneWay(0, 4)),
            (1_350, Op::Publish(2)),
            (3_000, Op::Kill(0)),
            (60_000, Op::Kill(1)),
        ];
        for (then_ms, op) in ops {
            world.operate(op).unwrap();
            world.run_ms(then_ms).unwrap();
        }
        world.check_events().unwrap();
        let lost = world.subscribers[4].gaps.iter().filter(|gap| gap.reason == GapReason::LogLost);
        assert_eq!(lost.count(), 1, "{:?}", world.subscribers[4].gaps);
    }
}

/// A lone root went below another one and died with its disk before it had said anything: what it
/// had confirmed was known to its parent alone, by its hello.
#[test]
fn the_parent_reports_a_lone_root_that_dies_while_it_re_proposes() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("restored"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let mut script: Script = vec![
        (42546, Op::LoseDisk(8)),
        (2453939, Op::Start(8)),
        (10727527, Op::Kill(0)),
        (10727527, Op::Kill(1)),
        (10727527, Op::Kill(2)),
        (10727527, Op::Kill(3)),
        (10727527, Op::Kill(4)),
        (10727527, Op::Kill(5)),
        (10727527, Op::Kill(6)),
        (10727527, Op::Kill(7)),
        (10727527, Op::Kill(8)),
        (12666739, Op::Start(8)),
        (16103342, Op::Start(0)),
        (16103342, Op::Start(7)),
        (16469602, Op::Split(3)),
        (18575811, Op::LoseDisk(8)),
    ];
    let loads = [164];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("hands over", &nine().on_disk(), 201_273, &script, WITNESS);
}
