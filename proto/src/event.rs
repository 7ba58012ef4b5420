//! Events as bytes: encode, check, seal, look into, decode.
//!
//! An event is encoded once by its publisher ([`encode_event`]) and sealed once by its agent
//! ([`seal`], [`seal_batch`]); the same bytes then travel everywhere. Whoever takes such bytes from
//! a socket walks over them ([`check_event`], [`decode_sealed`]): the walk checks every bound of
//! [`ftb_core::limits`], allocates nothing, and finds where the routing fields lie. Only who wants
//! to read an event decodes it ([`unseal`]).
//!
//! The walk is stricter than protobuf: a field that may occur once must not occur twice, and groups
//! are refused. Fields that are not known are skipped, so that a later version may add some.

use crate::v1;
use bytes::{Bytes, BytesMut};
use ftb_core::event::EventError;
use ftb_core::node::Fold;
use ftb_core::sealed::{Span, SpanError};
use ftb_core::space::NameError;
use ftb_core::{
    Event, EventId, EventKind, EventName, EventSpace, Head, Position, PublisherId, Sealed,
    Severity, Tag, limits,
};

mod batch;
mod checker;
mod encode;
mod seal;
mod shape;
mod walk;
pub use batch::{EventBatch, EventView, Tags};
pub(crate) use checker::{Checked, SealedChecker};
pub use encode::{encode_event, event_len, put_event};
pub(crate) use encode::{field_len, put_head};
pub use seal::{SealError, SealedBatch, seal, seal_batch};
use walk::Once;
pub(crate) use walk::{Value, Walker};

/// Most bytes that the stamps add to an event: id, host, uid, pid and the keys of the fields.
const STAMPS_BYTES_MAX: usize = 512;
/// Largest sealed event, in bytes.
pub const SEALED_BYTES_MAX: usize = limits::EVENT_BYTES_MAX + STAMPS_BYTES_MAX;
/// What an event may have beside its payload, in bytes: all other fields at their bounds, and room
/// for fields of later versions.
const BESIDE_PAYLOAD_BYTES_MAX: usize = limits::EVENT_BYTES_MAX - limits::PAYLOAD_BYTES_MAX;

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
}

/// How many events one stands for, where storm control has made one of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Events in it, itself included.
    pub count: u64,
    /// When the first was published, in Unix nanoseconds.
    pub first_ns: u64,
    /// When the last was, which it shows.
    pub last_ns: u64,
}

impl From<Fold> for Folded {
    fn from(fold: Fold) -> Self {
        Self { count: fold.count, first_ns: fold.first_ns, last_ns: fold.last_ns }
    }
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
    /// Who published it; its agent vouches for it.
    pub uid: u32,
    /// Which process published it; its agent vouches for it.
    pub pid: u32,
    /// What the publisher said.
    pub event: Event,
    /// It stands for others with the same publisher, space, name and severity.
    pub folded: Option<Folded>,
}

/// Checks a publisher's bytes in every respect without building an event.
///
/// # Errors
/// [`EventWireError`]: they are refused.
pub fn check_event(bytes: &[u8], payload_bytes_max: usize) -> Result<EventHead, EventWireError> {
    check_beside(bytes, payload_bytes_max, &mut Neighbour::default())
}

/// The event that was checked before in the same message: most often its beginning (event space,
/// name, severity) is to the byte that of the next, which then need not be looked at again.
#[derive(Clone, Copy, Default)]
struct Neighbour<'a> {
    /// Its bytes up to the end of its severity; empty where they do not begin it in that order.
    beginning: &'a [u8],
    space: Span,
    name: Span,
    severity: Option<Severity>,
}

impl Neighbour<'_> {
    /// Whether an event begins as it does.
    fn begins(&self, event: &[u8]) -> bool {
        self.severity.is_some() && event.starts_with(self.beginning)
    }
}

