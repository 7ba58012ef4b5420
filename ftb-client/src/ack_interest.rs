//! Whether a task of the program waits for confirmations or for room.
//!
//! While none does, the agent may delay confirmations: see
//! [`ftb_proto::client::FromClient::DelayAcks`]. A new waiter is noticed at once.
//!
//! No I/O, no clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The waiting tasks of one client.
#[derive(Debug, Default)]
pub(crate) struct AckInterest {
    /// Tasks that wait now.
    waiting: AtomicUsize,
    /// A task waited or looked since [`AckInterest::take_seen`].
    seen: AtomicBool,
    /// Woken when a task waits or looks.
    watcher: Mutex<Option<Waker>>,
}

/// A waiting task, until this is dropped.
pub(crate) struct Waiting<'a>(&'a AckInterest);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AckInterest {
    /// A task waits from now on.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.note();
        Waiting(self)
    }

    /// A task looked and found no outcome.
    pub(crate) fn note(&self) {
        if self.seen.swap(true, Ordering::SeqCst) {
            return;
        }
        let watcher = self.watcher().take();
        watcher.into_iter().for_each(Waker::wake);
    }

    /// Whether a task waits now, or waited or looked since the last call.
    pub(crate) fn take_seen(&self) -> bool {
        // Mostly none has: reading is cheaper than writing.
        let seen = self.seen.load(Ordering::SeqCst) && self.seen.swap(false, Ordering::SeqCst);
        seen || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a task waited or looked since [`AckInterest::take_seen`].
    pub(crate) fn are_seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }

    /// Wakes `watcher` when a task waits or looks. `false`: that has happened already, and nothing
    /// is woken.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let mut watching = self.watcher();
        if !watching.as_ref().is_some_and(|same| same.will_wake(watcher)) {
            *watching = Some(watcher.clone());
        }
        drop(watching);
        !self.seen.load(Ordering::SeqCst)
    }

    fn watcher(&self) -> MutexGuard<'_, Option<Waker>> {
        // No code under this lock can panic.
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
        let ack_interest = AckInterest::default();
        let woken = Arc::new(Count::default());
        let watcher = Waker::from(Arc::clone(&woken));
        let count = || woken.0.load(Ordering::Relaxed);
        assert!(!ack_interest.take_seen());
        assert!(ack_interest.watch(&watcher));
        ack_interest.note();
        ack_interest.note();
        assert_eq!(count(), 1);
        assert!(!ack_interest.watch(&watcher), "it would miss the one that has looked");
        assert!(ack_interest.take_seen() && !ack_interest.take_seen());

        let waiting = ack_interest.wait();
        assert_eq!(count(), 2);
        assert!(ack_interest.take_seen() && ack_interest.take_seen(), "it still waits");
        drop(waiting);
        assert!(!ack_interest.take_seen());
        drop(ack_interest.wait());
        assert!(ack_interest.take_seen(), "it has waited");
    }
}
