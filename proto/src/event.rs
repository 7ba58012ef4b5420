//! Events as bytes: encode, check, add the envelope, decode.
//!
//! The publisher encodes an event once ([`encode_event`]), its agent adds the envelope once
//! ([`seal`], [`seal_batch`]), and the same bytes then travel everywhere. A receiver checks them
//! ([`check_event`], [`decode_sealed`]): every bound of [`ftb_core::limits`], without an
//! allocation, and finds the routing fields. Only a reader of the event decodes it ([`unseal`]).
//!
//! The check is stricter than protobuf: a field of an event or envelope that may occur once must
//! not occur twice, and groups are rejected. Unknown fields are skipped: a later version may add
//! some.

use crate::v1;
use bytes::{Bytes, BytesMut};
use ftb_core::catalog::TRACE_TAG;
use ftb_core::condition::{Condition, ConditionError, Provenance};
use ftb_core::event::EventError;
use ftb_core::node::Fold;
use ftb_core::sealed::{Span, SpanError};
use ftb_core::space::NameError;
use ftb_core::{
    Event, EventId, EventKind, EventName, EventSpace, Head, Position, PublisherId, Sealed,
    SealedRef, Severity, Tag, limits,
};
use prost::Message as _;

mod batch;
mod condition;
mod counted;
mod encode;
mod group;
mod list;
mod onsets;
mod seal;
pub mod signature;
mod walk;
pub use batch::{EventBatch, EventView, Tags};
pub use condition::stated_condition;
pub use counted::counted_mark;
pub use encode::{encode_event, event_len, put_event};
pub(crate) use encode::{field_len, put_head};
pub use group::grouper;
pub(crate) use list::EventReader;
pub use onsets::Onsets;
pub use seal::{
    Permission, Rights, SealError, SealRules, SealedBatch, seal, seal_batch, seal_with,
};
use walk::{Field, Once, Value, Walker};

/// Most bytes of an envelope: id, host, uid, pid, the condition and the keys of the fields.
const ENVELOPE_BYTES_MAX: usize = 1024;
/// Largest event with its envelope, in bytes.
pub const SEALED_BYTES_MAX: usize = limits::EVENT_BYTES_MAX + ENVELOPE_BYTES_MAX;
/// Most bytes of an event without its payload: all other fields at their bounds, and room for
/// fields of later versions.
const BESIDE_PAYLOAD_BYTES_MAX: usize = limits::EVENT_BYTES_MAX - limits::PAYLOAD_BYTES_MAX;
/// Payloads up to this size are copied when an event is decoded, so that a small event does not
/// keep a large buffer in memory.
const COPIED_BYTES_MAX: usize = 4096;

/// Why bytes are no event. They must be refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventWireError {
    /// No protobuf message of the expected kind.
    #[error("the bytes of the {message} make no sense at offset {offset}: {what}")]
    Malformed {
        /// Which message was expected.
        message: &'static str,
        /// Where, counted from 0 within that message.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A field that must be there is not.
    #[error("the {0} of an event is missing")]
    Missing(&'static str),
    /// A text that is no UTF-8.
    #[error("the {0} of an event is no UTF-8 text")]
    Text(&'static str),
    /// No event space or event name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A number that is no severity.
    #[error("{0} is no severity: 1 (info) to 4 (fatal) are")]
    Severity(u64),
    /// A field is over its bound.
    #[error(transparent)]
    Bound(#[from] EventError),
    /// An event that answers another without saying that it is a response.
    #[error("the event names an event that it answers but is no response")]
    NoResponse,
    /// The condition of an event is none.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// Publisher sequences begin at 1.
    #[error("the event has the sequence number 0: they begin at 1")]
    Sequence,
}

impl From<SpanError> for EventWireError {
    fn from(error: SpanError) -> Self {
        Self::Text(error.0)
    }
}

/// What an agent vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps<'a> {
    /// The event's id; for a batch that of its first event.
    pub id: EventId,
    /// The agent's host.
    pub host: &'a str,
    /// From the peer credentials of the publisher.
    pub uid: u32,
    /// From the peer credentials of the publisher.
    pub pid: u32,
    /// Whether the publisher said that an earlier agent may have had it.
    pub republished: bool,
}

/// What [`check_event`] found; spans are relative to the bytes of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHead {
    /// How bad it is.
    pub severity: Severity,
    /// When, in Unix nanoseconds.
    pub time_ns: u64,
    /// Its path is remembered.
    pub is_traced: bool,
    /// The event space.
    pub space: Span,
    /// The event name.
    pub name: Span,
    /// The job id.
    pub job_id: Span,
    /// The client's name.
    pub client_name: Span,
    /// The payload; empty at 0 when there is none.
    pub payload: Span,
    /// The condition that the publisher states; its fields are not checked.
    pub condition: Option<Span>,
}

/// How many events one stands for, where storm control has made one of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The hosts of their publishers, as ranges, if these are many: the fold of a group.
    pub hosts: Option<String>,
    /// Events in it, itself included.
    pub count: u64,
    /// When the first was published, in Unix nanoseconds.
    pub first_ns: u64,
    /// When the last was, which it shows.
    pub last_ns: u64,
}

