//! Opens a stream: an HTTP/2 connection with nothing else on it, directly on h2.
//!
//! hyper polls the outbound messages once more after each message, because it watches for a reset
//! of the stream. Here the reader notices a reset, and drops the whole connection.

use super::{CONTENT, Frame, InboundFrames, InboundStream, Outbound, Windows};
use super::{check_status, status_of};
use crate::executor::Executor;
use crate::frame_body::FrameBody;
use bytes::Buf as _;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use futures_util::FutureExt as _;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Method, Request, Uri, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;

/// Largest list of response headers, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Calls `method` over a fresh connection, sends `messages` and returns the peer's messages, none
/// longer than `message_bytes_max`. The connection runs in `executor` and ends when the returned
/// stream is dropped.
///
/// # Errors
/// The peer refuses the stream, or does not speak HTTP/2.
pub async fn open_stream<I, S>(
    executor: &Executor,
    io: I,
    windows: Windows,
    method: &'static str,
    messages: S,
    message_bytes_max: usize,
) -> Result<InboundStream, Status>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Outbound,
{
    let mut builder = Builder::new();
    builder
        .initial_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .max_frame_size(windows.frame_bytes)
        .max_send_buffer_size(windows.unsent_bytes)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .enable_push(false);
    let (sender, connection) = builder.handshake::<_, FrameBody>(io).await.map_err(failure)?;
    // The stream reports a lost connection.
    executor.spawn(connection.map(drop));
    let mut sender = sender.ready().await.map_err(failure)?;
    let (response, stream) = sender.send_request(request(method)?, false).map_err(failure)?;
    executor.spawn(SendMessages { messages, stream, pending: None });
    let response = response.await.map_err(failure)?;
    check_status(response.headers())?;
    if !response.status().is_success() {
        return Err(Status::unavailable(format!("the HTTP status is {}", response.status())));
    }
    let frames = ResponseFrames { stream: response.into_body(), _connection: sender };
    Ok(InboundStream::new(InboundFrames::Response(frames), message_bytes_max))
}

/// The status for an error of HTTP/2. A peer that closes the connection may add a whole frame of
/// text; that is left out, because the status goes to the log.
fn failure(error: h2::Error) -> Status {
    match error.reason() {
        Some(reason) if error.is_go_away() && error.is_remote() => {
            let code = status_of(h2::Error::from(reason)).code();
            Status::new(code, format!("the peer ended the connection: {reason}"))
        }
        _ => status_of(error),
    }
}

fn request(method: &'static str) -> Result<Request<()>, Status> {
    let uri = Uri::builder().scheme("http").authority("agent").path_and_query(method).build();
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = uri.map_err(|error| Status::internal(error.to_string()))?;
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, CONTENT);
    Ok(request)
}

/// The frames of the response.
#[derive(Debug)]
pub(super) struct ResponseFrames {
    stream: RecvStream,
    /// Dropping it closes the connection, which has no other stream.
    _connection: SendRequest<FrameBody>,
}

impl ResponseFrames {
    /// The next frame; `None` at the end of the stream.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame, Status>>> {
        let trailers: Result<Option<HeaderMap>, h2::Error> =
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    // An error means that the stream is over.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::Data(data))));
                }
                Some(Err(error)) => Err(error),
                None => ready!(self.stream.poll_trailers(context)),
            };
        Poll::Ready(match trailers {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::Trailers(trailers))),
            // The peer has sent everything and does not wait for our messages.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Err(error) => Some(Err(failure(error))),
        })
    }
}

/// Sends one message after the other, as the connection has room.
struct SendMessages<S> {
    messages: S,
    stream: SendStream<FrameBody>,
    /// A message for which there was no room yet.
    pending: Option<FrameBody>,
}

impl<S: Outbound> SendMessages<S> {
    /// Ready when all messages are sent, or the stream is reset.
    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            if self.pending.is_some() {
                // Any room is enough: the connection holds the rest of the message, and no other
                // message is taken meanwhile.
                while self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(context)) {
                        Some(capacity) => drop(capacity?),
                        None => return Poll::Ready(Ok(())),
                    }
                }
            }
            if let Some(message) = self.pending.take() {
                self.stream.send_data(message, false)?;
            }
            let Some(message) = ready!(Pin::new(&mut self.messages).poll_next(context)) else {
                return Poll::Ready(self.stream.send_data(FrameBody::default(), true));
            };
            debug_assert!(message.has_remaining(), "a message has a prefix");
            self.stream.reserve_capacity(1);
            self.pending = Some(message);
        }
    }
}

