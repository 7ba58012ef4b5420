//! Agents that end, with kill -9 or with their host, and what their next life goes on with.

use crate::common::process::agent;
use crate::common::{MemoryCluster, until};
use crate::{Publisher, numbers, read_log, start, write_config};
use ftb_core::node::TreeRole;
use ftb_proto::v1::{self, to_agent, to_client};
use std::time::Duration;

/// Six lives under load, each ended by kill -9 while events are under way: after each everything
/// that was confirmed is there, and in the end everything is there once and in order.
#[tokio::test]
async fn kill_9_under_load_loses_nothing_and_doubles_nothing() {
    for fsync in ["batch", "interval:100ms"] {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let extra = format!("fsync = \"{fsync}\"\n");
        let mut publisher = Publisher { published: 0, confirmed: 0 };
        for life in 0..6 {
            let process = start(dir.path(), &journal, &extra);
            let mut client = process.client().await;
            publisher.again(&mut client).await;
            let mut goal = publisher.confirmed;
            for _ in 0..20 + life {
                publisher.publish(&mut client, 50).await;
                publisher.beyond(&mut client, goal).await;
                goal = publisher.confirmed;
            }
            // These may be logged or not, and confirmed or not.
            publisher.publish(&mut client, 500).await;
            process.kill();
        }
        let process = start(dir.path(), &journal, &extra);
        let mut client = process.client().await;
        publisher.again(&mut client).await;
        publisher.publish(&mut client, 1).await;
        let last = publisher.published;
        publisher.beyond(&mut client, last - 1).await;
        drop(client);
        let seqs = read_log(&process, last).await;
        assert_eq!(seqs, (1..=last).collect::<Vec<u64>>(), "fsync = {fsync}");
    }
}

/// Memory holds a little of the log, the disk all of it: a request for all of it gets all of it,
/// and who resumes from long ago gets what it has not had, once and in order; after kill -9 too.
#[tokio::test]
async fn what_memory_has_given_up_is_read_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let extra = "fsync = \"interval:1h\"\n[limits]\nlog_bytes = 262144\n";
    let process = start(dir.path(), &journal, extra);
    let mut client = process.client().await;
    let mut publisher = Publisher { published: 0, confirmed: 0 };
    client.subscribe(1, "event_space=site.load").await;
    publisher.publish(&mut client, 100).await;
    let (_, early) = numbers(&mut client, 100).await;
    drop(client);
    let mut client = process.client().await;
    for _ in 0..30 {
        publisher.publish(&mut client, 1_000).await;
        let behind = publisher.published - 1_000;
        publisher.beyond(&mut client, behind).await;
    }
    let last = publisher.published;
    publisher.beyond(&mut client, last - 1).await;
    drop(client);
    let all: Vec<u64> = (1..=last).collect();
    // Not `assert_eq`: the message would have thirty thousand numbers.
    assert!(read_log(&process, last).await == all, "not all, once and in order");
    process.kill();
    let process = start(dir.path(), &journal, extra);
    assert!(read_log(&process, last).await == all, "not all, once and in order, after kill -9");
    let mut client = process.client().await;
    let start = early.map(v1::subscribe::Start::After);
    let filter = "event_space=site.load".to_owned();
    let wanted = v1::Subscribe { subscription: 1, filter, start, ..v1::Subscribe::default() };
    client.say(to_agent::Message::Subscribe(wanted)).await;
    let rest = numbers(&mut client, last).await.0;
    assert!(rest == all[100..], "not what followed the first hundred");
}

/// A position that was read before kill -9 is good afterwards: a subscriber goes on behind it.
#[tokio::test]
async fn a_subscriber_resumes_by_position_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    client.subscribe(1, "event_space=site").await;
    client.publish("site", &["a", "b", "c"]).await;
    let mut position = None;
    while position.is_none() {
        if let Some(to_client::Message::Deliver(deliver)) = client.hear().await {
            // Of the second of the three.
            let index = deliver.items[0].index + 1;
            let (epoch, epoch_root) = (deliver.epoch, deliver.epoch_root);
            position = Some(v1::Position { epoch, epoch_root, index });
        }
    }
    process.kill();
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    let start = position.map(v1::subscribe::Start::After);
    let filter = "event_space=site".to_owned();
    client
        .say(to_agent::Message::Subscribe(v1::Subscribe {
            subscription: 1,
            filter,
            start,
            ..v1::Subscribe::default()
        }))
        .await;
    assert_eq!(client.payloads(1).await, ["c"]);
}

#[tokio::test]
async fn the_journal_of_another_cluster_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    let last = client.publish("site", &["kept"]).await;
    client.confirmed(last).await;
    process.kill();
    let output = agent(&write_config(dir.path(), "other", &journal, "")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("it is the journal of cluster \"test\""), "{error}");
    let process = start(dir.path(), &journal, "");
    let mut client = process.client().await;
    client.subscribe_from_the_beginning(1, "event_space=site").await;
    assert_eq!(client.payloads(1).await, ["kept"]);
}

/// Only root and standby write; all agents are gone at once, and the log goes on.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_lost_power_goes_on_with_its_log() {
    let mut cluster = MemoryCluster::start_with(5, 2, "[journal]\npath = \"/journal\"\n").await;
    let role = async |cluster: &MemoryCluster, rank: usize| {
        cluster.agent(rank).handle().status().await.unwrap().node.role
    };
    until("a standby", async || role(&cluster, 1).await == TreeRole::Standby).await;
    let mut publisher = cluster.client(3, "publisher").await;
    let last = publisher.publish("site", &["a", "b", "c"]).await;
    publisher.confirmed(last).await;
    for writer in [0, 1] {
        let host = &cluster.hosts[writer];
        until("the disk", async || cluster.network.disk(host).segments() > 0).await;
    }
    for reader in [2, 3, 4] {
        let disk = cluster.network.disk(&cluster.hosts[reader]);
        assert_eq!(disk.segments(), 0, "only acting root and standby write");
    }
    // What both hold is on their disks a moment later.
    tokio::time::sleep(Duration::from_secs(1)).await;
    (0..5).for_each(|rank| cluster.crash(rank));
    // Their sockets are closed when their tasks have ended.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for rank in [4, 2, 1, 0, 3] {
        cluster.run(rank).await;
    }
    let mut subscriber = cluster.client(4, "subscriber").await;
    subscriber.subscribe_from_the_beginning(1, "event_space=site").await;
    assert_eq!(subscriber.payloads(3).await, ["a", "b", "c"]);
}
