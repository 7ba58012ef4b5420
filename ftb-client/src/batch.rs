//! Many events that are published together: for who has many at once.
//!
//! They are encoded where nobody else looks, and taken over as they are: one lock, one look at the
//! clock and one record of what becomes of them, however many there are.
//!
//! Responsible for: what a program collects, and the receipts for it. Not responsible for: what
//! becomes of it once it is published (`outbox.rs`, `fate.rs`).

use crate::chunk::{Chunk, Size};
use crate::client::Client;
use crate::error::{PublishError, Unconfirmed};
use crate::event::now_ns;
use crate::fate::Fate;
use crate::publish::{Receipt, fill_in};
use crate::session::Session;
use core::fmt;
use core::ops::Range;
use ftb_core::EventRef;
use ftb_proto::client::{published_len, put_published};
use ftb_proto::event::event_len;
use std::sync::Arc;
use std::task::Waker;
use tokio::task::yield_now;

/// Room for so many chunks stays with a batch from one publication to the next: as much as a list takes for its first.
const CHUNKS_KEPT: usize = 4;

/// Events that a program collects, to publish them together: see [`Client::batch`].
///
/// What it holds is nobody else's until it is published, and goes with it when it is dropped. It is
/// empty again after that, and can be filled anew. It holds at most
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
    client: Client,
    /// Of one fate.
    chunks: Vec<Chunk>,
    size: Size,
    begun: Begun,
    /// How large the one before was.
    before: Size,
}

/// What holds for all events of a batch, as it was when the first came in.
#[derive(Clone, Copy, Default)]
struct Begun {
    time_ns: u64,
    payload_bytes_max: usize,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { events, bytes } = self.size;
        f.debug_struct("Batch").field("events", &events).field("bytes", &bytes).finish()
    }
}

impl Client {
    /// An empty batch: for who has many events at once.
    pub fn batch(&self) -> Batch {
        let (chunks, size) = (Vec::new(), Size::default());
        Batch { client: self.clone(), chunks, size, begun: Begun::default(), before: size }
    }
}

impl Batch {
    /// Adds an event. Client name and job id are filled in where they are empty; an event without a
    /// time gets that at which the first came into the batch: who needs it exact says it.
    ///
    /// # Errors
    /// [`PublishError::Event`]: it breaks a bound; [`PublishError::BatchFull`]: it finds no room
    /// beside the others. It is not in the batch then; the others are.
    pub fn push(&mut self, event: EventRef<'_>) -> Result<(), PublishError> {
        let shared = self.client.shared();
        if self.size.events == 0 {
            let payload_bytes_max = shared.lock().payload_bytes_max();
            self.begun = Begun { time_ns: now_ns(), payload_bytes_max };
        }
        let mut event: EventRef<'_> = event;
        if event.time_ns == 0 {
            event.time_ns = self.begun.time_ns;
        }
        fill_in(&mut event, &shared.config);
        event.check(self.begun.payload_bytes_max)?;
        let len = event_len(&event);
        let size = Size { events: 1, bytes: published_len(len) };
        let (held_bytes, bytes_max) = (self.size.cost(), shared.config.buffer_bytes);
        if held_bytes + size.cost() > bytes_max {
            return Err(PublishError::BatchFull { held_bytes, bytes_max });
        }
        self.size.add(size);
        let put = |bytes: &mut Vec<u8>| put_published(&event, len, bytes);
        Chunk::open(&mut self.chunks, &shared.waiters, size.bytes, self.before)
            .push(event.severity, put);
        Ok(())
    }

    /// How many events it holds.
    pub fn len(&self) -> usize {
        self.size.events
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.size.events == 0
    }

    /// How many bytes its events have, encoded.
    pub fn bytes(&self) -> usize {
        self.size.bytes
    }

    /// Gives up what it holds.
    pub fn clear(&mut self) {
        (self.chunks, self.size) = (Vec::new(), Size::default());
    }

