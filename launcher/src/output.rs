//! The output of ranks: framed in the NLA onto a TCP connection to the JL ([`super::streams`]), and
//! printed there.
//!
//! A frame is a line `o RANK LENGTH` or `e RANK LENGTH` and the bytes. A slow reader blocks the
//! ranks; nothing is dropped. Without a JL the NLA writes to a file up to a limit and counts what
//! it drops, because the ranks must go on. The next JL gets the file (frames `k`) and then new
//! output.

use crate::console;
use crate::progress::Wiper;
use crate::secret::Secret;
use crate::streams;
use ftb_launcher_pods::output::{FRAME_BYTES_MAX, Frame, Stream};
use std::path::PathBuf;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

/// Most frames that wait in the NLA; further ones block the ranks.
pub const FRAMES_MAX: usize = 64;
/// Largest file of an NLA without a JL in bytes.
pub const SPILL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The target of an NLA's frames.
#[derive(Debug)]
pub struct OutputTarget {
    /// The address of the JL; sent again whenever a JL shows that it lives.
    pub address: watch::Receiver<String>,
    pub secret: Secret,
    pub node: String,
    /// The file for the time without a JL.
    pub spill: PathBuf,
}

/// Writes frames to the JL, or to the file without one, until all senders are gone. Returns the
/// connection; closing it ends the output.
pub async fn write(mut frames: mpsc::Receiver<Frame>, mut way: OutputTarget) -> Option<TcpStream> {
    let mut spill = Spill { path: way.spill.clone(), file: None, written: 0, dropped: 0 };
    let mut open = way.connect(&mut spill).await;
    loop {
        tokio::select! {
            biased;
            Ok(()) = way.address.changed(), if open.is_none() => {
                open = way.connect(&mut spill).await;
            }
            // The JL sends nothing here, so readable means closed. A write would not notice it.
            () = ended(open.as_ref()) => open = None,
            frame = frames.recv() => {
                let Some(frame) = frame else { break };
                let sent = match &mut open {
                    Some(stream) => send(&frame, stream).await.is_ok(),
                    None => false,
                };
                if !sent {
                    open = None;
                    spill.keep(&frame.bytes).await;
                }
            }
        }
    }
    spill.finish().await;
    open
}

/// Waits for the end of a silent connection; forever without one.
async fn ended(stream: Option<&TcpStream>) {
    let Some(stream) = stream else {
        return core::future::pending().await;
    };
    loop {
        match stream.readable().await {
            Ok(()) => match stream.try_read(&mut [0_u8; 16]) {
                Ok(got) if got > 0 => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return,
            },
            Err(_) => return,
        }
    }
}

impl OutputTarget {
    /// Connects to the JL and sends the file.
    async fn connect(&mut self, spill: &mut Spill) -> Option<TcpStream> {
        let address = self.address.borrow_and_update().clone();
        let words = format!("OUTPUT {}", self.node);
        match streams::connect(&address, &self.secret, &words).await {
            Ok(mut stream) => spill.replay(&mut stream).await.ok().map(|()| stream),
            Err(error) => {
                tracing::info!(%address, %error, "no job launcher takes the output");
                None
            }
        }
    }
}

async fn send(frame: &Frame, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    let word = match frame.stream {
        Stream::Out => 'o',
        Stream::Err => 'e',
        Stream::Kept => 'k',
    };
    let head = format!("{word} {} {}\n", frame.rank, frame.bytes.len());
    let mut whole = head.into_bytes();
    whole.extend_from_slice(&frame.bytes);
    to.write_all(&whole).await?;
    to.flush().await
}

/// Output that no JL has taken.
struct Spill {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    dropped: u64,
}

impl Spill {
    async fn keep(&mut self, bytes: &[u8]) {
        if self.file.is_none() && self.dropped == 0 {
            tracing::warn!(path = %self.path.display(), "the job launcher is gone: output goes to a file");
            let mut options = File::options();
            options.create(true).append(true).custom_flags(nix::libc::O_NOFOLLOW);
            self.file = options.open(&self.path).await.ok();
        }
        let length = bytes.len() as u64;
        let fits = self.written + length <= SPILL_BYTES_MAX;
        let kept = match &mut self.file {
            Some(file) if fits => write_now(file, bytes).await.is_ok(),
            _ => false,
        };
        *if kept { &mut self.written } else { &mut self.dropped } += length;
    }

    /// Sends the file to a JL and deletes it.
    async fn replay(&mut self, to: &mut TcpStream) -> std::io::Result<()> {
        if self.file.take().is_none() {
            return Ok(());
        }
        let mut file = File::open(&self.path).await?;
        let mut bytes = vec![0; FRAME_BYTES_MAX];
        loop {
            let got = file.read(&mut bytes).await?;
            if got == 0 {
                break;
            }
            let bytes = bytes[..got].to_vec();
            send(&Frame { rank: 0, stream: Stream::Kept, bytes }, to).await?;
        }
        self.written = 0;
        tokio::fs::remove_file(&self.path).await
    }

    async fn finish(mut self) {
        if let Some(file) = &mut self.file {
            // Output that cannot be written now is lost.
            let _ = file.flush().await;
        }
        if self.dropped > 0 {
            tracing::warn!(bytes = self.dropped, "output was dropped");
        }
    }
}

/// Reads the frames of one NLA to their end.
///
/// # Errors
/// An invalid frame.
pub async fn receive(from: impl AsyncRead + Unpin, to: mpsc::Sender<Frame>) -> std::io::Result<()> {
    let mut from = BufReader::with_capacity(FRAME_BYTES_MAX, from);
    loop {
        let mut head = String::new();
        if (&mut from).take(64).read_line(&mut head).await? == 0 {
            return Ok(());
        }
        let frame = parse(&head).ok_or_else(|| std::io::Error::other("not a frame of output"))?;
        let (stream, rank, length) = frame;
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes).await?;
        if to.send(Frame { rank, stream, bytes }).await.is_err() {
            return Ok(());
        }
    }
}

