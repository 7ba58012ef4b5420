//! The frames that carry events: Up, Down, HistoryReply and Replicate.
//!
//! Decoded events share the buffer of their frame; written events are slices of the buffers they
//! lie in.

use super::{LinkWireError, Result, bound, core_epoch, core_gap, need, v1, wire_epoch, wire_gap};
use crate::event::{EventReader, field_len, put_head};
use crate::wire::{EventsItem, Pieces};
use bytes::Bytes;
use ftb_core::frame::{Content, Down, EntryRef, HistoryReply, Item, Replicate, UpBatch, UpItem};
use ftb_core::ident::OriginId;
use ftb_core::limits::BATCH_EVENTS_MAX;
use ftb_core::node::api::{Gap, Loss};
use ftb_core::position::Position;
use prost::Message;

/// Fields of a LinkFrame, in `ftb/v1/link.proto`.
const UP: u32 = 9;
const DOWN: u32 = 14;
const HISTORY_REPLY: u32 = 17;
const REPLICATE: u32 = 20;

/// Where an UpBatch has its items, and where Down, HistoryReply and Replicate have theirs.
const UP_ITEMS: u8 = 5;
const LOG_ITEMS: u8 = 2;

/// What a frame is written as. It lives for the call that writes it.
#[allow(clippy::large_enum_variant, reason = "a box would cost an allocation for each frame")]
pub(super) enum Body<'a> {
    /// A message of prost.
    Message(v1::link_frame::Frame),
    /// Field number in the LinkFrame, message without its items, and the items.
    Events(u32, Vec<u8>, Vec<Part<'a>>),
}

impl Body<'_> {
    pub(super) fn write(self, out: &mut Pieces) {
        match self {
            Self::Message(message) => out.message(&v1::LinkFrame { frame: Some(message) }),
            Self::Events(number, head, parts) => write_frame(number, &head, parts, out),
        }
    }
}

pub(super) fn up_body(batch: &UpBatch) -> Body<'_> {
    let head = v1::UpBatch {
        origin: batch.origin.0,
        run: batch.run,
        base: batch.base.get(),
        first: batch.first.get(),
        items: Vec::new(),
        wants_disk: batch.wants_disk,
    };
    Body::Events(UP, head.encode_to_vec(), batch.items.iter().map(up_part).collect())
}

pub(super) fn down_body(down: &Down) -> Body<'_> {
    let epoch = Some(wire_epoch(down.epoch));
    let head = v1::Down { epoch, items: Vec::new(), covered: down.covered.get() };
    Body::Events(DOWN, head.encode_to_vec(), down.items.iter().map(log_part).collect())
}

pub(super) fn history_reply_body(reply: &HistoryReply) -> Body<'_> {
    let HistoryReply { id, covered, last, .. } = *reply;
    let head = v1::HistoryReply { id, items: Vec::new(), covered: covered.get(), last };
    Body::Events(HISTORY_REPLY, head.encode_to_vec(), reply.items.iter().map(log_part).collect())
}

pub(super) fn replicate_body(batch: &Replicate) -> Body<'_> {
    let head = v1::Replicate {
        epoch: Some(wire_epoch(batch.epoch)),
        items: Vec::new(),
        until: batch.until.get(),
        committed: batch.committed.get(),
        complete: batch.complete,
        entry_refs: batch.entry_refs.iter().map(wire_entry_ref).collect(),
        refs_until: batch.refs_until,
    };
    Body::Events(REPLICATE, head.encode_to_vec(), batch.items.iter().map(log_part).collect())
}

/// One item of a frame.
pub(super) enum Part<'a> {
    Events(EventsItem<'a>),
    /// Field number and content of any other item.
    Encoded(u8, Vec<u8>),
}

fn up_part(item: &UpItem) -> Part<'_> {
    let item = match item {
        UpItem::Events(events) => {
            return Part::Events(EventsItem { field: UP_ITEMS, index: None, events });
        }
        UpItem::Gap(gap) => v1::UpItem { gap: Some(wire_gap(gap)), ..v1::UpItem::default() },
        UpItem::Loss(loss) => {
            let gap = loss.clone().between((Position::ZERO, Position::ZERO));
            v1::UpItem { gap: Some(wire_gap(&gap)), ..v1::UpItem::default() }
        }
        UpItem::Fork { epoch, until, re_proposed } => {
            let (epoch, until, re_proposed) = (Some(wire_epoch(*epoch)), *until, *re_proposed);
            let fork = Some(v1::Fork { epoch, until: until.get(), re_proposed });
            v1::UpItem { fork, ..v1::UpItem::default() }
        }
    };
    Part::Encoded(UP_ITEMS, item.encode_to_vec())
}

