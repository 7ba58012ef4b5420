//! What the log retains when it no longer has room for all: the severe events first, and the number
//! of the others.

use crate::bounds::{Agent, CLIENT};
use crate::events::{AGENT_SPACE, SPACE, Said, seal};
use crate::ops::{Op, Script};
use crate::world::{Setup, World, must_hold};
use ftb_core::ConfirmLevel;
use ftb_core::filter::Filter;
use ftb_core::node::NodeConfig;
use ftb_core::node::api::{Gap, GapReason, Input, Start, SubscriptionId, ToClient};
use ftb_core::position::Position;
use ftb_core::severity::Severity;
use ftb_core::{PublisherId, Run};
use std::collections::BTreeMap;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Memory for some hundred events.
fn little_memory(config: &mut NodeConfig) {
    config.log_bytes = 256 << 10;
    config.ring_bytes = 24 << 10;
    config.grace_ms = 2_000;
}

/// A cluster without disks, in which agent 2 is away while its log is replaced several times.
fn away(with: &[(u64, Op)], seed: u64) -> World {
    let mut script: Script = (0..300).map(|at| (at * 20 * MS, Op::Publish(2))).collect();
    script.extend([(205 * MS, Op::Kill(2)), (7 * S, Op::Start(2))]);
    script.extend(with);
    script.sort_by_key(|(at, _)| *at);
    let setup =
        Setup { gaps_allowed: true, losses_allowed: true, payload: 300, ..Setup::new(4, 2) };
    must_hold("away for long", &Setup { tune: little_memory, ..setup }, seed, &script)
}

/// How many events of each severity agent 2 got of those of others.
fn got(world: &World) -> BTreeMap<Severity, usize> {
    let subscriber = world.subscribers.iter().find(|one| one.agent == 2).unwrap();
    let mut got = BTreeMap::new();
    for id in &subscriber.got {
        if let Some(published) = world.books.published.get(id)
            && published.sealed.space() == SPACE
        {
            *got.entry(published.sealed.severity()).or_insert(0) += 1;
        }
    }
    got
}

#[test]
fn a_slow_reader_loses_the_mildest_first_and_each_gap_is_exact() {
    for seed in 0..8 {
        let world = away(&[], seed);
        let got = got(&world);
        let of = |severity| got.get(&severity).copied().unwrap_or(0);
        let (fatal, warning) = (of(Severity::Fatal), of(Severity::Warning));
        assert!(fatal > warning + 100, "seed {seed}: {got:?}");
        let subscriber = world.subscribers.iter().find(|one| one.agent == 2).unwrap();
        let gaps = || subscriber.gaps.iter().filter(|gap| gap.reason == GapReason::Retention);
        assert!(gaps().all(|gap| gap.count.is_some() && gap.severity_max.is_some()), "seed {seed}");
        let confirmed = world.books.published.iter().filter(|(_, one)| one.confirmed);
        let missing = confirmed.filter(|(id, one)| {
            subscriber.filter.matches(&one.sealed) && !subscriber.got.contains(id)
        });
        let reported: u64 = gaps().filter_map(|gap| gap.count).sum();
        assert_eq!(reported, missing.count() as u64, "seed {seed}");
    }
}

/// The next root has what the last one retained.
#[test]
fn the_standby_retains_the_same() {
    for seed in 0..8 {
        let world = away(&[(6_500 * MS, Op::Kill(0))], seed);
        let got = got(&world);
        let of = |severity| got.get(&severity).copied().unwrap_or(0);
        let (fatal, warning) = (of(Severity::Fatal), of(Severity::Warning));
        assert!(fatal > warning + 100, "seed {seed}: {got:?}");
    }
}

/// A standby that comes late gets what the root had retained before.
#[test]
fn a_new_standby_gets_what_the_root_has_retained() {
    for seed in 0..8 {
        let faults = [
            (300 * MS, Op::Kill(1)),
            (6_050 * MS, Op::Start(1)),
            // It has copied the log by then.
            (10 * S, Op::Kill(0)),
            (11 * S, Op::Publish(1)),
        ];
        let mut with = faults.to_vec();
        with.extend([(7_100 * MS, Op::Kill(2)), (12 * S, Op::Start(2))]);
        let world = away(&with, seed);
        let got = got(&world);
        let of = |severity| got.get(&severity).copied().unwrap_or(0);
        let (fatal, warning) = (of(Severity::Fatal), of(Severity::Warning));
        assert!(fatal > warning + 100, "seed {seed}: {got:?}");
    }
}

