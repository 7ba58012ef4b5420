//! The body of a request: OTLP in its JSON encoding (ids in hex, 64-bit numbers as texts, enums as
//! numbers).

use super::{Closed, Fault};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// `SPAN_KIND_INTERNAL`
const INTERNAL: u8 = 1;
/// `STATUS_CODE_OK`, `STATUS_CODE_ERROR`
const STATUS_CODES: (u8, u8) = (1, 2);
/// The span between the fault and the first phase.
const DECIDE: &str = "decide";
/// Tags of the closing event that become attributes of the episode, under `ftb.` and their name.
const TAGS: [&str; 6] = ["kind", "outcome", "choice", "why", "cause", "rule"];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: &'a str,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<&'a str>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Value>,
    status: Value,
}

/// Writes the traces of one cluster.
#[derive(Clone, Debug)]
pub struct TraceEncoder {
    cluster: String,
}

impl TraceEncoder {
    /// For a cluster.
    pub fn new(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned() }
    }

    /// The request with the trace of an episode.
    ///
    /// # Errors
    /// It cannot be written as JSON: a defect.
    pub fn request(
        &self,
        closed: &Closed<'_>,
        fault: Option<&Fault>,
    ) -> serde_json::Result<String> {
        let received = closed.received;
        let trace = hex(16, &[&self.cluster, &received.id.to_string()]);
        let resource = [
            text("service.name", "ftb-launch"),
            text("host.name", &received.host),
            text("ftb.cluster", &self.cluster),
        ];
        let scope = json!({"name": "ftb-bridge", "version": env!("CARGO_PKG_VERSION")});
        let spans = spans(closed, fault, &trace);
        serde_json::to_string(&json!({"resourceSpans": [{
            "resource": {"attributes": resource},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]}))
    }
}

/// The span of the episode, then those of its stages.
fn spans<'a>(closed: &Closed<'a>, fault: Option<&'a Fault>, trace: &'a str) -> Vec<Value> {
    let event = &closed.received.event;
    let episode = span_id(trace, 0);
    let mut stages = Vec::new();
    let mut at_ns = fault.map_or(closed.began_ns, |fault| fault.time_ns);
    let began_ns = at_ns;
    // A stage has the same number, and with it the same id, whether the fault was found or not.
    let decided = fault.map(|_| (1, (DECIDE, closed.began_ns.saturating_sub(at_ns))));
    let phases = closed.phases.iter().map(|(phase, ms)| (*phase, ms.saturating_mul(1_000_000)));
    for (number, (name, ns)) in decided.into_iter().chain((2..).zip(phases)) {
        let until_ns = at_ns.saturating_add(ns);
        stages.push(Span {
            trace_id: trace,
            span_id: span_id(trace, number),
            parent_span_id: Some(&episode),
            name,
            kind: INTERNAL,
            start_time_unix_nano: at_ns.to_string(),
            end_time_unix_nano: until_ns.to_string(),
            attributes: Vec::new(),
            events: Vec::new(),
            status: json!({}),
        });
        at_ns = until_ns;
    }
    let root = Span {
        trace_id: trace,
        span_id: episode.clone(),
        parent_span_id: None,
        name: event.tag("kind").unwrap_or("episode"),
        kind: INTERNAL,
        start_time_unix_nano: began_ns.to_string(),
        end_time_unix_nano: event.time_ns.max(began_ns).to_string(),
        attributes: attributes(closed),
        events: fault.map(fault_seen).into_iter().collect(),
        status: status(closed),
    };
    let all = std::iter::once(&root).chain(&stages);
    all.map(|span| json!(span)).collect()
}

fn attributes(closed: &Closed<'_>) -> Vec<Value> {
    let received = closed.received;
    let event = &received.event;
    let mut attributes = vec![
        text("ftb.job", &event.job_id),
        text("ftb.event", &received.id.to_string()),
        json!({"key": "ftb.uid", "value": {"intValue": received.uid.to_string()}}),
    ];
    if let Some(episode) = event.tag("episode").and_then(|text| text.parse::<i64>().ok()) {
        let value = json!({"intValue": episode.to_string()});
        attributes.push(json!({"key": "ftb.episode", "value": value}));
    }
    let tags = TAGS.iter().filter_map(|key| Some((key, event.tag(key)?)));
    attributes.extend(tags.map(|(key, value)| text(&format!("ftb.{key}"), value)));
    attributes
}

fn status(closed: &Closed<'_>) -> Value {
    let event = &closed.received.event;
    match event.tag("outcome") {
        Some("done") => json!({"code": STATUS_CODES.0}),
        _ => {
            let why = String::from_utf8_lossy(&event.payload);
            json!({"code": STATUS_CODES.1, "message": why})
        }
    }
}

fn fault_seen(fault: &Fault) -> Value {
    json!({
        "timeUnixNano": fault.time_ns.to_string(),
        "name": "fault",
        "attributes": [text("ftb.event", &fault.id), text("ftb.name", &fault.name)],
    })
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn span_id(trace: &str, number: u64) -> String {
    hex(8, &[trace, &number.to_string()])
}

/// The beginning of a hash of texts. Its first bit is set: an id of zeros is no id.
fn hex(bytes: usize, texts: &[&str]) -> String {
    let hash = Sha256::digest(texts.join("\0"));
    let byte = |(index, byte): (usize, &u8)| format!("{:02x}", byte | u8::from(index == 0) << 7);
    hash.iter().take(bytes).enumerate().map(byte).collect()
}
