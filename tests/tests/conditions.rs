//! What is wrong now, with real agents and publishers that are killed.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Condition, Conditions, Health, Severity, Truth, event};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary, wait_for};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const TIMES: &str = "[detection]\nsearch = \"300ms\"\npublisher = \"1s\"\n";

fn client(socket: &Path) -> Client {
    Client::builder("test").agent(socket).build().unwrap()
}

async fn state(publisher: &Client, condition: Condition) {
    let event = event("ftb.ipmi", "FTB_TEST").unwrap().severity(Severity::Error);
    let receipt = publisher.publish(event.condition(condition)).unwrap();
    receipt.confirmed().await.unwrap();
}

/// The health of a host as an agent says it.
async fn health(socket: &Path, host: &str) -> Option<Health> {
    let reader = client(socket);
    reader.wait_connected(PATIENCE).await.ok()?;
    let mut conditions = Conditions::open(&reader, &format!("subject={host}")).await.ok()?;
    conditions.load().await.ok()?;
    Some(conditions.health(host))
}

fn ftbctl(cluster: &Cluster, rank: usize, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    let output = command.arg("--agent").arg(cluster.socket(rank)).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text.into_owned())
}

/// A failed fan stays known, or becomes unknown, and never looks well: its publisher, root and
/// standby, and its agent die one after the other.
#[tokio::test]
async fn a_failed_fan_never_looks_well_when_agents_are_killed() {
    let mut cluster = Plan::new(5, 2).extra(TIMES).start().await.unwrap();
    let publisher = client(cluster.socket(4));
    publisher.wait_connected(PATIENCE).await.unwrap();
    state(&publisher, Condition::watch("node99", "ftb.ipmi")).await;
    let reader = cluster.socket(3).to_owned();
    assert!(matches!(health(&reader, "node99").await, Some(Health::Healthy { .. })));
    let fan = |truth| Condition {
        host: "node99".to_owned(),
        component: "FAN 1".to_owned(),
        ..Condition::new("FANFAIL", truth)
    };
    state(&publisher, fan(Truth::True)).await;
    for killed in [0, 1, 4] {
        cluster.crash(killed).unwrap();
        let end = Instant::now() + std::time::Duration::from_secs(4);
        while Instant::now() < end {
            match health(&reader, "node99").await {
                Some(Health::Healthy { .. } | Health::NotWatched) => panic!("{killed} was killed"),
                Some(Health::Unhealthy { .. } | Health::Unknown { .. }) | None => {}
            }
        }
        cluster.run(killed).unwrap();
        cluster.wait_whole().await.unwrap();
        // The client library states it again to its agent.
        let known = async || {
            let found = health(&reader, "node99").await;
            Ok(matches!(found, Some(Health::Unhealthy { .. })).then_some(()))
        };
        wait_for("the failed fan", known).await.unwrap();
    }
    drop(publisher);
    let unknown = async || {
        let found = health(&reader, "node99").await;
        assert!(!matches!(found, Some(Health::Healthy { .. } | Health::NotWatched)), "{found:?}");
        Ok(matches!(found, Some(Health::Unknown { .. })).then_some(()))
    };
    wait_for("unknown after the publisher is gone", unknown).await.unwrap();
}

/// What a person does, with ftbctl.
#[tokio::test]
async fn conditions_are_set_shown_and_cleared_on_the_command_line() {
    let cluster = Plan::new(2, 2).extra(TIMES).start().await.unwrap();
    let node = cluster.host(1).to_owned();
    let publish = |words: &[&str]| {
        let words = [&["publish", "ftb.ipmi", "FTB_TEST", "-s", "error", "--host", &node], words];
        ftbctl(&cluster, 0, &words.concat())
    };
    let (code, text) = ftbctl(&cluster, 0, &["health", &node]);
    assert_eq!((code, text.contains("no publisher watches it")), (2, true), "{text}");
    let disk = ["--condition", "DISK_BAD", "--component", "sda", "--action", "replace"];
    assert_eq!(publish(&disk).0, 0);
    let (code, text) = ftbctl(&cluster, 1, &["health", &node]);
    assert_eq!((code, text.contains("sda DISK_BAD (ERROR), recommended: replace")), (1, true));
    let (code, text) = ftbctl(&cluster, 1, &["conditions", &node, "--json"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &shown["key"], &shown["state"]), (0, &"DISK_BAD".into(), &"true".into()));
    let waits = ftbctl(&cluster, 1, &["conditions", "--wait-clear", "--timeout", "300ms"]);
    assert_eq!(waits.0, 3, "{}", waits.1);
    assert_eq!(publish(&["--condition", "DISK_BAD=clear", "--component", "sda"]).0, 0);
    assert_eq!(publish(&["--condition", "WATCHED", "--component", "test"]).0, 0);
    let (code, text) = ftbctl(&cluster, 1, &["health", &node]);
    assert_eq!((code, text.contains("healthy: watched by test")), (0, true), "{text}");
    assert_eq!(ftbctl(&cluster, 1, &["conditions", "--wait-clear", "--timeout", "5s"]).0, 0);
    let (code, text) = ftbctl(&cluster, 1, &["health", "no host"]);
    assert_eq!((code, text.contains("no host name")), (2, true), "{text}");
    let (code, text) =
        ftbctl(&cluster, 0, &["publish", "app.x", "X", "--condition", "HEAT", "--host", "node98"]);
    assert_eq!((code, text.contains("another host, node98")), (1, true), "{text}");
}
