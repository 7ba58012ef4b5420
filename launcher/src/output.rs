//! The output of ranks: sent from the NLA to the JL over the job connection, and printed there.
//!
//! At most [`WINDOW_BYTES`] are not printed yet, so a slow reader blocks the ranks; nothing is
//! dropped. Without a JL the NLA writes to a file up to a limit, because the ranks must go on, and
//! reports the bytes that it drops. The next JL gets the file, then new output. The file stays
//! until the JL has printed all of it. Another JL gets the rest, at most a window of it twice.

use crate::console;
use crate::progress::Wiper;
use bytes::Bytes;
use core::time::Duration;
use ftb_launcher_core::link::packet::{FromNode, ToNode};
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_pods::output::{FRAME_BYTES_MAX, Frame, Stream};
use std::collections::VecDeque;
use std::path::PathBuf;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Most frames that wait in the NLA; further ones block the ranks.
pub const FRAMES_MAX: usize = 64;
/// Most bytes of a node that were sent and not printed. At the end of a job its last frames may
/// exceed it.
pub const WINDOW_BYTES: u64 = 256 * 1024;
/// How long an NLA that leaves waits for its last output, or for a path. It waits longer for a JL
/// that takes the file.
const LEAVE_WAIT: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 2000 });
/// Largest file of an NLA without a JL in bytes.
pub const SPILL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The way of an NLA to the JL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uplink {
    pub joined: bool,
    /// How many JLs it has had.
    pub launchers: u64,
    /// The node's ranks have ended.
    pub leaving: bool,
}

/// The target of an NLA's frames.
pub struct OutputTarget {
    pub uplink: watch::Receiver<Uplink>,
    pub to_jl: mpsc::Sender<LinkInput>,
    /// Printed bytes.
    pub taken: mpsc::UnboundedReceiver<u64>,
    /// The file for the time without a JL.
    pub spill: PathBuf,
}

/// Writes frames to the JL, or to the file without one, until all senders are gone and everything
/// is printed, or `LEAVE_WAIT` is over. Then it sends the last message of this node.
pub async fn write(mut frames: mpsc::Receiver<Frame>, target: OutputTarget) {
    let OutputTarget { mut uplink, to_jl, mut taken, spill } = target;
    let mut spill = Spill { path: spill, ..Spill::default() };
    let send = async |message: Bytes| {
        let _ = to_jl.send(LinkInput::Send { node: None, message, keep: true }).await;
    };
    let output = |Frame { rank, stream, bytes }| FromNode::Output { rank, stream, bytes }.encode();
    let (mut launchers, mut window, mut ended) = (0, Window::default(), false);
    let mut until = Instant::now();
    loop {
        let now = *uplink.borrow_and_update();
        if core::mem::replace(&mut launchers, now.launchers) != now.launchers {
            // An earlier JL prints nothing more.
            window = Window::default();
            spill.sent = spill.printed;
        }
        if ended && window.bytes == 0 && spill.file.is_none() && spill.dropped == 0 {
            break;
        }
        let room = window.bytes < WINDOW_BYTES || (now.leaving && spill.is_sent());
        if now.joined {
            let lost = core::mem::take(&mut spill.dropped);
            if lost > 0 {
                send(FromNode::OutputLost(lost).encode()).await;
            }
            if room && let Some(bytes) = spill.next().await {
                window.add(bytes.len() as u64, true);
                send(output(Frame { rank: 0, stream: Stream::Kept, bytes })).await;
                continue;
            }
        }
        let leaves = now.leaving && !(now.joined && spill.file.is_some());
        if !leaves {
            until = Instant::now() + LEAVE_WAIT;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until), if leaves => break,
            Some(bytes) = taken.recv() => spill.on_printed(window.take(bytes)).await,
            Ok(()) = uplink.changed() => {}
            frame = frames.recv(), if !ended && (room || !now.joined) => match frame {
                None => ended = true,
                Some(frame) if now.joined => {
                    window.add(frame.bytes.len() as u64, false);
                    send(output(frame)).await;
                }
                Some(frame) => spill.keep(&frame.bytes).await,
            },
        }
    }
    if spill.dropped > 0 {
        tracing::warn!(bytes = spill.dropped, "output was dropped");
    }
    send(Bytes::new()).await;
}

