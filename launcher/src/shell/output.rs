//! The way of a rank's output: read in the NLA, framed onto the NLA's standard output, unframed in the JL and
//! written to its own standard output and error.
//!
//! A frame is a line `o RANK LENGTH` or `e RANK LENGTH` and so many bytes. Everything waits for what is behind it:
//! a terminal that stops stops the ranks, nothing is dropped. When the JL is gone the NLA writes to a file instead,
//! up to a bound; what is beyond is counted and dropped, since the ranks must go on.

use std::path::PathBuf;
use tokio::fs::File;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeekExt as _, AsyncWrite, AsyncWriteExt,
    BufReader,
};
use tokio::sync::mpsc;

/// Most bytes of one frame.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Frames that wait in the NLA before the ranks are held.
pub const FRAMES_MAX: usize = 64;
/// Most bytes that an NLA without a JL keeps in its file.
pub const SPILL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How often the files of NLAs without a JL are looked at.
const FOLLOW_EVERY: core::time::Duration = core::time::Duration::from_millis(200);
/// Longest line of a rank that gets one prefix; a longer one is cut.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Some output of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whose.
    pub rank: u32,
    /// Which stream.
    pub stream: Stream,
    /// The bytes: whole lines where the rank writes lines.
    pub bytes: Vec<u8>,
}

/// Reads a stream of a rank to its end, in whole lines where they are not too long.
pub async fn read(
    rank: u32,
    stream: Stream,
    from: impl AsyncRead + Unpin,
    to: mpsc::Sender<Frame>,
) {
    let mut from = BufReader::with_capacity(FRAME_BYTES_MAX, from);
    loop {
        let mut bytes = Vec::new();
        let mut limited = (&mut from).take(LINE_BYTES_MAX as u64);
        match limited.read_until(b'\n', &mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // What is there already goes along, up to its last line end.
        let waiting = from.buffer();
        let room = waiting.len().min(FRAME_BYTES_MAX - bytes.len());
        if bytes.ends_with(b"\n")
            && let Some(end) = waiting[..room].iter().rposition(|byte| *byte == b'\n')
        {
            bytes.extend_from_slice(&waiting[..=end]);
            from.consume(end + 1);
        }
        if to.send(Frame { rank, stream, bytes }).await.is_err() {
            return;
        }
    }
}

/// Writes frames to the JL until all senders are gone; to a file when the JL is gone.
pub async fn write(
    mut frames: mpsc::Receiver<Frame>,
    mut to: impl AsyncWrite + Unpin,
    spill: PathBuf,
) {
    while let Some(frame) = frames.recv().await {
        if send(&frame, &mut to).await.is_err() {
            return write_spill(frame, frames, spill).await;
        }
    }
}

async fn send(frame: &Frame, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    let word = if frame.stream == Stream::Out { 'o' } else { 'e' };
    let head = format!("{word} {} {}\n", frame.rank, frame.bytes.len());
    let mut whole = head.into_bytes();
    whole.extend_from_slice(&frame.bytes);
    to.write_all(&whole).await?;
    to.flush().await
}

async fn write_spill(first: Frame, mut frames: mpsc::Receiver<Frame>, path: PathBuf) {
    tracing::warn!(path = %path.display(), "the job launcher is gone: output goes to a file");
    let mut file = File::options().create(true).append(true).open(&path).await.ok();
    let (mut written, mut dropped) = (0_u64, 0_u64);
    let mut next = Some(first);
    while let Some(frame) = next {
        let bytes = frame.bytes.len() as u64;
        let fits = written + bytes <= SPILL_BYTES_MAX;
        let kept = match &mut file {
            Some(open) if fits => write_now(open, &frame.bytes).await.is_ok(),
            _ => false,
        };
        if kept {
            written += bytes;
        } else {
            dropped += bytes;
        }
        next = frames.recv().await;
    }
    if let Some(file) = &mut file {
        // What cannot be written now is lost: there is nobody else to tell.
        let _ = file.flush().await;
    }
    if dropped > 0 {
        tracing::warn!(bytes = dropped, "output was dropped");
    }
}

/// Reads the frames of one NLA until its end.
///
/// # Errors
/// The stream is no sequence of frames.
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
        _ => return None,
    };
    let rank = words.next()?.parse().ok()?;
    let length = words.next()?.parse().ok().filter(|length| *length <= FRAME_BYTES_MAX)?;
    Some((stream, rank, length))
}

/// Writes the frames of all NLAs to this process' own streams, each line with its rank before it where
/// `prefix` says so. Ends when all senders are gone. A closed standard output is not an error: the job goes on.
pub async fn print(mut frames: mpsc::Receiver<Frame>, prefix: bool) {
    let (mut out, mut err) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(frame) = frames.recv().await {
        let bytes = if prefix { prefixed(&frame) } else { frame.bytes };
        let _ = match frame.stream {
            Stream::Out => write_now(&mut out, &bytes).await,
            Stream::Err => write_now(&mut err, &bytes).await,
        };
    }
}

async fn write_now(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Prints what NLAs without a JL have put into their files, and what they add, until `stop` resolves and all is
/// printed. A file that is not there yet may come.
pub async fn follow(paths: Vec<PathBuf>, mut stop: tokio::sync::oneshot::Receiver<()>) {
    let mut printed = vec![0_u64; paths.len()];
    let mut out = tokio::io::stdout();
    loop {
        let last = tokio::time::timeout(FOLLOW_EVERY, &mut stop).await.is_ok();
        for (path, printed) in paths.iter().zip(&mut printed) {
            let Ok(mut file) = File::open(path).await else { continue };
            let mut bytes = Vec::new();
            let seek = std::io::SeekFrom::Start(*printed);
            if file.seek(seek).await.is_ok() && file.read_to_end(&mut bytes).await.is_ok() {
                *printed += bytes.len() as u64;
                let _ = write_now(&mut out, &bytes).await;
            }
        }
        if last {
            return;
        }
    }
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

    #[tokio::test]
    async fn output_arrives_as_it_was_written() {
        let text: Vec<u8> = (0..5000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let (to_nla, from_rank) = mpsc::channel(FRAMES_MAX);
        let (to_jl, mut at_jl) = mpsc::channel(FRAMES_MAX);
        let (pipe_in, pipe_out) = tokio::io::duplex(512);
        let input = text.clone();
        let reader = tokio::spawn(async move { read(3, Stream::Err, &input[..], to_nla).await });
        let writer = tokio::spawn(write(from_rank, pipe_in, PathBuf::from("unused")));
        let receiver = tokio::spawn(receive(pipe_out, to_jl));
        let mut got = Vec::new();
        while let Some(frame) = at_jl.recv().await {
            assert_eq!((frame.rank, frame.stream), (3, Stream::Err));
            assert!(frame.bytes.ends_with(b"\n"), "whole lines");
            got.extend(frame.bytes);
        }
        assert!(got == text);
        reader.await.unwrap();
        writer.await.unwrap();
        receiver.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn without_a_launcher_output_goes_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output");
        let (to, from) = mpsc::channel(FRAMES_MAX);
        let (pipe_in, pipe_out) = tokio::io::duplex(8);
        drop(pipe_out);
        for text in ["one\n", "two\n"] {
            let bytes = text.as_bytes().to_vec();
            to.send(Frame { rank: 0, stream: Stream::Out, bytes }).await.unwrap();
        }
        drop(to);
        write(from, pipe_in, path.clone()).await;
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused() {
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
