//! What a client says to its agent, as messages of the stream between them.
//!
//! What is published was encoded when it was published, and follows the head of its message as it is.

use crate::outbox::Batch;
use ftb_core::limits;
use ftb_proto::client::{FromClient, put_publish};
use ftb_proto::crew::Crew;
use ftb_proto::local::LocalStream;
use ftb_proto::stream::{ATTACH, Received, Windows, call};
use ftb_proto::wire::{Outbound, Pieces};
use futures_core::Stream;
use tokio::net::UnixStream;
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

/// Opens the stream on a connection, which `crew` carries on: gives what the agent says.
///
/// # Errors
/// The agent's refusal, or that it cannot be spoken to.
pub(crate) async fn open(
    crew: &Crew,
    socket: UnixStream,
    speaker: impl Stream<Item = Say> + Send + Unpin + 'static,
) -> Result<Received, Status> {
    let socket = LocalStream::new(socket)?;
    call(crew, socket, WINDOWS, ATTACH, speaker, limits::FRAME_BYTES_MAX).await
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