/// Output that was sent and is not printed.
#[derive(Default)]
struct Window {
    /// The bytes of each frame, and whether they are in the file.
    frames: VecDeque<(u64, bool)>,
    bytes: u64,
}

impl Window {
    fn add(&mut self, bytes: u64, in_file: bool) {
        self.bytes += bytes;
        self.frames.push_back((bytes, in_file));
    }

    /// Removes printed bytes. Returns how many of them are in the file.
    fn take(&mut self, mut bytes: u64) -> u64 {
        let mut of_file = 0;
        while bytes > 0
            && let Some((left, in_file)) = self.frames.front_mut()
        {
            let some = bytes.min(*left);
            *left -= some;
            of_file += if *in_file { some } else { 0 };
            if *left == 0 {
                self.frames.pop_front();
            }
            self.bytes -= some;
            bytes -= some;
        }
        of_file
    }
}

/// The file of output without a JL.
#[derive(Default)]
struct Spill {
    path: PathBuf,
    file: Option<File>,
    /// Bytes in the file; those before were sent, and printed.
    written: u64,
    sent: u64,
    printed: u64,
    /// Bytes that found no room since the last report.
    dropped: u64,
}

impl Spill {
    fn is_sent(&self) -> bool {
        self.sent >= self.written
    }

    async fn keep(&mut self, bytes: &[u8]) {
        if self.file.is_none() {
            let opened = self.open().await;
            if self.dropped == 0 {
                let path = self.path.display();
                tracing::warn!(%path, ?opened, "the job launcher is gone: output goes to a file");
            }
        }
        let length = bytes.len() as u64;
        let fits = self.written + length <= SPILL_BYTES_MAX;
        if let Some(file) = self.file.as_mut().filter(|_| fits) {
            if write_now(file, bytes).await.is_ok() {
                self.written += length;
                return;
            }
            let _ = file.set_len(self.written).await;
        }
        self.dropped += length;
    }

    async fn open(&mut self) -> std::io::Result<()> {
        let mut options = File::options();
        options.create(true).append(true).read(true).custom_flags(nix::libc::O_NOFOLLOW);
        let file = options.open(&self.path).await?;
        self.written = file.metadata().await?.len();
        self.file = Some(file);
        Ok(())
    }

