//! What an agent puts around its clients' events: the stamps, once each, in one buffer for a whole
//! message.
//!
//! All but the sequence number is the same for all events of a message: it is encoded once, and
//! copied. The buffer is a list as the wire has it, so that agents and clients further on are sent
//! stretches of it.

use super::shape::{ContentShape, OwnContent};
use super::{
    EventHead, EventWireError, Neighbour, Stamps, bound, check_beside, check_event, sealed_head,
};
use ftb_core::run::{Listed, Run, RunBuilder};
use ftb_core::sealed::{Head, Span};
use ftb_core::{EventId, Sealed, limits};
use prost::encoding::{encode_varint, encoded_len_varint};

/// What became of the events of one message.
#[derive(Debug, Default)]
pub struct SealedBatch {
    /// Those that were taken, in order; `None` where none was.
    pub run: Option<Run>,
    /// The sequences of those that were not, and why.
    pub refused: Vec<(u64, SealError)>,
}

/// Why an event was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is none, or not within its bounds.
    #[error(transparent)]
    Event(#[from] EventWireError),
    /// Its publisher may not say that.
    #[error("your user may not publish in event space {0}")]
    Denied(String),
}

/// Checks one event of a publisher and puts it, with the stamps, into bytes of its own.
///
/// # Errors
/// [`EventWireError`]: the event is refused.
pub fn seal(
    stamps: &Stamps<'_>,
    event: &[u8],
    payload_bytes_max: usize,
) -> Result<Sealed, EventWireError> {
    let template = Template::new(stamps)?;
    let head = check_event(event, payload_bytes_max)?;
    let mut buffer = Vec::with_capacity(template.longest() + event.len());
    let content = template.write(&mut buffer, stamps, event);
    let head = template.head(stamps, content, &head);
    Ok(Sealed::new(head, buffer.into())?)
}

/// As [`seal`] for the events of a message, whose sequences follow each other, all copied into one
/// buffer. `may_publish` is asked about each event space, as the event names it.
///
/// # Errors
/// [`EventWireError`] where the stamps make no sense; a bad event is refused alone.
pub fn seal_batch<'a, I>(
    stamps: &Stamps<'_>,
    events: I,
    payload_bytes_max: usize,
    mut may_publish: impl FnMut(&[u8]) -> bool,
) -> Result<SealedBatch, EventWireError>
where
    I: IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator + Clone>,
{
    let template = Template::new(stamps)?;
    let events = events.into_iter();
    let bytes: usize = events.clone().map(|event| event.len() + template.longest()).sum();
    let mut buffer = Vec::with_capacity(bytes);
    let mut builder = RunBuilder::with_capacity(events.len());
    let mut refused = Vec::new();
    let mut checker = Checker { payload_bytes_max, ..Checker::default() };
    // Where the last event that was taken lies within its stamps.
    let mut content_at = 0;
    let mut stamps = *stamps;
    for event in events {
        let checked = checker.check(event, &mut may_publish);
        match checked {
            Ok(checked) => {
                let len = template.len(&stamps, event);
                buffer.extend_from_slice(Listed::of(len).bytes());
                let start = buffer.len();
                let content = template.write(&mut buffer, &stamps, event);
                debug_assert_eq!(buffer.len() - start, len);
                let at = span(start, len);
                match checked {
                    Content::Like(head) if content_at == content.start => {
                        builder.push_like(stamps.id.seq, head.time_ns, at);
                    }
                    Content::Like(head) | Content::New(head) => {
                        builder.push(template.head(&stamps, content, &head), at);
                    }
                }
                content_at = content.start;
            }
            Err(error) => refused.push((stamps.id.seq, error)),
        }
        stamps.id.seq = stamps.id.seq.saturating_add(1);
    }
    Ok(SealedBatch { run: builder.finish(buffer.into())?, refused })
}