/// An event as a subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its place in the log.
    pub position: Position,
    /// Its id, unique in the cluster and over restarts.
    pub id: EventId,
    /// Where it was published; its agent vouches for it.
    pub host: String,
    /// The user that published it; its agent vouches for it.
    pub uid: u32,
    /// Which process published it; its agent vouches for it.
    pub pid: u32,
    /// What the publisher said.
    pub event: Event,
    /// It stands for others with the same space, name and severity.
    pub folded: Option<Folded>,
    /// The condition that it states; its agent verified it.
    pub stated: Option<Stated>,
    /// The agent that delivered it has verified the signature of the publisher's host.
    pub is_verified: bool,
    /// It states a condition, and the log from which it was read has marked that it counted there.
    pub is_counted: bool,
}

/// A verified statement about a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// What is stated. Host, severity and onset are filled in.
    pub condition: Condition,
    /// What the agent added.
    pub provenance: Provenance,
}

/// Checks a publisher's bytes completely, without an allocation.
///
/// # Errors
/// [`EventWireError`]: they are rejected.
pub fn check_event(bytes: &[u8], payload_bytes_max: usize) -> Result<EventHead, EventWireError> {
    const WHAT: &str = "event";
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let (mut severity, mut time_ns) = (0, 0);
    let [mut space, mut name, mut client_name, mut job_id, mut payload] = [Span::default(); 5];
    let (mut response, mut answers, mut condition) = (false, false, None);
    let (mut tags, mut is_traced) = (0, false);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Bytes(span)) => space = span,
            (2, Value::Bytes(span)) => name = span,
            (3, Value::Varint(number)) => severity = number,
            (4, Value::Fixed64(number)) => time_ns = number,
            (5, Value::Bytes(span)) => client_name = span,
            (6, Value::Bytes(span)) => job_id = span,
            (7, Value::Varint(number)) => response = number != 0,
            (8, Value::Bytes(span)) => {
                read_id(&field, walker.slice(span))?;
                answers = true;
            }
            (9, Value::Bytes(span)) => {
                tags += 1;
                let [key, _] = walk_tag(walker.slice(span))?;
                is_traced |= key == TRACE_TAG;
                continue;
            }
            (10, Value::Bytes(span)) => condition = Some(span),
            (15, Value::Bytes(span)) => payload = span,
            (1..=10 | 15, _) => return Err(field.wrong_type(WHAT)),
            _ => continue,
        }
        once.check(WHAT, &field)?;
    }
    let payload_len = payload.len as usize;
    bound("payload", payload_len, payload_bytes_max)?;
    let beside = bytes.len() - payload_len;
    bound("event beside its payload", beside, BESIDE_PAYLOAD_BYTES_MAX)?;
    if tags > limits::TAGS_MAX {
        return Err(EventError::TooManyTags { count: tags }.into());
    }
    if answers && !response {
        return Err(EventWireError::NoResponse);
    }
    let short = limits::CLIENT_NAME_BYTES_MAX;
    if !EventSpace::is_valid(walker.slice(space)) {
        EventSpace::check(text("event space", walker.slice(space))?)?;
    }
    if !EventName::is_valid(walker.slice(name)) {
        EventName::check(text("event name", walker.slice(name))?)?;
    }
    bounded_text("client name", walker.slice(client_name), short)?;
    bounded_text("job id", walker.slice(job_id), short)?;
    let severity = severity_of(severity)?;
    let is_traced = is_traced || severity >= Severity::Error;
    Ok(EventHead {
        severity,
        time_ns,
        is_traced,
        space,
        name,
        job_id,
        client_name,
        payload,
        condition,
    })
}

