//! Values between the two halves: plain tuples, which the Python half gives names.

use crate::error::Trouble;
use ftb_client::{
    Condition, ConditionState, Event, EventId, EventKind, Gap, Position, Received, Severity, Start,
    Tag,
};
use std::borrow::Cow;

/// Position, id, host, uid, pid; then space, name, severity, payload, tags, time in Unix
/// nanoseconds, client name, job id, whether it is a response, and to what; then the condition.
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
    Option<StatedParts>,
);

/// A condition as the agent verified it, the id of the event that stated it first, and that event's
/// space and name.
pub(crate) type StatedParts = (ConditionParts, String, String);

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
    let stated = ConditionState::of(received).map(|state| {
        let parts = ConditionParts {
            host: state.subject.host().to_owned(),
            component: state.subject.component().to_owned(),
            key: state.subject.key().to_owned(),
            state: state.truth.to_string(),
            action: state.action.to_string(),
            severity: Some(state.severity.as_str().to_owned()),
            onset_ns: state.onset_ns,
            expires_ms: state.expires_ms,
            kept: received.stated.as_ref().is_some_and(|stated| stated.condition.is_kept),
        };
        (parts, state.source.to_string(), state.event)
    });
    (sealed, said, stated)
}

/// A condition, in the order of the fields of the Python class.
#[derive(pyo3::FromPyObject, pyo3::IntoPyObject)]
pub(crate) struct ConditionParts {
    key: String,
    state: String,
    host: String,
    component: String,
    action: String,
    severity: Option<String>,
    onset_ns: u64,
    expires_ms: u32,
    kept: bool,
}

impl ConditionParts {
    fn into_condition(self) -> Result<Condition, Trouble> {
        let wrong = |error: &dyn std::fmt::Display| Trouble::new("event", error);
        let severity = self.severity.map(|word| word.parse()).transpose();
        Ok(Condition {
            host: self.host,
            component: self.component,
            truth: self.state.parse().map_err(|error| wrong(&error))?,
            action: self.action.parse().map_err(|error| wrong(&error))?,
            severity: severity.map_err(|error| wrong(&error))?,
            onset_ns: self.onset_ns,
            expires_ms: self.expires_ms,
            is_kept: self.kept,
            ..Condition::new(&self.key, ftb_client::Truth::Unknown)
        })
    }
}

/// Between which positions, why, how many and how bad (`None`: unknown), in which event spaces
/// (`None`: any).
pub(crate) type GapParts =
    (String, String, &'static str, Option<u64>, Option<&'static str>, Option<Vec<String>>);

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
    condition: Option<ConditionParts>,
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
        event.condition = self.condition.map(ConditionParts::into_condition).transpose()?;
        Ok(event)
    }
}

/// Where a subscription starts: with the table of conditions, behind a position, with a Unix time,
/// or now.
pub(crate) fn start(
    after: Option<&str>,
    since_ns: Option<u64>,
    conditions: bool,
) -> Result<Start, Trouble> {
    match (after, since_ns) {
        _ if conditions => Ok(Start::Conditions),
        (Some(after), _) => {
            let position = after.parse::<Position>();
            let position = position.map_err(|error| Trouble::new("subscribe", error))?;
            Ok(Start::After(position))
        }
        (None, Some(since_ns)) => Ok(Start::SinceNs(since_ns)),
        (None, None) => Ok(Start::Now),
    }
}
