//! Regressions: what readers at a standby have not read when its copy of the log takes over.

use super::{Reached, must_reach};
use crate::ops::{Op, Script};
use crate::world::{Setup, World, boot};
use ftb_core::frame::Frame;
use ftb_core::node::NodeConfig;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;
/// What programs here want: a part of what the log holds, so that the ring goes back further.
const PART: [&str; 1] = ["severity=info, event_space=ftb.sim"];

/// A log of some seconds, and a ring at the standby that goes back further.
fn short_log(config: &mut NodeConfig) {
    config.log_bytes = 128 << 10;
    config.ring_bytes = 512 << 10;
}

/// The same, and a reader that is behind keeps little.
fn short_lag(config: &mut NodeConfig) {
    short_log(config);
    config.lag_bytes = 8 << 10;
}

fn of_part(agents: u32, tune: fn(&mut NodeConfig)) -> Setup {
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(agents, 2) };
    Setup { tune, filters: &PART, payload: 400, ..setup }
}

/// A program at the standby had stopped reading. The standby took over with its copy, which had
/// given up more than the ring there: the program got neither the events nor a gap.
#[test]
fn what_a_program_at_the_standby_has_not_read_outlives_a_take_over() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("kept_at_take_over"), Reached::Role("searching", "root")];
    let mut script: Script = (0..200).map(|at| (at * 20 * MS, Op::Publish(1))).collect();
    script.extend([(500 * MS, Op::Deaf(1)), (4_005 * MS, Op::Kill(0)), (8 * S, Op::Hear(1))]);
    script.sort_by_key(|(at, _)| *at);
    for seed in 0..4 {
        let all = must_reach("kept", &of_part(4, short_log), seed, &script, WITNESS);
        assert_eq!(all.subscribers[1].gaps, [], "it has room for all of it");
        let some = must_reach("shed", &of_part(4, short_lag), seed, &script, WITNESS);
        let shed = some.subscribers[1].gaps.iter().filter_map(|gap| gap.count);
        assert!(shed.sum::<u64>() > 0, "its bound is too small for all of it");
    }
}

/// Nothing of the log comes down to the standby any more, while its copy goes on.
fn stops_on_the_way_down(frame: &Frame) -> bool {
    match frame {
        Frame::Down(_) => true,
        Frame::Heartbeat(heartbeat) => heartbeat.covered.is_some(),
        _ => false,
    }
}

/// A standby whose copy is ahead of its readers by a number of events takes over.
fn ahead(events: u32, disks: bool) -> World {
    let setup = Setup { disks, ..of_part(2, short_log) };
    let mut world = boot(Setup { unlisted: 0, ..setup }, 1).unwrap();
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(500).unwrap();
    world.loses = stops_on_the_way_down;
    for _ in 0..events {
        world.operate(Op::Publish(1)).unwrap();
        world.run_ms(5).unwrap();
    }
    world.operate(Op::Kill(0)).unwrap();
    world.loses = |_| false;
    world.run_ms(10_000).unwrap();
    world.operate(Op::Start(0)).unwrap();
    world.run_ms(30_000).unwrap();
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(5_000).unwrap();
    world.check_events().unwrap();
    world
}

fn counted(world: &World, name: &str) -> u64 {
    let counters = world.counters(1);
    counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, count)| *count)
}

/// The link to a standby lagged behind by a whole log. The copy had given up what was on its way to
/// the readers there, and they got neither the events nor a gap.
#[test]
fn a_copy_keeps_what_is_on_its_way_to_readers_at_the_standby() {
    let world = ahead(100, false);
    assert_eq!(counted(&world, "copies_outrun"), 0);
    assert_eq!(world.subscribers[1].gaps, []);
}

/// The same by more than the copy may keep: what it has given up is a gap, or read from the disk.
#[test]
fn what_no_copy_can_keep_for_readers_at_the_standby_is_a_gap() {
    let world = ahead(400, false);
    assert_eq!(counted(&world, "copies_outrun"), 1);
    let missing = world.subscribers[1].gaps.iter().filter_map(|gap| gap.count);
    assert!(missing.sum::<u64>() > 50, "{:?}", world.subscribers[1].gaps);
    let world = ahead(400, true);
    assert_eq!(counted(&world, "copies_outrun"), 1);
    assert_eq!(world.subscribers[1].gaps, []);
}
