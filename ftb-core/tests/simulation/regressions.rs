//! Runs that once broke a promise, shortened, each with its seed and what was wrong.

use crate::ops::{Op, Script};
use crate::world::{Setup, World, boot, must_hold};
use ftb_core::node::api::GapReason;

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

/// A root that had taken over with what had passed by answered as if it had everything.
#[test]
fn a_root_without_a_copy_does_not_pretend_to_have_one() {
    const WITNESS: &[Reached] = &[Reached::Counter("logs_lost"), Reached::Counter("re_proposed")];
    let mut script: Script = vec![(10_571_260, Op::Kill(7)), (14_597_778, Op::Split(5))];
    script.extend((104..=154).map(|at| (at * 100_000, Op::Publish(2))));
    script.extend((187..=198).map(|at| (at * 100_000, Op::Publish(2))));
    must_reach("no copy", &nine(), 200, &script, WITNESS);
}

/// A root died before anything was logged: its epoch left no trace, and its agents took the next
/// log for one that they had nothing in common with.
#[test]
fn a_root_that_dies_before_anything_is_logged_costs_nothing() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_installed"), Reached::Role("standby", "searching")];
    let script: Script =
        vec![(1_000, Op::Publish(2)), (1_010, Op::Kill(0)), (2_000, Op::Publish(2))];
    let setup = Setup { announcements: false, ..Setup::new(7, 2) };
    for seed in 0..5 {
        must_reach("nothing logged", &setup, seed, &script, WITNESS);
    }
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

/// A root that had passed its standby over, and was then alone, woke without an end: the time at
/// which that child may be standby again stayed due for ever.
#[test]
fn a_root_that_has_passed_its_only_child_over_does_not_spin() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("standby_skipped"), Reached::Role("standby", "member")];
    let mut script: Script = vec![(1_000_000, Op::Pause(1))];
    script.extend((11..=400).map(|at| (at * 100_000, Op::Publish(1))));
    must_reach("alone", &Setup { gaps_allowed: true, ..Setup::new(2, 2) }, 1, &script, WITNESS);
}

/// A root without a copy gave its log up for another one, appended again what it had of it, and got
/// the rest, which was older, back from its origins behind that.
#[test]
fn a_root_without_a_copy_does_not_give_its_log_up() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("installs_refused")];
    let script: Script = vec![
        (5_800_000, Op::Publish(2)),
        (5_878_715, Op::Split(2)),
        (7_963_550, Op::Pause(1)),
        (8_000_000, Op::Publish(2)),
        (9_558_570, Op::Continue(1)),
        (10_155_752, Op::Heal),
        (11_202_604, Op::Kill(0)),
        (12_000_000, Op::Publish(2)),
    ];
    must_reach("given up", &nine(), 6150, &script, WITNESS);
}

/// Events were on their way up when the epoch changed; their origin then put older ones back,
/// behind them.
#[test]
fn events_sent_in_another_epoch_wait_for_requeued_events() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("standby_skipped")];
    let mut script: Script = vec![(6_493_448, Op::HostDown(1))];
    let loads = [64, 67, 70, 71, 72, 76, 78, 82, 102, 104];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.extend([(7_226_370, Op::Split(8)), (8_333_541, Op::Split(3))]);
    script.sort_by_key(|(at, _)| *at);
    must_reach("put back", &nine(), 8212, &script, WITNESS);
}

/// Everybody of a component that was cut off died with what was confirmed there: nobody is left to
/// tell.
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

/// Root and standby died, and another went on with what had passed by. The disk of an agent that
/// had been root of a part before brought events back that a restarted subscriber was told as lost:
/// late.
#[test]
fn events_that_a_disk_brings_back_after_their_gap_come_late() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Counter("restored"),
        Reached::Counter("re_proposed"),
    ];
    let mut script: Script = vec![
        (4_911_406, Op::Kill(3)),
        (9_523_580, Op::Split(3)),
        (10_523_128, Op::Kill(2)),
        (10_858_217, Op::Start(3)),
        (13_230_893, Op::Start(2)),
        (14_725_199, Op::RotDisk(2, 20)),
        (15_673_169, Op::Heal),
        (17_957_366, Op::Kill(0)),
        (17_957_366, Op::Kill(1)),
        (17_957_366, Op::Kill(3)),
        (17_957_366, Op::Kill(4)),
        (20_337_968, Op::Start(2)),
        (23_456_741, Op::Start(2)),
    ];
    script.extend((42..=54).map(|at| (at * 100_000, Op::Publish(2))));
    script.extend((62..=115).map(|at| (at * 100_000, Op::Publish(2))));
    script.extend((135..=158).map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("brought back", &nine().on_disk(), 30_241, &script, WITNESS);
}

