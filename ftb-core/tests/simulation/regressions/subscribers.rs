//! Regressions: the order, the gaps and the places of subscribers.

use super::{Reached, must_reach, nine};
use crate::ops::{Op, Script};
use crate::world::Setup;

/// A publisher's events came in the wrong order to a subscriber of the side that lost.
#[test]
fn a_split_keeps_the_order_of_each_publisher() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("re_proposed"),
        Reached::Counter("repeated"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (17_000_000, Op::Publish(2)),
        (17_082_041, Op::Split(4)),
        (17_100_000, Op::Publish(2)),
        (19_200_000, Op::Publish(2)),
        (19_300_000, Op::Publish(2)),
        (19_400_000, Op::Publish(2)),
    ];
    must_reach("split", &nine(), 4, &script, WITNESS);
}

/// A subscriber resumed at an agent that lagged behind what it had read.
#[test]
fn a_subscriber_that_is_ahead_of_its_agent_misses_nothing() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("re_proposed"),
        Reached::Counter("repeated"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (8100000, Op::Publish(2)),
        (8177840, Op::Stop(8)),
        (9400051, Op::Pause(6)),
        (12500000, Op::Publish(2)),
        (12550465, Op::Split(6)),
        (12690082, Op::Start(8)),
        (13695218, Op::Continue(6)),
        (14800000, Op::Publish(2)),
    ];
    must_reach("ahead", &nine(), 162, &script, WITNESS);
}

/// A subscriber came from one side of a split to an agent of the other, began there with what was
/// new, and got what it had passed over behind that, when the two logs met.
#[test]
fn a_subscriber_that_changes_sides_reads_in_order() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (12_500_000, Op::Publish(2)),
        (12_551_484, Op::Split(3)),
        (18_177_625, Op::Heal),
        (18_600_000, Op::Publish(2)),
        (18_644_920, Op::Stop(5)),
        (18_828_991, Op::Start(5)),
        (19_500_000, Op::Publish(2)),
    ];
    must_reach("changes sides", &nine(), 2003, &script, WITNESS);
}

/// A subscriber resumed at an agent whose log came back from a disk with less than it had read. The
/// next epoch began before that place, and the subscriber, which stood there already, passed over
/// what was new: where its agent handed that log to a root that had lost its own, and where that
/// root died meanwhile.
#[test]
fn a_subscriber_that_is_ahead_of_a_restored_log_passes_over_nothing() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("restored"),
        Reached::Counter("logs_installed"),
        Reached::Role("member", "offering"),
    ];
    let mut script: Script = vec![
        (1_000_000, Op::Kill(1)),
        (3_000_000, Op::Start(1)),
        (9_050_000, Op::LoseDisk(0)),
        (11_000_000, Op::Start(0)),
        (15_000_000, Op::Start(2)),
    ];
    script.extend((1..=8).map(|rank| (9_000_000, Op::Kill(rank))));
    let loads = (15..=55).chain([100, 120, 160]);
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    let setup = Setup { gaps_allowed: true, ..Setup::new(9, 2) }.on_disk();
    must_reach("a root that adopts", &setup, 40_037, &script, WITNESS);
    for at in (15_000_100..15_000_500).step_by(50) {
        let mut script = script.clone();
        script.push((at, Op::Kill(0)));
        script.sort_by_key(|(at, _)| *at);
        must_reach("a root that dies", &setup, 40_037, &script, WITNESS);
    }
}

/// A root whose own log is old took a log over that begins behind the place where the two part, as
/// a root without a copy has it. Its subscribers went back to that place and heard nothing of what
/// is missing.
#[test]
fn a_log_installed_without_its_beginning_is_a_gap_for_the_roots_own_subscribers() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Role("root", "installing"),
        Reached::Role("installing", "root"),
    ];
    let mut script: Script = vec![
        (382_278, Op::Split(2)),
        (1_928_332, Op::HostDown(3)),
        (4_140_881, Op::Split(8)),
        (4_893_452, Op::Stop(0)),
        (7_467_018, Op::Heal),
    ];
    let loads = [0, 1, 2, 3, 8, 9, 21, 31, 32, 33, 39, 40, 41];
    let loads = loads.into_iter().chain(10..=19).chain(45..=57);
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("no beginning", &nine(), 90_238, &script, WITNESS);
}

/// A log went on that had nothing in common with the one of a subscription that was to resume: it
/// resumed at the same index there, as if that were the same place, and passed over what lies
/// before it.
#[test]
fn a_place_in_a_log_says_nothing_about_one_that_it_never_met() {
    const WITNESS: &[Reached] = &[Reached::Counter("logs_parted")];
    let mut script: Script = vec![(12_500_000, Op::Publish(2))];
    script.extend((0..=8).map(|rank| (12_559_910, Op::Kill(rank))));
    script.extend([
        (15_137_188, Op::FillDisk(1)),
        (15_214_786, Op::Start(1)),
        (15_400_000, Op::Publish(2)),
    ]);
    must_reach("never met", &nine().on_disk(), 90_047, &script, WITNESS);
}

