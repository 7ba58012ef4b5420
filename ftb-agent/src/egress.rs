//! The sending half of a gRPC stream: what the driver put into a channel, as messages.
//!
//! Responsible for: turning values into messages outside the driver, a last word when the driver
//! closes the channel, and telling the receiving half when the transport is gone. Not responsible
//! for: what is sent.

use futures_util::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A stream of messages from a channel. `encode` makes a message of a value; `farewell` makes the
/// last one, after the channel was closed.
pub struct Egress<T, M, E, F> {
    receiver: mpsc::Receiver<T>,
    encode: E,
    farewell: Option<F>,
    /// Cancelled when the transport drops the stream before its end.
    cancel: CancellationToken,
    ended: bool,
    message: std::marker::PhantomData<fn() -> M>,
}

impl<T, M, E: FnMut(T) -> Option<M>, F: FnOnce() -> Option<M>> Egress<T, M, E, F> {
    /// Where `encode` gives nothing, the value is left out.
    pub fn new(
        receiver: mpsc::Receiver<T>,
        encode: E,
        farewell: F,
        cancel: CancellationToken,
    ) -> Self {
        let farewell = Some(farewell);
        Self { receiver, encode, farewell, cancel, ended: false, message: std::marker::PhantomData }
    }
}

impl<T, M, E, F> Stream for Egress<T, M, E, F>
where
    E: FnMut(T) -> Option<M> + Unpin,
    F: FnOnce() -> Option<M> + Unpin,
{
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<M>> {
        loop {
            match self.receiver.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(value)) => {
                    if let Some(message) = (self.encode)(value) {
                        return Poll::Ready(Some(message));
                    }
                }
                Poll::Ready(None) => {
                    if let Some(message) = self.farewell.take().and_then(|last| last()) {
                        return Poll::Ready(Some(message));
                    }
                    self.ended = true;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

impl<T, M, E, F> Drop for Egress<T, M, E, F> {
    fn drop(&mut self) {
        if !self.ended {
            self.cancel.cancel();
        }
    }
}
