//! What one event says about a condition: a row of the table of conditions, with all that people
//! and programs want to know of it.
//!
//! Not responsible for: which of two statements counts ([`Claim`]).

use crate::event::Received;
use ftb_core::condition::{
    EVENT_NAME, ORIGINAL, PUBLISHER_HOST, PUBLISHER_UID, RecommendedAction, SILENCE_SPACE,
    SILENCED, Subject, Truth, WATCHED,
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
    /// What an event states that recommends nothing, never expires, and has neither host nor text.
    pub fn new(
        subject: Subject,
        truth: Truth,
        severity: Severity,
        source: EventId,
        time_ns: u64,
    ) -> Self {
        Self {
            subject,
            truth,
            severity,
            action: RecommendedAction::None,
            onset_ns: time_ns,
            changed_ns: time_ns,
            expires_ms: 0,
            source,
            event: String::new(),
            publisher_host: String::new(),
            publisher_uid: 0,
            message: String::new(),
            position: Position::ZERO,
            claim: Claim::new(source, truth, severity, time_ns),
        }
    }

    /// What an event states; `None`: nothing.
    pub fn of(received: &Received) -> Option<Self> {
        let stated = received.stated.as_ref()?;
        let (condition, event) = (&stated.condition, &received.event);
        let provenance = &stated.provenance;
        // An agent has added these tags where it repeats a statement, in its event space.
        let is_repeat =
            provenance.source.is_some() && event.name.as_str().eq_ignore_ascii_case(EVENT_NAME);
        let tag = |key| event.tag(key).filter(|_| is_repeat);
        let is_of_space = |original: &&str| {
            let space = original.split_once(' ').map(|(space, _)| space);
            space.is_some_and(|space| space.eq_ignore_ascii_case(event.space.as_str()))
        };
        let original = tag(ORIGINAL).filter(is_of_space).map(str::to_owned);
        let severity = condition.severity.unwrap_or(event.severity);
        let uid = tag(PUBLISHER_UID).and_then(|uid| uid.parse().ok());
        Some(Self {
            subject: condition.subject(&received.host),
            truth: condition.truth,
            severity,
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
                source: provenance.source.unwrap_or(received.id),
                replaces: provenance.replaces,
                stated_ns: condition.onset_ns.min(event.time_ns),
                clock: Claim::clock_of(&received.host, provenance.replaces),
                is_kept: condition.is_kept,
                is_counted: received.is_counted,
                ..Claim::new(received.id, condition.truth, severity, event.time_ns)
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

impl AsRef<Claim> for ConditionState {
    fn as_ref(&self) -> &Claim {
        &self.claim
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{Stamps, Stated, encode_event, seal_with, unseal};
    use ftb_core::condition::{Condition, Provenance};
    use ftb_core::event::Tag;
    use ftb_core::{Event, OriginId, PublisherId};

    #[test]
    fn only_an_agent_that_repeats_a_statement_names_its_event_and_publisher() {
        let state = |name: &str, original: &str, is_repeat: bool| {
            let mut event = Event::new("ftb.ipmi".parse().unwrap(), name.parse().unwrap());
            let tags = [(ORIGINAL, original), (PUBLISHER_HOST, "node02"), (PUBLISHER_UID, "7")];
            let tag = |(key, value): (&str, &str)| Tag { key: key.into(), value: value.into() };
            event.tags = tags.map(tag).into();
            let id = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: 3.into() };
            let stamps = Stamps { id, host: "node03", uid: 0, pid: 1, republished: false };
            let provenance = Provenance::direct(OriginId(7));
            let provenance = Provenance { source: is_repeat.then_some(id), ..provenance };
            let condition = Condition::new(SILENCED, Truth::True);
            let stated = Stated { condition, provenance };
            let sealed = seal_with(&stamps, &encode_event(&event), 0, Some(&stated)).unwrap();
            let state = ConditionState::of(&unseal(Position::ZERO, &sealed).unwrap()).unwrap();
            let is_silence = state.is_silence();
            (state.event, state.publisher_host, state.publisher_uid, is_silence)
        };
        let of = |event: &str, host: &str, uid| (event.to_owned(), host.to_owned(), uid, false);
        let repeated = state("FTB_CONDITION", "ftb.ipmi FTB_IPMI_FANFAIL", true);
        assert_eq!(repeated, of("ftb.ipmi FTB_IPMI_FANFAIL", "node02", 7));
        let own = of("ftb.ipmi FTB_CONDITION", "node03", 0);
        assert_eq!(state("FTB_CONDITION", "ftb.ipmi FTB_IPMI_FANFAIL", false), own);
        let named = state("FTB_IPMI_PSUFAIL", "ftb.silence FTB_SILENCE", true);
        assert_eq!(named, of("ftb.ipmi FTB_IPMI_PSUFAIL", "node03", 0));
        let elsewhere = state("FTB_CONDITION", "ftb.silence FTB_SILENCE", true);
        assert_eq!(elsewhere, of("ftb.ipmi FTB_CONDITION", "node02", 7), "another event space");
    }
}
