//! Adds the envelope of an agent to the events of its clients.
//!
//! Except for the sequence number, the envelope is the same for all events of a message: it is
//! encoded once. The buffer of a batch has the events as the lists of messages have them, so that
//! deliveries and links send slices of it.

use super::condition::{encode_stated, read_condition, read_stated, resolve};
use super::encode::{put_varint, varint_len};
use super::walk::Walker;
use super::{EventHead, EventWireError, Onsets, Stamps, Stated};
use super::{bound, check_event, field_len, put_head, sealed_head, span_number};
use crate::wire::EVENTS;
use ftb_core::catalog::SEVERITY_TAG;
use ftb_core::condition::pairs::ConditionPairs;
use ftb_core::condition::{Condition, ConditionError, Provenance};
use ftb_core::numbers::PublisherSeq;
use ftb_core::run::{Run, RunBuilder};
use ftb_core::sealed::{Head, Span};
use ftb_core::{EventId, OriginId, Sealed, Severity, limits};
use prost::Message as _;
use std::cell::RefCell;

/// The events of one message.
#[derive(Debug, Default)]
pub struct SealedBatch {
    /// The accepted events, in order; `None` without any.
    pub run: Option<Run>,
    /// Sequence numbers of the rejected events, and why.
    pub refused: Vec<(PublisherSeq, SealError)>,
    /// Accepted events whose severity was lowered to what their publisher may say.
    pub lowered: u64,
    /// Sequence numbers of accepted events whose pair states nothing valid, and why.
    pub ignored: Vec<(PublisherSeq, ConditionError)>,
}

/// Why an event was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is malformed or over a bound.
    #[error(transparent)]
    Event(#[from] EventWireError),
    /// Its condition is rejected.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// The access rules forbid it.
    #[error("your user may not publish in event space {0}")]
    Denied(String),
}

/// What a user may do in an event space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    None,
    /// Publish events that state no condition.
    Publish,
    /// Publish, and state conditions of its own host.
    StateOwnHost,
    /// Publish, and state conditions of any host.
    StateAnyHost,
}

/// What a user may publish in an event space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// What it may do.
    pub rights: Rights,
    /// A higher severity is lowered to this one; the tag [`SEVERITY_TAG`] has what it was.
    pub severity_max: Severity,
}

impl From<Rights> for Permission {
    fn from(rights: Rights) -> Self {
        Self { rights, severity_max: Severity::Fatal }
    }
}

/// What is the same for all events of a message.
#[derive(Clone, Copy, Debug)]
pub struct SealRules<'a> {
    /// Largest payload.
    pub payload_bytes_max: usize,
    /// The events that state conditions by their names.
    pub pairs: Option<&'a ConditionPairs>,
    /// This incarnation of the agent.
    pub owner: OriginId,
    /// What the client has stated before.
    pub onsets: Option<&'a RefCell<Onsets>>,
}

impl SealRules<'_> {
    /// Without conditions.
    pub fn plain(payload_bytes_max: usize) -> Self {
        Self { payload_bytes_max, pairs: None, owner: OriginId(0), onsets: None }
    }
}

/// Checks an event of a publisher and adds the envelope. It states no condition.
///
/// # Errors
/// [`EventWireError`]: the event is rejected.
pub fn seal(
    stamps: &Stamps<'_>,
    event: &[u8],
    payload_bytes_max: usize,
) -> Result<Sealed, EventWireError> {
    seal_with(stamps, event, payload_bytes_max, None)
}

/// The same with a condition that it states.
///
/// # Errors
/// As [`seal`].
pub fn seal_with(
    stamps: &Stamps<'_>,
    event: &[u8],
    payload_bytes_max: usize,
    stated: Option<&Stated>,
) -> Result<Sealed, EventWireError> {
    let envelope = Envelope::new(stamps)?;
    let head = check_event(event, payload_bytes_max)?;
    let stated = stated.map(encode_stated).unwrap_or_default();
    let mut bytes = Vec::with_capacity(envelope.sealed_len(stamps.id.seq, event.len(), &stated));
    let head = envelope.put(stamps.id.seq, event, &head, &stated, &mut bytes)?;
    Ok(Sealed::new(head, bytes.into())?)
}

