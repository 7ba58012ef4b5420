//! The standard input of the job on its way to rank 0.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Standard input on the node of rank 0. Dropping it hands unacknowledged bytes back.
#[derive(Debug)]
pub struct JobInput {
    /// The JL sends no more than its window.
    chunks: mpsc::UnboundedReceiver<Bytes>,
    rest: Bytes,
    taken: mpsc::UnboundedSender<u64>,
}

impl JobInput {
    /// With the sender of its bytes (an empty chunk is the end) and the receiver of
    /// acknowledgements.
    pub fn new() -> (Self, mpsc::UnboundedSender<Bytes>, mpsc::UnboundedReceiver<u64>) {
        let (to_chunks, chunks) = mpsc::unbounded_channel();
        let (taken, acknowledged) = mpsc::unbounded_channel();
        (Self { chunks, rest: Bytes::new(), taken }, to_chunks, acknowledged)
    }

    /// The next bytes, at most `max`; empty at the end. Cancel-safe.
    pub async fn read(&mut self, max: usize) -> Bytes {
        if self.rest.is_empty() {
            self.rest = self.chunks.recv().await.unwrap_or_default();
        }
        self.rest.split_to(max.min(self.rest.len()))
    }

    /// Acknowledges bytes that cannot be lost any more.
    pub fn taken(&self, bytes: usize) {
        if bytes > 0 {
            let _ = self.taken.send(bytes as u64);
        }
    }
}