/// Checks the events of one message, one after the other.
#[derive(Default)]
struct Checker<'a> {
    payload_bytes_max: usize,
    neighbour: Neighbour<'a>,
    /// The event space that was asked about last: most messages are about one.
    asked: Option<(&'a [u8], bool)>,
    /// The last event, if it was taken, is usual, and more of its shape may come: the one of this
    /// shape that went the long way, and what was found in it.
    shape: Option<(ContentShape, &'a [u8], EventHead)>,
}

/// What [`Checker`] says of an event.
enum Content {
    /// What was found in it.
    New(EventHead),
    /// The same; it differs from the one before, which was taken, in nothing but time and payload.
    Like(EventHead),
}

impl<'a> Checker<'a> {
    fn check(
        &mut self,
        event: &'a [u8],
        may_publish: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<Content, SealError> {
        if let Some((shape, known, head)) = &self.shape
            && let Some(own) = shape.fits(known, event, self.payload_bytes_max)
        {
            let OwnContent { time_ns, payload } = own;
            return Ok(Content::Like(EventHead { time_ns, payload, ..*head }));
        }
        self.shape = None;
        let likely = self.neighbour.begins(event);
        let head = check_beside(event, self.payload_bytes_max, &mut self.neighbour)?;
        let space = slice(event, head.space);
        let may = match self.asked {
            Some((last, may)) if last == space => may,
            _ => may_publish(space),
        };
        self.asked = Some((space, may));
        if !may {
            return Err(SealError::Denied(String::from_utf8_lossy(space).into_owned()));
        }
        let shape = likely.then(|| ContentShape::of(event, &head)).flatten();
        self.shape = shape.map(|shape| (shape, event, head));
        Ok(Content::New(head))
    }
}

/// The stamps of a message, encoded but for the sequence number.
struct Template {
    /// Fields of the id before its sequence number, and the key of that.
    id: Vec<u8>,
    /// Everything behind the id, and the key of the event.
    rest: Vec<u8>,
    /// Where the host lies in `rest`.
    host: Span,
}

/// Most bytes of the varint of a sequence number or a length.
const VARINT_BYTES_MAX: usize = 10;

impl Template {
    fn new(stamps: &Stamps<'_>) -> Result<Self, EventWireError> {
        use prost::encoding::{bool, fixed64, string, uint32};
        bound("host", stamps.host.len(), limits::HOST_BYTES_MAX)?;
        if stamps.id.seq == 0 {
            return Err(EventWireError::Sequence);
        }
        let EventId { publisher, .. } = stamps.id;
        let mut id = Vec::new();
        for (number, half) in [(1, publisher.account), (2, publisher.token)] {
            if half != 0 {
                fixed64::encode(number, &half, &mut id);
            }
        }
        id.push(SEQ_KEY);
        let mut rest = Vec::new();
        let mut host = Span::default();
        if !stamps.host.is_empty() {
            string::encode(2, &stamps.host.to_owned(), &mut rest);
            host = span(rest.len() - stamps.host.len(), stamps.host.len());
        }
        for (number, value) in [(3, stamps.uid), (4, stamps.pid)] {
            if value != 0 {
                uint32::encode(number, &value, &mut rest);
            }
        }
        if stamps.republished {
            bool::encode(5, &stamps.republished, &mut rest);
        }
        rest.push(EVENT_KEY);
        Ok(Self { id, rest, host })
    }

    /// Most bytes that it adds to an event, what stands before it in a list included.
    fn longest(&self) -> usize {
        2 + self.id.len() + self.rest.len() + 3 * VARINT_BYTES_MAX
    }

    /// How many bytes [`Template::write`] appends.
    fn len(&self, stamps: &Stamps<'_>, event: &[u8]) -> usize {
        let numbers = encoded_len_varint(stamps.id.seq) + encoded_len_varint(event.len() as u64);
        2 + self.id.len() + self.rest.len() + numbers + event.len()
    }

    /// Appends one sealed event; where the publisher's bytes lie in it.
    fn write(&self, buffer: &mut Vec<u8>, stamps: &Stamps<'_>, event: &[u8]) -> Span {
        let start = buffer.len();
        let seq = stamps.id.seq;
        // At most 29 bytes: a length of one byte.
        let id_len = self.id.len() + encoded_len_varint(seq);
        buffer.extend_from_slice(&[ID_KEY, id_len as u8]);
        buffer.extend_from_slice(&self.id);
        encode_varint(seq, buffer);
        buffer.extend_from_slice(&self.rest);
        encode_varint(event.len() as u64, buffer);
        let event_at = span(buffer.len() - start, event.len());
        buffer.extend_from_slice(event);
        event_at
    }

    /// The head of what [`Template::write`] wrote; spans count from its first byte.
    fn head(&self, stamps: &Stamps<'_>, content: Span, head: &EventHead) -> Head {
        // Behind the id, which has a key and a length of one byte.
        let rest = 2 + self.id.len() + encoded_len_varint(stamps.id.seq);
        let host = match self.host.len {
            0 => Span::default(),
            len => Span { start: self.host.start + rest as u32, len },
        };
        sealed_head(stamps, host, content, head)
    }
}

/// Keys of fields: the id and the event of a Sealed, the sequence of an EventId.
const ID_KEY: u8 = 0x0a;
const EVENT_KEY: u8 = 0x7a;
const SEQ_KEY: u8 = 0x18;

fn slice(bytes: &[u8], at: Span) -> &[u8] {
    bytes.get(at.start as usize..(at.start + at.len) as usize).unwrap_or_default()
}

fn span(start: usize, len: usize) -> Span {
    Span { start: super::span_number(start), len: super::span_number(len) }
}
