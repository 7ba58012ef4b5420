//! Events of one delivery, read where they lie.
//!
//! A delivery is checked in one walk when it comes in; its events stay in the bytes of the message.
//! Who reads them looks at an [`EventView`], which copies nothing; who keeps one asks for
//! [`EventView::to_received`].

use super::shape::SealedShape;
use super::walk::{Once, Value, Walker};
use super::{
    EventHead, EventWireError, Folded, Received, SealedParts, bounded_text, build_event,
    check_texts, span_number, walk_event, walk_id, walk_sealed, walk_tag,
};
use crate::wire::{PACKED, bytes_key};
use bytes::Bytes;
use ftb_core::own::{TIME_BYTES, varint_len};
use ftb_core::sealed::Span;
use ftb_core::{Epoch, EventId, EventKind, OriginId, Position, PublisherId, Severity, limits};

const MESSAGE: &str = "message to a client";
/// What a message to a client begins with when it is a delivery.
const DELIVER_KEY: u8 = 5 << 3 | 2;
const DELIVER: &str = "delivery";
const ITEM: &str = "delivered event";
/// Payloads up to this size are copied out of a delivery for who keeps the event, so that a small
/// event does not keep the whole delivery in memory, in bytes.
const COPIED_BYTES_MAX: usize = 4096;

/// Events in the order of the log, as they came in one message. Cloning copies no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    epoch: Epoch,
    bytes: Bytes,
    layouts: Vec<Layout>,
    /// What the layouts speak of, as text: it is looked at for every event, and checked once.
    texts: String,
    items: Vec<Item>,
    /// How many of them have been taken.
    taken: usize,
}

/// What neighbours mostly have in common: who says it, and where what lies in it, as it is in the first
/// of them. Spans are relative to the bytes of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    publisher: PublisherId,
    uid: u32,
    pid: u32,
    /// Few are folds.
    folded: Option<Box<Folded>>,
    /// Where the event lies, stamps and all.
    sealed: Span,
    host: Span,
    /// Where the publisher's bytes lie.
    content: Span,
    head: EventHead,
    /// Where its texts begin among those of the batch: event space, name, client name, job id and host,
    /// one behind the other.
    texts_at: u32,
}

/// One event: what is its own. Small, since there are many. Spans are relative to the bytes of the
/// batch; the content of one that was packed is that of the event that it is like, but for time and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    index: u64,
    seq: u64,
    time_ns: u64,
    /// The place of its layout.
    layout: u32,
    content: Span,
    payload: Span,
}

impl EventBatch {
    /// The delivery in a message to a client, with the number of its subscription; `None` when the
    /// message is another one.
    pub(crate) fn of_message(bytes: &Bytes) -> Result<Option<(u32, Self)>, EventWireError> {
        if bytes.first() != Some(&DELIVER_KEY) {
            return Ok(None);
        }
        let mut walker = Walker::new(MESSAGE, bytes);
        let mut found = None;
        while let Some(field) = walker.next()? {
            match (field.number, field.value, found) {
                (5, Value::Bytes(span), None) => found = Some(span),
                // Of a later version.
                (9.., _, _) => {}
                _ => return Err(field.malformed(MESSAGE, "it says two things at once")),
            }
        }
        found.map(|at| Self::decode(bytes.clone(), at)).transpose()
    }

    /// Takes the delivery that lies in `bytes` at `at`, and the number of its subscription.
    fn decode(bytes: Bytes, at: Span) -> Result<(u32, Self), EventWireError> {
        let mut walker = Walker::within(DELIVER, &bytes, at);
        let mut once = Once::default();
        let (mut subscription, mut epoch, mut root) = (0, 0, 0);
        let mut reading = Reading::default();
        while let Some(field) = walker.next()? {
            match (field.number, field.value) {
                (1, Value::Varint(number)) => subscription = field.u32(DELIVER, number)?,
                (2, Value::Varint(number)) => epoch = number,
                (3, Value::Fixed64(number)) => root = number,
                (4, Value::Bytes(span)) => {
                    reading.item(&bytes, span)?;
                    continue;
                }
                (1..=4, _) => return Err(field.wrong_type(DELIVER)),
                _ => continue,
            }
            once.check(DELIVER, &field)?;
        }
        let epoch = Epoch { number: epoch, root: OriginId(root) };
        let Reading { layouts, texts, items, .. } = reading;
        Ok((subscription, Self { epoch, bytes, layouts, texts, items, taken: 0 }))
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.items.len() - self.taken
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the message that it came in, in bytes.
    pub fn message_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Those that are left.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = EventView<'_>> {
        self.items[self.taken..].iter().map(|item| self.view(item))
    }

