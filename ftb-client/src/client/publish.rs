//! Publishing: checks an event, puts it into the outbox, and returns its receipt.
//!
//! Responsible for: limits that a client can check, default fields, one lock per publication, and
//! waiting for room. Not responsible for: events in the outbox (`outbox.rs`, `completion.rs`).

use crate::client::Client;
use crate::error::PublishError;
use crate::event::now_ns;
use crate::outbox::cost;
use crate::receipt::Receipt;
use crate::session::Session;
use crate::shared::Shared;
use core::pin::Pin;
use core::task::{Context, Poll};
use ftb_core::event::EventError;
use ftb_core::{ConfirmLevel, Event, EventRef, limits};
use ftb_proto::client::{published_len, put_published};
use ftb_proto::event::event_len;
use std::sync::MutexGuard;
use std::task::Waker;
use tokio::task::yield_now;

impl Client {
    /// Publishes an event: buffers it and sends it in the background, and again to the next agent
    /// until it is confirmed. Never waits.
    ///
    /// Empty time, client name and job id are filled in. A full buffer sheds and counts unsent
    /// events of lower severity, or older events of the same. [`Client::publish_wait`] waits
    /// instead.
    ///
    /// # Errors
    /// [`PublishError`]: the event breaks a limit, or the buffer is full of higher severities.
    /// Nothing was sent.
    pub fn publish(&self, event: impl Into<Event>) -> Result<Receipt, PublishError> {
        self.publish_ref(EventRef::from(&event.into()))
    }

    /// As [`Client::publish`], without giving the event away.
    ///
    /// # Errors
    /// As there.
    pub fn publish_ref<'a>(&'a self, mut event: EventRef<'a>) -> Result<Receipt, PublishError> {
        let mut publication = self.complete(&mut event)?;
        let mut session = publication.lock(self.shared());
        let receipt = publication.push(&mut session)?;
        session.room.bypass(cost(publication.len));
        let sender = session.sender.take();
        drop(session);
        sender.into_iter().for_each(Waker::wake);
        Ok(receipt)
    }

    /// As [`Client::publish_ref`], but sheds nothing. `None`: there is no room now, or other
    /// publishers are first in the queue.
    ///
    /// # Errors
    /// [`PublishError`]; [`PublishError::Full`] only for an event that could never fit.
    pub fn publish_if_room<'a>(
        &'a self,
        mut event: EventRef<'a>,
    ) -> Result<Option<Receipt>, PublishError> {
        let mut publication = self.complete(&mut event)?;
        let mut session = publication.lock(self.shared());
        let pushed = publication.push_if_room(&mut session);
        drop(session);
        let Some((receipt, sender)) = pushed else {
            self.shared().ack_interest.note();
            return Ok(None);
        };
        sender.into_iter().for_each(Waker::wake);
        receipt.map(Some)
    }

    /// As [`Client::publish`], but waits for room instead of shedding. Waiting publishers are
    /// admitted in order; at most one buffer's worth may overtake the head of the queue.
    /// [`Client::publish`] bypasses the queue.
    ///
    /// Cancel-safe: a dropped future has published nothing. Poll or drop a waiting future: others
    /// may wait for it. It yields to other tasks after each full message.
    ///
    /// # Errors
    /// [`PublishError`]; [`PublishError::Full`] only for an event that could never fit.
    pub async fn publish_wait(&self, event: impl Into<Event>) -> Result<Receipt, PublishError> {
        let event = event.into();
        self.publish_ref_wait(EventRef::from(&event)).await
    }

    /// As [`Client::publish_wait`], without giving the event away.
    ///
    /// # Errors
    /// As there.
    pub fn publish_ref_wait<'a>(
        &'a self,
        event: EventRef<'a>,
    ) -> impl Future<Output = Result<Receipt, PublishError>> + Send + 'a {
        PublishWait { client: self, event, later: None }
    }

    /// Yields, then publishes an event when there is room.
    async fn publish_later<'a>(&'a self, mut event: EventRef<'a>) -> Result<Receipt, PublishError> {
        yield_now().await;
        let publication = self.complete(&mut event)?;
        let push = |session: &mut Session| publication.push_now(session);
        let (receipt, sender) = self.shared().wait_for_room(cost(publication.len), push).await;
        sender.into_iter().for_each(Waker::wake);
        receipt
    }

    /// Fills in empty fields and checks all limits except that of the agent.
    fn complete<'e, 'a: 'e>(
        &'a self,
        event: &'e mut EventRef<'a>,
    ) -> Result<Publication<'e>, PublishError> {
        if event.time_ns == 0 {
            event.time_ns = now_ns();
        }
        self.shared().config.fill_in(event);
        event.check(limits::PAYLOAD_BYTES_MAX)?;
        let confirm = self.confirm();
        Ok(Publication { event, len: event_len(event), bytes: None, confirm })
    }
}

