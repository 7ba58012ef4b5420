//! Connections between the processes of a job: handshake, frames, and the listener of a process.
//! The bytes are those of [`ftb_launcher_core::link::cipher`].
//!
//! The first frame of a dialer says what the connection is for ([`Purpose`]).

use crate::transfer::{self, ImageServer};
use core::time::Duration;
use ftb_launcher_core::link::cipher::{
    BODY_BYTES_MAX, HEAD_BYTES, HELLO_BYTES, Handshake, NONCE_BYTES, Opener, PROOF_BYTES, Sealer,
    Secret, Side,
};
use ftb_launcher_core::names::NODES_MAX;
use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Deadline of a dialer for connection, handshake and purpose.
const DIAL_WAIT: Duration = Duration::from_secs(10);
/// The same for an edge of the launch tree: a node must get past a launch agent that hangs before
/// the JL counts it as lost.
const TREE_DIAL_WAIT: Duration = Duration::from_secs(2);
/// Most handshakes of a listener; a further one ends the oldest.
const HANDSHAKES_MAX: usize = 128;
/// Deadline of a listener for handshake and purpose.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(2);
/// No other handshake ends one that is younger.
const HANDSHAKE_MIN: Duration = Duration::from_millis(100);
/// Least time between two log lines of a listener about refused connections.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Most served connections of processes of the job; others wait.
const CONNECTIONS_MAX: usize = 2 * NODES_MAX;
/// Open files that suffice for the largest job.
const FILES: u64 = 65_536;
/// A peer of a [`BlockingConnection`] that moves no byte for this long is dropped.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// Bytes that are sealed together.
const CHUNK_BYTES: usize = 64 * 1024;

/// The first frame of a dialer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is an edge of the launch tree.
    Tree,
    /// Another JL listens at this address; nothing follows.
    Launcher(String),
    /// An image, answered in frames ([`transfer`]).
    Image(String),
}

impl Purpose {
    fn line(&self) -> String {
        match self {
            Self::Tree => "tree".to_owned(),
            Self::Launcher(address) => format!("launcher {address}"),
            Self::Image(words) => format!("image {words}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let rest = |word| line.strip_prefix(word).map(str::to_owned);
        let launcher = || rest("launcher ").map(Self::Launcher);
        let image = || rest("image ").map(Self::Image);
        (line == "tree").then_some(Self::Tree).or_else(launcher).or_else(image)
    }
}

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
        connection.writer.write(purpose.line().as_bytes()).await?;
        Ok(connection)
    };
    let wait = if *purpose == Purpose::Tree { TREE_DIAL_WAIT } else { DIAL_WAIT };
    tokio::time::timeout(wait, connected).await?
}

async fn accept(stream: TcpStream, secret: &Secret) -> io::Result<(Connection, Purpose)> {
    let accepted = async {
        let mut connection = shake_hands(stream, secret, Side::Listener).await?;
        let line = connection.reader.read().await?;
        let purpose = core::str::from_utf8(&line).ok().and_then(Purpose::parse);
        let purpose = purpose.ok_or_else(|| io::Error::other("an unknown purpose"))?;
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

/// A connection, or a word about another JL, for the task of the tree.
pub enum FromListener {
    Tree(Connection),
    Launcher(String),
}

/// Handshakes of a listener. Strangers can hold at most [`HANDSHAKES_MAX`] descriptors.
#[derive(Default)]
struct Handshakes {
    tasks: JoinSet<()>,
    /// The oldest first.
    started: VecDeque<(Instant, AbortHandle)>,
    refused: Refused,
}

/// Counts refused connections, so that a stranger that connects often does not fill the log: the
/// first one is logged at once, further ones as one line each [`REPORT_EVERY`].
#[derive(Clone, Default)]
struct Refused(Arc<Mutex<RefusedCount>>);

#[derive(Default)]
struct RefusedCount {
    count: u64,
    /// Earliest time of the next line.
    next: Option<Instant>,
}

impl RefusedCount {
    /// How many to log now, if any.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + REPORT_EVERY);
        Some(core::mem::take(&mut self.count))
    }
}

impl Refused {
    fn report(&self, last: &dyn core::fmt::Display) {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now());
        if let Some(count) = counted {
            tracing::warn!(count, %last, "connections were refused");
        }
    }
}