    /// The next bytes to send.
    async fn next(&mut self) -> Option<Bytes> {
        let left = self.written.saturating_sub(self.sent);
        let file = self.file.as_mut().filter(|_| left > 0)?;
        let mut bytes = vec![0; FRAME_BYTES_MAX.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let read = match file.seek(std::io::SeekFrom::Start(self.sent)).await {
            Ok(_) => file.read(&mut bytes).await,
            Err(error) => Err(error),
        };
        let got = read.unwrap_or(0);
        if got == 0 {
            tracing::warn!(path = %self.path.display(), "kept output cannot be read: it stays");
            *self = Self { path: self.path.clone(), dropped: left, ..Self::default() };
            return None;
        }
        self.sent += got as u64;
        bytes.truncate(got);
        Some(bytes.into())
    }

    /// The JL has printed bytes of the file. It is deleted after its last ones.
    async fn on_printed(&mut self, bytes: u64) {
        self.printed += bytes;
        if self.file.is_some() && self.printed >= self.written {
            (self.file, self.written, self.sent, self.printed) = (None, 0, 0, 0);
            let _ = tokio::fs::remove_file(&self.path).await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Printing {
    /// Each line gets its rank.
    pub prefix: bool,
    /// Everything goes to standard error.
    pub all_to_err: bool,
}

/// Writes the frames of all NLAs to this process' streams until all senders are gone. Output that
/// cannot be written is lost; the job goes on, and a line reports the first loss. The windows of
/// the nodes bound what waits here.
pub async fn print(
    mut frames: mpsc::UnboundedReceiver<(NodeName, Frame)>,
    printed: mpsc::WeakSender<LinkInput>,
    how: Printing,
    wiper: Wiper,
) {
    let mut reported = false;
    while let Some((node, frame)) = frames.recv().await {
        let (to, name) = match frame.stream {
            Stream::Out | Stream::Kept if !how.all_to_err => (console::out(), "standard output"),
            _ => (console::err(), "standard error"),
        };
        let length = frame.bytes.len() as u64;
        let prefix = how.prefix && frame.stream != Stream::Kept;
        let bytes = if prefix { prefixed(&frame) } else { frame.bytes.into() };
        wiper.wiped().await;
        if let Err(error) = to.write(bytes).await
            && !core::mem::replace(&mut reported, true)
        {
            console::err().line(&format!(
                "ftb-launch: {name} cannot be written ({error}): output of the ranks is lost, \
                 the job goes on"
            ));
        }
        if let Some(printed) = printed.upgrade() {
            let message = ToNode::Taken(length).encode();
            let _ = printed.send(LinkInput::Send { node: Some(node), message, keep: true }).await;
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

    struct Jl {
        path: watch::Sender<Uplink>,
        orders: mpsc::Receiver<LinkInput>,
        taken: mpsc::UnboundedSender<u64>,
    }

    impl Jl {
        fn new(dir: &std::path::Path, joined: bool) -> (OutputTarget, Self) {
            let (path, of) = watch::channel(Uplink { joined, launchers: 1, leaving: false });
            let (to_jl, orders) = mpsc::channel(FRAMES_MAX);
            let (to_taken, taken) = mpsc::unbounded_channel();
            let target = OutputTarget { uplink: of, to_jl, taken, spill: dir.join("output") };
            (target, Self { path, orders, taken: to_taken })
        }

        async fn next(&mut self) -> Option<Frame> {
            match self.orders.recv().await? {
                LinkInput::Send { message, .. } if message.is_empty() => None,
                LinkInput::Send { message, keep: true, .. } => match FromNode::decode(message) {
                    Ok(FromNode::Output { rank, stream, bytes }) => {
                        Some(Frame { rank, stream, bytes })
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }

        async fn print(&mut self) -> Option<Frame> {
            let frame = self.next().await?;
            self.taken.send(frame.bytes.len() as u64).unwrap();
            Some(frame)
        }
    }

    fn frame(text: &str) -> Frame {
        Frame { rank: 0, stream: Stream::Out, bytes: Bytes::copy_from_slice(text.as_bytes()) }
    }

    #[tokio::test]
    async fn output_arrives_as_it_was_written_and_waits_for_a_slow_reader() {
        let dir = tempfile::tempdir().unwrap();
        let text: Vec<u8> = (0..90_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let (target, mut jl) = Jl::new(dir.path(), true);
        let (to_nla, from_rank) = mpsc::channel(FRAMES_MAX);
        let input = text.clone();
        let reader = tokio::spawn(async move { read(3, Stream::Err, &input[..], to_nla).await });
        let writer = tokio::spawn(write(from_rank, target));
        let mut waiting = Vec::<Frame>::new();
        while waiting.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>() < WINDOW_BYTES {
            waiting.push(jl.next().await.unwrap());
        }
        tokio::task::yield_now().await;
        assert!(jl.orders.try_recv().is_err(), "the window is full");
        let mut got = Vec::new();
        for frame in waiting {
            assert_eq!((frame.rank, frame.stream), (3, Stream::Err));
            assert!(frame.bytes.ends_with(b"\n"), "whole lines");
            got.extend_from_slice(&frame.bytes);
            jl.taken.send(frame.bytes.len() as u64).unwrap();
        }
        while let Some(frame) = jl.print().await {
            got.extend_from_slice(&frame.bytes);
        }
        assert!(got == text);
        reader.await.unwrap();
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn without_a_launcher_output_is_kept_and_the_next_launcher_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let (target, mut jl) = Jl::new(dir.path(), true);
        let (to, from) = mpsc::channel(FRAMES_MAX);
        let writer = tokio::spawn(write(from, target));
        jl.path.send_modify(|path| path.joined = false);
        for text in ["one\n", "two\n"] {
            to.send(frame(text)).await.unwrap();
        }
        let path = dir.path().join("output");
        while std::fs::read_to_string(&path).unwrap_or_default() != "one\ntwo\n" {
            tokio::task::yield_now().await;
        }
        jl.path.send_replace(Uplink { joined: true, launchers: 2, leaving: false });
        let kept = jl.print().await.unwrap();
        assert_eq!((kept.stream, &kept.bytes[..]), (Stream::Kept, &b"one\ntwo\n"[..]));
        to.send(frame("three\n")).await.unwrap();
        assert_eq!(jl.print().await.unwrap(), frame("three\n"));
        drop(to);
        writer.await.unwrap();
        assert!(!path.exists());
    }

    fn kept(text: &[u8]) -> Frame {
        Frame { rank: 0, stream: Stream::Kept, bytes: Bytes::copy_from_slice(text) }
    }

    /// More than a session takes: it would refuse the rest.
    #[tokio::test]
    async fn kept_output_of_a_node_that_leaves_waits_for_room_and_stays_until_it_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, mut jl) = Jl::new(dir.path(), false);
        let (path, (to, from)) = (dir.path().join("output"), mpsc::channel(FRAMES_MAX));
        let text = vec![b'x'; 3 * usize::try_from(WINDOW_BYTES).unwrap()];
        let writer = tokio::spawn(write(from, target));
        for bytes in text.chunks(FRAME_BYTES_MAX) {
            to.send(kept(bytes)).await.unwrap();
        }
        drop(to);
        let up = Uplink { joined: true, launchers: 2, leaving: true };
        while path.metadata().map_or(0, |data| data.len()) < text.len() as u64 {
            tokio::task::yield_now().await;
        }
        jl.path.send_replace(up);
        let half = WINDOW_BYTES / 2;
        for bytes in [WINDOW_BYTES, half] {
            let mut sent = 0;
            while sent < bytes {
                sent += jl.next().await.unwrap().bytes.len() as u64;
            }
            if bytes == WINDOW_BYTES {
                jl.taken.send(half).unwrap();
            }
        }
        let more = tokio::time::timeout(2 * LEAVE_WAIT, jl.next()).await;
        assert!(more.is_err() && path.exists(), "the JL has printed half a window");
        // Another JL gets all that the earlier one has not printed.
        jl.path.send_replace(Uplink { launchers: 3, ..up });
        let mut printed = half;
        while let Some(frame) = jl.next().await {
            assert!(path.exists(), "not printed yet");
            printed += frame.bytes.len() as u64;
            jl.taken.send(frame.bytes.len() as u64).unwrap();
        }
        assert_eq!(printed, text.len() as u64);
        writer.await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_last_output_waits_for_the_next_path() {
        let dir = tempfile::tempdir().unwrap();
        let (target, mut jl) = Jl::new(dir.path(), true);
        let (to, from) = mpsc::channel(FRAMES_MAX);
        let writer = tokio::spawn(write(from, target));
        to.send(frame("last\n")).await.unwrap();
        jl.next().await.unwrap();
        jl.path.send_modify(|path| path.joined = false);
        drop(to);
        let end = tokio::time::timeout(LEAVE_WAIT / 4, jl.next()).await;
        assert!(end.is_err(), "a path is about to come");
        jl.path.send_modify(|path| path.joined = true);
        jl.taken.send(5).unwrap();
        assert_eq!(jl.next().await, None, "the last message");
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn output_that_finds_no_room_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (mut target, mut jl) = Jl::new(dir.path(), false);
        target.spill = dir.path().join("no/such/directory");
        let (to, from) = mpsc::channel(FRAMES_MAX);
        let writer = tokio::spawn(write(from, target));
        to.send(frame("lost\n")).await.unwrap();
        while to.capacity() < FRAMES_MAX {
            tokio::task::yield_now().await;
        }
        drop(to);
        jl.path.send_modify(|path| path.joined = true);
        let Some(LinkInput::Send { message, .. }) = jl.orders.recv().await else { panic!() };
        assert_eq!(FromNode::decode(message), Ok(FromNode::OutputLost(5)));
        writer.await.unwrap();
    }

    #[test]
    fn every_line_gets_its_rank() {
        let frame = Frame { rank: 7, stream: Stream::Out, bytes: Bytes::from_static(b"a\nb") };
        assert_eq!(prefixed(&frame), b"[7] a\n[7] b\n");
    }
}
