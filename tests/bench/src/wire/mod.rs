//! Clients of every system under test behind one pair of traits, so that one load generator drives
//! them all in the same way. The clients of the peers speak no more than the bench needs.

use anyhow::{Context as _, Result, bail};
use bytes::BytesMut;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) mod ftb;
pub(crate) mod mqtt;
pub(crate) mod nats;
pub(crate) mod plain;
pub(crate) mod typed;
pub(crate) mod zenoh;

/// Bytes of encoded messages after which a client writes without being asked to.
const WRITE_BYTES: usize = 64 * 1024;
/// Room that is kept free for reading.
const READ_BYTES: usize = 128 * 1024;
/// Largest unread input of one connection; more means that the peer talks nonsense.
const INPUT_BYTES_MAX: usize = 16 << 20;
/// How long a server may take to answer a question.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// The publishing side of one connection.
pub(crate) trait Publish: Send + 'static {
    /// Hands one message to the client; waits when it must.
    fn put(&mut self, message: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Sees to it that everything put so far is on its way.
    fn flush(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// How many messages the server is known to have taken over, as far as this system tells. Waits
    /// until it is at least `wanted`.
    fn acknowledged(&mut self, wanted: u64) -> impl Future<Output = Result<u64>> + Send;
}

/// The subscribing side of one connection.
pub(crate) trait Receive: Send + 'static {
    /// Waits for messages and shows each that is there. Safe to abandon between messages.
    fn receive(
        &mut self,
        see: &mut (impl FnMut(&[u8]) + Send),
    ) -> impl Future<Output = Result<()>> + Send;
}

/// One system under test, as a load generator sees it.
pub(crate) trait System: Send + Sync + 'static {
    /// Its publishing side.
    type Publisher: Publish;
    /// Its subscribing side.
    type Subscriber: Receive;
    /// What keeps subscriptions alive that match nothing.
    type Bystander: Send + 'static;

    /// Connects publisher number `number`.
    fn publisher(&self, number: usize) -> impl Future<Output = Result<Self::Publisher>> + Send;

    /// Connects subscriber number `number`; it gets everything published from then on.
    fn subscriber(&self, number: usize) -> impl Future<Output = Result<Self::Subscriber>> + Send;

    /// Connects one client with `count` subscriptions that match nothing that is published.
    fn bystander(
        &self,
        number: usize,
        count: usize,
    ) -> impl Future<Output = Result<Self::Bystander>> + Send;

    /// Takes one more subscription for that client, waits until it is active, and gives it up.
    fn resubscribe(
        &self,
        bystander: &mut Self::Bystander,
        change: u64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// How large the message handed to [`Publish::put`] is, so that what the publisher sends as one
    /// event has `size` bytes.
    fn message_bytes(&self, size: usize) -> usize {
        size
    }
}

/// A TCP connection with a buffer in each direction.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    /// What was read and not yet understood.
    pub(crate) input: BytesMut,
    /// What is to be written.
    pub(crate) output: Vec<u8>,
}

impl Line {
    /// Connects to a loopback port without Nagle's delay.
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("nothing answers at port {port}"))?;
        stream.set_nodelay(true)?;
        let output = Vec::with_capacity(2 * WRITE_BYTES);
        Ok(Self { stream, input: BytesMut::with_capacity(READ_BYTES), output })
    }

    /// Writes when enough has come together.
    pub(crate) async fn write_if_full(&mut self) -> Result<()> {
        if self.output.len() >= WRITE_BYTES { self.write().await } else { Ok(()) }
    }

    /// Writes everything.
    pub(crate) async fn write(&mut self) -> Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await.context("the server hung up")?;
            self.output.clear();
        }
        Ok(())
    }

    /// Reads at least one byte. Safe to abandon.
    pub(crate) async fn read(&mut self) -> Result<()> {
        self.make_room()?;
        if self.stream.read_buf(&mut self.input).await? == 0 {
            bail!("the server hung up");
        }
        Ok(())
    }

    /// Reads what is there; whether it was anything.
    pub(crate) fn read_waiting(&mut self) -> Result<bool> {
        self.make_room()?;
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => bail!("the server hung up"),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn make_room(&mut self) -> Result<()> {
        if self.input.len() > INPUT_BYTES_MAX {
            bail!("the server sent {} bytes that make no message", self.input.len());
        }
        self.input.reserve(READ_BYTES);
        Ok(())
    }
}

/// Waits for an answer, but not for ever.
pub(crate) async fn answer<T>(what: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(ANSWER_DEADLINE, wait)
        .await
        .with_context(|| format!("no answer to {what} within {ANSWER_DEADLINE:?}"))?
}
