//! The client library against real agents: what is published comes out once, in order, while
//! agents die under publisher and subscriber.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, Severity, Start, Subscription, WaitError, blocking, event};
use ftb_tests::cluster::{Cluster, PATIENCE, wait_for};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

const FILTER: &str = "event_space=ftb.test.count";

fn client(socket: &Path) -> Client {
    Client::builder("test").agent(socket).build().unwrap()
}

fn counted(number: u64) -> ftb_client::EventBuilder {
    event("ftb.test.count", "NUMBER").unwrap().payload(number.to_string())
}

fn number_of(delivery: Option<Delivery>) -> u64 {
    match delivery {
        Some(Delivery::Event(received)) => {
            String::from_utf8_lossy(&received.event.payload).parse().unwrap()
        }
        other => panic!("{other:?} is no event"),
    }
}

async fn flush(publisher: &Client) {
    if let Err(error) = publisher.flush(PATIENCE).await {
        panic!("{error}: {:?}", publisher.stats());
    }
}

async fn next(subscription: &mut Subscription) -> u64 {
    number_of(timeout(PATIENCE, subscription.next()).await.unwrap())
}

/// Promise 3 as one program sees it: each matching event exactly once, in the publisher's order,
/// across the death of its own agent and of the publisher's.
#[tokio::test]
async fn each_event_arrives_once_and_in_order_while_agents_die() {
    const EVENTS: u64 = 3000;
    let mut cluster = Cluster::start(5, 2).await.unwrap();
    let (publisher, subscriber) = (client(cluster.socket(4)), client(cluster.socket(3)));
    let mut subscription = subscriber.subscribe(FILTER, Start::Now).await.unwrap();
    let publishing = tokio::spawn({
        let publisher = publisher.clone();
        async move {
            for number in 0..EVENTS {
                let _ = publisher.publish_wait(counted(number)).await.unwrap();
                if number % 50 == 0 {
                    flush(&publisher).await;
                }
            }
            flush(&publisher).await;
            publisher.close(PATIENCE).await.unwrap();
        }
    });
    for expected in 0..EVENTS {
        let Ok(delivery) = timeout(PATIENCE, subscription.next()).await else {
            let mut agents = Vec::new();
            for rank in 0..cluster.len() {
                agents.push(cluster.status(rank).await);
            }
            panic!("no {expected}: {:?}\n{}\n{agents:#?}", subscriber.stats(), cluster.logs());
        };
        assert_eq!(number_of(delivery), expected);
        // Three times each, while the next ones are under way.
        if expected % 1000 == 300 {
            cluster.crash(4).unwrap();
            cluster.run(4).unwrap();
        }
        if expected % 1000 == 700 {
            cluster.crash(3).unwrap();
            cluster.run(3).unwrap();
        }
    }
    publishing.await.unwrap();
    assert_eq!(subscription.try_next(), None);
    assert_eq!(publisher.stats().confirmed, EVENTS);
    assert_eq!(publisher.stats().shed, [0; 4]);
    assert_eq!(subscriber.stats().gaps, 0);
    assert!(publisher.stats().attachments >= 2 && subscriber.stats().attachments >= 2);
}

/// A reader that sleeps is paused, slows no other reader, and then catches up from the log.
#[tokio::test]
async fn a_slow_reader_catches_up_and_slows_no_other() {
    const EVENTS: u64 = 500;
    let cluster = Cluster::start(3, 2).await.unwrap();
    let slow_client =
        Client::builder("slow").agent(cluster.socket(2)).queue_bytes(10_000).build().unwrap();
    let mut slow = slow_client.subscribe(FILTER, Start::Now).await.unwrap();
    let mut quick = slow_client.subscribe(FILTER, Start::Now).await.unwrap();
    let publisher = client(cluster.socket(1));
    for number in 0..EVENTS {
        let _ = publisher.publish(counted(number)).unwrap();
        assert_eq!(next(&mut quick).await, number);
    }
    // Its own confirmations come through too.
    let receipt = slow_client.publish(counted(EVENTS)).unwrap();
    timeout(PATIENCE, receipt.confirmed()).await.unwrap().unwrap();
    assert!(slow_client.stats().paused > 0);
    for number in 0..=EVENTS {
        assert_eq!(next(&mut slow).await, number);
    }
    assert_eq!(slow_client.stats().gaps, 0);
}

