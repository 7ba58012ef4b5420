//! Publishing: from an event in the program's hands to one in the outbox, and the receipt for it.
//!
//! Responsible for: the bounds that a client can check, what is filled in, one lock a publication, and
//! waiting for room. Not responsible for: what becomes of an event afterwards (`outbox.rs`, `fate.rs`).

use crate::client::{Client, Shared};
use crate::config::ClientConfig;
use crate::error::{PublishError, Unconfirmed};
use crate::event::now_ns;
use crate::fate::Fate;
use crate::outbox::cost;
use crate::session::Session;
use core::pin::Pin;
use core::task::{Context, Poll};
use ftb_core::event::EventError;
use ftb_core::{Event, EventId, EventRef, limits};
use ftb_proto::client::{published_len, put_published};
use ftb_proto::event::event_len;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use tokio::task::yield_now;

/// What became of an event that was accepted.
#[derive(Debug)]
#[must_use = "an event is published without it, but only the receipt says what became of it; \
              drop it with `let _ =` where that does not matter"]
pub struct Receipt {
    /// That of all events that went with it.
    fate: Arc<Fate>,
    place: u32,
}

impl Receipt {
    pub(crate) fn new(fate: Arc<Fate>, place: u32) -> Self {
        Self { fate, place }
    }

    /// Resolves with the event's id when acting root and standby hold it: from then on it will be
    /// delivered. Costs nothing until it is asked.
    ///
    /// # Errors
    /// [`Unconfirmed`] when it will not be confirmed.
    pub async fn confirmed(self) -> Result<EventId, Unconfirmed> {
        self.fate.ended(self.place).await
    }

    /// As [`Receipt::confirmed`], without waiting: `None` as long as it is not known.
    pub fn outcome(&self) -> Option<Result<EventId, Unconfirmed>> {
        self.fate.outcome(self.place)
    }
}

impl Client {
    /// Publishes an event: takes it, numbers it, hands it to the agent in the background, and
    /// again to the next agent until it is confirmed. Never waits.
    ///
    /// Time, client name and job id are filled in where they are empty. When the buffer is full,
    /// milder events (or older ones as mild) that no agent has been given yet are shed and
    /// counted; [`Client::publish_wait`] waits instead.
    ///
    /// # Errors
    /// [`PublishError`]: the event breaks a bound, or finds only worse ones in its way. Nothing
    /// was sent.
    pub fn publish(&self, event: impl Into<Event>) -> Result<Receipt, PublishError> {
        self.publish_ref(EventRef::from(&event.into()))
    }

    /// As [`Client::publish`], without giving the event away: for who publishes much, or has its
    /// parts elsewhere.
    ///
    /// # Errors
    /// As there.
    pub fn publish_ref<'a>(&'a self, mut event: EventRef<'a>) -> Result<Receipt, PublishError> {
        let mut publication = self.complete(&mut event)?;
        let mut session = publication.lock(self.shared());
        let receipt = publication.push(&mut session)?;
        session.line.overtake(cost(publication.len));
        let speaker = session.speaker.take();
        drop(session);
        speaker.into_iter().for_each(Waker::wake);
        Ok(receipt)
    }

    /// As [`Client::publish_ref`], but sheds nothing: gives `None` where there is no room now, or it is the
    /// turn of others who wait for it.
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
        let Some((receipt, speaker)) = pushed else {
            self.shared().waiters.look();
            return Ok(None);
        };
        speaker.into_iter().for_each(Waker::wake);
        receipt.map(Some)
    }

    /// As [`Client::publish`], but waits for room instead of shedding. Before each that is first among those who wait, no
    /// more of what waits goes than the buffer holds; [`Client::publish`] stands in no line, and where it alone takes the
    /// room that comes, the others go again.
    ///
    /// Cancel-safe: a dropped future has published nothing. One that waits is to be polled or dropped: others may wait for
    /// it. Lets other tasks run whenever it has filled a message, even when there is room.
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

    /// Publishes an event when others have run, and there is room.
    async fn publish_later<'a>(&'a self, mut event: EventRef<'a>) -> Result<Receipt, PublishError> {
        yield_now().await;
        let publication = self.complete(&mut event)?;
        let push = |session: &mut Session| publication.push_now(session);
        let (receipt, speaker) = self.shared().wait_for_room(cost(publication.len), push).await;
        speaker.into_iter().for_each(Waker::wake);
        receipt
    }

    /// Fills in what is empty, and checks all bounds but the one that the agent tells.
    fn complete<'e, 'a: 'e>(
        &'a self,
        event: &'e mut EventRef<'a>,
    ) -> Result<Publication<'e>, PublishError> {
        if event.time_ns == 0 {
            event.time_ns = now_ns();
        }
        fill_in(event, &self.shared().config);
        event.check(limits::PAYLOAD_BYTES_MAX)?;
        Ok(Publication { event, len: event_len(event), bytes: None })
    }
}

/// Says whose event it is where that is not said.
pub(crate) fn fill_in<'a>(event: &mut EventRef<'a>, config: &'a ClientConfig) {
    if event.client_name.is_empty() {
        event.client_name = &config.name;
    }
    if event.job_id.is_empty() {
        event.job_id = &config.job_id;
    }
}

/// What [`Client::publish_ref_wait`] gives. Written by hand, since an event is a dozen words that an
/// async function would move from state to state: this takes it where it lies, and nearly always
/// there is room.
struct PublishWait<'a> {
    client: &'a Client,
    event: EventRef<'a>,
    /// What is left to do when it was not done at once.
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
        // A publisher that never has to wait must not keep the connection's task from its work.
        let unhurried = !session.outbox.has_full_one_before_event(publication.len);
        let pushed = unhurried.then(|| publication.push_if_room(&mut session)).flatten();
        drop(session);
        if let Some((receipt, speaker)) = pushed {
            speaker.into_iter().for_each(Waker::wake);
            return Poll::Ready(receipt);
        }
        later.insert(Box::pin(client.publish_later(*event))).as_mut().poll(context)
    }
}

/// An event that is to be published, and what was empty in it is filled in.
struct Publication<'a> {
    event: &'a EventRef<'a>,
    /// When it is encoded.
    len: usize,
    /// It is encoded.
    bytes: Option<Vec<u8>>,
}

impl Publication<'_> {
    /// The session. While somebody else has it, the event is encoded, so that publishers of many
    /// threads hold each other up as little as can be; else it is encoded where it will lie.
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
        let (fate, place) = session.outbox.push(self.event.severity, self.len, put)?;
        Ok(Receipt { fate, place })
    }

    /// `None` where there is no room, or it is others' turn, and there may be some later.
    fn push_if_room(&self, session: &mut Session) -> Option<Pushed> {
        session.goes_now(cost(self.len)).then(|| self.push_now(session))
    }

    /// Gives the speaker too, to be woken without the session.
    fn push_now(&self, session: &mut Session) -> Pushed {
        (self.push(session), session.speaker.take())
    }
}

type Pushed = (Result<Receipt, PublishError>, Option<Waker>);
