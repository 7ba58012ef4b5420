//! Standard input on its way to rank 0. The JL reads it for the first node that wants it. That node
//! acknowledges bytes that its rank has taken. When rank 0 moves, its next node gets the
//! unacknowledged bytes first, after the earlier node is done or gone.

use crate::output::Uplink;
use bytes::{Buf as _, Bytes};
use core::pin::pin;
use core::time::Duration;
use ftb_launcher_core::link::packet::{FromNode, ToNode};
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_pods::input::JobInput;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

/// Most chunks of standard input that wait for rank 0.
const INPUT_CHUNKS_MAX: usize = 4;
const INPUT_CHUNK_BYTES: usize = 64 * 1024;
/// Most unacknowledged bytes of standard input.
const UNTAKEN_BYTES_MAX: usize = 256 * 1024;
/// Without a JL for this long rank 0 reads the end of its input.
const INPUT_GRACE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });

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

/// A node that wants standard input, with the number of its request.
type Reader = (NodeName, u64);

/// What the JL receives about standard input.
#[derive(Debug)]
pub enum InputNews {
    Wanted(Reader),
    Taken(Reader, u64),
    Done(Reader),
    /// The node has a path, or none any more.
    Path(NodeName, bool),
}

/// Gives standard input to one node at a time until the sender of `news` is gone.
pub async fn give(
    mut news: mpsc::UnboundedReceiver<InputNews>,
    to_nodes: mpsc::WeakSender<LinkInput>,
) {
    let mut giver = Giver { source: Source::default(), to_nodes, reader: None, next: None };
    loop {
        let wants = giver.reader.is_some() && giver.source.wants();
        tokio::select! {
            chunk = giver.source.next(), if wants => giver.send(chunk.unwrap_or_default()).await,
            heard = news.recv() => match heard {
                Some(heard) => giver.on_news(heard).await,
                None => return,
            },
        }
    }
}

struct Giver {
    source: Source,
    to_nodes: mpsc::WeakSender<LinkInput>,
    /// The present reader; `false`: it has no path.
    reader: Option<(Reader, bool)>,
    next: Option<Reader>,
}

