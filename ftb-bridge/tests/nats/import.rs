//! Alarms of the facility.

use super::site::{STREAM_BYTES, Site};
use anyhow::Result;
use async_nats::jetstream::{Context, stream};
use ftb_client::{
    Client, Condition, ConditionState, Conditions, Delivery, Received, Start, Truth, event,
};
use ftb_tests::cluster::Plan;
use futures_util::TryStreamExt as _;
use std::fs;

const IMPORT: &str = r#"
[import]
stream = "FACILITY"
subject = "dc.>"
racks = "racks.toml"
[[import.rule]]
subject = "dc.{rack}.leak.raised"
event = "FTB_FACILITY_LEAK"
severity = "error"
condition = "LEAK"
[[import.rule]]
subject = "dc.{rack}.leak.cleared"
event = "FTB_FACILITY_CLEARED"
severity = "info"
condition = "LEAK"
clear = true
"#;

async fn site() -> Result<(Site, Context)> {
    site_with(stream::Config::default()).await
}

/// With limits of the facility's stream.
async fn site_with(limits: stream::Config) -> Result<(Site, Context)> {
    let site = Site::new(Plan::new(2, 1)).await?;
    let context = site.connect().await?;
    let config = stream::Config {
        name: "FACILITY".to_owned(),
        subjects: vec!["dc.>".to_owned(), "other.>".to_owned()],
        max_bytes: STREAM_BYTES / 4,
        ..limits
    };
    context.create_stream(config).await?;
    fs::create_dir_all(site.cluster.dir().join("bridge0"))?;
    fs::write(site.cluster.dir().join("bridge0/racks.toml"), "r07 = \"node[01-02]\"\n")?;
    Ok((site, context))
}

/// Publishes an alarm; its sequence.
async fn raise(context: &Context, subject: &'static str, payload: &'static str) -> Result<u64> {
    Ok(context.publish(subject, payload.into()).await?.await?.sequence)
}

/// Names and durable consumers of the stream.
async fn consumers(context: &Context) -> Result<Vec<String>> {
    let stream = context.get_stream("FACILITY").await?;
    let mut names: Vec<String> = stream.consumer_names().try_collect().await?;
    names.sort();
    Ok(names)
}

async fn wait_consumers(site: &Site, context: &Context, before: &[String]) -> Vec<String> {
    let changed = site.wait("the consumer", async || {
        let names = consumers(context).await?;
        Ok((names.len() == 1 && names != before).then_some(names))
    });
    changed.await.unwrap()
}

/// Waits until this number of hosts has a leak.
async fn leaks(site: &Site, client: &Client, wanted: usize) {
    let leaking = site.wait("the leaks", async || {
        let mut conditions = Conditions::open(client, "condition=LEAK").await?;
        conditions.load().await?;
        let holds = conditions.states().filter(|state| state.truth == Truth::True).count();
        Ok((holds == wanted).then_some(()))
    });
    leaking.await.unwrap();
}

