//! CloudEvents 1.0 in structured JSON: what is exported of an event and of a gap, and under which
//! subject.
//!
//! `data` has the fields of `ftbctl --json`. Not responsible for: when a message is sent
//! ([`crate::export`]).

use bytes::Bytes;
use ftb_client::json::{EventObject, GapObject};
use ftb_client::{Gap, Position, Received, Severity, Truth};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

/// The content type of a message.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";
/// Bytes that a message has beside its body: subject and headers.
const HEAD_BYTES_MAX: usize = 4_096;

/// A message of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Unique in all streams: `<source>/<id>`.
    pub id: String,
    /// Where it is published.
    pub subject: String,
    /// The CloudEvent.
    pub body: Bytes,
    /// Its place in the log of the cluster.
    pub position: Position,
}

/// Makes the messages of one cluster.
#[derive(Clone, Debug)]
pub struct Encoder {
    source: String,
    subject: String,
    body_bytes_max: usize,
}

/// The attributes; null ones are left out.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ftbseverity: Option<&'static str>,
    ftbposition: String,
    data: Map<String, Value>,
}

impl Encoder {
    /// For a cluster, and a server that takes messages of at most that many bytes.
    pub fn new(cluster: &str, message_bytes_max: usize) -> Self {
        Self {
            source: format!("/ftb/{}", escape(cluster)),
            subject: subject_of(cluster),
            body_bytes_max: message_bytes_max.saturating_sub(HEAD_BYTES_MAX),
        }
    }

    /// An event, or a statement about a condition. Of an event that is too large for the server,
    /// the payload is left out, and `payload_omitted` is its size.
    ///
    /// # Errors
    /// It cannot be written as JSON: a defect.
    pub fn event(&self, received: &Received) -> serde_json::Result<Message> {
        let event = &received.event;
        let id = format!("{}/{}", received.host, received.id);
        let stated = received.stated.as_ref();
        let mut cloud_event = CloudEvent {
            specversion: "1.0",
            id: &id,
            source: &self.source,
            r#type: if stated.is_some() { "ftb.condition" } else { "ftb.event" },
            subject: Some(stated.map_or(&received.host, |stated| &stated.condition.host)),
            time: Some(rfc3339(event.time_ns)),
            datacontenttype: "application/json",
            ftbseverity: Some(event.severity.as_str()),
            ftbposition: received.position.to_string(),
            data: fields(&EventObject::from(received))?,
        };
        let mut body = serde_json::to_vec(&cloud_event)?;
        if body.len() > self.body_bytes_max {
            let data = &mut cloud_event.data;
            data.remove("payload");
            data.remove("payload_hex");
            data.insert("payload_omitted".to_owned(), event.payload.len().into());
            body = serde_json::to_vec(&cloud_event)?;
        }
        let space = event.space.as_str().to_ascii_lowercase();
        let subject = format!("{}.{space}.{}", self.subject, event.name.as_str());
        Ok(self.message(&id, subject, body, received.position))
    }

    /// A gap. It stands at the last position that is missing.
    ///
    /// # Errors
    /// It cannot be written as JSON: a defect.
    pub fn gap(&self, gap: &Gap) -> serde_json::Result<Message> {
        let id = format!("gap/{}/{}", gap.after, gap.until);
        let body = serde_json::to_vec(&CloudEvent {
            specversion: "1.0",
            id: &id,
            source: &self.source,
            r#type: "ftb.gap",
            subject: None,
            time: None,
            datacontenttype: "application/json",
            ftbseverity: gap.severity_max.map(Severity::as_str),
            ftbposition: gap.until.to_string(),
            data: fields(&GapObject::from(gap))?,
        })?;
        Ok(self.message(&id, format!("{}.gap", self.subject), body, gap.until.max(gap.after)))
    }

    fn message(&self, id: &str, subject: String, body: Vec<u8>, position: Position) -> Message {
        Message { id: format!("{}/{id}", self.source), subject, body: body.into(), position }
    }
}

fn fields(object: &impl Serialize) -> serde_json::Result<Map<String, Value>> {
    match serde_json::to_value(object)? {
        Value::Object(fields) => Ok(fields),
        other => Ok(Map::from_iter([("value".to_owned(), other)])),
    }
}

fn rfc3339(time_ns: u64) -> String {
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(time_ns)).to_string()
}

/// What the subjects of a cluster begin with.
pub fn subject_of(cluster: &str) -> String {
    format!("ftb.{}", escape(cluster))
}

/// A text as one token of a subject and as a part of a URI: bytes other than letters, digits, `_`
/// and `-` become `%XX`.
pub fn escape(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => escaped.push(byte.into()),
            // Writing to a String cannot fail.
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
        escaped
    })
}

/// Which events are exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// By event space, the mildest severity or `None`; the longest match decides.
    pub spaces: Vec<(String, Option<Severity>)>,
    /// The mildest severity in all other spaces; `None`: they are not exported.
    pub elsewhere: Option<Severity>,
}

impl Choice {
    /// Whether an event is exported. The end of a condition is as important as its beginning: the
    /// severity of a statement that it does not hold, or is unknown, does not count.
    pub fn wants(&self, received: &Received) -> bool {
        let space = received.event.space.as_str().as_bytes();
        let lies_in =
            |(above, _): &&(String, Option<Severity>)| ftb_core::space::lies_in(space, above);
        let longest = self.spaces.iter().filter(lies_in).max_by_key(|(above, _)| above.len());
        let Some(least) = longest.map_or(self.elsewhere, |(_, least)| *least) else {
            return false;
        };
        let ends = received.stated.as_ref().is_some_and(|s| s.condition.truth != Truth::True);
        ends || received.event.severity >= least
    }
}

#[cfg(test)]
mod tests;