/// As [`seal`] for the events of a message, with consecutive sequence numbers. `permit` decides by
/// event space.
///
/// # Errors
/// [`EventWireError`]: the envelope is malformed. A bad event is rejected alone.
pub fn seal_batch<'a, I, P: Into<Permission>>(
    stamps: &Stamps<'_>,
    events: I,
    rules: &SealRules<'_>,
    mut permit: impl FnMut(&[u8]) -> P,
) -> Result<SealedBatch, EventWireError>
where
    I: IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator + Clone>,
{
    let envelope = Envelope::new(stamps)?;
    let events = events.into_iter();
    let last_seq = stamps.id.seq + events.len() as u64;
    let listed_len = |event: &[u8]| field_len(envelope.sealed_len(last_seq, event.len(), &[]));
    let mut buffer = Vec::with_capacity(events.clone().map(listed_len).sum());
    let mut builder = RunBuilder::default();
    let mut batch = SealedBatch::default();
    let mut seq = stamps.id.seq;
    for event in events {
        match check(event, rules, stamps.host, &mut |space: &[u8]| permit(space).into()) {
            Ok(Checked { head, stated, ignored, lowered }) => {
                batch.lowered += u64::from(lowered.is_some());
                let event = lowered.as_deref().unwrap_or(event);
                batch.ignored.extend(ignored.map(|error| (seq, error)));
                put_head(EVENTS, envelope.sealed_len(seq, event.len(), &stated), &mut buffer);
                let start = buffer.len();
                let head = envelope.put(seq, event, &head, &stated, &mut buffer)?;
                builder.push(&buffer, head, span(start, buffer.len() - start))?;
            }
            Err(error) => batch.refused.push((seq, error)),
        }
        seq = seq.next();
    }
    if !batch.refused.is_empty() {
        buffer.shrink_to_fit();
    }
    Ok(SealedBatch { run: builder.finish(buffer.into())?, ..batch })
}

/// An event that may be published.
struct Checked {
    head: EventHead,
    /// The verified statement, encoded; empty without one.
    stated: Vec<u8>,
    /// Why the event states nothing although a pair is about it.
    ignored: Option<ConditionError>,
    /// The event with a lower severity.
    lowered: Option<Vec<u8>>,
}

/// The same event with the highest severity that its publisher may say. The tag has the severity
/// that it said, if there is room for a tag.
fn lowered(
    event: &[u8],
    head: &EventHead,
    (max, payload_bytes_max): (Severity, usize),
) -> Result<(Vec<u8>, EventHead), EventWireError> {
    let mut bytes = vec![3 << 3, max as u8];
    let mut walker = Walker::new("event", event);
    while let Some(field) = walker.next()? {
        if field.number != 3 {
            bytes.extend_from_slice(&event[walker.range_of(&field)]);
        }
    }
    let plain = bytes.len();
    let value = head.severity.as_str().to_ascii_lowercase();
    let tag = crate::v1::Tag { key: SEVERITY_TAG.to_owned(), value };
    prost::encoding::message::encode(9, &tag, &mut bytes);
    if let Ok(head) = check_event(&bytes, payload_bytes_max) {
        return Ok((bytes, head));
    }
    bytes.truncate(plain);
    let head = check_event(&bytes, payload_bytes_max)?;
    Ok((bytes, head))
}

fn check(
    event: &[u8],
    rules: &SealRules<'_>,
    own_host: &str,
    permit: &mut impl FnMut(&[u8]) -> Permission,
) -> Result<Checked, SealError> {
    let head = check_event(event, rules.payload_bytes_max)?;
    let space = head.space.slice(event).unwrap_or_default();
    let permission = permit(space);
    if permission.rights == Rights::None {
        return Err(SealError::Denied(String::from_utf8_lossy(space).into_owned()));
    }
    if head.severity <= permission.severity_max {
        return stated(event, head, permission, (rules, own_host));
    }
    let bounds = (permission.severity_max, rules.payload_bytes_max);
    let (event, head) = lowered(event, &head, bounds)?;
    let checked = stated(&event, head, permission, (rules, own_host))?;
    Ok(Checked { lowered: Some(event), ..checked })
}

