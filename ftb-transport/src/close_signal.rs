//! Closing a connection from this side.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Closes one connection, once.
#[derive(Debug, Default)]
pub(crate) struct CloseSignal {
    is_closed: AtomicBool,
    /// Cancelled after `is_closed` is set.
    token: CancellationToken,
}

impl CloseSignal {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) {
        self.token.cancelled().await;
    }
}

/// Checks a [`CloseSignal`] before each read.
pub(crate) struct CloseWatch {
    signal: Arc<CloseSignal>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The registered waker.
    waker: Option<Waker>,
}

impl CloseWatch {
    pub(crate) fn new(signal: Arc<CloseSignal>) -> Self {
        let closed = Box::pin(signal.token.clone().cancelled_owned());
        Self { signal, closed, waker: None }
    }

    /// Whether the connection is closed; if not, the task is woken when it is.
    pub(crate) fn is_closed(&mut self, context: &mut Context<'_>) -> bool {
        let waker = context.waker();
        // Polling the token takes its lock, which costs more than the rest of a small read.
        if self.waker.as_ref().is_some_and(|registered| registered.will_wake(waker)) {
            return self.signal.is_closed();
        }
        let is_closed = self.closed.as_mut().poll(context).is_ready();
        self.waker = (!is_closed).then(|| context.waker().clone());
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
    fn the_task_that_checked_last_is_woken() {
        let signal = Arc::new(CloseSignal::default());
        let mut watch = CloseWatch::new(Arc::clone(&signal));
        let flags: [Arc<Flag>; 2] = Default::default();
        let wakers = flags.clone().map(Waker::from);
        for waker in [&wakers[0], &wakers[0], &wakers[1], &wakers[1]] {
            assert!(!watch.is_closed(&mut Context::from_waker(waker)));
        }
        signal.close();
        assert!(flags[1].0.load(Ordering::Relaxed));
        for waker in [&wakers[1], &wakers[0], &wakers[0]] {
            assert!(watch.is_closed(&mut Context::from_waker(waker)));
        }
    }
}
