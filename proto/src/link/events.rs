//! The frames that carry events: written straight from runs, read into one run for a frame.

use super::{LinkWireError, Result, bound, core_epoch, core_hole, need, v1, wire_epoch, wire_hole};
use crate::event::{SealedChecker, Value, Walker};
use crate::wire::{ItemKeys, Out, bytes_key, varint_key};
use bytes::Bytes;
use ftb_core::frame::{Content, Down, Fetched, Frame, Item, Replicate, UpBatch, UpItem};
use ftb_core::ident::OriginId;
use ftb_core::limits::BATCH_EVENTS_MAX;
use ftb_core::node::api::Gap;
use ftb_core::position::Epoch;
use ftb_core::run::{Run, RunBuilder};
use ftb_core::sealed::Span;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

/// Fields of a LinkFrame that carry events, in `ftb/v1/link.proto`.
const UP: u32 = 9;
const DOWN: u32 = 14;
const FETCHED: u32 = 17;
const REPLICATE: u32 = 20;

/// Fields of a LogItem and of an UpItem.
const LOG_INDEX: u32 = 1;
const LOG_EVENT: u32 = 2;
const LOG_HOLE: u32 = 3;
const UP_EVENT: u32 = 1;
const UP_HOLE: u32 = 2;
const UP_FORK: u32 = 3;

const fn log_keys(items: u8) -> ItemKeys {
    ItemKeys {
        item: bytes_key(items),
        index: Some(varint_key(LOG_INDEX as u8)),
        event: bytes_key(LOG_EVENT as u8),
    }
}

/// The items of Down, Fetched and Replicate have the same number.
const LOG: ItemKeys = log_keys(2);
const UP_ITEM: ItemKeys =
    ItemKeys { item: bytes_key(5), index: None, event: bytes_key(UP_EVENT as u8) };

/// Appends a frame, if it is one that carries events.
pub(super) fn write(frame: &Frame, out: &mut impl Out) -> bool {
    match frame {
        Frame::Up(batch) => {
            let head = v1::UpBatch {
                origin: batch.origin.0,
                run: batch.run,
                base: batch.base,
                first: batch.first,
                items: Vec::new(),
            };
            let parts: Vec<Part<'_>> = batch.items.iter().map(up_part).collect();
            write_frame(UP, &head, UP_ITEM, &parts, out);
        }
        Frame::Down(down) => {
            let epoch = Some(wire_epoch(down.epoch));
            let head = v1::Down { epoch, items: Vec::new(), covered: down.covered };
            write_frame(DOWN, &head, LOG, &log_parts(&down.items), out);
        }
        Frame::Fetched(fetched) => {
            let head = v1::Fetched {
                id: fetched.id,
                items: Vec::new(),
                covered: fetched.covered,
                last: fetched.last,
            };
            write_frame(FETCHED, &head, LOG, &log_parts(&fetched.items), out);
        }
        Frame::Replicate(batch) => {
            let head = v1::Replicate {
                epoch: Some(wire_epoch(batch.epoch)),
                items: Vec::new(),
                until: batch.until,
                committed: batch.committed,
                complete: batch.complete,
            };
            write_frame(REPLICATE, &head, LOG, &log_parts(&batch.items), out);
        }
        _ => return false,
    }
    true
}

/// One item of a list: events, or something rare that prost has encoded.
enum Part<'a> {
    Events(u64, &'a Run),
    Encoded(Vec<u8>),
}

fn up_part(item: &UpItem) -> Part<'_> {
    use v1::up_item::Item as Up;
    let item = match item {
        UpItem::Events(run) => return Part::Events(0, run),
        UpItem::Gap(gap) => Up::Hole(wire_hole(gap)),
        UpItem::Fork { epoch, until, handed_over } => Up::Fork(v1::Fork {
            epoch: Some(wire_epoch(*epoch)),
            until: *until,
            handed_over: *handed_over,
        }),
    };
    Part::Encoded(v1::UpItem { item: Some(item) }.encode_to_vec())
}

