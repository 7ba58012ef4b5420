//! Journals: what a restarted agent has on disk goes on, is handed over, or is known to be there.

use crate::ops::{Op, Script};
use crate::world::{Setup, World, must_hold};

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Every publisher publishes `count` events every `every` microseconds.
fn load(until: u64, every: u64, count: u32) -> Script {
    (0..until / every).map(|at| (at * every, Op::Publish(count))).collect()
}

fn with(mut script: Script, more: &[(u64, Op)]) -> Script {
    script.extend_from_slice(more);
    script
}

/// One agent, no standby: it is killed under load at any moment, and everything that it confirmed
/// is there again, once, in its place.
#[test]
fn a_lone_root_that_is_killed_has_all_that_it_confirmed() {
    for step in 0..60 {
        let at = 200 * MS + step * 90;
        let script =
            with(load(900 * MS, 3 * MS, 5), &[(at, Op::Kill(0)), (at + 150 * MS, Op::Start(0))]);
        let world = must_hold("a lone root is killed", &Setup::new(1, 2).on_disk(), step, &script);
        assert!(counter(&world, 0, "restored") > 0, "nothing was restored");
    }
}

/// The same many times over: each life begins with the disk of the one before.
#[test]
fn a_lone_root_that_is_killed_again_and_again_loses_nothing() {
    for seed in 0..6 {
        let kills = (1..12).flat_map(|life| {
            let at = life * 300 * MS + seed * 37;
            [(at, Op::Kill(0)), (at + 20 * MS, Op::Start(0))]
        });
        let kills: Vec<(u64, Op)> = kills.collect();
        let script = with(load(4 * S, 5 * MS, 3), &kills);
        must_hold("killed again and again", &Setup::new(1, 2).on_disk(), seed, &script);
    }
}

/// All agents lose power at once and come back: the log goes on, whichever holds more of it.
#[test]
fn a_whole_cluster_that_is_killed_goes_on_with_its_log() {
    for step in 0..30 {
        let at = 300 * MS + step * 70;
        let mut faults: Vec<(u64, Op)> = (0..7).map(|rank| (at, Op::Kill(rank))).collect();
        faults.extend((0..7).map(|rank| (at + S + u64::from(rank) * 3 * MS, Op::Start(rank))));
        let script = with(load(400 * MS, 10 * MS, 5), &faults);
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(7, 2) };
        let world = must_hold("all are killed", &setup.on_disk(), step, &script);
        assert!(counter(&world, 0, "restored") > 0, "nothing was restored");
    }
}

/// The root is killed, its standby takes over, and it comes back with an old disk under load: what
/// is on it is a prefix of the log, or is there under another position; nothing comes twice.
#[test]
fn a_root_that_returns_with_an_old_disk_doubles_nothing() {
    for step in 0..30 {
        let back = S + step * 7 * MS;
        let script =
            with(load(3 * S, 20 * MS, 2), &[(205 * MS, Op::Kill(0)), (back, Op::Start(0))]);
        let setup = Setup::new(7, 2).on_disk();
        must_hold("rank 0 returns with an old disk", &setup, step, &script);
    }
}

/// A standby is away for a while, and returns with the beginning of the log: its disk goes on where
/// it was, and it is standby again.
#[test]
fn a_standby_that_returns_goes_on_with_its_disk() {
    for step in 0..10 {
        let back = S + step * 11 * MS;
        let script =
            with(load(2 * S, 20 * MS, 2), &[(205 * MS, Op::Kill(1)), (back, Op::Start(1))]);
        let setup = Setup::new(3, 2).on_disk();
        must_hold("the standby returns with its disk", &setup, step, &script);
    }
}

/// What cannot be read is reported: the subscribers of a lone root get a gap for it.
#[test]
fn entries_that_cannot_be_read_are_reported() {
    for seed in 0..10 {
        let faults = [(305 * MS, Op::RotDisk(0, 9)), (600 * MS, Op::Start(0))];
        let script = with(load(900 * MS, 10 * MS, 3), &faults);
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(1, 2) };
        let world = must_hold("unreadable", &setup.on_disk(), seed, &script);
        let reported: u64 = world.subscribers[0].gaps.iter().filter_map(|gap| gap.count).sum();
        assert_eq!(reported, 9, "the gap says how much is missing");
    }
}

/// What one agent cannot read and another brings is not lost, and no gap says so: the standby went
/// on, or both were away and the standby has all of it on its disk.
#[test]
fn entries_that_another_agent_brings_are_no_gap() {
    for seed in 0..10 {
        for away in [[0, 0], [0, 1]] {
            let [rotten, other] = away;
            let faults = [
                (405 * MS, Op::RotDisk(rotten, 9)),
                (405 * MS, Op::Kill(other)),
                (600 * MS, Op::Start(rotten)),
                (603 * MS, Op::Start(other)),
                (5 * S, Op::Publish(3)),
            ];
            let script = with(load(290 * MS, 10 * MS, 3), &faults);
            let setup = Setup::new(2, 2).on_disk();
            let world = must_hold("another brings it", &setup, seed, &script);
            let brought = counter(&world, 0, "logs_installed") + counter(&world, 1, "re_proposed");
            assert!(brought > 0, "{away:?}: no agent has brought the log");
        }
    }
}

/// A full disk costs the journal, not the cluster: an event reports it, the log goes on in memory,
/// and the disk has all of it when it has room again.
#[test]
fn a_full_disk_is_reported_and_comes_back_by_itself() {
    for seed in 0..10 {
        let faults = [
            (300 * MS, Op::FillDisk(0)),
            (900 * MS, Op::FreeDisk(0)),
            (1_205 * MS, Op::Kill(0)),
            (1_300 * MS, Op::Start(0)),
        ];
        let script = with(load(1_500 * MS, 10 * MS, 3), &faults);
        let world = must_hold("full disk", &Setup::new(1, 2).on_disk(), seed, &script);
        let said = |name: &str| world.announced.iter().filter(|(said, _)| *said == name).count();
        assert_eq!((said("FTB_JOURNAL_FAILED"), said("FTB_JOURNAL_BACK")), (1, 1));
    }
}

/// A disk that cannot be read at the start, and can later: what it holds is handed over then, to
/// the log that the agent has begun meanwhile.
#[test]
fn a_disk_that_comes_late_is_handed_over() {
    for seed in 0..10 {
        let faults = [
            (300 * MS, Op::Kill(0)),
            (301 * MS, Op::FillDisk(0)),
            (400 * MS, Op::Start(0)),
            (5 * S, Op::FreeDisk(0)),
        ];
        let script = with(load(290 * MS, 10 * MS, 3), &faults);
        let script = with(script, &[(2 * S, Op::Publish(3))]);
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(1, 2) };
        let world = must_hold("late disk", &setup.on_disk(), seed, &script);
        let got = world.subscribers[0].got.len();
        let published = world.books.published.values().filter(|one| one.confirmed).count();
        assert!(got >= published, "{got} of {published} confirmed events came");
    }
}

fn counter(world: &World, agent: usize, name: &str) -> u64 {
    let counters = world.counters(agent);
    counters.iter().find(|(counter, _)| *counter == name).map(|(_, count)| *count).unwrap()
}
