//! Events that are confirmed on disk, with real agents and disks.
#![allow(clippy::unwrap_used)]

use ftb_client::{Client, ConfirmLevel, Delivery, EventId, EventRef, Start, event};
use ftb_tests::cluster::{Cluster, Plan};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Acting root, standby and one more agent; the first `journals` have a disk.
async fn cluster(journals: usize) -> Cluster {
    let mut cluster = Plan::new(3, 2).prepare().unwrap();
    for rank in 0..journals {
        let folder = cluster.dir().join("journals").join(cluster.host(rank));
        std::fs::create_dir_all(&folder).unwrap();
        let mut file = OpenOptions::new().append(true).open(cluster.config(rank)).unwrap();
        writeln!(file, "[journal]\npath = \"{}\"\nfsync = \"batch\"", folder.display()).unwrap();
    }
    for rank in 0..3 {
        cluster.run(rank).unwrap();
    }
    cluster.wait_whole().await.unwrap();
    cluster.wait_safe().await.unwrap();
    cluster
}

fn client(cluster: &Cluster, rank: usize) -> Client {
    Client::builder("confirm-test").agent(cluster.socket(rank)).build().unwrap()
}

/// Publishes for a while, as fast as confirmations come. Gives what was confirmed on both disks.
async fn publish(client: &Client, level: ConfirmLevel, time: Duration) -> BTreeSet<EventId> {
    let publisher = client.confirming(level);
    let sample = event("site.confirm", "SAMPLE").unwrap().build();
    let (begin, mut confirmed) = (Instant::now(), BTreeSet::new());
    let mut events = 0_u32;
    while begin.elapsed() < time {
        let mut batch = publisher.batch();
        for _ in 0..256 {
            batch.push(EventRef { payload: &[7; 100], ..EventRef::from(&sample) }).unwrap();
        }
        for receipt in batch.publish_wait().await.unwrap() {
            let (id, reached) = receipt.confirmed_level().await.unwrap();
            events += 1;
            if reached >= level {
                confirmed.insert(id);
            }
        }
    }
    let rate = f64::from(events) / begin.elapsed().as_secs_f64();
    println!("{events} events asked for {level}, {} reached it, {rate:.0}/s", confirmed.len());
    confirmed
}

/// `kill -9` of all agents at once, under load: each event that was confirmed on disk is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_confirmed_on_disk_is_there_after_all_agents_are_killed() {
    let mut cluster = cluster(2).await;
    let publisher = client(&cluster, 2);
    publisher.wait_connected(Duration::from_secs(60)).await.unwrap();
    publish(&publisher, ConfirmLevel::Memory, Duration::from_secs(1)).await;
    let confirmed = publish(&publisher, ConfirmLevel::Disk, Duration::from_secs(1)).await;
    assert!(confirmed.len() > 256, "only {} events reached both disks", confirmed.len());
    for rank in 0..3 {
        cluster.crash(rank).unwrap();
    }
    drop(publisher);
    for rank in 0..3 {
        cluster.run(rank).unwrap();
    }
    cluster.wait_whole().await.unwrap();
    let reader = client(&cluster, 0);
    let mut log = reader.subscribe("event_space=site.confirm", Start::SinceNs(1)).await.unwrap();
    let mut missing = confirmed;
    let read = async {
        while !missing.is_empty() {
            match log.next().await {
                Some(Delivery::Event(found)) => drop(missing.remove(&found.id)),
                Some(Delivery::Gap(gap)) => println!("{gap:?}"),
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(120), read).await;
    assert!(missing.is_empty(), "{} are missing\n{}", missing.len(), cluster.logs());
}

/// Where not both have a disk, the receipt names the level.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receipt_names_the_level_that_was_reached() {
    for (journals, expected) in
        [(0, ConfirmLevel::Memory), (1, ConfirmLevel::OneDisk), (2, ConfirmLevel::Disk)]
    {
        let cluster = cluster(journals).await;
        let client = client(&cluster, 2);
        let sample = event("site.confirm", "SAMPLE").unwrap();
        let receipt = client.confirming(ConfirmLevel::Disk).publish(sample).unwrap();
        let (_, level) = receipt.confirmed_level().await.unwrap();
        assert_eq!(level, expected, "{journals} journals");
    }
}