const SEALED: &str = "sealed event";

fn sealed_head(stamps: &Stamps<'_>, host: Span, event: Span, inner: &EventHead) -> Head {
    let shift = |span| within(event, span);
    Head {
        id: stamps.id,
        severity: inner.severity,
        uid: stamps.uid,
        pid: stamps.pid,
        republished: stamps.republished,
        covers: 0,
        time_ns: inner.time_ns,
        is_traced: inner.is_traced,
        space: shift(inner.space),
        name: shift(inner.name),
        host,
        job_id: shift(inner.job_id),
        client_name: shift(inner.client_name),
        condition: None,
        is_member: false,
        group: None,
        is_counted: false,
    }
}

/// Takes a sealed event from the wire: checks stamps and event in every respect, and finds the
/// routing fields. The bytes are kept as they are.
///
/// # Errors
/// [`EventWireError`]: they are refused.
pub fn decode_sealed(bytes: Bytes) -> Result<Sealed, EventWireError> {
    let (head, _) = check_sealed(&bytes)?;
    Ok(Sealed::new(head, bytes)?)
}

/// Checks an event with its envelope; gives its head and where its payload lies.
fn check_sealed(bytes: &[u8]) -> Result<(Head, Span), EventWireError> {
    bound("sealed event", bytes.len(), SEALED_BYTES_MAX)?;
    let mut walker = Walker::new(SEALED, bytes);
    let mut once = Once::default();
    let (mut id, mut host, mut event) = (None, Span::default(), None);
    let (mut uid, mut pid, mut republished, mut covers) = (0, 0, false, 0);
    let (mut condition, mut is_member, mut group, mut is_counted) = (None, false, None, false);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Bytes(span)) => id = Some(read_id(&field, walker.slice(span))?),
            (2, Value::Bytes(span)) => host = span,
            (3, Value::Varint(number)) => uid = field.u32(SEALED, number)?,
            (4, Value::Varint(number)) => pid = field.u32(SEALED, number)?,
            (5, Value::Varint(number)) => republished = number != 0,
            (6, Value::Bytes(span)) => covers = read_folded(&field, walker.slice(span))?.covers,
            (7, Value::Bytes(span)) => {
                condition = Some(condition::read_stated(span, walker.slice(span))?);
            }
            (8, Value::Bytes(span)) => {
                bound("signature", span.len as usize, signature::SIGNATURE_BYTES_MAX)?;
            }
            (9, Value::Varint(number)) => is_member = number != 0,
            (10, Value::Bytes(span)) => group = Some(group::read(span, walker.slice(span))?),
            (11, Value::Varint(number)) => is_counted = number != 0,
            (15, Value::Bytes(span)) => event = Some(span),
            (1..=11 | 15, _) => return Err(field.wrong_type(SEALED)),
            _ => continue,
        }
        once.check(SEALED, &field)?;
    }
    let id = id.ok_or(EventWireError::Missing("id"))?;
    let event = event.ok_or(EventWireError::Missing("content"))?;
    if u64::from(covers) >= id.seq.get() {
        return Err(EventWireError::Sequence);
    }
    let text = bounded_text("host", walker.slice(host), limits::HOST_BYTES_MAX)?;
    let stamps = Stamps { id, host: text, uid, pid, republished };
    let inner = check_event(walker.slice(event), limits::PAYLOAD_BYTES_MAX)?;
    let head = sealed_head(&stamps, host, event, &inner);
    let head = head.with_condition(condition);
    let head = Head { covers, is_member, group, is_counted, ..head };
    Ok((head, within(event, inner.payload)))
}

