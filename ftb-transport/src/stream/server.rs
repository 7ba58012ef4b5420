//! Serves one connection: the stream method directly on hyper, all other methods through tonic.

use super::{CONTENT, InboundFrames, InboundStream, Outbound, Windows};
use crate::executor::Executor;
use crate::frame_body::FrameBody;
use core::convert::Infallible;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, ready};
use futures_core::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Extensions, Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;

/// Streams that a connection may have open at once: the long one and a few requests.
const STREAMS_MAX: u32 = 8;
/// Largest list of HTTP headers, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Accepts the streams of one method.
pub trait StreamService: Clone + Send + Sync + 'static {
    /// The path of the method, for example `/ftb.v1.Link/Exchange`.
    const METHOD: &'static str;
    /// Largest inbound message, in bytes.
    const MESSAGE_BYTES_MAX: usize;
    /// Messages to the peer.
    type Messages: Outbound;

    /// Accepts a stream and returns the messages to send. `connection` holds the values given to
    /// [`Server::serve`]. A reader of `inbound` runs in `executor`.
    ///
    /// # Errors
    /// The status with which the stream is refused.
    fn accept(
        &self,
        connection: &Extensions,
        inbound: InboundStream,
        executor: &Executor,
    ) -> Result<Self::Messages, Status>;
}

/// Serves connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Server<S> {
    service: S,
    routes: Routes,
    windows: Windows,
}

impl<S: StreamService> Server<S> {
    /// `service` handles its own method, `routes` all others.
    pub fn new(service: S, routes: Routes, windows: Windows) -> Self {
        Self { service, routes, windows }
    }

    /// The same with another limit on bytes that the socket has not taken.
    #[must_use]
    pub fn with_unsent_bytes(mut self, unsent_bytes: usize) -> Self {
        self.windows.unsent_bytes = unsent_bytes;
        self
    }

    /// Serves a connection in the current task until it and its readers have ended. Accepts no more
    /// requests once `closing` is ready.
    ///
    /// # Errors
    /// The connection broke, or the peer does not speak HTTP/2.
    pub async fn serve<I>(
        &self,
        io: I,
        connection: Extensions,
        closing: impl Future<Output = ()>,
    ) -> Result<(), hyper::Error>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let executor = Executor::default();
        let mut connection = self.connection(&executor, io, connection);
        // Dropping the connection at its end wakes its readers.
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
        executor.run(serve, core::future::pending()).await
    }

    /// Boxed: every future that owns the connection would reserve its full size again.
    fn connection<I>(
        &self,
        executor: &Executor,
        io: I,
        connection: Extensions,
    ) -> Pin<Box<http2::Connection<I, Requests<S>, Executor>>>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(executor.clone());
        builder
            .initial_stream_window_size(self.windows.stream_bytes)
            .initial_connection_window_size(self.windows.connection_bytes)
            .max_frame_size(self.windows.frame_bytes)
            .max_send_buf_size(self.windows.unsent_bytes)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_BYTES_MAX);
        let (service, routes) = (self.service.clone(), self.routes.clone());
        let requests = Requests { service, routes, connection, executor: executor.clone() };
        Box::pin(builder.serve_connection(io, requests))
    }
}

/// The requests of one connection.
struct Requests<S> {
    service: S,
    routes: Routes,
    connection: Extensions,
    executor: Executor,
}

impl<S: StreamService> hyper::service::Service<Request<Incoming>> for Requests<S> {
    type Response = Response<ResponseBody<S::Messages>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().extend(self.connection.clone());
        if request.uri().path() != S::METHOD {
            let mut routes = self.routes.clone();
            return Box::pin(
                async move { Ok(routes.call(request).await?.map(ResponseBody::Other)) },
            );
        }
        let (head, body) = request.into_parts();
        let inbound = InboundStream::new(InboundFrames::Request(body), S::MESSAGE_BYTES_MAX);
        let response = match self.service.accept(&head.extensions, inbound, &self.executor) {
            Ok(messages) => {
                let body = ResponseBody::Messages { messages, ended: false };
                let mut response = Response::new(body);
                response.headers_mut().insert(CONTENT_TYPE, CONTENT);
                response
            }
            Err(status) => status.into_http().map(ResponseBody::Other),
        };
        Box::pin(core::future::ready(Ok(response)))
    }
}

/// The body of a response.
enum ResponseBody<S> {
    /// A frame for each message, then the status.
    Messages {
        messages: S,
        ended: bool,
    },
    Other(Body),
}

impl<S: Outbound> http_body::Body for ResponseBody<S> {
    type Data = FrameBody;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<FrameBody>, Status>>> {
        match self.get_mut() {
            Self::Messages { messages, ended } => {
                if let Some(message) = ready!(Pin::new(messages).poll_next(context)) {
                    return Poll::Ready(Some(Ok(Frame::data(message))));
                }
                if std::mem::replace(ended, true) {
                    return Poll::Ready(None);
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::Other(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| Ok(frame?.map_data(FrameBody::raw)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Messages { .. } => false,
            Self::Other(body) => body.is_end_stream(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stream::deframer::Deframer;
    use bytes::{Buf as _, Bytes};
    use http_body::Body as _;

    /// The messages, last first.
    struct Messages(Vec<FrameBody>);

    impl futures_core::Stream for Messages {
        type Item = FrameBody;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<FrameBody>> {
            Poll::Ready(self.0.pop())
        }
    }

    #[test]
    fn a_response_body_is_its_messages_and_a_status() {
        let large = Bytes::from(vec![7; 10_000]);
        let small = Bytes::from_static(b"small");
        let messages = vec![
            FrameBody::message(vec![small.clone(), large.clone()]),
            FrameBody::message(vec![small]),
        ];
        let mut body = ResponseBody::Messages { messages: Messages(messages), ended: false };
        let mut context = Context::from_waker(core::task::Waker::noop());
        let mut deframer = Deframer::new(20_000);
        let (mut found, mut trailers) = (Vec::new(), 0);
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
            match frame.into_data() {
                Ok(mut data) => deframer.add(data.copy_to_bytes(data.remaining())),
                Err(_) => trailers += 1,
            }
            found.extend(std::iter::from_fn(|| deframer.next().unwrap()));
        }
        assert_eq!(found, [&b"small"[..], &[b"small", &large[..]].concat()]);
        assert_eq!(trailers, 1);
    }
}
