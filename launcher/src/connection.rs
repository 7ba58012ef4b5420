//! Connections between the processes of a job: handshake and frames. [`crate::listener`] accepts
//! them.
//! The bytes are those of [`ftb_launcher_core::link::cipher`].
//!
//! The first frame of a dialer says what the connection is for ([`Purpose`]).

use crate::image_request::{ImageAnswer, ImageRequest};
use core::time::Duration;
use ftb_launcher_core::link::cipher::{
    BODY_BYTES_MAX, HEAD_BYTES, HELLO_BYTES, Handshake, NONCE_BYTES, Opener, PROOF_BYTES, Sealer,
    Secret, Side,
};
use ftb_launcher_core::packet::PacketHead;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Handle;

/// Deadline of a dialer for connection, handshake and purpose.
const DIAL_WAIT: Duration = Duration::from_secs(10);
/// The same for an edge of the launch tree: a node must get past a launch agent that hangs before
/// the JL counts it as lost.
const TREE_DIAL_WAIT: Duration = Duration::from_secs(2);
/// Deadline of a listener for handshake and purpose.
pub(crate) const HANDSHAKE_WAIT: Duration = Duration::from_secs(2);
/// A peer of a [`BlockingConnection`] that moves no byte for this long is dropped.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// Longest answer to a request of an image, in bytes.
const ANSWER_BYTES_MAX: u64 = 4096;
/// Bytes that are sealed together.
const CHUNK_BYTES: usize = 64 * 1024;

/// The first frame of a dialer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// It is an edge of the launch tree.
    Tree,
    /// Another JL listens at this address; nothing follows.
    Launcher(String),
    /// An image, answered in frames.
    Image(ImageRequest),
}

impl PacketHead for Purpose {}

/// A connection of which both sides know the secret.
pub struct Connection {
    pub reader: FrameReader,
    pub writer: FrameWriter,
}

/// Connects.
///
/// # Errors
/// The process does not listen, or is not of this job.
pub async fn dial(address: &str, secret: &Secret, purpose: &Purpose) -> io::Result<Connection> {
    let connected = async {
        let stream = TcpStream::connect(address).await?;
        let mut connection = shake_hands(stream, secret, Side::Dialer).await?;
        connection.writer.write(&purpose.clone().encode()).await?;
        Ok(connection)
    };
    let wait = if *purpose == Purpose::Tree { TREE_DIAL_WAIT } else { DIAL_WAIT };
    tokio::time::timeout(wait, connected).await?
}

pub(crate) async fn accept(
    stream: TcpStream,
    secret: &Secret,
) -> io::Result<(Connection, Purpose)> {
    let accepted = async {
        let mut connection = shake_hands(stream, secret, Side::Listener).await?;
        let packet = connection.reader.read().await?;
        let purpose = Purpose::decode(packet.into()).map_err(io::Error::other)?;
        Ok((connection, purpose))
    };
    tokio::time::timeout(HANDSHAKE_WAIT, accepted).await?
}

async fn shake_hands(mut stream: TcpStream, secret: &Secret, side: Side) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let handshake = Handshake::new(secret.clone(), side, nonce);
    stream.write_all(&handshake.hello()).await?;
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello).await?;
    let proving = handshake.on_hello(&hello).map_err(io::Error::other)?;
    stream.write_all(&proving.proof()).await?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    let (sealer, opener) = proving.on_proof(&proof).map_err(io::Error::other)?;
    let (reader, writer) = stream.into_split();
    let reader = FrameReader { from: reader, opener };
    Ok(Connection { reader, writer: FrameWriter { to: writer, sealer, frame: Vec::new() } })
}

pub struct FrameReader {
    from: OwnedReadHalf,
    opener: Opener,
}

impl FrameReader {
    /// The body of the next frame. Not cancel-safe.
    pub async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; HEAD_BYTES];
        self.from.read_exact(&mut head).await?;
        let mut frame = vec![0; Opener::length(head).map_err(io::Error::other)?];
        self.from.read_exact(&mut frame).await?;
        self.opener.open(&mut frame).map_err(io::Error::other)?;
        Ok(frame)
    }
}

pub struct FrameWriter {
    to: OwnedWriteHalf,
    sealer: Sealer,
    frame: Vec<u8>,
}

impl FrameWriter {
    pub async fn write(&mut self, body: &[u8]) -> io::Result<()> {
        self.frame.clear();
        self.sealer.seal(body, &mut self.frame).map_err(io::Error::other)?;
        self.to.write_all(&self.frame).await
    }
}

/// A connection for a thread that may block: a stream of bytes in frames.
pub struct BlockingConnection {
    connection: Connection,
    runtime: Handle,
    /// Read and not yet taken.
    body: Vec<u8>,
    taken: usize,
    /// Written and not yet sealed.
    waiting: Vec<u8>,
}

impl BlockingConnection {
    pub fn new(connection: Connection, runtime: Handle) -> Self {
        Self { connection, runtime, body: Vec::new(), taken: 0, waiting: Vec::new() }
    }

    /// Requests an image. Its bytes follow the answer, which is one of an image.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn ask(
        server: &str,
        secret: &Secret,
        runtime: &Handle,
        request: ImageRequest,
    ) -> io::Result<(ImageAnswer, Self)> {
        let purpose = Purpose::Image(request);
        let connection = runtime.block_on(dial(server, secret, &purpose))?;
        let mut from = Self::new(connection, runtime.clone());
        loop {
            let mut packet = Vec::new();
            (&mut from).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut packet)?;
            match ImageAnswer::decode(packet.into()).map_err(io::Error::other)? {
                ImageAnswer::Wait => {}
                ImageAnswer::Refused(reason) => return Err(io::Error::other(reason)),
                answer => return Ok((answer, from)),
            }
        }
    }

    /// As [`BlockingConnection::ask`], for bytes in memory. Returns how many follow.
    ///
    /// # Errors
    /// As [`BlockingConnection::ask`].
    pub fn ask_bytes(
        server: &str,
        secret: &Secret,
        runtime: &Handle,
        request: ImageRequest,
    ) -> io::Result<(u64, Self)> {
        match Self::ask(server, secret, runtime, request)? {
            (ImageAnswer::File { bytes, .. }, from) => Ok((bytes, from)),
            (answer, _) => Err(io::Error::other(format!("expected bytes, not {answer:?}"))),
        }
    }
}

impl BufRead for BlockingConnection {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.taken == self.body.len() {
            let read = self.connection.reader.read();
            let read = async { tokio::time::timeout(STALL_MAX, read).await? };
            self.body = self.runtime.block_on(read)?;
            self.taken = 0;
        }
        Ok(&self.body[self.taken..])
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
    }
}

impl Read for BlockingConnection {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = Read::read(&mut self.fill_buf()?, to)?;
        self.consume(got);
        Ok(got)
    }
}

impl Write for BlockingConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(BODY_BYTES_MAX - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..some]);
        if self.waiting.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            let write = self.connection.writer.write(&self.waiting);
            let write = async { tokio::time::timeout(STALL_MAX, write).await? };
            self.runtime.block_on(write)?;
            self.waiting.clear();
        }
        Ok(())
    }
}
