//! The frames that carry events: written straight from runs, read into one run for a frame.

use super::{LinkWireError, Result, bound, core_epoch, core_hole, need, v1, wire_epoch, wire_hole};
use crate::event::{Checked, SealedChecker, Value, Walker, span_number};
use crate::wire::{EventsItems, PACKED, Pieces, bytes_key};
use bytes::{BufMut as _, Bytes, BytesMut};
use ftb_core::frame::{
    Content, Down, EntryRef, Frame, HistoryReply, Item, Replicate, UpBatch, UpItem,
};
use ftb_core::ident::OriginId;
use ftb_core::limits::{BATCH_EVENTS_MAX, FRAME_BYTES_MAX};
use ftb_core::node::api::Gap;
use ftb_core::position::Epoch;
use ftb_core::run::RunBuilder;
use ftb_core::sealed::Span;
use prost::Message;
use prost::encoding::encode_varint;

/// Fields of a LinkFrame that carry events, in `ftb/v1/link.proto`.
const UP: u32 = 9;
const DOWN: u32 = 14;
const FETCHED: u32 = 17;
const REPLICATE: u32 = 20;

/// Where an UpBatch has its items, and where Down, HistoryReply and Replicate have theirs.
const UP_ITEMS: u8 = 5;
const LOG_ITEMS: u8 = 2;

/// Fields of a LogItem and of an UpItem, which has no index; a LogItem has no fork.
const INDEX: u32 = 1;
const EVENTS: u32 = 2;
const HOLE: u32 = 3;
const FORK: u32 = 4;

/// Appends a frame, if it is one that carries events.
pub(super) fn write(frame: &Frame, out: &mut Pieces) -> bool {
    match frame {
        Frame::Up(batch) => {
            let head = v1::UpBatch {
                origin: batch.origin.0,
                run: batch.run,
                base: batch.base,
                first: batch.first,
                items: Vec::new(),
            };
            write_frame(UP, &head, batch.items.iter().map(up_part).collect(), out);
        }
        Frame::Down(down) => {
            let epoch = Some(wire_epoch(down.epoch));
            let head = v1::Down { epoch, items: Vec::new(), covered: down.covered };
            write_frame(DOWN, &head, log_parts(&down.items), out);
        }
        Frame::HistoryReply(reply) => {
            let head = v1::HistoryReply {
                id: reply.id,
                items: Vec::new(),
                covered: reply.covered,
                last: reply.last,
            };
            write_frame(FETCHED, &head, log_parts(&reply.items), out);
        }
        Frame::Replicate(batch) => {
            let head = v1::Replicate {
                epoch: Some(wire_epoch(batch.epoch)),
                items: Vec::new(),
                until: batch.until,
                committed: batch.committed,
                complete: batch.complete,
                entry_refs: batch.entry_refs.iter().map(wire_echo).collect(),
                refs_until: batch.refs_until,
            };
            write_frame(REPLICATE, &head, log_parts(&batch.items), out);
        }
        _ => return false,
    }
    true
}

/// One item of a list: events, or something rare that prost has encoded.
enum Part {
    Events(EventsItems),
    Encoded(BytesMut),
}

impl Part {
    /// Something rare in field `number` (below 16).
    fn encoded(number: u8, item: &impl Message) -> Self {
        let mut bytes = BytesMut::new();
        bytes.put_u8(bytes_key(number));
        encode_varint(item.encoded_len() as u64, &mut bytes);
        bytes.extend_from_slice(&item.encode_to_vec());
        Self::Encoded(bytes)
    }

    fn len(&self) -> usize {
        match self {
            Self::Events(item) => item.len(),
            Self::Encoded(bytes) => bytes.len(),
        }
    }
}

fn up_part(item: &UpItem) -> Part {
    let item = match item {
        UpItem::Events(run) => return Part::Events(EventsItems::new(UP_ITEMS, None, run)),
        UpItem::Gap(gap) => v1::UpItem { hole: Some(wire_hole(gap)), ..v1::UpItem::default() },
        UpItem::Fork { epoch, until, re_proposed } => {
            let (epoch, until, re_proposed) = (Some(wire_epoch(*epoch)), *until, *re_proposed);
            let fork = Some(v1::Fork { epoch, until, re_proposed });
            v1::UpItem { fork, ..v1::UpItem::default() }
        }
    };
    Part::encoded(UP_ITEMS, &item)
}

fn log_parts(items: &[Item]) -> Vec<Part> {
    items.iter().map(log_part).collect()
}

