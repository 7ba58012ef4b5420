//! Whole clusters of the agent's real code, gRPC included, in one process over in-memory streams
//! with paused time.
#![allow(clippy::unwrap_used)]

mod common;

use common::{MemoryCluster, TestClient};
use ftb_core::condition::{Condition, Truth};
use ftb_core::node::TreeRole;
use ftb_core::node::api::MemberState;
use ftb_core::{Event, EventName, EventSpace};
use ftb_proto::event::encode_event;
use ftb_proto::v1::{self, to_agent, to_client};
use std::collections::BTreeMap;
use std::time::Duration;

/// Simulated time that a tree may take to form or heal: several detection periods.
const CONVERGE: Duration = Duration::from_secs(60);

/// Each agent's parent.
type Parents = BTreeMap<u32, u32>;

/// Waits (in simulated time) until the acting root sees all running agents in one tree that is
/// `good`.
async fn tree_where(cluster: &MemoryCluster, root: usize, good: impl Fn(&Parents) -> bool) {
    let running = cluster.agents.iter().flatten().count();
    let start = tokio::time::Instant::now();
    loop {
        let tree = cluster.agent(root).handle().tree(Duration::from_secs(1)).await.unwrap();
        let up = || tree.nodes.iter().filter(|node| node.state == MemberState::Up);
        let roots = up().filter(|node| node.parent.is_none()).count();
        let parents: Parents = up().filter_map(|n| Some((n.rank.0, n.parent?.0))).collect();
        if tree.complete && up().count() == running && roots == 1 && good(&parents) {
            return;
        }
        assert!(
            start.elapsed() < CONVERGE,
            "no such tree: {} of {running} up, {roots} roots, complete: {}, {parents:?}",
            up().count(),
            tree.complete
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until all running agents are one tree.
async fn whole(cluster: &MemoryCluster, root: usize) {
    tree_where(cluster, root, |_| true).await;
}

/// Waits until all agents are the wanted tree.
async fn wanted(cluster: &MemoryCluster, fanout: u32) {
    let wanted = |(rank, parent): (&u32, &u32)| *parent == (rank - 1) / fanout;
    tree_where(cluster, 0, |parents| parents.iter().all(wanted)).await;
}

#[tokio::test(start_paused = true)]
async fn five_agents_become_the_wanted_tree_and_carry_events() {
    let cluster = MemoryCluster::start(5, 2).await;
    wanted(&cluster, 2).await;
    let mut subscriber = cluster.client(4, "subscriber").await;
    subscriber.subscribe(1, "event_space=site.*").await;
    let mut publisher = cluster.client(2, "publisher").await;
    let last = publisher.publish("site.test", &["a", "b"]).await;
    publisher.publish("other.test", &["not wanted"]).await;
    publisher.publish("site.test", &["c"]).await;
    publisher.confirmed(last).await;
    assert_eq!(subscriber.payloads(3).await, ["a", "b", "c"]);
}

/// A process that dies closes its sockets: its children are below another parent within a second (a
/// simulated one: what counts is what they wait for).
#[tokio::test(start_paused = true)]
async fn the_children_of_a_crashed_agent_have_another_parent_within_a_second() {
    let mut cluster = MemoryCluster::start(7, 2).await;
    wanted(&cluster, 2).await;
    cluster.crash(1);
    let start = tokio::time::Instant::now();
    for child in [3, 4] {
        loop {
            let parent = cluster.agent(child).handle().status().await.unwrap().node.parent;
            if parent.is_some_and(|parent| parent != cluster.hosts[1]) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(1), "agent {child} has no parent");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_death_of_the_root_loses_nothing_and_its_return_restores_the_tree() {
    let mut cluster = MemoryCluster::start(7, 2).await;
    wanted(&cluster, 2).await;
    let mut subscriber = cluster.client(6, "subscriber").await;
    subscriber.subscribe(1, "event_space=site").await;
    let mut publisher = cluster.client(3, "publisher").await;
    publisher.publish("site", &["before"]).await;
    cluster.crash(0);
    publisher.publish("site", &["during"]).await;
    assert_eq!(subscriber.payloads(2).await, ["before", "during"]);
    whole(&cluster, 1).await;
    cluster.run(0).await;
    publisher.publish("site", &["after"]).await;
    assert_eq!(subscriber.payloads(1).await, ["after"]);
    wanted(&cluster, 2).await;
}

#[tokio::test(start_paused = true)]
async fn two_halves_that_are_cut_off_become_one_tree_when_they_are_healed() {
    let cluster = MemoryCluster::start(6, 2).await;
    whole(&cluster, 0).await;
    let halves = ([0, 1, 3], [2, 4, 5]);
    let pairs = || halves.0.iter().flat_map(|a| halves.1.iter().map(move |b| (*a, *b)));
    for (a, b) in pairs() {
        cluster.network.cut(&cluster.hosts[a], &cluster.hosts[b]);
    }
    let start = tokio::time::Instant::now();
    while cluster.agent(2).handle().status().await.unwrap().node.role != TreeRole::Root {
        assert!(start.elapsed() < CONVERGE, "the cut-off half has no acting root");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for (a, b) in pairs() {
        cluster.network.heal(&cluster.hosts[a], &cluster.hosts[b]);
    }
    whole(&cluster, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_added_to_the_configuration_joins_without_a_restart_of_the_others() {
    let mut cluster = MemoryCluster::start(3, 2).await;
    wanted(&cluster, 2).await;
    cluster.grow().await;
    wanted(&cluster, 2).await;
    assert_eq!(cluster.agents.len(), 4);
}

/// The rank of an agent once it is below a parent.
async fn placed(cluster: &MemoryCluster, at: usize) -> u32 {
    let start = tokio::time::Instant::now();
    loop {
        let node = cluster.agent(at).handle().status().await.unwrap().node;
        if let (Some(_), Some(rank)) = (node.parent, node.rank) {
            return rank.0;
        }
        assert!(start.elapsed() < CONVERGE, "it has no place");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_are_not_listed_join_and_keep_their_ranks_over_restarts() {
    let mut cluster = MemoryCluster::start(3, 2).await;
    wanted(&cluster, 2).await;
    let (one, other) = (cluster.add_unlisted().await, cluster.add_unlisted().await);
    let ranks = (placed(&cluster, one).await, placed(&cluster, other).await);
    let first = ftb_core::Rank::UNLISTED_FIRST.0;
    assert!(ranks == (first, first + 1) || ranks == (first + 1, first), "{ranks:?}");
    let mut subscriber = cluster.client(one, "subscriber").await;
    subscriber.subscribe(1, "event_space=site").await;
    let mut publisher = cluster.client(other, "publisher").await;
    publisher.publish("site", &["from one guest to another"]).await;
    assert_eq!(subscriber.payloads(1).await, ["from one guest to another"]);
    // Both restart in the other order, below the standby: the root is gone.
    for at in [0, one, other] {
        cluster.crash(at);
    }
    whole(&cluster, 1).await;
    cluster.run(other).await;
    assert_eq!(placed(&cluster, other).await, ranks.1);
    cluster.run(one).await;
    assert_eq!(placed(&cluster, one).await, ranks.0);
    whole(&cluster, 1).await;
}

/// All agents lose power. Root and standby have the ranks in their journals.
#[tokio::test(start_paused = true)]
async fn journals_remember_the_ranks_of_hosts_that_are_not_listed() {
    let journal = "[journal]\npath = \"/journal\"\n";
    let mut cluster = MemoryCluster::start_with(2, 2, journal).await;
    wanted(&cluster, 2).await;
    let (one, other) = (cluster.add_unlisted().await, cluster.add_unlisted().await);
    let ranks = (placed(&cluster, one).await, placed(&cluster, other).await);
    // Written a moment later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for at in [0, 1, one, other] {
        cluster.crash(at);
    }
    // Their ports are free when their tasks have ended.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for at in [0, 1, other] {
        cluster.run(at).await;
    }
    assert_eq!(placed(&cluster, other).await, ranks.1);
    cluster.run(one).await;
    assert_eq!(placed(&cluster, one).await, ranks.0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_rejects_dynamic_members_says_so_and_can_be_opened() {
    let mut cluster = MemoryCluster::start_with(3, 2, "allow_unlisted = false\n").await;
    wanted(&cluster, 2).await;
    let guest = cluster.add_unlisted().await;
    let start = tokio::time::Instant::now();
    let refused = async |cluster: &MemoryCluster| {
        let counters = cluster.agent(guest).handle().status().await.unwrap().node.counters;
        counters.iter().any(|(name, count)| *name == "rejected" && *count > 0)
    };
    while !refused(&cluster).await {
        assert!(start.elapsed() < CONVERGE, "no agent has refused it");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cluster.extra = "";
    cluster.reload().await;
    placed(&cluster, guest).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_agents_form_one_tree_and_heal_it() {
    const AGENTS: usize = 1000;
    let mut cluster = MemoryCluster::start(AGENTS, 10).await;
    wanted(&cluster, 10).await;
    let mut subscriber = cluster.client(AGENTS - 1, "subscriber").await;
    subscriber.subscribe(1, "event_space=site").await;
    let mut publisher = cluster.client(AGENTS / 2, "publisher").await;
    publisher.publish("site", &["before"]).await;
    assert_eq!(subscriber.payloads(1).await, ["before"]);
    // An inner agent with ten children of its own.
    cluster.crash(5);
    tree_where(&cluster, 0, |parents| parents.values().all(|parent| *parent != 5)).await;
    publisher.publish("site", &["after"]).await;
    assert_eq!(subscriber.payloads(1).await, ["after"]);
}

/// Prints how long the reports of 512 agents take: what `ftbctl doctor` waits for. The clock of the
/// agents stands still, so that the time is that of the work.
#[tokio::test(start_paused = true)]
async fn five_hundred_agents_report_how_they_are() {
    const AGENTS: usize = 512;
    let cluster = MemoryCluster::start(AGENTS, 16).await;
    whole(&cluster, 0).await;
    let begun = std::time::Instant::now();
    let leaf = cluster.agent(AGENTS - 1).handle();
    let answer = leaf.reports(Duration::from_secs(4)).await.unwrap();
    eprintln!("{AGENTS} reports after {:?}", begun.elapsed());
    let hosts: std::collections::BTreeSet<&str> =
        answer.reports.iter().map(|report| &report.host[..]).collect();
    assert_eq!((hosts.len(), answer.answered as usize), (AGENTS, AGENTS));
    assert_eq!((answer.silent.len(), answer.omitted), (0, 0));
    let version = env!("CARGO_PKG_VERSION");
    assert!(answer.reports.iter().all(|report| report.version == version));
}

/// What this thread has had of a core, whatever else the machine did.
fn worked() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Reads the conditions that a filter wants, as `ftbctl conditions` and `ftbctl health` do: how
/// many, and the work of all agents meanwhile.
async fn read(reader: &mut TestClient, subscription: u32, filter: &str) -> (usize, Duration) {
    let begun = worked();
    reader
        .say(to_agent::Message::Subscribe(v1::Subscribe {
            subscription,
            filter: filter.to_owned(),
            start: Some(v1::subscribe::Start::Conditions(true)),
            ..v1::Subscribe::default()
        }))
        .await;
    let mut rows = 0;
    loop {
        match reader.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                rows += deliver.items.iter().map(|item| item.sealed.len()).sum::<usize>();
            }
            Some(to_client::Message::Covered(covered)) if covered.history_ended => break,
            Some(to_client::Message::Rejected(refused)) => panic!("{refused:?}"),
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    let took = worked() - begun;
    reader.say(to_agent::Message::Unsubscribe(v1::Unsubscribe { subscription })).await;
    (rows, took)
}

/// Prints what a table of 20,000 conditions, and the health of one node, cost where an agent reads
/// them that is three links from the root. One thread does the work of all agents, one after the
/// other; their clock stands still meanwhile.
#[tokio::test(start_paused = true)]
#[ignore = "prints figures: `make test-long` runs it"]
async fn numbers_of_conditions_at_four_thousand_agents() {
    const AGENTS: usize = 4_096;
    const ROWS: usize = 20_000;
    let fan = |at: usize| {
        let name = EventName::new("FTB_TEST").unwrap();
        let mut event = Event::new(EventSpace::new("ftb.ipmi").unwrap(), name);
        let host = format!("node{:04}", at % AGENTS + 1);
        let component = format!("FAN {}", at / AGENTS);
        let condition = Condition { host, component, ..Condition::new("FANFAIL", Truth::True) };
        event.condition = Some(condition);
        encode_event(&event)
    };
    let cluster = MemoryCluster::start(AGENTS, 16).await;
    wanted(&cluster, 16).await;
    let mut publisher = cluster.client(AGENTS / 2, "publisher").await;
    for first in (0..ROWS).step_by(500) {
        let last = publisher.publish_all((first..first + 500).map(fan).collect()).await;
        publisher.confirmed(last).await;
    }
    // Each agent declares what it watches.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut reader = cluster.client(AGENTS - 1, "reader").await;
    for round in 0..10 {
        let (rows, took) = read(&mut reader, 2 * round + 1, "condition=*").await;
        assert!(rows >= ROWS, "{rows} rows");
        let (of_node, health) =
            read(&mut reader, 2 * round + 2, "condition=*, subject=node0007").await;
        println!("{rows} conditions in {took:?}; the {of_node} of one node in {health:?}");
        // Ten times the goals, for a busy machine and a program that is not optimised.
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(health < Duration::from_millis(50), "{health:?}");
    }
}
