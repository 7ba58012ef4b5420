//! Whether anybody waits to hear that events are held, or that there is room for more.
//!
//! As long as nobody does, the agent need not wake this program for it: see
//! [`ftb_proto::client::FromClient::Confirmations`]. Who begins to wait, or looks, is noticed at once.
//!
//! No I/O, no clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Those of one client.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// How many wait now.
    waiting: AtomicUsize,
    /// Somebody has waited or looked since [`Waiters::take_seen`].
    seen: AtomicBool,
    /// Woken as soon as somebody waits or looks.
    watcher: Mutex<Option<Waker>>,
}

/// One that waits, as long as this lives.
pub(crate) struct Waiting<'a>(&'a Waiters);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiters {
    /// Somebody waits from now on.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.look();
        Waiting(self)
    }

    /// Somebody looks, and has found nothing yet.
    pub(crate) fn look(&self) {
        if self.seen.swap(true, Ordering::SeqCst) {
            return;
        }
        let watcher = self.watcher().take();
        watcher.into_iter().for_each(Waker::wake);
    }

    /// Whether anybody waits, or has waited or looked since this was asked last.
    pub(crate) fn take_seen(&self) -> bool {
        // Mostly nobody has: a look is cheaper than to write.
        let seen = self.seen.load(Ordering::SeqCst) && self.seen.swap(false, Ordering::SeqCst);
        seen || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether [`Waiters::take_seen`] would find that anybody has waited or looked.
    pub(crate) fn are_seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }

    /// Has somebody woken as soon as anybody waits or looks. Gives false where that has happened
    /// already: then nobody will be woken.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let mut watching = self.watcher();
        if !watching.as_ref().is_some_and(|same| same.will_wake(watcher)) {
            *watching = Some(watcher.clone());
        }
        drop(watching);
        !self.seen.load(Ordering::SeqCst)
    }

    fn watcher(&self) -> MutexGuard<'_, Option<Waker>> {
        // Nothing that is done under this lock can panic.
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_or_looks_is_noticed_once_and_as_long_as_it_waits() {
        let waiters = Waiters::default();
        let woken = Arc::new(Count::default());
        let watcher = Waker::from(Arc::clone(&woken));
        let count = || woken.0.load(Ordering::Relaxed);
        assert!(!waiters.take_seen());
        assert!(waiters.watch(&watcher));
        waiters.look();
        waiters.look();
        assert_eq!(count(), 1);
        assert!(!waiters.watch(&watcher), "it would miss the one that has looked");
        assert!(waiters.take_seen() && !waiters.take_seen());

        let waiting = waiters.wait();
        assert_eq!(count(), 2);
        assert!(waiters.take_seen() && waiters.take_seen(), "it still waits");
        drop(waiting);
        assert!(!waiters.take_seen());
        drop(waiters.wait());
        assert!(waiters.take_seen(), "it has waited");
    }
}
