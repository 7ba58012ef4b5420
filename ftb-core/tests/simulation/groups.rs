//! Groups in a whole cluster: like events of many publishers become one, each of them is accounted
//! for, whatever fails.

use crate::bounds::{Agent, CLIENT};
use crate::chaos::{
    script, script_with_disks, script_with_power_failures, script_with_programs,
    script_with_slow_disks, seeds, small,
};
use crate::events::{SPACE, Said, grouper, seal};
use crate::neighbour::{START, hello_of_b};
use crate::ops::{Op, Script};
use crate::world::{Setup, World, boot, must_hold};
use ftb_core::ConfirmLevel;
use ftb_core::frame::Hello;
use ftb_core::ident::{EventId, OriginId, PublisherId, Rank};
use ftb_core::node::api::{Gap, GapReason, Input, Output, QueryId};
use ftb_core::node::{Member, Node, NodeConfig, StormRule};
use ftb_core::protocol::Features;
use ftb_core::severity::Severity;
use ftb_core::trace::{TraceStep, TraceSubject};

const MS: u64 = 1_000;
const WINDOW_MS: u64 = 500;
/// Some want the single events.
const FILTERS: [&str; 5] = [
    "event_space=ftb.sim",
    "event_name=ODD",
    "folds=no",
    "severity>=error, event_space=ftb.sim",
    "hostname=node[0-99], event_space=ftb.sim",
];

/// Fatal events stay outside.
fn grouping(config: &mut NodeConfig) {
    config.storm = vec![StormRule {
        space: None,
        severity_max: Severity::Error,
        fold_ms: WINDOW_MS,
        group_by: vec!["neighbour".to_owned()],
        events_per_s: 0,
        burst: 1,
    }];
    config.grouper = Some(grouper());
}

fn small_grouping(config: &mut NodeConfig) {
    small(config);
    grouping(config);
}

fn setup(agents: u32) -> Setup {
    Setup { tune: grouping, filters: &FILTERS, ..Setup::new(agents, 3) }
}

/// Folds, single events that came beside them, and what both account for.
fn totals(world: &World, filter: &str) -> Vec<(u64, u64)> {
    let of = world.subscribers.iter().filter(|s| s.filter.to_string() == filter);
    of.map(|subscriber| (subscriber.group_folds, subscriber.got.len() as u64)).collect()
}

/// Two thousand ports on thirty agents fail at once, with three severities that the rule folds, and
/// a fourth: what is fatal.
#[test]
fn thousands_of_events_become_one_for_each_group() {
    let mut world = boot(setup(30), 1).unwrap();
    for port in world.publishers.len()..2_000 {
        world.add_publisher(port % 30).unwrap();
    }
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(5_000).unwrap();
    world.check_events().unwrap();
    let whole = totals(&world, "event_space=ftb.sim");
    assert!(!whole.is_empty());
    assert!(whole.iter().all(|total| *total == (3, 2_000)), "{whole:?}");
    assert!(totals(&world, "folds=no").iter().all(|total| *total == (0, 2_000)));
    for publisher in &world.publishers {
        assert!(publisher.unconfirmed.is_empty(), "each receipt resolves");
    }
}

/// As acting root, it would leave members without a fold: it comes two levels below the root.
#[test]
fn groups_end_and_none_begin_while_an_agent_of_an_older_release_is_in_the_tree() {
    let setup = Setup { gaps_allowed: true, fanout: 2, ..setup(7) };
    let mut world = boot(setup, 1).unwrap();
    world.operate(Op::Kill(5)).unwrap();
    world.run_ms(5_000).unwrap();
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(100).unwrap();
    let folds = |world: &World| totals(world, "event_space=ftb.sim")[0];
    assert_eq!(folds(&world).0, 0, "the window is open");
    let older = Hello {
        cluster: "sim".to_owned(),
        host: "node5".to_owned(),
        rank: Some(Rank(5)),
        origin: OriginId(55),
        wall_ns: 1_700_000_000_000_000_000,
        features: Features::TRACE,
        ..hello_of_b()
    };
    world.join_as(2, older).unwrap();
    world.run_ms(100).unwrap();
    let (ended, got) = folds(&world);
    assert!(ended > 0 && got > 0, "{ended} folds of {got} events");
    world.operate(Op::Publish(1)).unwrap();
    world.run_ms(100).unwrap();
    assert_eq!(folds(&world), (ended, 2 * got));
}

