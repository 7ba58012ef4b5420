//! Events as JSON lines, for `ftb-ib --print`.

use ftb_core::Event;
use serde_json::{Map, Value, json};

/// One event as one line of JSON, without the line's end.
pub fn json_line(event: &Event) -> String {
    let tags: Map<String, Value> =
        event.tags.iter().map(|tag| (tag.key.clone(), Value::from(tag.value.clone()))).collect();
    json!({
        "space": event.space.as_str(),
        "name": event.name.as_str(),
        "severity": event.severity.as_str(),
        "time_ns": event.time_ns,
        "payload": String::from_utf8_lossy(&event.payload),
        "tags": tags,
    })
    .to_string()
}