impl<S: Outbound> Future for SendMessages<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // The reader sees the same error.
        self.poll_all(context).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, Response};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::AsyncWriteExt as _;
    use tokio::task::yield_now;

    /// The initial window of HTTP/2, in bytes.
    const PEER_BYTES: usize = 65_535;
    /// One message with its prefix.
    const MESSAGE_BYTES: usize = 40_000;
    const MESSAGES: usize = 9;
    const METHOD: &str = "/test.Service/Stream";
    const WINDOWS: Windows = Windows {
        stream_bytes: 1 << 16,
        connection_bytes: 1 << 16,
        frame_bytes: 1 << 14,
        unsent_bytes: 1 << 18,
    };

    fn message(number: usize) -> FrameBody {
        FrameBody::message(vec![Bytes::from(vec![number as u8; MESSAGE_BYTES - 5])])
    }

    /// [`MESSAGES`] messages; counts those that were taken.
    struct Messages(Arc<AtomicUsize>);

    impl futures_core::Stream for Messages {
        type Item = FrameBody;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<FrameBody>> {
            let taken = self.0.load(Ordering::Relaxed);
            let message = (taken < MESSAGES).then(|| message(taken));
            self.0.fetch_add(usize::from(message.is_some()), Ordering::Relaxed);
            Poll::Ready(message)
        }
    }

    type Peer = h2::server::Connection<tokio::io::DuplexStream, Bytes>;
    type Accepted = (Request<RecvStream>, h2::server::SendResponse<Bytes>);

    /// The other end of a connection; `answer` handles the request.
    async fn peer<F: Future<Output = ()> + Send + 'static>(
        io: tokio::io::DuplexStream,
        answer: impl FnOnce(Accepted) -> F,
    ) {
        let mut peer: Peer = h2::server::handshake(io).await.unwrap();
        let accepted = peer.accept().await.unwrap().unwrap();
        let answered = tokio::spawn(answer(accepted));
        // Drives the connection until the client closes it.
        while let Some(Ok(_)) = peer.accept().await {}
        answered.await.unwrap();
    }

    /// Lets all other tasks of this thread run.
    async fn others_run() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    /// Opens a stream; returns the received messages, and the error at its end if any.
    async fn opened(io: tokio::io::DuplexStream, taken: Arc<AtomicUsize>) -> Vec<String> {
        let executor = Executor::default();
        let called = async {
            let messages = Messages(taken);
            let mut heard = match open_stream(&executor, io, WINDOWS, METHOD, messages, 100).await {
                Ok(heard) => heard,
                Err(status) => return vec![status.message().to_owned()],
            };
            let mut said = Vec::new();
            loop {
                match heard.message().await {
                    Ok(Some(message)) => said.push(String::from_utf8(message.to_vec()).unwrap()),
                    Ok(None) => return said,
                    Err(error) => {
                        said.push(error.to_string());
                        return said;
                    }
                }
            }
        };
        executor.run(called, core::future::ready(())).await
    }

    #[tokio::test]
    async fn messages_wait_for_room_and_all_arrive() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let answer = |(request, mut respond): Accepted| async move {
            let mut said = respond.send_response(Response::new(()), false).unwrap();
            let mut body = request.into_body();
            let mut bytes = body.data().await.unwrap().unwrap().to_vec();
            while bytes.len() < PEER_BYTES {
                bytes.extend_from_slice(&body.data().await.unwrap().unwrap());
            }
            // A client that ignores the window would send more meanwhile.
            others_run().await;
            // Two fill the window, the third waits.
            assert_eq!((bytes.len(), count.load(Ordering::Relaxed)), (PEER_BYTES, 3));
            body.flow_control().release_capacity(bytes.len()).unwrap();
            while let Some(data) = body.data().await {
                bytes.extend_from_slice(data.as_ref().unwrap());
                body.flow_control().release_capacity(data.unwrap().len()).unwrap();
            }
            let firsts = bytes.chunks(MESSAGE_BYTES).map(|message| usize::from(message[5]));
            assert!(firsts.eq(0..MESSAGES));
            said.send_data(Bytes::from_static(&[0, 0, 0, 0, 2, b'o', b'k']), false).unwrap();
            let status = [(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))];
            said.send_trailers(HeaderMap::from_iter(status)).unwrap();
        };
        let (said, ()) = tokio::join!(opened(here, Arc::clone(&taken)), peer(there, answer));
        assert_eq!((said, taken.load(Ordering::Relaxed)), (vec!["ok".to_owned()], MESSAGES));
    }

    #[tokio::test]
    async fn a_peer_may_end_the_stream_before_it_has_read_everything() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let answer = |(_, mut respond): Accepted| async move {
            let mut said = respond.send_response(Response::new(()), false).unwrap();
            others_run().await;
            said.send_reset(Reason::NO_ERROR);
        };
        let (said, ()) = tokio::join!(opened(here, Arc::default()), peer(there, answer));
        assert!(said.is_empty(), "{said:?}");
    }

    #[tokio::test]
    async fn the_text_of_a_goaway_frame_does_not_reach_the_log() {
        let (here, mut there) = tokio::io::duplex(1 << 16);
        // Empty SETTINGS, then a GOAWAY with the longest possible text.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let mut goaway = vec![0; 9 + (1 << 14)];
        goaway[1..4].copy_from_slice(&[1 << 6, 0, 7]);
        goaway[9 + 7] = 11;
        let peer = async {
            there.write_all(&[&settings[..], &goaway].concat()).await.unwrap();
            // Reads until the client closes the connection.
            tokio::io::copy(&mut there, &mut tokio::io::sink()).await.unwrap();
        };
        let (said, _) = tokio::join!(opened(here, Arc::default()), peer);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(Reason::ENHANCE_YOUR_CALM.description()), "{said:?}");
        assert!(said[0].len() < 200, "{} bytes", said[0].len());
    }

    #[tokio::test]
    async fn the_reader_sees_a_reset_and_a_refusal() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let answer = |(_, mut respond): Accepted| async move {
            let mut said = respond.send_response(Response::new(()), false).unwrap();
            said.send_reset(Reason::INTERNAL_ERROR);
        };
        let (said, ()) = tokio::join!(opened(here, Arc::default()), peer(there, answer));
        assert_eq!(said.len(), 1, "{said:?}");

        let (here, there) = tokio::io::duplex(1 << 16);
        let answer = |(_, mut respond): Accepted| async move {
            let refusal =
                Response::builder().header("grpc-status", "7").header("grpc-message", "no");
            respond.send_response(refusal.body(()).unwrap(), true).unwrap();
        };
        let (said, ()) = tokio::join!(opened(here, Arc::default()), peer(there, answer));
        assert_eq!(said, ["no"]);
    }
}
