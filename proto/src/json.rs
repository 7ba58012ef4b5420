//! Events, gaps, conditions and agents as JSON objects: one form for every program that prints
//! them.
//!
//! The names of the fields are documented in `proto/json.md` and stay; others may be added. An
//! event that was not published yet has no `position`, `id`, `host`, `uid` and `pid`.

use crate::condition_state::ConditionState;
use crate::event::Received;
use crate::v1;
use ftb_core::condition::Condition;
use ftb_core::node::api::Gap;
use ftb_core::{Event, EventKind, EventSpace, Position, Tag};
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
    /// Of the fold of a group: the hosts of all publishers.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<&'a str>,
    first_time_ns: u64,
    severity: &'static str,
    space: &'a str,
    name: &'a str,
    client: &'a str,
    job_id: &'a str,
    response: bool,
    response_to: Option<String>,
    tags: TagMap<'a>,
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
struct TagMap<'a>(&'a [Tag]);

impl Serialize for TagMap<'_> {
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
            hosts: None,
            first_time_ns: event.time_ns,
            severity: event.severity.as_str(),
            space: event.space.as_str(),
            name: event.name.as_str(),
            client: &event.client_name,
            job_id: &event.job_id,
            response,
            response_to,
            tags: TagMap(&event.tags),
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
        let (count, first_time_ns) = match &received.folded {
            Some(folded) => (folded.count, folded.first_ns),
            None => (plain.count, plain.first_time_ns),
        };
        let hosts = received.folded.as_ref().and_then(|folded| folded.hosts.as_deref());
        let condition = received.stated.as_ref().map(|stated| Statement {
            source: stated.provenance.source.map(|id| id.to_string()),
            replaces: stated.provenance.replaces.map(|id| id.to_string()),
            ..Statement::new(&stated.condition, &received.event)
        });
        Self { sealed: Some(sealed), count, hosts, first_time_ns, condition, ..plain }
    }
}

/// Events that are missing.
#[derive(Serialize)]
pub struct GapObject<'a> {
    r#type: &'static str,
    after: Option<String>,
    until: Option<String>,
    reason: &'static str,
    count: Option<u64>,
    severity_max: Option<&'static str>,
    spaces: Vec<&'a str>,
}

impl<'a> From<&'a Gap> for GapObject<'a> {
    fn from(gap: &'a Gap) -> Self {
        // Before the first entry of a log there is no position.
        let place = |position: Position| (position != Position::ZERO).then(|| position.to_string());
        let spaces = gap.spaces.names().unwrap_or_default();
        Self {
            r#type: "gap",
            after: place(gap.after),
            until: place(gap.until),
            reason: gap.reason.as_str(),
            count: gap.count,
            severity_max: gap.severity_max.map(|severity| severity.as_str()),
            spaces: spaces.iter().map(EventSpace::as_str).collect(),
        }
    }
}

/// A row of the table of conditions.
#[derive(Serialize)]
pub struct ConditionObject<'a> {
    r#type: &'static str,
    host: &'a str,
    component: &'a str,
    key: &'a str,
    state: &'static str,
    severity: &'static str,
    action: &'static str,
    onset_ns: u64,
    changed_ns: u64,
    /// `None`: never.
    expires_ms: Option<u32>,
    event: &'a str,
    source: String,
    publisher_host: &'a str,
    publisher_uid: u32,
    message: &'a str,
    position: String,
}

impl<'a> From<&'a ConditionState> for ConditionObject<'a> {
    fn from(state: &'a ConditionState) -> Self {
        Self {
            r#type: "condition",
            host: state.subject.host(),
            component: state.subject.component(),
            key: state.subject.key(),
            state: state.truth.as_str(),
            severity: state.severity.as_str(),
            action: state.action.as_str(),
            onset_ns: state.onset_ns,
            changed_ns: state.changed_ns,
            expires_ms: (state.expires_ms > 0).then_some(state.expires_ms),
            event: &state.event,
            source: state.source.to_string(),
            publisher_host: &state.publisher_host,
            publisher_uid: state.publisher_uid,
            message: &state.message,
            position: state.position.to_string(),
        }
    }
}

/// An agent of the tree.
#[derive(Serialize)]
pub struct AgentObject<'a> {
    r#type: &'static str,
    rank: u32,
    host: &'a str,
    state: &'static str,
    role: Option<&'static str>,
    parent: Option<u32>,
    origin: Option<String>,
    since_ns: Option<u64>,
}

impl<'a> From<&'a v1::TreeNode> for AgentObject<'a> {
    fn from(node: &'a v1::TreeNode) -> Self {
        Self {
            r#type: "node",
            rank: node.rank,
            host: &node.host,
            state: state_word(node.state()),
            role: node.role.map(|_| role_word(node.role())),
            parent: node.parent,
            origin: node.origin.map(|origin| format!("{origin:016x}")),
            since_ns: node.since_ns,
        }
    }
}

/// The word for the state of a member.
pub fn state_word(state: v1::MemberState) -> &'static str {
    match state {
        v1::MemberState::Up => "up",
        v1::MemberState::Moved => "moved",
        v1::MemberState::Suspect => "suspect",
        v1::MemberState::Lost => "lost",
        v1::MemberState::Dead => "dead",
        v1::MemberState::Absent => "absent",
        v1::MemberState::Unspecified => "unknown",
    }
}

/// The word for the role of an agent.
pub fn role_word(role: v1::AgentRole) -> &'static str {
    match role {
        v1::AgentRole::Root => "root",
        v1::AgentRole::Standby => "standby",
        v1::AgentRole::Member => "member",
        v1::AgentRole::Searching => "searching",
        v1::AgentRole::Unspecified => "unknown",
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
    use ftb_core::EventName;

    #[test]
    fn an_event_that_was_not_published_has_what_its_publisher_said() {
        let tag = |value: &str| Tag { key: "disk".to_owned(), value: value.to_owned() };
        let space = EventSpace::new("my.space").unwrap();
        let mut event = Event::new(space, EventName::new("DISK_FULL").unwrap());
        event.tags = vec![tag("/scratch"), tag("/tmp")];
        event.payload = (&b"\xff\x00"[..]).into();
        let object = serde_json::to_value(EventObject::from(&event)).unwrap();
        assert_eq!((&object["type"], &object["name"]), (&"event".into(), &"DISK_FULL".into()));
        assert_eq!(object["tags"], serde_json::json!({"disk": "/scratch"}));
        assert_eq!(object["payload_hex"], "ff00");
        for absent in ["payload", "position", "id", "host", "condition"] {
            assert_eq!(object.get(absent), None, "{absent}");
        }
    }
}
