#![allow(clippy::unwrap_used)]

use super::*;
use ftb_client::{Condition, Severity, Truth, event};
use ftb_core::OriginId;
use ftb_core::condition::Provenance;
use serde_json::Value;
use std::collections::BTreeSet;

const END_NS: u64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;

fn received(space: &str, name: &str, tags: &[(&str, &str)], time_ns: u64) -> Received {
    let mut event = event(space, name).unwrap().severity(Severity::Info);
    for (key, value) in tags {
        event = event.tag(*key, value);
    }
    let mut event = event.job_id("job-1").payload("ranks 2 moved").build();
    event.time_ns = time_ns;
    Received {
        position: "1-0:5".parse().unwrap(),
        id: "00000000000000010000000000000002.3".parse().unwrap(),
        host: "node01".to_owned(),
        uid: 1000,
        pid: 1,
        event,
        folded: None,
        stated: None,
        is_verified: false,
        is_counted: false,
    }
}

fn episode(outcome: &str) -> Received {
    let tags = [
        ("episode", "7"),
        ("kind", "migration"),
        ("outcome", outcome),
        ("phases", "leave=12 copy=30 join=x resume=8"),
        ("cause", "FTB_IPMI_FANFAIL of FAN 1 on node03"),
    ];
    received("ftb.jl", "FTB_JL_EPISODE", &tags, END_NS)
}

fn fan(node: &str, time_ns: u64) -> Received {
    received("ftb.ipmi", "FTB_IPMI_FANFAIL", &[("node", node)], time_ns)
}

fn spans(received: &Received, fault: Option<&Fault>) -> Vec<Value> {
    let closed = Closed::read(received).unwrap();
    let request = TraceEncoder::new("test").request(&closed, fault).unwrap();
    let request: Value = serde_json::from_str(&request).unwrap();
    request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn time(span: &Value, key: &str) -> u64 {
    span[key].as_str().unwrap().parse().unwrap()
}

/// Name, begin and end before the end of the episode, in milliseconds.
fn times(spans: &[Value]) -> Vec<(String, u64, u64)> {
    let before = |span: &Value, key: &str| (END_NS - time(span, key)) / MS;
    let all = spans.iter().map(|span| {
        let name = span["name"].as_str().unwrap().to_owned();
        (name, before(span, "startTimeUnixNano"), before(span, "endTimeUnixNano"))
    });
    all.collect()
}

fn expected(all: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    all.iter().map(|(name, from, until)| ((*name).to_owned(), *from, *until)).collect()
}

#[test]
fn an_episode_is_a_span_with_one_for_each_phase() {
    let spans = spans(&episode("done"), None);
    let wanted = [("migration", 50, 0), ("leave", 50, 38), ("copy", 38, 8), ("resume", 8, 0)];
    assert_eq!(times(&spans), expected(&wanted), "a phase that cannot be read is left out");
    let ids: BTreeSet<&str> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| id.len() == 16));
    assert!(spans.iter().all(|span| span["traceId"] == spans[0]["traceId"]));
    assert!(spans[1..].iter().all(|span| span["parentSpanId"] == spans[0]["spanId"]));
    assert_eq!(spans[0].get("parentSpanId"), None);
    assert_eq!(spans[0]["status"]["code"], 1);
}

#[test]
fn a_failed_episode_is_an_error_with_its_reason() {
    let spans = spans(&episode("failed"), None);
    assert_eq!(spans[0]["status"]["code"], 2);
    assert_eq!(spans[0]["status"]["message"], "ranks 2 moved");
}

#[test]
fn with_its_fault_an_episode_begins_there_and_has_a_decision() {
    let episode = episode("done");
    let closed = Closed::read(&episode).unwrap();
    let mut search = closed.fault().unwrap();
    assert_eq!(search.filter(), "event_name=FTB_IPMI_FANFAIL");
    let began = END_NS - 50 * MS;
    assert_eq!(search.since_ns(), began - FAULT_NS_MAX);
    for other in [
        fan("node02", began - 5 * MS),
        fan("node03", began - FAULT_NS_MAX - 1),
        fan("node03", began + 1),
        received("ftb.ipmi", "FTB_IPMI_FANOK", &[("node", "node03")], began - 1),
    ] {
        search.look(&other);
    }
    assert_eq!(search.clone().found(), None);
    search.look(&fan("node03", began - 400 * MS));
    search.look(&fan("node03", began - 100 * MS));
    let fault = search.clone().found().unwrap();
    let spans = spans(&episode, Some(&fault));
    assert_eq!(
        times(&spans[..3]),
        expected(&[("migration", 150, 0), ("decide", 150, 50), ("leave", 50, 38)])
    );
    let seen = &spans[0]["events"][0];
    assert_eq!((&seen["name"], time(seen, "timeUnixNano")), (&"fault".into(), began - 100 * MS));

    let mut stated = fan("node01", began - MS);
    stated.stated = Some(ftb_client::Stated {
        condition: Condition { host: "node03".into(), ..Condition::new("FANFAIL", Truth::True) },
        provenance: Provenance::direct(OriginId(1)),
    });
    search.look(&stated);
    assert_eq!(search.found().unwrap().time_ns, began - MS, "a condition names its host");
}

#[test]
fn the_same_episode_has_the_same_ids_and_no_other_has() {
    let (first, mut other) = (episode("done"), episode("done"));
    assert_eq!(spans(&first, None), spans(&first, None));
    other.id = "00000000000000010000000000000002.4".parse().unwrap();
    assert_ne!(spans(&first, None)[0]["traceId"], spans(&other, None)[0]["traceId"]);
    let closed = Closed::read(&first).unwrap();
    let of = |cluster: &str| TraceEncoder::new(cluster).request(&closed, None).unwrap();
    let trace = |request: &str| request.split("\"traceId\":\"").nth(1).unwrap()[..32].to_owned();
    assert_ne!(trace(&of("a")), trace(&of("b")));
}

#[test]
fn other_events_and_senseless_phases_are_no_defect() {
    assert_eq!(Closed::read(&fan("node03", END_NS)), None);
    let bare = received("ftb.jl", "FTB_JL_EPISODE", &[], 5);
    assert_eq!(spans(&bare, None).len(), 1);
    let many = "p=1 ".repeat(PHASES_MAX + 9);
    for phases in ["a=18446744073709551615 b=18446744073709551615", "= == a= =5", &*many] {
        let tags = [("phases", phases), ("cause", "no name"), ("episode", "x")];
        let odd = received("ftb.jl", "FTB_JL_EPISODE", &tags, 5);
        assert_eq!(Closed::read(&odd).unwrap().fault(), None);
        let spans = spans(&odd, None);
        assert!(spans.len() <= 1 + PHASES_MAX);
        let is_ordered =
            |span: &Value| time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano");
        assert!(spans.iter().all(is_ordered), "{spans:?}");
    }
}

#[test]
fn only_what_a_collector_may_take_later_is_sent_again() {
    let verdicts = [200, 202, 429, 503, 400, 404, 500].map(Reply::of);
    use Reply::{Again, Rejected, Taken};
    assert_eq!(verdicts, [Taken, Taken, Again, Again, Rejected, Rejected, Rejected]);
    assert_eq!([1, 2, 3, 7, u32::MAX].map(pause_ms), [200, 400, 800, 10_000, 10_000]);
}