fn log_part(item: &Item) -> Part {
    match &item.content {
        Content::Events(run) => Part::Events(EventsItems::new(LOG_ITEMS, Some(item.index), run)),
        Content::Gap(gap) => {
            let (index, hole) = (item.index, Some(wire_hole(gap)));
            Part::encoded(LOG_ITEMS, &v1::LogItem { index, hole, ..v1::LogItem::default() })
        }
    }
}

fn wire_echo(entry_ref: &EntryRef) -> v1::EntryRef {
    v1::EntryRef {
        index: entry_ref.index,
        batch: entry_ref.batch,
        skip: entry_ref.skip,
        count: entry_ref.count,
    }
}

fn core_echo(entry_ref: v1::EntryRef) -> Result<EntryRef> {
    let v1::EntryRef { index, batch, skip, count } = entry_ref;
    bound("events of an echo", count as usize, BATCH_EVENTS_MAX)?;
    if index == 0 || batch == 0 || count == 0 {
        return Err(LinkWireError::Range { what: "a place of an echo" });
    }
    Ok(EntryRef { index, batch, skip, count })
}

/// The frame as one field of a LinkFrame: its head, then its items.
fn write_frame(field: u32, head: &impl Message, parts: Vec<Part>, out: &mut Pieces) {
    let head = head.encode_to_vec();
    let len = head.len() + parts.iter().map(Part::len).sum::<usize>();
    encode_varint(u64::from(field << 3 | 2), out.open());
    encode_varint(len as u64, out.open());
    out.open().extend_from_slice(&head);
    for part in parts {
        match part {
            Part::Events(item) => item.put(out),
            Part::Encoded(bytes) => out.open().extend_from_slice(&bytes),
        }
    }
}

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
        FETCHED => Frame::HistoryReply(body.reply()?),
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

    fn reply(&self) -> Result<HistoryReply> {
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
        Ok(HistoryReply { id, items: items.log_items()?, covered, last })
    }

    fn replicate(&self) -> Result<Replicate> {
        let mut items = Collector::new(self.bytes);
        let mut epoch = None;
        let (mut until, mut committed, mut complete, mut refs_until) = (0, 0, false, 0);
        let mut entry_refs = Vec::new();
        self.walk(|number, value, at| {
            match (number, value) {
                (1, Value::Bytes(_)) => epoch = Some(self.epoch(at)?),
                (2, Value::Bytes(_)) => items.log_item(at)?,
                (3, Value::Varint(number)) => until = number,
                (4, Value::Varint(number)) => committed = number,
                (5, Value::Varint(number)) => complete = number != 0,
                (6, Value::Bytes(_)) => {
                    bound("echoes", entry_refs.len() + 1, BATCH_EVENTS_MAX)?;
                    entry_refs.push(core_echo(v1::EntryRef::decode(slice(self.bytes, at))?)?);
                }
                (7, Value::Varint(number)) => refs_until = number,
                (1..=7, _) => return Err(wrong_type("replicate")),
                _ => {}
            }
            Ok(())
        })?;
        let epoch = need("replicate", "epoch", epoch)?;
        let items = items.log_items()?;
        Ok(Replicate { epoch, items, entry_refs, until, committed, complete, refs_until })
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
        core_epoch(v1::Epoch::decode(slice(self.bytes, at))?)
    }
}