fn log_part(item: &Item) -> Part<'_> {
    match &item.content {
        Content::Events(events) => {
            Part::Events(EventsItem { field: LOG_ITEMS, index: Some(item.index), events })
        }
        Content::Gap(gap) => {
            let (index, gap) = (item.index, Some(wire_gap(gap)));
            let item = v1::LogItem { index: index.get(), gap, events: Vec::new() };
            Part::Encoded(LOG_ITEMS, item.encode_to_vec())
        }
    }
}

/// Appends a frame as field `number` of a LinkFrame: its message without items, then the items.
fn write_frame(number: u32, head: &[u8], parts: Vec<Part<'_>>, out: &mut Pieces) {
    use prost::encoding::{WireType, encode_key, encode_varint};
    let len = |part: &Part<'_>| match part {
        Part::Events(item) => item.len(),
        Part::Encoded(_, content) => field_len(content.len()),
    };
    let len = head.len() + parts.iter().map(len).sum::<usize>();
    encode_key(number, WireType::LengthDelimited, out.open());
    encode_varint(len as u64, out.open());
    out.open().extend_from_slice(head);
    for part in parts {
        match part {
            Part::Events(item) => item.put(out),
            Part::Encoded(number, content) => {
                let mut item = Vec::with_capacity(field_len(content.len()));
                put_head(number, content.len(), &mut item);
                item.extend_from_slice(&content);
                out.open().extend_from_slice(&item);
            }
        }
    }
}

fn wire_entry_ref(entry_ref: &EntryRef) -> v1::EntryRef {
    v1::EntryRef {
        index: entry_ref.index.get(),
        batch: entry_ref.batch,
        skip: entry_ref.skip,
        count: entry_ref.count,
    }
}

fn core_entry_ref(entry_ref: v1::EntryRef) -> Result<EntryRef> {
    let v1::EntryRef { index, batch, skip, count } = entry_ref;
    bound("events of a reference", count as usize, BATCH_EVENTS_MAX)?;
    if index == 0 || batch == 0 || count == 0 {
        return Err(LinkWireError::Range { what: "a reference to entries" });
    }
    Ok(EntryRef { index: index.into(), batch, skip, count })
}

/// An UpBatch that was decoded from `frame`.
pub(super) fn core_up(frame: Bytes, batch: v1::UpBatch) -> Result<UpBatch> {
    let v1::UpBatch { origin, run, base, first, items, wants_disk } = batch;
    let mut collector = Collector::new(frame);
    for item in items {
        collector.up_item(item)?;
    }
    let count = collector.count as u64;
    let dense = count > 0 && base > 0 && base <= first && first.checked_add(count).is_some();
    if !dense {
        return Err(LinkWireError::Range { what: "the sequences of a batch" });
    }
    let items = collector.finish()?.into_iter().map(|(_, item)| item).collect();
    let (origin, base, first) = (OriginId(origin), base.into(), first.into());
    Ok(UpBatch { origin, run, base, first, wants_disk, items })
}

pub(super) fn core_down(frame: Bytes, down: v1::Down) -> Result<Down> {
    let epoch = core_epoch(need("down", "epoch", down.epoch)?)?;
    Ok(Down { epoch, items: log_items(frame, down.items)?, covered: down.covered.into() })
}

pub(super) fn core_fetched(frame: Bytes, reply: v1::HistoryReply) -> Result<HistoryReply> {
    let v1::HistoryReply { id, items, covered, last } = reply;
    Ok(HistoryReply { id, items: log_items(frame, items)?, covered: covered.into(), last })
}

pub(super) fn core_replicate(frame: Bytes, batch: v1::Replicate) -> Result<Replicate> {
    bound("references to entries", batch.entry_refs.len(), BATCH_EVENTS_MAX)?;
    Ok(Replicate {
        epoch: core_epoch(need("replicate", "epoch", batch.epoch)?)?,
        items: log_items(frame, batch.items)?,
        entry_refs: batch.entry_refs.into_iter().map(core_entry_ref).collect::<Result<_>>()?,
        until: batch.until.into(),
        committed: batch.committed.into(),
        complete: batch.complete,
        refs_until: batch.refs_until,
    })
}

