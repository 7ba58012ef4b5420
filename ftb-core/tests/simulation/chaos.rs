//! Random faults from a seed.

use crate::ops::{Op, Script};
use crate::world::{Setup, must_hold};
use ftb_core::ConfirmLevel;
use ftb_core::node::NodeConfig;
use ftb_fuzz::random::SplitMix;

fn any_rank(dice: &mut SplitMix, agents: u32) -> u32 {
    u32::try_from(dice.below(agents.into())).unwrap()
}

/// A minute of load with faults of every kind in it.
pub fn script(seed: u64, agents: u32, faults: u64) -> Script {
    faults_of(9, seed, agents, faults)
}

/// The same with faults of disks.
pub fn script_with_disks(seed: u64, agents: u32, faults: u64) -> Script {
    faults_of(14, seed, agents, faults)
}

/// The same with programs that read nothing for a while, begin again, or say hundreds of things at
/// once.
pub fn script_with_programs(seed: u64, agents: u32, faults: u64) -> Script {
    faults_of(17, seed, agents, faults)
}

/// The same with disks that take nothing for a while.
pub fn script_with_slow_disks(seed: u64, agents: u32, faults: u64) -> Script {
    faults_of(19, seed, agents, faults)
}

/// The same with hosts that lose power: root and standby, any, all.
pub fn script_with_power_failures(seed: u64, agents: u32, faults: u64) -> Script {
    faults_of(23, seed, agents, faults)
}

fn faults_of(kinds: u64, seed: u64, agents: u32, faults: u64) -> Script {
    let mut dice = SplitMix(seed);
    let mut script: Script = (0..200).map(|at| (at * 100_000, Op::Publish(2))).collect();
    for _ in 0..faults {
        let at = dice.below(20_000_000);
        let rank = any_rank(&mut dice, agents);
        let later = at + dice.below(8_000_000);
        match dice.below(kinds) {
            0 | 1 => script.extend([(at, Op::Kill(rank)), (later, Op::Start(rank))]),
            2 => script.extend([(at, Op::HostDown(rank)), (later, Op::Start(rank))]),
            3 => script.extend([(at, Op::Pause(rank)), (later, Op::Continue(rank))]),
            4 => script.extend([
                (at, Op::CutOneWay(rank, any_rank(&mut dice, agents))),
                (later, Op::Heal),
            ]),
            5 => script.extend([(at, Op::Split(rank)), (later, Op::Heal)]),
            6 => script.push((at, Op::ClockJump(rank, -7_200))),
            7 => script.push((at, Op::Subscribe(rank, any_rank(&mut dice, 4)))),
            9 => script.extend([(at, Op::LoseDisk(rank)), (later, Op::Start(rank))]),
            10 => script.extend([(at, Op::TearDisk(rank, 20)), (later, Op::Start(rank))]),
            11 => script.extend([(at, Op::RotDisk(rank, 20)), (later, Op::Start(rank))]),
            12 => script.extend([(at, Op::FillDisk(rank)), (later, Op::FreeDisk(rank))]),
            14 => script.extend([(at, Op::Deaf(rank)), (later, Op::Hear(rank))]),
            15 => script.extend([(at, Op::Resubscribe(rank)), (later, Op::Resubscribe(rank))]),
            16 => script.extend([(at, Op::Storm(rank, 200)), (later, Op::Storm(rank, 20))]),
            19..=21 => {
                let hosts = [[0, 1], [rank, rank], [0, rank]][dice.below(3) as usize];
                script.extend(hosts.map(|rank| (at, Op::PowerLoss(rank))));
                script.extend(hosts.map(|rank| (later, Op::Start(rank))));
            }
            22 => {
                let all = 0..agents;
                script.extend(all.clone().map(|rank| (at, Op::PowerLoss(rank))));
                script.extend(all.map(|rank| (later, Op::Start(rank))));
            }
            17 | 18 => script.extend([(at, Op::StallDisk(rank)), (later, Op::ResumeDisk(rank))]),
            13 => {
                let all = 0..agents;
                script.extend(all.clone().map(|rank| (at, Op::Kill(rank))));
                script.extend(all.map(|rank| (later, Op::Start(rank))));
            }
            _ => script.extend([(at, Op::Stop(rank)), (later, Op::Start(rank))]),
        }
    }
    state_conditions(&mut script, &mut dice, agents);
    script.sort_by_key(|(at, _)| *at);
    script
}

/// Programs state conditions all the time; three of them die, and some return.
fn state_conditions(script: &mut Script, dice: &mut SplitMix, agents: u32) {
    script.extend((0..40).map(|at| (at * 500_000, Op::State)));
    for _ in 0..3 {
        let (at, rank) = (dice.below(20_000_000), any_rank(dice, agents));
        script.push((at, Op::ClientDies(rank)));
        if dice.below(2) == 0 {
            script.push((at + dice.below(15_000_000), Op::ClientReturns(rank)));
        }
    }
}

