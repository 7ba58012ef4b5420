//! The calling side of a stream: a connection with nothing else on it, straight on h2.
//!
//! hyper, which serves the other side beside calls of other methods, polls what is said once more after each
//! message, since it watches for a reset of the stream wherever it waits. Here nobody watches: of a stream that
//! was reset the caller hears where it listens, and lets go of all of it.
//!
//! Responsible for: opening it, and what goes and comes on it, frame by frame. Not responsible for: cutting
//! messages out of what comes (`stream.rs`).

use super::{CONTENT, Came, Inbound, Received, Windows, parcel, said_end, status_of};
use crate::crew::Crew;
use crate::wire::{Outbound, Parcel};
use bytes::Buf as _;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use futures_core::Stream;
use futures_util::FutureExt as _;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{Method, Request, Uri, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;

/// Largest list of headers that is taken, in bytes: an answer has few.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Opens a connection over `io` with one stream on it: calls a method with what will be said, and
/// gives what is answered. No message of more than `bytes_max` is taken. The connection is carried on
/// by `crew`, and ends with what is received.
///
/// # Errors
/// The peer's refusal, or that it cannot be spoken to.
pub async fn call<I, S>(
    crew: &Crew,
    io: I,
    windows: Windows,
    method: &'static str,
    messages: S,
    bytes_max: usize,
) -> Result<Received, Status>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Stream<Item: Outbound> + Send + Unpin + 'static,
{
    let mut builder = Builder::new();
    builder
        .initial_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .max_frame_size(windows.frame_bytes)
        .max_send_buffer_size(windows.unsent_bytes)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .enable_push(false);
    let (sender, connection) = builder.handshake::<_, Parcel>(io).await.map_err(failure)?;
    // It ends with an error where the peer vanishes: the stream on it tells.
    crew.join(connection.map(drop));
    let mut sender = sender.ready().await.map_err(failure)?;
    let (response, stream) = sender.send_request(request(method)?, false).map_err(failure)?;
    crew.join(Speech { messages, stream, waiting: None });
    let response = response.await.map_err(failure)?;
    said_end(response.headers())?;
    if !response.status().is_success() {
        return Err(Status::unavailable(format!("it answers {}", response.status())));
    }
    let answered = Answered { stream: response.into_body(), _connection: sender };
    Ok(Received::new(Inbound::Answer(answered), bytes_max))
}

/// What to say of an error. A peer that ends the connection may send text with its reason, as much as a frame takes:
/// that is left out, for lines of a log are made of this.
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

/// What comes in answer.
#[derive(Debug)]
pub(super) struct Answered {
    stream: RecvStream,
    /// The connection lives as long: it has no other stream.
    _connection: SendRequest<Parcel>,
}

impl Answered {
    /// The next frame; `None` when the stream has ended.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Came, Status>>> {
        let came = match ready!(self.stream.poll_data(context)) {
            Some(Ok(data)) => {
                // It is read: the peer may say as much more. Of a stream that is over nobody needs to know.
                let _ = self.stream.flow_control().release_capacity(data.len());
                return Poll::Ready(Some(Ok(Came::Data(data))));
            }
            Some(Err(error)) => Err(error),
            None => ready!(self.stream.poll_trailers(context)),
        };
        Poll::Ready(match came {
            Ok(trailers) => trailers.map(|trailers| Ok(Came::Trailers(trailers))),
            // A peer that has said all does not wait for the end of what it is told.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Err(error) => Some(Err(failure(error))),
        })
    }
}

/// What is said: hands one message after the other to the connection, as far as that has room.
struct Speech<S> {
    messages: S,
    stream: SendStream<Parcel>,
    /// Taken, and there was no room for it yet.
    waiting: Option<Parcel>,
}

impl<S: Stream<Item: Outbound> + Unpin> Speech<S> {
    /// Ends when all was said, or nobody hears it any more.
    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            if self.waiting.is_some() {
                // Some is enough: the rest of it waits in the connection, and nothing else is taken meanwhile.
                while self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(context)) {
                        Some(capacity) => drop(capacity?),
                        None => return Poll::Ready(Ok(())),
                    }
                }
            }
            if let Some(parcel) = self.waiting.take() {
                self.stream.send_data(parcel, false)?;
            }
            let Some(message) = ready!(Pin::new(&mut self.messages).poll_next(context)) else {
                return Poll::Ready(self.stream.send_data(Parcel::default(), true));
            };
            let parcel = parcel(message);
            debug_assert!(parcel.has_remaining(), "a message has a head");
            self.stream.reserve_capacity(1);
            self.waiting = Some(parcel);
        }
    }
}