/// Puts the stamp of a fold on its last event: the same bytes with one field more.
pub fn fold(last: &Sealed, fold: &Fold) -> Sealed {
    let stamp = v1::Folded {
        covers: fold.covers,
        count: fold.count,
        first_ns: fold.first_ns,
        last_ns: fold.last_ns,
    };
    let mut bytes = BytesMut::with_capacity(last.len() + 64);
    bytes.extend_from_slice(last.bytes());
    prost::encoding::message::encode(6, &stamp, &mut bytes);
    let head = Head { covers: fold.covers, ..*last.head() };
    // Spans that lay in the shorter bytes lie in the longer: the event itself is what remains to
    // be given if they did not.
    Sealed::new(head, bytes.freeze()).unwrap_or_else(|_| last.clone())
}

/// Decodes all of a sealed event for a reader.
///
/// # Errors
/// [`EventWireError`]; impossible for an event of [`seal`] or [`decode_sealed`].
pub fn unseal(position: Position, sealed: &Sealed) -> Result<Received, EventWireError> {
    receive(position, sealed.as_ref(), sealed.bytes())
}

/// Decodes an event that lies in `buffer`. A large payload shares the buffer.
fn receive(
    position: Position,
    sealed: SealedRef<'_>,
    buffer: &Bytes,
) -> Result<Received, EventWireError> {
    let (event, folded) = parts_of(sealed.bytes())?;
    let head = sealed.head();
    let (mut kind, mut tags, mut payload) = (EventKind::Normal, Vec::new(), &[][..]);
    let mut condition = None;
    let mut walker = Walker::new("event", event);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (7, Value::Varint(number)) if number != 0 && kind == EventKind::Normal => {
                kind = EventKind::Response(None);
            }
            (8, Value::Bytes(span)) => {
                kind = EventKind::Response(Some(read_id(&field, walker.slice(span))?));
            }
            (9, Value::Bytes(span)) => {
                let [key, value] = walk_tag(walker.slice(span))?.map(str::to_owned);
                tags.push(Tag { key, value });
            }
            (10, Value::Bytes(span)) => {
                condition = condition::read_condition(walker.slice(span)).ok();
            }
            (15, Value::Bytes(span)) => payload = walker.slice(span),
            _ => {}
        }
    }
    let payload = match payload.len() {
        ..=COPIED_BYTES_MAX => Bytes::copy_from_slice(payload),
        _ => buffer.slice_ref(payload),
    };
    Ok(Received {
        position,
        id: head.id,
        host: sealed.host().to_owned(),
        uid: head.uid,
        pid: head.pid,
        event: Event {
            space: EventSpace::new(sealed.space())?,
            name: EventName::new(sealed.name())?,
            severity: head.severity,
            time_ns: head.time_ns,
            client_name: sealed.client_name().to_owned(),
            job_id: sealed.job_id().to_owned(),
            kind,
            tags,
            condition,
            payload,
        },
        folded,
        stated: stated_of(sealed),
        is_verified: false,
        is_counted: head.is_counted,
    })
}

/// The verified statement of an event.
fn stated_of(sealed: SealedRef<'_>) -> Option<Stated> {
    let condition = sealed.condition()?;
    let provenance = condition.head().provenance;
    Some(Stated { condition: condition.to_condition(), provenance })
}

