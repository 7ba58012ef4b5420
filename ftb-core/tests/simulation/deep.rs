//! Events that no memory of acting root or standby holds any more: they are on a disk, or at a
//! child.

use crate::neighbour::hello_of_b;
use crate::ops::{Op, Script};
use crate::world::{FILTERS, Setup, World, boot, must_hold};
use ftb_core::filter::Filter;
use ftb_core::frame::{Frame, Hello, HistoryRequest};
use ftb_core::ident::{EventId, OriginId};
use ftb_core::node::NodeConfig;
use ftb_core::severity::Severity;
use std::collections::BTreeSet;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Memory for some hundred events.
fn little_memory(config: &mut NodeConfig) {
    config.log_bytes = 48 << 10;
    config.ring_bytes = 24 << 10;
    config.grace_ms = 2_000;
}

fn counter(world: &World, agent: usize, name: &str) -> u64 {
    let counters = world.counters(agent);
    counters.iter().find(|(counter, _)| *counter == name).map(|(_, count)| *count).unwrap()
}

/// A subscriber that was away for longer than any memory reaches misses nothing: its agent's, and
/// that of the root itself.
#[test]
fn who_was_away_for_long_reads_on_from_the_disk() {
    for (seed, away) in [(1, 5), (2, 3), (3, 6), (4, 4)] {
        let mut script: Script = (0..300).map(|at| (at * 20 * MS, Op::Publish(2))).collect();
        script.extend([(205 * MS, Op::Kill(away)), (7 * S, Op::Start(away))]);
        script.sort_by_key(|(at, _)| *at);
        let setup = Setup { tune: little_memory, payload: 300, ..Setup::new(7, 2) }.on_disk();
        let world = must_hold("away for long", &setup, seed, &script);
        assert!(counter(&world, 0, "history_reads") > 10, "the disk was not read");
    }
}

/// The same while disks are read under faults of all kinds: see the other mixes.
#[test]
fn a_root_without_a_disk_of_its_own_asks_its_standby() {
    let mut script: Script = (0..300).map(|at| (at * 20 * MS, Op::Publish(2))).collect();
    script.extend([
        (205 * MS, Op::Kill(5)),
        (5 * S, Op::LoseDisk(0)),
        (6 * S, Op::Start(0)),
        (12 * S, Op::Start(5)),
    ]);
    script.sort_by_key(|(at, _)| *at);
    let setup = Setup { tune: little_memory, payload: 300, ..Setup::new(7, 2) }.on_disk();
    let world = must_hold("its standby", &setup, 1, &script);
    assert!(counter(&world, 1, "history_reads") > 10, "the standby's disk was not read");
}

/// One user reads the past over and over again, at the root too, and an agent asks more than honest
/// ones do: they wait, and no subscription gets a gap for it.
#[test]
fn who_reads_the_past_with_many_subscriptions_waits_and_takes_no_place_of_others() {
    let script: Script = (0..300).map(|at| (at * 20 * MS, Op::Publish(2))).collect();
    let setup = Setup { tune: little_memory, payload: 300, ..Setup::new(7, 2) }.on_disk();
    let mut world = must_hold("many readers", &setup, 3, &script);
    let begin = world.subscribers.len();
    for agent in [0, 5] {
        for _ in 0..30 {
            world.add_reader(agent, "", Some(1)).unwrap();
        }
    }
    let epoch = world.epoch(0);
    let hello = Hello {
        cluster: "sim".to_owned(),
        host: "guest".to_owned(),
        rank: None,
        origin: OriginId(55),
        ..hello_of_b()
    };
    let child = world.join_as(0, hello).unwrap();
    for id in 0..400 {
        let query = HistoryRequest {
            id,
            epoch,
            after: 0.into(),
            since_ns: None,
            filters: vec![Filter::everything()],
            conditions: false,
        };
        world.say(0, child, Frame::HistoryRequest(query)).unwrap();
    }
    world.add_reader(3, "", Some(1)).unwrap();
    world.run_ms(20_000).unwrap();
    world.check_events().unwrap();
    assert!(counter(&world, 0, "history_waits") > 250, "the root searched for all at once");
    assert!(counter(&world, 5, "history_waits") > 20, "the agent asked for all at once");
    for reader in &world.subscribers[begin..] {
        let (got, gaps) = (reader.got.len(), reader.gaps.len());
        assert!(got >= 300 && gaps == 0, "agent {}: {got} events, {gaps} gaps", reader.agent);
    }
}

