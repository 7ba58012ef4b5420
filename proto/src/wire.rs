//! Messages as bytes: what a gRPC stream carries without prost in between.
//!
//! Frames of events are written straight from the core's values, and read by walking over the
//! bytes, so that a batch stays one buffer. The bytes are those of the messages of `ftb/v1/*.proto`:
//! any gRPC client can speak to it.
//!
//! Responsible for: the codec, and what can be written by it. Not responsible for: what the
//! messages mean.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use core::marker::PhantomData;
use prost::encoding::{encode_varint, encoded_len_varint};
use prost::{EncodeError, Message};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Where a message is written to.
pub trait Out: BufMut {
    /// Makes room for so many bytes at once.
    fn reserve(&mut self, bytes: usize);
}

impl Out for BytesMut {
    fn reserve(&mut self, bytes: usize) {
        Self::reserve(self, bytes);
    }
}

impl Out for EncodeBuf<'_> {
    fn reserve(&mut self, bytes: usize) {
        EncodeBuf::reserve(self, bytes);
    }
}

/// What can be written as a message.
pub trait Outbound: Sized {
    /// Appends the bytes of the message.
    ///
    /// # Errors
    /// The buffer has no room and does not grow; memory does.
    fn write(self, out: &mut impl Out) -> Result<(), EncodeError>;

    /// The bytes of the message alone.
    ///
    /// # Errors
    /// See [`Outbound::write`].
    fn to_bytes(self) -> Result<Bytes, EncodeError> {
        let mut out = BytesMut::new();
        self.write(&mut out)?;
        Ok(out.freeze())
    }
}

/// Writes a message that prost encodes.
pub(crate) fn write_message(message: &impl Message, out: &mut impl Out) -> Result<(), EncodeError> {
    out.reserve(message.encoded_len());
    message.encode(out)
}

/// The codec of a stream that is sent as `E` and received as the bytes of its messages.
pub struct WireCodec<E>(PhantomData<fn(E)>);

impl<E> Default for WireCodec<E> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E: Outbound + Send + 'static> Codec for WireCodec<E> {
    type Encode = E;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Received;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Received {
        Received
    }
}

impl<E: Outbound + Send + 'static> Encoder for WireCodec<E> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, item: E, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.write(out).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Takes a message as its bytes.
pub struct Received;

impl Decoder for Received {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
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

/// The keys of an event within a list: of the item, of its index where it has one, of the event.
#[derive(Clone, Copy)]
pub(crate) struct ItemKeys {
    pub(crate) item: u8,
    pub(crate) index: Option<u8>,
    pub(crate) event: u8,
}

impl ItemKeys {
    /// Bytes of what is within the item.
    fn content_len(self, index: u64, event: usize) -> usize {
        let index = self.index.map_or(0, |_| 1 + encoded_len_varint(index));
        index + 1 + encoded_len_varint(event as u64) + event
    }

    /// Bytes of the item.
    pub(crate) fn len(self, index: u64, event: usize) -> usize {
        let content = self.content_len(index, event);
        1 + encoded_len_varint(content as u64) + content
    }

    /// Appends the item.
    pub(crate) fn put(self, index: u64, event: &[u8], out: &mut impl BufMut) {
        // Two keys more and three numbers: in one piece, since each piece is a check for room.
        let mut head = [0; 3 + 3 * 10];
        let mut rest = head.as_mut_slice();
        rest.put_u8(self.item);
        encode_varint(self.content_len(index, event.len()) as u64, &mut rest);
        if let Some(key) = self.index {
            rest.put_u8(key);
            encode_varint(index, &mut rest);
        }
        rest.put_u8(self.event);
        encode_varint(event.len() as u64, &mut rest);
        let left = rest.len();
        out.put_slice(&head[..head.len() - left]);
        out.put_slice(event);
    }
}
