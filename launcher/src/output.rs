//! The output of ranks: sent from the NLA to the JL over the job connection, and printed there.
//!
//! At most [`WINDOW_BYTES`] are not printed yet, so a slow reader blocks the ranks; nothing is
//! dropped. Without a JL the NLA writes to a file up to a limit and counts what it drops, because
//! the ranks must go on. The next JL gets the file, then new output.

use crate::console;
use crate::progress::Wiper;
use bytes::Bytes;
use ftb_launcher_core::link::packet::{FromNode, ToNode};
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_pods::output::{FRAME_BYTES_MAX, Frame, Stream};
use std::path::PathBuf;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

/// Most frames that wait in the NLA; further ones block the ranks.
pub const FRAMES_MAX: usize = 64;
/// Most bytes of a node that were sent and not printed. At the end of a job its last frames may
/// exceed it.
pub const WINDOW_BYTES: u64 = 256 * 1024;
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
/// is printed.
pub async fn write(mut frames: mpsc::Receiver<Frame>, target: OutputTarget) {
    let OutputTarget { mut uplink, to_jl, mut taken, spill } = target;
    let mut spill = Spill { path: spill, file: None, written: 0, dropped: 0, read: 0 };
    let send = async |frame: Frame| {
        let Frame { rank, stream, bytes } = frame;
        let message = FromNode::Output { rank, stream, bytes }.encode();
        let _ = to_jl.send(LinkInput::Send { node: None, message, keep: true }).await;
    };
    let (mut launchers, mut sent_bytes, mut ended) = (0, 0_u64, false);
    loop {
        let now = *uplink.borrow_and_update();
        if core::mem::replace(&mut launchers, now.launchers) != now.launchers {
            // An earlier JL acknowledges nothing more.
            sent_bytes = 0;
        }
        if ended && (sent_bytes == 0 || !now.joined) {
            break;
        }
        let room = now.leaving || sent_bytes < WINDOW_BYTES;
        if now.joined
            && room
            && let Some(bytes) = spill.next().await
        {
            sent_bytes += bytes.len() as u64;
            send(Frame { rank: 0, stream: Stream::Kept, bytes }).await;
            continue;
        }
        tokio::select! {
            biased;
            Some(bytes) = taken.recv() => sent_bytes = sent_bytes.saturating_sub(bytes),
            Ok(()) = uplink.changed() => {}
            frame = frames.recv(), if !ended && (room || !now.joined) => match frame {
                None => ended = true,
                Some(frame) if now.joined => {
                    sent_bytes += frame.bytes.len() as u64;
                    send(frame).await;
                }
                Some(frame) => spill.keep(&frame.bytes).await,
            },
        }
    }
    if spill.dropped > 0 {
        tracing::warn!(bytes = spill.dropped, "output was dropped");
    }
}

/// Output that no JL has taken.
struct Spill {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    dropped: u64,
    /// How much of the file was sent.
    read: u64,
}

impl Spill {
    async fn keep(&mut self, bytes: &[u8]) {
        if self.file.is_none() && self.dropped == 0 {
            tracing::warn!(path = %self.path.display(), "the job launcher is gone: output goes to a file");
            let mut options = File::options();
            options.create(true).append(true).read(true).custom_flags(nix::libc::O_NOFOLLOW);
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

    /// The next bytes of the file, which is deleted after its last ones.
    async fn next(&mut self) -> Option<Bytes> {
        let file = self.file.as_mut()?;
        let mut bytes = vec![0; FRAME_BYTES_MAX];
        let at = std::io::SeekFrom::Start(self.read);
        let got = match file.seek(at).await {
            Ok(_) => file.read(&mut bytes).await.unwrap_or(0),
            Err(_) => 0,
        };
        if got == 0 {
            (self.file, self.written, self.read) = (None, 0, 0);
            let _ = tokio::fs::remove_file(&self.path).await;
            return None;
        }
        self.read += got as u64;
        bytes.truncate(got);
        Some(bytes.into())
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
                LinkInput::Send { message, keep: true, .. } => match FromNode::decode(message) {
                    Some(FromNode::Output { rank, stream, bytes }) => {
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

    #[test]
    fn every_line_gets_its_rank() {
        let frame = Frame { rank: 7, stream: Stream::Out, bytes: Bytes::from_static(b"a\nb") };
        assert_eq!(prefixed(&frame), b"[7] a\n[7] b\n");
    }
}
