//! Levels of confirmations: what a publisher that wants its events on disk learns, and what a power
//! failure of acting root and standby leaves.

use crate::common::{MemoryCluster, payloads_of};
use ftb_proto::v1::to_client;
use ftb_proto::v1::{ConfirmLevel, GapReason};
use std::time::Duration;

const BATCH: &str = "confirm = \"disk\"\n[journal]\npath = \"/journal\"\nfsync = \"batch\"\n";
const INTERVAL: &str =
    "confirm = \"disk\"\n[journal]\npath = \"/journal\"\nfsync = \"interval:100ms\"\n";
const NEVER_SYNCED: &str =
    "confirm = \"disk\"\n[journal]\npath = \"/journal\"\nfsync = \"interval:1h\"\n";
const IN_MEMORY: &str = "[journal]\npath = \"/journal\"\nfsync = \"interval:1h\"\n";
const BATCH_IN_MEMORY: &str = "[journal]\npath = \"/journal\"\nfsync = \"batch\"\n";
const NO_JOURNAL: &str = "confirm = \"disk\"\n";

/// All agents end at once, and the disks lose what they may lose.
async fn power_fails(cluster: &mut MemoryCluster, agents: usize) {
    let disks: Vec<_> = cluster.hosts.iter().map(|host| cluster.network.disk(host)).collect();
    let disks = &disks[..agents];
    disks.iter().for_each(|disk| disk.set_unsyncable(true));
    (0..agents).for_each(|rank| cluster.crash(rank));
    // What the writers had begun ends.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for disk in disks {
        disk.set_unsyncable(false);
        disk.power_failure_that_takes_all_it_may();
    }
    for rank in 0..agents {
        cluster.run(rank).await;
    }
}

/// The payloads of the log and how many gaps of lost entries it has, up to that payload.
async fn log_until(cluster: &MemoryCluster, payload: &str) -> (Vec<String>, usize) {
    let mut watcher = cluster.client(0, "watcher").await;
    watcher.subscribe_from_the_beginning(1, "event_space=site").await;
    let (mut payloads, mut gaps) = (Vec::new(), 0);
    while !payloads.iter().any(|seen| seen == payload) {
        match watcher.hear().await.expect("the stream goes on") {
            to_client::Message::Deliver(deliver) => {
                payloads.extend(deliver.items.into_iter().flat_map(payloads_of));
            }
            to_client::Message::Gap(gap) => {
                let gap = gap.gap.unwrap();
                gaps += usize::from(gap.reason() == GapReason::LogLost);
            }
            _ => {}
        }
    }
    (payloads, gaps)
}

/// Publishes until acting root and standby have both synced an event; then many more.
async fn on_both_disks(cluster: &MemoryCluster) -> Vec<String> {
    let mut publisher = cluster.client(2, "publisher").await;
    let mut all = Vec::new();
    loop {
        let payload = format!("event {}", all.len());
        let last = publisher.publish("site", &[&payload]).await;
        all.push(payload);
        if publisher.confirmed(last).await == ConfirmLevel::Disk && all.len() >= 40 {
            return all;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_confirmed_on_disk_survives_a_power_failure_of_all() {
    for journal in [BATCH, INTERVAL] {
        let mut cluster = MemoryCluster::start_with(3, 2, journal).await;
        let confirmed = on_both_disks(&cluster).await;
        power_fails(&mut cluster, 3).await;
        let (found, _) = log_until(&cluster, confirmed.last().unwrap()).await;
        let missing: Vec<_> = confirmed.iter().filter(|one| !found.contains(one)).collect();
        assert!(missing.is_empty(), "{missing:?} were confirmed on disk");
    }
}

/// With one sync an hour, two agents forget what they confirmed in memory: a gap says so.
#[tokio::test(start_paused = true)]
async fn what_is_confirmed_in_memory_and_lost_with_both_is_reported_as_a_gap() {
    let mut cluster = MemoryCluster::start_with(2, 2, IN_MEMORY).await;
    let mut publisher = cluster.client(0, "publisher").await;
    // The first is synced with the checkpoint.
    let last = publisher.publish("site", &["kept"]).await;
    publisher.confirmed(last).await;
    let last = publisher.publish("site", &["lost"]).await;
    assert_eq!(publisher.confirmed(last).await, ConfirmLevel::Unspecified);
    power_fails(&mut cluster, 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut publisher = cluster.client(0, "publisher").await;
    // The same publisher: it goes on counting.
    publisher.next_seq = last + 1;
    publisher.publish("site", &["later"]).await;
    let (found, gaps) = log_until(&cluster, "later").await;
    assert!(!found.contains(&"lost".to_owned()), "{found:?}");
    assert!(gaps > 0, "no gap in {found:?}");
}

/// Acting root and standby confirm before either has written: the power fails in that moment.
#[tokio::test(start_paused = true)]
async fn what_no_disk_had_when_the_power_failed_is_reported_in_each_mode() {
    for journal in [BATCH_IN_MEMORY, IN_MEMORY] {
        let mut cluster = MemoryCluster::start_with(2, 2, journal).await;
        let disks: Vec<_> = cluster.hosts.iter().map(|host| cluster.network.disk(host)).collect();
        let mut publisher = cluster.client(0, "publisher").await;
        let last = publisher.publish("site", &["kept"]).await;
        publisher.confirmed(last).await;
        // The journals are at rest.
        tokio::time::sleep(Duration::from_secs(60)).await;
        disks.iter().for_each(|disk| disk.remember());
        let last = publisher.publish("site", &["lost"]).await;
        publisher.confirmed(last).await;
        (0..2).for_each(|rank| cluster.crash(rank));
        // What the writers had begun ends.
        tokio::time::sleep(Duration::from_secs(1)).await;
        disks.iter().for_each(|disk| disk.power_failed_then());
        for rank in 0..2 {
            cluster.run(rank).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut publisher = cluster.client(0, "publisher").await;
        publisher.next_seq = last + 1;
        publisher.publish("site", &["later"]).await;
        let (found, gaps) = log_until(&cluster, "later").await;
        assert_eq!(found, ["kept", "later"], "{journal}");
        assert!(gaps > 0, "{journal}: no gap in {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_level_that_cannot_be_had_is_named() {
    for journal in [NEVER_SYNCED, NO_JOURNAL] {
        let cluster = MemoryCluster::start_with(2, 2, journal).await;
        let mut publisher = cluster.client(1, "publisher").await;
        let last = publisher.publish("site", &["one"]).await;
        assert_eq!(publisher.confirmed(last).await, ConfirmLevel::Memory, "{journal}");
    }
    let lone = MemoryCluster::start_with(1, 2, BATCH).await;
    let mut publisher = lone.client(0, "publisher").await;
    let last = publisher.publish("site", &["one"]).await;
    assert_eq!(publisher.confirmed(last).await, ConfirmLevel::OneDisk);
}