    /// The first of those that are left.
    pub fn first(&self) -> Option<EventView<'_>> {
        self.items.get(self.taken).map(|item| self.view(item))
    }

    fn view<'a>(&'a self, item: &'a Item) -> EventView<'a> {
        EventView { batch: self, layout: &self.layouts[item.layout as usize], item }
    }

    /// The position of the last one.
    pub fn last_position(&self) -> Option<Position> {
        self.items.last().map(|item| Position { epoch: self.epoch, index: item.index })
    }

    /// Takes the first of those that are left, as a value of its own.
    pub fn take_first(&mut self) -> Option<Received> {
        let received = self.first()?.to_received();
        self.taken += 1;
        Some(received)
    }

    /// The ids of those that are left, as runs of one publisher whose numbers follow each other: the
    /// first of each, and how many.
    pub fn id_runs(&self) -> impl Iterator<Item = (EventId, usize)> {
        let follows = |one: &Item, next: &Item| {
            one.layout == next.layout && one.seq.checked_add(1) == Some(next.seq)
        };
        self.items[self.taken..].chunk_by(follows).map(|run| (self.view(&run[0]).id(), run.len()))
    }

    /// Takes those up to an index of the log out.
    pub fn skip_until(&mut self, index: u64) {
        self.items.drain(..self.taken);
        self.taken = 0;
        self.items.retain(|item| item.index > index);
    }

    /// Keeps those of which `keep` says so, by their ids.
    pub fn retain(&mut self, mut keep: impl FnMut(EventId) -> bool) {
        self.items.drain(..self.taken);
        self.taken = 0;
        let layouts = &self.layouts;
        let publisher_of = |item: &Item| layouts[item.layout as usize].publisher;
        self.items.retain(|item| keep(EventId { publisher: publisher_of(item), seq: item.seq }));
    }
}

/// What was read of a delivery so far.
#[derive(Default)]
struct Reading {
    layouts: Vec<Layout>,
    texts: String,
    items: Vec<Item>,
    /// That of the last layout, if it is a usual one and more of it may come.
    shape: Option<SealedShape>,
}

impl Reading {
    /// Checks the events of one item, which follow each other in the log.
    fn item(&mut self, bytes: &Bytes, at: Span) -> Result<(), EventWireError> {
        let mut walker = Walker::within(ITEM, bytes, at);
        let mut index = None;
        let before = self.items.len();
        // Whether the next field tells others that are like the last event.
        let mut packed_next = false;
        while let Some(field) = walker.next()? {
            match (field.number, field.value) {
                (1, Value::Varint(first)) if index.is_none() && self.items.len() == before => {
                    index = Some(first);
                }
                (2, Value::Bytes(sealed)) => {
                    if self.items.len() == limits::BATCH_EVENTS_MAX {
                        return Err(field.malformed(DELIVER, "it has too many events"));
                    }
                    let place = (self.items.len() - before) as u64;
                    let index = index.unwrap_or(0).checked_add(place);
                    let index = index.ok_or(field.malformed(ITEM, "no index is so high"))?;
                    packed_next = walker.rest().first() == Some(&bytes_key(PACKED as u8));
                    let item = self.event(bytes, index, sealed, packed_next)?;
                    if self.items.is_empty() && !packed_next {
                        // Events of one delivery are mostly of one size.
                        let left = bytes.len().saturating_sub(sealed.start as usize);
                        let about = left / (sealed.len as usize + 3) + 1;
                        self.items.reserve_exact(about.min(limits::BATCH_EVENTS_MAX));
                    }
                    self.items.push(item);
                }
                (PACKED, Value::Bytes(packed)) if packed_next => {
                    self.packed(bytes, packed).map_err(|what| field.malformed(ITEM, what))?;
                    packed_next = false;
                }
                (PACKED, _) => {
                    let what = "packed events without the one that they are like";
                    return Err(field.malformed(ITEM, what));
                }
                (1, Value::Varint(_)) => {
                    return Err(field.malformed(ITEM, "its index does not come first and once"));
                }
                (1 | 2, _) => return Err(field.wrong_type(ITEM)),
                _ => {}
            }
        }
        if self.items.len() == before { Err(EventWireError::Missing("content")) } else { Ok(()) }
    }

