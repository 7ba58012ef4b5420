//! The bridge between a real cluster of agents and a real NATS server.

#![allow(clippy::unwrap_used, missing_docs)]

mod import;
mod site;
mod tls;

use ftb_client::{Client, Condition, Conditions, EventBuilder, Position, Severity, Truth, event};
use ftb_tests::cluster::{PATIENCE, Plan, wait_for};
use ftb_tests::python::{python_with, run};
use ftb_tests::skip::skip;
use site::{Site, Stored};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Events that the load publishes each 10 ms: 200 a second. `FTB_BRIDGE_LOAD=10`: 1,000 a second
/// (`make test-long`).
fn events_at_once() -> u64 {
    let load = std::env::var("FTB_BRIDGE_LOAD").ok();
    load.map_or(2, |load| load.parse().expect("FTB_BRIDGE_LOAD is a number of events"))
}

/// Events that the stream must get between two faults.
fn between() -> u64 {
    50 * events_at_once()
}

fn said(number: u64) -> EventBuilder {
    event("site.load", "SAID").unwrap().tag("n", number)
}

/// Publishes events at a steady rate until it is stopped; gives their number.
struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

impl Load {
    fn start(client: Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let published = AtomicU64::new(0);
        let task = tokio::spawn(async move {
            let at_once = events_at_once();
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                for _ in 0..at_once {
                    let number = published.fetch_add(1, Ordering::Relaxed);
                    drop(client.publish_wait(said(number)).await.unwrap());
                }
            }
            client.flush(PATIENCE).await.unwrap();
            published.into_inner()
        });
        Self { stop, task }
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

fn number_of(stored: &Stored) -> Option<u64> {
    stored.json()["data"]["tags"]["n"].as_str()?.parse().ok()
}

/// Waits until the last event of a load is in the stream, then expects each event once, in order.
async fn assert_each_once(site: &Site, published: u64) {
    let n = (published - 1).to_string();
    let context = site.connect().await.unwrap();
    site.wait("the last event", async || {
        let Ok(stream) = context.get_stream(site::STREAM).await else { return Ok(None) };
        let last = stream.get_last_raw_message_by_subject("ftb.test.site.load.SAID").await;
        let Ok(last) = last else { return Ok(None) };
        let body: serde_json::Value = serde_json::from_slice(&last.payload)?;
        Ok((body["data"]["tags"]["n"] == n.as_str()).then_some(()))
    })
    .await
    .unwrap();
    let stored = site.stored().await.unwrap();
    let numbers: Vec<u64> = stored.iter().filter_map(number_of).collect();
    let wrong = numbers.iter().zip(0..).find(|(found, wanted)| **found != *wanted);
    assert_eq!(wrong, None, "a number and what stands in its place");
    assert_eq!(numbers.len() as u64, published);
    let ids: BTreeSet<&str> = stored.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids.len(), stored.len(), "ids are unique");
    let position = |stored: &Stored| stored.json()["ftbposition"].as_str().unwrap().to_owned();
    let positions: Vec<Position> = stored.iter().map(|s| position(s).parse().unwrap()).collect();
    assert!(positions.is_sorted(), "in the order of the log");
    assert!(stored.iter().all(|message| !message.subject.ends_with(".gap")), "no gap");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_in_the_stream_once_whatever_is_killed() {
    let mut site = Site::new(Plan::new(2, 1)).await.unwrap();
    site.cluster.wait_safe().await.unwrap();
    site.make_stream().await.unwrap();
    let load = Load::start(site.client(0).unwrap());
    site.start_bridge(0, 1, "").unwrap();
    site.grown(between()).await.unwrap();
    for round in 0..3 {
        for victim in ["bridge", "nats-server", "agent", "bridge and nats-server"] {
            if victim.contains("bridge") {
                site.kill_bridge(0).unwrap();
            }
            if victim.contains("nats-server") {
                site.kill_nats().unwrap();
                site.start_nats().unwrap();
            }
            if victim == "agent" {
                site.cluster.crash(1).unwrap();
                site.cluster.run(1).unwrap();
            }
            if victim.contains("bridge") {
                site.start_bridge(0, 1, "").unwrap();
            }
            println!("round {round}: {victim} killed");
            site.grown(between()).await.unwrap();
        }
    }
    let published = load.stop().await;
    assert_each_once(&site, published).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_bridges_one_is_on_standby_and_takes_over() {
    let mut site = Site::new(Plan::new(2, 1)).await.unwrap();
    site.make_stream().await.unwrap();
    let load = Load::start(site.client(0).unwrap());
    for number in 0..2 {
        site.start_bridge(number, number, "").unwrap();
    }
    let is_active = |site: &Site, number| site.state(number).is_active;
    let active = site
        .wait("one active bridge", async || {
            let active = [0, 1].map(|number| is_active(&site, number));
            let met = [0, 1].map(|number| site.state(number).export.conflicts > 0);
            let one = active[0] != active[1] && (met[0] || met[1]);
            Ok(one.then_some(usize::from(active[1])))
        })
        .await
        .unwrap();
    site.grown(between()).await.unwrap();
    site.kill_bridge(active).unwrap();
    let before = site.state(1 - active).export.exported;
    site.wait("the other bridge", async || {
        let state = site.state(1 - active);
        Ok((state.is_active && state.export.exported > before + between()).then_some(()))
    })
    .await
    .unwrap();
    let published = load.stop().await;
    assert_each_once(&site, published).await;
}

/// Events that are far more than this log holds.
const EVENTS: u64 = 30_000;
const SMALL_LOG: &str = "[detection]\nsearch = \"300ms\"\n[limits]\nlog_bytes = 2097152\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_exported_and_the_cloudevents_sdk_parses_every_kind() {
    let mut site = Site::new(Plan::new(1, 1).extra(SMALL_LOG)).await.unwrap();
    site.start_bridge(0, 0, "").unwrap();
    let client = site.client(0).unwrap();
    let fan = Condition { component: "FAN 1".to_owned(), ..Condition::new("FANFAIL", Truth::True) };
    let stated = event("ftb.ipmi", "FTB_IPMI_FANFAIL").unwrap().severity(Severity::Error);
    let _ = client.publish(stated.condition(fan)).unwrap();
    let _ = client.publish(said(0).payload(vec![0xff, 0])).unwrap();
    let is_first = |body: &serde_json::Value| body["data"]["tags"]["n"] == "0";
    site.find("the first event", is_first).await.unwrap();
    site.kill_bridge(0).unwrap();
    for number in 1..EVENTS {
        let event = said(number).payload("x".repeat(400));
        drop(client.publish_wait(event).await.unwrap());
    }
    client.flush(PATIENCE).await.unwrap();
    site.start_bridge(0, 0, "").unwrap();
    let is_gap = |body: &serde_json::Value| body["type"] == "ftb.gap";
    let gap = site.find("the gap", is_gap).await.unwrap();
    let missing = gap["data"]["count"].as_u64().unwrap();
    assert_eq!(gap["data"]["reason"], "retention");
    let last = (EVENTS - 1).to_string();
    let is_last = |body: &serde_json::Value| body["data"]["tags"]["n"] == last.as_str();
    site.find("the last event", is_last).await.unwrap();
    let stored = site.stored().await.unwrap();
    let numbers: BTreeSet<u64> = stored.iter().filter_map(number_of).collect();
    assert_eq!(numbers.len() as u64 + missing, EVENTS, "no event is missing silently");
    let lines: Vec<u8> =
        stored.iter().flat_map(|message| [&message.body[..], b"\n"].concat()).collect();
    let file = site.cluster.dir().join("events");
    std::fs::write(&file, lines).unwrap();
    let package = ["cloudevents>=2.2,<3"];
    let python = match python_with("cloudevents", "cloudevents.core.v1.event", &package) {
        Ok(python) => python,
        Err(why) => return skip(why.trim()),
    };
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parse.py")).arg(&file);
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    for kind in ["ftb.condition=", "ftb.event=", "ftb.gap="] {
        assert!(text.contains(kind), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_stream_is_left_alone_and_status_says_where_the_bridge_is() {
    let mut site = Site::new(Plan::new(1, 1)).await.unwrap();
    let context = site.connect().await.unwrap();
    let config = async_nats::jetstream::stream::Config {
        name: site::STREAM.to_owned(),
        subjects: vec!["other.>".to_owned()],
        max_bytes: site::STREAM_BYTES,
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    site.start_bridge(0, 0, "").unwrap();
    site.wait("failures", async || Ok((site.state(0).export.failures > 1).then_some(())))
        .await
        .unwrap();
    assert!(!site.state(0).is_active);
    context.delete_stream(site::STREAM).await.unwrap();
    let client = site.client(0).unwrap();
    let _ = client.publish(said(0)).unwrap();
    wait_for("the event", async || Ok((site.state(0).export.exported > 0).then_some(())))
        .await
        .unwrap();
    let mut status = Command::new(env!("CARGO_BIN_EXE_ftb-bridge"));
    status.arg("status").arg("--config").arg(site.cluster.dir().join("bridge0/bridge.toml"));
    let output = status.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("cluster   test (active, "), "{text}");
    run(status.arg("--json"), "ftb-bridge status --json").unwrap();
}

/// Whether the bridge's own condition holds, and what it says.
async fn unreachable(client: &Client) -> Option<String> {
    let mut conditions = Conditions::open(client, "condition=NATS_UNREACHABLE").await.unwrap();
    conditions.load().await.unwrap();
    let mut holding = conditions.states().filter(|state| state.truth == Truth::True);
    holding.next().map(|state| format!("{}: {}", state.subject, state.message))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_for_a_minute_is_a_condition_until_it_is_back() {
    let mut site = Site::new(Plan::new(1, 1)).await.unwrap();
    let client = site.client(0).unwrap();
    site.start_bridge(0, 0, "").unwrap();
    let _ = client.publish(said(0)).unwrap();
    let is_number = |body: &serde_json::Value, n: &str| body["data"]["tags"]["n"] == n;
    site.find("the first event", |body| is_number(body, "0")).await.unwrap();
    assert_eq!(unreachable(&client).await, None);
    site.kill_nats().unwrap();
    let gone = Instant::now();
    let said_so = site.wait("the condition", async || Ok(unreachable(&client).await)).await;
    let said_so = said_so.unwrap();
    assert!(said_so.contains("ftb-bridge") && said_so.contains("NATS"), "{said_so}");
    // A server may be restarted: a minute is borne.
    assert!(gone.elapsed() >= Duration::from_secs(55), "after {:?}", gone.elapsed());
    // The file is written each second.
    site.wait("the state", async || Ok(site.state(0).problem.map(drop))).await.unwrap();
    let mut status = Command::new(env!("CARGO_BIN_EXE_ftb-bridge"));
    status.arg("status").arg("--config").arg(site.cluster.dir().join("bridge0/bridge.toml"));
    let output = status.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    site.start_nats().unwrap();
    let _ = client.publish(said(1)).unwrap();
    site.find("the second event", |body| is_number(body, "1")).await.unwrap();
    let ended =
        site.wait("its end", async || Ok(unreachable(&client).await.is_none().then_some(())));
    ended.await.unwrap();
    let is_well = async || Ok(site.state(0).problem.is_none().then_some(()));
    site.wait("the state", is_well).await.unwrap();
    assert!(status.status().unwrap().success());
}
