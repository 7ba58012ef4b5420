//! Load that accounts for every event: publishers with a steady rate, subscribers anywhere, and a
//! book of what each subscriber has seen.
//!
//! Responsible for: numbering what is published, checking what is delivered, measuring how long a
//! subscriber heard nothing. Not responsible for: the agents, and what happens to them meanwhile.

mod ledger;

pub use ledger::{Faults, Ledger, Stamp};

use crate::cluster::{PATIENCE, wait_while_moving};
use anyhow::{Context as _, Result, bail, ensure};
use ftb_client::{Client, Deliveries, Event, EventRef, Start, Stats, Subscription, event, now_ns};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a publisher publishes what is due.
const TICK: Duration = Duration::from_millis(1);
/// A publisher that is later than this does not catch up: a machine that is too slow for the load
/// gets less of it.
const LATE_MAX: Duration = Duration::from_millis(100);

/// Published, and not yet seen by whichever subscriber is furthest: with more, publishers wait. A
/// second of sixteen publishers; it keeps queues short on a machine that is slower than the load.
const UNSEEN_MAX: u64 = 16_384;

/// What a load is made of.
#[derive(Clone, Debug, Default)]
pub struct LoadPlan {
    /// The socket of each publisher's agent.
    pub publishers: Vec<PathBuf>,
    /// Events of each publisher in a second.
    pub per_s: u32,
    /// The socket of each subscriber's agent.
    pub subscribers: Vec<PathBuf>,
}

/// Publishers and subscribers at work.
#[derive(Debug)]
pub struct Load {
    publishers: Vec<Publisher>,
    readers: Vec<Reader>,
    pace: Arc<Pace>,
}

/// What publishers and subscribers of a load have in common.
#[derive(Debug, Default)]
struct Pace {
    stop: AtomicBool,
    sent: AtomicU64,
    /// By the subscriber that is furthest.
    seen: AtomicU64,
}

