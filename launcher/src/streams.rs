//! The standard streams between nodes: a TCP service of the job launcher that takes the output of
//! each launch agent and gives standard input to the node of rank 0.
//!
//! After the greeting ([`super::secret`]) a client sends `OUTPUT NODE` or `INPUT NODE` and gets
//! `OK` or `ERR reason`. Output is frames ([`super::output`]) until the agent closes. Input is
//! plain bytes until the launcher's standard input ends; the client acknowledges bytes with decimal
//! numbers, one a line. Unacknowledged input goes to the next client, when rank 0 moves. A slow
//! reader blocks the writer; nothing is dropped.

use super::output;
use super::secret::{self, HELLO_WAIT, Secret};
use bytes::{Buf as _, Bytes};
use core::time::Duration;
use ftb_launcher_core::names::NODES_MAX;
use ftb_launcher_pods::input::JobInput;
use ftb_launcher_pods::output::{FRAME_BYTES_MAX, Frame};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc};

/// Most connections: one of output and one of input for each node.
pub const CONNECTIONS_MAX: usize = 2 * NODES_MAX;
/// Most chunks of standard input that wait for rank 0.
const INPUT_CHUNKS_MAX: usize = 4;
const INPUT_CHUNK_BYTES: usize = 64 * 1024;

/// Most unacknowledged bytes of standard input.
const UNTAKEN_BYTES_MAX: usize = 256 * 1024;
/// Longest line of a client of input.
const TAKEN_LINE_BYTES_MAX: usize = 32;

/// Standard input on its way to rank 0. Read from the first request on.
#[derive(Debug)]
pub struct StdinSource(Mutex<Source>);

/// Standard input that was read and not acknowledged.
#[derive(Debug, Default)]
struct Source {
    chunks: Option<mpsc::Receiver<Bytes>>,
    untaken: VecDeque<Bytes>,
    ended: bool,
}

impl Source {
    /// Whether there is room for more.
    fn wants(&self) -> bool {
        let bytes: usize = self.untaken.iter().map(Bytes::len).sum();
        !self.ended && bytes < UNTAKEN_BYTES_MAX
    }

    /// The next bytes; `None` at the end. Cancel-safe.
    async fn next(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.get_or_insert_with(read_stdin).recv().await;
        self.ended = chunk.is_none();
        self.untaken.extend(chunk.clone());
        chunk
    }

    /// Drops acknowledged bytes.
    fn taken(&mut self, mut bytes: usize) {
        while let Some(first) = self.untaken.front_mut().filter(|_| bytes > 0) {
            let some = bytes.min(first.len());
            first.advance(some);
            bytes -= some;
            if first.is_empty() {
                self.untaken.pop_front();
            }
        }
    }
}

impl StdinSource {
    /// This process' standard input.
    pub fn new() -> Self {
        Self(Mutex::default())
    }
}

impl Default for StdinSource {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether standard input may have content: it is neither closed nor `/dev/null`, nor a terminal of
/// another foreground job.
pub fn input_wanted() -> bool {
    use std::io::IsTerminal as _;
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let foreground = nix::unistd::tcgetpgrp(&stdin);
        return foreground.is_ok_and(|group| group == nix::unistd::getpgrp());
    }
    let null = std::fs::metadata("/dev/null");
    let own = nix::sys::stat::fstat(&stdin);
    match (own, null) {
        (Ok(own), Ok(null)) => {
            use std::os::linux::fs::MetadataExt as _;
            own.st_rdev != null.st_rdev() || own.st_mode & 0o170_000 != 0o020_000
        }
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

/// Reads standard input on a thread; there is no other way to wait for it.
fn read_stdin() -> mpsc::Receiver<Bytes> {
    let (to, from) = mpsc::channel(INPUT_CHUNKS_MAX);
    tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        let mut chunk = vec![0; INPUT_CHUNK_BYTES];
        loop {
            match std::io::stdin().read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(got) => {
                    if to.blocking_send(Bytes::copy_from_slice(&chunk[..got])).is_err() {
                        return;
                    }
                }
            }
        }
    });
    from
}

/// Serves until it is dropped; output goes to `frames`. A misbehaving connection is closed and
/// logged.
pub async fn serve(
    listener: TcpListener,
    secret: Secret,
    frames: mpsc::Sender<Frame>,
    input: Arc<StdinSource>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (secret, frames, input) = (secret.clone(), frames.clone(), Arc::clone(&input));
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = answer(stream, &secret, frames, &input).await {
                tracing::warn!(%peer, %error, "a stream of a node broke");
            }
        });
    }
}

async fn answer(
    mut stream: TcpStream,
    secret: &Secret,
    frames: mpsc::Sender<Frame>,
    input: &StdinSource,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let words = secret.hear(&mut stream).await?;
    let (reader, mut writer) = stream.into_split();
    let reader = BufReader::with_capacity(FRAME_BYTES_MAX, reader);
    let wanted = words.map(|words| words.split(' ').next().unwrap_or_default().to_owned());
    match wanted.as_deref() {
        Ok("OUTPUT") => {
            writer.write_all(b"OK\n").await?;
            output::receive(reader, frames).await
        }
        Ok("INPUT") => {
            writer.write_all(b"OK\n").await?;
            give_input(input, reader, writer).await
        }
        Ok(_) => writer.write_all(b"ERR expected OUTPUT or INPUT\n").await,
        Err(reason) => writer.write_all(format!("ERR {reason}\n").as_bytes()).await,
    }
}