fn log_parts(items: &[Item]) -> Vec<Part<'_>> {
    items.iter().map(log_part).collect()
}

fn log_part(item: &Item) -> Part<'_> {
    match &item.content {
        Content::Events(run) => Part::Events(item.index, run),
        Content::Gap(gap) => {
            let content = Some(v1::log_item::Content::Hole(wire_hole(gap)));
            Part::Encoded(v1::LogItem { index: item.index, content }.encode_to_vec())
        }
    }
}

/// The frame as one field of a LinkFrame: its head, then its items.
fn write_frame(
    field: u32,
    head: &impl Message,
    keys: ItemKeys,
    parts: &[Part<'_>],
    out: &mut impl Out,
) {
    let head = head.encode_to_vec();
    let part_len = |part: &Part<'_>| match part {
        Part::Events(first, run) => {
            let events = (*first..).zip(run.iter());
            events.map(|(index, event)| keys.len(index, event.bytes().len())).sum::<usize>()
        }
        Part::Encoded(bytes) => 1 + encoded_len_varint(bytes.len() as u64) + bytes.len(),
    };
    let len = head.len() + parts.iter().map(part_len).sum::<usize>();
    out.reserve(2 * MAX_HEAD + len);
    encode_varint(u64::from(field << 3 | 2), out);
    encode_varint(len as u64, out);
    out.put_slice(&head);
    for part in parts {
        match part {
            Part::Events(first, run) => {
                for (index, event) in (*first..).zip(run.iter()) {
                    keys.put(index, event.bytes(), out);
                }
            }
            Part::Encoded(bytes) => {
                out.put_u8(keys.item);
                encode_varint(bytes.len() as u64, out);
                out.put_slice(bytes);
            }
        }
    }
}

/// Most bytes of a key or a length.
const MAX_HEAD: usize = 10;

/// Reads a frame that carries events; `None` for any other.
pub(super) fn decode(bytes: &Bytes) -> Result<Option<Frame>> {
    let mut walker = Walker::new("link frame", bytes);
    let Some(field) = walker.next()? else { return Ok(None) };
    let Value::Bytes(at) = field.value else { return Ok(None) };
    let kind = field.number;
    if !matches!(kind, UP | DOWN | FETCHED | REPLICATE) {
        return Ok(None);
    }
    if walker.next()?.is_some() {
        return Err(LinkWireError::Range { what: "more than one content" });
    }
    let body = Body { bytes, at };
    Ok(Some(match kind {
        UP => Frame::Up(body.up()?),
        DOWN => Frame::Down(body.down()?),
        FETCHED => Frame::Fetched(body.fetched()?),
        _ => Frame::Replicate(body.replicate()?),
    }))
}

/// The content of a frame, where it lies in the frame's bytes.
struct Body<'a> {
    bytes: &'a Bytes,
    at: Span,
}