impl<S: Stream<Item: Outbound> + Unpin> Future for Speech<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Why it ended before its time, who listens hears too.
        self.poll_all(context).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::wire::Pieces;
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, Response};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::AsyncWriteExt as _;
    use tokio::task::yield_now;

    /// What any peer takes without being asked again, in bytes.
    const PEER_BYTES: usize = 65_535;
    /// Of one message, its head included.
    const MESSAGE_BYTES: usize = 40_000;
    const MESSAGES: usize = 9;
    const WINDOWS: Windows = Windows {
        stream_bytes: 1 << 16,
        connection_bytes: 1 << 16,
        frame_bytes: 1 << 14,
        unsent_bytes: 1 << 18,
    };

    struct Message(u8);

    impl Outbound for Message {
        fn write(self, out: &mut Pieces) {
            out.open().extend_from_slice(&[self.0; MESSAGE_BYTES - 5]);
        }
    }

    /// Says so many messages, and counts those that were taken.
    struct Messages(Arc<AtomicUsize>);

    impl Stream for Messages {
        type Item = Message;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Message>> {
            let taken = self.0.load(Ordering::Relaxed);
            let message = (taken < MESSAGES).then_some(Message(taken as u8));
            self.0.fetch_add(usize::from(message.is_some()), Ordering::Relaxed);
            Poll::Ready(message)
        }
    }

    type Peer = h2::server::Connection<tokio::io::DuplexStream, Bytes>;
    type Asked = (Request<RecvStream>, h2::server::SendResponse<Bytes>);

    /// Takes the call on the other end of a connection; `answer` has it then.
    async fn peer<F: Future<Output = ()> + Send + 'static>(
        io: tokio::io::DuplexStream,
        answer: impl FnOnce(Asked) -> F,
    ) {
        let mut peer: Peer = h2::server::handshake(io).await.unwrap();
        let asked = peer.accept().await.unwrap().unwrap();
        let answered = tokio::spawn(answer(asked));
        // Carries the connection on until the caller has gone.
        while let Some(Ok(_)) = peer.accept().await {}
        answered.await.unwrap();
    }

    /// Lets all others do what they can: they run on this thread.
    async fn others_run() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    /// Calls, and gives what is heard, the end included where it is no good one.
    async fn calling(io: tokio::io::DuplexStream, taken: Arc<AtomicUsize>) -> Vec<String> {
        let crew = Crew::default();
        let called = async {
            let messages = Messages(taken);
            let mut heard =
                match call(&crew, io, WINDOWS, crate::stream::ATTACH, messages, 100).await {
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
        crew.run(called, core::future::ready(())).await
    }

    #[tokio::test]
    async fn no_more_is_taken_than_there_is_room_for_and_all_of_it_comes() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let answer = |(request, mut respond): Asked| async move {
            let mut said = respond.send_response(Response::new(()), false).unwrap();
            let mut body = request.into_body();
            let mut bytes = body.data().await.unwrap().unwrap().to_vec();
            while bytes.len() < PEER_BYTES {
                bytes.extend_from_slice(&body.data().await.unwrap().unwrap());
            }
            // Who would go on without room does so meanwhile.
            others_run().await;
            // Two fill what the peer takes, the next waits.
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
        let (said, ()) = tokio::join!(calling(here, Arc::clone(&taken)), peer(there, answer));
        assert_eq!((said, taken.load(Ordering::Relaxed)), (vec!["ok".to_owned()], MESSAGES));
    }

    #[tokio::test]
    async fn a_peer_that_has_said_all_need_not_hear_all() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let answer = |(_, mut respond): Asked| async move {
            let mut said = respond.send_response(Response::new(()), false).unwrap();
            others_run().await;
            said.send_reset(Reason::NO_ERROR);
        };
        let (said, ()) = tokio::join!(calling(here, Arc::default()), peer(there, answer));
        assert!(said.is_empty(), "{said:?}");
    }

    #[tokio::test]
    async fn a_peer_that_ends_the_connection_cannot_say_much_about_it() {
        let (here, mut there) = tokio::io::duplex(1 << 16);
        // Settings that change nothing, then a GOAWAY with as much behind its reason as a frame takes.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let mut goaway = vec![0; 9 + (1 << 14)];
        goaway[1..4].copy_from_slice(&[1 << 6, 0, 7]);
        goaway[9 + 7] = 11;
        let peer = async {
            there.write_all(&[&settings[..], &goaway].concat()).await.unwrap();
            // Reads until the caller has gone.
            tokio::io::copy(&mut there, &mut tokio::io::sink()).await.unwrap();
        };
        let (said, _) = tokio::join!(calling(here, Arc::default()), peer);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(Reason::ENHANCE_YOUR_CALM.description()), "{said:?}");
        assert!(said[0].len() < 200, "{} bytes", said[0].len());
    }

    #[tokio::test]
    async fn who_listens_hears_of_a_reset_and_of_a_refusal() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let answer = |(_, mut respond): Asked| async move {
            let mut said = respond.send_response(Response::new(()), false).unwrap();
            said.send_reset(Reason::INTERNAL_ERROR);
        };
        let (said, ()) = tokio::join!(calling(here, Arc::default()), peer(there, answer));
        assert_eq!(said.len(), 1, "{said:?}");

        let (here, there) = tokio::io::duplex(1 << 16);
        let answer = |(_, mut respond): Asked| async move {
            let refusal =
                Response::builder().header("grpc-status", "7").header("grpc-message", "no");
            respond.send_response(refusal.body(()).unwrap(), true).unwrap();
        };
        let (said, ()) = tokio::join!(calling(here, Arc::default()), peer(there, answer));
        assert_eq!(said, ["no"]);
    }
}