/// The root dies while events come, while groups are open, and while folds are appended, sent to
/// the standby, committed and delivered.
#[test]
fn no_member_is_lost_or_doubled_when_the_root_dies_at_any_step() {
    let early = (0..20).map(|at| at * 2);
    let open = (2..25).map(|at| at * 20);
    let late = (0..30).map(|at| WINDOW_MS + at);
    for at_ms in early.chain(open).chain(late) {
        let script: Script = vec![(0, Op::Publish(20)), (at_ms * MS, Op::Kill(0))];
        let world = must_hold("root dies", &setup(10), at_ms, &script);
        let published: u64 = world.publishers.iter().map(|publisher| publisher.published).sum();
        for (_, got) in totals(&world, "event_space=ftb.sim") {
            assert_eq!(got, published, "root died after {at_ms} ms");
        }
    }
}

/// Root 1 is paused and its standby 2 dies, with a publisher: root 3 has only what passed by. Then
/// rank 0 takes over from 3, and 1 returns below it: it proposes again what lies after the fork.
/// The members that were open lie before that.
#[test]
fn members_that_no_root_can_fold_are_a_gap_for_readers_of_folds() {
    let tune = |config: &mut NodeConfig| {
        grouping(config);
        config.storm[0].fold_ms = 5_000;
    };
    let setup = Setup { tune, gaps_allowed: true, losses_allowed: true, fanout: 2, ..setup(7) };
    for count in 1..=5 {
        let script: Script = vec![
            (0, Op::Kill(0)),
            (5_000 * MS, Op::Publish(count)),
            (7_500 * MS, Op::Kill(2)),
            (7_500 * MS, Op::Pause(1)),
            (14_000 * MS, Op::Start(0)),
            (22_000 * MS, Op::Continue(1)),
        ];
        let world = must_hold("members before the fork", &setup, 1, &script);
        let lost = |(name, count): &(&str, u64)| *name == "logs_lost" && *count > 0;
        assert!(world.counters(3).iter().any(lost), "3 takes over without the log");
        let holds = |gap: &Gap| gap.reason == GapReason::LogLost;
        let folds = world.subscribers.iter().filter(|found| !found.filter.wants_single());
        assert!(folds.filter(|found| found.agent > 2).all(|found| found.gaps.iter().any(holds)));
    }
}

#[test]
fn one_fault_at_a_time_loses_nothing_silently_with_groups() {
    for seed in seeds(60) {
        let setup = Setup { gaps_allowed: true, fanout: 2, ..setup(7) }.with_conditions();
        must_hold("one fault, groups", &setup, seed, &script(seed, 7, 1));
    }
}

fn lossy(agents: u32) -> Setup {
    Setup { gaps_allowed: true, losses_allowed: true, fanout: 2, ..setup(agents) }.with_conditions()
}

#[test]
fn many_faults_at_once_lose_nothing_silently_with_groups() {
    for seed in seeds(60) {
        let setup = Setup { unlisted: u32::from(seed % 3 == 1) * 3, ..lossy(9) };
        must_hold("many faults, groups", &setup, seed, &script(seed, 9, 8));
    }
}

#[test]
fn faults_of_disks_lose_nothing_silently_with_groups() {
    for seed in seeds(60) {
        let script = script_with_disks(seed, 9, 8);
        must_hold("faults of disks, groups", &lossy(9).on_disk(), seed, &script);
    }
}

#[test]
fn power_failures_lose_nothing_silently_with_groups() {
    for seed in seeds(40) {
        let script = script_with_power_failures(seed, 9, 8);
        must_hold("power failures, groups", &lossy(9).on_disk(), seed, &script);
    }
}

#[test]
fn faults_of_programs_lose_nothing_silently_with_groups() {
    for seed in seeds(40) {
        let setup = Setup { tune: small_grouping, ..lossy(9) }.on_disk();
        let script = script_with_programs(seed, 9, 12);
        must_hold("faults of programs, groups", &setup, seed, &script);
    }
}

