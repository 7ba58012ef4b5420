//! Turns announcements of the core into events of the space `ftb.agent`.
//!
//! The agent has its own publisher id for each incarnation. Not responsible for: what is announced.

use crate::access::AGENT_SPACE;
use arc_swap::ArcSwap;
use bytes::Bytes;
use ftb_core::catalog::names::FTB_CONDITION;
use ftb_core::condition::pairs::ConditionPairs;
use ftb_core::condition::{Condition, ORIGINAL, PUBLISHER_HOST, PUBLISHER_UID, Provenance};
use ftb_core::event::Tag;
use ftb_core::node::api::Announcement;
use ftb_core::text::cut;
use ftb_core::{
    Event, EventId, EventName, EventSpace, Now, OriginId, Position, PublisherId, Sealed, Severity,
    catalog, limits,
};
use ftb_proto::event::{EventWireError, Received, Stamps, Stated, encode_event, seal_with, unseal};
use std::sync::Arc;

/// The client name of the agent.
const CLIENT_NAME: &str = "ftb-agent";

/// Encodes and seals announcements.
pub struct Announcer {
    host: String,
    publisher: PublisherId,
    uid: u32,
    pid: u32,
    next_seq: u64,
    owner: OriginId,
    pairs: Arc<ArcSwap<ConditionPairs>>,
}

impl Announcer {
    /// The announcer of one incarnation.
    pub fn new(
        host: &str,
        origin: OriginId,
        uid: u32,
        pid: u32,
        pairs: Arc<ArcSwap<ConditionPairs>>,
    ) -> Self {
        let publisher =
            PublisherId { account: PublisherId::account_of(host, uid), token: origin.0 };
        Self { host: host.to_owned(), publisher, uid, pid, next_seq: 1, owner: origin, pairs }
    }

    /// The host of the agent.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Encodes an announcement. Truncates texts beyond their limits, so that a long reason loses no
    /// event.
    ///
    /// # Errors
    /// The core announced an invalid name, which is a bug.
    pub fn seal(&mut self, now: Now, announcement: Announcement) -> Result<Sealed, EventWireError> {
        let space = EventSpace::new(AGENT_SPACE)?;
        debug_assert!(catalog::event(announcement.name).is_some(), "{}", announcement.name);
        let mut event = Event::new(space, EventName::new(announcement.name)?);
        event.severity = announcement.severity;
        event.time_ns = now.wall_ns;
        event.client_name = CLIENT_NAME.to_owned();
        event.tags = announcement
            .tags
            .into_iter()
            .take(limits::TAGS_MAX)
            .map(|(key, value)| Tag {
                key: key.to_owned(),
                value: cut(&value, limits::TAG_VALUE_BYTES_MAX).to_owned(),
            })
            .collect();
        let payload = cut(&announcement.payload, limits::PAYLOAD_BYTES_DEFAULT).to_owned();
        event.payload = Bytes::from(payload);
        if let Some(about) = &announcement.about {
            describe(about, &mut event);
        }
        let stated = self.stated(&event, announcement.condition);
        log(&event, stated.as_ref());
        let id = EventId { publisher: self.publisher, seq: self.next_seq.into() };
        let stamps =
            Stamps { id, host: &self.host, uid: self.uid, pid: self.pid, republished: false };
        let bytes = encode_event(&event);
        let sealed = seal_with(&stamps, &bytes, limits::PAYLOAD_BYTES_MAX, stated.as_ref())?;
        self.next_seq += 1;
        Ok(sealed)
    }

    /// The condition that an event states, by the core or by its name.
    fn stated(&self, event: &Event, given: Option<(Condition, Provenance)>) -> Option<Stated> {
        if let Some((condition, provenance)) = given {
            return Some(Stated { condition, provenance });
        }
        let condition = self.pairs.load().stated_by(event)?;
        condition.check().ok()?;
        let provenance = Provenance { is_paired: true, ..Provenance::direct(self.owner) };
        Some(Stated { condition, provenance })
    }
}

/// Copies what a statement says into the event that repeats it, with the event space: who may not
/// read the original may not read this. The tags name the original event and its publisher.
fn describe(about: &Sealed, event: &mut Event) {
    let Ok(received) = unseal(Position::ZERO, about) else { return };
    let Received { event: original, host, uid, .. } = received;
    event.space = original.space;
    event.tags = original.tags;
    event.payload = original.payload;
    let is_repeat = received.stated.is_some_and(|stated| stated.provenance.source.is_some());
    if !is_repeat {
        let values = [
            (ORIGINAL, format!("{} {}", event.space, original.name)),
            (PUBLISHER_HOST, host),
            (PUBLISHER_UID, uid.to_string()),
        ];
        event.tags.retain(|tag| values.iter().all(|(key, _)| tag.key != *key));
        event.tags.truncate(limits::TAGS_MAX - values.len());
        let own = |(key, value): (&str, String)| Tag { key: key.to_owned(), value };
        event.tags.extend(values.into_iter().map(own));
    }
}

