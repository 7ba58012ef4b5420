//! What a client publishes, written straight into the bytes of the message that carries it.

use crate::event::{field_len, put_event, put_head, put_varint};
use ftb_core::EventRef;

/// Appends an event to the events of a publish message. `len` is what
/// [`event_len`](crate::event::event_len) says of it; its bounds are the caller's to check.
pub fn put_published(event: &EventRef<'_>, len: usize, events: &mut Vec<u8>) {
    events.reserve(field_len(len));
    put_head(2, len, events);
    let start = events.len();
    put_event(event, events);
    debug_assert_eq!(events.len() - start, len);
}

/// A publish message up to its events: `events_len` bytes that [`put_published`] wrote follow it.
/// They carry the sequences from `first_seq` on; `again` says that an agent may have had them.
pub fn put_publish(first_seq: u64, again: bool, events_len: usize) -> Vec<u8> {
    let mut inner = Vec::with_capacity(16);
    inner.push(1 << 3);
    put_varint(first_seq, &mut inner);
    if again {
        inner.extend_from_slice(&[3 << 3, 1]);
    }
    let mut head = Vec::with_capacity(32);
    put_head(2, inner.len() + events_len, &mut head);
    head.extend_from_slice(&inner);
    head
}

/// How many bytes [`put_published`] appends for an event of that length.
pub fn published_len(len: usize) -> usize {
    field_len(len)
}
