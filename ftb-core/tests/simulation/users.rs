//! What the clients of one user make an agent hold is bounded, and costs no other user an event.

use crate::bounds::Agent;
use crate::events::{SPACE, Said, seal};
use crate::neighbour::START;
use ftb_core::ConfirmLevel;
use ftb_core::filter::Filter;
use ftb_core::ident::{OriginId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, GapReason, Input, RefusedWhat, RejectCode, Start, SubscriptionId,
    ToClient,
};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::severity::Severity;
use ftb_core::{PublisherId, Run};
use std::collections::BTreeMap;

const USER_BYTES: usize = 600 * 1024;
const PAYLOAD: usize = 1_000;
/// The publisher's user.
const PUBLISHER: ClientId = ClientId(1);

/// An agent alone, whose memory of the log is short.
fn agent() -> Agent {
    let members = vec![Member { host: "a".into(), address: "a".into() }];
    let mut config = NodeConfig::new("c", "a", OriginId(1), members);
    assert_eq!(config.rank, Some(Rank(0)));
    config.log_bytes = 64 * 1024;
    config.user_bytes = USER_BYTES;
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
                    assert!(message.contains("user 1000") && message.contains("limits.user_bytes"));
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
