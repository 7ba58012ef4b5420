//! Events of one delivery, read where they lie.
//!
//! A delivery is checked in one walk when it comes in; its events stay in the bytes of the message.
//! Who reads them looks at an [`EventView`], which copies nothing; who keeps one asks for
//! [`EventView::to_received`].

use super::walk::{Once, Value, Walker};
use super::{EventHead, EventWireError, Folded, Received, build_event, walk_id, walk_tag};
use bytes::Bytes;
use ftb_core::sealed::Span;
use ftb_core::{Epoch, EventId, EventKind, OriginId, Position, PublisherId, Severity};
use reading::Reading;

mod reading;

const MESSAGE: &str = "message to a client";
/// What a message to a client begins with when it is a delivery.
const DELIVER_KEY: u8 = 5 << 3 | 2;
const DELIVER: &str = "delivery";
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
