//! ftb itself, through its client library as a program would use it.

use super::{ANSWER_DEADLINE, Publish, Receive, System};
use anyhow::{Context as _, Result, bail, ensure};
use ftb_client::{Client, Deliveries, Event, EventRef, Receipt, Start, Subscription, event};
use ftb_proto::event::encode_event;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// What the load publishes.
const SPACE: &str = "ftb.bench.load";
const NAME: &str = "LOAD";
const CLIENT: &str = "bench";
/// What the load's subscribers want.
const FILTER: &str = "event_space=ftb.bench.*";
/// Subscriptions of a bystander that are asked for at once.
const ASKED_AT_ONCE: usize = 64;
/// Bytes of the key and the length of a payload up to 127, 16,383 and 2,097,151 bytes.
const PAYLOAD_HEADS: [(usize, usize); 3] = [(127, 2), (16_383, 3), (2_097_151, 4)];

/// Agents behind two sockets.
#[derive(Debug)]
pub(crate) struct Ftb {
    /// Of the agent where events enter.
    pub(crate) publish: PathBuf,
    /// Of the agent where they are delivered.
    pub(crate) subscribe: PathBuf,
    /// Keep receipts, to know what is confirmed as it happens.
    pub(crate) receipts: bool,
}

/// A publishing client.
#[derive(Debug)]
pub(crate) struct Publisher {
    client: Client,
    event: Event,
    receipts: Option<VecDeque<Receipt>>,
    confirmed: u64,
}

/// A subscribing client.
#[derive(Debug)]
pub(crate) struct Subscriber {
    subscription: Subscription,
    _client: Client,
}

/// The event of the load, still without payload.
fn load_event() -> Result<Event> {
    let mut event = event(SPACE, NAME)?.build();
    event.client_name = CLIENT.to_owned();
    Ok(event)
}

async fn attach(socket: &Path) -> Result<Client> {
    let client = Client::builder(CLIENT).agent(socket).build()?;
    client.wait_connected(ANSWER_DEADLINE).await?;
    Ok(client)
}

impl System for Ftb {
    type Publisher = Publisher;
    type Subscriber = Subscriber;
    type Bystander = Vec<Subscription>;

    async fn publisher(&self, _number: usize) -> Result<Publisher> {
        let client = attach(&self.publish).await?;
        let receipts = self.receipts.then(VecDeque::new);
        Ok(Publisher { client, event: load_event()?, receipts, confirmed: 0 })
    }

    async fn subscriber(&self, _number: usize) -> Result<Subscriber> {
        let client = attach(&self.subscribe).await?;
        let subscribed = client.subscribe(FILTER, Start::Now);
        let subscription = tokio::time::timeout(ANSWER_DEADLINE, subscribed)
            .await
            .context("the subscription does not become active")??;
        Ok(Subscriber { subscription, _client: client })
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<Vec<Subscription>> {
        let client = attach(&self.subscribe).await?;
        let filters = (0..count).map(|filter| format!("event_space=other.c{number}.s{filter}"));
        let subscribed = filters.map(|filter| {
            let client = client.clone();
            async move { client.subscribe(&filter, Start::Now).await }
        });
        Ok(stream::iter(subscribed).buffer_unordered(ASKED_AT_ONCE).try_collect().await?)
    }

    fn message_bytes(&self, size: usize) -> usize {
        let Ok(mut event) = load_event() else { return size };
        event.time_ns = 1;
        let room = size.saturating_sub(encode_event(&event).len());
        let fits =
            |(max, head): &(usize, usize)| room.checked_sub(*head).filter(|payload| payload <= max);
        PAYLOAD_HEADS.iter().find_map(fits).unwrap_or(0)
    }
}

impl Publish for Publisher {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let event = EventRef { payload: message, ..EventRef::from(&self.event) };
        let receipt = self.client.publish_ref_wait(event).await?;
        if let Some(receipts) = &mut self.receipts {
            receipts.push_back(receipt);
        }
        Ok(())
    }

    /// The client hands events over by itself.
    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        let Some(receipts) = &mut self.receipts else {
            self.client.flush(ANSWER_DEADLINE).await?;
            let stats = self.client.stats();
            ensure!(stats.refused == 0, "the agent refused {} events", stats.refused);
            return Ok(stats.confirmed);
        };
        while self.confirmed < wanted {
            let receipt = receipts.pop_front().context("more is wanted than was published")?;
            tokio::time::timeout(ANSWER_DEADLINE, receipt.confirmed())
                .await
                .context("the agent stopped confirming")??;
            self.confirmed += 1;
        }
        Ok(self.confirmed)
    }
}

impl Receive for Subscriber {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        match self.subscription.next_batch().await {
            Some(Deliveries::Events(events)) => {
                events.iter().for_each(|event| see(event.payload()))
            }
            Some(Deliveries::Gap(gap)) => bail!("the agent told of a gap: {gap:?}"),
            None => bail!("the subscription ended: {:?}", self.subscription.ended()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;

    #[test]
    fn an_event_has_the_size_that_was_asked_for() {
        let system = Ftb { publish: PathBuf::new(), subscribe: PathBuf::new(), receipts: false };
        for size in [64, 200, 4096, 65_536] {
            let mut event = load_event().unwrap();
            event.time_ns = u64::MAX;
            event.payload = Bytes::from(vec![0; system.message_bytes(size)]);
            assert_eq!(encode_event(&event).len(), size);
        }
    }
}
