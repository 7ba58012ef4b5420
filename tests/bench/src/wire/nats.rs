//! NATS through its own client, `async-nats`: core publishing and subscribing, and JetStream's
//! publishing with acknowledgements.

use super::{Publish, Receive, WireSystem, answer};
use anyhow::{Context as _, Result};
use async_nats::jetstream::{self, context::PublishAckFuture, stream};
use async_nats::{Client, ConnectOptions, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The subject of the load.
const SUBJECT: &str = "bench.load";
/// The stream that stores it under JetStream.
const STREAM: &str = "BENCH";
/// Messages that the client holds for a subscriber. A subscriber that is slower loses messages.
const SUBSCRIPTION_MESSAGES: usize = 1 << 20;
/// Messages without acknowledgement under JetStream; then the publisher waits for the oldest.
const UNACKNOWLEDGED_MAX: usize = 4096;

/// Where JetStream stores messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Storage {
    /// In memory.
    Memory,
    /// In files; written before the acknowledgement, synced every two minutes (its default).
    File,
}

/// A server at a port.
#[derive(Debug)]
pub(crate) struct Nats {
    /// On loopback.
    pub(crate) port: u16,
    /// Publish into a stream and wait for acknowledgements.
    pub(crate) stream: Option<Storage>,
}

/// A connection, with a subject of its own for markers.
pub(crate) struct NatsConnection {
    client: Client,
    marker: String,
    markers: Subscriber,
}

/// A publishing connection.
pub(crate) struct NatsPublisher {
    connection: NatsConnection,
    stream: Option<Acknowledged>,
}

/// Messages of a JetStream publisher.
struct Acknowledged {
    context: jetstream::Context,
    /// Oldest first.
    pending: VecDeque<PublishAckFuture>,
    count: u64,
}

impl Nats {
    async fn connect(&self) -> Result<NatsConnection> {
        let options = ConnectOptions::new().subscription_capacity(SUBSCRIPTION_MESSAGES);
        let address = format!("127.0.0.1:{}", self.port);
        let client = answer("CONNECT", async { Ok(options.connect(address).await?) }).await?;
        let marker = client.new_inbox();
        let markers = client.subscribe(marker.clone()).await?;
        Ok(NatsConnection { client, marker, markers })
    }
}

impl NatsConnection {
    /// Returns when the server has processed everything that this connection sent: a message to
    /// itself returns after it.
    async fn round_trip(&mut self) -> Result<()> {
        self.client.publish(self.marker.clone(), Bytes::new()).await?;
        self.client.flush().await?;
        let marker = async { self.markers.next().await.context("the server hung up") };
        answer("a marker", marker).await.map(drop)
    }
}

impl Acknowledged {
    async fn await_oldest(&mut self) -> Result<()> {
        let oldest = self.pending.pop_front().context("nothing is unacknowledged")?;
        answer("a JetStream message", async { Ok(oldest.await?) }).await?;
        self.count += 1;
        Ok(())
    }
}

impl WireSystem for Nats {
    type Publisher = NatsPublisher;
    type Subscriber = (NatsConnection, Subscriber);
    type Bystander = (NatsConnection, Vec<Subscriber>);

    async fn publisher(&self, _number: usize) -> Result<NatsPublisher> {
        let connection = self.connect().await?;
        let stream = match self.stream {
            None => None,
            Some(storage) => {
                let context = jetstream::new(connection.client.clone());
                let config = stream::Config {
                    name: STREAM.to_owned(),
                    subjects: vec![SUBJECT.to_owned()],
                    storage: match storage {
                        Storage::Memory => stream::StorageType::Memory,
                        Storage::File => stream::StorageType::File,
                    },
                    ..stream::Config::default()
                };
                context.get_or_create_stream(config).await?;
                Some(Acknowledged { context, pending: VecDeque::new(), count: 0 })
            }
        };
        Ok(NatsPublisher { connection, stream })
    }

    async fn subscriber(&self, _number: usize) -> Result<(NatsConnection, Subscriber)> {
        let mut connection = self.connect().await?;
        let subscriber = connection.client.subscribe(SUBJECT).await?;
        connection.round_trip().await?;
        Ok((connection, subscriber))
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<Self::Bystander> {
        let mut connection = self.connect().await?;
        let mut subscribers = Vec::with_capacity(count);
        for subscription in 0..count {
            let subject = format!("other.c{number}s{subscription}");
            subscribers.push(connection.client.subscribe(subject).await?);
        }
        connection.round_trip().await?;
        Ok((connection, subscribers))
    }

    async fn resubscribe(&self, bystander: &mut Self::Bystander, change: u64) -> Result<()> {
        let (connection, _) = bystander;
        let mut subscriber = connection.client.subscribe(format!("other.x{change}")).await?;
        connection.round_trip().await?;
        Ok(subscriber.unsubscribe().await?)
    }
}

impl Publish for NatsPublisher {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let message = Bytes::copy_from_slice(message);
        let Some(stream) = &mut self.stream else {
            return Ok(self.connection.client.publish(SUBJECT, message).await?);
        };
        if stream.pending.len() >= UNACKNOWLEDGED_MAX {
            stream.await_oldest().await?;
        }
        stream.pending.push_back(stream.context.publish(SUBJECT, message).await?);
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        Ok(self.connection.client.flush().await?)
    }

    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        let Some(stream) = &mut self.stream else {
            self.connection.round_trip().await?;
            return Ok(wanted);
        };
        self.connection.client.flush().await?;
        while stream.count < wanted {
            stream.await_oldest().await?;
        }
        Ok(stream.count)
    }
}

impl Receive for (NatsConnection, Subscriber) {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        let (_, subscriber) = self;
        see(&subscriber.next().await.context("the server hung up")?.payload);
        while let Some(message) = subscriber.next().now_or_never() {
            see(&message.context("the server hung up")?.payload);
        }
        Ok(())
    }
}