    /// One event that has the shape of the last layout.
    fn short(&self, bytes: &Bytes, index: u64, sealed: Span) -> Option<Item> {
        let (shape, layout) = (self.shape.as_ref()?, self.layouts.last()?);
        let own = shape.fits(slice(bytes, layout.sealed), slice(bytes, sealed))?;
        let (start, len) = (own.content_at as u32, sealed.len - own.content_at as u32);
        let content = within(sealed, Span { start, len });
        Some(Item {
            index,
            seq: own.seq,
            time_ns: own.content.time_ns,
            layout: self.layouts.len() as u32 - 1,
            content,
            payload: within(content, own.content.payload),
        })
    }

    /// Those that are like the last event, told by what is their own.
    fn packed(&mut self, bytes: &Bytes, packed: Span) -> Result<(), &'static str> {
        // Of one that has a shape nothing lies behind the payload.
        let Some(known) = self.items.last().copied().filter(|_| self.shape.is_some()) else {
            return Err("others are packed behind an event that they cannot be like");
        };
        let payload_len = known.payload.len;
        let step = TIME_BYTES + payload_len as usize;
        let count = packed.len as usize / step;
        let last = known.seq.checked_add(count as u64);
        let last_index = known.index.checked_add(count as u64);
        if count == 0 || packed.len as usize != count * step {
            return Err("packed events are not as long as the one that they are like");
        }
        if self.items.len() + count > limits::BATCH_EVENTS_MAX {
            return Err("it has too many events");
        }
        let as_long = |last| varint_len(last) == varint_len(known.seq);
        if last_index.is_none() || !last.is_some_and(as_long) {
            return Err("no index or number is so high");
        }
        self.items.reserve_exact(count);
        let own = slice(bytes, packed).chunks_exact(step);
        for ((place, own), start) in (1..).zip(own).zip((packed.start..).step_by(step)) {
            let time = own.first_chunk().map_or(0, |time| u64::from_le_bytes(*time));
            self.items.push(Item {
                index: known.index + place,
                seq: known.seq + place,
                time_ns: time,
                payload: Span { start: start + TIME_BYTES as u32, len: payload_len },
                ..known
            });
        }
        Ok(())
    }

    /// Checks one event in every respect, the short way where it has the shape. Its texts need no
    /// second look where they are those of the layout before. Others may be like a `known` one.
    fn event(
        &mut self,
        bytes: &Bytes,
        index: u64,
        sealed: Span,
        known: bool,
    ) -> Result<Item, EventWireError> {
        if let Some(item) = self.short(bytes, index, sealed) {
            return Ok(item);
        }
        let parts = walk_sealed(slice(bytes, sealed))?;
        let (host, content) = (within(sealed, parts.host), within(sealed, parts.event));
        let found = walk_event(slice(bytes, content), limits::PAYLOAD_BYTES_MAX)?;
        let head = EventHead {
            space: within(content, found.space),
            name: within(content, found.name),
            job_id: within(content, found.job_id),
            client_name: within(content, found.client_name),
            payload: within(content, found.payload),
            ..found
        };
        let SealedParts { id, uid, pid, folded, .. } = parts;
        let folded = folded.map(|fold| Box::new(Folded::from(fold)));
        let publisher = id.publisher;
        let mut layout =
            Layout { publisher, uid, pid, folded, sealed, host, content, head, texts_at: 0 };
        let before = self.layouts.last();
        layout.texts_at = match before.filter(|before| same_texts(bytes, before, &layout)) {
            Some(before) => before.texts_at,
            None => {
                let host = bounded_text("host", slice(bytes, host), limits::HOST_BYTES_MAX)?;
                let texts = check_texts(&layout.head, |span| slice(bytes, span))?;
                let texts_at = span_number(self.texts.len());
                self.texts.extend(texts.into_iter().chain([host]));
                texts_at
            }
        };
        let place = self.layouts.len() as u32;
        // Two in a row: more of that publisher may follow.
        if known || before.is_some_and(|before| before.publisher == publisher) {
            let usual = layout.folded.is_none();
            let shape = || SealedShape::of(slice(bytes, sealed), parts.event, &found, id.seq);
            self.shape = usual.then(shape).flatten();
        } else {
            self.shape = None;
        }
        self.layouts.push(layout);
        Ok(Item {
            index,
            seq: id.seq,
            time_ns: head.time_ns,
            layout: place,
            content,
            payload: head.payload,
        })
    }
}

