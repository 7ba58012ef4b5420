//! Making events conveniently.

use bytes::Bytes;
use ftb_core::condition::Condition;
use ftb_core::space::NameError;
use ftb_core::{Event, EventId, EventKind, Severity, Tag};
use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time now, in nanoseconds.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| {
        let whole_ns = since.as_secs().saturating_mul(1_000_000_000);
        whole_ns.saturating_add(u64::from(since.subsec_nanos()))
    })
}

/// An INFO event of that space and name, to be filled in.
///
/// ```
/// use ftb_client::{Severity, event};
///
/// let event = event("ftb.ipmi", "FTB_IPMI_FANFAIL")?
///     .severity(Severity::Error)
///     .tag("sensor", "FAN1")
///     .payload("Fan 1 stands still")
///     .build();
/// assert_eq!(event.tag("sensor"), Some("FAN1"));
/// # Ok::<(), ftb_client::NameError>(())
/// ```
///
/// # Errors
/// [`NameError`] when space or name is none.
pub fn event(space: &str, name: &str) -> Result<EventBuilder, NameError> {
    Ok(EventBuilder(Event::new(space.parse()?, name.parse()?)))
}

/// Makes an [`Event`] step by step; can be published as it is.
#[derive(Clone, Debug)]
#[must_use]
pub struct EventBuilder(Event);

impl EventBuilder {
    /// How bad it is; INFO when this is not called.
    pub fn severity(mut self, severity: Severity) -> Self {
        self.0.severity = severity;
        self
    }

    /// A fact.
    pub fn tag(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.0.tags.push(Tag { key: key.into(), value: value.to_string() });
        self
    }

    /// Free bytes or text.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.0.payload = payload.into();
        self
    }

    /// When it happened, in Unix nanoseconds; the time of publication when this is not called.
    pub fn time_ns(mut self, time_ns: u64) -> Self {
        self.0.time_ns = time_ns;
        self
    }

    /// The job it belongs to; that of the client when this is not called.
    pub fn job_id(mut self, job_id: impl Into<String>) -> Self {
        self.0.job_id = job_id.into();
        self
    }

    /// It states a condition: a lasting state of a host or of one of its components.
    pub fn condition(mut self, condition: Condition) -> Self {
        self.0.condition = Some(condition);
        self
    }

    /// It answers that event.
    pub fn response_to(mut self, id: EventId) -> Self {
        self.0.kind = EventKind::Response(Some(id));
        self
    }

    /// The event.
    pub fn build(self) -> Event {
        self.0
    }
}

impl From<EventBuilder> for Event {
    fn from(builder: EventBuilder) -> Self {
        builder.0
    }
}
