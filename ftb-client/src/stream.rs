//! What a client says to its agent, as messages of the stream between them.
//!
//! What is published was encoded when it was published, and follows the head of its message as it is.

use crate::outbox::Batch;
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

/// What is taken from the agent without being asked again: a delivery of full size and its head in one
/// frame. Beyond what the socket has not taken yet, what is published waits where it can still be shed.
const WINDOWS: Windows = Windows {
    stream_bytes: 1 << 20,
    connection_bytes: 2 << 20,
    frame_bytes: 256 * 1024,
    unsent_bytes: 512 * 1024,
};

/// What a client says next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Anything but events.
    Message(FromClient),
    /// Events.
    Publish(Batch),
}

impl Outbound for Say {
    fn write(self, out: &mut Pieces) {
        match self {
            Self::Message(message) => message.write(out),
            Self::Publish(Batch { first_seq, events, again }) => {
                put_publish(first_seq, again, events.len(), out.open());
                out.share(events);
            }
        }
    }
}

/// Opens the stream over a connected socket and returns the agent's messages. The connection runs in
/// `executor`.
///
/// # Errors
/// The agent refuses the stream or does not speak gRPC.
pub(crate) async fn open(
    executor: &Executor,
    socket: tokio::net::UnixStream,
    messages: impl Stream<Item = Say> + Send + Unpin + 'static,
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
        let say = Say::Publish(Batch { first_seq: 300, events: events.clone(), again: true });
        let mut expected = Vec::new();
        put_publish(300, true, events.len(), &mut expected);
        expected.extend_from_slice(&events);
        assert_eq!(say.to_bytes(), expected);
    }
}
