//! What the clients of one user make an agent hold is bounded, and costs no other user an event.

use crate::bounds::Agent;
use crate::events::{SPACE, Said, seal};
use crate::neighbour::START;
use ftb_core::ConfirmLevel;
use ftb_core::filter::Filter;
use ftb_core::ident::{OriginId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, GapReason, Input, Output, RefusedWhat, RejectCode, Start, SubscriptionId,
    ToClient,
};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::severity::Severity;
use ftb_core::{PublisherId, Run};
use std::collections::{BTreeMap, BTreeSet};

const USER_BYTES: usize = 600 * 1024;
const PAYLOAD: usize = 1_000;
/// The publisher's user.
const PUBLISHER: ClientId = ClientId(1);

/// An agent alone, whose memory of the log is short.
fn agent() -> Agent {
    agent_with(|_| {})
}

fn agent_with(tune: impl Fn(&mut NodeConfig)) -> Agent {
    let members = vec![Member { host: "a".into(), address: "a".into() }];
    let mut config = NodeConfig::new("c", "a", OriginId(1), members);
    assert_eq!(config.rank, Some(Rank(0)));
    config.log_bytes = 64 * 1024;
    config.user_bytes = USER_BYTES;
    tune(&mut config);
    let mut agent = Agent::of(Node::new(START, config, 1));
    attach(&mut agent, PUBLISHER, 0);
    agent
}

fn attach(agent: &mut Agent, client: ClientId, uid: u32) {
    let publisher = PublisherId { account: uid.into(), token: client.0 };
    let (name, job_id) = ("test".to_owned(), String::new());
    let info = ClientInfo { uid, gid: 1, pid: 1, name, job_id, publisher };
    agent.handle(Input::ClientAttached { client, info });
}

fn subscribe(agent: &mut Agent, client: ClientId, number: u32, filter: &str) {
    let filter = Filter::parse(filter).unwrap();
    let subscription = SubscriptionId(number);
    agent.handle(Input::Subscribe {
        client,
        subscription,
        filter: filter.into(),
        start: Start::Now,
    });
}

fn publish(agent: &mut Agent, from: u64, count: u64, severity: Severity) {
    let said = Said { severity, space: SPACE, name: "X", host: "a", payload: PAYLOAD };
    let publisher = PublisherId { account: 0, token: PUBLISHER.0 };
    for seq in from..from + count {
        let event = seal(publisher, seq, &said);
        let events = Run::collect([event.as_ref()]).unwrap();
        agent.handle(Input::Publish { client: PUBLISHER, events, confirm: ConfirmLevel::Memory });
    }
}

/// What a client hears: how many events of each severity each subscription got, and how many its
/// gaps report.
fn read(agent: &mut Agent, client: ClientId) -> BTreeMap<u32, (BTreeMap<Severity, u64>, u64)> {
    let mut read: BTreeMap<u32, (BTreeMap<Severity, u64>, u64)> = BTreeMap::new();
    while let Some(message) = agent.node.poll_client(agent.now, client, 1 << 16, &mut agent.out) {
        match message {
            ToClient::Deliver { subscription, items, .. } => {
                let (got, _) = read.entry(subscription.0).or_default();
                for (_, run) in items {
                    run.iter().for_each(|event| *got.entry(event.severity()).or_default() += 1);
                }
            }
            ToClient::Gap { subscription, gap } => {
                assert_eq!(gap.reason, GapReason::Shed);
                assert_eq!(gap.severity_max, Some(Severity::Info));
                read.entry(subscription.0).or_default().1 += gap.count.unwrap_or(0);
            }
            _ => {}
        }
    }
    read
}

