//! A plain relay of length-prefixed frames over TCP, both ends of it: no filter, no log, no
//! promise. It is the bound: what the sockets of this machine allow.

use super::{Publish, Receive, WireSystem};
use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, Bytes, BytesMut};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// First byte of a connection that publishes.
const PUBLISHES: u8 = b'P';
/// First byte of a connection that subscribes; the relay answers with the same byte.
const SUBSCRIBES: u8 = b'S';
/// Bytes of the length before each frame, little endian.
const LENGTH_BYTES: usize = 4;
/// Runs of frames that wait for one subscriber; behind that the publishers wait.
const QUEUE_RUNS: usize = 64;
/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 256 * 1024;
/// Largest frame.
const FRAME_BYTES_MAX: usize = 4 << 20;

type Subscribers = Arc<Mutex<Arc<Vec<mpsc::Sender<Bytes>>>>>;

/// Relays from all publishers to all subscribers, until killed.
///
/// # Errors
/// The port cannot be bound.
pub(crate) async fn relay(port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let subscribers = Subscribers::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let subscribers = Arc::clone(&subscribers);
        tokio::spawn(async move {
            // A peer that hangs up is the usual end of a connection here.
            let _ = serve(stream, &subscribers).await;
        });
    }
}

async fn serve(mut stream: TcpStream, subscribers: &Subscribers) -> Result<()> {
    stream.set_nodelay(true)?;
    match stream.read_u8().await? {
        PUBLISHES => relay_publisher(stream.into_split().0, subscribers).await,
        SUBSCRIBES => {
            let (sender, queue) = mpsc::channel(QUEUE_RUNS);
            enrol(subscribers, sender);
            stream.write_u8(SUBSCRIBES).await?;
            feed_subscriber(stream, queue).await
        }
        other => bail!("a connection began with {other:#04x}"),
    }
}

/// Replaces the list by one that has the newcomer and not those who have gone.
fn enrol(subscribers: &Subscribers, sender: mpsc::Sender<Bytes>) {
    let mut list = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
    let others = list.iter().filter(|other| !other.is_closed()).cloned();
    let all = others.chain([sender]).collect();
    *list = Arc::new(all);
}

async fn relay_publisher(mut stream: OwnedReadHalf, subscribers: &Subscribers) -> Result<()> {
    let mut input = BytesMut::with_capacity(WRITE_BYTES);
    loop {
        input.reserve(WRITE_BYTES / 2);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let whole = whole_frames(&input)?;
        if whole > 0 {
            let run = input.split_to(whole).freeze();
            let list = Arc::clone(&subscribers.lock().unwrap_or_else(PoisonError::into_inner));
            for subscriber in list.iter() {
                // A subscriber that is gone is dropped from the list when the next one comes.
                let _ = subscriber.send(run.clone()).await;
            }
        }
    }
}

/// How many leading bytes are complete frames.
fn whole_frames(input: &[u8]) -> Result<usize> {
    let mut end = 0;
    while let Some(head) = input[end..].first_chunk::<LENGTH_BYTES>() {
        let frame = u32::from_le_bytes(*head) as usize;
        if frame > FRAME_BYTES_MAX {
            bail!("a frame of {frame} bytes");
        }
        if input.len() - end - LENGTH_BYTES < frame {
            break;
        }
        end += LENGTH_BYTES + frame;
    }
    Ok(end)
}

async fn feed_subscriber(mut stream: TcpStream, mut queue: mpsc::Receiver<Bytes>) -> Result<()> {
    let mut gathered = Vec::with_capacity(WRITE_BYTES);
    while let Some(mut run) = queue.recv().await {
        while let Ok(next) = queue.try_recv() {
            gathered.extend_from_slice(&run);
            run = next;
            if gathered.len() >= WRITE_BYTES {
                break;
            }
        }
        if !gathered.is_empty() {
            stream.write_all(&gathered).await?;
            gathered.clear();
        }
        stream.write_all(&run).await?;
    }
    Ok(())
}

/// The relay at a port.
#[derive(Debug)]
pub(crate) struct Plain {
    /// On loopback.
    pub(crate) port: u16,
}

/// Either side of a connection to it.
#[derive(Debug)]
pub(crate) struct PlainLine {
    stream: TcpStream,
    /// Bytes that were read and are no whole frame yet.
    input: BytesMut,
    /// Bytes to write.
    output: Vec<u8>,
    put: u64,
}

impl Plain {
    async fn connect(&self, side: u8) -> Result<PlainLine> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .await
            .with_context(|| format!("nothing answers at port {}", self.port))?;
        stream.set_nodelay(true)?;
        stream.write_u8(side).await?;
        let (input, output) = (BytesMut::new(), Vec::with_capacity(2 * super::WRITE_BYTES));
        Ok(PlainLine { stream, input, output, put: 0 })
    }
}

impl PlainLine {
    /// Reads at least one byte. Cancel-safe.
    async fn read(&mut self) -> Result<()> {
        self.input.reserve(WRITE_BYTES / 2);
        if self.stream.read_buf(&mut self.input).await? == 0 {
            bail!("the relay hung up");
        }
        Ok(())
    }
}

impl WireSystem for Plain {
    type Publisher = PlainLine;
    type Subscriber = PlainLine;
    type Bystander = ();

    async fn publisher(&self, _number: usize) -> Result<PlainLine> {
        self.connect(PUBLISHES).await
    }

    async fn subscriber(&self, _number: usize) -> Result<PlainLine> {
        let mut connected = self.connect(SUBSCRIBES).await?;
        connected.read().await.context("the relay did not take the subscriber")?;
        connected.input.advance(1);
        Ok(connected)
    }

    async fn bystander(&self, _number: usize, _count: usize) -> Result<()> {
        bail!("the plain relay has no filters")
    }

    async fn resubscribe(&self, _bystander: &mut (), _change: u64) -> Result<()> {
        bail!("the plain relay has no filters")
    }
}

impl Publish for PlainLine {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let length = u32::try_from(message.len()).context("the message is too large")?;
        self.output.extend_from_slice(&length.to_le_bytes());
        self.output.extend_from_slice(message);
        self.put += 1;
        if self.output.len() >= super::WRITE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.output).await.context("the relay hung up")?;
        self.output.clear();
        Ok(())
    }

    /// The relay acknowledges nothing: written messages count.
    async fn acknowledged(&mut self, _wanted: u64) -> Result<u64> {
        self.flush().await?;
        Ok(self.put)
    }
}

impl Receive for PlainLine {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        self.read().await?;
        let whole = whole_frames(&self.input)?;
        let mut frames = self.input.split_to(whole);
        while frames.has_remaining() {
            let frame = frames.get_u32_le() as usize;
            see(&frames.split_to(frame));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_whole_frames_are_cut() {
        let mut input = vec![2, 0, 0, 0, 7, 7, 0, 0, 0, 0, 3, 0, 0, 0, 9];
        assert_eq!(whole_frames(&input).unwrap(), 10);
        input.extend([9, 9]);
        assert_eq!(whole_frames(&input).unwrap(), 17);
        assert!(whole_frames(&[0xff; 4]).is_err());
    }
}
