//! The client for programs without tokio: the same client on a thread of its own.
//!
//! ```no_run
//! use ftb_client::{Delivery, Start, blocking, event};
//! use std::time::Duration;
//!
//! let client = blocking::BlockingClient::connect(ftb_client::ClientConfig::new("example"))?;
//! let wait = Duration::from_secs(5);
//! let mut faults = client.subscribe("severity>=error", Start::Now, wait)?;
//! client.publish(event("my.space", "HELLO")?)?;
//! while let Some(delivery) = faults.next(Duration::MAX)? {
//!     if let Delivery::Event(fault) = delivery {
//!         println!("{} on {}", fault.event.name, fault.host);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here may be called from within a tokio runtime: the waiting calls would stop it.

use crate::client::Stats;
use crate::config::ClientConfig;
use crate::error::{ConfigError, PublishError, SubscribeError, Unconfirmed, WaitError};
use crate::receipt::{Receipt, Receipts};
use crate::subscription::{Deliveries, Delivery, Subscription};
use core::future::Future;
use core::time::Duration;
use ftb_core::node::api::Start;
use ftb_core::{ConfirmLevel, Event, EventId, EventRef, Position};
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longest wait that is kept exactly; longer ones are as good as for ever.
const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The thread that drives sockets and timers, until the last of these is dropped.
#[derive(Debug)]
struct Driver {
    handle: Handle,
    /// Dropped to stop the thread.
    _stop: oneshot::Sender<()>,
}

impl Driver {
    /// A client on a thread of its own. When the thread is to stop, the client first hands over
    /// what it can: its own task bounds how long that takes.
    fn start(config: ClientConfig) -> Result<(crate::Client, Self), ConfigError> {
        let broken = |error: std::io::Error| ConfigError::Thread(error.to_string());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let handle = runtime.handle().clone();
        let entered = handle.enter();
        let client = crate::Client::connect(config)?;
        drop(entered);
        let ended = client.ended();
        let (stop, stopped) = oneshot::channel();
        let drive = move || {
            runtime.block_on(async {
                // Resolves with an error when the sender is dropped, which is the signal.
                let _ = stopped.await;
                ended.await;
            });
        };
        std::thread::Builder::new().name("ftb-client".to_owned()).spawn(drive).map_err(broken)?;
        Ok((client, Self { handle, _stop: stop }))
    }

    fn wait<T>(&self, wait: Duration, future: impl Future<Output = T>) -> Result<T, WaitError> {
        let future = async { timeout(wait.min(WAIT_MAX), future).await };
        self.handle.block_on(future).map_err(|_| WaitError::Timeout)
    }
}

/// As [`crate::Client`]. Cloning gives another handle to the same client.
#[derive(Clone, Debug)]
pub struct BlockingClient {
    // Before the driver: the client leaves first, then its thread stops.
    client: crate::Client,
    driver: Arc<Driver>,
}