/// [`check_event`] beside a neighbour, whose place the event takes.
fn check_beside<'a>(
    bytes: &'a [u8],
    payload_bytes_max: usize,
    neighbour: &mut Neighbour<'a>,
) -> Result<EventHead, EventWireError> {
    let slice = |span| Walker::new("event", bytes).slice(span);
    if neighbour.begins(bytes) {
        let (head, _) = walk_beside(bytes, payload_bytes_max, neighbour)?;
        check_short_texts(&head, slice)?;
        return Ok(head);
    }
    let (head, severity_end) = walk_beside(bytes, payload_bytes_max, &Neighbour::default())?;
    check_texts(&head, slice)?;
    let EventHead { space, name, severity, .. } = head;
    let ends = [space, name].map(|span| (span.start + span.len) as usize);
    *neighbour = match ends.into_iter().all(|end| 0 < end && end <= severity_end) {
        true => {
            let beginning = &bytes[..severity_end];
            Neighbour { beginning, space, name, severity: Some(severity) }
        }
        false => Neighbour::default(),
    };
    Ok(head)
}

/// Checks everything but the texts that [`check_texts`] checks.
fn walk_event(bytes: &[u8], payload_bytes_max: usize) -> Result<EventHead, EventWireError> {
    walk_beside(bytes, payload_bytes_max, &Neighbour::default()).map(|(head, _)| head)
}

/// The same for an event that begins as this neighbour, if there is one; also gives where the
/// severity ends if nothing but space and name lies before it, else 0.
fn walk_beside(
    bytes: &[u8],
    payload_bytes_max: usize,
    neighbour: &Neighbour<'_>,
) -> Result<(EventHead, usize), EventWireError> {
    const WHAT: &str = "event";
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let mut severity = 0;
    let mut time_ns = 0;
    let [mut space, mut name, mut client_name, mut job_id, mut payload] = [Span::default(); 5];
    if neighbour.severity.is_some() {
        (space, name) = (neighbour.space, neighbour.name);
        walker.skip(neighbour.beginning.len());
        once.note(1..=3);
    }
    let (mut response, mut answers) = (false, false);
    let mut tags = 0;
    let (mut fields, mut severity_end) = (0, 0);
    while let Some(field) = walker.next()? {
        fields += 1;
        match (field.number, field.value) {
            (1, Value::Bytes(span)) => space = span,
            (2, Value::Bytes(span)) => name = span,
            (3, Value::Varint(number)) => {
                severity = number;
                // Nothing but space and name may lie before it, or it would be skipped unseen.
                severity_end = if fields == 3 { walker.at() } else { 0 };
            }
            (4, Value::Fixed64(number)) => time_ns = number,
            (5, Value::Bytes(span)) => client_name = span,
            (6, Value::Bytes(span)) => job_id = span,
            (7, Value::Varint(number)) => response = number != 0,
            (8, Value::Bytes(span)) => {
                walk_id(walker.slice(span))?;
                answers = true;
            }
            (9, Value::Bytes(span)) => {
                tags += 1;
                check_tag(walker.slice(span))?;
                continue;
            }
            (15, Value::Bytes(span)) => payload = span,
            (1..=9 | 15, _) => return Err(field.wrong_type(WHAT)),
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
    let severity = match neighbour.severity {
        Some(severity) => severity,
        None => severity_of(severity)?,
    };
    Ok((EventHead { severity, time_ns, space, name, job_id, client_name, payload }, severity_end))
}

/// Checks the texts of an event whose spans lie in what `slice` cuts from: gives event space, name,
/// client name and job id.
fn check_texts<'a>(
    head: &EventHead,
    slice: impl Fn(Span) -> &'a [u8],
) -> Result<[&'a str; 4], EventWireError> {
    let space = text("event space", slice(head.space))?;
    EventSpace::check(space)?;
    let name = text("event name", slice(head.name))?;
    EventName::check(name)?;
    let [client_name, job_id] = check_short_texts(head, slice)?;
    Ok([space, name, client_name, job_id])
}

/// Of these, client name and job id.
fn check_short_texts<'a>(
    head: &EventHead,
    slice: impl Fn(Span) -> &'a [u8],
) -> Result<[&'a str; 2], EventWireError> {
    let short = limits::CLIENT_NAME_BYTES_MAX;
    let client_name = bounded_text("client name", slice(head.client_name), short)?;
    Ok([client_name, bounded_text("job id", slice(head.job_id), short)?])
}

const SEALED: &str = "sealed event";

