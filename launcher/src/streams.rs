//! The standard streams of the ranks between nodes: a TCP service of the job launcher that takes the output of each
//! launch agent and gives standard input to the one that runs rank 0.
//!
//! After the greeting ([`super::secret`]) a client says `OUTPUT NODE` or `INPUT NODE` and is answered `OK` or
//! `ERR reason`. Output is a sequence of frames ([`super::output`]) until the agent closes; input is plain bytes until
//! the launcher's own standard input ends, and the client says how many it has handed on, a decimal number a line: what
//! it has not goes to the next client, where rank 0 moves. Whoever reads slowly holds who writes: nothing is dropped.

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

/// Most connections at a time: one of output and one of input for each node.
pub const CONNECTIONS_MAX: usize = 2 * NODES_MAX;
/// Chunks of standard input that wait for rank 0.
const INPUT_CHUNKS_MAX: usize = 4;
const INPUT_CHUNK_BYTES: usize = 64 * 1024;

/// Most bytes of standard input that were sent and not handed on yet.
const UNTAKEN_BYTES_MAX: usize = 256 * 1024;
/// Longest line of a client of input.
const TAKEN_LINE_BYTES_MAX: usize = 32;

/// Standard input on its way to rank 0. Read from the first time that somebody wants it.
#[derive(Debug)]
pub struct Input(Mutex<Source>);

/// What has been read of standard input and is not with rank 0 yet.
#[derive(Debug, Default)]
struct Source {
    chunks: Option<mpsc::Receiver<Bytes>>,
    untaken: VecDeque<Bytes>,
    /// There is no more to read.
    ended: bool,
}

impl Source {
    /// There is room for more.
    fn wants(&self) -> bool {
        let bytes: usize = self.untaken.iter().map(Bytes::len).sum();
        !self.ended && bytes < UNTAKEN_BYTES_MAX
    }

    /// The next bytes; none at the end. Cancel-safe.
    async fn next(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.get_or_insert_with(read_stdin).recv().await;
        self.ended = chunk.is_none();
        self.untaken.extend(chunk.clone());
        chunk
    }

    /// So many bytes are with rank 0.
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

impl Input {
    /// This process' standard input.
    pub fn new() -> Self {
        Self(Mutex::default())
    }
}

impl Default for Input {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether standard input has anything to say: it is neither closed nor `/dev/null`, and no terminal that another
/// job of the shell reads from.
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

/// Reads standard input in a thread of its own: it cannot be waited for in any other way.
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

/// Serves until it is dropped; output goes to `frames`. A connection that misbehaves is dropped and logged.
pub async fn serve(
    listener: TcpListener,
    secret: Secret,
    frames: mpsc::Sender<Frame>,
    input: Arc<Input>,
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
    input: &Input,
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

/// One reader at a time: a second one, where rank 0 has moved, waits until the first is gone, and begins with what that
/// one has not handed on.
async fn give_input(
    input: &Input,
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
            // A client that is gone may have said more than was heard of it: it is read to its end.
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
    number.ok_or_else(|| io::Error::other("expected how many bytes were handed on"))
}

/// Connects to the launcher's service for `words`, such as `OUTPUT node01`.
///
/// # Errors
/// Nobody is there, or it refuses.
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

/// Connects for the standard input of the job. `address` and `node` as for [`connect`].
///
/// # Errors
/// See [`connect`].
pub async fn input(address: &str, secret: &Secret, node: &str) -> io::Result<JobInput> {
    connect(address, secret, &format!("INPUT {node}")).await.map(JobInput::new)
}

/// Copies standard input from the launcher to a rank until it ends.
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
    async fn strangers_are_turned_away_and_frames_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (frames, mut got) = mpsc::channel(4);
        let secret = Secret::new("right");
        tokio::spawn(serve(listener, secret.clone(), frames, Arc::new(Input::new())));
        let refused = connect(&address, &Secret::new("wrong"), "OUTPUT node01").await;
        assert!(refused.unwrap_err().to_string().contains("wrong key"));
        let refused = connect(&address, &secret, "DANCE node01").await;
        assert!(refused.unwrap_err().to_string().contains("expected OUTPUT"));
        let mut stream = connect(&address, &secret, "OUTPUT node01").await.unwrap();
        stream.write_all(b"o 3 3\nhi\n").await.unwrap();
        let frame = got.recv().await.unwrap();
        assert_eq!((frame.rank, frame.bytes.as_slice()), (3, &b"hi\n"[..]));
    }

    /// What one client has not handed on is what the next begins with; nothing is lost and nothing comes twice.
    #[tokio::test]
    async fn the_next_client_begins_with_what_the_last_has_not_handed_on() {
        let (to, chunks) = mpsc::channel(4);
        let source = Source { chunks: Some(chunks), ..Source::default() };
        let input = Arc::new(Input(Mutex::new(source)));
        let client = |input: &Arc<Input>| {
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
