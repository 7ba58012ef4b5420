//! ftb itself, through its client library as a program would use it.

use super::typed::{CLIENT, Fields, load_event, payload_bytes};
use super::{ANSWER_DEADLINE, Publish, Receive, WRITE_BYTES, WireSystem};
use anyhow::{Context as _, Result, bail, ensure};
use ftb_client::{Batch, Client, Deliveries, Event, EventRef, Receipts, Start, Subscription};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// What the load's subscribers want.
const FILTER: &str = "event_space=ftb.bench.*";
/// Subscriptions of a bystander that are asked for at once.
const ASKED_AT_ONCE: usize = 64;
/// Agents behind two sockets.
#[derive(Debug)]
pub(crate) struct Ftb {
    /// Of the agent where events enter.
    pub(crate) publish: PathBuf,
    /// Of the agent where they are delivered.
    pub(crate) subscribe: PathBuf,
    /// Keep receipts, to know what is confirmed as it happens.
    pub(crate) receipts: bool,
    /// Read all fields of an event, not only its payload.
    pub(crate) typed: bool,
    /// Publish every event with a call of its own, not all that are put between two flushes
    /// together.
    pub(crate) singly: bool,
}

/// A publishing client.
#[derive(Debug)]
pub(crate) struct Publisher {
    client: Client,
    event: Event,
    /// What was put and not flushed.
    batch: Batch,
    singly: bool,
    receipts: Option<VecDeque<Receipts>>,
    confirmed: u64,
}

/// A subscribing client.
#[derive(Debug)]
pub(crate) struct Subscriber {
    subscription: Subscription,
    typed: bool,
    _client: Client,
}

/// A client whose subscriptions match nothing.
#[derive(Debug)]
pub(crate) struct Bystander {
    client: Client,
    number: usize,
    _subscriptions: Vec<Subscription>,
}

async fn attach(socket: &Path) -> Result<Client> {
    let client = Client::builder(CLIENT).agent(socket).build()?;
    client.wait_connected(ANSWER_DEADLINE).await?;
    Ok(client)
}

impl WireSystem for Ftb {
    type Publisher = Publisher;
    type Subscriber = Subscriber;
    type Bystander = Bystander;

    async fn publisher(&self, _number: usize) -> Result<Publisher> {
        let client = attach(&self.publish).await?;
        let receipts = self.receipts.then(VecDeque::new);
        let (event, batch, singly) = (load_event()?, client.batch(), self.singly);
        Ok(Publisher { client, event, batch, singly, receipts, confirmed: 0 })
    }

    async fn subscriber(&self, _number: usize) -> Result<Subscriber> {
        let client = attach(&self.subscribe).await?;
        let subscribed = client.subscribe(FILTER, Start::Now);
        let subscription = tokio::time::timeout(ANSWER_DEADLINE, subscribed)
            .await
            .context("the subscription does not become active")??;
        Ok(Subscriber { subscription, typed: self.typed, _client: client })
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<Bystander> {
        let client = attach(&self.subscribe).await?;
        let filters = (0..count).map(|filter| format!("event_space=other.c{number}.s{filter}"));
        let subscribed = filters.map(|filter| {
            let client = client.clone();
            async move { client.subscribe(&filter, Start::Now).await }
        });
        let subscribed = stream::iter(subscribed).buffer_unordered(ASKED_AT_ONCE);
        let subscriptions: Vec<_> = subscribed.try_collect().await?;
        Ok(Bystander { client, number, _subscriptions: subscriptions })
    }

    async fn resubscribe(&self, bystander: &mut Bystander, change: u64) -> Result<()> {
        let filter = format!("event_space=other.c{}.x{change}", bystander.number);
        let subscribed = bystander.client.subscribe(&filter, Start::Now);
        tokio::time::timeout(ANSWER_DEADLINE, subscribed)
            .await
            .context("the subscription does not become active")??;
        Ok(())
    }

    fn message_bytes(&self, size: usize) -> usize {
        payload_bytes(size)
    }
}

impl Publish for Publisher {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let event = EventRef { payload: message, ..EventRef::from(&self.event) };
        if self.singly {
            let _ = self.client.publish_ref_wait(event).await?;
            return Ok(());
        }
        self.batch.push(event)?;
        if self.batch.bytes() >= WRITE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            let published = self.batch.publish_wait().await?;
            if let Some(receipts) = &mut self.receipts {
                receipts.push_back(published);
            }
        }
        Ok(())
    }

    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        self.flush().await?;
        let Some(receipts) = &mut self.receipts else {
            self.client.flush(ANSWER_DEADLINE).await?;
            let stats = self.client.stats();
            ensure!(stats.refused == 0, "the agent refused {} events", stats.refused);
            return Ok(stats.confirmed);
        };
        while self.confirmed < wanted {
            let oldest = receipts.pop_front().context("more is wanted than was published")?;
            tokio::time::timeout(ANSWER_DEADLINE, oldest.confirmed())
                .await
                .context("the agent stopped confirming")??;
            self.confirmed += oldest.len() as u64;
        }
        Ok(self.confirmed)
    }
}

impl Receive for Subscriber {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        match self.subscription.next_batch().await {
            Some(Deliveries::Events(events)) if self.typed => {
                events.iter().for_each(|event| see(Fields::of_view(&event).read()));
            }
            Some(Deliveries::Events(events)) => {
                events.iter().for_each(|event| see(event.payload()));
            }
            Some(Deliveries::Gap(gap)) => bail!("the agent reported of a gap: {gap:?}"),
            None => bail!("the subscription ended: {:?}", self.subscription.ended()),
        }
        Ok(())
    }
}