/// A gap on its way up. One without a range is placed by the acting root.
fn up_gap(gap: Gap) -> UpItem {
    if gap.until != Position::ZERO {
        return UpItem::Gap(gap);
    }
    let Gap { reason, count, severity_max, spaces, .. } = gap;
    UpItem::Loss(Loss { reason, count, severity_max, spaces })
}

fn log_items(frame: Bytes, items: Vec<v1::LogItem>) -> Result<Vec<Item>> {
    let mut collector = Collector::new(frame);
    for item in items {
        collector.log_item(item)?;
    }
    let item = |(index, item): (u64, UpItem)| {
        let content = match item {
            UpItem::Events(run) => Content::Events(run),
            UpItem::Gap(gap) => Content::Gap(gap),
            UpItem::Loss(_) | UpItem::Fork { .. } => return need("log item", "content", None),
        };
        Ok(Item { index: index.into(), content })
    };
    collector.finish()?.into_iter().map(item).collect()
}

/// Collects the items of a frame; all events share one index.
struct Collector {
    events: EventReader,
    items: Vec<Found>,
    count: usize,
}

/// One item.
enum Found {
    /// The index of the first event, 0 on the way up, and their number.
    Events(u64, usize),
    Other(u64, UpItem),
}

impl Collector {
    fn new(frame: Bytes) -> Self {
        Self { events: EventReader::new(frame), items: Vec::new(), count: 0 }
    }

    fn add(&mut self, count: usize) -> Result<()> {
        self.count += count;
        bound("events", self.count, BATCH_EVENTS_MAX)
    }

    /// Adds events from an index on, to the item before where they continue it.
    fn events(
        &mut self,
        index: u64,
        events: &[Bytes],
        continues: impl Fn(u64, usize) -> bool,
    ) -> Result<()> {
        self.add(events.len())?;
        for event in events {
            self.events.push(event)?;
        }
        match self.items.last_mut() {
            Some(Found::Events(first, before)) if continues(*first, *before) => {
                *before += events.len();
            }
            _ => self.items.push(Found::Events(index, events.len())),
        }
        Ok(())
    }

    fn other(&mut self, index: u64, item: UpItem) -> Result<()> {
        self.add(1)?;
        self.items.push(Found::Other(index, item));
        Ok(())
    }

    fn up_item(&mut self, item: v1::UpItem) -> Result<()> {
        match (&item.events[..], item.gap, item.fork) {
            (events @ [_, ..], None, None) => self.events(0, events, |_, _| true),
            ([], Some(gap), None) => self.other(0, up_gap(core_gap(gap)?)),
            ([], None, Some(fork)) => {
                let epoch = core_epoch(need("fork", "epoch", fork.epoch)?)?;
                let v1::Fork { until, re_proposed, .. } = fork;
                self.other(0, UpItem::Fork { epoch, until: until.into(), re_proposed })
            }
            ([], None, None) => need("batch", "item", None),
            _ => Err(LinkWireError::Range { what: "more than one content" }),
        }
    }

    fn log_item(&mut self, item: v1::LogItem) -> Result<()> {
        let v1::LogItem { index, events, gap } = item;
        // Indices begin at 1; the last one has one behind it.
        if index == 0 || index.checked_add(events.len().max(1) as u64).is_none() {
            return Err(LinkWireError::Range { what: "an index of the log" });
        }
        match (&events[..], gap) {
            (events @ [_, ..], None) => {
                self.events(index, events, |first, count| first + count as u64 == index)
            }
            ([], Some(gap)) => self.other(index, UpItem::Gap(core_gap(gap)?)),
            ([], None) => need("log item", "content", None),
            _ => Err(LinkWireError::Range { what: "more than one content" }),
        }
    }

    fn finish(self) -> Result<Vec<(u64, UpItem)>> {
        let run = self.events.finish()?;
        let mut place = 0;
        let mut items = Vec::with_capacity(self.items.len());
        for found in self.items {
            items.push(match found {
                Found::Events(index, count) => {
                    let part = run.as_ref().and_then(|run| run.slice(place..place + count));
                    place += count;
                    (index, UpItem::Events(need("list", "event", part)?))
                }
                Found::Other(index, item) => (index, item),
            });
        }
        Ok(items)
    }
}
