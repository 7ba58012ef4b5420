//! What an agent puts around its clients' events: the stamps, once each, in one buffer for a whole
//! message.
//!
//! All but the sequence number is the same for all events of a message: it is encoded once, and
//! copied. The buffer is as the wire has it, so that agents and clients further on are sent stretches of
//! it: a list; and of events that are alike in a row the first only, with what is the others' own behind it
//! ([`ftb_core::own`]).

use super::shape::{ContentShape, SealedShape};
use super::{
    EventHead, EventWireError, Neighbour, Stamps, bound, check_beside, check_event, sealed_head,
};
use ftb_core::own::{OwnParts, TIME_BYTES, varint_len};
use ftb_core::run::{Alike, Listed, Run, RunBuilder};
use ftb_core::sealed::{Head, Span, SpanError};
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
    let mut buffer = Vec::with_capacity(template.len(stamps.id.seq, event.len()));
    template.put_before(&mut buffer, stamps.id.seq, event.len());
    let content = span(buffer.len(), event.len());
    buffer.extend_from_slice(event);
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
    let last_seq = stamps.id.seq.saturating_add(events.len() as u64);
    let bytes = events.clone().map(|event| template.listed_len(last_seq, event.len())).sum();
    let as_long = events.clone().next().map_or(0, <[u8]>::len);
    let as_long = events.clone().filter(|event| event.len() == as_long).count();
    let mut checker = Checker { payload_bytes_max, ..Checker::default() };
    let mut writer = Writer::new(stamps, template, Expected { bytes, as_long });
    let mut refused = Vec::new();
    let mut seq = stamps.id.seq;
    for event in events {
        match checker.check(event, &mut may_publish) {
            Ok(Content::New(head)) => writer.whole(seq, event, head),
            Ok(Content::Like(own)) => writer.like(seq, event, &own),
            Err(error) => refused.push((seq, error)),
        }
        seq = seq.saturating_add(1);
    }
    Ok(SealedBatch { run: writer.finish()?, refused })
}

