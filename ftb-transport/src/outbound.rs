//! The sending half of a stream: a channel of values, encoded as the transport takes them.
//!
//! Not responsible for: what is sent.

use crate::frame_body::FrameBody;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

type Encode<T> = Box<dyn FnMut(T) -> Option<FrameBody> + Send>;

/// The messages of a channel, in order, then a last message when the channel is closed.
pub struct OutboundStream<T> {
    receiver: mpsc::Receiver<T>,
    encode: Encode<T>,
    last: Option<FrameBody>,
    /// Cancelled when the transport drops the stream before its end.
    cancel: CancellationToken,
    ended: bool,
}

impl<T> OutboundStream<T> {
    /// Skips the values for which `encode` returns `None`.
    pub fn new(
        receiver: mpsc::Receiver<T>,
        encode: impl FnMut(T) -> Option<FrameBody> + Send + 'static,
        last: Option<FrameBody>,
        cancel: CancellationToken,
    ) -> Self {
        Self { receiver, encode: Box::new(encode), last, cancel, ended: false }
    }
}

impl<T> Stream for OutboundStream<T> {
    type Item = FrameBody;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FrameBody>> {
        loop {
            match self.receiver.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(value)) => {
                    if let Some(message) = (self.encode)(value) {
                        return Poll::Ready(Some(message));
                    }
                }
                Poll::Ready(None) => {
                    let last = self.last.take();
                    self.ended = last.is_none();
                    return Poll::Ready(last);
                }
            }
        }
    }
}

impl<T> Drop for OutboundStream<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.cancel.cancel();
        }
    }
}