fn same_texts(bytes: &[u8], one: &Layout, other: &Layout) -> bool {
    let texts = |layout: &Layout| {
        let EventHead { space, name, client_name, job_id, .. } = layout.head;
        [space, name, layout.host, client_name, job_id]
    };
    texts(one)
        .into_iter()
        .zip(texts(other))
        .all(|(one, other)| one.len == other.len && slice(bytes, one) == slice(bytes, other))
}

/// A span relative to another, as one relative to what that is relative to.
fn within(outer: Span, inner: Span) -> Span {
    Span { start: outer.start.saturating_add(inner.start), len: inner.len }
}

fn slice(bytes: &[u8], span: Span) -> &[u8] {
    let start = span.start as usize;
    bytes.get(start..start.saturating_add(span.len as usize)).unwrap_or_default()
}

/// One event of a batch. Looking at it copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    batch: &'a EventBatch,
    layout: &'a Layout,
    item: &'a Item,
}

impl<'a> EventView<'a> {
    /// Its place in the log.
    pub fn position(&self) -> Position {
        Position { epoch: self.batch.epoch, index: self.item.index }
    }

    /// Its id, unique in the cluster and over restarts.
    pub fn id(&self) -> EventId {
        EventId { publisher: self.layout.publisher, seq: self.item.seq }
    }

    /// Where it was published; its agent vouches for it.
    pub fn host(&self) -> &'a str {
        self.text(4)
    }

    /// Who published it; its agent vouches for it.
    pub fn uid(&self) -> u32 {
        self.layout.uid
    }

    /// Which process published it; its agent vouches for it.
    pub fn pid(&self) -> u32 {
        self.layout.pid
    }

    /// Namespace.
    pub fn space(&self) -> &'a str {
        self.text(0)
    }

    /// What happened.
    pub fn name(&self) -> &'a str {
        self.text(1)
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.layout.head.severity
    }

    /// When, in Unix nanoseconds on the publisher's clock.
    pub fn time_ns(&self) -> u64 {
        self.item.time_ns
    }

    /// The publishing client's name; may be empty.
    pub fn client_name(&self) -> &'a str {
        self.text(2)
    }

    /// The job it belongs to; may be empty.
    pub fn job_id(&self) -> &'a str {
        self.text(3)
    }

    /// Normal, or response to another.
    pub fn kind(&self) -> EventKind {
        let mut walker = self.walker();
        let (mut response, mut answers) = (false, None);
        while let Ok(Some(field)) = walker.next() {
            match (field.number, field.value) {
                (7, Value::Varint(number)) => response = number != 0,
                (8, Value::Bytes(span)) => answers = walk_id(walker.slice(span)).ok(),
                _ => {}
            }
        }
        if response { EventKind::Response(answers) } else { EventKind::Normal }
    }

    /// Facts, as key and value.
    pub fn tags(&self) -> Tags<'a> {
        Tags { walker: self.walker() }
    }

    /// The value of the first tag with that key.
    pub fn tag(&self, key: &str) -> Option<&'a str> {
        self.tags().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Free bytes.
    pub fn payload(&self) -> &'a [u8] {
        slice(&self.batch.bytes, self.item.payload)
    }

    /// As a value of its own. Its payload shares the bytes of the delivery only when it is large.
    pub fn to_received(&self) -> Received {
        let head = EventHead {
            severity: self.severity(),
            time_ns: self.time_ns(),
            space: self.in_content(self.layout.head.space),
            name: self.in_content(self.layout.head.name),
            job_id: self.in_content(self.layout.head.job_id),
            client_name: self.in_content(self.layout.head.client_name),
            payload: self.item.payload,
        };
        let mut event = build_event(&self.batch.bytes, self.item.content, &head)
            .expect("its bytes were checked when the batch was decoded");
        // Not the one of the event that it may be like.
        event.payload = match self.payload() {
            small if small.len() <= COPIED_BYTES_MAX => Bytes::copy_from_slice(small),
            large => self.batch.bytes.slice_ref(large),
        };
        Received {
            position: self.position(),
            id: self.id(),
            host: self.host().to_owned(),
            uid: self.uid(),
            pid: self.pid(),
            event,
            folded: self.folded(),
        }
    }

    /// It stands for others with the same publisher, space, name and severity.
    pub fn folded(&self) -> Option<Folded> {
        self.layout.folded.as_deref().copied()
    }

    fn walker(&self) -> Walker<'a> {
        Walker::within("event", &self.batch.bytes, self.item.content)
    }

    /// Where that lies in the publisher's bytes which lies there in those of its layout.
    fn in_content(&self, span: Span) -> Span {
        // A text that is not there lies at the beginning of its event, as all others behind it.
        let start = span.start - self.layout.content.start + self.item.content.start;
        Span { start, ..span }
    }

    /// One of the texts of its layout, by its place among them.
    fn text(&self, place: usize) -> &'a str {
        let Layout { host, head, texts_at, .. } = self.layout;
        let spans = [head.space, head.name, head.client_name, head.job_id, *host];
        let before: u32 = spans[..place].iter().map(|span| span.len).sum();
        let start = (texts_at + before) as usize;
        let end = start + spans[place].len as usize;
        self.batch.texts.get(start..end).unwrap_or_default()
    }
}

