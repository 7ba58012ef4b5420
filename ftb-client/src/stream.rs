//! The stream to the agent: gRPC messages as they lie in the frames of HTTP/2.
//!
//! The same bytes as tonic would write and read, without its buffers in between: what is published
//! was encoded when it was published and follows the head of its message as it is; what is
//! delivered stays in the frame that it came in.

use crate::outbox::Batch;
use bytes::{Buf as _, Bytes, BytesMut};
use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use ftb_core::limits;
use ftb_proto::client::{FromClient, put_publish};
use futures_core::Stream;
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{Method, Request, Uri, Version};
use http_body::{Body as _, Frame};
use prost::Message as _;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The method of the protocol.
const ATTACH: &str = "/ftb.v1.Clients/Attach";
/// Before each message: whether it is compressed (it never is), and its length in four bytes.
const HEAD_BYTES: usize = 5;
/// Events up to this size are copied behind the head of their message: two frames would cost more,
/// in bytes.
const COPIED_BYTES_MAX: usize = 4096;

/// What a client says next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Anything but events.
    Message(FromClient),
    /// Events.
    Publish(Batch),
}

/// What a client says, as the body of its request.
struct Outbound<S> {
    speaker: S,
    /// The events of the message whose head went last.
    events: Option<Bytes>,
}

impl<S: Stream<Item = Say> + Unpin> http_body::Body for Outbound<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(events) = self.events.take() {
            return Poll::Ready(Some(Ok(Frame::data(events))));
        }
        let Some(say) = ready!(Pin::new(&mut self.speaker).poll_next(context)) else {
            return Poll::Ready(None);
        };
        let (head, events) = frames(say);
        self.events = events;
        Poll::Ready(Some(Ok(Frame::data(head))))
    }
}

/// A message in one piece, or in two: its head, and the events as they were collected.
fn frames(say: Say) -> (Bytes, Option<Bytes>) {
    let (message, events) = match say {
        Say::Message(message) => (message.encode().encode_to_vec(), Bytes::new()),
        Say::Publish(Batch { first_seq, events, again }) => {
            (put_publish(first_seq, again, events.len()), events)
        }
    };
    let len = u32::try_from(message.len() + events.len())
        .expect("a message holds 64 KiB of events or one, far less than 4 GiB");
    let copied = if events.len() <= COPIED_BYTES_MAX { events.len() } else { 0 };
    let mut head = Vec::with_capacity(HEAD_BYTES + message.len() + copied);
    head.push(0);
    head.extend_from_slice(&len.to_be_bytes());
    head.extend_from_slice(&message);
    head.extend_from_slice(&events[..copied]);
    (head.into(), (copied < events.len()).then_some(events))
}

/// What the agent says.
#[derive(Debug)]
pub(crate) struct Inbound {
    body: Body,
    inner: Messages,
}

impl Inbound {
    /// Opens the stream on a connection.
    ///
    /// # Errors
    /// The agent's refusal, or that it cannot be spoken to.
    pub(crate) async fn open(
        mut channel: Channel,
        speaker: impl Stream<Item = Say> + Send + Unpin + 'static,
    ) -> Result<Self, Status> {
        let lost = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        core::future::poll_fn(|context| channel.poll_ready(context)).await.map_err(lost)?;
        let mut request = Request::new(Body::new(Outbound { speaker, events: None }));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = Uri::from_static(ATTACH);
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let response = channel.call(request).await.map_err(lost)?;
        said_end(response.headers())?;
        if !response.status().is_success() {
            return Err(Status::unavailable(format!("it answers {}", response.status())));
        }
        Ok(Self { body: response.into_body(), inner: Messages::default() })
    }

    /// The next message; `None` when the stream has ended. Cancel-safe.
    ///
    /// # Errors
    /// The stream was torn, or what came on it is none.
    pub(crate) async fn message(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.inner.next()? {
                return Ok(Some(message));
            }
            let body = &mut self.body;
            let frame = core::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            let Some(frame) = frame.await.transpose()? else { return Ok(None) };
            match frame.into_data() {
                Ok(data) => self.inner.add(data),
                Err(frame) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        said_end(trailers)?;
                    }
                }
            }
        }
    }
}

