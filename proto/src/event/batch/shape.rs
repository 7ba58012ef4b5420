//! A short way through events that differ from one before in nothing but number, time and payload.
//!
//! A publisher's events mostly do. Once the layout of one is known ([`Shape::of`]), the next is
//! compared with it part by part ([`Shape::fits`]): parts that are to the byte those of an event
//! that was checked need no second look. Whatever does not fit goes the long way.

use super::super::encode::varint_len;
use super::super::walk::Walker;
use super::super::{BESIDE_PAYLOAD_BYTES_MAX, SEALED_BYTES_MAX};
use super::{Item, Layout, slice, within};
use ftb_core::limits;
use ftb_core::sealed::Span;

/// Keys of fields, in the order in which our own encoders write them.
const ID: u8 = 0x0a;
const ACCOUNT: u8 = 0x09;
const TOKEN: u8 = 0x11;
const SEQ: u8 = 0x18;
const CONTENT: u8 = 0x7a;
const SPACE: u8 = 0x0a;
const NAME: u8 = 0x12;
const SEVERITY: u8 = 0x18;
const TIME: u8 = 0x21;
const PAYLOAD: u8 = 0x7a;

/// Where the number begins in a sealed event: behind two keys with a length and two halves of the
/// publisher's id.
const SEQ_AT: usize = 2 + 9 + 9 + 1;
const TIME_BYTES: usize = 8;

/// The layout of one event, and where it lies. Offsets named `_at` count from the beginning of the
/// sealed event up to the content, and from that of the content within it.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The place of the layout.
    layout: u32,
    sealed: Span,
    content: Span,
    seq_len: usize,
    /// Behind the key of the content.
    content_len_at: usize,
    time_at: usize,
    /// Behind the key of the payload.
    payload_len_at: usize,
}

impl Shape {
    /// That of a layout at that place, which was found in an event of that sequence; `None` for an
    /// unusual one.
    pub(super) fn of(bytes: &[u8], place: u32, item: &Layout, seq: u64) -> Option<Self> {
        // What a fold covers was compared with its own number, and says nothing of another's.
        if item.folded.is_some() {
            return None;
        }
        let sealed = item.sealed;
        let whole = slice(bytes, sealed);
        let seq_len = varint_len(seq);
        let id_end = SEQ_AT + seq_len;
        // The bytes leave no other way to read them: every key follows where a field ends.
        let id_fits = whole.get(..2)? == [ID, (id_end - 2) as u8]
            && whole.get(2) == Some(&ACCOUNT)
            && whole.get(11) == Some(&TOKEN)
            && whole.get(20) == Some(&SEQ);
        let content_at = item.content.start.checked_sub(sealed.start)? as usize;
        let content_len_at = content_at.checked_sub(varint_len(u64::from(item.content.len)))?;
        let ends = content_at + item.content.len as usize == whole.len();
        let stamps = whole.get(id_end..content_len_at.checked_sub(1)?)?;
        if !(id_fits && ends && whole[content_len_at - 1] == CONTENT && are_fields(stamps)) {
            return None;
        }
        let content = slice(bytes, item.content);
        let end_of = |span: Span| (span.start + span.len).checked_sub(item.content.start);
        let (space_end, name_end) = (end_of(item.head.space)?, end_of(item.head.name)?);
        let (space_end, name_end) = (space_end as usize, name_end as usize);
        let time_at = name_end + 3;
        let head_fits = content.get(..2)? == [SPACE, item.head.space.len as u8]
            && space_end == 2 + item.head.space.len as usize
            && content.get(space_end..space_end + 2)? == [NAME, item.head.name.len as u8]
            && name_end == space_end + 2 + item.head.name.len as usize
            && content.get(name_end) == Some(&SEVERITY)
            && content.get(name_end + 2) == Some(&TIME);
        let payload_at = item.head.payload.start.checked_sub(item.content.start)? as usize;
        let payload_len_at =
            payload_at.checked_sub(varint_len(u64::from(item.head.payload.len)))?;
        let ends = payload_at + item.head.payload.len as usize == content.len();
        let rest = content.get(time_at + TIME_BYTES..payload_len_at.checked_sub(1)?)?;
        (head_fits && ends && content[payload_len_at - 1] == PAYLOAD && are_fields(rest)).then_some(
            Self {
                layout: place,
                sealed,
                content: item.content,
                seq_len,
                content_len_at,
                time_at,
                payload_len_at,
            },
        )
    }