impl Giver {
    async fn on_news(&mut self, news: InputNews) {
        let is_reader = |of: &Reader| self.reader.as_ref().is_some_and(|(now, _)| now == of);
        match news {
            InputNews::Wanted(reader) => self.next = Some(reader),
            InputNews::Taken(reader, bytes) if is_reader(&reader) => {
                self.source.taken(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            InputNews::Done(reader) if is_reader(&reader) => self.reader = None,
            InputNews::Path(node, joined) => {
                if let Some((_, has)) = self.reader.as_mut().filter(|((of, _), _)| *of == node) {
                    *has = joined;
                }
            }
            InputNews::Taken(..) | InputNews::Done(_) => {}
        }
        if self.reader.as_ref().is_none_or(|(_, joined)| !joined)
            && let Some(reader) = self.next.take()
        {
            self.reader = Some((reader, true));
            for chunk in self.source.untaken.clone() {
                self.send(chunk).await;
            }
            if self.source.ended {
                self.send(Bytes::new()).await;
            }
        }
    }

    async fn send(&self, bytes: Bytes) {
        if let (Some(((node, request), _)), Some(to)) = (&self.reader, self.to_nodes.upgrade()) {
            let message = ToNode::Input { request: *request, bytes }.encode();
            let node = Some(node.clone());
            let _ = to.send(LinkInput::Send { node, message, keep: true }).await;
        }
    }
}

/// The open request of a node, and where its input goes.
#[derive(Clone, Debug, Default)]
pub struct InputSlot(Arc<Mutex<(u64, Option<mpsc::UnboundedSender<Bytes>>)>>);

impl InputSlot {
    /// Requests standard input for rank 0 of this node; an earlier request ends.
    pub fn request(
        &self,
        to_jl: mpsc::Sender<LinkInput>,
        uplink: watch::Receiver<Uplink>,
    ) -> JobInput {
        let (input, chunks, taken) = JobInput::new();
        let request = {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = (slot.0 + 1, Some(chunks));
            slot.0
        };
        tokio::spawn(self.clone().acknowledge(request, taken, to_jl, uplink));
        input
    }

    /// Bytes of the JL; empty at the end.
    pub fn give(&self, request: u64, bytes: Bytes) {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (of, Some(chunks)) = &*slot
            && *of == request
        {
            let _ = chunks.send(bytes);
        }
    }

    async fn acknowledge(
        self,
        request: u64,
        mut taken: mpsc::UnboundedReceiver<u64>,
        to_jl: mpsc::Sender<LinkInput>,
        uplink: watch::Receiver<Uplink>,
    ) {
        let mut lost = pin!(lost(uplink));
        let say = async |message: FromNode| {
            let message = message.encode();
            let _ = to_jl.send(LinkInput::Send { node: None, message, keep: true }).await;
        };
        say(FromNode::WantInput { request }).await;
        loop {
            tokio::select! {
                bytes = taken.recv() => match bytes {
                    Some(bytes) => say(FromNode::InputTaken { request, bytes }).await,
                    None => break,
                },
                () = &mut lost => {
                    self.give(request, Bytes::new());
                    break;
                }
            }
        }
        say(FromNode::InputDone { request }).await;
    }
}

/// Waits until there is another JL, or none for [`INPUT_GRACE`].
async fn lost(mut uplink: watch::Receiver<Uplink>) {
    let first = uplink.borrow().launchers;
    loop {
        let changed = uplink.wait_for(|now| !now.joined || now.launchers != first).await;
        let Ok(other) = changed.map(|now| now.launchers != first) else {
            return core::future::pending().await;
        };
        let back = uplink.wait_for(|now| now.joined);
        if other || tokio::time::timeout(INPUT_GRACE, back).await.is_err() {
            return;
        }
    }
}

/// Copies standard input to a rank until its end.
///
/// # Errors
/// The rank's pipe.
pub async fn feed(mut input: JobInput, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let bytes = input.read(INPUT_CHUNK_BYTES).await;
        if bytes.is_empty() {
            return Ok(());
        }
        to.write_all(&bytes).await?;
        input.taken(bytes.len());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Node(mpsc::Receiver<LinkInput>);

    impl Node {
        /// The next bytes for this request of this node.
        async fn next(&mut self, reader: &Reader) -> Bytes {
            let Some(LinkInput::Send { node, message, .. }) = self.0.recv().await else {
                panic!("no input")
            };
            assert_eq!(node.as_ref(), Some(&reader.0));
            let Ok(ToNode::Input { request, bytes }) = ToNode::decode(message) else {
                panic!("no input")
            };
            assert_eq!(request, reader.1);
            bytes
        }
    }

    /// Nothing is lost and nothing comes twice.
    #[tokio::test]
    async fn the_next_node_begins_with_what_the_last_has_not_taken() {
        let (to, chunks) = mpsc::channel(4);
        for text in ["one ", "two ", "three"] {
            to.send(Bytes::from_static(text.as_bytes())).await.unwrap();
        }
        drop(to);
        let (orders, from) = mpsc::channel(16);
        let source = Source { chunks: Some(chunks), ..Source::default() };
        let to_nodes = orders.downgrade();
        let mut giver = Giver { source, to_nodes, reader: None, next: None };
        let reader = |name: &str, request| (NodeName::new(name).unwrap(), request);
        let (first, second) = (reader("node01", 1), reader("node02", 1));
        let mut node = Node(from);
        giver.on_news(InputNews::Wanted(first.clone())).await;
        for text in ["one ", "two ", "three", ""] {
            let chunk = giver.source.next().await.unwrap_or_default();
            giver.send(chunk).await;
            assert_eq!(node.next(&first).await, text);
        }
        assert!(!giver.source.wants());
        giver.on_news(InputNews::Taken(first.clone(), 3)).await;
        giver.on_news(InputNews::Wanted(second.clone())).await;
        assert!(node.0.try_recv().is_err(), "the first may have taken more");
        giver.on_news(InputNews::Taken(first.clone(), 2)).await;
        giver.on_news(InputNews::Done(first.clone())).await;
        for text in ["wo ", "three", ""] {
            assert_eq!(node.next(&second).await, text);
        }
        giver.on_news(InputNews::Taken(first.clone(), 100)).await;
        assert!(!giver.source.untaken.is_empty(), "it is no reader any more");
        // A reader whose node is gone is done.
        giver.on_news(InputNews::Path(second.0, false)).await;
        giver.on_news(InputNews::Wanted(first.clone())).await;
        assert_eq!(node.next(&first).await, "wo ");
    }

    /// A launcher that was stopped for a while knows that the reader is gone, and feeds the next.
    #[tokio::test]
    async fn a_rank_without_a_launcher_reads_the_end_and_another_one_may_read_on() {
        let (to_jl, mut orders) = mpsc::channel(16);
        let up = Uplink { joined: true, launchers: 1, leaving: false };
        let (path, of_input) = watch::channel(up);
        let mut input = InputSlot::default().request(to_jl, of_input);
        let mut next = async || {
            let Some(LinkInput::Send { message, .. }) = orders.recv().await else { panic!() };
            FromNode::decode(message).unwrap()
        };
        assert_eq!(next().await, FromNode::WantInput { request: 1 });
        path.send_modify(|path| path.joined = false);
        assert_eq!(input.read(100).await, "", "the end");
        assert_eq!(next().await, FromNode::InputDone { request: 1 });
    }

    #[tokio::test]
    async fn input_of_an_earlier_request_is_dropped() {
        let (to_jl, mut orders) = mpsc::channel(16);
        let (_path, path) = watch::channel(Uplink { joined: true, launchers: 1, leaving: false });
        let slot = InputSlot::default();
        let first = slot.request(to_jl.clone(), path.clone());
        drop(first);
        let mut second = slot.request(to_jl, path);
        slot.give(1, Bytes::from_static(b"late"));
        slot.give(2, Bytes::from_static(b"new"));
        assert_eq!(second.read(100).await, "new");
        second.taken(3);
        drop(second);
        let mut said = Vec::new();
        while let Some(LinkInput::Send { message, .. }) = orders.recv().await {
            said.push(FromNode::decode(message).unwrap());
        }
        for word in [
            FromNode::InputDone { request: 1 },
            FromNode::InputTaken { request: 2, bytes: 3 },
            FromNode::InputDone { request: 2 },
        ] {
            assert!(said.contains(&word), "{word:?}: {said:?}");
        }
    }
}
