//! Whether a connection was closed from this side, for who asks at each read.
//!
//! Responsible for: an answer that costs next to nothing as long as it is not closed and the same task asks. Not
//! responsible for: why it is closed (`gate.rs`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A connection that can be closed from this side, once.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    is_closed: AtomicBool,
    /// Cancelled behind that.
    token: CancellationToken,
}

impl Closing {
    /// Closes it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.token.cancel();
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Ends when it is closed.
    pub(crate) async fn closed(&self) {
        self.token.cancelled().await;
    }
}

/// One that watches it.
pub(crate) struct Watch {
    closing: Arc<Closing>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whom that wakes.
    wakes: Option<Waker>,
}

impl Watch {
    pub(crate) fn new(closing: Arc<Closing>) -> Self {
        let closed = Box::pin(closing.token.clone().cancelled_owned());
        Self { closing, closed, wakes: None }
    }

    /// Whether it was closed; if not, who asks is woken when it is.
    pub(crate) fn is_closed(&mut self, context: &mut Context<'_>) -> bool {
        let waker = context.waker();
        // To enroll again, and to look under the token's lock, takes longer than the rest of a small read here.
        if self.wakes.as_ref().is_some_and(|enrolled| enrolled.will_wake(waker)) {
            return self.closing.is_closed();
        }
        let is_closed = self.closed.as_mut().poll(context).is_ready();
        self.wakes = (!is_closed).then(|| context.waker().clone());
        is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_asked_last_is_woken_and_told() {
        let closing = Arc::new(Closing::default());
        let mut watch = Watch::new(Arc::clone(&closing));
        let flags: [Arc<Flag>; 2] = Default::default();
        let wakers = flags.clone().map(Waker::from);
        for waker in [&wakers[0], &wakers[0], &wakers[1], &wakers[1]] {
            assert!(!watch.is_closed(&mut Context::from_waker(waker)));
        }
        closing.close();
        assert!(flags[1].0.load(Ordering::Relaxed));
        for waker in [&wakers[1], &wakers[0], &wakers[0]] {
            assert!(watch.is_closed(&mut Context::from_waker(waker)));
        }
    }
}