/// What headers or trailers say of how the stream ended: an error unless all is well.
fn said_end(headers: &http::HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

/// Cuts messages out of what comes in.
#[derive(Debug, Default)]
struct Messages {
    /// What came last and was not looked at.
    data: Bytes,
    /// The beginning of a message whose end has not come.
    begun: BytesMut,
}

impl Messages {
    /// Takes what has come, once [`Messages::next`] gives nothing.
    fn add(&mut self, data: Bytes) {
        self.data = data;
    }

    /// The next whole message.
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.begun.is_empty()
            && let Some(len) = message_len(&self.data)?
            && let Some(whole) = self.data.get(..HEAD_BYTES + len)
        {
            let whole = whole.len();
            return Ok(Some(self.data.split_to(whole).slice(HEAD_BYTES..)));
        }
        self.begin(HEAD_BYTES);
        let Some(len) = message_len(&self.begun)? else { return Ok(None) };
        self.begin(HEAD_BYTES + len);
        if self.begun.len() < HEAD_BYTES + len {
            return Ok(None);
        }
        Ok(Some(self.begun.split().freeze().slice(HEAD_BYTES..)))
    }

    /// Moves what has come to the begun message until that has so many bytes.
    fn begin(&mut self, len: usize) {
        let missing = len.saturating_sub(self.begun.len());
        if self.data.is_empty() {
            return;
        }
        self.begun.reserve(missing);
        let there = self.data.split_to(missing.min(self.data.len()));
        self.begun.extend_from_slice(there.chunk());
    }
}

/// The length of the message that begins here; `None` as long as its head is not whole.
fn message_len(bytes: &[u8]) -> Result<Option<usize>, Status> {
    let Some((head, _)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [compressed, len @ ..] = *head;
    let len = u32::from_be_bytes(len) as usize;
    if compressed != 0 {
        return Err(Status::internal(
            "the agent sends compressed messages, which nobody asked for",
        ));
    }
    let max = limits::FRAME_BYTES_MAX;
    if len > max {
        return Err(Status::internal(format!("a message of {len} bytes: at most {max}")));
    }
    Ok(Some(len))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    proptest! {
        /// However the messages are cut into frames, they come out as they went in.
        #[test]
        fn messages_are_found_in_any_frames(
            messages in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..50), 0..10),
            cuts in proptest::collection::vec(1..60_usize, 1..40),
        ) {
            let mut bytes = Bytes::from(messages.iter().flat_map(|m| framed(m)).collect::<Vec<_>>());
            let mut inner = Messages::default();
            let mut found = Vec::new();
            for cut in cuts.iter().cycle() {
                while let Some(message) = inner.next().unwrap() {
                    found.push(message.to_vec());
                }
                if bytes.is_empty() {
                    break;
                }
                inner.add(bytes.split_to((*cut).min(bytes.len())));
            }
            prop_assert_eq!(found, messages);
        }
    }

    #[test]
    fn what_is_too_long_or_compressed_is_refused_before_it_is_taken() {
        for head in [[0, 0xff, 0, 0, 0], [1, 0, 0, 0, 1]] {
            let mut inner = Messages::default();
            inner.add(Bytes::copy_from_slice(&head));
            assert!(inner.next().is_err());
        }
    }

    #[test]
    fn large_batches_go_as_they_are_and_small_ones_in_one_piece() {
        for (len, pieces) in [(1, 1), (COPIED_BYTES_MAX, 1), (COPIED_BYTES_MAX + 1, 2)] {
            let events = Bytes::from(vec![7; len]);
            let batch = Batch { first_seq: 300, events: events.clone(), again: true };
            let (mut head, rest) = frames(Say::Publish(batch));
            assert_eq!(1 + usize::from(rest.is_some()), pieces);
            let mut message = head.split_off(HEAD_BYTES).to_vec();
            message.extend_from_slice(&rest.unwrap_or_default());
            let said = u32::from_be_bytes(head[1..].try_into().unwrap());
            assert_eq!(said as usize, message.len());
            let mut expected = put_publish(300, true, len);
            expected.extend_from_slice(&events);
            assert_eq!(message, expected);
        }
    }
}
