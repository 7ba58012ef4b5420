//! Adds the envelope of an agent to the events of its clients.
//!
//! Except for the sequence number, the envelope is the same for all events of a message: it is
//! encoded once. The buffer of a batch has the events as the lists of messages have them, so that
//! deliveries and links send slices of it.

use super::encode::{put_varint, varint_len};
use super::{EventHead, EventWireError, Stamps};
use super::{bound, check_event, field_len, put_head, sealed_head, span_number};
use crate::wire::EVENTS;
use ftb_core::run::{Run, RunBuilder};
use ftb_core::sealed::{Head, Span};
use ftb_core::{EventId, Sealed, limits};
use prost::Message as _;

/// The events of one message.
#[derive(Debug, Default)]
pub struct SealedBatch {
    /// The accepted events, in order; `None` without any.
    pub run: Option<Run>,
    /// Sequence numbers of the rejected events, and why.
    pub refused: Vec<(u64, SealError)>,
}

/// Why an event was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is malformed or over a bound.
    #[error(transparent)]
    Event(#[from] EventWireError),
    /// The access rules forbid it.
    #[error("your user may not publish in event space {0}")]
    Denied(String),
}

/// Checks an event of a publisher and adds the envelope.
///
/// # Errors
/// [`EventWireError`]: the event is rejected.
pub fn seal(
    stamps: &Stamps<'_>,
    event: &[u8],
    payload_bytes_max: usize,
) -> Result<Sealed, EventWireError> {
    let envelope = Envelope::new(stamps)?;
    let head = check_event(event, payload_bytes_max)?;
    let mut bytes = Vec::with_capacity(envelope.sealed_len(stamps.id.seq, event.len()));
    let head = envelope.put(stamps.id.seq, event, &head, &mut bytes);
    Ok(Sealed::new(head, bytes.into())?)
}

/// As [`seal`] for the events of a message, with consecutive sequence numbers. `may_publish`
/// decides by event space.
///
/// # Errors
/// [`EventWireError`]: the envelope is malformed. A bad event is rejected alone.
pub fn seal_batch<'a, I>(
    stamps: &Stamps<'_>,
    events: I,
    payload_bytes_max: usize,
    mut may_publish: impl FnMut(&[u8]) -> bool,
) -> Result<SealedBatch, EventWireError>
where
    I: IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator + Clone>,
{
    let envelope = Envelope::new(stamps)?;
    let events = events.into_iter();
    let last_seq = stamps.id.seq.saturating_add(events.len() as u64);
    let listed_len = |event: &[u8]| field_len(envelope.sealed_len(last_seq, event.len()));
    let mut buffer = Vec::with_capacity(events.clone().map(listed_len).sum());
    let mut builder = RunBuilder::default();
    let mut refused = Vec::new();
    let mut seq = stamps.id.seq;
    for event in events {
        match check(event, payload_bytes_max, &mut may_publish) {
            Ok(head) => {
                put_head(EVENTS, envelope.sealed_len(seq, event.len()), &mut buffer);
                let start = buffer.len();
                let head = envelope.put(seq, event, &head, &mut buffer);
                builder.push(&buffer, head, span(start, buffer.len() - start))?;
            }
            Err(error) => refused.push((seq, error)),
        }
        seq = seq.saturating_add(1);
    }
    if !refused.is_empty() {
        buffer.shrink_to_fit();
    }
    Ok(SealedBatch { run: builder.finish(buffer.into())?, refused })
}

fn check(
    event: &[u8],
    payload_bytes_max: usize,
    may_publish: &mut impl FnMut(&[u8]) -> bool,
) -> Result<EventHead, SealError> {
    let head = check_event(event, payload_bytes_max)?;
    let space = head.space.slice(event).unwrap_or_default();
    match may_publish(space) {
        true => Ok(head),
        false => Err(SealError::Denied(String::from_utf8_lossy(space).into_owned())),
    }
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
    const EVENT: u8 = 15;

    fn new(stamps: &Stamps<'a>) -> Result<Self, EventWireError> {
        bound("host", stamps.host.len(), limits::HOST_BYTES_MAX)?;
        let EventId { publisher, seq } = stamps.id;
        if seq == 0 {
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

    fn id_len(&self, seq: u64) -> usize {
        self.id.len() + 1 + varint_len(seq)
    }

    fn sealed_len(&self, seq: u64, event_len: usize) -> usize {
        field_len(self.id_len(seq)) + self.rest.len() + field_len(event_len)
    }

    /// Appends an event with its envelope. Gives its head; spans count from the first byte
    /// appended.
    fn put(&self, seq: u64, event: &[u8], inner: &EventHead, out: &mut Vec<u8>) -> Head {
        let begin = out.len();
        put_head(Self::ID, self.id_len(seq), out);
        out.extend_from_slice(&self.id);
        out.push(Self::SEQ_KEY);
        put_varint(seq, out);
        let host = match self.stamps.host.len() {
            0 => Span::default(),
            // The first field, with a key of one byte.
            len => span(out.len() - begin + 1 + varint_len(len as u64), len),
        };
        out.extend_from_slice(&self.rest);
        put_head(Self::EVENT, event.len(), out);
        let content = span(out.len() - begin, event.len());
        out.extend_from_slice(event);
        let stamps = Stamps { id: EventId { seq, ..self.stamps.id }, ..self.stamps };
        sealed_head(&stamps, host, content, inner)
    }
}

fn span(start: usize, len: usize) -> Span {
    Span { start: span_number(start), len: span_number(len) }
}