/// A root that one child could not hear any more stopped. Its standby went below that child, which
/// was root of a log of its own, and threw its copy away: what only root and standby had was lost,
/// untold.
#[test]
fn a_standby_that_goes_below_another_root_hands_its_copy_over() {
    const WITNESS: &[Reached] = &[Reached::Counter("copies_kept"), Reached::Counter("re_proposed")];
    let script: Script = vec![
        (8_700_000, Op::Publish(2)),
        (8_776_202, Op::CutOneWay(0, 1)),
        (16_400_000, Op::Publish(2)),
        (16_410_459, Op::Stop(0)),
    ];
    must_reach("copy", &nine(), 40_037, &script, WITNESS);
    let setup = Setup { unlisted: 3, ..nine() };
    must_reach("copy", &setup, 40_037, &script[1..].to_vec(), WITNESS);
}

/// An agent that came back with a longer log went below one with a shorter log of the same epoch,
/// and took that for a sign that nothing of its own is missing there. The next epoch began before
/// its end.
#[test]
fn a_log_that_is_longer_than_the_parents_is_kept_until_the_next_epoch() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("restored"),
        Reached::Counter("re_proposed"),
        Reached::Counter("logs_installed"),
    ];
    let mut script: Script = vec![(7_026_742, Op::HostDown(1)), (16_410_459, Op::LoseDisk(0))];
    script.extend((2..=8).map(|rank| (15_956_239, Op::Kill(rank))));
    let loads = [11, 12, 19, 20, 21, 71, 104, 160, 164, 165];
    script.extend(loads.into_iter().chain(25..=54).map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("longer", &nine().on_disk(), 40_037, &script, WITNESS);
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
    must_reach("no beginning", &nine(), 90_190, &script, WITNESS);
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

/// A root that was cut off let its standby go, confirmed alone and died, before the others had
/// begun an epoch of their own: nobody of its epoch had heard of it.
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
/// took its log over before the time was up, and knew nothing of that: what nobody handed over was
/// never told.
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

/// A subscriber resumed at an agent that did not know the epoch it had read last, began from the
/// beginning of the log, and got what it had been told of as a hole long before.
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
    must_reach("unknown reign", &nine().on_disk(), 90_872, &script, WITNESS);
}

/// A root without a copy of its log handed it on to one that had just started. What its own agents
/// had published before that was known to be confirmed there, in a part that nobody has, and came
/// again only when that log met another one: behind what is newer.
#[test]
fn what_a_root_without_a_copy_does_not_have_is_sent_again_at_once() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Role("root", "installing"),
        Reached::Role("member", "offering"),
    ];
    let script: Script = vec![
        (10_234_784, Op::Split(5)),
        (13_100_000, Op::Publish(2)),
        (13_194_357, Op::Kill(5)),
        (15_989_408, Op::Start(5)),
        (19_900_000, Op::Publish(2)),
    ];
    must_reach("handed on", &Setup { unlisted: 3, ..nine() }, 90_985, &script, WITNESS);
}

/// A root with a past took a log over that a root without a copy had begun, and lost of its own
/// what that one did not have: its agents sent it again, behind what is newer.
#[test]
fn a_root_with_a_past_takes_no_log_over_that_has_lost_its_own() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("installs_refused")];
    let script: Script = vec![
        (14_603_978, Op::Kill(4)),
        (14_800_000, Op::Publish(2)),
        (17_082_041, Op::Split(4)),
        (19_581_225, Op::Start(4)),
        (19_900_000, Op::Publish(2)),
    ];
    must_reach("with a past", &nine(), 4, &script, WITNESS);
}