/// The tags of an event, as key and value.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    walker: Walker<'a>,
}

impl<'a> Iterator for Tags<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        while let Ok(Some(field)) = self.walker.next() {
            if let (9, Value::Bytes(span)) = (field.number, field.value) {
                let [key, value] = walk_tag(self.walker.slice(span)).ok()?;
                return Some((key, value));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{Stamps, encode_event, seal};
    use crate::v1;
    use ftb_core::Event;
    use prost::Message as _;

    fn sealed(seq: u64, payload: usize) -> Bytes {
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        event.time_ns = seq * 1000;
        event.client_name = "some".to_owned();
        event.payload = vec![7; payload].into();
        let publisher = PublisherId { account: 1, token: 2 };
        let id = EventId { publisher, seq };
        let stamps = Stamps { id, host: "node1", uid: 5, pid: 1, republished: false };
        seal(&stamps, &encode_event(&event), 300).unwrap().bytes().clone()
    }

    /// A fold that covers more than there was before it is refused, whatever came before.
    #[test]
    fn a_fold_is_no_shape_for_others() {
        // As prost writes it: the stamp before the event.
        let folded = |seq| {
            let mut message = v1::Sealed::decode(sealed(seq, 5)).unwrap();
            message.folded = Some(v1::Folded { covers: 5, count: 6, first_ns: 1, last_ns: 2 });
            message.encode_to_vec()
        };
        let events = [folded(7), folded(8), folded(5)];
        let bytes = Bytes::from(events.concat());
        let mut reading = Reading::default();
        let mut start = 0;
        for event in &events[..2] {
            let at = Span { start, len: event.len() as u32 };
            start += at.len;
            let item = reading.event(&bytes, 1, at, false).unwrap();
            reading.items.push(item);
        }
        let at = Span { start, len: events[2].len() as u32 };
        assert_eq!(reading.event(&bytes, 3, at, false), Err(EventWireError::Sequence));
    }

    /// The usual events take the short way, whatever their payloads.
    #[test]
    fn usual_events_have_the_shape_of_those_before() {
        let events = [sealed(1, 5), sealed(2, 5), sealed(3, 5), sealed(4, 200)];
        let bytes = Bytes::from(events.concat());
        let mut reading = Reading::default();
        let mut start = 0;
        for (index, event) in (1..).zip(&events) {
            let at = Span { start, len: event.len() as u32 };
            start += at.len;
            let short = reading.short(&bytes, index, at);
            assert_eq!(short.is_some(), index > 2, "event {index}");
            let long = Reading::default().event(&bytes, index, at, false).unwrap();
            let layout = |short: Item| Item { layout: 0, ..short };
            assert!(short.is_none_or(|short| layout(short) == long));
            reading.event(&bytes, index, at, false).unwrap();
        }
        assert_eq!(reading.layouts.len(), 2);
    }
}
