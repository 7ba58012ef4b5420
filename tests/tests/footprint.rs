//! What an agent costs that has nothing to do: memory for each client, subscription and link, and
//! after a storm; wake-ups. The bounds are those of docs/performance.md; a development build stays
//! within them too.
#![allow(clippy::unwrap_used, missing_docs)]

use anyhow::Context as _;
use ftb_client::{Client, EventRef, Start, Subscription, event};
use ftb_tests::cluster::{PATIENCE, Plan, wait_for};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// For a client that is attached, in KiB.
const CLIENT_KIB_MAX: f64 = 40.0;
/// For a subscription, in KiB.
const SUBSCRIPTION_KIB_MAX: f64 = 1.75;
/// For the link to a child, in KiB.
const LINK_KIB_MAX: f64 = 56.0;
/// All of an agent with 16 children and 64 clients when a storm is over, in KiB: with the 6.5 MiB
/// of its program that a release build has in memory, 32 MiB are not exceeded.
const AFTER_STORM_KIB_MAX: f64 = 25.5 * 1024.0;

/// Wake-ups a second of an agent for each direction of each of its links, and one more for itself.
const WAKES_PER_DIRECTION_S: u64 = 1;
/// How long is watched at a time, in seconds.
const WATCHED_S: u64 = 5;

const CHILDREN: usize = 16;
const CLIENTS: usize = 64;

fn own_kib(pid: u32) -> anyhow::Result<f64> {
    Ok(ftb_tests::user::own_kib(pid)? as f64)
}

fn client(socket: &Path) -> Client {
    Client::builder("footprint").agent(socket).build().unwrap()
}

async fn attached(socket: &Path, count: usize) -> Vec<Client> {
    let clients: Vec<Client> = (0..count).map(|_| client(socket)).collect();
    for client in &clients {
        client.wait_connected(PATIENCE).await.unwrap();
    }
    clients
}

/// Every client publishes, most read what all publish.
async fn storm(clients: &[Client]) {
    const EVENTS: usize = 1000;
    let template = event("ftb.test.storm", "DROP").unwrap().build();
    let payload = vec![b'x'; 1000];
    let mut readers = JoinSet::new();
    for client in &clients[..CLIENTS / 8] {
        let filter = "event_space=ftb.test.storm";
        let mut subscription = client.subscribe(filter, Start::Now).await.unwrap();
        readers.spawn(async move { while subscription.next_batch().await.is_some() {} });
    }
    for client in clients {
        for _ in 0..EVENTS {
            let event = EventRef { payload: &payload, ..EventRef::from(&template) };
            let _ = client.publish_ref_wait(event).await.unwrap();
        }
    }
    for client in clients {
        client.flush(PATIENCE).await.unwrap();
    }
    readers.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_subscriptions_links_and_storms_cost_an_agent_what_is_stated() {
    let mut cluster = Plan::new(1 + CHILDREN, CHILDREN as u32).extra("").prepare().unwrap();
    cluster.run(0).unwrap();
    let lone = client(cluster.socket(0));
    lone.wait_connected(PATIENCE).await.unwrap();
    let pid = cluster.pid(0).unwrap();
    let alone = own_kib(pid).unwrap();
    for rank in 1..=CHILDREN {
        cluster.run(rank).unwrap();
    }
    cluster.wait_whole().await.unwrap();
    let linked = own_kib(pid).unwrap();
    let clients = attached(cluster.socket(0), CLIENTS).await;
    let served = own_kib(pid).unwrap();
    let mut subscriptions: Vec<Subscription> = Vec::new();
    for number in 0..CLIENTS * 16 {
        let filter = format!("event_space=other.s{number}");
        let client = &clients[number % CLIENTS];
        subscriptions.push(client.subscribe(&filter, Start::Now).await.unwrap());
    }
    let subscribed = own_kib(pid).unwrap();
    for (what, spent, count, max) in [
        ("link", linked - alone, CHILDREN, LINK_KIB_MAX),
        ("client", served - linked, CLIENTS, CLIENT_KIB_MAX),
        ("subscription", subscribed - served, subscriptions.len(), SUBSCRIPTION_KIB_MAX),
    ] {
        let each = spent / count as f64;
        println!("{each:.1} KiB for each {what}");
        assert!(each <= max, "{each:.1} KiB for each {what}: at most {max} are stated");
    }
    drop(subscriptions);
    storm(&clients).await;
    println!("{:.0} KiB right after the storm", own_kib(pid).unwrap());
    let quiet = wait_for("memory to be given back", async || {
        let kib = own_kib(pid)?;
        Ok((kib <= AFTER_STORM_KIB_MAX).then_some(kib))
    });
    match quiet.await {
        Ok(kib) => println!("{kib:.0} KiB when it was over"),
        Err(error) => panic!("{error}: {:.0} KiB", own_kib(pid).unwrap()),
    }
}

/// How often the threads of a process went to sleep by themselves so far.
fn sleeps(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.context("no count of switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// The heartbeats of its links wake an idle agent, and nothing else does: no timer of its own, no
/// thread that wakes another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_agents_wake_for_heartbeats_alone() {
    const AGENTS: usize = 3;
    let cluster = Plan::new(AGENTS, 1).extra("").start().await.unwrap();
    let mut clients = Vec::new();
    for rank in 0..AGENTS {
        clients.extend(attached(cluster.socket(rank), 1).await);
    }
    let pids: Vec<u32> = (0..AGENTS).map(|rank| cluster.pid(rank).unwrap()).collect();
    // A tree that has just come together has things to say: until one time is quiet.
    let quiet = wait_for("agents to be idle", async || {
        let before = pids.iter().map(|pid| sleeps(*pid)).collect::<anyhow::Result<Vec<u64>>>()?;
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_secs(WATCHED_S)).await;
        let mut woken = Vec::new();
        for (pid, before) in pids.iter().zip(before) {
            woken.push(sleeps(*pid)? - before);
        }
        let watched_s = begun.elapsed().as_secs_f64();
        println!("{woken:?} wake-ups in {watched_s:.1} s");
        let within = woken.iter().enumerate().all(|(rank, woken)| {
            let links = u64::from(rank > 0) + u64::from(rank + 1 < AGENTS);
            let per_s = 2 * links * WAKES_PER_DIRECTION_S + 1;
            *woken as f64 <= per_s as f64 * watched_s
        });
        Ok(within.then_some(woken))
    });
    quiet.await.unwrap();
}
