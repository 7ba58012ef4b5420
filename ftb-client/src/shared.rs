//! The session of one client as its handles and its connection see it: behind a lock, with
//! notifications of changes.
//!
//! Responsible for: the lock, waiting for a change, waiting for room in order, and the end with the
//! last handle. Not responsible for: what the session decides (`session.rs`).

use crate::ack_interest::AckInterest;
use crate::config::ClientConfig;
use crate::fair_queue::Ticket;
use crate::session::{Effects, Session};
use core::pin::pin;
use ftb_core::protocol::{CLIENT_FEATURES, PROTOCOL};
use ftb_proto::client::Hello;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use tokio::sync::Notify;

/// Shared by the handles of one client; dropped with the last handle.
pub(crate) struct Handles {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.shared.update(Session::leave);
    }
}

/// Shared by the handles and the connection's task.
pub(crate) struct Shared {
    pub(crate) config: ClientConfig,
    session: Mutex<Session>,
    /// Notified when the session changed.
    changed: Notify,
    /// Notified when the agent refused the client, or the client closes. Separate from `changed`:
    /// it is rare, and a task always waits for it.
    refused: Notify,
    /// Whether an agent is attached; read without the lock.
    attached: AtomicBool,
    /// The same as in the session's outbox.
    pub(crate) ack_interest: Arc<AckInterest>,
}

impl Shared {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let hello = Hello {
            versions: PROTOCOL,
            features: CLIENT_FEATURES,
            client_name: config.name.clone(),
            job_id: config.job_id.clone(),
            token: random(),
        };
        let session = Session::new(hello, config.buffer_bytes, config.queue_bytes);
        let ack_interest = Arc::clone(session.outbox.ack_interest());
        Self {
            config,
            ack_interest,
            session: Mutex::new(session),
            changed: Notify::new(),
            refused: Notify::new(),
            attached: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Session> {
        // A panic under the lock is a defect; the state is the best that is left.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Shared::lock`]; `None` while another thread holds the lock.
    pub(crate) fn lock_if_free(&self) -> Option<MutexGuard<'_, Session>> {
        match self.session.try_lock() {
            Ok(session) => Some(session),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Changes the session, then applies the effects.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Session) -> Effects) {
        let done = self.try_update(|session| Ok::<_, core::convert::Infallible>(change(session)));
        let Ok(()) = done;
    }

    /// As [`Shared::update`] for a change that may fail, without effects then.
    pub(crate) fn try_update<E>(
        &self,
        change: impl FnOnce(&mut Session) -> Result<Effects, E>,
    ) -> Result<(), E> {
        let mut session = self.lock();
        let effects = change(&mut session)?;
        self.attached.store(session.hello_ack().is_some(), Ordering::Release);
        let sender = if effects.send { session.sender.take() } else { None };
        drop(session);
        sender.into_iter().for_each(Waker::wake);
        if effects.changed {
            self.changed.notify_waiters();
        }
        if effects.refused {
            self.refused.notify_waiters();
        }
        effects.wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// There may be something to send.
    pub(crate) fn wake_sender(&self) {
        let sender = self.lock().sender.take();
        sender.into_iter().for_each(Waker::wake);
    }

    /// Resolves when the condition returns a value. Cancel-safe.
    pub(crate) async fn wait_for<T>(&self, condition: impl FnMut(&mut Session) -> Option<T>) -> T {
        self.wait_on(&self.changed, None, condition).await
    }

    /// The same for conditions that depend on confirmations: the agent confirms without delay while
    /// this waits.
    pub(crate) async fn wait_for_agent<T>(
        &self,
        condition: impl FnMut(&mut Session) -> Option<T>,
    ) -> T {
        self.wait_on(&self.changed, Some(&self.ack_interest), condition).await
    }

    /// Waits for `cost` bytes of room in the order of the queue, then resolves with `then`.
    /// Resolves also when waiting cannot help: the buffer is empty, or the client is closed.
    /// Cancel-safe.
    pub(crate) async fn wait_for_room<T>(
        &self,
        cost: usize,
        mut then: impl FnMut(&mut Session) -> T,
    ) -> T {
        let mut waiting = RoomTicket { shared: self, ticket: None };
        let done = self.wait_for_agent(|session| {
            let ticket = &mut waiting.ticket;
            let room = session.outbox.has_room_for(cost) || session.outbox.is_empty();
            let goes = session.is_closed() || room && session.may_enter(*ticket, cost);
            if !goes {
                ticket.get_or_insert_with(|| session.room.enqueue(cost));
                return None;
            }
            let look_again = session.room.entered(ticket.take(), cost);
            Some((then(session), look_again))
        });
        let (done, look_again) = done.await;
        if look_again {
            self.changed.notify_waiters();
        }
        done
    }

    /// The same for conditions that become true only with a refusal or with the end of the client.
    pub(crate) async fn wait_for_refusal<T>(
        &self,
        condition: impl FnMut(&mut Session) -> Option<T>,
    ) -> T {
        self.wait_on(&self.refused, None, condition).await
    }

    /// Resolves when the client is closed. Cancel-safe.
    pub(crate) async fn left(&self) {
        self.wait_for_refusal(|session| session.is_closed().then_some(())).await;
    }

    /// Whether an agent is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    async fn wait_on<T>(
        &self,
        notify: &Notify,
        ack_interest: Option<&AckInterest>,
        mut condition: impl FnMut(&mut Session) -> Option<T>,
    ) -> T {
        let mut changed = pin!(notify.notified());
        let mut waiting = None;
        loop {
            // Before the session is read: a change in between is not missed.
            changed.as_mut().enable();
            if let Some(found) = condition(&mut self.lock()) {
                return found;
            }
            waiting = waiting.or_else(|| ack_interest.map(AckInterest::wait));
            changed.as_mut().await;
            changed.set(notify.notified());
        }
    }
}

/// A waiter for room; leaves the queue when it is dropped.
struct RoomTicket<'a> {
    shared: &'a Shared,
    ticket: Option<Ticket>,
}

impl Drop for RoomTicket<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if self.shared.lock().room.leave(ticket) {
            self.shared.changed.notify_waiters();
        }
    }
}

/// A random number: the standard library seeds its hashers from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
