//! Messages as bytes, in pieces: what lies in a shared buffer goes from there.
//!
//! The bytes are those of the messages of `ftb/v1/*.proto`: any gRPC client can speak to it. Most
//! messages are small and written by prost; events are slices of the buffers that they lie in.
//!
//! Responsible for: what a message is made of. Not responsible for: what it means, nor the stream
//! that carries it.

use crate::event::{field_len, put_head};
use bytes::{BufMut as _, Bytes, BytesMut};
use ftb_core::Run;
use ftb_core::numbers::LogIndex;
use ftb_core::sealed::Span;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

/// Shared bytes up to this size are copied into the piece before them: a piece of their own would
/// cost more, in bytes.
const COPIED_BYTES_MAX: usize = 4096;

/// Room that a message begins with, in bytes: for a single event, so that it does not grow in
/// steps.
const FIRST_BYTES: usize = 512;

/// What can be written as a message.
pub trait Outbound {
    /// Appends the bytes of the message.
    fn write(self, out: &mut Pieces);

    /// The encoded message, in slices that follow each other.
    fn into_slices(self) -> Vec<Bytes>
    where
        Self: Sized,
    {
        let mut out = Pieces::default();
        self.write(&mut out);
        out.finish()
    }

    /// The encoded message in one buffer.
    fn to_bytes(self) -> Bytes
    where
        Self: Sized,
    {
        Bytes::from(self.into_slices().concat())
    }
}

/// A message that is being written.
#[derive(Debug)]
pub struct Pieces {
    first: BytesMut,
    more: Vec<Bytes>,
    /// Follows `more`.
    open: BytesMut,
}

impl Default for Pieces {
    fn default() -> Self {
        let first = BytesMut::with_capacity(FIRST_BYTES);
        Self { first, more: Vec::new(), open: BytesMut::new() }
    }
}

impl Pieces {
    /// Where what is not shared is appended.
    pub fn open(&mut self) -> &mut BytesMut {
        if self.more.is_empty() { &mut self.first } else { &mut self.open }
    }

    /// Appends shared bytes. Only short ones are copied.
    pub fn share(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES_MAX {
            return self.open().extend_from_slice(&bytes);
        }
        if !self.open.is_empty() {
            self.more.push(self.open.split().freeze());
        }
        self.more.push(bytes);
    }

    /// Appends a message that prost encodes.
    pub(crate) fn message(&mut self, message: &impl Message) {
        let open = self.open();
        open.reserve(message.encoded_len());
        message.encode(open).expect("the buffer grows");
    }

    /// The message, in pieces that follow each other.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.more.push(self.open.freeze());
        }
        // A few bytes must not hold the memory of an event while they wait.
        let few = self.first.len() < FIRST_BYTES / 4;
        let first = if few { Bytes::copy_from_slice(&self.first) } else { self.first.freeze() };
        self.more.insert(0, first);
        self.more
    }
}

/// The field of `Item`, `LogItem` and `UpItem` with their events, in `ftb/v1/*.proto`.
pub(crate) const EVENTS: u8 = 2;
/// The field of `Item` and `LogItem` with the index of their first event.
const INDEX: u8 = 1;

/// The key of field `number` (below 16) that has bytes.
pub(crate) const fn bytes_key(number: u8) -> u8 {
    number << 3 | 2
}

/// The key of field `number` (below 16) that is a varint.
pub(crate) const fn varint_key(number: u8) -> u8 {
    number << 3
}

/// An item of a message with events and, if it has one, the index of the first.
#[derive(Clone, Copy)]
pub(crate) struct EventsItem<'a> {
    /// The item's field in its message, below 16.
    pub(crate) field: u8,
    pub(crate) index: Option<LogIndex>,
    pub(crate) events: &'a Run,
}

impl EventsItem<'_> {
    /// Bytes that [`EventsItem::put`] appends.
    pub(crate) fn len(&self) -> usize {
        field_len(self.content_len())
    }

    fn content_len(&self) -> usize {
        let index = self.index.map_or(0, |index| 1 + encoded_len_varint(index.get()));
        index + self.events.spans().map(|at| field_len(at.len as usize)).sum::<usize>()
    }

    /// Appends the item. Events that lie in their buffer as a list are not copied.
    pub(crate) fn put(&self, out: &mut Pieces) {
        let open = out.open();
        open.put_u8(bytes_key(self.field));
        encode_varint(self.content_len() as u64, open);
        if let Some(index) = self.index {
            open.put_u8(varint_key(INDEX));
            encode_varint(index.get(), open);
        }
        let buffer = self.events.buffer();
        // Part of the buffer that is to be appended.
        let mut listed = 0..0;
        let mut head = Vec::with_capacity(6);
        for Span { start, len } in self.events.spans() {
            head.clear();
            put_head(EVENTS, len as usize, &mut head);
            let (start, end) = (start as usize, (start + len) as usize);
            let begin =
                start.checked_sub(head.len()).filter(|begin| buffer[*begin..start] == *head);
            if begin == Some(listed.end) && !listed.is_empty() {
                listed.end = end;
                continue;
            }
            out.share(buffer.slice(listed));
            listed = begin.unwrap_or(start)..end;
            if begin.is_none() {
                out.open().extend_from_slice(&head);
            }
        }
        out.share(buffer.slice(listed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_and_shared_is_not_copied_and_all_comes_in_order() {
        let large = Bytes::from(vec![7; COPIED_BYTES_MAX + 1]);
        let small = Bytes::from(vec![8; COPIED_BYTES_MAX]);
        let mut out = Pieces::default();
        out.open().extend_from_slice(b"a");
        out.share(large.clone());
        out.share(small.clone());
        out.open().extend_from_slice(b"b");
        out.share(large.clone());
        let pieces = out.finish();
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(pieces[3].as_ptr(), large.as_ptr());
        let expected = [b"a", &large[..], &small, b"b", &large].concat();
        assert_eq!(pieces.concat(), expected);
    }
}