impl Body<'_> {
    fn up(&self) -> Result<UpBatch> {
        let mut items = Collector::new(self.bytes);
        let mut batch = v1::UpBatch::default();
        self.walk(|number, value, at| {
            match (number, value) {
                (1, Value::Fixed64(number)) => batch.origin = number,
                (2, Value::Varint(number)) => batch.run = number,
                (3, Value::Varint(number)) => batch.base = number,
                (4, Value::Varint(number)) => batch.first = number,
                (5, Value::Bytes(_)) => items.up_item(at)?,
                (1..=5, _) => return Err(wrong_type("batch")),
                _ => {}
            }
            Ok(())
        })?;
        let count = items.count as u64;
        let dense = count > 0
            && batch.base > 0
            && batch.base <= batch.first
            && batch.first.checked_add(count).is_some();
        if !dense {
            return Err(LinkWireError::Range { what: "the sequences of a batch" });
        }
        Ok(UpBatch {
            origin: OriginId(batch.origin),
            run: batch.run,
            base: batch.base,
            first: batch.first,
            items: items.up_items()?,
        })
    }

    fn down(&self) -> Result<Down> {
        let mut items = Collector::new(self.bytes);
        let (mut epoch, mut covered) = (None, 0);
        self.walk(|number, value, at| {
            match (number, value) {
                (1, Value::Bytes(_)) => epoch = Some(self.epoch(at)?),
                (2, Value::Bytes(_)) => items.log_item(at)?,
                (3, Value::Varint(number)) => covered = number,
                (1..=3, _) => return Err(wrong_type("down")),
                _ => {}
            }
            Ok(())
        })?;
        let epoch = need("down", "epoch", epoch)?;
        Ok(Down { epoch, items: items.log_items()?, covered })
    }

    fn fetched(&self) -> Result<Fetched> {
        let mut items = Collector::new(self.bytes);
        let (mut id, mut covered, mut last) = (0, 0, false);
        self.walk(|number, value, at| {
            match (number, value) {
                (1, Value::Varint(number)) => id = number,
                (2, Value::Bytes(_)) => items.log_item(at)?,
                (3, Value::Varint(number)) => covered = number,
                (4, Value::Varint(number)) => last = number != 0,
                (1..=4, _) => return Err(wrong_type("fetched")),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Fetched { id, items: items.log_items()?, covered, last })
    }

    fn replicate(&self) -> Result<Replicate> {
        let mut items = Collector::new(self.bytes);
        let mut epoch = None;
        let (mut until, mut committed, mut complete) = (0, 0, false);
        self.walk(|number, value, at| {
            match (number, value) {
                (1, Value::Bytes(_)) => epoch = Some(self.epoch(at)?),
                (2, Value::Bytes(_)) => items.log_item(at)?,
                (3, Value::Varint(number)) => until = number,
                (4, Value::Varint(number)) => committed = number,
                (5, Value::Varint(number)) => complete = number != 0,
                (1..=5, _) => return Err(wrong_type("replicate")),
                _ => {}
            }
            Ok(())
        })?;
        let epoch = need("replicate", "epoch", epoch)?;
        Ok(Replicate { epoch, items: items.log_items()?, until, committed, complete })
    }

    /// Calls with each field: its number, its value, and where its bytes lie in the frame.
    fn walk(&self, mut each: impl FnMut(u32, Value, Span) -> Result<()>) -> Result<()> {
        let mut walker = Walker::new("link frame", slice(self.bytes, self.at));
        while let Some(field) = walker.next()? {
            let at = match field.value {
                Value::Bytes(span) => shifted(span, self.at),
                _ => Span::default(),
            };
            each(field.number, field.value, at)?;
        }
        Ok(())
    }

    fn epoch(&self, at: Span) -> Result<Epoch> {
        Ok(core_epoch(v1::Epoch::decode(slice(self.bytes, at))?))
    }
}

/// Collects the items of a list; their events become one run.
struct Collector<'a> {
    bytes: &'a Bytes,
    checker: SealedChecker<'a>,
    events: RunBuilder,
    items: Vec<Found>,
    count: usize,
}

/// What was found, in order.
enum Found {
    /// So many events from that index on; 0 on their way up.
    Events(u64, usize),
    Gap(u64, Gap),
    Fork(UpItem),
}

impl<'a> Collector<'a> {
    fn new(bytes: &'a Bytes) -> Self {
        Self {
            bytes,
            checker: SealedChecker::default(),
            events: RunBuilder::default(),
            items: Vec::new(),
            count: 0,
        }
    }

    fn counted(&mut self) -> Result<()> {
        self.count += 1;
        bound("events", self.count, BATCH_EVENTS_MAX)
    }

    /// An event; `follows` says whether it continues the events before it, so many from that index.
    fn event(&mut self, at: Span, index: u64, follows: impl Fn(u64, usize) -> bool) -> Result<()> {
        let head = self.checker.check(slice(self.bytes, at))?;
        self.events.push(head, at);
        match self.items.last_mut() {
            Some(Found::Events(first, count)) if follows(*first, *count) => *count += 1,
            _ => self.items.push(Found::Events(index, 1)),
        }
        Ok(())
    }