/// A root without a copy handed its log over: first what of the past had passed by, in which events
/// are missing, and then all of it again.
#[test]
fn what_passed_by_comes_before_what_was_sent_again_only_if_it_was_not() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (9_961_227, Op::HostDown(4)),
        (11_800_000, Op::Publish(2)),
        (11_900_000, Op::Publish(2)),
        (11_905_202, Op::Split(4)),
        (14_982_318, Op::Start(4)),
        (17_200_000, Op::Publish(2)),
    ];
    must_reach("passed by", &nine(), 51_119, &script, WITNESS);
}

/// A root that had just started had a log by then that others had handed over, and took another one
/// over that a root without a copy had begun: what that one had lost came again behind what is
/// newer.
#[test]
fn a_root_with_children_installs_no_incomplete_log() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("installs_refused")];
    let mut script: Script = vec![
        (593972, Op::Kill(5)),
        (4356134, Op::Stop(2)),
        (4764951, Op::Split(2)),
        (6296169, Op::Start(2)),
    ];
    let loads = [
        0, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
        29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 45, 46, 52, 53, 62, 63, 71, 72,
        99,
    ];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("joined", &Setup { unlisted: 3, ..nine() }, 51_058, &script, WITNESS);
}

/// A root that did not reach its standby went on alone, was heard by other children only, and died:
/// the standby took over with a whole copy that ended before, and nobody told of the rest.
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

/// A component whose log had nothing in common with the next joined one that was given up itself:
/// what it was told of as missing there came late, and was taken for a broken order.
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
/// subscriber that had been told of its end as missing had newer events of the same publishers by
/// then.
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

/// A lone root was heard by all but its standby and one child, and died; so did the next, a child
/// of which each of them was by then, with what it waited for in its memory alone: that one child
/// was told nothing.
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
        let told = world.subscribers[4].gaps.iter().filter(|gap| gap.reason == GapReason::LogLost);
        assert_eq!(told.count(), 1, "{:?}", world.subscribers[4].gaps);
    }
}

/// A root that had begun a log of its own took another one over. Its disk was to begin anew with
/// that, and had not yet: what was read from it was of the log that it had begun, at places of the
/// other one.
#[test]
fn a_disk_that_begins_anew_has_nothing_before_it_says_so() {
    const WITNESS: &[Reached] = &[Reached::Counter("history_reads"), Reached::Counter("restored")];
    let mut script: Script = vec![(12_764_205, Op::TearDisk(0, 20)), (19_576_339, Op::Start(0))];
    let loads = [
        94, 95, 96, 97, 98, 99, 100, 101, 102, 126, 127, 128, 129, 130, 131, 132, 133, 149, 150,
        151, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174,
        175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 187, 188, 189, 190, 191, 192, 193, 194,
        195, 196, 197, 198, 199,
    ];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach(
        "begins anew",
        &Setup { tune: crate::chaos::small, ..nine() }.on_disk(),
        8,
        &script,
        WITNESS,
    );
}

/// Events were shed for a link on which much was to be caught up with, and told. A root without a
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

/// An agent between had a rank of an unlisted host in mind that the root of a merged component had
/// given to another. The host was told the one there and the other by everybody else, and never
/// came to rest.
#[test]
fn a_rank_that_only_an_agent_between_has_in_mind_is_asked_for() {
    const WITNESS: &[Reached] = &[Reached::Counter("renumbered")];
    let mut script: Script = vec![
        (2883997, Op::HostDown(6)),
        (4237843, Op::Stop(7)),
        (5093422, Op::HostDown(0)),
        (10645686, Op::Start(0)),
        (11150233, Op::Split(7)),
        (11208758, Op::Start(7)),
        (11249336, Op::CutOneWay(1, 0)),
    ];
    let loads = [120];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("in mind", &Setup { unlisted: 3, ..nine() }, 200_650, &script, WITNESS);
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

/// A subscriber was told of the beginning of an epoch as missing and read on in it. When it had
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
    must_reach("told of", &nine().on_disk(), 210_171, &script, WITNESS);
}