/// How many seeds: more with `FTB_SIM_SEEDS`, from `FTB_SIM_FIRST`.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("FTB_SIM_FIRST").unwrap_or(0);
    first..first + number("FTB_SIM_SEEDS").unwrap_or(default)
}

#[test]
fn one_fault_at_a_time_loses_nothing_silently() {
    for seed in seeds(60) {
        let setup = Setup { gaps_allowed: true, ..Setup::new(7, 2) };
        must_hold("one fault", &setup.with_readers(), seed, &script(seed, 7, 1));
    }
}

#[test]
fn many_faults_at_once_lose_nothing_silently() {
    for seed in seeds(60) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        must_hold("many faults", &setup.with_readers(), seed, &script(seed, 9, 8));
    }
}

/// The table has room for a part of what is stated, some of it for good.
#[test]
fn a_full_table_of_conditions_never_grows_whatever_fails() {
    let mut dropped = 0;
    for seed in seeds(20) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        let setup = Setup { condition_rows: Some(12), ..setup.with_conditions() };
        let world = must_hold("a full table of conditions", &setup, seed, &script(seed, 9, 8));
        dropped += world.rows_dropped();
    }
    assert!(dropped > 0, "no table was full");
}

/// The same where a third of the agents is in no member list.
#[test]
fn faults_of_unlisted_agents_lose_nothing_silently() {
    for seed in seeds(40) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        let setup = Setup { unlisted: 3, ..setup };
        must_hold("many faults, unlisted agents", &setup.with_readers(), seed, &script(seed, 9, 8));
    }
}

#[test]
fn one_fault_at_a_time_with_journals_loses_nothing_silently() {
    for seed in seeds(40) {
        let setup = Setup { gaps_allowed: true, ..Setup::new(7, 2) }.on_disk();
        must_hold("one fault, journals", &setup.with_readers(), seed, &script(seed, 7, 1));
    }
}

#[test]
fn faults_of_agents_and_disks_lose_nothing_silently() {
    for seed in seeds(60) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        let script = script_with_disks(seed, 9, 8);
        must_hold(
            "many faults of agents and disks",
            &setup.on_disk().with_readers(),
            seed,
            &script,
        );
    }
}

/// Hosts lose power: what was confirmed on disk is there when they are back.
#[test]
fn power_failures_lose_nothing_that_was_confirmed_on_disk() {
    for seed in seeds(40) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        let script = script_with_power_failures(seed, 9, 8);
        must_hold("power failures", &setup.on_disk().with_readers(), seed, &script);
    }
}

/// The same where the disks of root and standby also fail one after the other: events are confirmed
/// at each level, whatever the seed.
#[test]
fn power_failures_lose_nothing_that_was_confirmed_at_any_level() {
    const S: u64 = 1_000_000;
    for seed in seeds(10) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        // Before the random faults all disks work; then one, then none, then all again.
        let mut script: Script = (0..80).map(|at| (at * 100_000, Op::Publish(2))).collect();
        script.extend([(2 * S, Op::FillDisk(0)), (4 * S, Op::FillDisk(1))]);
        script.extend([(6 * S, Op::FreeDisk(0)), (6 * S, Op::FreeDisk(1))]);
        let faults = script_with_power_failures(seed, 9, 8);
        script.extend(faults.into_iter().map(|(at, op)| (at + 8 * S, op)));
        script.sort_by_key(|(at, _)| *at);
        let setup = setup.on_disk().with_readers();
        let world = must_hold("power failures at each level", &setup, seed, &script);
        for level in [ConfirmLevel::Memory, ConfirmLevel::OneDisk, ConfirmLevel::Disk] {
            let count = world.levels.get(&level).copied().unwrap_or(0);
            assert!(count > 0, "seed {seed}: no event at {level}");
        }
    }
}

/// Logs that hold a few seconds.
pub fn small(config: &mut NodeConfig) {
    config.log_bytes = 256 << 10;
    config.ring_bytes = 64 << 10;
    config.lag_bytes = 16 << 10;
}

#[test]
fn faults_of_agents_disks_and_programs_lose_nothing_silently() {
    for seed in seeds(40) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        let setup = Setup { tune: small, unlisted: u32::from(seed % 2 == 1) * 3, ..setup };
        let script = script_with_programs(seed, 9, 12);
        must_hold(
            "many faults of agents, disks and programs",
            &setup.on_disk().with_readers(),
            seed,
            &script,
        );
    }
}

/// The same with disks that the log outruns.
#[test]
fn faults_with_slow_disks_lose_nothing_silently() {
    for seed in seeds(40) {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
        let setup = Setup { tune: small, payload: 400, ..setup };
        let script = script_with_slow_disks(seed, 9, 12);
        must_hold("many faults, slow disks", &setup.on_disk().with_readers(), seed, &script);
    }
}