/// Verifies what an event states.
fn stated(
    event: &[u8],
    head: EventHead,
    Permission { rights, severity_max }: Permission,
    (rules, own_host): (&SealRules<'_>, &str),
) -> Result<Checked, SealError> {
    let space = || {
        let space = head.space.slice(event).unwrap_or_default();
        String::from_utf8_lossy(space).into_owned()
    };
    let verified = |mut condition: Condition, is_paired| {
        let is_own = condition.host.is_empty() || condition.host.eq_ignore_ascii_case(own_host);
        match rights {
            Rights::None | Rights::Publish => return Err(ConditionError::Denied(space())),
            Rights::StateOwnHost if !is_own => {
                return Err(ConditionError::OtherHost { host: condition.host, space: space() });
            }
            Rights::StateOwnHost | Rights::StateAnyHost => condition.check()?,
        }
        condition.severity = condition.severity.map(|severity| severity.min(severity_max));
        if let Some(onsets) = rules.onsets {
            onsets.borrow_mut().keep(&mut condition, own_host, head.time_ns);
        }
        let provenance = Provenance { is_paired, ..Provenance::direct(rules.owner) };
        let stated = encode_stated(&Stated { condition, provenance });
        let bytes = event.len() + stated.len();
        match bytes > limits::CONDITION_BYTES_MAX {
            true => Err(ConditionError::TooLong { bytes }),
            false => Ok(stated),
        }
    };
    let checked = |stated, ignored| Checked { head, stated, ignored, lowered: None };
    if let Some(span) = head.condition {
        let condition = read_condition(span.slice(event).unwrap_or_default())?;
        return Ok(checked(verified(condition, false)?, None));
    }
    let pairs = match rights {
        Rights::StateOwnHost | Rights::StateAnyHost => rules.pairs,
        Rights::None | Rights::Publish => None,
    };
    let paired = pairs.and_then(|pairs| resolve(pairs, event, &head));
    Ok(match paired.map(|condition| verified(condition, true)) {
        Some(Ok(stated)) => checked(stated, None),
        Some(Err(error)) => checked(Vec::new(), Some(error)),
        None => checked(Vec::new(), None),
    })
}

/// The fields around an event, encoded except for the sequence number and the lengths that depend
/// on it.
struct Envelope<'a> {
    stamps: Stamps<'a>,
    /// The id without its sequence number.
    id: Vec<u8>,
    /// All fields between the id and the event.
    rest: Vec<u8>,
}

impl<'a> Envelope<'a> {
    const ID: u8 = 1;
    const SEQ_KEY: u8 = 3 << 3;
    const CONDITION: u8 = 7;
    const EVENT: u8 = 15;

    fn new(stamps: &Stamps<'a>) -> Result<Self, EventWireError> {
        bound("host", stamps.host.len(), limits::HOST_BYTES_MAX)?;
        let EventId { publisher, seq } = stamps.id;
        if seq == PublisherSeq::ZERO {
            return Err(EventWireError::Sequence);
        }
        let (account, token) = (publisher.account, publisher.token);
        let id = crate::v1::EventId { account, token, seq: 0 };
        let rest = crate::v1::Sealed {
            host: stamps.host.to_owned(),
            uid: stamps.uid,
            pid: stamps.pid,
            republished: stamps.republished,
            ..crate::v1::Sealed::default()
        };
        Ok(Self { stamps: *stamps, id: id.encode_to_vec(), rest: rest.encode_to_vec() })
    }

    fn id_len(&self, seq: PublisherSeq) -> usize {
        self.id.len() + 1 + varint_len(seq.get())
    }

    fn sealed_len(&self, seq: PublisherSeq, event_len: usize, stated: &[u8]) -> usize {
        let stated_len = if stated.is_empty() { 0 } else { field_len(stated.len()) };
        field_len(self.id_len(seq)) + self.rest.len() + stated_len + field_len(event_len)
    }

    /// Appends an event with its envelope. Gives its head; spans count from the first byte
    /// appended.
    fn put(
        &self,
        seq: PublisherSeq,
        event: &[u8],
        inner: &EventHead,
        stated: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Head, EventWireError> {
        let begin = out.len();
        put_head(Self::ID, self.id_len(seq), out);
        out.extend_from_slice(&self.id);
        out.push(Self::SEQ_KEY);
        put_varint(seq.get(), out);
        let host = match self.stamps.host.len() {
            0 => Span::default(),
            // The first field, with a key of one byte.
            len => span(out.len() - begin + 1 + varint_len(len as u64), len),
        };
        out.extend_from_slice(&self.rest);
        let mut condition = None;
        if !stated.is_empty() {
            put_head(Self::CONDITION, stated.len(), out);
            let at = span(out.len() - begin, stated.len());
            out.extend_from_slice(stated);
            condition = Some(read_stated(at, stated)?);
        }
        put_head(Self::EVENT, event.len(), out);
        let content = span(out.len() - begin, event.len());
        out.extend_from_slice(event);
        let stamps = Stamps { id: EventId { seq, ..self.stamps.id }, ..self.stamps };
        Ok(sealed_head(&stamps, host, content, inner).with_condition(condition))
    }
}

fn span(start: usize, len: usize) -> Span {
    Span { start: span_number(start), len: span_number(len) }
}