    fn up_item(&mut self, at: Span) -> Result<()> {
        self.counted()?;
        let mut walker = Walker::new("item of a batch", slice(self.bytes, at));
        let field = need("batch", "item", walker.next()?)?;
        let Value::Bytes(span) = field.value else { return Err(wrong_type("item of a batch")) };
        let span = shifted(span, at);
        if walker.next()?.is_some() {
            return Err(LinkWireError::Range { what: "more than one content" });
        }
        match field.number {
            UP_EVENT => self.event(span, 0, |_, _| true),
            UP_HOLE => {
                let hole = v1::Hole::decode(slice(self.bytes, span))?;
                self.items.push(Found::Gap(0, core_hole(hole)?));
                Ok(())
            }
            UP_FORK => {
                let fork = v1::Fork::decode(slice(self.bytes, span))?;
                self.items.push(Found::Fork(UpItem::Fork {
                    epoch: core_epoch(need("fork", "epoch", fork.epoch)?),
                    until: fork.until,
                    handed_over: fork.handed_over,
                }));
                Ok(())
            }
            _ => need("batch", "item", None),
        }
    }

    fn log_item(&mut self, at: Span) -> Result<()> {
        const WHAT: &str = "log item";
        self.counted()?;
        let mut walker = Walker::new(WHAT, slice(self.bytes, at));
        let (mut index, mut event, mut hole) = (0, None, None);
        while let Some(field) = walker.next()? {
            match (field.number, field.value) {
                (LOG_INDEX, Value::Varint(number)) => index = number,
                (LOG_EVENT, Value::Bytes(span)) => event = Some(shifted(span, at)),
                (LOG_HOLE, Value::Bytes(span)) => hole = Some(shifted(span, at)),
                (1..=3, _) => return Err(wrong_type(WHAT)),
                _ => {}
            }
        }
        // Indices begin at 1; the last one has one behind it.
        if index == 0 || index == u64::MAX {
            return Err(LinkWireError::Range { what: "an index of the log" });
        }
        match (event, hole) {
            (Some(event), None) => {
                let follows = |first: u64, count: usize| first + count as u64 == index;
                self.event(event, index, follows)
            }
            (None, Some(hole)) => {
                let hole = v1::Hole::decode(slice(self.bytes, hole))?;
                self.items.push(Found::Gap(index, core_hole(hole)?));
                Ok(())
            }
            _ => need(WHAT, "content", None),
        }
    }

    fn finish(self) -> Result<Vec<(u64, UpItem)>> {
        let run = self.events.finish(self.bytes.clone())?;
        let mut place = 0;
        let mut items = Vec::with_capacity(self.items.len());
        for found in self.items {
            items.push(match found {
                Found::Events(index, count) => {
                    let part = run.as_ref().and_then(|run| run.slice(place..place + count));
                    place += count;
                    (index, UpItem::Events(need("list", "event", part)?))
                }
                Found::Gap(index, gap) => (index, UpItem::Gap(gap)),
                Found::Fork(fork) => (0, fork),
            });
        }
        Ok(items)
    }

    fn up_items(self) -> Result<Vec<UpItem>> {
        Ok(self.finish()?.into_iter().map(|(_, item)| item).collect())
    }

    fn log_items(self) -> Result<Vec<Item>> {
        let item = |(index, item)| {
            let content = match item {
                UpItem::Events(run) => Content::Events(run),
                UpItem::Gap(gap) => Content::Gap(gap),
                UpItem::Fork { .. } => return need("log item", "content", None),
            };
            Ok(Item { index, content })
        };
        self.finish()?.into_iter().map(item).collect()
    }
}

fn slice(bytes: &Bytes, at: Span) -> &[u8] {
    bytes.get(at.start as usize..(at.start + at.len) as usize).unwrap_or_default()
}

/// A span that counts from the beginning of another.
fn shifted(span: Span, within: Span) -> Span {
    Span { start: within.start + span.start, len: span.len }
}

fn wrong_type(what: &'static str) -> LinkWireError {
    LinkWireError::Missing { frame: what, field: "fields as they should be" }
}
