//! What a publisher says: the event before any agent has touched it.

use crate::condition::{Condition, ConditionError};
use crate::ident::EventId;
use crate::limits;
use crate::severity::Severity;
use crate::space::{EventName, EventSpace};
use bytes::Bytes;

/// A fact beside the payload: a consumer need not parse text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// At most [`limits::TAG_KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// At most [`limits::TAG_VALUE_BYTES_MAX`] bytes.
    pub value: String,
}

/// Whether an event stands for itself or answers another (CIFTS event types 1 and 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EventKind {
    /// Stands for itself.
    #[default]
    Normal,
    /// Answers the event with this id; `None` where the publisher only knows that it answers
    /// something (the C API's type 2 carries the handle in its payload).
    Response(Option<EventId>),
}

/// One event as its publisher made it. Id, host, pid and uid are not here: its agent stamps them
/// ([`crate::Sealed`]), since a publisher must not be able to choose them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Namespace.
    pub space: EventSpace,
    /// What happened.
    pub name: EventName,
    /// How bad it is.
    pub severity: Severity,
    /// When, in Unix nanoseconds on the publisher's clock.
    pub time_ns: u64,
    /// The publishing client's name; may be empty.
    pub client_name: String,
    /// The job it belongs to; may be empty.
    pub job_id: String,
    /// Normal, or response to another.
    pub kind: EventKind,
    /// Facts.
    pub tags: Vec<Tag>,
    /// The condition that the publisher states.
    pub condition: Option<Condition>,
    /// Free bytes; for the events of the thesis its text, to the letter.
    pub payload: Bytes,
}

impl Event {
    /// An INFO event of that space and name with nothing else in it, at time 0.
    pub fn new(space: EventSpace, name: EventName) -> Self {
        Self {
            space,
            name,
            severity: Severity::Info,
            time_ns: 0,
            client_name: String::new(),
            job_id: String::new(),
            kind: EventKind::Normal,
            tags: Vec::new(),
            condition: None,
            payload: Bytes::new(),
        }
    }

    /// The value of the first tag with that key.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str())
    }

    /// Checks every bound of [`limits`]; space, name and severity are right by their types.
    ///
    /// # Errors
    /// [`EventError`] names the field, its size and the bound.
    pub fn check(&self, payload_bytes_max: usize) -> Result<(), EventError> {
        EventRef::from(self).check(payload_bytes_max)
    }
}

/// A borrowed event: what a publisher encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// Namespace.
    pub space: &'a EventSpace,
    /// What happened.
    pub name: &'a EventName,
    /// How bad it is.
    pub severity: Severity,
    /// When, in Unix nanoseconds on the publisher's clock.
    pub time_ns: u64,
    /// The publishing client's name; may be empty.
    pub client_name: &'a str,
    /// The job it belongs to; may be empty.
    pub job_id: &'a str,
    /// Normal, or response to another.
    pub kind: EventKind,
    /// Facts.
    pub tags: &'a [Tag],
    /// The condition that the publisher states.
    pub condition: Option<&'a Condition>,
    /// Free bytes.
    pub payload: &'a [u8],
}

impl<'a> From<&'a Event> for EventRef<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            space: &event.space,
            name: &event.name,
            severity: event.severity,
            time_ns: event.time_ns,
            client_name: &event.client_name,
            job_id: &event.job_id,
            kind: event.kind,
            tags: &event.tags,
            condition: event.condition.as_ref(),
            payload: &event.payload,
        }
    }
}

impl EventRef<'_> {
    /// As [`Event::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, payload_bytes_max: usize) -> Result<(), EventError> {
        let bound = |field, bytes: usize, max| {
            if bytes <= max { Ok(()) } else { Err(EventError::TooLong { field, bytes, max }) }
        };
        bound("payload", self.payload.len(), payload_bytes_max)?;
        bound("client name", self.client_name.len(), limits::CLIENT_NAME_BYTES_MAX)?;
        bound("job id", self.job_id.len(), limits::CLIENT_NAME_BYTES_MAX)?;
        if self.tags.len() > limits::TAGS_MAX {
            return Err(EventError::TooManyTags { count: self.tags.len() });
        }
        for tag in self.tags {
            bound("key of a tag", tag.key.len(), limits::TAG_KEY_BYTES_MAX)?;
            bound("value of a tag", tag.value.len(), limits::TAG_VALUE_BYTES_MAX)?;
        }
        if let Some(condition) = self.condition {
            condition.check()?;
        }
        Ok(())
    }
}

/// Why an event cannot be published. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A field is over its bound.
    #[error("the {field} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// Over [`limits::TAGS_MAX`].
    #[error("the event has {count} tags: at most {} are allowed", limits::TAGS_MAX)]
    TooManyTags {
        /// How many it has.
        count: usize,
    },
    /// Its condition is none.
    #[error(transparent)]
    Condition(#[from] ConditionError),
}