/// Root and standby die; who goes on had only what it wanted pass by. What a subscriber was away
/// for is at an agent that had all of it pass by, which is asked, also by a root that takes the log
/// over.
#[test]
fn what_a_root_without_a_copy_does_not_have_comes_from_a_child_that_has_it() {
    fn short_grace(config: &mut NodeConfig) {
        config.grace_ms = 1_000;
    }
    for seed in 0..4 {
        let setup = Setup {
            gaps_allowed: true,
            losses_allowed: true,
            tune: short_grace,
            ..Setup::new(7, 2)
        };
        let setup = Setup { clients_every: 7, ..setup };
        let mut world = boot(setup, seed).unwrap();
        world.add_subscriber(3, "").unwrap();
        world.add_subscriber(4, "event_space=ftb.sim").unwrap();
        world.add_publisher(6).unwrap();
        world.run_ms(1_000).unwrap();
        let published = world.publishers.len() - 1;
        let publish = |world: &mut World| {
            for _ in 0..20 {
                world.publish(published, 5, Severity::Error).unwrap();
                world.run_ms(20).unwrap();
            }
        };
        publish(&mut world);
        world.operate(Op::Kill(4)).unwrap();
        publish(&mut world);
        // A reader that wants nothing of it hears with the next heartbeat how far the log is.
        world.run_ms(2_000).unwrap();
        world.operate(Op::HostDown(0)).unwrap();
        world.operate(Op::HostDown(1)).unwrap();
        // Beyond what origins keep and send again.
        world.run_ms(12_000).unwrap();
        publish(&mut world);
        for back in [4, 0] {
            world.operate(Op::Start(back)).unwrap();
            world.run_ms(15_000).unwrap();
            let got = world.subscribers.iter().find(|one| one.agent == back as usize).unwrap();
            let owed = world.books.published.values().filter(|one| one.confirmed);
            let owed =
                owed.filter(|one| got.filter.matches(&one.sealed)).map(|one| one.sealed.id());
            let missing: BTreeSet<EventId> = owed.filter(|id| !got.got.contains(id)).collect();
            assert!(missing.is_empty(), "seed {seed}: agent {back} misses {}", missing.len());
        }
    }
}

/// No event was ever published: the past ends at once, at the root, at the standby and at every
/// other agent.
#[test]
fn looking_back_into_an_empty_log_ends_at_once_at_every_agent() {
    let quiet = Setup { announcements: false, ..Setup::new(7, 2) };
    for setup in [quiet.clone(), quiet.on_disk()] {
        let mut world = World::new(setup, 1);
        for agent in 0..7 {
            world.start(agent).unwrap();
        }
        world.run_ms(15_000).unwrap();
        world.check_tree().unwrap();
        for agent in 0..7 {
            world.add_reader(agent, FILTERS[agent % FILTERS.len()], Some(1)).unwrap();
        }
        world.run_ms(50).unwrap();
        for reader in &world.subscribers {
            assert!(reader.active_at.is_some(), "agent {}: not subscribed", reader.agent);
            assert!(!reader.in_past, "agent {}: the past does not end", reader.agent);
        }
        world.add_publisher(5).unwrap();
        world.operate(Op::Publish(4)).unwrap();
        world.run_ms(1_000).unwrap();
        world.check_events().unwrap();
    }
}