    /// Publishes all that it holds, in the order in which it came in, and never waits. What
    /// [`Client::publish`] says holds for them all: when the buffer is full, the mildest that wait
    /// are shed, the oldest of them first, and events of this batch may be among them: their
    /// receipts say so. Afterwards it is empty.
    ///
    /// # Errors
    /// [`PublishError::Closed`]: the batch still holds them.
    pub fn publish(&mut self) -> Result<Receipts, PublishError> {
        let mut session = self.client.shared().lock();
        let handed_over = hand_over(&mut self.chunks, &mut session);
        session.line.overtake(self.size.cost());
        drop(session);
        self.handed_over(handed_over)
    }

    /// As [`Batch::publish`], but sheds nothing and waits until there is room for all of them. Before each that is first
    /// among those who wait, no more of what waits goes than the buffer holds, however little room others need;
    /// [`Client::publish`] stands in no line, and where it alone takes the room that comes, the others go again.
    ///
    /// Cancel-safe: a dropped future has published none, and the batch holds them all. One that waits is to be polled or
    /// dropped: others may wait for it. Lets other tasks run first when a message is full that has not gone.
    ///
    /// # Errors
    /// As there.
    pub async fn publish_wait(&mut self) -> Result<Receipts, PublishError> {
        let handed_over = match self.publish_at_once() {
            Some(handed_over) => handed_over,
            None => self.publish_later().await,
        };
        self.handed_over(handed_over)
    }

    /// `None` where others are to run first, or there is no room, or it is the turn of others.
    fn publish_at_once(&mut self) -> Option<Result<HandedOver, PublishError>> {
        let mut session = self.client.shared().lock();
        // A publisher that never has to wait must not keep the connection's task from its work.
        let unhurried = !session.outbox.has_full_one_before(&self.chunks);
        let goes = unhurried && session.goes_now(self.size.cost());
        goes.then(|| hand_over(&mut self.chunks, &mut session))
    }

    /// Publishes when others have run, if they are to, and there is room.
    async fn publish_later(&mut self) -> Result<HandedOver, PublishError> {
        let (shared, chunks) = (self.client.shared(), &mut self.chunks);
        let hurried = shared.lock().outbox.has_full_one_before(chunks);
        if hurried {
            yield_now().await;
        }
        let push = |session: &mut Session| hand_over(chunks, session);
        shared.wait_for_room(self.size.cost(), push).await
    }

    fn handed_over(
        &mut self,
        handed_over: Result<HandedOver, PublishError>,
    ) -> Result<Receipts, PublishError> {
        let (receipts, speaker) = handed_over?;
        speaker.into_iter().for_each(Waker::wake);
        (self.before, self.size) = (self.size, Size::default());
        Ok(receipts)
    }
}

/// What was published, and the speaker, to be woken without the session.
type HandedOver = (Receipts, Option<Waker>);

fn hand_over(chunks: &mut Vec<Chunk>, session: &mut Session) -> Result<HandedOver, PublishError> {
    if session.is_closed() {
        return Err(PublishError::Closed);
    }
    let (fate, places) = session.outbox.push_all(chunks);
    if chunks.capacity() > CHUNKS_KEPT {
        *chunks = Vec::new();
    }
    Ok((Receipts { fate, places }, session.speaker.take()))
}

/// What became of the events of a batch, in the order in which they came into it.
#[derive(Clone, Debug)]
#[must_use = "the events are published without them, but only the receipts say what became of them; \
              drop them with `let _ =` where that does not matter"]
pub struct Receipts {
    fate: Arc<Fate>,
    places: Range<u32>,
}

impl Receipts {
    /// How many events it were.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it was none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Resolves when acting root and standby hold all of them. Cancel-safe.
    ///
    /// # Errors
    /// [`Unconfirmed`] as soon as one is known not to be confirmed, of the first of these: the single
    /// receipts say which, and what became of the others.
    pub async fn confirmed(&self) -> Result<(), Unconfirmed> {
        self.fate.all_ended_well(self.places.clone()).await
    }
}

/// Gives the receipt of each.
impl Iterator for Receipts {
    type Item = Receipt;

    fn next(&mut self) -> Option<Receipt> {
        let place = self.places.next()?;
        Some(Receipt::new(Arc::clone(&self.fate), place))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}