/// Checks the events of one message, one after the other.
#[derive(Default)]
struct Checker<'a> {
    payload_bytes_max: usize,
    neighbour: Neighbour<'a>,
    /// The event space that was asked about last: most messages are about one.
    asked: Option<(&'a [u8], bool)>,
    /// The last event, if it was taken, is usual, and more of its shape may come: the one of this
    /// shape that went the long way.
    shape: Option<(ContentShape, &'a [u8])>,
}

/// What [`Checker`] says of an event.
enum Content {
    /// What was found in it.
    New(EventHead),
    /// It differs from the one before, which was taken, in nothing but time and payload.
    Like(Like),
}

/// What an event has of its own. No more is told of it: what is written in halves and read as a whole waits
/// until all has reached the cache that was written before it, the last event among that, into memory that
/// is cold.
struct Like {
    time_ns: u64,
    /// Where it has that, in the publisher's bytes.
    time_at: u32,
    /// Where its payload begins there, which goes to the end.
    payload_at: u32,
}

impl<'a> Checker<'a> {
    fn check(
        &mut self,
        event: &'a [u8],
        may_publish: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<Content, SealError> {
        if let Some((shape, known)) = &self.shape
            && let Some(own) = shape.fits(known, event, self.payload_bytes_max)
        {
            let time_at = super::span_number(shape.time_at());
            let (time_ns, payload_at) = (own.time_ns, own.payload.start);
            return Ok(Content::Like(Like { time_ns, time_at, payload_at }));
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
        self.shape = shape.map(|shape| (shape, event));
        Ok(Content::New(head))
    }
}

/// Writes the events of one message, one after the other.
struct Writer<'a> {
    stamps: Stamps<'a>,
    template: Template,
    buffer: Vec<u8>,
    builder: RunBuilder,
    /// The last event that was written whole.
    last: Option<Whole>,
    /// So many have been packed behind it, and where they begin.
    packed: u32,
    packed_at: u32,
    expected: Expected,
    /// An event could not be told of: then none is taken.
    broken: bool,
}

/// What the buffer is to have room for.
struct Expected {
    /// All events whole, as a list.
    bytes: usize,
    /// So many are as long as the first, itself included.
    as_long: usize,
}

/// An event that was written whole.
struct Whole {
    seq: u64,
    len: usize,
    /// Counts from its publisher's bytes.
    head: EventHead,
    at: Span,
    content: Span,
    others: Others,
}

/// Whether others can be packed behind an event.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    /// Nobody has asked.
    Unknown,
    /// It has not the shape for that.
    Never,
    /// This is what they have of their own.
    Told(OwnParts),
}

impl<'a> Writer<'a> {
    fn new(stamps: &Stamps<'a>, template: Template, expected: Expected) -> Self {
        Self {
            stamps: *stamps,
            template,
            buffer: Vec::new(),
            builder: RunBuilder::default(),
            last: None,
            packed: 0,
            packed_at: 0,
            expected,
            broken: false,
        }
    }

    /// Makes room at the first event, as if those that are as long were packed behind the second (the first
    /// that others are compared with): they mostly are, and the buffer is kept as long as the events.
    fn make_room(&mut self, seq: u64, event: &[u8], head: &EventHead) {
        let whole = self.template.listed_len(seq, event.len());
        let saved = match head.payload.start {
            0 => 0,
            _ => whole.saturating_sub(TIME_BYTES + head.payload.len as usize),
        };
        let others = self.expected.as_long.saturating_sub(2);
        self.buffer.reserve_exact(self.expected.bytes.saturating_sub(others * saved));
    }

    /// One that differs from the one before.
    fn whole(&mut self, seq: u64, event: &[u8], head: EventHead) {
        self.end_packed();
        if self.buffer.is_empty() {
            self.make_room(seq, event, &head);
        }
        let Written { at, content } = self.template.write(&mut self.buffer, seq, event);
        self.push_whole(seq, head, at, content);
        let (len, others) = (event.len(), Others::Unknown);
        self.last = Some(Whole { seq, len, head, at, content, others });
    }

    fn push_whole(&mut self, seq: u64, head: EventHead, at: Span, content: Span) {
        let stamps = Stamps { id: EventId { seq, ..self.stamps.id }, ..self.stamps };
        self.builder.push(self.template.head(&stamps, content, &head), at);
    }

    /// One that is like the one before.
    fn like(&mut self, seq: u64, event: &[u8], own: &Like) {
        if self.pack(seq, event, own) {
            return;
        }
        self.end_packed();
        let Some(last) = self.last.take() else {
            debug_assert!(false, "there is one that it is like");
            self.broken = true;
            return;
        };
        let payload = span(own.payload_at as usize, event.len() - own.payload_at as usize);
        let head = EventHead { time_ns: own.time_ns, payload, ..last.head };
        let Written { at, content } = self.template.write(&mut self.buffer, seq, event);
        let alike = || Alike { seq, time_ns: own.time_ns, time_at: content.start + own.time_at };
        // Where number and content grow and shrink by a byte each, only the host lies elsewhere.
        let lies_alike =
            content.start == last.content.start && varint_len(seq) == varint_len(last.seq);
        match last.others {
            _ if !lies_alike => self.push_whole(seq, head, at, content),
            Others::Never => self.builder.push_like(alike(), at),
            _ => self.builder.push_known(alike(), at),
        }
        let others = match last.others {
            Others::Never => Others::Never,
            _ => Others::Unknown,
        };
        self.last = Some(Whole { seq, len: event.len(), head, at, content, others });
    }

    /// Writes only what is its own, where the last event that was written whole has all the rest.
    #[inline]
    fn pack(&mut self, seq: u64, event: &[u8], own: &Like) -> bool {
        let Some(last) = &mut self.last else { return false };
        let follows = last.seq.checked_add(u64::from(self.packed) + 1) == Some(seq);
        if !(follows && last.len == event.len() && varint_len(seq) == varint_len(last.seq)) {
            return false;
        }
        if last.others == Others::Unknown {
            let whole = slice(&self.buffer, last.at);
            let shape = SealedShape::of(whole, last.content, &last.head, last.seq);
            last.others = shape.map_or(Others::Never, |shape| Others::Told(shape.own_parts()));
        }
        if !matches!(last.others, Others::Told(_)) {
            return false;
        }
        if self.packed == 0 {
            self.packed_at = super::span_number(self.buffer.len());
        }
        self.packed += 1;
        self.buffer.extend_from_slice(&own.time_ns.to_le_bytes());
        self.buffer.extend_from_slice(&event[own.payload_at as usize..]);
        true
    }

    /// Tells of those that were packed.
    fn end_packed(&mut self) {
        let count = std::mem::take(&mut self.packed);
        if let Some(Whole { others: Others::Told(parts), .. }) = self.last
            && count > 0
        {
            let fits = self.builder.push_packed(count, parts, self.packed_at);
            debug_assert!(fits, "they were packed behind the last event that is whole");
            self.broken |= !fits;
        }
    }

    fn finish(mut self) -> Result<Option<Run>, EventWireError> {
        self.end_packed();
        if self.broken {
            return Err(SpanError("payload").into());
        }
        // Where other events came than expected, a tenth is not worth another place.
        if self.buffer.len() < self.buffer.capacity() / 10 * 9 {
            self.buffer.shrink_to_fit();
        }
        Ok(self.builder.finish(self.buffer.into())?)
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
    /// What stands before an event in a list, of the last event but for its number; empty until two of
    /// those lengths have come.
    before: Vec<u8>,
    /// The bytes of the number and of the last event, and of what a list has before it.
    lens: (usize, usize),
    listed_len: usize,
}

/// Where a sealed event was written, and where the publisher's bytes lie in it.
struct Written {
    at: Span,
    content: Span,
}

impl Template {
    fn new(stamps: &Stamps<'_>) -> Result<Self, EventWireError> {
        use prost::encoding::{bool, fixed64, string, uint32};
        bound("host", stamps.host.len(), limits::HOST_BYTES_MAX)?;
        if stamps.id.seq == 0 {
            return Err(EventWireError::Sequence);
        }
        let EventId { publisher, .. } = stamps.id;
        let mut id = Vec::with_capacity(STAMP_BYTES);
        for (number, half) in [(1, publisher.account), (2, publisher.token)] {
            if half != 0 {
                fixed64::encode(number, &half, &mut id);
            }
        }
        id.push(SEQ_KEY);
        let mut rest = Vec::with_capacity(STAMP_BYTES + stamps.host.len());
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
        Ok(Self { id, rest, host, before: Vec::new(), lens: (0, 0), listed_len: 0 })
    }

    /// How long a sealed event is.
    fn len(&self, seq: u64, event_len: usize) -> usize {
        let numbers = encoded_len_varint(seq) + encoded_len_varint(event_len as u64);
        2 + self.id.len() + self.rest.len() + numbers + event_len
    }

    /// And with what stands before it in a list.
    fn listed_len(&self, seq: u64, event_len: usize) -> usize {
        let len = self.len(seq, event_len);
        1 + encoded_len_varint(len as u64) + len
    }

    /// Appends one sealed event as an item of a list.
    fn write(&mut self, buffer: &mut Vec<u8>, seq: u64, event: &[u8]) -> Written {
        let begin = buffer.len();
        let (seq_len, event_len) = (encoded_len_varint(seq), event.len());
        if self.lens != (seq_len, event_len) {
            self.lens = (seq_len, event_len);
            self.before.clear();
            self.put_listed(buffer, seq, event_len);
        } else {
            if self.before.is_empty() {
                let mut before = std::mem::take(&mut self.before);
                self.put_listed(&mut before, seq, event_len);
                self.before = before;
            }
            buffer.extend_from_slice(&self.before);
            let seq_at = begin + self.listed_len + 2 + self.id.len();
            put_varint(&mut buffer[seq_at..seq_at + seq_len], seq);
        }
        let (start, content_at) = (begin + self.listed_len, buffer.len());
        buffer.extend_from_slice(event);
        let content = span(content_at - start, event_len);
        Written { at: span(start, buffer.len() - start), content }
    }

    /// Appends what stands before an event in a list, its stamps included.
    fn put_listed(&mut self, buffer: &mut Vec<u8>, seq: u64, event_len: usize) {
        let listed = Listed::of(self.len(seq, event_len));
        self.listed_len = listed.bytes().len();
        buffer.extend_from_slice(listed.bytes());
        self.put_before(buffer, seq, event_len);
    }

    /// Appends what stands before the publisher's bytes in a sealed event.
    fn put_before(&self, buffer: &mut Vec<u8>, seq: u64, event_len: usize) {
        // At most 29 bytes: a length of one byte.
        let id_len = self.id.len() + encoded_len_varint(seq);
        buffer.extend_from_slice(&[ID_KEY, id_len as u8]);
        buffer.extend_from_slice(&self.id);
        encode_varint(seq, buffer);
        buffer.extend_from_slice(&self.rest);
        encode_varint(event_len as u64, buffer);
    }

    /// The head of what was written; spans count from its first byte.
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

/// Writes a number that takes all of these bytes.
fn put_varint(bytes: &mut [u8], number: u64) {
    let mut rest = number;
    if let Some((last, more)) = bytes.split_last_mut() {
        for byte in more {
            *byte = rest as u8 | 0x80;
            rest >>= 7;
        }
        *last = rest as u8;
    }
}

/// Keys of fields: the id and the event of a Sealed, the sequence of an EventId.
const ID_KEY: u8 = 0x0a;
const EVENT_KEY: u8 = 0x7a;
/// Room for the stamps but the host, in bytes.
const STAMP_BYTES: usize = 32;
const SEQ_KEY: u8 = 0x18;

fn slice(bytes: &[u8], at: Span) -> &[u8] {
    bytes.get(at.start as usize..(at.start + at.len) as usize).unwrap_or_default()
}

fn span(start: usize, len: usize) -> Span {
    Span { start: super::span_number(start), len: super::span_number(len) }
}