#[test]
fn a_user_over_the_budget_loses_the_mildest_events_and_another_loses_none() {
    const INFO: u64 = 200;
    let mut agent = agent();
    let (greedy, modest) = ([2, 3, 4, 5].map(ClientId), ClientId(6));
    for client in greedy {
        attach(&mut agent, client, 1_000);
        subscribe(&mut agent, client, 1, "");
        subscribe(&mut agent, client, 2, &format!("event_space={SPACE}"));
    }
    attach(&mut agent, modest, 1_001);
    subscribe(&mut agent, modest, 1, "");
    publish(&mut agent, 1, 5, Severity::Fatal);
    publish(&mut agent, 6, 20, Severity::Error);
    publish(&mut agent, 26, INFO, Severity::Info);

    let got = read(&mut agent, modest);
    let all = BTreeMap::from([(Severity::Info, INFO), (Severity::Error, 20), (Severity::Fatal, 5)]);
    assert_eq!(got, BTreeMap::from([(1, (all, 0))]));
    for client in greedy {
        let got = read(&mut agent, client);
        assert_eq!(got.keys().copied().collect::<Vec<_>>(), [1, 2]);
        for (mut got, lost) in got.into_values() {
            let info = got.remove(&Severity::Info).unwrap_or(0);
            assert_eq!(got, BTreeMap::from([(Severity::Error, 20), (Severity::Fatal, 5)]));
            assert_eq!(info + lost, INFO, "each event came or is reported");
            assert!(lost > INFO / 2, "{lost} events were shed: the budget was not used up");
        }
    }
}

/// Many users, who may be one person, hold together what a few may.
#[test]
fn users_over_their_total_lose_events_in_turn_and_one_that_reads_loses_none() {
    const INFO: u64 = 200;
    const TOTAL: usize = 1_500 * 1024;
    let mut agent = agent_with(|config| config.users_bytes = TOTAL);
    let (greedy, modest) = ((2..18).map(ClientId), ClientId(20));
    for client in greedy.clone() {
        attach(&mut agent, client, 1_000 + client.0 as u32);
        subscribe(&mut agent, client, 1, "");
    }
    attach(&mut agent, modest, 999);
    subscribe(&mut agent, modest, 1, "");
    let mut got = 0;
    for seq in 1..=INFO {
        publish(&mut agent, seq, 1, Severity::Info);
        got += read(&mut agent, modest)
            .values()
            .map(|(all, _)| all.values().sum::<u64>())
            .sum::<u64>();
    }
    assert_eq!(got, INFO);
    let mut held = 0;
    for client in greedy {
        for (got, lost) in read(&mut agent, client).into_values() {
            let got: u64 = got.values().sum();
            assert_eq!(got + lost, INFO, "each event came or is reported");
            held += got;
        }
    }
    let bytes = held as usize * PAYLOAD;
    assert!((TOTAL / 4..TOTAL).contains(&bytes), "{bytes} bytes waited");
}

#[test]
fn a_user_with_fatal_events_alone_keeps_no_milder_ones_of_others_over_the_total() {
    const INFO: u64 = 150;
    const FATAL: u64 = 90;
    let mut agent = agent_with(|config| config.users_bytes = 400 * 1024);
    let [severe, mild] = [2, 3].map(ClientId);
    attach(&mut agent, severe, 1_000);
    (0..3).for_each(|number| subscribe(&mut agent, severe, number, "severity=fatal"));
    attach(&mut agent, mild, 1_001);
    subscribe(&mut agent, mild, 1, "severity=info");
    publish(&mut agent, 1, INFO, Severity::Info);
    publish(&mut agent, 1 + INFO, FATAL, Severity::Fatal);
    for (got, lost) in read(&mut agent, severe).into_values() {
        assert_eq!((got, lost), (BTreeMap::from([(Severity::Fatal, FATAL)]), 0));
    }
    let (got, lost) = read(&mut agent, mild).remove(&1).unwrap();
    assert_eq!(got.values().sum::<u64>() + lost, INFO);
    assert!(lost > 0, "{got:?}");
}

/// Until one is refused for the total of all users: how many subscriptions a client gets.
fn until_the_total(agent: &mut Agent, client: ClientId, first: u32) -> u32 {
    let refused = |number: &u32| {
        subscribe(agent, client, *number, &format!("event_name=x{number}"));
        let (node, now, out) = (&mut agent.node, agent.now, &mut agent.out);
        let mut messages = std::iter::from_fn(|| node.poll_client(now, client, 1 << 16, out));
        messages.any(|message| match message {
            ToClient::Refused { message, .. } => message.contains("limits.users_bytes"),
            _ => false,
        })
    };
    (first..).find(refused).expect("there is a total") - first
}

#[test]
fn a_subscription_beyond_the_total_is_refused_to_a_user_with_more_than_a_share() {
    let mut agent = agent_with(|config| config.users_bytes = 300 * 1024);
    let [large, small] = [2, 3].map(ClientId);
    attach(&mut agent, large, 1_000);
    attach(&mut agent, small, 1_001);
    assert!(until_the_total(&mut agent, large, 0) > 100);
    assert!(until_the_total(&mut agent, small, 0) > 50, "it has a share");
    assert_eq!(until_the_total(&mut agent, large, 1_000), 0);
}