impl Handshakes {
    fn begin(&mut self, handshake: impl Future<Output = ()> + Send + 'static) {
        self.started.push_back((Instant::now(), self.tasks.spawn(handshake)));
    }

    /// Waits until there is room for another one.
    async fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.started.retain(|(_, task)| !task.is_finished());
        while self.tasks.len() >= HANDSHAKES_MAX
            && let Some((started, oldest)) = self.started.pop_front()
        {
            let ends = self.tasks.join_next();
            if tokio::time::timeout_at(started + HANDSHAKE_MIN, ends).await.is_ok() {
                self.started.push_front((started, oldest));
                continue;
            }
            self.refused.report(&"it was ended to make room");
            oldest.abort();
            self.tasks.join_next().await;
        }
    }
}

/// Serves a listener until it is dropped. A misbehaving peer is dropped and logged.
pub async fn serve(
    listener: TcpListener,
    secret: Secret,
    images: ImageServer,
    tree: mpsc::Sender<FromListener>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut handshakes = Handshakes::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        handshakes.make_room().await;
        let (secret, images, tree) = (secret.clone(), images.clone(), tree.clone());
        let (places, refused) = (Arc::clone(&places), handshakes.refused.clone());
        handshakes.begin(async move {
            match accept(stream, &secret).await {
                Ok((connection, purpose)) => drop(tokio::spawn(async move {
                    let _place = places.acquire_owned().await;
                    if let Err(error) = attend(connection, purpose, &images, &tree).await {
                        // Its process has ended or was stopped.
                        tracing::info!(%peer, %error, "a connection of the job failed");
                    }
                })),
                Err(error) => refused.report(&format_args!("{peer}: {error}")),
            }
        });
    }
}

/// Serves a connection of a process of the job.
async fn attend(
    connection: Connection,
    purpose: Purpose,
    images: &ImageServer,
    tree: &mpsc::Sender<FromListener>,
) -> io::Result<()> {
    let to_tree = match purpose {
        Purpose::Image(words) => return transfer::answer(connection, &words, images).await,
        Purpose::Tree => FromListener::Tree(connection),
        Purpose::Launcher(address) => FromListener::Launcher(address),
    };
    let _ = tree.send(to_tree).await;
    Ok(())
}

/// Raises the limit of open files: other nodes connect to this process. With fewer files smaller
/// jobs still run. The ranks inherit the limit, and some programs close all files up to it.
pub fn allow_many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(FILES)
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(FILES), hard);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn refused_connections_are_logged_at_once_and_then_once_a_minute() {
        let (mut refused, start) = (RefusedCount::default(), Instant::now());
        let logged = [0, 1, 2, 4, 5].map(|part| refused.add(start + REPORT_EVERY / 4 * part));
        assert_eq!(logged, [Some(1), None, None, Some(3), None]);
    }

    #[tokio::test]
    async fn silent_strangers_make_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tree, mut accepted) = mpsc::channel(1);
        let (secret, images) = (Secret::new("key"), ImageServer::new("/nowhere".into()));
        tokio::spawn(serve(listener, secret.clone(), images, tree));
        let mut strangers = Vec::new();
        for _ in 0..HANDSHAKES_MAX + 2 {
            strangers.push(TcpStream::connect(&address).await.unwrap());
        }
        dial(&address, &secret, &Purpose::Tree).await.unwrap();
        assert!(matches!(accepted.recv().await, Some(FromListener::Tree(_))));
        for oldest in &mut strangers[..3] {
            // Long before the deadline of its handshake.
            let mut hello = Vec::new();
            let end = tokio::time::timeout(HANDSHAKE_WAIT / 2, oldest.read_to_end(&mut hello));
            assert_eq!(end.await.unwrap().unwrap(), HELLO_BYTES);
        }
    }
}
