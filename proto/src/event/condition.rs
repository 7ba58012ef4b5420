//! Statements about conditions: in events, and verified in envelopes.

use super::walk::{Once, Value, Walker};
use super::{
    EventHead, EventWireError, Stated, bounded_text, core_id, severity_of, text, walk_tag,
};
use super::{wire_id, within};
use crate::v1;
use ftb_core::condition::pairs::{ConditionPairs, PairEvent};
use ftb_core::condition::{
    Condition, ConditionError, Provenance, RecommendedAction, Truth, check_texts,
};
use ftb_core::sealed::{ConditionHead, Span};
use ftb_core::{OriginId, Severity, limits};
use prost::Message as _;

const WHAT: &str = "condition";

/// A statement for the wire.
pub(super) fn wire_condition(condition: &Condition) -> v1::Condition {
    let action = match condition.action {
        RecommendedAction::None => 0,
        action => action as i32,
    };
    v1::Condition {
        host: condition.host.clone(),
        component: condition.component.clone(),
        key: condition.key.clone(),
        truth: condition.truth as i32,
        action,
        severity: condition.severity.map_or(0, Severity::to_wire),
        onset_ns: condition.onset_ns,
        expires_ms: condition.expires_ms,
        kept: condition.is_kept,
    }
}

/// A verified statement as bytes.
pub(super) fn encode_stated(stated: &Stated) -> Vec<u8> {
    let Provenance { owner, source, replaces, is_paired } = stated.provenance;
    let wire = v1::StatedCondition {
        condition: Some(wire_condition(&stated.condition)),
        owner: owner.0,
        source: source.map(wire_id),
        replaces: replaces.map(wire_id),
        paired: is_paired,
    };
    wire.encode_to_vec()
}

/// Reads and checks a statement.
pub(super) fn read_condition(bytes: &[u8]) -> Result<Condition, EventWireError> {
    let head = walk_condition(bytes)?;
    let owned =
        |span: Span| String::from_utf8_lossy(span.slice(bytes).unwrap_or_default()).into_owned();
    Ok(Condition {
        host: owned(head.host),
        component: owned(head.component),
        key: owned(head.key),
        truth: head.truth,
        action: head.action,
        severity: head.severity,
        onset_ns: head.onset_ns,
        expires_ms: head.expires_ms,
        is_kept: head.is_kept,
    })
}

/// Reads a verified statement that lies at `at` in its event; the spans count as `at` does.
pub(super) fn read_stated(at: Span, bytes: &[u8]) -> Result<ConditionHead, EventWireError> {
    const STATED: &str = "stated condition";
    let mut walker = Walker::new(STATED, bytes);
    let mut once = Once::default();
    let (mut head, mut provenance) = (None, Provenance::direct(OriginId(0)));
    while let Some(field) = walker.next()? {
        let id = |span| {
            let id = v1::EventId::decode(walker.slice(span));
            id.map(core_id).map_err(|_| field.malformed("event id", "it cannot be decoded"))
        };
        match (field.number, field.value) {
            (1, Value::Bytes(span)) => {
                let found = walk_condition(walker.slice(span))?;
                let outer = within(at, span);
                head = Some(ConditionHead {
                    host: within(outer, found.host),
                    component: within(outer, found.component),
                    key: within(outer, found.key),
                    ..found
                });
            }
            (2, Value::Fixed64(owner)) => provenance.owner = OriginId(owner),
            (3, Value::Bytes(span)) => provenance.source = Some(id(span)?),
            (4, Value::Bytes(span)) => provenance.replaces = Some(id(span)?),
            (5, Value::Varint(number)) => provenance.is_paired = number != 0,
            (1..=5, _) => return Err(field.wrong_type(STATED)),
            _ => continue,
        }
        once.check(STATED, &field)?;
    }
    let head = head.ok_or(EventWireError::Missing(WHAT))?;
    Ok(ConditionHead { provenance, ..head })
}

/// The fields of a statement, checked; its spans count from its first byte.
fn walk_condition(bytes: &[u8]) -> Result<ConditionHead, EventWireError> {
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let [mut host, mut component, mut key] = [Span::default(); 3];
    let (mut truth, mut action, mut severity) = (0, 0, 0);
    let (mut onset_ns, mut expires_ms, mut is_kept) = (0, 0, false);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Bytes(span)) => host = span,
            (2, Value::Bytes(span)) => component = span,
            (3, Value::Bytes(span)) => key = span,
            (4, Value::Varint(number)) => truth = number,
            (5, Value::Varint(number)) => action = number,
            (6, Value::Varint(number)) => severity = number,
            (7, Value::Fixed64(number)) => onset_ns = number,
            (8, Value::Varint(number)) => expires_ms = field.u32(WHAT, number)?,
            (9, Value::Varint(number)) => is_kept = number != 0,
            (1..=9, _) => return Err(field.wrong_type(WHAT)),
            _ => continue,
        }
        once.check(WHAT, &field)?;
    }
    check_texts(
        bounded_text("host of the condition", walker.slice(host), limits::HOST_BYTES_MAX)?,
        text("component of the condition", walker.slice(component))?,
        text("key of the condition", walker.slice(key))?,
    )?;
    let unknown = |what, number: u64, known: String| {
        EventWireError::from(ConditionError::Word { what, word: number.to_string(), known })
    };
    let truth = Truth::from_wire(truth)
        .ok_or_else(|| unknown("state of a condition", truth, "1 to 3".to_owned()))?;
    let action = match action {
        0 => RecommendedAction::None,
        number => RecommendedAction::from_wire(number)
            .ok_or_else(|| unknown("recommended action", number, "1 to 7".to_owned()))?,
    };
    let severity = match severity {
        0 => None,
        number => Some(severity_of(number)?),
    };
    let provenance = Provenance::direct(OriginId(0));
    Ok(ConditionHead {
        host,
        component,
        key,
        truth,
        action,
        severity,
        onset_ns,
        expires_ms,
        is_kept,
        provenance,
    })
}

/// The statement in a publisher's bytes, explicit or by a pair; `None` without one, or if the bytes
/// are malformed.
pub fn stated_condition(event: &[u8], pairs: &ConditionPairs) -> Option<Condition> {
    let head = super::check_event(event, limits::PAYLOAD_BYTES_MAX).ok()?;
    match head.condition {
        Some(span) => read_condition(span.slice(event)?).ok(),
        None => resolve(pairs, event, &head),
    }
}

/// The statement that a checked event makes by its name.
pub(super) fn resolve(pairs: &ConditionPairs, event: &[u8], head: &EventHead) -> Option<Condition> {
    let text = |span: Span| core::str::from_utf8(span.slice(event)?).ok();
    let tag = |key: &str| {
        let mut walker = Walker::new("event", event);
        while let Ok(Some(field)) = walker.next() {
            if let (9, Value::Bytes(span)) = (field.number, field.value) {
                let [found, value] = walk_tag(walker.slice(span)).ok()?;
                if found == key {
                    return Some(value);
                }
            }
        }
        None
    };
    let payload = head.payload.slice(event).unwrap_or_default();
    pairs.resolve(&PairEvent { space: text(head.space)?, name: text(head.name)?, payload, tag })
}