/// All events of alarms so far.
async fn facility(client: &Client) -> Vec<Received> {
    let mut past = client.subscribe("event_space=ftb.facility", Start::SinceNs(0)).await.unwrap();
    let mut found = Vec::new();
    while let Some(delivery) = past.next_of_past().await {
        match delivery {
            // What the bridge says of itself is of no alarm.
            Delivery::Event(received) if received.event.tag("node").is_none() => {}
            Delivery::Event(received) => found.push(*received),
            Delivery::Gap(gap) => panic!("{gap:?}"),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_sets_a_condition_on_each_host_of_its_rack_and_its_end_clears_it() {
    let (mut site, context) = site().await.unwrap();
    site.start_bridge(0, 1, IMPORT).unwrap();
    wait_consumers(&site, &context, &[]).await;
    let client = site.client(0).unwrap();
    let time = "2026-11-28T12:00:00Z";
    raise(&context, "dc.r99.leak.raised", "unknown rack").await.unwrap();
    raise(&context, "dc.r07.smoke", "no rule").await.unwrap();
    raise(&context, "dc.r07.leak.raised", r#"{"time":"2026-11-28T12:00:00Z"}"#).await.unwrap();
    leaks(&site, &client, 2).await;
    let mut watches = Conditions::open(&client, "condition=WATCHED").await.unwrap();
    watches.load().await.unwrap();
    let is_watch = |state: &&ConditionState| state.subject.component() == "ftb.bridge";
    assert_eq!(watches.states().find(is_watch).map(|state| state.truth), Some(Truth::True));
    assert_eq!(facility(&client).await[0].event.tag("alarm_time"), Some(time));
    // The alarm is over while no bridge is there, and an alarm and its end keep their order.
    site.kill_bridge(0).unwrap();
    for subject in ["dc.r07.leak.cleared", "dc.r07.leak.raised", "dc.r07.leak.cleared"] {
        raise(&context, subject, "").await.unwrap();
    }
    site.start_bridge(0, 1, IMPORT).unwrap();
    leaks(&site, &client, 0).await;
    site.wait("all alarms", async || Ok((site.state(0).import.imported == 3).then_some(())))
        .await
        .unwrap();
    let truths: Vec<Truth> = facility(&client)
        .await
        .iter()
        .filter(|received| received.event.tag("node") == Some("node02"))
        .map(|received| received.stated.as_ref().unwrap().condition.truth)
        .collect();
    assert_eq!(truths, [Truth::True, Truth::False, Truth::True, Truth::False]);
    // The first bridge has counted the unreadable ones, and they do not come again.
    assert_eq!(site.state(0).import.unreadable, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_is_imported_once_also_if_its_consumer_is_replaced() {
    let (mut site, context) = site().await.unwrap();
    let client = site.client(0).unwrap();
    // A bridge that died between the events of an alarm and its acknowledgement.
    let mut stream = context.get_stream("FACILITY").await.unwrap();
    let created = stream.info().await.unwrap().created.unix_timestamp();
    let published = event("ftb.facility", "FTB_FACILITY_LEAK").unwrap();
    let published = published.tag("node", "node01").tag("alarm", format!("FACILITY.{created}.1"));
    client.publish(published).unwrap().confirmed().await.unwrap();
    site.start_bridge(0, 0, IMPORT).unwrap();
    let first = wait_consumers(&site, &context, &[]).await;
    raise(&context, "dc.r07.leak.raised", "").await.unwrap();
    let imported = async |site: &Site, count| {
        let done = async || Ok((site.state(0).import.imported == count).then_some(()));
        site.wait("the import", done).await.unwrap();
    };
    imported(&site, 1).await;
    let nodes = |events: &[Received]| {
        events.iter().map(|e| e.event.tag("node").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&facility(&client).await), ["node01", "node02"]);
    // Another subject, and back: the stale consumer goes, nothing is imported again or left out.
    site.kill_bridge(0).unwrap();
    site.start_bridge(0, 0, &IMPORT.replace("\"dc.>\"", "\"dc.*.leak.*\"")).unwrap();
    let second = wait_consumers(&site, &context, &first).await;
    site.kill_bridge(0).unwrap();
    raise(&context, "dc.r07.leak.cleared", "").await.unwrap();
    site.start_bridge(0, 0, IMPORT).unwrap();
    assert_eq!(wait_consumers(&site, &context, &second).await, first);
    imported(&site, 1).await;
    let all = facility(&client).await;
    assert_eq!(nodes(&all), ["node01", "node02", "node01", "node02"]);
}

/// All agents end, and with them the log: only the facility's stream still knows of the leak.
#[tokio::test(flavor = "multi_thread")]
async fn a_leak_that_the_cluster_has_lost_is_stated_again_and_no_other() {
    let (mut site, context) = site().await.unwrap();
    let racks = "r07 = \"node[01-02]\"\nr08 = \"node02\"\nr09 = \"node01\"\n";
    fs::write(site.cluster.dir().join("bridge0/racks.toml"), racks).unwrap();
    // From before the first start: it is not imported, and so not stated again.
    raise(&context, "dc.r09.leak.old.raised", "old").await.unwrap();
    let rules = IMPORT.replace("dc.{rack}.leak", "dc.{rack}.leak.{component}");
    site.start_bridge(0, 0, &rules).unwrap();
    wait_consumers(&site, &context, &[]).await;
    raise(&context, "dc.r07.leak.one.raised", "").await.unwrap();
    raise(&context, "dc.r08.leak.two.raised", "").await.unwrap();
    raise(&context, "dc.r08.leak.two.cleared", "").await.unwrap();
    site.wait("the import", async || Ok((site.state(0).import.imported == 3).then_some(())))
        .await
        .unwrap();
    leaks(&site, &site.client(0).unwrap(), 2).await;
    // What a person has cleared stays so for the next bridge.
    let by_hand = |truth| Condition {
        host: "node01".to_owned(),
        component: "one".to_owned(),
        is_kept: true,
        ..Condition::new("LEAK", truth)
    };
    let client = site.client(0).unwrap();
    let cleared = event("site.ops", "FIXED").unwrap().condition(by_hand(Truth::False));
    client.publish(cleared).unwrap().confirmed().await.unwrap();
    leaks(&site, &client, 1).await;
    site.kill_bridge(0).unwrap();
    site.start_bridge(0, 0, &rules).unwrap();
    // It reads alarms when it has looked for lost ones.
    raise(&context, "dc.r08.leak.two.raised", "").await.unwrap();
    leaks(&site, &client, 2).await;
    let rows = async |client: &Client| {
        let mut conditions = Conditions::open(client, "condition=LEAK").await.unwrap();
        conditions.load().await.unwrap();
        let holding = conditions.states().filter(|state| state.truth == Truth::True);
        holding.map(|state| state.subject.to_string()).collect::<Vec<_>>()
    };
    let before = rows(&client).await;
    assert!(before.iter().all(|row| row.starts_with("node02 ")), "{before:?}");
    site.kill_bridge(0).unwrap();
    drop(client);
    for rank in 0..2 {
        site.cluster.crash(rank).unwrap();
    }
    for rank in 0..2 {
        site.cluster.run(rank).unwrap();
    }
    site.cluster.wait_whole().await.unwrap();
    let client = site.client(0).unwrap();
    assert_eq!(rows(&client).await, [""; 0], "the log was in memory");
    // The end of an alarm waits to be imported.
    raise(&context, "dc.r08.leak.two.cleared", "").await.unwrap();
    site.start_bridge(0, 0, &rules).unwrap();
    // The person's word is lost too: the facility's counts.
    leaks(&site, &client, 2).await;
    site.wait("the end", async || Ok((site.state(0).import.imported == 1).then_some(())))
        .await
        .unwrap();
    assert_eq!(rows(&client).await, ["node01 one LEAK", "node02 one LEAK"]);
    let all = facility(&client).await;
    let of_rack = all.iter().filter(|received| received.event.tag("rack") == Some("r08"));
    let truths = of_rack.map(|received| received.stated.as_ref().unwrap().condition.truth);
    assert_eq!(truths.collect::<Vec<_>>(), [Truth::False], "an alarm that is over is not stated");
}

/// The server gives no second consumer, by which the bridge would look for lost conditions.
#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_imported_also_where_nothing_can_be_stated_again() {
    let limits = stream::Config { max_consumers: 1, ..stream::Config::default() };
    let (mut site, context) = site_with(limits).await.unwrap();
    site.start_bridge(0, 0, IMPORT).unwrap();
    wait_consumers(&site, &context, &[]).await;
    raise(&context, "dc.r07.leak.raised", "").await.unwrap();
    leaks(&site, &site.client(0).unwrap(), 2).await;
}