#[test]
fn faults_with_slow_disks_lose_nothing_silently_with_groups() {
    for seed in seeds(40) {
        let setup = Setup { tune: small_grouping, payload: 400, ..lossy(9) }.on_disk();
        let script = script_with_slow_disks(seed, 9, 12);
        must_hold("slow disks, groups", &setup, seed, &script);
    }
}

/// A reader of folds passes over members that the log retains: the gap beside them does not count
/// them. Each is in a fold, or that is in another gap.
#[test]
fn a_gap_counts_no_members_for_readers_of_folds_that_the_log_has() {
    const SEED: u64 = 60_001;
    let setup = Setup { tune: small_grouping, payload: 400, ..lossy(9) }.on_disk();
    let script = script_with_slow_disks(SEED, 9, 12);
    let world = must_hold("slow disks, groups", &setup, SEED, &script);
    let members = &world.books.members;
    let readers = world.subscribers.iter().filter(|found| !found.filter.wants_single());
    let mut gaps = readers.flat_map(|found| &found.gaps);
    let is_over_members = |gap: &Gap| {
        gap.reason == GapReason::Retention && members.range(gap.after..gap.until).next().is_some()
    };
    assert!(gaps.any(is_over_members), "no member is there");
}

/// A reader of single events passes over a fold, which has the id of one of its members. The gap
/// beside it says nothing of that member: another one does, which is where the member was.
#[test]
fn the_place_of_a_fold_is_not_that_of_its_members() {
    const SEED: u64 = 20_105;
    let setup = Setup { tune: small_grouping, payload: 400, ..lossy(9) }.on_disk();
    let script = script_with_slow_disks(SEED, 9, 12);
    let world = must_hold("slow disks, groups", &setup, SEED, &script);
    let folds = &world.books.folds;
    let singles = world.subscribers.iter().filter(|found| found.filter.wants_single());
    let mut gaps = singles.flat_map(|found| &found.gaps);
    assert!(gaps.any(|gap| folds.range(gap.after..gap.until).next().is_some()), "no fold is there");
}

/// The path of each member names the fold: its index, and its id where the log still has it.
#[test]
fn the_path_of_a_member_ends_with_the_fold_of_its_group() {
    let node = {
        let members = ["a", "b"].map(|host| Member { host: host.into(), address: host.into() });
        let mut config = NodeConfig::new("c", "a", OriginId(1), members.to_vec());
        grouping(&mut config);
        Node::new(START, config, 1)
    };
    let mut root = Agent::of(node);
    root.attach();
    let publisher = PublisherId { account: 1, token: 1 };
    let events = (1..=3).map(|seq| {
        // An error is traced, and the rule folds it.
        let said =
            Said { severity: Severity::Error, space: SPACE, name: "X", host: "a", payload: 1 };
        seal(publisher, seq, &said)
    });
    for event in events {
        root.handle(Input::Publish {
            client: CLIENT,
            events: event.into(),
            confirm: ConfirmLevel::Memory,
        });
    }
    let until_ns = root.now.mono_ns + 2 * WINDOW_MS * 1_000_000;
    while root.now.mono_ns < until_ns {
        root.pass_time();
    }
    for seq in 1..=3 {
        let id = EventId { publisher, seq: seq.into() };
        let (query, subject) = (QueryId(seq), TraceSubject::Event(id));
        root.handle(Input::QueryTrace { query, subject, within_ms: 1_000 });
        let traced = root.out.iter().rev().find_map(|output| match output {
            Output::Trace { query: of, trace, .. } if *of == query => Some(trace.clone()),
            _ => None,
        });
        let agents = traced.unwrap().agents;
        let hops = agents.iter().flat_map(|agent| &agent.hops);
        let folds: Vec<_> = hops.filter(|(hop, _)| hop.step == TraceStep::Folded).collect();
        let [(hop, fold)] = folds[..] else { panic!("{seq}: {agents:?}") };
        assert!(hop.number > 3, "behind its members: {hop:?}");
        assert_eq!(*fold, EventId { publisher, seq: 3.into() }.to_string(), "the last carries it");
    }
}
