//! Messages as bytes, in pieces: what lies in a shared buffer goes from there.
//!
//! The bytes are those of the messages of `ftb/v1/*.proto`: any gRPC client can speak to it. Most
//! messages are small and written by prost; events are slices of the buffers that they lie in.
//!
//! Responsible for: what a message is made of. Not responsible for: what it means, nor the stream
//! that carries it.

use bytes::{BufMut as _, Bytes, BytesMut};
use ftb_core::run::{Portion, Run};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

/// Shared bytes up to this size are copied into the piece before them: a piece of their own would
/// cost more, in bytes.
const COPIED_BYTES_MAX: usize = 4096;

/// Room that a message begins with, in bytes: for a single event, so that it does not grow in steps.
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

    /// Appends bytes that somebody else holds too; nothing is copied where there are many.
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
        // A few bytes must not keep the room of an event as long as nobody reads them.
        let few = self.first.len() < FIRST_BYTES / 4;
        let first = if few { Bytes::copy_from_slice(&self.first) } else { self.first.freeze() };
        self.more.insert(0, first);
        self.more
    }
}

/// The key of field `number` (below 16) that has bytes.
pub(crate) const fn bytes_key(number: u8) -> u8 {
    number << 3 | 2
}

/// The key of field `number` (below 16) that is a varint.
pub(crate) const fn varint_key(number: u8) -> u8 {
    number << 3
}

/// The field of an item with what tells those of its events that are not whole, in `ftb/v1/*.proto`.
pub(crate) const PACKED: u32 = 6;

/// Items of a list that have events: what is before each, and the events as they lie.
pub(crate) struct EventsItems {
    items: Vec<EventsItem>,
    len: usize,
}

struct EventsItem {
    head: Short,
    listed: Bytes,
    packed: Option<(Short, Bytes)>,
}

impl EventsItems {
    /// Items in field `number` (below 16) of their message, each with the first index in field 1 if there
    /// is one, whole events in field 2, and in field [`PACKED`] what tells those behind them.
    pub(crate) fn new(number: u8, index: Option<u64>, run: &Run) -> Self {
        let (mut len, mut index) = (0, index);
        let item = |portion: Portion| {
            let (item, item_len) = EventsItem::new(number, index, &portion);
            len += item_len;
            // No index is so high.
            index = index.map(|index| index.saturating_add(portion.count as u64));
            item
        };
        let items = run.portions().map(item).collect();
        Self { items, len }
    }

    /// Their bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends them.
    pub(crate) fn put(self, out: &mut Pieces) {
        for EventsItem { head, listed, packed } in self.items {
            out.open().extend_from_slice(head.bytes());
            out.share(listed);
            if let Some((head, packed)) = packed {
                out.open().extend_from_slice(head.bytes());
                out.share(packed);
            }
        }
    }
}

impl EventsItem {
    /// The item, and how many bytes it has.
    fn new(number: u8, index: Option<u64>, portion: &Portion) -> (Self, usize) {
        let Portion { listed, packed, .. } = portion;
        let packed = packed.as_ref().map(|packed| {
            (Short::of(&[(bytes_key(PACKED as u8), packed.len() as u64)]), packed.clone())
        });
        let index_len = index.map_or(0, |index| 1 + encoded_len_varint(index));
        let packed_len = packed.as_ref().map_or(0, |(head, packed)| head.len() + packed.len());
        let content = (index_len + listed.len() + packed_len) as u64;
        let key = (bytes_key(number), content);
        let head = match index {
            Some(index) => Short::of(&[key, (varint_key(1), index)]),
            None => Short::of(&[key]),
        };
        let len = head.len() + listed.len() + packed_len;
        (Self { head, listed: listed.clone(), packed }, len)
    }
}

/// One or two keys of fields (below 16) with their numbers.
struct Short {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Short {
    /// Two keys of one byte and two numbers of ten.
    const MAX: usize = 22;

    fn of(fields: &[(u8, u64)]) -> Self {
        let mut bytes = [0; Self::MAX];
        let mut room = &mut bytes[..];
        for (key, number) in fields {
            room.put_u8(*key);
            encode_varint(*number, &mut room);
        }
        let len = Self::MAX - room.len();
        Self { bytes, len }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
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
