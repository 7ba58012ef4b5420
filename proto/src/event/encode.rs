//! Writes what a publisher says.
//!
//! The fields are written straight from the event, in the order and the form in which prost would
//! write the message: a copy of it as a generated type would cost an allocation for each text.

use super::condition::wire_condition;
use bytes::Bytes;
use ftb_core::numbers::PublisherSeq;
use ftb_core::{Event, EventId, EventKind, EventRef, Tag};
use prost::Message as _;

/// Encodes what a publisher says. Its bounds are the caller's to check ([`Event::check`]).
pub fn encode_event(event: &Event) -> Bytes {
    let event = EventRef::from(event);
    let mut out = Vec::with_capacity(event_len(&event));
    put_event(&event, &mut out);
    out.into()
}

/// How many bytes [`put_event`] writes.
pub fn event_len(event: &EventRef<'_>) -> usize {
    let text = |text: &str| if text.is_empty() { 0 } else { field_len(text.len()) };
    let kind = match event.kind {
        EventKind::Normal => 0,
        EventKind::Response(None) => 2,
        EventKind::Response(Some(id)) => 2 + field_len(id_len(id)),
    };
    let tags: usize = event.tags.iter().map(|tag| field_len(tag_len(tag))).sum();
    text(event.space.as_str())
        + text(event.name.as_str())
        + 2
        + if event.time_ns == 0 { 0 } else { 9 }
        + text(event.client_name)
        + text(event.job_id)
        + kind
        + tags
        + event.condition.map_or(0, |c| field_len(wire_condition(c).encoded_len()))
        + if event.payload.is_empty() { 0 } else { field_len(event.payload.len()) }
}

/// Appends the encoded event. Its bounds are the caller's to check ([`EventRef::check`]).
pub fn put_event(event: &EventRef<'_>, out: &mut Vec<u8>) {
    put_text(1, event.space.as_str(), out);
    put_text(2, event.name.as_str(), out);
    // A severity is one of four: a varint of one byte.
    out.extend_from_slice(&[3 << 3, event.severity as u8]);
    put_fixed64(4, event.time_ns, out);
    put_text(5, event.client_name, out);
    put_text(6, event.job_id, out);
    if let EventKind::Response(to) = event.kind {
        out.extend_from_slice(&[7 << 3, 1]);
        if let Some(id) = to {
            put_head(8, id_len(id), out);
            put_fixed64(1, id.publisher.account, out);
            put_fixed64(2, id.publisher.token, out);
            if id.seq != PublisherSeq::ZERO {
                out.push(3 << 3);
                put_varint(id.seq.get(), out);
            }
        }
    }
    for tag in event.tags {
        put_head(9, tag_len(tag), out);
        put_text(1, &tag.key, out);
        put_text(2, &tag.value, out);
    }
    if let Some(condition) = event.condition {
        let condition = wire_condition(condition);
        put_head(10, condition.encoded_len(), out);
        condition.encode_raw(out);
    }
    if !event.payload.is_empty() {
        put_head(15, event.payload.len(), out);
        out.extend_from_slice(event.payload);
    }
}

/// Bytes of a number as a varint.
pub(crate) fn varint_len(number: u64) -> usize {
    prost::encoding::encoded_len_varint(number)
}

/// Appends a varint.
pub(crate) fn put_varint(number: u64, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(number, out);
}

/// Appends key and length of a field with a length. Field numbers here are below 16: the key is one
/// byte.
pub(crate) fn put_head(number: u8, len: usize, out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    put_varint(len as u64, out);
}

/// Bytes of a field with a length, key and length included.
pub(crate) fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

fn put_text(number: u8, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        put_head(number, text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

fn put_fixed64(number: u8, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        let mut field = [0; 9];
        field[0] = number << 3 | 1;
        field[1..].copy_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&field);
    }
}

fn id_len(id: EventId) -> usize {
    let fixed = |value: u64| if value == 0 { 0 } else { 9 };
    fixed(id.publisher.account)
        + fixed(id.publisher.token)
        + if id.seq == PublisherSeq::ZERO { 0 } else { 1 + varint_len(id.seq.get()) }
}

fn tag_len(tag: &Tag) -> usize {
    let text = |text: &str| if text.is_empty() { 0 } else { field_len(text.len()) };
    text(&tag.key) + text(&tag.value)
}