fn sealed_head(stamps: &Stamps<'_>, host: Span, event: Span, inner: &EventHead) -> Head {
    let shift = |span: Span| Span { start: span.start + event.start, len: span.len };
    Head {
        id: stamps.id,
        severity: inner.severity,
        uid: stamps.uid,
        pid: stamps.pid,
        republished: stamps.republished,
        covers: 0,
        time_ns: inner.time_ns,
        space: shift(inner.space),
        name: shift(inner.name),
        host,
        job_id: shift(inner.job_id),
        client_name: shift(inner.client_name),
    }
}

/// Takes a sealed event from the wire: checks stamps and event in every respect, and finds the
/// routing fields. The bytes are kept as they are.
///
/// # Errors
/// [`EventWireError`]: they are refused.
pub fn decode_sealed(bytes: Bytes) -> Result<Sealed, EventWireError> {
    let (head, ..) = check_sealed(&bytes, &mut Neighbour::default())?;
    Ok(Sealed::new(head, bytes)?)
}

fn check_sealed<'a>(
    bytes: &'a [u8],
    neighbour: &mut Neighbour<'a>,
) -> Result<(Head, SealedParts, EventHead), EventWireError> {
    let parts = walk_sealed(bytes)?;
    let walker = Walker::new(SEALED, bytes);
    let host = bounded_text("host", walker.slice(parts.host), limits::HOST_BYTES_MAX)?;
    let SealedParts { id, uid, pid, republished, folded, .. } = parts;
    let stamps = Stamps { id, host, uid, pid, republished };
    let event = walker.slice(parts.event);
    let inner = check_beside(event, limits::PAYLOAD_BYTES_MAX, neighbour)?;
    let mut head = sealed_head(&stamps, parts.host, parts.event, &inner);
    head.covers = folded.map_or(0, |fold| fold.covers);
    Ok((head, parts, inner))
}

/// What [`walk_sealed`] found: the stamps, and where host and event lie.
struct SealedParts {
    id: EventId,
    uid: u32,
    pid: u32,
    republished: bool,
    folded: Option<Fold>,
    host: Span,
    event: Span,
}

/// Checks the stamps but for the text of the host, and leaves the event to others.
fn walk_sealed(bytes: &[u8]) -> Result<SealedParts, EventWireError> {
    bound("sealed event", bytes.len(), SEALED_BYTES_MAX)?;
    let mut walker = Walker::new(SEALED, bytes);
    let mut once = Once::default();
    let (mut id, mut host, mut event) = (None, Span::default(), None);
    let (mut uid, mut pid, mut republished, mut folded) = (0, 0, false, None);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Bytes(span)) => id = Some(walk_id(walker.slice(span))?),
            (2, Value::Bytes(span)) => host = span,
            (3, Value::Varint(number)) => uid = field.u32(SEALED, number)?,
            (4, Value::Varint(number)) => pid = field.u32(SEALED, number)?,
            (5, Value::Varint(number)) => republished = number != 0,
            (6, Value::Bytes(span)) => folded = Some(walk_folded(walker.slice(span))?),
            (15, Value::Bytes(span)) => event = Some(span),
            (1..=6 | 15, _) => return Err(field.wrong_type(SEALED)),
            _ => continue,
        }
        once.check(SEALED, &field)?;
    }
    let id = id.ok_or(EventWireError::Missing("id"))?;
    let event = event.ok_or(EventWireError::Missing("content"))?;
    if id.seq == 0 {
        return Err(EventWireError::Sequence);
    }
    if folded.is_some_and(|fold| u64::from(fold.covers) >= id.seq) {
        return Err(EventWireError::Sequence);
    }
    Ok(SealedParts { id, uid, pid, republished, folded, host, event })
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

/// Decodes all of a sealed event for a reader. The payload shares the sealed bytes.
///
/// # Errors
/// [`EventWireError`]; impossible for what [`seal`] or [`decode_sealed`] gave.
pub fn unseal(position: Position, sealed: &Sealed) -> Result<Received, EventWireError> {
    let bytes = sealed.bytes();
    let mut walker = Walker::new(SEALED, bytes);
    let (mut event, mut folded) = (None, None);
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (6, Value::Bytes(span)) => folded = Some(walk_folded(walker.slice(span))?),
            (15, Value::Bytes(span)) => event = Some(span),
            _ => {}
        }
    }
    let event = event.ok_or(EventWireError::Missing("content"))?;
    let head = sealed.head();
    let found = EventHead {
        severity: head.severity,
        time_ns: head.time_ns,
        space: head.space,
        name: head.name,
        job_id: head.job_id,
        client_name: head.client_name,
        payload: Span::default(),
    };
    Ok(Received {
        position,
        id: head.id,
        host: sealed.host().to_owned(),
        uid: head.uid,
        pid: head.pid,
        event: build_event(bytes, event, &found)?,
        folded: folded.map(Folded::from),
    })
}