#[test]
fn what_others_have_read_since_refuses_no_subscription() {
    let granted = |events: u64| {
        let mut agent = agent_with(|config| config.users_bytes = 300 * 1024);
        let [reader, large] = [2, 3].map(ClientId);
        attach(&mut agent, reader, 1_000);
        subscribe(&mut agent, reader, 1, "");
        attach(&mut agent, large, 1_001);
        publish(&mut agent, 1, events, Severity::Info);
        let got = read(&mut agent, reader);
        assert_eq!(got.get(&1).map_or(0, |(got, _)| got.values().sum()), events);
        until_the_total(&mut agent, large, 0)
    };
    assert_eq!(granted(150), granted(0));
}

#[test]
fn a_subscription_beyond_the_budget_is_refused_until_others_end() {
    let mut agent = agent();
    let client = ClientId(2);
    attach(&mut agent, client, 1_000);
    let refused = |agent: &mut Agent| {
        let messages = std::iter::from_fn(|| {
            agent.node.poll_client(agent.now, client, 1 << 16, &mut agent.out)
        });
        messages
            .filter_map(|message| match message {
                ToClient::Refused { what: RefusedWhat::Subscription(id), code, message } => {
                    assert_eq!(code, RejectCode::Limit);
                    assert!(message.contains("user 1000") && message.contains("limits.user_"));
                    Some(id.0)
                }
                _ => None,
            })
            .collect::<Vec<u32>>()
    };
    // Each needs some 15 KiB.
    let numbers: Vec<String> = (100..1_000).step_by(2).map(|n| n.to_string()).collect();
    let filter = format!("hostname=n[{}]", numbers.join(","));
    for number in 0..100 {
        subscribe(&mut agent, client, number, &filter);
    }
    let first = refused(&mut agent);
    assert!((20..90).contains(&first.len()), "{} were refused", first.len());
    for subscription in (0..10).map(SubscriptionId) {
        agent.handle(Input::Unsubscribe { client, subscription });
    }
    for number in 200..220 {
        subscribe(&mut agent, client, number, &filter);
    }
    assert_eq!(refused(&mut agent), (210..220).collect::<Vec<u32>>());
    // Another user has a budget of its own, and who leaves gives all of it back.
    attach(&mut agent, ClientId(3), 1_001);
    subscribe(&mut agent, ClientId(3), 1, &filter);
    agent.handle(Input::ClientDetached { client });
    attach(&mut agent, client, 1_000);
    subscribe(&mut agent, client, 1, &filter);
    assert_eq!(refused(&mut agent), [0_u32; 0]);
}

#[test]
fn the_subscriptions_and_filters_of_all_clients_of_a_user_are_bounded_together() {
    let held = |filter: &dyn Fn(u32) -> String, set: fn(&mut NodeConfig)| {
        let members = vec![Member { host: "a".into(), address: "a".into() }];
        let mut config = NodeConfig::new("c", "a", OriginId(1), members);
        set(&mut config);
        let mut agent = Agent::of(Node::new(START, config, 1));
        let mut held = Vec::new();
        for (client, uid) in [(2, 1_000), (3, 1_000), (4, 1_001), (5, 0)] {
            let client = ClientId(client);
            attach(&mut agent, client, uid);
            (0..20).for_each(|number| subscribe(&mut agent, client, number, &filter(number)));
            let messages = std::iter::from_fn(|| {
                agent.node.poll_client(agent.now, client, 1 << 16, &mut agent.out)
            });
            let is_refused = |message: &ToClient| matches!(message, ToClient::Refused { .. });
            held.push(20 - messages.filter(is_refused).count());
        }
        held
    };
    let short = |number| format!("event_space=s{number}");
    assert_eq!(held(&short, |config| config.user_subscriptions = 25), [20, 5, 20, 20]);
    let long = |number| format!("event_name={}{number}", "n".repeat(50));
    let filters = held(&long, |config| config.user_filter_bytes = 6_000);
    assert!(filters[0] == 20 && filters[1] < 20, "{filters:?}");
    assert_eq!(filters[2..], [20, 20], "another user, and root");
}

