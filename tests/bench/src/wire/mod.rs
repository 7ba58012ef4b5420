//! Clients of every system under test behind common traits, so that one load generator drives all.
//! NATS and MQTT are driven through their own client libraries.

use anyhow::{Context as _, Result};
use std::time::Duration;

pub(crate) mod ftb;
pub(crate) mod mqtt;
pub(crate) mod nats;
pub(crate) mod plain;
pub(crate) mod typed;
pub(crate) mod zenoh;

/// Bytes of messages after which a client writes without being asked to.
const WRITE_BYTES: usize = 64 * 1024;
/// Deadline of one answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// The publishing side of one connection.
pub(crate) trait Publish: Send + 'static {
    /// Passes one message to the client; waits when the client has no room.
    fn put(&mut self, message: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Sends what was put so far.
    fn flush(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Waits until the server acknowledged at least `wanted` messages, as far as this system does;
    /// returns how many.
    fn acknowledged(&mut self, wanted: u64) -> impl Future<Output = Result<u64>> + Send;
}

/// The subscribing side of one connection.
pub(crate) trait Receive: Send + 'static {
    /// Waits for messages and passes each to `see`. Cancel-safe between messages.
    fn receive(
        &mut self,
        see: &mut (impl FnMut(&[u8]) + Send),
    ) -> impl Future<Output = Result<()>> + Send;
}

/// One system under test, as a load generator sees it.
pub(crate) trait WireSystem: Send + Sync + 'static {
    /// Its publishing side.
    type Publisher: Publish;
    /// Its subscribing side.
    type Subscriber: Receive;
    /// Keeps subscriptions alive that match nothing.
    type Bystander: Send + 'static;

    /// Connects publisher number `number`.
    fn publisher(&self, number: usize) -> impl Future<Output = Result<Self::Publisher>> + Send;

    /// Connects subscriber number `number`; it receives every message from then on.
    fn subscriber(&self, number: usize) -> impl Future<Output = Result<Self::Subscriber>> + Send;

    /// Connects one client with `count` subscriptions that match nothing that is published.
    fn bystander(
        &self,
        number: usize,
        count: usize,
    ) -> impl Future<Output = Result<Self::Bystander>> + Send;

    /// Adds a subscription to that client, waits until it is active, and removes it.
    fn resubscribe(
        &self,
        bystander: &mut Self::Bystander,
        change: u64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The size of a message for [`Publish::put`] whose event has `size` bytes.
    fn message_bytes(&self, size: usize) -> usize {
        size
    }
}

/// Waits for an answer until the deadline.
pub(crate) async fn answer<T>(what: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(ANSWER_DEADLINE, wait)
        .await
        .with_context(|| format!("no answer to {what} within {ANSWER_DEADLINE:?}"))?
}