/// A disk that the log has outrun keeps what it had, and goes on behind a gap.
#[test]
fn a_disk_that_the_log_has_outrun_keeps_what_it_had() {
    for seed in 0..8 {
        let mut script: Script = (0..300).map(|at| (at * 20 * MS, Op::Publish(2))).collect();
        let stall = [(1_005 * MS, Op::StallDisk(0)), (7 * S, Op::ResumeDisk(0))];
        script.extend(stall);
        // After the last life the disk is all that is left.
        script.extend([(9 * S, Op::Kill(0)), (10 * S, Op::Start(0))]);
        script.sort_by_key(|(at, _)| *at);
        let setup =
            Setup { gaps_allowed: true, losses_allowed: true, payload: 300, ..Setup::new(1, 2) };
        let setup = Setup { tune: little_memory, ..setup };
        let world = must_hold("outrun", &setup.on_disk(), seed, &script);
        let start = world.books.published.values().map(|one| one.at_ns).min().unwrap();
        let early = world.books.published.iter();
        let early: Vec<_> =
            early.filter(|(_, one)| one.confirmed && one.at_ns < start + 900_000_000).collect();
        assert!(early.len() > 50);
        let kept = early.iter().filter(|(id, _)| world.disk_holds(0, **id)).count();
        assert_eq!(kept, early.len(), "seed {seed}: the disk began anew");
    }
}

/// What a look-back gives: events by space, and the gaps.
fn look_back(agent: &mut Agent, number: u32, start: Start) -> (BTreeMap<String, u64>, Vec<Gap>) {
    let subscription = SubscriptionId(number);
    let filter = Filter::everything();
    agent.handle(Input::Subscribe { client: CLIENT, subscription, filter: filter.into(), start });
    let (mut events, mut gaps) = (BTreeMap::new(), Vec::new());
    for message in agent.messages() {
        match message {
            ToClient::Deliver { items, .. } => {
                for event in items.iter().flat_map(|(_, run)| run.iter()) {
                    *events.entry(event.space().to_owned()).or_insert(0) += 1;
                }
            }
            ToClient::Gap { gap, .. } => gaps.push(gap),
            _ => {}
        }
    }
    agent.handle(Input::Unsubscribe { client: CLIENT, subscription });
    (events, gaps)
}

fn say(agent: &mut Agent, space: &str, severity: Severity, seqs: std::ops::Range<u64>) {
    let publisher = PublisherId { account: 1, token: 1 };
    let said = Said { severity, space, name: "X", host: "a", payload: 1_000 };
    let events: Vec<_> = seqs.map(|seq| seal(publisher, seq, &said)).collect();
    let events = Run::collect(events.iter().map(|event| event.as_ref())).unwrap();
    agent.handle(Input::Publish { client: CLIENT, events, confirm: ConfirmLevel::Memory });
}

#[test]
fn a_users_flood_of_fatal_events_leaves_the_faults_of_protected_spaces_in_the_log() {
    const REAL: u64 = 10;
    const FLOOD: u64 = 40_000;
    let mut agent = Agent::alone();
    agent.attach();
    let agents = agent.node.position().index.get();
    say(&mut agent, "ftb.ipmi.fans", Severity::Error, 1..REAL + 1);
    for first in (REAL + 1..).step_by(100).take_while(|first| *first <= FLOOD) {
        say(&mut agent, "app.flood", Severity::Fatal, first..first + 100);
    }
    for (number, start) in [(1, Start::SinceNs(1)), (2, Start::After(Position::ZERO))] {
        let (events, gaps) = look_back(&mut agent, number, start);
        assert_eq!(events.get("ftb.ipmi.fans"), Some(&REAL), "{start:?}");
        assert_eq!(events.get(AGENT_SPACE).copied().unwrap_or(0), agents, "{start:?}");
        let reported: u64 = gaps.iter().filter_map(|gap| gap.count).sum();
        let last = agent.node.position().index.get();
        assert_eq!(reported + events.values().sum::<u64>(), last, "{start:?}");
        assert!(reported > 10_000 && gaps.len() < 10, "{} gaps", gaps.len());
        assert!(gaps.iter().all(|gap| gap.severity_max == Some(Severity::Fatal)), "{gaps:?}");
    }
}
