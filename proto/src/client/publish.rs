//! What a client publishes, written straight into the bytes of the message that carries it.

use crate::common::wire_confirm;
use crate::event::{field_len, put_event, put_head};
use crate::v1;
use crate::wire::{bytes_key, varint_key};
use bytes::{BufMut, Bytes};
use ftb_core::{ConfirmLevel, EventRef};
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};

/// Most bytes of a publish message before its events: two keys with numbers of up to ten bytes, a
/// flag and a level.
const PUBLISH_HEAD_MAX: usize = 2 * (1 + 10) + 2 + 2;

/// Appends an event to the events of a publish message. `len` is what
/// [`event_len`](crate::event::event_len) says of it; its bounds are the caller's to check.
pub fn put_published(event: &EventRef<'_>, len: usize, events: &mut Vec<u8>) {
    events.reserve(field_len(len));
    put_head(2, len, events);
    let start = events.len();
    put_event(event, events);
    debug_assert_eq!(events.len() - start, len);
}

/// Appends a publish message up to its events: `events_len` bytes that [`put_published`] wrote
/// follow it. They carry the sequences from `first_seq` on; `again` says that an agent may have had
/// them, `confirm` what each must survive before it is confirmed.
pub fn put_publish(
    first_seq: u64,
    again: bool,
    confirm: Option<ConfirmLevel>,
    events_len: usize,
    out: &mut impl BufMut,
) {
    let again: &[u8] = if again { &[varint_key(3), 1] } else { &[] };
    let level = confirm.map(|confirm| wire_confirm(Some(confirm)) as u8);
    let level_len = if level.is_some() { 2 } else { 0 };
    let len = 1 + encoded_len_varint(first_seq) + again.len() + level_len + events_len;
    let mut head = [0; PUBLISH_HEAD_MAX];
    let mut left = &mut head[..];
    left.put_u8(bytes_key(2));
    encode_varint(len as u64, &mut left);
    left.put_u8(varint_key(1));
    encode_varint(first_seq, &mut left);
    left.put_slice(again);
    if let Some(level) = level {
        left.put_slice(&[varint_key(4), level]);
    }
    let written = PUBLISH_HEAD_MAX - left.len();
    out.put_slice(&head[..written]);
}

/// The events that [`put_published`] wrote.
pub fn published_events(events: &Bytes) -> Vec<Bytes> {
    v1::Publish::decode(events.clone()).map(|publish| publish.events).unwrap_or_default()
}

/// How many bytes [`put_published`] appends for an event of that length.
pub fn published_len(len: usize) -> usize {
    field_len(len)
}
