//! Streams of gRPC messages as they lie in the frames of HTTP/2: both sides of both services that
//! carry events.
//!
//! The same bytes as tonic would write and read, straight on hyper or h2, without its buffers in between:
//! what is sent goes in the pieces that it is made of ([`crate::wire`]), a message in one frame; what
//! comes stays in the frame that it came in.
//!
//! Responsible for: cutting messages out of frames and bounding them, bodies of requests and
//! responses, the HTTP/2 connection that carries them. Not responsible for: what a message says, and
//! who may say it.

use crate::crew::Crew;
use crate::wire::{HEAD_BYTES, Outbound, Parcel, Pieces};
use bytes::{Buf as _, Bytes, BytesMut};
use core::convert::Infallible;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, ready};
use futures_core::Stream;
use futures_core::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Extensions, Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2 as server;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use tonic::{Code, Status};

mod call;
mod inspect;

use call::Answered;
pub use call::call;
pub use inspect::{Flood, Inspector};

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

/// What one side of an HTTP/2 connection takes without being asked again, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Of one stream, not yet read.
    pub stream_bytes: u32,
    /// Of all streams together.
    pub connection_bytes: u32,
    /// Largest frame.
    pub frame_bytes: u32,
    /// What was said and the socket did not take yet; more waits where it comes from.
    pub unsent_bytes: usize,
}

/// What is said in answer to a call, as the body of a response: a frame for each message, and a status at the end.
#[derive(Debug)]
pub struct Sent<S> {
    messages: S,
    has_ended: bool,
}