fn parse(head: &str) -> Option<(Stream, u32, usize)> {
    let mut words = head.split_ascii_whitespace();
    let stream = match words.next()? {
        "o" => Stream::Out,
        "e" => Stream::Err,
        "k" => Stream::Kept,
        _ => return None,
    };
    let rank = words.next()?.parse().ok()?;
    let length = words.next()?.parse().ok().filter(|length| *length <= FRAME_BYTES_MAX)?;
    Some((stream, rank, length))
}

#[derive(Clone, Copy, Debug)]
pub struct Printing {
    /// Each line gets its rank.
    pub prefix: bool,
    /// Everything goes to standard error.
    pub all_to_err: bool,
}

/// Writes the frames of all NLAs to this process' streams until all senders are gone. Output that
/// cannot be written is lost; the job goes on, and a line reports the first loss.
pub async fn print(mut frames: mpsc::Receiver<Frame>, how: Printing, wiper: Wiper) {
    let mut reported = false;
    while let Some(frame) = frames.recv().await {
        let (to, name) = match frame.stream {
            Stream::Out | Stream::Kept if !how.all_to_err => (console::out(), "standard output"),
            _ => (console::err(), "standard error"),
        };
        let prefix = how.prefix && frame.stream != Stream::Kept;
        let bytes = if prefix { prefixed(&frame) } else { frame.bytes };
        wiper.wiped().await;
        if let Err(error) = to.write(bytes).await
            && !core::mem::replace(&mut reported, true)
        {
            console::err().line(&format!(
                "ftb-launch: {name} cannot be written ({error}): output of the ranks is lost, \
                 the job goes on"
            ));
        }
    }
}

async fn write_now(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

fn prefixed(frame: &Frame) -> Vec<u8> {
    let mut text = Vec::with_capacity(frame.bytes.len() + 16);
    for line in frame.bytes.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(format!("[{}] ", frame.rank).as_bytes());
        text.extend_from_slice(line);
    }
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_launcher_pods::output::read;

    fn way(dir: &std::path::Path, address: &str) -> (OutputTarget, watch::Sender<String>) {
        let (reported, address) = watch::channel(address.to_owned());
        let spill = dir.join("output");
        let way =
            OutputTarget { address, secret: Secret::new("key"), node: "node01".to_owned(), spill };
        (way, reported)
    }

    async fn launcher() -> (String, mpsc::Receiver<Frame>, tokio::task::JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (frames, got) = mpsc::channel(FRAMES_MAX);
        let input = std::sync::Arc::new(streams::StdinSource::new());
        let served = tokio::spawn(streams::serve(listener, Secret::new("key"), frames, input));
        (address, got, served)
    }

    #[tokio::test]
    async fn output_arrives_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let text: Vec<u8> = (0..5000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let (address, mut at_jl, served) = launcher().await;
        let (to_nla, from_rank) = mpsc::channel(FRAMES_MAX);
        let input = text.clone();
        let reader = tokio::spawn(async move { read(3, Stream::Err, &input[..], to_nla).await });
        let (way, _told) = way(dir.path(), &address);
        let writer = tokio::spawn(write(from_rank, way));
        let mut got = Vec::new();
        while got.len() < text.len() {
            let frame = at_jl.recv().await.unwrap();
            assert_eq!((frame.rank, frame.stream), (3, Stream::Err));
            assert!(frame.bytes.ends_with(b"\n"), "whole lines");
            got.extend(frame.bytes);
        }
        assert!(got == text);
        reader.await.unwrap();
        writer.await.unwrap();
        served.abort();
        assert!(at_jl.recv().await.is_none(), "the end of the output is seen");
    }

    #[tokio::test]
    async fn without_a_launcher_output_is_kept_and_the_next_launcher_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        // No launcher listens there.
        let (gone, _, served) = launcher().await;
        served.abort();
        let _ = served.await;
        let (to, from) = mpsc::channel(FRAMES_MAX);
        let (way, reported) = way(dir.path(), &gone);
        let writer = tokio::spawn(write(from, way));
        let frame = |text: &str| Frame { rank: 0, stream: Stream::Out, bytes: text.into() };
        for text in ["one\n", "two\n"] {
            to.send(frame(text)).await.unwrap();
        }
        let path = dir.path().join("output");
        while std::fs::read_to_string(&path).unwrap_or_default() != "one\ntwo\n" {
            tokio::task::yield_now().await;
        }
        let (address, mut at_jl, _served) = launcher().await;
        reported.send_replace(address);
        let kept = at_jl.recv().await.unwrap();
        assert_eq!((kept.stream, kept.bytes.as_slice()), (Stream::Kept, &b"one\ntwo\n"[..]));
        to.send(frame("three\n")).await.unwrap();
        assert_eq!(at_jl.recv().await.unwrap(), frame("three\n"));
        drop(to);
        writer.await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_invalid_frame_is_refused() {
        for bad in ["x 1 2\nab", "o 1 99999999\n", "o\n", "o 1 5\nab"] {
            let (to, _from) = mpsc::channel(4);
            assert!(receive(bad.as_bytes(), to).await.is_err(), "{bad}");
        }
    }

    #[test]
    fn every_line_gets_its_rank() {
        let frame = Frame { rank: 7, stream: Stream::Out, bytes: b"a\nb".to_vec() };
        assert_eq!(prefixed(&frame), b"[7] a\n[7] b\n");
    }
}
