//! Long gRPC streams: encoded messages in both directions, one for each HTTP/2 connection.
//!
//! The bytes on the wire are those of any gRPC implementation. hyper and h2 are used directly,
//! without tonic's buffers: an outbound message is one frame of shared slices, and an inbound
//! message stays in the frame it came in.
//!
//! [`client`] opens a stream, [`server`] accepts it. Not responsible for: what a message means.

pub mod client;
mod deframer;
pub mod server;

use crate::frame_body::FrameBody;
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll};
use deframer::Deframer;
use http::header::{HeaderMap, HeaderValue};
use http_body::Body as _;
use hyper::body::Incoming;
use tonic::{Code, Status};

const CONTENT: HeaderValue = HeaderValue::from_static("application/grpc");

/// Why a stream yields no more messages.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection broke, or the peer ended the stream with an error.
    #[error("{}", one_line(.0))]
    Status(Box<Status>),
    /// The peer sent bytes that are not a message.
    #[error("{0}")]
    Malformed(String),
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

fn one_line(status: &Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.replace('\n', " "),
    }
}

/// Flow control of one side of a connection, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Received on one stream and not read.
    pub stream_bytes: u32,
    /// Received on all streams together and not read.
    pub connection_bytes: u32,
    /// Largest frame.
    pub frame_bytes: u32,
    /// Sent and not yet taken by the socket; further messages stay with the caller.
    pub unsent_bytes: usize,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct InboundStream {
    frames: InboundFrames,
    deframer: Deframer,
}

#[derive(Debug)]
enum InboundFrames {
    /// On the server.
    Request(Incoming),
    /// On the client.
    Response(client::ResponseFrames),
}

enum Frame {
    Data(Bytes),
    /// The status at the end of the stream.
    Trailers(HeaderMap),
    Other,
}

impl InboundFrames {
    /// The next frame; `None` at the end of the stream.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame, Status>>> {
        match self {
            Self::Request(body) => Pin::new(body).poll_frame(context).map(|frame| {
                Some(frame?.map_err(status_of).map(|frame| match frame.into_data() {
                    Ok(data) => Frame::Data(data),
                    Err(frame) => frame.into_trailers().map_or(Frame::Other, Frame::Trailers),
                }))
            }),
            Self::Response(frames) => frames.poll_frame(context),
        }
    }
}

impl InboundStream {
    fn new(frames: InboundFrames, message_bytes_max: usize) -> Self {
        Self { frames, deframer: Deframer::new(message_bytes_max) }
    }

    /// The next message; `None` at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// [`StreamError`]: the stream is unusable.
    pub async fn message(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if let Some(message) = self.deframer.next()? {
                return Ok(Some(message));
            }
            let frames = &mut self.frames;
            match core::future::poll_fn(|context| frames.poll_frame(context)).await.transpose()? {
                Some(Frame::Data(data)) => self.deframer.add(data),
                Some(Frame::Trailers(trailers)) => check_status(&trailers)?,
                Some(Frame::Other) => {}
                None => return self.deframer.end().map(|()| None),
            }
        }
    }
}

/// The gRPC status in headers or trailers, as an error unless it is OK.
fn check_status(headers: &HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

fn status_of(error: impl core::error::Error + Send + Sync + 'static) -> Status {
    Status::from_error(Box::new(error))
}

/// A stream of encoded messages to send.
pub trait Outbound: futures_core::Stream<Item = FrameBody> + Send + Unpin + 'static {}

impl<S: futures_core::Stream<Item = FrameBody> + Send + Unpin + 'static> Outbound for S {}
