//! What an agent puts around its clients' events: the stamps, once each, in one buffer for a whole
//! message.
//!
//! All but the sequence number is the same for all events of a message: it is encoded once, and
//! copied. The buffer is a list as the wire has it, so that agents and clients further on are sent
//! stretches of it.

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
    let head = template.write(&mut buffer, stamps, event, &head);
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
    let mut neighbour = Neighbour::default();
    // The event space that was asked about last: most messages are about one.
    let mut asked: Option<(&[u8], bool)> = None;
    let mut stamps = *stamps;
    for event in events {
        let checked = check_beside(event, payload_bytes_max, &mut neighbour).map_err(Into::into);
        let allowed = checked.and_then(|head: EventHead| {
            let space = slice(event, head.space);
            let may = match asked {
                Some((last, may)) if last == space => may,
                _ => may_publish(space),
            };
            asked = Some((space, may));
            let denied = || SealError::Denied(String::from_utf8_lossy(space).into_owned());
            if may { Ok(head) } else { Err(denied()) }
        });
        match allowed {
            Ok(head) => {
                let len = template.len(&stamps, event);
                buffer.extend_from_slice(Listed::of(len).bytes());
                let start = buffer.len();
                let head = template.write(&mut buffer, &stamps, event, &head);
                debug_assert_eq!(buffer.len() - start, len);
                builder.push(head, span(start, len));
            }
            Err(error) => refused.push((stamps.id.seq, error)),
        }
        stamps.id.seq = stamps.id.seq.saturating_add(1);
    }
    Ok(SealedBatch { run: builder.finish(buffer.into())?, refused })
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

    /// Appends one sealed event; its head, whose spans count from its first byte.
    fn write(
        &self,
        buffer: &mut Vec<u8>,
        stamps: &Stamps<'_>,
        event: &[u8],
        head: &EventHead,
    ) -> Head {
        let start = buffer.len();
        let seq = stamps.id.seq;
        // At most 29 bytes: a length of one byte.
        let id_len = self.id.len() + encoded_len_varint(seq);
        buffer.extend_from_slice(&[ID_KEY, id_len as u8]);
        buffer.extend_from_slice(&self.id);
        encode_varint(seq, buffer);
        let rest = buffer.len() - start;
        buffer.extend_from_slice(&self.rest);
        encode_varint(event.len() as u64, buffer);
        let event_at = span(buffer.len() - start, event.len());
        buffer.extend_from_slice(event);
        let host = match self.host.len {
            0 => Span::default(),
            len => Span { start: self.host.start + rest as u32, len },
        };
        sealed_head(stamps, host, event_at, head)
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