    /// The event that lies there, if it has this shape.
    pub(super) fn fits(&self, bytes: &[u8], index: u64, sealed: Span) -> Option<Item> {
        let (whole, known) = (slice(bytes, sealed), slice(bytes, self.sealed));
        let seq_end = SEQ_AT + self.seq_len;
        let same = |part: core::ops::Range<usize>| Some(whole.get(part.clone())? == &known[part]);
        if !(same(0..SEQ_AT)? && same(seq_end..self.content_len_at)?) {
            return None;
        }
        let (seq, _) = varint(&whole[SEQ_AT..seq_end]).filter(|(_, len)| *len == self.seq_len)?;
        let (content_len, len) = varint(&whole[self.content_len_at..])?;
        let content_at = self.content_len_at + len;
        let content = whole.get(content_at..)?;
        let known = slice(bytes, self.content);
        let same = |part: core::ops::Range<usize>| Some(content.get(part.clone())? == &known[part]);
        let time_end = self.time_at + TIME_BYTES;
        if !(same(0..self.time_at)? && same(time_end..self.payload_len_at)?) {
            return None;
        }
        let time = content[self.time_at..].first_chunk::<TIME_BYTES>()?;
        let (payload_len, len) = varint(&content[self.payload_len_at..])?;
        let payload_at = self.payload_len_at + len;
        let ends = content.len() as u64 == content_len
            && content.len().checked_sub(payload_at)? as u64 == payload_len;
        let bounded = whole.len() <= SEALED_BYTES_MAX
            && payload_len <= limits::PAYLOAD_BYTES_MAX as u64
            && payload_at <= BESIDE_PAYLOAD_BYTES_MAX;
        if !(ends && bounded && seq > 0) {
            return None;
        }
        let at = |start: usize, len: usize| Span { start: start as u32, len: len as u32 };
        let content_span = within(sealed, at(content_at, content.len()));
        Some(Item {
            index,
            seq,
            time_ns: u64::from_le_bytes(*time),
            layout: self.layout,
            sealed_at: sealed.start,
            content: content_span,
            payload: within(content_span, at(payload_at, content.len() - payload_at)),
        })
    }
}

/// Whether these are whole fields.
fn are_fields(bytes: &[u8]) -> bool {
    let mut walker = Walker::new("part", bytes);
    loop {
        match walker.next() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// A number of at most nine bytes in its shortest form, and how many bytes it has.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let shortest = place == 0 || *byte != 0;
            return shortest.then_some((number, place + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Reading;
    use super::*;
    use crate::event::{EventWireError, Stamps, encode_event, seal};
    use crate::v1;
    use bytes::Bytes;
    use ftb_core::{Event, EventId, PublisherId};
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
            reading.event(&bytes, 1, at).unwrap();
        }
        let at = Span { start, len: events[2].len() as u32 };
        let refused = reading.event(&bytes, 3, at);
        assert_eq!(refused, Err(EventWireError::Sequence));
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
            let short = reading.shape.as_ref().and_then(|shape| shape.fits(&bytes, index, at));
            assert_eq!(short.is_some(), index > 2, "event {index}");
            let long = Reading::default().event(&bytes, index, at).unwrap();
            let layout = |short: Item| Item { layout: 0, ..short };
            assert!(short.is_none_or(|short| layout(short) == long));
            reading.event(&bytes, index, at).unwrap();
        }
        assert_eq!(reading.layouts.len(), 2);
    }
}