/// Serves one reader at a time. A second one (rank 0 has moved) waits for the end of the first, and
/// begins with unacknowledged input.
async fn give_input(
    input: &StdinSource,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut source = input.0.lock().await;
    let mut open = true;
    for chunk in source.untaken.clone() {
        open = open && writer.write_all(&chunk).await.is_ok();
    }
    if source.ended {
        open = open && writer.shutdown().await.is_ok();
    }
    let (mut line, mut some) = (Vec::new(), [0_u8; TAKEN_LINE_BYTES_MAX]);
    loop {
        tokio::select! {
            // A closed client may have sent acknowledgements before: it is read to its end.
            chunk = source.next(), if open && source.wants() => open = match chunk {
                Some(chunk) => writer.write_all(&chunk).await.is_ok(),
                None => writer.shutdown().await.is_ok(),
            },
            got = reader.read(&mut some) => match got {
                Ok(0) | Err(_) => return Ok(()),
                Ok(got) => {
                    for byte in &some[..got] {
                        match byte {
                            b'\n' => source.taken(number(&core::mem::take(&mut line))?),
                            _ => line.push(*byte),
                        }
                    }
                    if line.len() > TAKEN_LINE_BYTES_MAX {
                        return Err(io::Error::other("a line without an end"));
                    }
                }
            },
        }
    }
}

fn number(line: &[u8]) -> io::Result<usize> {
    let number = core::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    number.ok_or_else(|| io::Error::other("expected a number of acknowledged bytes"))
}

/// Connects to the launcher's service with `words`, such as `OUTPUT node01`.
///
/// # Errors
/// No launcher listens, or it refuses.
pub async fn connect(address: &str, secret: &Secret, words: &str) -> io::Result<TcpStream> {
    let connected = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        secret.say(&mut stream, words).await?;
        match secret::read_line(&mut stream).await?.as_str() {
            "OK" => Ok(stream),
            refused => Err(io::Error::other(refused.to_owned())),
        }
    };
    tokio::time::timeout(HELLO_WAIT, connected).await?
}

/// Connects for the standard input of the job.
pub async fn input(address: &str, secret: &Secret, node: &str) -> io::Result<JobInput> {
    connect(address, secret, &format!("INPUT {node}")).await.map(JobInput::new)
}

/// Copies standard input from the launcher to a rank until its end.
///
/// # Errors
/// The connection, or the rank's pipe.
pub async fn feed(
    address: &str,
    secret: &Secret,
    node: &str,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut fed = input(address, secret, node).await?;
    let mut chunk = vec![0; INPUT_CHUNK_BYTES];
    loop {
        let got = fed.read(&mut chunk).await?;
        if got == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..got]).await?;
        fed.taken(got).await?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn clients_without_the_secret_are_rejected_and_frames_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (frames, mut got) = mpsc::channel(4);
        let secret = Secret::new("right");
        tokio::spawn(serve(listener, secret.clone(), frames, Arc::new(StdinSource::new())));
        let refused = connect(&address, &Secret::new("wrong"), "OUTPUT node01").await;
        assert!(refused.unwrap_err().to_string().contains("wrong key"));
        let refused = connect(&address, &secret, "DANCE node01").await;
        assert!(refused.unwrap_err().to_string().contains("expected OUTPUT"));
        let mut stream = connect(&address, &secret, "OUTPUT node01").await.unwrap();
        stream.write_all(b"o 3 3\nhi\n").await.unwrap();
        let frame = got.recv().await.unwrap();
        assert_eq!((frame.rank, frame.bytes.as_slice()), (3, &b"hi\n"[..]));
    }

    /// Nothing is lost and nothing comes twice.
    #[tokio::test]
    async fn the_next_client_begins_with_what_the_last_has_not_handed_on() {
        let (to, chunks) = mpsc::channel(4);
        let source = Source { chunks: Some(chunks), ..Source::default() };
        let input = Arc::new(StdinSource(Mutex::new(source)));
        let client = |input: &Arc<StdinSource>| {
            let (ours, theirs) = tokio::io::duplex(64);
            let input = Arc::clone(input);
            let (reader, writer) = tokio::io::split(theirs);
            (ours, tokio::spawn(async move { give_input(&input, reader, writer).await }))
        };
        for text in ["one ", "two ", "three"] {
            to.send(Bytes::from_static(text.as_bytes())).await.unwrap();
        }
        drop(to);
        let (mut first, given) = client(&input);
        let mut all = String::new();
        first.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "one two three");
        first.write_all(b"3\n2\n").await.unwrap();
        first.shutdown().await.unwrap();
        given.await.unwrap().unwrap();
        let (mut second, given) = client(&input);
        let mut rest = String::new();
        second.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "wo three");
        second.write_all(b"nonsense\n").await.unwrap();
        assert!(given.await.unwrap().is_err());
    }
}
