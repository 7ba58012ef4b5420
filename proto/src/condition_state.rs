//! What one event says about a condition: a row of the table of conditions, with all that people
//! and programs want to know of it.
//!
//! Not responsible for: which of two statements counts ([`Claim`]).

use crate::event::Received;
use ftb_core::condition::{
    ORIGINAL, PUBLISHER_HOST, PUBLISHER_UID, RecommendedAction, SILENCE_SPACE, SILENCED, Subject,
    Truth, WATCHED,
};
use ftb_core::log::conditions::Claim;
use ftb_core::{EventId, Position, Severity};

/// What is known of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// What it is about.
    pub subject: Subject,
    /// Whether it holds.
    pub truth: Truth,
    /// How bad it is.
    pub severity: Severity,
    /// What its publisher recommends.
    pub action: RecommendedAction,
    /// Since when, in Unix nanoseconds.
    pub onset_ns: u64,
    /// The last statement about it, in Unix nanoseconds.
    pub changed_ns: u64,
    /// When it becomes unknown, in milliseconds after the last statement; 0: never.
    pub expires_ms: u32,
    /// The event that stated it.
    pub source: EventId,
    /// Space and name of that event.
    pub event: String,
    /// The host of the publisher.
    pub publisher_host: String,
    /// The user of the publisher.
    pub publisher_uid: u32,
    /// The text of that event.
    pub message: String,
    /// The position of the last statement.
    pub position: Position,
    /// The last statement: what decides whether another one counts over it.
    pub claim: Claim,
}

impl ConditionState {
    /// What an event states; `None`: nothing.
    pub fn of(received: &Received) -> Option<Self> {
        let stated = received.stated.as_ref()?;
        let (condition, event) = (&stated.condition, &received.event);
        let provenance = &stated.provenance;
        // An agent has added these tags.
        let tag = |key| event.tag(key).filter(|_| provenance.source.is_some());
        let original = tag(ORIGINAL).map(str::to_owned);
        let uid = tag(PUBLISHER_UID).and_then(|uid| uid.parse().ok());
        Some(Self {
            subject: condition.subject(&received.host),
            truth: condition.truth,
            severity: condition.severity.unwrap_or(event.severity),
            action: condition.action,
            onset_ns: condition.onset_ns,
            changed_ns: event.time_ns,
            expires_ms: condition.expires_ms,
            source: provenance.source.unwrap_or(received.id),
            event: original.unwrap_or_else(|| format!("{} {}", event.space, event.name)),
            publisher_host: tag(PUBLISHER_HOST).unwrap_or(&received.host).to_owned(),
            publisher_uid: uid.unwrap_or(received.uid),
            message: String::from_utf8_lossy(&event.payload).into_owned(),
            position: received.position,
            claim: Claim {
                event: received.id,
                source: provenance.source.unwrap_or(received.id),
                replaces: provenance.replaces,
                truth: condition.truth,
                time_ns: event.time_ns,
                stated_ns: condition.onset_ns.min(event.time_ns),
                clock: Claim::clock_of(&received.host, provenance.replaces),
                is_kept: condition.is_kept,
            },
        })
    }

    /// Whether it is a watch: its publisher would state what fails.
    pub fn is_watch(&self) -> bool {
        self.subject.key() == WATCHED
    }

    /// Whether it is a silence: a time of maintenance, no fault.
    pub fn is_silence(&self) -> bool {
        let space = self.event.split(' ').next().unwrap_or_default();
        self.subject.key() == SILENCED && space == SILENCE_SPACE
    }
}
