//! What a delivery says, checked event by event.
//!
//! Responsible for: which bytes are refused, and that an event that is like the one before needs no look of
//! its own. Not responsible for: how the events are looked at later.

use super::{DELIVER, Item, Layout, slice, within};
use crate::event::shape::SealedShape;
use crate::event::walk::{Value, Walker};
use crate::event::{
    EventHead, EventWireError, Folded, SealedParts, bounded_text, check_texts, span_number,
    walk_event, walk_sealed,
};
use crate::wire::{PACKED, bytes_key};
use bytes::Bytes;
use ftb_core::limits;
use ftb_core::own::{TIME_BYTES, varint_len};
use ftb_core::sealed::Span;

const ITEM: &str = "delivered event";

/// What was read of a delivery so far.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) layouts: Vec<Layout>,
    pub(super) texts: String,
    pub(super) items: Vec<Item>,
    /// That of the last layout, if it is a usual one and more of it may come.
    shape: Option<SealedShape>,
}

impl Reading {
    /// Checks the events of one item, which follow each other in the log.
    pub(super) fn item(&mut self, bytes: &Bytes, at: Span) -> Result<(), EventWireError> {
        let mut walker = Walker::within(ITEM, bytes, at);
        let mut index = None;
        let before = self.items.len();
        // Whether the next field tells others that are like the last event.
        let mut packed_next = false;
        // Whether there were such: who reads all whole events first must not see another order.
        let mut complete = false;
        while let Some(field) = walker.next()? {
            match (field.number, field.value) {
                (1, Value::Varint(first)) if index.is_none() && self.items.len() == before => {
                    index = Some(first);
                }
                (2, Value::Bytes(sealed)) if !complete => {
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
                    (packed_next, complete) = (false, true);
                }
                (PACKED, _) => {
                    let what = "packed events without the one that they are like";
                    return Err(field.malformed(ITEM, what));
                }
                (1, Value::Varint(_)) => {
                    return Err(field.malformed(ITEM, "its index does not come first and once"));
                }
                (2, Value::Bytes(_)) => {
                    return Err(field.malformed(ITEM, "an event lies behind packed ones"));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{Stamps, encode_event, seal};
    use crate::v1;
    use ftb_core::{Event, EventId, PublisherId};
    use prost::Message as _;

    fn sealed(seq: u64, payload: usize) -> Bytes {
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        event.time_ns = seq.wrapping_mul(1000);
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

    fn read(fields: &[(u8, &[u8])]) -> Result<Reading, EventWireError> {
        let mut bytes = vec![8, 60];
        for (number, content) in fields {
            bytes.push(bytes_key(*number));
            prost::encoding::encode_varint(content.len() as u64, &mut bytes);
            bytes.extend_from_slice(content);
        }
        let (mut reading, len) = (Reading::default(), bytes.len() as u32);
        reading.item(&bytes.into(), Span { start: 0, len }).map(|()| reading)
    }

    /// What is the event's own, with that payload.
    fn own(time_ns: u64, payload: usize) -> Vec<u8> {
        [&time_ns.to_le_bytes()[..], &vec![9; payload]].concat()
    }

    #[test]
    fn events_are_packed_behind_the_one_that_they_are_like_and_nowhere_else() {
        let (known, others) = (sealed(130, 5), [own(7, 5), own(u64::MAX, 5)].concat());
        let reading = read(&[(2, &known), (6, &others)]).unwrap();
        let items = reading.items.iter().map(|item| (item.index, item.seq, item.time_ns));
        assert!(items.eq([(60, 130, 130_000), (61, 131, 7), (62, 132, u64::MAX)]));
        let refused = |fields: &[(u8, &[u8])]| match read(fields) {
            Err(error) => error.to_string(),
            Ok(reading) => panic!("{} events of {fields:?}", reading.items.len()),
        };
        for (what, fields) in [
            ("without the one", &[(6, &others[..])][..]),
            ("without the one", &[(2, &known), (6, &others), (6, &others)]),
            ("behind packed ones", &[(2, &known), (6, &others), (2, &known)]),
            ("not as long", &[(2, &known), (6, &others[1..])]),
            ("not as long", &[(2, &known), (6, &[])]),
            ("make no sense", &[(2, b"none"), (6, &others)]),
            ("no index or number", &[(2, &sealed(127, 5)), (6, &others)]),
            ("no index or number", &[(2, &sealed(u64::MAX - 1, 5)), (6, &others)]),
        ] {
            let told = refused(fields);
            assert!(told.contains(what), "{told} of {fields:?}");
        }
        let many = own(7, 5).repeat(limits::BATCH_EVENTS_MAX - 1);
        assert!(read(&[(2, &known), (6, &many)]).is_ok());
        let more = own(7, 5).repeat(limits::BATCH_EVENTS_MAX);
        assert!(refused(&[(2, &known), (6, &more)]).contains("too many"));
        // A fold, one that covers nothing too, says nothing of others; nor does one without a payload.
        let mut fold = v1::Sealed::decode(known.clone()).unwrap();
        fold.folded = Some(v1::Folded { covers: 0, count: 3, first_ns: 1, last_ns: 2 });
        assert!(refused(&[(2, &fold.encode_to_vec()), (6, &others)]).contains("cannot be like"));
        assert!(refused(&[(2, &sealed(130, 0)), (6, &own(7, 0))]).contains("cannot be like"));
    }
}