/// A subscriber resumed at an agent that did not know the epoch it had read last, began from the
/// beginning of the log, and got events that a gap had covered long before.
#[test]
fn a_subscriber_of_an_unknown_epoch_resumes() {
    const WITNESS: &[Reached] = &[Reached::Counter("restored"), Reached::Counter("logs_parted")];
    let mut script: Script = (0..=8).map(|rank| (3_561_460, Op::Kill(rank))).collect();
    script.push((4_275_367, Op::Start(3)));
    script.extend([1, 5, 6, 8].map(|rank| (9_873_992, Op::Start(rank))));
    script.extend([
        (9_900_000, Op::Publish(2)),
        (13_300_000, Op::Publish(2)),
        (13_354_515, Op::Split(5)),
        (13_500_000, Op::Publish(2)),
        (19_951_580, Op::Kill(8)),
    ]);
    must_reach("unknown epoch", &nine().on_disk(), 90_872, &script, WITNESS);
}

/// A component whose log had nothing in common with the next joined one that was given up itself:
/// what a gap had covered there came late, and was taken for a broken order.
#[test]
fn what_a_component_missed_of_a_log_that_is_given_up_may_come_late() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let mut script: Script = vec![
        (7_408_941, Op::HostDown(6)),
        (8_034_199, Op::Split(6)),
        (8_348_138, Op::Start(6)),
        (18_046_271, Op::Split(3)),
        (23_308_415, Op::Heal),
    ];
    let loads = [75, 81, 82, 83, 84, 88, 89, 179, 180, 199];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("missed", &nine(), 52_317, &script, WITNESS);
}

/// A log was given up for one that it had nothing in common with, and appended again there: a
/// subscriber that had a gap for its end had newer events of the same publishers by then.
#[test]
fn events_behind_newer_ones_are_a_gap() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("re_proposed"), Reached::Role("root", "installing")];
    let script: Script = vec![
        (7_066_191, Op::CutOneWay(0, 1)),
        (7_405_093, Op::Kill(1)),
        (9_994_731, Op::Start(1)),
        (10_300_000, Op::Publish(2)),
        (10_615_918, Op::Split(2)),
        (14_277_833, Op::Heal),
        (14_400_000, Op::Publish(2)),
        (14_500_000, Op::Publish(2)),
    ];
    let world = must_reach("behind", &Setup { unlisted: 3, ..nine() }, 91_059, &script, WITNESS);
    let late: usize = world.subscribers.iter().map(|subscriber| subscriber.late.len()).sum();
    assert!(late > 0, "nothing comes late any more: the case is not the one that it was");
}

/// Events were shed for a link on which much was to be caught up with. A root without a
/// copy had them sent again: they came behind what is newer, and were taken for a broken order.
#[test]
fn what_was_shed_and_is_sent_again_comes_late() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("standby_skipped"),
        Reached::Counter("naks"),
        Reached::Role("root", "installing"),
    ];
    let mut script: Script = vec![
        (3733922, Op::TearDisk(8, 20)),
        (5922120, Op::Start(8)),
        (6687988, Op::CutOneWay(1, 0)),
        (9943607, Op::ClockJump(5, -7200)),
    ];
    let loads = [38, 39, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 67];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach(
        "seed_9",
        &Setup { tune: crate::chaos::small, unlisted: 3, ..nine() }.on_disk(),
        9,
        &script,
        WITNESS,
    );
}

/// A subscription was read again from before its beginning, in an epoch in which it had read
/// further: where its agent, which had started again, came to the log of that epoch by way of
/// another one.
#[test]
fn what_lies_before_the_beginning_of_a_subscription_does_not_come_behind_it() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("restored"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let mut script: Script = vec![
        (11261084, Op::Pause(3)),
        (11463823, Op::Subscribe(3, 2)),
        (11815783, Op::Kill(1)),
        (12654847, Op::Continue(3)),
        (13835976, Op::Kill(0)),
        (13835976, Op::Kill(2)),
        (13835976, Op::Kill(3)),
        (13835976, Op::Kill(4)),
        (13835976, Op::Kill(5)),
        (13835976, Op::Kill(6)),
        (13835976, Op::Kill(7)),
        (13835976, Op::Kill(8)),
        (13959172, Op::Start(1)),
    ];
    let loads = [115, 199];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("beginning", &nine().on_disk(), 201_006, &script, WITNESS);
}