/// "Subscribe means active": what is published anywhere after `subscribe` returned is delivered.
#[tokio::test]
async fn a_subscription_is_active_everywhere_when_it_is_returned() {
    let cluster = Cluster::start(5, 2).await.unwrap();
    let publishers: Vec<_> = (0..5).map(|rank| client(cluster.socket(rank))).collect();
    for publisher in &publishers {
        publisher.wait_connected(PATIENCE).await.unwrap();
    }
    for round in 0..20 {
        let subscriber = client(cluster.socket(round % 5));
        let filter = format!("event_space=ftb.test.round{round}");
        let mut subscription = subscriber.subscribe(&filter, Start::Now).await.unwrap();
        let space = format!("ftb.test.round{round}");
        for publisher in &publishers {
            let _ = publisher.publish(event(&space, "NOW").unwrap().payload("1")).unwrap();
        }
        for _ in &publishers {
            assert_eq!(next(&mut subscription).await, 1);
        }
    }
}

/// A publisher's agent that is not there yet is no reason to lose or to reorder anything.
#[tokio::test]
async fn a_client_that_is_there_before_its_agent_loses_nothing() {
    let mut cluster = Cluster::start(3, 2).await.unwrap();
    cluster.stop(2).await.unwrap();
    let subscriber = client(cluster.socket(1));
    let mut subscription = subscriber.subscribe(FILTER, Start::Now).await.unwrap();
    let publisher = client(cluster.socket(2));
    for number in 0..100 {
        let _ = publisher.publish(counted(number).severity(Severity::Warning)).unwrap();
    }
    assert!(!publisher.connected());
    cluster.run(2).unwrap();
    for number in 0..100 {
        assert_eq!(next(&mut subscription).await, number);
    }
    publisher.flush(PATIENCE).await.unwrap();
}

/// With pauses of an hour only the watch of the socket's folder brings a client back.
#[tokio::test]
async fn a_client_attaches_as_soon_as_its_agent_listens_again() {
    let hour = Duration::from_secs(3600);
    let mut cluster = Cluster::start(1, 2).await.unwrap();
    let client = Client::builder("test").agent(cluster.socket(0)).retry_max(hour).build().unwrap();
    client.wait_connected(PATIENCE).await.unwrap();
    for crashes in [false, true, true] {
        if crashes {
            cluster.crash(0).unwrap();
        } else {
            cluster.stop(0).await.unwrap();
        }
        let no_agent = wait_for("an attempt without an agent", async || {
            let tried = client.wait_connected(Duration::ZERO).await;
            Ok(matches!(tried, Err(WaitError::NoAgent { .. })).then_some(()))
        });
        no_agent.await.unwrap();
        cluster.run(0).unwrap();
        client.wait_connected(PATIENCE).await.unwrap();
    }
    assert_eq!(client.stats().attachments, 4);
}

#[test]
fn the_blocking_client_talks_to_a_real_agent() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::start(1, 2)).unwrap();
    let config = Client::builder("blocking").agent(cluster.socket(0)).config();
    let client = blocking::BlockingClient::connect(config).unwrap();
    let mut subscription = client.subscribe(FILTER, Start::Now, PATIENCE).unwrap();
    let receipt = client.publish(counted(7)).unwrap();
    let id = client.confirmed(receipt, PATIENCE).unwrap().unwrap();
    match subscription.next(PATIENCE).unwrap() {
        Some(Delivery::Event(received)) => {
            assert_eq!(received.id, id);
            assert_eq!(received.pid, std::process::id());
            assert_eq!(received.uid, nix::unistd::geteuid().as_raw());
            assert_eq!(received.event.client_name, "blocking");
        }
        other => panic!("{other:?} is no event"),
    }
    client.close(PATIENCE).unwrap();
    let gone = wait_for("the agent to forget the client", async || {
        Ok(cluster.status(0).await?.clients.is_empty().then_some(()))
    });
    runtime.block_on(gone).unwrap();
}
