//! Streams of gRPC messages as they lie in the frames of HTTP/2: both sides of both services that
//! carry events.
//!
//! The same bytes as tonic would write and read, without its buffers in between: what is sent goes in
//! the pieces that it is made of ([`crate::wire`]), what comes stays in the frame that it came in.
//!
//! Responsible for: cutting messages out of frames and bounding them, bodies of requests and
//! responses. Not responsible for: what a message says.

use crate::wire::{HEAD_BYTES, Outbound, Pieces};
use bytes::{Buf as _, Bytes, BytesMut};
use core::convert::Infallible;
use core::future::{Ready, ready};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use futures_core::Stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Extensions, Method, Request, Response, Uri, Version};
use http_body::{Body as _, Frame};
use std::collections::VecDeque;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The method by which a client attaches to its agent.
pub const ATTACH: &str = "/ftb.v1.Clients/Attach";
/// The method by which two agents link.
pub const EXCHANGE: &str = "/ftb.v1.Link/Exchange";

const CONTENT: HeaderValue = HeaderValue::from_static("application/grpc");

/// Why a stream gives no more messages.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StreamError {
    /// It was torn, or the peer ended it with an error.
    #[error("{}", words(.0))]
    Status(Box<Status>),
    /// What came on it is no message.
    #[error("{0}")]
    Malformed(String),
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// A status in one line: what it says, or what lies below it.
fn words(status: &Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.replace('\n', " "),
    }
}

/// What is said on a stream, as the body of a request or a response.
struct Sent<S> {
    messages: S,
    /// Of the message that is going.
    pieces: VecDeque<Bytes>,
    /// A response ends with a status.
    ends_with_status: bool,
}

impl<S> Sent<S> {
    fn new(messages: S, ends_with_status: bool) -> Self {
        Self { messages, pieces: VecDeque::new(), ends_with_status }
    }
}

impl<S> http_body::Body for Sent<S>
where
    S: Stream<Item: Outbound> + Unpin,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(message) = ready!(Pin::new(&mut self.messages).poll_next(context)) {
            let mut pieces = Pieces::default();
            message.write(&mut pieces);
            self.pieces = pieces.finish().into();
            return Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))));
        }
        if std::mem::take(&mut self.ends_with_status) {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Poll::Ready(None)
    }
}

/// What comes on a stream.
#[derive(Debug)]
pub struct Received {
    body: Body,
    messages: Messages,
}

impl Received {
    fn new(body: Body, bytes_max: usize) -> Self {
        Self { body, messages: Messages::new(bytes_max) }
    }

    /// The next message; `None` when the stream has ended. Cancel-safe.
    ///
    /// # Errors
    /// The stream was torn, or what came on it is none.
    pub async fn message(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if let Some(message) = self.messages.next()? {
                return Ok(Some(message));
            }
            let body = &mut self.body;
            let frame = core::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            let Some(frame) = frame.await.transpose()? else {
                return self.messages.end().map(|()| None);
            };
            match frame.into_data() {
                Ok(data) => self.messages.add(data),
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
fn said_end(headers: &HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

/// Opens a stream on a connection: calls a method with what will be said, and gives what is
/// answered. No message of more than `bytes_max` is taken.
///
/// # Errors
/// The peer's refusal, or that it cannot be spoken to.
pub async fn call<S>(
    mut channel: Channel,
    method: &'static str,
    messages: S,
    bytes_max: usize,
) -> Result<Received, Status>
where
    S: Stream<Item: Outbound> + Send + Unpin + 'static,
{
    let lost = |error: tonic::transport::Error| Status::from_error(Box::new(error));
    core::future::poll_fn(|context| channel.poll_ready(context)).await.map_err(lost)?;
    let mut request = Request::new(Body::new(Sent::new(messages, false)));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(method);
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, CONTENT);
    let response = channel.call(request).await.map_err(lost)?;
    said_end(response.headers())?;
    if !response.status().is_success() {
        return Err(Status::unavailable(format!("it answers {}", response.status())));
    }
    Ok(Received::new(response.into_body(), bytes_max))
}

/// Who answers the calls of one method.
pub trait Answer: Clone + Send + Sync + 'static {
    /// The service, as `ftb.v1.Link`.
    const SERVICE: &'static str;
    /// The method, as [`EXCHANGE`].
    const METHOD: &'static str;
    /// Largest message that is taken, in bytes.
    const MESSAGE_BYTES_MAX: usize;
    /// What is said.
    type Messages: Stream<Item: Outbound> + Send + Unpin + 'static;

    /// Takes a call: what is known of its connection, and what the caller says. Gives what is
    /// answered.
    ///
    /// # Errors
    /// Why the call is refused.
    fn answer(&self, connection: &Extensions, received: Received)
    -> Result<Self::Messages, Status>;
}

/// The service of an [`Answer`], for tonic's router.
#[derive(Clone, Debug)]
pub struct Answering<A>(pub A);

impl<A: Answer> NamedService for Answering<A> {
    const NAME: &'static str = A::SERVICE;
}

impl<A: Answer> Service<Request<Body>> for Answering<A> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let answer = if head.uri.path() == A::METHOD {
            self.0.answer(&head.extensions, Received::new(body, A::MESSAGE_BYTES_MAX))
        } else {
            Err(Status::unimplemented(format!("there is no method {}", head.uri.path())))
        };
        ready(Ok(match answer {
            Ok(messages) => {
                let mut response = Response::new(Body::new(Sent::new(messages, true)));
                response.headers_mut().insert(CONTENT_TYPE, CONTENT);
                response
            }
            Err(status) => status.into_http(),
        }))
    }
}

