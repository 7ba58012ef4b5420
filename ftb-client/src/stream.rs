//! The messages of a client, as the transport sends them.
//!
//! Events were encoded when they were published, and follow the head of their message as they are.

use crate::outbox::OutgoingBatch;
use ftb_core::limits;
use ftb_proto::client::{ATTACH_METHOD, FromClient, put_publish};
use ftb_proto::wire::{Outbound, Pieces};
use ftb_transport::executor::Executor;
use ftb_transport::frame_body::FrameBody;
use ftb_transport::stream::client::open_stream;
use ftb_transport::stream::{InboundStream, Windows};
use ftb_transport::unix::UnixStream;
use futures_core::Stream;
use tokio_stream::StreamExt as _;
use tonic::Status;

/// What is taken from the agent without being asked again: a delivery of full size and its head in
/// one frame. Beyond what the socket has not taken yet, what is published waits where it can still
/// be shed.
const WINDOWS: Windows = Windows {
    stream_bytes: 1 << 20,
    connection_bytes: 2 << 20,
    frame_bytes: 256 * 1024,
    unsent_bytes: 512 * 1024,
};

/// The next message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// A message without events.
    Message(FromClient),
    /// Events.
    Publish(OutgoingBatch),
}

impl Outbound for Outgoing {
    fn write(self, out: &mut Pieces) {
        match self {
            Self::Message(message) => message.write(out),
            Self::Publish(OutgoingBatch { first_seq, events, again, confirm }) => {
                put_publish(first_seq, again, confirm, events.len(), out.open());
                out.share(events);
            }
        }
    }
}

/// Opens the stream over a connected socket and returns the agent's messages. The connection runs
/// in `executor`.
///
/// # Errors
/// The agent refuses the stream or does not speak gRPC.
pub(crate) async fn open(
    executor: &Executor,
    socket: tokio::net::UnixStream,
    messages: impl Stream<Item = Outgoing> + Send + Unpin + 'static,
) -> Result<InboundStream, Status> {
    let socket = UnixStream::new(socket)?;
    let messages = messages.map(|say| FrameBody::message(say.into_slices()));
    open_stream(executor, socket, WINDOWS, ATTACH_METHOD, messages, limits::FRAME_BYTES_MAX).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn what_is_published_is_a_head_and_the_events_as_they_are() {
        let events = Bytes::from(vec![7; 9]);
        let say = Outgoing::Publish(OutgoingBatch {
            first_seq: 300,
            events: events.clone(),
            again: true,
            confirm: None,
        });
        let mut expected = Vec::new();
        put_publish(300, true, None, events.len(), &mut expected);
        expected.extend_from_slice(&events);
        assert_eq!(say.to_bytes(), expected);
    }
}
