//! Errors as one exception with a word for its kind, which the Python half makes a class of.

use ftb_client::{ConfigError, PublishError, SubscribeError, Unconfirmed, WaitError};
use pyo3::PyErr;
use pyo3::exceptions::PyException;
use std::fmt::Display;

pyo3::create_exception!(_native, NativeError, PyException);

/// What went wrong: a word for programs, a line for people.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    kind: &'static str,
    message: String,
}

impl Trouble {
    pub(crate) fn new(kind: &'static str, message: impl Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// The same, about one of several events.
    pub(crate) fn at(self, index: usize) -> Self {
        Self { message: format!("event {index}: {}", self.message), ..self }
    }

    /// Kind and message.
    pub(crate) fn parts(&self) -> (&'static str, String) {
        (self.kind, self.message.clone())
    }
}

impl From<Trouble> for PyErr {
    fn from(trouble: Trouble) -> Self {
        NativeError::new_err(trouble.parts())
    }
}

impl From<ConfigError> for Trouble {
    fn from(error: ConfigError) -> Self {
        Self::new("config", error)
    }
}

impl From<PublishError> for Trouble {
    fn from(error: PublishError) -> Self {
        let kind = match error {
            PublishError::Full { .. } | PublishError::BatchFull { .. } => "full",
            PublishError::Closed => "closed",
            PublishError::Event(_) => "event",
        };
        Self::new(kind, error)
    }
}

impl From<SubscribeError> for Trouble {
    fn from(error: SubscribeError) -> Self {
        let kind = match error {
            SubscribeError::Filter(_) => "filter",
            SubscribeError::Refused { .. } => "refused",
            SubscribeError::Closed => "closed",
            SubscribeError::Timeout => "timeout",
            SubscribeError::TooMany(_) => "subscribe",
        };
        Self::new(kind, error)
    }
}

impl From<Unconfirmed> for Trouble {
    fn from(error: Unconfirmed) -> Self {
        let kind = match error {
            Unconfirmed::Refused { .. } => "refused",
            Unconfirmed::Shed => "shed",
            Unconfirmed::Closed => "closed",
        };
        Self::new(kind, error)
    }
}

impl From<WaitError> for Trouble {
    fn from(error: WaitError) -> Self {
        let kind = match error {
            WaitError::NoAgent { .. } | WaitError::Detached { .. } => "no_agent",
            WaitError::Refused { .. } => "refused",
            WaitError::Closed => "closed",
            WaitError::Unconfirmed { .. } | WaitError::Timeout => "timeout",
        };
        Self::new(kind, error)
    }
}
