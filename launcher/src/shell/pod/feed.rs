//! Standard input on its way into a pod: from the launcher's streams to the tender, which hands it to rank 0. The
//! tender says what the rank has taken, and no more than [`WINDOW_BYTES`] are ever on the way to it: a rank that does
//! not read holds the launcher's input, not the tender.

use super::words::INPUT_BYTES_MAX;
use crate::shell::secret::Secret;
use crate::shell::spec::NlaSpec;
use crate::shell::streams;
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::task::JoinSet;

/// The rank that has a standard input.
pub(super) const FED_RANK: u32 = 0;
/// Most bytes that the tender has not handed on yet.
pub(super) const WINDOW_BYTES: usize = 64 * 1024;

/// See the module. When it is dropped, the connection to the launcher's streams goes too.
pub(super) struct Feed {
    from: Option<DuplexStream>,
    window: usize,
    _carrier: JoinSet<()>,
}

impl Default for Feed {
    /// Nothing to feed anybody with.
    fn default() -> Self {
        Self { from: None, window: WINDOW_BYTES, _carrier: JoinSet::new() }
    }
}

impl Feed {
    /// Begins to fetch standard input from the launcher.
    pub(super) fn begin(spec: &NlaSpec, address: String) -> Self {
        let (ours, theirs) = tokio::io::duplex(INPUT_BYTES_MAX);
        let (secret, node) = (Secret::new(&spec.token), spec.node.to_string());
        let mut carrier = JoinSet::new();
        carrier.spawn(async move {
            if let Err(error) = streams::feed(&address, &secret, &node, theirs).await {
                tracing::info!(%error, "standard input of rank 0 ends");
            }
        });
        Self { from: Some(ours), window: WINDOW_BYTES, _carrier: carrier }
    }

    /// The next bytes that may go to the tender; none at the end of the input. Never comes back where there is nothing
    /// to wait for. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        let Some(from) = self.from.as_mut().filter(|_| self.window > 0) else {
            return core::future::pending().await;
        };
        let mut bytes = vec![0; self.window.min(INPUT_BYTES_MAX)];
        let got = from.read(&mut bytes).await.unwrap_or(0);
        bytes.truncate(got);
        self.window -= got;
        if got == 0 {
            self.from = None;
        }
        bytes
    }

    /// The tender has handed so many bytes on. A pod that was brought back may have some of before.
    pub(super) fn took(&mut self, bytes: u32) {
        self.window = WINDOW_BYTES.min(self.window.saturating_add(bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn no_more_is_on_the_way_than_the_window() {
        let (ours, mut theirs) = tokio::io::duplex(4 * WINDOW_BYTES);
        let mut feed = Feed { from: Some(ours), ..Feed::default() };
        assert!(theirs.write_all(&vec![7; WINDOW_BYTES + 10]).await.is_ok());
        drop(theirs);
        let mut on_the_way = 0;
        while on_the_way < WINDOW_BYTES {
            on_the_way += feed.next().await.len();
        }
        assert_eq!(on_the_way, WINDOW_BYTES);
        let held = futures_util::FutureExt::now_or_never(feed.next());
        assert_eq!(held, None, "nothing more until some of it was taken");
        feed.took(6);
        assert_eq!(feed.next().await.len(), 6);
        feed.took(u32::MAX);
        assert_eq!(feed.next().await.len(), 4);
        assert_eq!(feed.next().await, [0_u8; 0], "the end");
        assert_eq!(futures_util::FutureExt::now_or_never(feed.next()), None, "said once");
    }
}
