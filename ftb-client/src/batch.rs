//! Batches: many events that are published together.
//!
//! A batch is encoded outside the lock of the client. One lock, one reading of the clock and one
//! `Completion` serve all its events.
//!
//! Responsible for: what a program collects. Not responsible for: events after their publication
//! (`outbox.rs`, `receipt.rs`).

use crate::chunk::{Chunk, Size};
use crate::error::PublishError;
use crate::event::now_ns;
use crate::receipt::Receipts;
use crate::session::Session;
use crate::shared::Handles;
use crate::statements::may_state;
use core::fmt;
use ftb_core::{ConfirmLevel, EventRef};
use ftb_proto::client::{published_len, put_published};
use ftb_proto::event::event_len;
use std::sync::Arc;
use std::task::Waker;
use tokio::task::yield_now;

/// A batch keeps the memory of this many chunks from one publication to the next.
const CHUNKS_KEPT: usize = 4;

/// Events that a program collects, to publish them together: see
/// [`Client::batch`](crate::Client::batch).
///
/// A dropped batch publishes nothing. After publication the batch is empty and can be filled again.
/// It holds at most
/// [`ClientConfig::buffer_bytes`](crate::ClientConfig::buffer_bytes), beside what the client holds.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ftb_client::{Client, EventRef, event};
///
/// let client = Client::builder("example").build()?;
/// let sample = event("my.space", "SAMPLE")?.build();
/// let mut batch = client.batch();
/// for value in [7_u8, 8, 9] {
///     batch.push(EventRef { payload: &[value], ..EventRef::from(&sample) })?;
/// }
/// batch.publish_wait().await?.confirmed().await?;
/// # Ok(())
/// # }
/// ```
pub struct Batch {
    client: Arc<Handles>,
    confirm: Option<ConfirmLevel>,
    /// They share one completion.
    chunks: Vec<Chunk>,
    size: Size,
    /// One of the events may state a condition.
    states_conditions: bool,
    first: FirstEvent,
    /// The size of the previous publication.
    before: Size,
}

/// Values for all events of a batch, from the time of the first.
#[derive(Clone, Copy, Default)]
struct FirstEvent {
    time_ns: u64,
    payload_bytes_max: usize,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { events, bytes } = self.size;
        f.debug_struct("Batch").field("events", &events).field("bytes", &bytes).finish()
    }
}

impl Batch {
    pub(crate) fn new(client: Arc<Handles>, confirm: Option<ConfirmLevel>) -> Self {
        Self {
            client,
            confirm,
            chunks: Vec::new(),
            size: Size::default(),
            states_conditions: false,
            first: FirstEvent::default(),
            before: Size::default(),
        }
    }

    /// Adds an event. Empty client name and job id are filled in. An event without a time gets the
    /// time of the first event of the batch.
    ///
    /// # Errors
    /// [`PublishError::Event`]: it breaks a bound; [`PublishError::BatchFull`]: it has no room
    /// beside the others. The batch keeps the others.
    pub fn push(&mut self, event: EventRef<'_>) -> Result<(), PublishError> {
        let shared = &self.client.shared;
        if self.size.events == 0 {
            let payload_bytes_max = shared.lock().payload_bytes_max();
            self.first = FirstEvent { time_ns: now_ns(), payload_bytes_max };
        }
        let mut event: EventRef<'_> = event;
        if event.time_ns == 0 {
            event.time_ns = self.first.time_ns;
        }
        shared.config.fill_in(&mut event);
        event.check(self.first.payload_bytes_max)?;
        let len = event_len(&event);
        let size = Size { events: 1, bytes: published_len(len) };
        let (held_bytes, bytes_max) = (self.size.cost(), shared.config.buffer_bytes);
        if held_bytes + size.cost() > bytes_max {
            return Err(PublishError::BatchFull { held_bytes, bytes_max });
        }
        self.size.add(size);
        self.states_conditions = self.states_conditions || may_state(&event);
        let put = |bytes: &mut Vec<u8>| put_published(&event, len, bytes);
        let chunk = Chunk::open(&mut self.chunks, &shared.ack_interest, size.bytes, self.before);
        chunk.set_confirm(self.confirm);
        chunk.push(event.severity, put);
        Ok(())
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.size.events
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.size.events == 0
    }

