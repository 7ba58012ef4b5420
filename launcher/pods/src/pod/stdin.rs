//! Standard input on its way into a pod: from the launcher to the supervisor, which passes it to
//! rank 0. The supervisor acknowledges bytes that the rank has taken. At most [`WINDOW_BYTES`] are
//! unacknowledged, so a rank that does not read blocks the launcher's input, not the supervisor.

use super::ipc::INPUT_BYTES_MAX;
use crate::input::JobInput;
use bytes::Bytes;

/// The rank with a standard input.
pub(super) const STDIN_RANK: u32 = 0;
/// Most unacknowledged bytes.
pub(super) const WINDOW_BYTES: usize = 64 * 1024;

/// Dropping it gives the input back; unacknowledged input goes to the next reader.
pub(super) struct Stdin {
    /// `None`: there is no input, or no more.
    from: Option<JobInput>,
    window: usize,
    /// Bytes passed on since the last acknowledgement to the launcher.
    given: usize,
}

impl Default for Stdin {
    /// No input.
    fn default() -> Self {
        Self { from: None, window: WINDOW_BYTES, given: 0 }
    }
}

impl Stdin {
    pub(super) fn begin(from: JobInput) -> Self {
        Self { from: Some(from), ..Self::default() }
    }

    /// The next bytes for the supervisor, to be sent before the next call; empty at the end.
    /// Pending while there is no input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Bytes {
        self.settle();
        let Some(from) = self.from.as_mut().filter(|_| self.window > 0) else {
            return core::future::pending().await;
        };
        let bytes = from.read(self.window.min(INPUT_BYTES_MAX)).await;
        self.window -= bytes.len();
        self.given = bytes.len();
        if bytes.is_empty() {
            self.from = None;
        }
        bytes
    }

    /// Acknowledges everything passed on: an image will contain it.
    pub(super) fn settle(&mut self) {
        if let Some(from) = &self.from {
            from.taken(core::mem::take(&mut self.given));
        }
    }

    /// The supervisor has passed bytes on. A restored pod may count bytes from before.
    pub(super) fn took(&mut self, bytes: u32) {
        self.window = WINDOW_BYTES.min(self.window.saturating_add(bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn no_more_is_on_the_way_than_the_window() {
        let (input, chunks, mut taken) = JobInput::new();
        let mut feed = Stdin::begin(input);
        let _ = chunks.send(Bytes::from(vec![7; WINDOW_BYTES + 10]));
        let _ = chunks.send(Bytes::new());
        let mut on_the_way = 0;
        while on_the_way < WINDOW_BYTES {
            on_the_way += feed.next().await.len();
        }
        assert_eq!(on_the_way, WINDOW_BYTES);
        assert_eq!(feed.next().now_or_never(), None, "nothing more until some of it was taken");
        feed.took(6);
        assert_eq!(feed.next().await.len(), 6);
        feed.took(u32::MAX);
        assert_eq!(feed.next().await.len(), 4);
        assert!(feed.next().await.is_empty(), "the end");
        assert_eq!(feed.next().now_or_never(), None, "said once");
        drop(feed);
        let mut all = 0;
        while let Some(bytes) = taken.recv().await {
            all += bytes;
        }
        assert_eq!(all, WINDOW_BYTES as u64 + 10, "the launcher knows what went on");
    }
}