/// The publisher's bytes in a checked event, and its fold.
fn parts_of(sealed: &[u8]) -> Result<(&[u8], Option<Folded>), EventWireError> {
    let mut walker = Walker::new(SEALED, sealed);
    let (mut event, mut folded) = (None, None);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (6, Value::Bytes(span)) => {
                let fold = read_folded(&field, walker.slice(span))?;
                let v1::Folded { count, first_ns, last_ns, .. } = fold;
                folded = Some(Folded { hosts: None, count, first_ns, last_ns });
            }
            (10, Value::Bytes(span)) => folded = Some(group::folded(walker.slice(span))?),
            (15, Value::Bytes(span)) => event = Some(walker.slice(span)),
            _ => {}
        }
    }
    Ok((event.ok_or(EventWireError::Missing("content"))?, folded))
}

/// Decodes a publisher's bytes.
///
/// # Errors
/// [`EventWireError`], as [`check_event`] with the largest payload.
pub fn decode_event(bytes: &[u8]) -> Result<Event, EventWireError> {
    let publisher = PublisherId { account: 0, token: 0 };
    let id = EventId { publisher, seq: 1.into() };
    let stamps = Stamps { id, host: "", uid: 0, pid: 0, republished: false };
    Ok(unseal(Position::ZERO, &seal(&stamps, bytes, limits::PAYLOAD_BYTES_MAX)?)?.event)
}

/// An event id for the wire.
pub fn wire_id(id: EventId) -> v1::EventId {
    v1::EventId { account: id.publisher.account, token: id.publisher.token, seq: id.seq.get() }
}

/// An event id from the wire.
pub fn core_id(id: v1::EventId) -> EventId {
    EventId { publisher: PublisherId { account: id.account, token: id.token }, seq: id.seq.into() }
}

fn read_id(field: &Field, bytes: &[u8]) -> Result<EventId, EventWireError> {
    let id = v1::EventId::decode(bytes);
    id.map(core_id).map_err(|_| field.malformed("event id", "it cannot be decoded"))
}

fn read_folded(field: &Field, bytes: &[u8]) -> Result<v1::Folded, EventWireError> {
    v1::Folded::decode(bytes).map_err(|_| field.malformed("fold", "it cannot be decoded"))
}

/// Key and value.
fn walk_tag(bytes: &[u8]) -> Result<[&str; 2], EventWireError> {
    const WHAT: &str = "tag";
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let mut texts = [""; 2];
    while let Some(field) = walker.next()? {
        let (place, what, max) = match field.number {
            1 => (0, "key of a tag", limits::TAG_KEY_BYTES_MAX),
            2 => (1, "value of a tag", limits::TAG_VALUE_BYTES_MAX),
            _ => continue,
        };
        let Value::Bytes(span) = field.value else {
            return Err(field.wrong_type(WHAT));
        };
        texts[place] = bounded_text(what, walker.slice(span), max)?;
        once.check(WHAT, &field)?;
    }
    Ok(texts)
}

fn severity_of(number: u64) -> Result<Severity, EventWireError> {
    i32::try_from(number).ok().and_then(Severity::from_wire).ok_or(EventWireError::Severity(number))
}

fn bound(field: &'static str, bytes: usize, max: usize) -> Result<(), EventWireError> {
    if bytes <= max { Ok(()) } else { Err(EventError::TooLong { field, bytes, max }.into()) }
}

fn text<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, EventWireError> {
    core::str::from_utf8(bytes).map_err(|_| EventWireError::Text(field))
}

fn bounded_text<'a>(
    field: &'static str,
    bytes: &'a [u8],
    max: usize,
) -> Result<&'a str, EventWireError> {
    bound(field, bytes.len(), max)?;
    text(field, bytes)
}

/// A span relative to the beginning of `outer`, relative to what `outer` is relative to.
fn within(outer: Span, inner: Span) -> Span {
    Span { start: outer.start.saturating_add(inner.start), len: inner.len }
}

/// Sizes and offsets are bounded by the largest message, far below 4 GiB.
pub(crate) fn span_number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
