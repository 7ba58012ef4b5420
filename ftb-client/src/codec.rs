//! How messages become bytes on the stream to the agent, and back.
//!
//! The same bytes as prost would write, without its detours: what is published was encoded when it
//! was published and follows the head of its message as it is; what is delivered stays in the bytes
//! of its message.

use crate::outbox::Batch;
use bytes::{Buf as _, BufMut as _, Bytes};
use ftb_proto::client::{FromClient, put_publish};
use prost::Message as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// First room for what is to be sent, in bytes: most messages of a quiet client fit.
const BUFFER_BYTES: usize = 1024;
/// What is ready to be sent is gathered up to so many bytes.
const GATHERED_BYTES: usize = 64 * 1024;

/// What a client says next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Anything but events.
    Message(FromClient),
    /// Events.
    Publish(Batch),
}

/// For the stream between client and agent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientCodec;

impl Codec for ClientCodec {
    type Encode = Say;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for ClientCodec {
    type Item = Say;
    type Error = Status;

    fn encode(&mut self, item: Say, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match item {
            Say::Message(message) => message
                .encode()
                .encode(out)
                .map_err(|error| Status::internal(format!("a message has no room: {error}"))),
            Say::Publish(batch) => {
                let head = put_publish(batch.first_seq, batch.again, batch.events.len());
                out.reserve(head.len() + batch.events.len());
                out.put_slice(&head);
                out.put_slice(&batch.events);
                Ok(())
            }
        }
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES)
    }
}

impl Decoder for ClientCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES)
    }
}