/// The clients that the shell does not read.
fn not_read(agent: &Agent) -> Vec<ClientId> {
    let mut paused = BTreeSet::new();
    for output in &agent.out {
        match output {
            Output::PauseClient(client) => assert!(paused.insert(*client), "paused twice"),
            Output::ResumeClient(client) => assert!(paused.remove(client), "it was read"),
            _ => {}
        }
    }
    paused.into_iter().collect()
}

#[test]
fn the_clients_of_a_user_over_its_rate_are_read_later_and_others_at_once() {
    let members = vec![Member { host: "a".into(), address: "a".into() }];
    let mut config = NodeConfig::new("c", "a", OriginId(1), members);
    config.user_events_per_s = 100;
    let mut agent = Agent::of(Node::new(START, config, 1));
    let (flood, severe, other) = (ClientId(2), ClientId(3), ClientId(4));
    for (client, uid) in [(flood, 1_000), (severe, 1_000), (other, 1_001), (PUBLISHER, 0)] {
        attach(&mut agent, client, uid);
    }
    let say = |agent: &mut Agent, client: ClientId, account: u64, seq, severity| {
        let said = Said { severity, space: SPACE, name: "X", host: "a", payload: 10 };
        let event = seal(PublisherId { account, token: client.0 }, seq, &said);
        let events = Run::collect([event.as_ref()]).unwrap();
        let confirm = ftb_core::ConfirmLevel::Memory;
        agent.handle(Input::Publish { client, events, confirm });
    };
    say(&mut agent, severe, 1_000, 1, Severity::Error);
    for seq in 1..=40 {
        say(&mut agent, flood, 1_000, seq, Severity::Info);
        if seq <= 10 {
            say(&mut agent, other, 1_001, seq, Severity::Info);
        }
        say(&mut agent, PUBLISHER, 0, seq, Severity::Info);
    }
    assert_eq!(not_read(&agent), [flood], "neither severe ones, nor other users");
    let until_ns = agent.now.mono_ns + 2_000_000_000;
    while agent.now.mono_ns < until_ns {
        agent.pass_time();
    }
    assert_eq!(not_read(&agent), []);
}

/// While no parent takes events, those of users wait in a part of the outbox: daemons go on.
#[test]
fn events_of_users_that_wait_leave_room_for_those_of_daemons() {
    let members = ["a", "b"].map(|host| Member { host: host.into(), address: host.into() });
    let mut config = NodeConfig::new("c", "b", OriginId(2), members.to_vec());
    config.user_events_per_s = 1_000_000;
    let outbox_bytes = config.outbox_bytes;
    let (mut node, mut out) = (Node::new(START, config, 1), Vec::new());
    let mut now = START;
    let mut feed = |node: &mut Node, input| {
        now.mono_ns += 1_000;
        node.handle(now, input, &mut out);
        let paused = out.iter().any(|output| matches!(output, Output::PauseClient(_)));
        out.clear();
        paused
    };
    let message = |client: u64, seq: u64| {
        let said = Said {
            severity: Severity::Fatal,
            space: SPACE,
            name: "X",
            host: "b",
            payload: PAYLOAD,
        };
        let publisher = PublisherId { account: client, token: client };
        let events: Vec<_> = (seq..seq + 10).map(|seq| seal(publisher, seq, &said)).collect();
        let events = Run::collect(events.iter().map(|event| event.as_ref())).unwrap();
        Input::Publish { client: ClientId(client), events, confirm: ConfirmLevel::Memory }
    };
    for (client, uid) in [(1, 1000), (2, 0), (3, 1001)] {
        let publisher = PublisherId { account: client, token: client };
        let (name, job_id) = ("test".to_owned(), String::new());
        let info = ClientInfo { uid, gid: 1, pid: 1, name, job_id, publisher };
        feed(&mut node, Input::ClientAttached { client: ClientId(client), info });
    }
    let mut seqs = (0..).map(|at| 1 + 10 * at);
    assert!(seqs.by_ref().take(2_000).any(|seq| feed(&mut node, message(1, seq))));
    let waiting = node.status().outbox_bytes;
    assert!(waiting < outbox_bytes / 8 * 7, "{waiting} of {outbox_bytes}: the user may fill it");
    assert!(!feed(&mut node, message(2, 1)), "the daemon is not read");
    assert!(feed(&mut node, message(3, 1)), "another user takes what is reserved");
}