/// Collects the items of a list; their events become one run.
struct Collector<'a> {
    bytes: &'a Bytes,
    checker: SealedChecker<'a>,
    events: RunBuilder,
    items: Vec<Found>,
    count: usize,
    bytes_whole: usize,
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
            bytes_whole: 0,
        }
    }

    fn counted(&mut self) -> Result<()> {
        self.count += 1;
        bound("events", self.count, BATCH_EVENTS_MAX)
    }

    /// Few bytes must not stand for many: events count as if each were there whole.
    fn whole(&mut self, bytes: usize) -> Result<()> {
        self.bytes_whole = self.bytes_whole.saturating_add(bytes);
        bound("bytes of events, each whole", self.bytes_whole, FRAME_BYTES_MAX)
    }

    /// An event of the item that is being read, and those behind it, which `item` walks over, that
    /// differ from it in nothing but what is their own.
    fn events_at(&mut self, at: Span, item: &mut Walker<'_>) -> Result<()> {
        self.counted()?;
        self.whole(at.len as usize)?;
        if item.rest().first() == Some(&bytes_key(PACKED as u8)) {
            return self.packed_behind(at, item);
        }
        match self.checker.check(slice(self.bytes, at))? {
            Checked::Head(head) => self.events.push(head, at),
            Checked::Like(event) => self.events.push_like(event, at),
        }
        let most = BATCH_EVENTS_MAX.saturating_sub(self.count);
        if let Some(followers) = self.checker.followers(item.rest(), most) {
            self.count += followers.count;
            self.whole(followers.count.saturating_mul(at.len as usize))?;
            self.events.push_following(followers.count as u32, followers.time_at);
            item.skip(followers.bytes);
        }
        Ok(())
    }

    /// An event and those packed behind it, which are the next field of the item.
    fn packed_behind(&mut self, at: Span, item: &mut Walker<'_>) -> Result<()> {
        let (checked, parts) = self.checker.check_known(slice(self.bytes, at))?;
        match checked {
            Checked::Head(head) => self.events.push(head, at),
            Checked::Like(event) => self.events.push_known(event, at),
        }
        let before = item.at();
        let Some(Value::Bytes(packed)) = item.next()?.map(|field| field.value) else {
            return Err(wrong_type("packed events"));
        };
        // The walker counts from the item's first byte, which lies there.
        let start = (at.start + at.len) as usize + packed.start as usize - before;
        let step = parts.step(at.len as usize);
        let count = packed.len as usize / step;
        bound("events", self.count.saturating_add(count), BATCH_EVENTS_MAX)?;
        self.whole(count.saturating_mul(at.len as usize))?;
        // They come last: who reads all whole events first must not see another order.
        let fits = item.rest().is_empty()
            && packed.len as usize == count * step
            && self.events.push_packed(count as u32, parts, span_number(start));
        if !fits {
            return Err(LinkWireError::Range { what: "the packed events of an item" });
        }
        self.count += count;
        Ok(())
    }

    /// So many events from an index on: with those before them, where they follow.
    fn events(&mut self, index: u64, count: usize, follows: impl Fn(u64, usize) -> bool) {
        match self.items.last_mut() {
            Some(Found::Events(first, before)) if follows(*first, *before) => *before += count,
            _ => self.items.push(Found::Events(index, count)),
        }
    }

    fn up_item(&mut self, at: Span) -> Result<()> {
        const WHAT: &str = "item of a batch";
        let mut walker = Walker::new(WHAT, slice(self.bytes, at));
        let before = self.count;
        let mut other = None;
        while let Some(field) = walker.next()? {
            let Value::Bytes(span) = field.value else { return Err(wrong_type(WHAT)) };
            let span = shifted(span, at);
            match field.number {
                EVENTS => self.events_at(span, &mut walker)?,
                PACKED => return Err(wrong_type(WHAT)),
                HOLE if other.is_none() => {
                    let hole = v1::Hole::decode(slice(self.bytes, span))?;
                    other = Some(Found::Gap(0, core_hole(hole)?));
                }
                FORK if other.is_none() => {
                    let fork = v1::Fork::decode(slice(self.bytes, span))?;
                    other = Some(Found::Fork(UpItem::Fork {
                        epoch: core_epoch(need("fork", "epoch", fork.epoch)?)?,
                        until: fork.until,
                        re_proposed: fork.re_proposed,
                    }));
                }
                HOLE | FORK => return Err(LinkWireError::Range { what: "more than one content" }),
                _ => {}
            }
        }
        let events = self.count - before;
        match other {
            None if events > 0 => self.events(0, events, |_, _| true),
            Some(other) if events == 0 => {
                self.counted()?;
                self.items.push(other);
            }
            Some(_) => return Err(LinkWireError::Range { what: "more than one content" }),
            None => return need("batch", "item", None),
        }
        Ok(())
    }

    fn log_item(&mut self, at: Span) -> Result<()> {
        const WHAT: &str = "log item";
        let mut walker = Walker::new(WHAT, slice(self.bytes, at));
        let before = self.count;
        let (mut index, mut hole) = (0, None);
        while let Some(field) = walker.next()? {
            match (field.number, field.value) {
                (INDEX, Value::Varint(number)) => index = number,
                (EVENTS, Value::Bytes(span)) => {
                    self.events_at(shifted(span, at), &mut walker)?;
                }
                (HOLE, Value::Bytes(span)) => hole = Some(shifted(span, at)),
                (1..=3 | PACKED, _) => return Err(wrong_type(WHAT)),
                _ => {}
            }
        }
        let events = self.count - before;
        // Indices begin at 1; the last one has one behind it.
        if index == 0 || index.checked_add(events.max(1) as u64).is_none() {
            return Err(LinkWireError::Range { what: "an index of the log" });
        }
        match hole {
            None if events > 0 => {
                self.events(index, events, |first, count| first + count as u64 == index);
            }
            Some(hole) if events == 0 => {
                self.counted()?;
                let hole = v1::Hole::decode(slice(self.bytes, hole))?;
                self.items.push(Found::Gap(index, core_hole(hole)?));
            }
            Some(_) => return Err(LinkWireError::Range { what: "more than one content" }),
            None => return need(WHAT, "content", None),
        }
        Ok(())
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