impl BlockingClient {
    /// As [`crate::Client::connect`], with a thread of its own.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn connect(config: ClientConfig) -> Result<Self, ConfigError> {
        let (client, driver) = Driver::start(config)?;
        Ok(Self { client, driver: Arc::new(driver) })
    }

    /// As [`crate::Client::connected`].
    pub fn connected(&self) -> bool {
        self.client.connected()
    }

    /// As [`crate::Client::wait_connected`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_connected(&self, deadline: Duration) -> Result<(), WaitError> {
        self.driver.handle.block_on(self.client.wait_connected(deadline.min(WAIT_MAX)))
    }

    /// As [`crate::Client::publish`]: never waits.
    ///
    /// # Errors
    /// As there.
    pub fn publish(&self, event: impl Into<Event>) -> Result<Receipt, PublishError> {
        self.client.publish(event)
    }

    /// As [`crate::Client::publish_ref`]: never waits.
    ///
    /// # Errors
    /// As there.
    pub fn publish_ref(&self, event: EventRef<'_>) -> Result<Receipt, PublishError> {
        self.client.publish_ref(event)
    }

    /// As [`crate::Client::publish_wait`].
    ///
    /// # Errors
    /// The outer one when there was no room within `deadline`, the inner one as there.
    pub fn publish_wait(
        &self,
        event: impl Into<Event>,
        deadline: Duration,
    ) -> Result<Result<Receipt, PublishError>, WaitError> {
        self.driver.wait(deadline, self.client.publish_wait(event))
    }

    /// As [`crate::Client::batch`].
    pub fn batch(&self) -> BlockingBatch {
        BlockingBatch { batch: self.client.batch(), driver: Arc::clone(&self.driver) }
    }

    /// As [`crate::Client::confirming`].
    #[must_use]
    pub fn confirming(&self, level: ConfirmLevel) -> Self {
        Self { client: self.client.confirming(level), driver: Arc::clone(&self.driver) }
    }

    /// As [`Receipt::confirmed_level`].
    ///
    /// # Errors
    /// [`WaitError`]: not within the deadline; inside, as there.
    pub fn confirmed_level(
        &self,
        receipt: Receipt,
        deadline: Duration,
    ) -> Result<Result<(EventId, ConfirmLevel), Unconfirmed>, WaitError> {
        self.driver.wait(deadline, receipt.confirmed_level())
    }

    /// As [`Receipt::confirmed`].
    ///
    /// # Errors
    /// The outer one when it took longer than `deadline`, the inner one as there.
    pub fn confirmed(
        &self,
        receipt: Receipt,
        deadline: Duration,
    ) -> Result<Result<EventId, Unconfirmed>, WaitError> {
        self.driver.wait(deadline, receipt.confirmed())
    }

    /// As [`Receipts::confirmed`].
    ///
    /// # Errors
    /// The outer one when it took longer than `deadline`, the inner one as there.
    pub fn all_confirmed(
        &self,
        receipts: &Receipts,
        deadline: Duration,
    ) -> Result<Result<(), Unconfirmed>, WaitError> {
        self.driver.wait(deadline, receipts.confirmed())
    }

    /// As [`crate::Client::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self, deadline: Duration) -> Result<(), WaitError> {
        self.driver.handle.block_on(self.client.flush(deadline.min(WAIT_MAX)))
    }

    /// As [`crate::Client::subscribe`].
    ///
    /// # Errors
    /// As there, and [`SubscribeError::Timeout`] when it was not active within `deadline`.
    pub fn subscribe(
        &self,
        filter: &str,
        start: Start,
        deadline: Duration,
    ) -> Result<BlockingSubscription, SubscribeError> {
        let subscribed = self.driver.wait(deadline, self.client.subscribe(filter, start));
        Ok(BlockingSubscription {
            subscription: subscribed.map_err(|_| SubscribeError::Timeout)??,
            driver: Arc::clone(&self.driver),
        })
    }

    /// As [`crate::Client::stats`].
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// As [`crate::Client::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self, deadline: Duration) -> Result<(), WaitError> {
        self.driver.handle.block_on(self.client.close(deadline.min(WAIT_MAX)))
    }
}

/// As [`crate::Batch`].
#[derive(Debug)]
pub struct BlockingBatch {
    // Before the driver, as in the client.
    batch: crate::Batch,
    driver: Arc<Driver>,
}

impl BlockingBatch {
    /// As [`crate::Batch::push`].
    ///
    /// # Errors
    /// As there.
    pub fn push(&mut self, event: EventRef<'_>) -> Result<(), PublishError> {
        self.batch.push(event)
    }

    /// How many events it holds.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// As [`crate::Batch::publish`]: never waits.
    ///
    /// # Errors
    /// As there.
    pub fn publish(&mut self) -> Result<Receipts, PublishError> {
        self.batch.publish()
    }

    /// As [`crate::Batch::publish_wait`].
    ///
    /// # Errors
    /// The outer one when there was no room within `deadline`: the batch still holds its events.
    /// The inner one as there.
    pub fn publish_wait(
        &mut self,
        deadline: Duration,
    ) -> Result<Result<Receipts, PublishError>, WaitError> {
        self.driver.wait(deadline, self.batch.publish_wait())
    }
}

/// As [`crate::Subscription`].
#[derive(Debug)]
pub struct BlockingSubscription {
    subscription: Subscription,
    driver: Arc<Driver>,
}

impl BlockingSubscription {
    /// The next delivery, waited for until the deadline ([`Duration::MAX`]: for ever); `None` when
    /// the subscription has ended.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when nothing came.
    pub fn next(&mut self, deadline: Duration) -> Result<Option<Delivery>, WaitError> {
        // What is there already needs no timer.
        match self.subscription.try_next() {
            Some(next) => Ok(Some(next)),
            None => self.driver.wait(deadline, self.subscription.next()),
        }
    }

    /// As [`crate::Subscription::next_batch`], waited for as by [`BlockingSubscription::next`].
    ///
    /// # Errors
    /// As there.
    pub fn next_batch(&mut self, deadline: Duration) -> Result<Option<Deliveries>, WaitError> {
        match self.subscription.try_next_batch() {
            Some(next) => Ok(Some(next)),
            None => self.driver.wait(deadline, self.subscription.next_batch()),
        }
    }

    /// What has arrived already, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.subscription.try_next()
    }

    /// As [`crate::Subscription::position`].
    pub fn position(&self) -> Position {
        self.subscription.position()
    }

    /// As [`crate::Subscription::ended`].
    pub fn ended(&self) -> Option<SubscribeError> {
        self.subscription.ended()
    }
}