impl Pace {
    fn is_free(&self) -> bool {
        let seen = self.seen.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(seen) < UNSEEN_MAX
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A load that has ended.
#[derive(Debug)]
pub struct Account {
    /// What each publisher has published, all of it confirmed.
    pub sent: Vec<u64>,
    /// What is wrong with what each subscriber saw.
    pub faults: Vec<Faults>,
    /// The publishers' clients at the end.
    pub publishers: Vec<Stats>,
    /// The subscribers' clients at the end.
    pub subscribers: Vec<Stats>,
}

impl Account {
    /// All that is wrong.
    pub fn all_faults(&self) -> Faults {
        self.faults.iter().fold(Faults::default(), |all, faults| all.and(*faults))
    }
}

impl Load {
    /// Starts subscribers, then, when all are active, publishers.
    ///
    /// # Errors
    /// A client cannot attach.
    pub async fn start(plan: LoadPlan) -> Result<Self> {
        let space = own_space();
        let pace = Arc::<Pace>::default();
        let mut readers = Vec::new();
        for socket in &plan.subscribers {
            readers.push(Reader::paced(socket, &space, Arc::clone(&pace)).await?);
        }
        let mut publishers = Vec::new();
        for (number, socket) in (0..).zip(&plan.publishers) {
            let source = Source::new(socket, &space, number)?;
            publishers.push(Publisher::start(source, plan.per_s, Arc::clone(&pace)));
        }
        Ok(Self { publishers, readers, pace })
    }

    /// What each publisher has published so far.
    pub fn sent(&self) -> Vec<u64> {
        self.publishers.iter().map(|publisher| publisher.sent.load(Ordering::Relaxed)).collect()
    }

    /// The subscribers, in the order of the plan.
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Waits until the chosen subscribers have seen everything that the chosen publishers have
    /// published up to now.
    ///
    /// # Errors
    /// They do not see it: one sees nothing more for [`PATIENCE`].
    pub async fn wait_through(
        &self,
        publishers: impl Fn(usize) -> bool,
        readers: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let wanted: Vec<(u32, u64)> = (0..).zip(self.sent()).collect();
        let wanted: Vec<(u32, u64)> =
            wanted.into_iter().filter(|(number, _)| publishers(*number as usize)).collect();
        for (at, reader) in self.readers.iter().enumerate().filter(|(at, _)| readers(*at)) {
            let seen = |ledger: &Ledger| wanted.iter().all(|(of, seq)| ledger.last(*of) >= *seq);
            reader.wait(&format!("subscriber {at} to see what was published"), seen).await?;
        }
        Ok(())
    }

    /// Waits until `more` events of each of the chosen publishers have come through to the chosen
    /// subscribers that were not yet published when this was called.
    ///
    /// # Errors
    /// They do not come.
    pub async fn wait_flow(
        &self,
        more: u64,
        publishers: impl Fn(usize) -> bool,
        readers: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let before = self.sent();
        let wanted = |sent: &[u64]| {
            let mut all = sent.iter().zip(&before).enumerate().filter(|(at, _)| publishers(*at));
            all.all(|(_, (sent, before))| *sent >= before + more)
        };
        let flowed = async {
            self.wait_sent("more events to be published", wanted).await?;
            self.wait_through(&publishers, readers).await
        };
        flowed.await.with_context(|| self.state())
    }

    /// What publishers and subscribers have done so far, for the message of a failed test.
    fn state(&self) -> String {
        let mut text = format!("published {:?}, seen by subscribers:", self.sent());
        for (at, reader) in self.readers.iter().enumerate() {
            let ledger = reader.ledger();
            let numbers = 0..u32::try_from(self.publishers.len()).unwrap_or(u32::MAX);
            let last: Vec<u64> = numbers.map(|number| ledger.last(number)).collect();
            let stats = reader.client.stats();
            let _ = write!(text, "\n  {at}: {last:?}, {} gaps, {stats:?}", ledger.gaps().len());
        }
        text
    }

    /// Waits until this number of events is published, of all publishers together.
    ///
    /// # Errors
    /// They are not.
    pub async fn wait_total(&self, count: u64) -> Result<()> {
        let enough = |sent: &[u64]| sent.iter().sum::<u64>() >= count;
        self.wait_sent("enough events to be published", enough).await
    }

    async fn wait_sent(&self, what: &str, wanted: impl Fn(&[u64]) -> bool) -> Result<()> {
        let look = async || {
            let sent = self.sent();
            Ok(if wanted(&sent) { Ok(()) } else { Err(sent.iter().sum()) })
        };
        wait_while_moving(what, look).await
    }

    /// Ends the publishers, waits until everything is confirmed and every subscriber has seen all
    /// of it or got a report of what is missing, and gives the account.
    ///
    /// # Errors
    /// Something stays unconfirmed, or does not arrive and is not reported: the error says what.
    pub async fn finish(self) -> Result<Account> {
        self.pace.stop.store(true, Ordering::Relaxed);
        let mut sent = Vec::new();
        let mut publishers = Vec::new();
        for (at, publisher) in self.publishers.into_iter().enumerate() {
            let stats = publisher.task.await?.with_context(|| format!("publisher {at}"))?;
            sent.push(stats.confirmed);
            publishers.push(stats);
        }
        let mut faults = Vec::new();
        let mut subscribers = Vec::new();
        for (at, reader) in self.readers.into_iter().enumerate() {
            let settled = |ledger: &Ledger| {
                let faults = ledger.faults(&sent);
                faults.lost == 0 || (faults.all_reported() && ends_seen(ledger, &sent))
            };
            let what = format!("subscriber {at} to have seen everything");
            reader.wait(&what, settled).await.with_context(|| {
                let ledger = reader.ledger();
                let (faults, missing) = (ledger.faults(&sent), ledger.missing(&sent));
                format!("{faults:?}, missing {missing:?} of {sent:?}: {:?}", reader.client.stats())
            })?;
            faults.push(reader.ledger().faults(&sent));
            subscribers.push(reader.end().await);
        }
        Ok(Account { sent, faults, publishers, subscribers })
    }
}

fn ends_seen(ledger: &Ledger, sent: &[u64]) -> bool {
    (0..).zip(sent).all(|(publisher, sent)| ledger.last(publisher) >= *sent)
}

/// An event space that no other load of this process uses.
pub fn own_space() -> String {
    static LOADS: AtomicU64 = AtomicU64::new(0);
    format!("ftb.load.n{}", LOADS.fetch_add(1, Ordering::Relaxed))
}

/// A client that publishes numbered events.
#[derive(Debug)]
pub struct Source {
    client: Client,
    template: Event,
    number: u32,
    seq: u64,
}

impl Source {
    /// Publisher `number` of a load, with nothing published yet.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn new(socket: &Path, space: &str, number: u32) -> Result<Self> {
        let client = Client::builder("load").agent(socket).build()?;
        Ok(Self { client, template: event(space, "FTB_LOAD")?.build(), number, seq: 0 })
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How many it has published.
    pub fn count(&self) -> u64 {
        self.seq
    }

    /// Publishes the next event; waits while too many are unconfirmed.
    ///
    /// # Errors
    /// The event is refused.
    pub async fn publish(&mut self) -> Result<ftb_client::Receipt> {
        let payload = Stamp { publisher: self.number, seq: self.seq + 1 }.to_bytes();
        let event = EventRef { payload: &payload, ..EventRef::from(&self.template) };
        let receipt = self.client.publish_ref_wait(event).await?;
        self.seq += 1;
        Ok(receipt)
    }

    /// Waits until everything is confirmed, and says goodbye.
    ///
    /// # Errors
    /// Not everything was confirmed.
    pub async fn close(self) -> Result<Stats> {
        let mut confirmed = 0;
        // As long as some of it is confirmed each time, the machine is only slow.
        while let Err(error) = self.client.flush(PATIENCE).await {
            let stats = self.client.stats();
            ensure!(stats.confirmed > confirmed, "{error}: {stats:?}");
            confirmed = stats.confirmed;
        }
        let closed = self.client.close(PATIENCE).await;
        let stats = self.client.stats();
        closed.with_context(|| format!("{stats:?}"))?;
        ensure!(stats.confirmed == self.seq, "{} published, {stats:?}", self.seq);
        Ok(stats)
    }
}

#[derive(Debug)]
struct Publisher {
    sent: Arc<AtomicU64>,
    task: JoinHandle<Result<Stats>>,
}

impl Publisher {
    fn start(mut source: Source, per_s: u32, pace: Arc<Pace>) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let task = tokio::spawn(async move {
            let each = Duration::from_secs(1) / per_s.max(1);
            let mut due = Instant::now();
            while !pace.stopped() {
                let now = Instant::now();
                due = due.max(now.checked_sub(LATE_MAX).unwrap_or(now));
                while due <= now && pace.is_free() {
                    let _ = source.publish().await?;
                    count.store(source.count(), Ordering::Relaxed);
                    pace.sent.fetch_add(1, Ordering::Relaxed);
                    due += each;
                }
                tokio::time::sleep_until((now + TICK).max(due).into()).await;
            }
            source.close().await
        });
        Self { sent, task }
    }
}

/// A subscriber that keeps book.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    book: Arc<Mutex<Book>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Book {
    ledger: Ledger,
    heard: Option<Instant>,
    quiet: Quiet,
}