/// A root took a log over whose memory began behind the place where its own left it: its
/// subscribers read the part between from a disk, and got again what had been handed over there of
/// what they had.
#[test]
fn what_is_caught_up_with_in_another_log_leaves_out_what_was_had() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("history_reads"),
        Reached::Counter("repeated"),
        Reached::Role("root", "installing"),
    ];
    let mut script: Script =
        vec![(9649557, Op::Kill(1)), (10706454, Op::Split(1)), (14217112, Op::Start(1))];
    let loads = [
        96, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 126, 127, 128,
        129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146,
        147, 148, 149, 150,
    ];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach(
        "seed_210066",
        &Setup { tune: crate::chaos::small, ..nine() }.on_disk(),
        210_066,
        &script,
        WITNESS,
    );
}

/// A subscriber had a gap for the beginning of an epoch and read on in it. When it had
/// started again it came to that beginning by way of another log.
#[test]
fn a_reported_gap_of_an_epoch_does_not_come_behind_its_events() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("restored"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let mut script: Script = vec![
        (11886295, Op::Kill(0)),
        (11886295, Op::Kill(1)),
        (11886295, Op::Kill(2)),
        (11886295, Op::Kill(3)),
        (11886295, Op::Kill(4)),
        (11886295, Op::Kill(5)),
        (11886295, Op::Kill(6)),
        (11886295, Op::Kill(7)),
        (11886295, Op::Kill(8)),
        (12076910, Op::Start(3)),
        (14275268, Op::Start(0)),
        (14275268, Op::Start(1)),
        (14275268, Op::Start(2)),
        (14442300, Op::Kill(1)),
        (16768804, Op::Kill(0)),
        (16768804, Op::Kill(2)),
        (16768804, Op::Kill(3)),
        (18874640, Op::Start(1)),
        (21266277, Op::Start(8)),
    ];
    let loads = [145, 167];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("reported", &nine().on_disk(), 210_171, &script, WITNESS);
}

/// A subscription that read its past stood behind others of its agent, and the log gave up what
/// those had from above: it got neither the events nor a gap.
#[test]
fn a_subscription_in_its_past_keeps_what_others_had_when_the_log_gives_it_up() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("repeated"), Reached::Counter("history_requests")];
    let script: Script = vec![
        (10_000_000, Op::State),
        (10_100_000, Op::Publish(2)),
        (10_200_000, Op::Publish(2)),
        (10_600_000, Op::Publish(2)),
        (10_633_345, Op::Subscribe(1, 2)),
        (10_700_000, Op::Publish(2)),
        (10_800_000, Op::Publish(2)),
        (10_900_000, Op::Publish(2)),
        (11_000_000, Op::Publish(2)),
        (11_000_000, Op::State),
        (11_100_000, Op::Publish(2)),
        (13_700_000, Op::Publish(2)),
        (13_800_000, Op::Publish(2)),
        (13_900_000, Op::Publish(2)),
        (14_000_000, Op::Publish(2)),
        (14_000_000, Op::State),
        (14_100_000, Op::Publish(2)),
        (14_200_000, Op::Publish(2)),
        (14_300_000, Op::Publish(2)),
        (14_400_000, Op::Publish(2)),
        (14_464_876, Op::Kill(1)),
        (14_500_000, Op::Publish(2)),
        (14_600_000, Op::Publish(2)),
        (14_700_000, Op::Publish(2)),
        (14_800_000, Op::Publish(2)),
        (14_900_000, Op::Publish(2)),
        (15_000_000, Op::Publish(2)),
        (15_000_000, Op::State),
        (15_100_000, Op::Publish(2)),
        (15_200_000, Op::Publish(2)),
        (15_300_000, Op::Publish(2)),
        (15_400_000, Op::Publish(2)),
        (15_500_000, Op::Publish(2)),
        (15_500_000, Op::State),
        (15_600_000, Op::Publish(2)),
        (15_700_000, Op::Publish(2)),
        (15_800_000, Op::Publish(2)),
        (16_000_000, Op::Publish(2)),
        (16_000_000, Op::State),
    ];
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
    let setup = Setup { tune: crate::chaos::small, unlisted: 3, ..setup };
    must_reach("in its past", &setup.on_disk().with_conditions(), 113, &script, WITNESS);
}

/// An agent that had followed a log became root of a part. It re-proposed what its subtree had
/// wanted of that log, so the other events of the same publishers came late to a subscriber of
/// another part.
#[test]
fn what_a_follower_re_proposes_makes_older_events_late_and_loses_none_silently() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("re_proposed"),
        Reached::Role("member", "searching"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (4_263_720, Op::Pause(4)),
        (7_100_000, Op::Publish(2)),
        (7_200_000, Op::Publish(2)),
        (7_242_018, Op::Split(4)),
        (9_615_325, Op::Continue(4)),
        (15_000_000, Op::State),
    ];
    let setup = nine().on_disk().with_conditions();
    must_reach("a follower re-proposes", &setup, 2077, &script, WITNESS);
}