impl<S> http_body::Body for Sent<S>
where
    S: Stream<Item: Outbound> + Unpin,
{
    type Data = Parcel;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Parcel>, Status>>> {
        if let Some(message) = ready!(Pin::new(&mut self.messages).poll_next(context)) {
            return Poll::Ready(Some(Ok(Frame::data(parcel(message)))));
        }
        if std::mem::replace(&mut self.has_ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// A message as it goes.
fn parcel(message: impl Outbound) -> Parcel {
    let mut pieces = Pieces::default();
    message.write(&mut pieces);
    Parcel::new(pieces.finish())
}

/// What comes on a stream.
#[derive(Debug)]
pub struct Received {
    body: Inbound,
    messages: Messages,
}

/// The frames that come.
#[derive(Debug)]
enum Inbound {
    /// To who is called.
    Call(Incoming),
    /// To the caller.
    Answer(Answered),
}

/// What a frame has.
enum Came {
    Data(Bytes),
    /// How the stream ended.
    Trailers(HeaderMap),
    Other,
}

impl Inbound {
    /// The next frame; `None` when the stream has ended.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Came, Status>>> {
        match self {
            Self::Call(body) => Pin::new(body).poll_frame(context).map(|frame| {
                Some(frame?.map_err(status_of).map(|frame| match frame.into_data() {
                    Ok(data) => Came::Data(data),
                    Err(frame) => frame.into_trailers().map_or(Came::Other, Came::Trailers),
                }))
            }),
            Self::Answer(answered) => answered.poll_frame(context),
        }
    }
}

impl Received {
    fn new(body: Inbound, bytes_max: usize) -> Self {
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
            match core::future::poll_fn(|context| body.poll_frame(context)).await.transpose()? {
                Some(Came::Data(data)) => self.messages.add(data),
                Some(Came::Trailers(trailers)) => said_end(&trailers)?,
                Some(Came::Other) => {}
                None => return self.messages.end().map(|()| None),
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

fn status_of(error: impl core::error::Error + Send + Sync + 'static) -> Status {
    Status::from_error(Box::new(error))
}

/// Who answers the calls of one method.
pub trait Answer: Clone + Send + Sync + 'static {
    /// The method, as [`EXCHANGE`].
    const METHOD: &'static str;
    /// Largest message that is taken, in bytes.
    const MESSAGE_BYTES_MAX: usize;
    /// What is said.
    type Messages: Stream<Item: Outbound> + Send + Unpin + 'static;

    /// Takes a call: what is known of its connection, and what the caller says. Gives what is
    /// answered. Who is to listen joins the connection's crew.
    ///
    /// # Errors
    /// Why the call is refused.
    fn answer(
        &self,
        connection: &Extensions,
        received: Received,
        crew: &Crew,
    ) -> Result<Self::Messages, Status>;
}

/// What is not a matter of one connection.
#[derive(Clone, Debug)]
pub struct Serving<A> {
    /// Answers the calls of its method.
    pub answer: A,
    /// Answers all others.
    pub others: Routes,
    /// What is taken without being asked again.
    pub windows: Windows,
    /// Streams that a connection may have open at once.
    pub streams_max: u32,
    /// Largest list of HTTP headers, in bytes.
    pub headers_bytes_max: u32,
}

impl<A: Answer> Serving<A> {
    /// Serves a connection, as one task, until it has ended and nobody listens to it any more; from
    /// `closing` on it takes no more calls. `known` is what is known of it, for who answers its calls.
    ///
    /// # Errors
    /// It was torn, or what came on it is no HTTP/2.
    pub async fn serve<I>(
        &self,
        io: I,
        known: Extensions,
        closing: impl Future<Output = ()>,
    ) -> Result<(), hyper::Error>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let crew = Crew::default();
        let mut connection = self.connection(&crew, io, known);
        // It is dropped when it has ended: who listens to it still is told by that.
        let serve = async move {
            let mut closing = pin!(closing);
            let mut is_closing = false;
            core::future::poll_fn(|context| {
                if !is_closing && closing.as_mut().poll(context).is_ready() {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                connection.as_mut().poll(context)
            })
            .await
        };
        crew.run(serve, core::future::pending()).await
    }

    /// The connection, in a place of its own: each future that it is moved into has room for it once more.
    fn connection<I>(&self, crew: &Crew, io: I, known: Extensions) -> Pin<Box<Connected<I, A>>>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let mut builder = server::Builder::new(crew.clone());
        builder
            .initial_stream_window_size(self.windows.stream_bytes)
            .initial_connection_window_size(self.windows.connection_bytes)
            .max_frame_size(self.windows.frame_bytes)
            .max_send_buf_size(self.windows.unsent_bytes)
            .max_concurrent_streams(self.streams_max)
            .max_header_list_size(self.headers_bytes_max);
        let (answer, others) = (self.answer.clone(), self.others.clone());
        let calls = Calls { answer, others, known, crew: crew.clone() };
        Box::pin(builder.serve_connection(io, calls))
    }
}

/// A connection over `I` whose calls `A` answers.
type Connected<I, A> = server::Connection<I, Calls<A>, Crew>;

/// The calls of one connection.
struct Calls<A> {
    answer: A,
    others: Routes,
    known: Extensions,
    crew: Crew,
}

impl<A: Answer> hyper::service::Service<Request<Incoming>> for Calls<A> {
    type Response = Response<Reply<A::Messages>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().extend(self.known.clone());
        if request.uri().path() != A::METHOD {
            let mut others = self.others.clone();
            return Box::pin(async move { Ok(others.call(request).await?.map(Reply::Other)) });
        }
        let (head, body) = request.into_parts();
        let received = Received::new(Inbound::Call(body), A::MESSAGE_BYTES_MAX);
        let response = match self.answer.answer(&head.extensions, received, &self.crew) {
            Ok(messages) => {
                let sent = Sent { messages, has_ended: false };
                let mut response = Response::new(Reply::Said(sent));
                response.headers_mut().insert(CONTENT_TYPE, CONTENT);
                response
            }
            Err(status) => status.into_http().map(Reply::Other),
        };
        Box::pin(core::future::ready(Ok(response)))
    }
}

/// What a call is answered with.
enum Reply<S> {
    Said(Sent<S>),
    Other(Body),
}

impl<S> http_body::Body for Reply<S>
where
    S: Stream<Item: Outbound> + Unpin,
{
    type Data = Parcel;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Parcel>, Status>>> {
        match self.get_mut() {
            Self::Said(sent) => Pin::new(sent).poll_frame(context),
            Self::Other(body) => Pin::new(body).poll_frame(context).map(|frame| {
                frame.map(|frame| Ok(frame?.map_data(|data| Parcel::new(vec![data]))))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Said(_) => false,
            Self::Other(body) => body.is_end_stream(),
        }
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
    fn an_answer_is_its_messages_and_ends_with_a_status() {
        let large = Bytes::from(vec![7; 10_000]);
        let said = vec![Said::Large(large.clone()), Said::Small];
        let mut body = Sent { messages: Two(said), has_ended: false };
        let mut context = Context::from_waker(core::task::Waker::noop());
        let mut messages = Messages::new(20_000);
        let (mut found, mut trailers) = (Vec::new(), 0);
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
            match frame.into_data() {
                Ok(mut data) => messages.add(data.copy_to_bytes(data.remaining())),
                Err(_) => trailers += 1,
            }
            found.extend(std::iter::from_fn(|| messages.next().unwrap()));
        }
        assert_eq!(found, [&b"small"[..], &[b"small", &large[..]].concat()]);
        assert_eq!(trailers, 1);
    }
}