/// The future of [`Client::publish_ref_wait`]. Written by hand: an async function would copy the
/// event from state to state, and there is nearly always room at the first poll.
struct PublishWait<'a> {
    client: &'a Client,
    event: EventRef<'a>,
    /// The rest, if the first poll did not publish.
    later: Option<Later<'a>>,
}

type Later<'a> = Pin<Box<dyn Future<Output = Result<Receipt, PublishError>> + Send + 'a>>;

impl Future for PublishWait<'_> {
    type Output = Result<Receipt, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { client, event, later } = &mut *self;
        if let Some(later) = later {
            return later.as_mut().poll(context);
        }
        let client = *client;
        let mut publication = client.complete(event)?;
        let mut session = publication.lock(client.shared());
        // A publisher that never waits must not starve the connection's task.
        let unhurried = !session.outbox.has_full_one_before_event(publication.len);
        let pushed = unhurried.then(|| publication.push_if_room(&mut session)).flatten();
        drop(session);
        if let Some((receipt, sender)) = pushed {
            sender.into_iter().for_each(Waker::wake);
            return Poll::Ready(receipt);
        }
        later.insert(Box::pin(client.publish_later(*event))).as_mut().poll(context)
    }
}

/// A checked event with its fields filled in.
struct Publication<'a> {
    event: &'a EventRef<'a>,
    /// Of the encoded event, in bytes.
    len: usize,
    /// The encoded event, if it was encoded outside the lock.
    bytes: Option<Vec<u8>>,
    confirm: Option<ConfirmLevel>,
}

impl Publication<'_> {
    /// Locks the session. While another thread holds the lock, the event is encoded outside it, so
    /// that threads block each other less; else it is encoded into the outbox.
    fn lock<'s>(&mut self, shared: &'s Shared) -> MutexGuard<'s, Session> {
        if let Some(session) = shared.lock_if_free() {
            return session;
        }
        let mut bytes = Vec::with_capacity(published_len(self.len));
        put_published(self.event, self.len, &mut bytes);
        self.bytes = Some(bytes);
        shared.lock()
    }

    fn push(&self, session: &mut Session) -> Result<Receipt, PublishError> {
        if session.is_closed() {
            return Err(PublishError::Closed);
        }
        let (bytes, max) = (self.event.payload.len(), session.payload_bytes_max());
        if bytes > max {
            return Err(EventError::TooLong { field: "payload", bytes, max }.into());
        }
        let put = |buffer: &mut Vec<u8>| match &self.bytes {
            Some(bytes) => buffer.extend_from_slice(bytes),
            None => put_published(self.event, self.len, buffer),
        };
        session.statements.on_publish(self.event);
        let (severity, confirm) = (self.event.severity, self.confirm);
        let (completion, place) = session.outbox.push(confirm, severity, self.len, put)?;
        Ok(Receipt::new(completion, place))
    }

    /// `None`: there is no room now, or other publishers are first in the queue.
    fn push_if_room(&self, session: &mut Session) -> Option<Pushed> {
        session.enters_now(cost(self.len)).then(|| self.push_now(session))
    }

    /// Returns the waker of the sender too, to be woken without the lock.
    fn push_now(&self, session: &mut Session) -> Pushed {
        (self.push(session), session.sender.take())
    }
}

type Pushed = (Result<Receipt, PublishError>, Option<Waker>);
