//! Events as JSON objects: one form for every program that prints them.
//!
//! The names of the fields are documented in `docs/ftbctl.md` and stay; others may be added. An
//! event that was not published yet has no `position`, `id`, `host`, `uid` and `pid`.

use ftb_core::condition::Condition;
use ftb_core::{Event, EventKind, Tag};
use ftb_proto::event::Received;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

/// An event as an object, from a [`Received`] one or from one of the program's own.
#[derive(Serialize)]
pub struct EventObject<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    sealed: Option<Sealed<'a>>,
    time: String,
    time_ns: u64,
    count: u64,
    first_time_ns: u64,
    severity: &'static str,
    space: &'a str,
    name: &'a str,
    client: &'a str,
    job_id: &'a str,
    response: bool,
    response_to: Option<String>,
    tags: Tags<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<Statement<'a>>,
}

/// What an event states; after publishing also with what its agent has filled in.
#[derive(Serialize)]
struct Statement<'a> {
    host: &'a str,
    component: &'a str,
    key: &'a str,
    state: &'static str,
    severity: &'static str,
    action: &'static str,
    onset_ns: u64,
    /// `None`: never.
    expires_ms: Option<u32>,
    is_kept: bool,
    /// The event of the publisher, if an agent repeats it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The only statement that this one may replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
}

impl<'a> Statement<'a> {
    fn new(condition: &'a Condition, of: &Event) -> Self {
        Self {
            host: &condition.host,
            component: &condition.component,
            key: &condition.key,
            state: condition.truth.as_str(),
            severity: condition.severity.unwrap_or(of.severity).as_str(),
            action: condition.action.as_str(),
            onset_ns: condition.onset_ns,
            expires_ms: (condition.expires_ms > 0).then_some(condition.expires_ms),
            is_kept: condition.is_kept,
            source: None,
            replaces: None,
        }
    }
}

/// What publishing adds.
#[derive(Serialize)]
struct Sealed<'a> {
    position: String,
    id: String,
    host: &'a str,
    uid: u32,
    pid: u32,
    /// The agent has verified the signature of the publisher's host.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    verified: bool,
}

/// As an object; of a key that occurs twice the first counts, as in [`Event::tag`].
struct Tags<'a>(&'a [Tag]);

impl Serialize for Tags<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (number, tag) in self.0.iter().enumerate() {
            if !self.0[..number].iter().any(|earlier| earlier.key == tag.key) {
                map.serialize_entry(&tag.key, &tag.value)?;
            }
        }
        map.end()
    }
}

impl<'a> From<&'a Event> for EventObject<'a> {
    fn from(event: &'a Event) -> Self {
        let payload = core::str::from_utf8(&event.payload);
        let (response, response_to) = match event.kind {
            EventKind::Normal => (false, None),
            EventKind::Response(to) => (true, to.map(|id| id.to_string())),
        };
        // Any 64-bit count of nanoseconds lies before the year 2555, which can be formatted.
        let moment = UNIX_EPOCH + Duration::from_nanos(event.time_ns);
        Self {
            r#type: "event",
            sealed: None,
            time: humantime::format_rfc3339_nanos(moment).to_string(),
            time_ns: event.time_ns,
            count: 1,
            first_time_ns: event.time_ns,
            severity: event.severity.as_str(),
            space: event.space.as_str(),
            name: event.name.as_str(),
            client: &event.client_name,
            job_id: &event.job_id,
            response,
            response_to,
            tags: Tags(&event.tags),
            payload: payload.ok(),
            payload_hex: payload.is_err().then(|| hex(&event.payload)),
            condition: event.condition.as_ref().map(|condition| Statement::new(condition, event)),
        }
    }
}

impl<'a> From<&'a Received> for EventObject<'a> {
    fn from(received: &'a Received) -> Self {
        let sealed = Sealed {
            position: received.position.to_string(),
            id: received.id.to_string(),
            host: &received.host,
            uid: received.uid,
            pid: received.pid,
            verified: received.is_verified,
        };
        let plain = Self::from(&received.event);
        let (count, first_time_ns) = match received.folded {
            Some(folded) => (folded.count, folded.first_ns),
            None => (plain.count, plain.first_time_ns),
        };
        let condition = received.stated.as_ref().map(|stated| Statement {
            source: stated.provenance.source.map(|id| id.to_string()),
            replaces: stated.provenance.replaces.map(|id| id.to_string()),
            ..Statement::new(&stated.condition, &received.event)
        });
        Self { sealed: Some(sealed), count, first_time_ns, condition, ..plain }
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event;

    #[test]
    fn an_event_that_was_not_published_has_what_its_publisher_said() {
        let event = event("my.space", "DISK_FULL")
            .unwrap()
            .tag("disk", "/scratch")
            .tag("disk", "/tmp")
            .payload(&b"\xff\x00"[..])
            .build();
        let object = serde_json::to_value(EventObject::from(&event)).unwrap();
        assert_eq!((&object["type"], &object["name"]), (&"event".into(), &"DISK_FULL".into()));
        assert_eq!(object["tags"], serde_json::json!({"disk": "/scratch"}));
        assert_eq!(object["payload_hex"], "ff00");
        for absent in ["payload", "position", "id", "host", "condition"] {
            assert_eq!(object.get(absent), None, "{absent}");
        }
    }
}
