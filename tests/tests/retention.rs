//! What is left of the log for a reader that comes late, with real agents: the severe events, and
//! exact numbers for the others.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, EventBuilder, Gap, Severity, Start, Subscription, event};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tokio::time::timeout;

const QUEUE_BYTES: usize = 256 << 10;
/// 1 MiB in memory is some 2,000 of the events of these tests.
const LIMITS: &str = "[detection]\nsearch = \"300ms\"\n[limits]\nlog_bytes = 2097152\n";

fn client(socket: &Path) -> Client {
    Client::builder("test").agent(socket).queue_bytes(QUEUE_BYTES).build().unwrap()
}

fn said(space: &str, severity: Severity) -> EventBuilder {
    event(space, "SAID").unwrap().severity(severity).payload("x".repeat(200))
}

async fn publish(publisher: &Client, events: impl Iterator<Item = EventBuilder>) {
    for event in events {
        drop(publisher.publish_wait(event).await.unwrap());
    }
    publisher.flush(PATIENCE).await.unwrap();
}

/// Everything up to an event of that space: events by severity, and gaps.
async fn read_to(
    subscription: &mut Subscription,
    last: &str,
) -> (BTreeMap<Severity, u64>, Vec<Gap>, u64) {
    let (mut events, mut gaps) = (BTreeMap::new(), Vec::new());
    loop {
        match timeout(PATIENCE, subscription.next()).await.unwrap().unwrap() {
            Delivery::Gap(gap) => gaps.push(gap),
            Delivery::Event(received) if received.event.space.as_str() == last => {
                return (events, gaps, received.position.index.get());
            }
            Delivery::Event(received) => *events.entry(received.event.severity).or_insert(0) += 1,
        }
    }
}

/// A live program that reads nothing for a while, beside an agent without a journal.
#[tokio::test]
async fn a_reader_that_stalls_loses_info_first_and_hears_exact_counts() {
    const EVENTS: u64 = 30_000;
    let cluster = Plan::new(1, 2).extra(LIMITS).start().await.unwrap();
    let (publisher, reader) = (client(cluster.socket(0)), client(cluster.socket(0)));
    let mut subscription = reader.subscribe("", Start::Now).await.unwrap();
    let begin = subscription.position().index;
    let severity = |number: u64| match number % 100 {
        0 => Severity::Fatal,
        50 => Severity::Error,
        _ => Severity::Info,
    };
    publish(&publisher, (0..EVENTS).map(|number| said("app.load", severity(number)))).await;
    publish(&publisher, [said("app.end", Severity::Info)].into_iter()).await;
    let (events, gaps, last) = read_to(&mut subscription, "app.end").await;
    let of = |severity| events.get(&severity).copied().unwrap_or(0);
    assert!(of(Severity::Fatal) >= EVENTS / 100, "{events:?}");
    assert!(of(Severity::Error) >= EVENTS / 100, "{events:?}");
    assert!(gaps.iter().all(|gap| gap.count.is_some() && gap.severity_max == Some(Severity::Info)));
    let lost: u64 = gaps.iter().filter_map(|gap| gap.count).sum();
    assert!(lost > EVENTS / 4, "only {lost} events are missing: nothing was tried");
    assert_eq!(lost + events.values().sum::<u64>(), last - begin.get() - 1, "the counts are exact");
}

fn look_back(socket: &Path, args: &[&str]) -> Vec<String> {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.arg("--agent").arg(socket).args(["events", "--since", "1h", "-n", "1000000"]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

async fn flooded(extra: &str) -> Cluster {
    const FLOOD: u64 = 30_000;
    let cluster = Plan::new(1, 2).extra(extra).start().await.unwrap();
    // The process runs as the agent's user, who may publish there.
    let publisher = client(cluster.socket(0));
    publish(&publisher, (0..10).map(|_| said("ftb.ipmi", Severity::Fatal))).await;
    publish(&publisher, (0..FLOOD).map(|_| said("app.flood", Severity::Fatal))).await;
    cluster
}

/// A user's flood of FATAL events does not erase the faults of the hardware, and a look-back says
/// what is missing.
async fn look_back_finds_the_fault(extra: &str) {
    let cluster = flooded(extra).await;
    let lines = look_back(cluster.socket(0), &["--json"]);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let real = lines.iter().filter(|line| line["space"] == "ftb.ipmi").count();
    assert_eq!(real, 10);
    let gaps: Vec<&Value> = lines.iter().filter(|line| line["type"] == "gap").collect();
    assert!(gaps.iter().all(|gap| gap["severity_max"] == "FATAL"), "{gaps:?}");
    assert!(gaps.iter().any(|gap| gap["count"].as_u64() > Some(1_000)), "{gaps:?}");
    let shown = look_back(cluster.socket(0), &["event_space=app.flood"]);
    assert!(shown.iter().any(|line| line.starts_with("GAP: ") && line.contains("fatal")));
}

#[tokio::test]
async fn a_flood_of_fatal_events_does_not_erase_the_faults_of_the_hardware_from_memory() {
    look_back_finds_the_fault(LIMITS).await;
}

#[tokio::test]
async fn a_flood_of_fatal_events_does_not_erase_the_faults_of_the_hardware_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let table = format!("[journal]\npath = \"{}\"\nbytes = 2097152\n", journal.display());
    look_back_finds_the_fault(&format!("{LIMITS}{table}")).await;
}

#[tokio::test]
async fn a_look_back_that_reaches_its_start_shows_no_gap() {
    let cluster = Plan::new(1, 2).extra(LIMITS).start().await.unwrap();
    let publisher = client(cluster.socket(0));
    publish(&publisher, (0..10).map(|_| said("app.load", Severity::Info))).await;
    let lines = wait_for("the look-back", async || {
        let lines = look_back(cluster.socket(0), &["event_space=app.load"]);
        Ok((lines.len() >= 10).then_some(lines))
    });
    assert!(lines.await.unwrap().iter().all(|line| !line.starts_with("GAP")));
}