/// Logs an event of WARNING or worse, unless an agent only repeats a statement by it.
fn log(event: &Event, stated: Option<&Stated>) {
    if event.severity == Severity::Info || event.name.as_str() == FTB_CONDITION {
        return;
    }
    let condition = stated.map(|stated| &stated.condition);
    let node = condition.map(|condition| &condition.host[..]).filter(|host| !host.is_empty());
    let name = event.name.as_str();
    let text = match String::from_utf8_lossy(&event.payload) {
        text if text.is_empty() => name.into(),
        text => text,
    };
    let key = condition.map(|condition| &condition.key[..]);
    tracing::warn!(event = name, condition = key, node, "{text}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_core::Severity;
    use ftb_core::condition::Truth;

    #[test]
    fn a_repeated_statement_stays_in_its_event_space_and_names_its_publisher() {
        let pairs = Arc::new(ArcSwap::from_pointee(ConditionPairs::built_in()));
        let mut announcer = Announcer::new("node001", OriginId(7), 0, 42, pairs);
        let mut event = Event::new("site.secret".parse().unwrap(), "DISK".parse().unwrap());
        event.condition = Some(Condition::new("DISK_BAD", Truth::True));
        event.tags = vec![Tag { key: PUBLISHER_UID.to_owned(), value: "0".to_owned() }];
        let id = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: 3.into() };
        let stamps = Stamps { id, host: "node002", uid: 1000, pid: 1, republished: false };
        let condition = event.condition.clone().unwrap();
        let stated =
            Stated { condition: condition.clone(), provenance: Provenance::direct(OriginId(7)) };
        let original = seal_with(&stamps, &encode_event(&event), 1000, Some(&stated)).unwrap();
        let mut repeat = |about: Sealed| {
            let provenance = Provenance { source: Some(id), ..Provenance::direct(OriginId(7)) };
            let announcement = Announcement {
                name: "FTB_CONDITION",
                severity: Severity::Info,
                tags: Vec::new(),
                payload: String::new(),
                condition: Some((condition.clone(), provenance)),
                about: Some(about),
            };
            announcer.seal(Now { mono_ns: 1, wall_ns: 99 }, announcement).unwrap()
        };
        let first = repeat(original);
        for sealed in [repeat(first.clone()), first] {
            assert_eq!(sealed.space(), "site.secret");
            let event = unseal(Position::ZERO, &sealed).unwrap().event;
            assert_eq!(event.tag(ORIGINAL), Some("site.secret DISK"));
            assert_eq!(event.tag(PUBLISHER_HOST), Some("node002"));
            assert_eq!(event.tag(PUBLISHER_UID), Some("1000"));
        }
    }

    #[test]
    fn announcements_become_events_with_dense_sequences_and_bounded_texts() {
        let pairs = Arc::new(ArcSwap::from_pointee(ConditionPairs::built_in()));
        let mut announcer = Announcer::new("node001", OriginId(7), 0, 42, pairs);
        let now = Now { mono_ns: 1, wall_ns: 99 };
        for seq in 1..=2 {
            let announcement = Announcement {
                name: "FTB_NODE_DEAD",
                severity: Severity::Error,
                tags: vec![("host", "node002".to_owned()), ("why", "é".repeat(1000))],
                payload: "no answer".to_owned(),
                condition: None,
                about: None,
            };
            let sealed = announcer.seal(now, announcement).unwrap();
            assert_eq!(sealed.id().seq, seq.into());
            assert_eq!((sealed.space(), sealed.host()), ("ftb.agent", "node001"));
            let event = unseal(Position::ZERO, &sealed).unwrap().event;
            assert_eq!(event.tag("host"), Some("node002"));
            assert_eq!(event.tag("why").unwrap().len(), limits::TAG_VALUE_BYTES_MAX);
            assert_eq!((event.time_ns, event.payload.as_ref()), (99, &b"no answer"[..]));
            let condition = sealed.as_ref().condition().unwrap();
            assert_eq!(condition.subject().to_string(), "node002 NODE_DEAD");
            assert!(condition.head().is_kept, "it outlives the agent that found it");
        }
    }
}