    /// The size of its encoded events, in bytes.
    pub fn bytes(&self) -> usize {
        self.size.bytes
    }

    /// Drops all events.
    pub fn clear(&mut self) {
        (self.chunks, self.size) = (Vec::new(), Size::default());
    }

    /// Publishes all events in order, and never waits. As in
    /// [`Client::publish`](crate::Client::publish), a full buffer
    /// sheds waiting events, lowest severity first, then oldest first. Events of this batch may be
    /// among them: their receipts report that. Afterwards the batch is empty.
    ///
    /// # Errors
    /// [`PublishError::Closed`]: the batch keeps its events.
    pub fn publish(&mut self) -> Result<Receipts, PublishError> {
        let mut session = self.client.shared.lock();
        let published = publish_chunks(&mut self.chunks, self.states_conditions, &mut session);
        session.room.bypass(self.size.cost());
        drop(session);
        self.published(published)
    }

    /// As [`Batch::publish`], but sheds nothing and waits until there is room for all events.
    /// Waiting publishers are admitted in order; at most one buffer's worth may overtake the head
    /// of the queue. [`Client::publish`](crate::Client::publish) bypasses the queue.
    ///
    /// Cancel-safe: a dropped future has published nothing, and the batch keeps its events. Poll or
    /// drop a waiting future: others may wait for it. It yields first while a full message waits.
    ///
    /// # Errors
    /// As there.
    pub async fn publish_wait(&mut self) -> Result<Receipts, PublishError> {
        let published = match self.publish_at_once() {
            Some(published) => published,
            None => self.publish_later().await,
        };
        self.published(published)
    }

    /// `None`: the task must yield first, there is no room, or others are first in the queue.
    fn publish_at_once(&mut self) -> Option<Result<Published, PublishError>> {
        let mut session = self.client.shared.lock();
        // A publisher that never waits must not starve the connection's task.
        let unhurried = !session.outbox.has_full_one_before(&self.chunks);
        let goes = unhurried && session.enters_now(self.size.cost());
        let states_conditions = self.states_conditions;
        goes.then(|| publish_chunks(&mut self.chunks, states_conditions, &mut session))
    }

    /// Yields if a full message waits, then publishes when there is room.
    async fn publish_later(&mut self) -> Result<Published, PublishError> {
        let (shared, chunks) = (&self.client.shared, &mut self.chunks);
        let hurried = shared.lock().outbox.has_full_one_before(chunks);
        if hurried {
            yield_now().await;
        }
        let states_conditions = self.states_conditions;
        let push = |session: &mut Session| publish_chunks(chunks, states_conditions, session);
        shared.wait_for_room(self.size.cost(), push).await
    }

    fn published(
        &mut self,
        published: Result<Published, PublishError>,
    ) -> Result<Receipts, PublishError> {
        let (receipts, sender) = published?;
        sender.into_iter().for_each(Waker::wake);
        (self.before, self.size) = (self.size, Size::default());
        Ok(receipts)
    }
}

/// The receipts, and the waker of the sender, to be woken without the lock.
type Published = (Receipts, Option<Waker>);

fn publish_chunks(
    chunks: &mut Vec<Chunk>,
    states_conditions: bool,
    session: &mut Session,
) -> Result<Published, PublishError> {
    if session.is_closed() {
        return Err(PublishError::Closed);
    }
    if states_conditions {
        session.statements.on_publish_batch();
    }
    let (completion, places) = session.outbox.push_all(chunks);
    if chunks.capacity() > CHUNKS_KEPT {
        *chunks = Vec::new();
    }
    Ok((Receipts::new(completion, places), session.sender.take()))
}
