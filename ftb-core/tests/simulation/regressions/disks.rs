//! Regressions: journals that come back.

use super::{Reached, must_reach, nine};
use crate::ops::{Op, Script};
use crate::world::Setup;

/// Root and standby died, and another went on with what had passed by. The disk of an agent that
/// had been root of a part before brought events back late: a restarted subscriber had a gap for
/// them.
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
    must_reach("longer", &nine().on_disk(), 40_038, &script, WITNESS);
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

/// A merge brought the watch of an agent's earlier life behind that of its present one. The acting
/// root made it unknown, and the agent, whose log had not changed since, repeated it minutes later.
#[test]
fn a_watch_of_an_earlier_life_does_not_hide_that_of_the_present_one_for_long() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("conditions_repeated"),
        Reached::Counter("restored"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (6_300_000, Op::Publish(2)),
        (6_332_410, Op::TearDisk(0, 20)),
        (8_614_298, Op::Stop(7)),
        (9_563_400, Op::Start(7)),
        (9_836_140, Op::Pause(1)),
        (10_275_928, Op::Kill(2)),
        (12_993_319, Op::Start(0)),
        (14_700_000, Op::Publish(2)),
    ];
    must_reach("two lives", &nine().on_disk().with_conditions(), 2113, &script, WITNESS);
}

/// A lone root waited for its disk when it came back to the others. It had nothing to commit any
/// more, and the time of that wait was never over: it was busy for ever.
#[test]
fn a_root_that_steps_down_while_it_waits_for_its_disk_sleeps() {
    const WITNESS: &[Reached] = &[Reached::Role("root", "member")];
    let mut script: Script = (30..150).map(|at| (at * 100_000, Op::Publish(2))).collect();
    script.extend([
        (1_000_000, Op::Split(8)),
        (5_000_000, Op::StallDisk(8)),
        (7_000_000, Op::Heal),
        (14_000_000, Op::ResumeDisk(8)),
    ]);
    script.sort_by_key(|(at, _)| *at);
    let world = must_reach("waits for its disk", &nine().on_disk(), 20_208, &script, WITNESS);
    assert_eq!(world.counted.get("journal_failures"), Some(&0), "it was let go");
}