/// How badly a subscriber was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quiet {
    /// The longest time between two deliveries.
    pub silence: Duration,
    /// The longest time from publication to delivery.
    pub latest: Duration,
}

impl Reader {
    /// Subscribes to all events of a space and reads them.
    ///
    /// # Errors
    /// The client cannot be made, or the subscription is refused or does not become active.
    pub async fn start(socket: &Path, space: &str) -> Result<Self> {
        Self::paced(socket, space, Arc::default()).await
    }

    async fn paced(socket: &Path, space: &str, pace: Arc<Pace>) -> Result<Self> {
        let client = Client::builder("reader").agent(socket).build()?;
        let filter = format!("event_space={space}");
        let subscribed = tokio::time::timeout(PATIENCE, client.subscribe(&filter, Start::Now));
        let subscription =
            subscribed.await.context("the subscription does not become active")??;
        let book = Arc::new(Mutex::new(Book::default()));
        let task = tokio::spawn(read(subscription, Arc::clone(&book), pace));
        Ok(Self { client, book, task })
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What it has seen so far.
    pub fn ledger(&self) -> Ledger {
        lock(&self.book).ledger.clone()
    }

    /// Begins to measure interruptions anew.
    pub fn listen_closely(&self) {
        let mut book = lock(&self.book);
        book.quiet = Quiet::default();
        book.heard = Some(Instant::now());
    }

    /// The worst interruptions since [`Reader::listen_closely`].
    pub fn quiet(&self) -> Quiet {
        lock(&self.book).quiet
    }

    /// Waits until its book shows something.
    ///
    /// # Errors
    /// It does not, and nothing more came for [`PATIENCE`].
    pub async fn wait(&self, what: &str, seen: impl Fn(&Ledger) -> bool) -> Result<()> {
        let look = async || {
            let book = lock(&self.book);
            Ok(if seen(&book.ledger) { Ok(()) } else { Err(book.ledger.seen()) })
        };
        wait_while_moving(what, look).await
    }

    /// Stops reading.
    pub async fn end(self) -> Stats {
        let stats = self.client.stats();
        self.task.abort();
        // It ends only when it is asked to.
        let _ = self.task.await;
        stats
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(mut subscription: Subscription, book: Arc<Mutex<Book>>, pace: Arc<Pace>) {
    while let Some(deliveries) = subscription.next_batch().await {
        let now = Instant::now();
        let wall_ns = now_ns();
        let mut book = lock(&book);
        match deliveries {
            Deliveries::Events(batch) => {
                for event in batch.iter() {
                    book.ledger.see(event.payload());
                    let late = Duration::from_nanos(wall_ns.saturating_sub(event.time_ns()));
                    book.quiet.latest = book.quiet.latest.max(late);
                }
                pace.seen.fetch_max(book.ledger.seen(), Ordering::Relaxed);
                if let Some(heard) = book.heard.replace(now) {
                    book.quiet.silence = book.quiet.silence.max(now.duration_since(heard));
                }
            }
            Deliveries::Gap(gap) => book.ledger.tell(gap),
        }
    }
}

/// Turns a book that is not clean into an error that says who saw what.
///
/// # Errors
/// A subscriber has missed something, or saw it twice or in the wrong order.
pub fn ensure_perfect(account: &Account) -> Result<()> {
    if account.all_faults().is_none() {
        return Ok(());
    }
    bail!("{account:#?}")
}
