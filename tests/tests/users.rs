//! What one ordinary user of a host can cost an agent, and all others.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, EventRef, Start, event};
use ftb_proto::v1::to_client;
use ftb_tests::cluster::{PATIENCE, Plan};
use ftb_tests::skip::skip;
use ftb_tests::user::{BareClient, ORDINARY, as_user, impossible, own_kib};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Lets all users of the host reach the sockets in a folder.
fn open_to_all(dir: &Path) {
    std::fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
}

/// Whether the test can run; says why not.
fn is_possible() -> bool {
    match impossible() {
        None => true,
        Some(why) => {
            skip(&why);
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_that_name_very_many_hosts_cost_the_tree_next_to_nothing() {
    const FILTERS: u32 = 40;
    /// For all filters together, at each agent.
    const KIB_MAX: u64 = 1024;
    if !is_possible() {
        return;
    }
    let cluster = Plan::new(3, 1).extra("").start().await.unwrap();
    open_to_all(cluster.dir());
    let answer = async |rank| {
        let start = Instant::now();
        cluster.status(rank).await.unwrap();
        start.elapsed()
    };
    for rank in 0..3 {
        answer(rank).await;
    }
    let pids: Vec<u32> = (0..3).map(|rank| cluster.pid(rank).unwrap()).collect();
    let memory = || pids.iter().map(|pid| own_kib(*pid).unwrap()).collect::<Vec<u64>>();
    let before = memory();
    let socket = cluster.socket(2).to_owned();
    let (done, mut is_done) = tokio::sync::oneshot::channel();
    let (leave, stay) = tokio::sync::oneshot::channel::<()>();
    let user = as_user(ORDINARY[0], async move || {
        let mut client = BareClient::attach(&socket, 1).await.unwrap();
        for id in 0..FILTERS {
            let name = format!("{}{}", "a".repeat(245), char::from(b'a' + (id % 26) as u8));
            let filter = format!("hostname={name}{}[000001-262143]", "b".repeat(id as usize / 26));
            assert_eq!(client.subscribe(id, &filter).await.unwrap(), None, "{filter}");
        }
        done.send(()).unwrap();
        // The client stays until memory was measured.
        let _ = stay.await;
    });
    let mut slowest = Duration::ZERO;
    while is_done.try_recv().is_err() {
        for rank in 0..3 {
            slowest = slowest.max(answer(rank).await);
        }
    }
    let after = memory();
    for (rank, (after, before)) in after.iter().zip(&before).enumerate() {
        let more = after.saturating_sub(*before);
        println!("agent {rank}: {more} KiB more for {FILTERS} filters");
        assert!(more < KIB_MAX, "agent {rank}: {more} KiB for {FILTERS} filters");
    }
    // Longer than that without a word, an agent counts as lost.
    println!("slowest answer: {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "an agent answered after {slowest:?}");
    assert!(!cluster.logs().contains("lost"), "{}", cluster.logs());
    drop(leave);
    user.join().unwrap();
}

/// The documented bound of what one user makes an agent hold, in KiB.
const USER_KIB_MAX: u64 = 160 * 1024;
const FLOOD: &str = "site.flood";
const CALM: &str = "site.calm";

/// Publishes many INFO events as fast as they are taken.
async fn flood(socket: &Path, events: usize) {
    let client = Client::builder("flood").agent(socket).build().unwrap();
    let template = event(FLOOD, "FLOOD").unwrap().build();
    let payload = vec![b'x'; 1000];
    for _ in 0..events {
        let event = EventRef { payload: &payload, ..EventRef::from(&template) };
        let _ = client.publish_ref_wait(event).await.unwrap();
    }
    client.flush(PATIENCE).await.unwrap();
    client.close(PATIENCE).await.unwrap();
}

/// Publishes numbered events one by one until it is asked to stop, and reads all of them. Gives how
/// many there were.
async fn calm(socket: &Path, mut stop: tokio::sync::oneshot::Receiver<()>) -> u64 {
    let client = Client::builder("calm").agent(socket).build().unwrap();
    let mut subscription =
        client.subscribe(&format!("event_space={CALM}"), Start::Now).await.unwrap();
    let mut count = 0;
    while stop.try_recv().is_err() {
        let numbered = event(CALM, "NUMBER").unwrap().payload(count.to_string());
        let _ = client.publish(numbered.build()).unwrap();
        match tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap() {
            Some(Delivery::Event(received)) => {
                assert_eq!(received.event.payload, count.to_string().as_bytes());
            }
            other => panic!("{other:?} instead of event {count}"),
        }
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_whose_subscriptions_do_not_read_costs_a_bounded_amount_and_harms_no_other() {
    const CLIENTS: u64 = 100;
    const SUBSCRIPTIONS: u32 = 256;
    const EVENTS: usize = 6_000;
    /// Many subscriptions: this is about the bytes of the events that wait for them.
    const LIMITS: &str = "[limits]\nlog_bytes = 1048576\nuser_subscriptions = 100000\n\
                          user_filter_bytes = 100000000\nuser_events_per_s = 1000000\n";
    if !is_possible() {
        return;
    }
    let mut cluster = Plan::new(1, 1).extra(LIMITS).prepare().unwrap();
    // Without a bound of its own the agent would take all that the machine has.
    let bounded = ["prlimit", "--data=2147483648"].map(str::to_owned);
    cluster.through(0, &bounded);
    cluster.run(0).unwrap();
    cluster.wait_whole().await.unwrap();
    open_to_all(cluster.dir());
    let pid = cluster.pid(0).unwrap();
    let before = own_kib(pid).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let socket = cluster.socket(0).to_owned();
    let other = as_user(ORDINARY[1], async move || calm(&socket, stopped).await);
    let socket = cluster.socket(0).to_owned();
    let user = as_user(ORDINARY[0], async move || {
        let mut clients = Vec::new();
        for token in 1..=CLIENTS {
            let mut client = BareClient::attach(&socket, token).await.unwrap();
            let filter = format!("event_space={FLOOD}");
            client.subscribe_often(SUBSCRIPTIONS, &filter).await.unwrap();
            clients.push(client);
        }
        flood(&socket, EVENTS).await;
        // What its first client did not read is there in part, and the rest is reported.
        let mut lost = 0;
        while lost == 0 {
            if let to_client::Message::Gap(gap) = clients[0].hear().await.unwrap() {
                let gap = gap.gap.unwrap();
                assert_eq!(gap.reason(), ftb_proto::v1::GapReason::Shed, "{gap:?}");
                lost = gap.count();
            }
        }
        lost
    });
    let mut most = 0;
    while !user.is_finished() {
        most = most.max(own_kib(pid).unwrap_or_else(|error| panic!("{error}: {}", cluster.logs())));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let lost = user.join().unwrap();
    stop.send(()).unwrap();
    let read = other.join().unwrap();
    let more = most.saturating_sub(before) / 1024;
    println!("{more} MiB at most, {lost} events in the first gap, the other user read {read}");
    assert!(more * 1024 <= USER_KIB_MAX, "the agent took {more} MiB more");
    assert!(read > 0);
}