/// Decodes a publisher's bytes, for who needs all of it.
///
/// # Errors
/// [`EventWireError`], as [`check_event`] with the largest payload.
pub fn decode_event(bytes: Bytes) -> Result<Event, EventWireError> {
    let head = check_event(&bytes, limits::PAYLOAD_BYTES_MAX)?;
    build_event(&bytes, Span { start: 0, len: span_number(bytes.len()) }, &head)
}

/// Builds the event that lies in `bytes` at `at`, and has been checked, in one walk. The spans of
/// the head are relative to `bytes`.
fn build_event(bytes: &Bytes, at: Span, head: &EventHead) -> Result<Event, EventWireError> {
    let whole = Walker::new("event", bytes);
    let mut walker = Walker::new("event", whole.slice(at));
    let (mut response, mut answers) = (false, None);
    let (mut tags, mut payload) = (Vec::new(), Bytes::new());
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (7, Value::Varint(number)) => response = number != 0,
            (8, Value::Bytes(span)) => answers = Some(walk_id(walker.slice(span))?),
            (9, Value::Bytes(span)) => tags.push(read_tag(walker.slice(span))?),
            (15, Value::Bytes(span)) => payload = bytes.slice_ref(walker.slice(span)),
            _ => {}
        }
    }
    let owned = |field, span| text(field, whole.slice(span)).map(str::to_owned);
    Ok(Event {
        space: EventSpace::new(text("event space", whole.slice(head.space))?)?,
        name: EventName::new(text("event name", whole.slice(head.name))?)?,
        severity: head.severity,
        time_ns: head.time_ns,
        client_name: owned("client name", head.client_name)?,
        job_id: owned("job id", head.job_id)?,
        kind: if response { EventKind::Response(answers) } else { EventKind::Normal },
        tags,
        payload,
    })
}

/// An event id for the wire.
pub fn wire_id(id: EventId) -> v1::EventId {
    v1::EventId { account: id.publisher.account, token: id.publisher.token, seq: id.seq }
}

/// An event id from the wire.
pub fn core_id(id: v1::EventId) -> EventId {
    EventId { publisher: PublisherId { account: id.account, token: id.token }, seq: id.seq }
}

fn walk_id(bytes: &[u8]) -> Result<EventId, EventWireError> {
    const WHAT: &str = "event id";
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let mut id = v1::EventId::default();
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Fixed64(number)) => id.account = number,
            (2, Value::Fixed64(number)) => id.token = number,
            (3, Value::Varint(number)) => id.seq = number,
            (1..=3, _) => return Err(field.wrong_type(WHAT)),
            _ => continue,
        }
        once.check(WHAT, &field)?;
    }
    Ok(core_id(id))
}

fn walk_folded(bytes: &[u8]) -> Result<Fold, EventWireError> {
    const WHAT: &str = "fold";
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let mut fold = Fold { count: 0, covers: 0, first_ns: 0, last_ns: 0 };
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Varint(number)) => fold.covers = field.u32(WHAT, number)?,
            (2, Value::Varint(number)) => fold.count = number,
            (3, Value::Fixed64(number)) => fold.first_ns = number,
            (4, Value::Fixed64(number)) => fold.last_ns = number,
            (1..=4, _) => return Err(field.wrong_type(WHAT)),
            _ => continue,
        }
        once.check(WHAT, &field)?;
    }
    Ok(fold)
}

fn check_tag(bytes: &[u8]) -> Result<(), EventWireError> {
    walk_tag(bytes).map(drop)
}

fn read_tag(bytes: &[u8]) -> Result<Tag, EventWireError> {
    let [key, value] = walk_tag(bytes)?.map(str::to_owned);
    Ok(Tag { key, value })
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

/// Sizes and offsets here are bounded by [`SEALED_BYTES_MAX`], far below 4 GiB.
pub(crate) fn span_number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
