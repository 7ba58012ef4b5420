//! Messages as bytes, in pieces: what lies in a shared buffer goes from there.
//!
//! The bytes are those of the messages of `ftb/v1/*.proto`: any gRPC client can speak to it. Most
//! messages are small and written by prost; events are slices of the buffers that they lie in.
//!
//! Responsible for: what a message is made of. Not responsible for: what it means; the stream that
//! carries it ([`crate::stream`]).

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use ftb_core::run::Run;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use std::io::IoSlice;

/// Before each message of a stream: whether it is compressed (it never is), and its length in four
/// bytes.
pub(crate) const HEAD_BYTES: usize = 5;
/// Shared bytes up to this size are copied into the piece before them: a piece of their own would
/// cost more, in bytes.
const COPIED_BYTES_MAX: usize = 4096;

/// Room that a message begins with, in bytes: for a single event, so that it does not grow in steps.
const FIRST_BYTES: usize = 512;

/// What can be written as a message.
pub trait Outbound {
    /// Appends the bytes of the message.
    fn write(self, out: &mut Pieces);

    /// The bytes of the message alone.
    fn to_bytes(self) -> Bytes
    where
        Self: Sized,
    {
        let mut out = Pieces::default();
        self.write(&mut out);
        let bytes: Vec<u8> = out.finish().into_iter().flatten().collect();
        Bytes::from(bytes).slice(HEAD_BYTES..)
    }
}

/// A message that is being written.
#[derive(Debug)]
pub struct Pieces {
    /// Begins with room for the head of the message.
    first: BytesMut,
    more: Vec<Bytes>,
    /// Follows `more`.
    open: BytesMut,
}

impl Default for Pieces {
    fn default() -> Self {
        let mut first = BytesMut::with_capacity(FIRST_BYTES);
        first.extend_from_slice(&[0; HEAD_BYTES]);
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

    /// The message with its head, in pieces that follow each other.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.more.push(self.open.freeze());
        }
        let len = self.first.len() - HEAD_BYTES + self.more.iter().map(Bytes::len).sum::<usize>();
        let len = u32::try_from(len).expect("a message is a batch or one event, far below 4 GiB");
        self.first[1..HEAD_BYTES].copy_from_slice(&len.to_be_bytes());
        // A few bytes must not keep the room of an event as long as nobody reads them.
        let few = self.first.len() < FIRST_BYTES / 4;
        let first = if few { Bytes::copy_from_slice(&self.first) } else { self.first.freeze() };
        self.more.insert(0, first);
        self.more
    }
}

/// A message on its way, as one buffer in pieces: it goes as one frame of HTTP/2, so that who takes
/// it in has it in one piece.
#[derive(Debug, Default)]
pub struct Parcel {
    pieces: Vec<Bytes>,
    /// Those before it have gone.
    at: usize,
    remaining: usize,
}

impl Parcel {
    pub(crate) fn new(pieces: Vec<Bytes>) -> Self {
        let remaining = pieces.iter().map(Bytes::len).sum();
        Self { pieces, at: 0, remaining }
    }

    fn left(&self) -> &[Bytes] {
        self.pieces.get(self.at..).unwrap_or_default()
    }
}

impl Buf for Parcel {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.left().iter().find(|piece| !piece.is_empty()).map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.left().iter().filter(|piece| !piece.is_empty());
        slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "{count} of {} bytes", self.remaining);
        self.remaining -= count;
        while let Some(piece) = self.pieces.get_mut(self.at).filter(|_| count > 0) {
            let gone = count.min(piece.len());
            piece.advance(gone);
            count -= gone;
            if piece.is_empty() {
                // What has gone is let go.
                *piece = Bytes::new();
                self.at += 1;
            }
        }
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

/// An item of a list that has events: what is before them, and the events as they lie.
pub(crate) struct EventsItem {
    head: BytesMut,
    events: Vec<Bytes>,
}

impl EventsItem {
    /// An item in field `number` (below 16) of its message, its first index in field 1 if it has
    /// one, the events in field 2.
    pub(crate) fn new(number: u8, index: Option<u64>, run: &Run) -> Self {
        let events = run.list();
        let index_len = index.map_or(0, |index| 1 + encoded_len_varint(index));
        let content = index_len + events.iter().map(Bytes::len).sum::<usize>();
        let mut head = BytesMut::with_capacity(2 + 2 * 10);
        head.put_u8(bytes_key(number));
        encode_varint(content as u64, &mut head);
        if let Some(index) = index {
            head.put_u8(varint_key(1));
            encode_varint(index, &mut head);
        }
        Self { head, events }
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.events.iter().map(Bytes::len).sum::<usize>()
    }

    /// Appends it.
    pub(crate) fn put(self, out: &mut Pieces) {
        out.open().extend_from_slice(&self.head);
        self.events.into_iter().for_each(|bytes| out.share(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_is_its_pieces_however_it_is_taken() {
        let pieces = [&b"ab"[..], b"", b"cde", b"f"].map(Bytes::from_static);
        for step in 1..=6 {
            let mut parcel = Parcel::new(pieces.to_vec());
            let mut taken = Vec::new();
            while parcel.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 8];
                let count = parcel.chunks_vectored(&mut slices);
                let all: Vec<u8> =
                    slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(all.len(), parcel.remaining());
                let step = step.min(all.len());
                taken.extend_from_slice(&all[..step]);
                assert!(all.starts_with(parcel.chunk()) && !parcel.chunk().is_empty());
                parcel.advance(step);
            }
            assert_eq!(taken, b"abcdef");
        }
    }

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
        let mut head = vec![0];
        head.extend_from_slice(&(expected.len() as u32).to_be_bytes());
        assert_eq!(pieces.concat(), [head, expected].concat());
    }
}