/// Cuts messages out of what comes in.
#[derive(Debug, Default)]
struct Messages {
    bytes_max: usize,
    /// What came last and was not looked at.
    data: Bytes,
    /// The beginning of a message whose end has not come.
    begun: BytesMut,
}

impl Messages {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Takes what has come, once [`Messages::next`] gives nothing.
    fn add(&mut self, data: Bytes) {
        self.data = data;
    }

    /// The next whole message.
    fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        if self.begun.is_empty()
            && let Some(len) = self.len_of(&self.data)?
            && let Some(whole) = self.data.get(..HEAD_BYTES + len)
        {
            let whole = whole.len();
            return Ok(Some(self.data.split_to(whole).slice(HEAD_BYTES..)));
        }
        self.begin(HEAD_BYTES);
        let Some(len) = self.len_of(&self.begun)? else { return Ok(None) };
        self.begin(HEAD_BYTES + len);
        if self.begun.len() < HEAD_BYTES + len {
            return Ok(None);
        }
        // Its buffer goes with it: what is kept of it then keeps nothing else, and nothing is kept for a
        // message that may not come for long.
        Ok(Some(std::mem::take(&mut self.begun).freeze().slice(HEAD_BYTES..)))
    }

    /// Nothing more comes.
    fn end(&self) -> Result<(), StreamError> {
        if self.begun.is_empty() {
            return Ok(());
        }
        Err(StreamError::Malformed("the stream ends in the middle of a message".to_owned()))
    }

    /// Moves what has come to the begun message until that has so many bytes.
    fn begin(&mut self, len: usize) {
        let missing = len.saturating_sub(self.begun.len());
        if self.data.is_empty() {
            return;
        }
        if self.begun.capacity() < len {
            // No more than it needs: what was appended to grows by doubling.
            let mut whole = BytesMut::with_capacity(len);
            whole.extend_from_slice(&self.begun);
            self.begun = whole;
        }
        let there = self.data.split_to(missing.min(self.data.len()));
        self.begun.extend_from_slice(there.chunk());
    }

    /// The length of the message that begins here; `None` as long as its head is not whole.
    fn len_of(&self, bytes: &[u8]) -> Result<Option<usize>, StreamError> {
        let Some((head, _)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [compressed, len @ ..] = *head;
        let len = u32::from_be_bytes(len) as usize;
        if compressed != 0 {
            let text = "a compressed message, which nobody asked for";
            return Err(StreamError::Malformed(text.to_owned()));
        }
        let max = self.bytes_max;
        if len > max {
            let text = format!("a message of {len} bytes: at most {max} are allowed");
            return Err(StreamError::Malformed(text));
        }
        Ok(Some(len))
    }
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
            let mut inner = Messages::new(50);
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
            prop_assert!(inner.end().is_ok());
            prop_assert_eq!(found, messages);
        }
    }

    #[test]
    fn what_is_too_long_compressed_or_torn_is_refused() {
        for head in [[0, 0, 0, 0, 101], [1, 0, 0, 0, 1]] {
            let mut inner = Messages::new(100);
            inner.add(Bytes::copy_from_slice(&head));
            assert!(inner.next().is_err(), "before it is taken");
        }
        let mut inner = Messages::new(100);
        inner.add(Bytes::from_static(&[0, 0, 0, 0, 100, 7]));
        assert!(inner.next().unwrap().is_none());
        assert!(inner.end().is_err());
    }

    /// Two messages, the second in pieces.
    struct Two(Vec<Said>);

    enum Said {
        Small,
        Large(Bytes),
    }

    impl Outbound for Said {
        fn write(self, out: &mut Pieces) {
            out.open().extend_from_slice(b"small");
            if let Self::Large(bytes) = self {
                out.share(bytes);
            }
        }
    }

    impl Stream for Two {
        type Item = Said;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Said>> {
            Poll::Ready(self.0.pop())
        }
    }

    #[test]
    fn a_body_is_its_messages_and_only_a_response_ends_with_a_status() {
        let large = Bytes::from(vec![7; 10_000]);
        for ends_with_status in [false, true] {
            let said = vec![Said::Large(large.clone()), Said::Small];
            let mut body = Sent::new(Two(said), ends_with_status);
            let mut context = Context::from_waker(core::task::Waker::noop());
            let mut messages = Messages::new(20_000);
            let (mut found, mut trailers) = (Vec::new(), 0);
            while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
                match frame.into_data() {
                    Ok(data) => messages.add(data),
                    Err(_) => trailers += 1,
                }
                found.extend(std::iter::from_fn(|| messages.next().unwrap()));
            }
            assert_eq!(found, [&b"small"[..], &[b"small", &large[..]].concat()]);
            assert_eq!(trailers, usize::from(ends_with_status));
        }
    }
}
