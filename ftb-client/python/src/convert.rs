//! Values between the two halves: plain tuples, which the Python half gives names.

use crate::error::Trouble;
use ftb_client::{Event, EventId, EventKind, Gap, Position, Received, Severity, Start, Tag};
use std::borrow::Cow;

/// Position, id, host, uid, pid; and what the publisher said: space, name, severity, payload, tags,
/// time in Unix nanoseconds, client name, job id, whether it is a response, and to what.
pub(crate) type ReceivedParts = (
    (String, String, String, u32, u32),
    (
        String,
        String,
        &'static str,
        Cow<'static, [u8]>,
        Vec<(String, String)>,
        u64,
        String,
        String,
        bool,
        Option<String>,
    ),
);

pub(crate) fn received_parts(received: &Received) -> ReceivedParts {
    let event = &received.event;
    let (is_response, response_to) = match event.kind {
        EventKind::Normal => (false, None),
        EventKind::Response(to) => (true, to.map(|id| id.to_string())),
    };
    let sealed = (
        received.position.to_string(),
        received.id.to_string(),
        received.host.clone(),
        received.uid,
        received.pid,
    );
    let said = (
        event.space.as_str().to_owned(),
        event.name.as_str().to_owned(),
        event.severity.as_str(),
        Cow::Owned(event.payload.to_vec()),
        event.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
        event.time_ns,
        event.client_name.clone(),
        event.job_id.clone(),
        is_response,
        response_to,
    );
    (sealed, said)
}

/// Between which positions, why, how many (0: unknown), the worst, in which event spaces (`None`:
/// any).
pub(crate) type GapParts =
    (String, String, &'static str, u64, Option<&'static str>, Option<Vec<String>>);

pub(crate) fn gap_parts(gap: &Gap) -> GapParts {
    let worst = gap.severity_max.map(Severity::as_str);
    let names = gap.spaces.names();
    let spaces = names.map(|names| names.iter().map(|name| name.as_str().to_owned()).collect());
    (gap.after.to_string(), gap.until.to_string(), gap.reason.as_str(), gap.count, worst, spaces)
}

/// What is to be published, as it comes from Python.
#[derive(pyo3::FromPyObject)]
pub(crate) struct EventParts {
    space: String,
    name: String,
    severity: String,
    payload: Vec<u8>,
    tags: Vec<(String, String)>,
    time_ns: u64,
    job_id: String,
    response_to: Option<String>,
}

impl EventParts {
    pub(crate) fn into_event(self) -> Result<Event, Trouble> {
        let wrong = |error: &dyn std::fmt::Display| Trouble::new("event", error);
        let space = self.space.parse().map_err(|error| wrong(&error))?;
        let name = self.name.parse().map_err(|error| wrong(&error))?;
        let mut event = Event::new(space, name);
        event.severity = self.severity.parse().map_err(|error| wrong(&error))?;
        event.payload = self.payload.into();
        event.tags = self.tags.into_iter().map(|(key, value)| Tag { key, value }).collect();
        event.time_ns = self.time_ns;
        event.job_id = self.job_id;
        if let Some(id) = self.response_to {
            let id: EventId = id.parse().map_err(|error| wrong(&error))?;
            event.kind = EventKind::Response(Some(id));
        }
        Ok(event)
    }
}

/// Where a subscription starts: behind a position, with a Unix time, or now.
pub(crate) fn start(after: Option<&str>, since_ns: Option<u64>) -> Result<Start, Trouble> {
    match (after, since_ns) {
        (Some(after), _) => {
            let position = after.parse::<Position>();
            let position = position.map_err(|error| Trouble::new("subscribe", error))?;
            Ok(Start::After(position))
        }
        (None, Some(since_ns)) => Ok(Start::SinceNs(since_ns)),
        (None, None) => Ok(Start::Now),
    }
}
