//! Standard input on its way into a pod: from the launcher to the supervisor, which passes it to
//! rank 0. The supervisor acknowledges bytes that the rank has taken. At most [`WINDOW_BYTES`] are
//! unacknowledged, so a rank that does not read blocks the launcher's input, not the supervisor.

use super::ipc::INPUT_BYTES_MAX;
use crate::input::JobInput;
use std::io;
use tokio::task::JoinSet;

/// The rank with a standard input.
pub(super) const STDIN_RANK: u32 = 0;
/// Most unacknowledged bytes.
pub(super) const WINDOW_BYTES: usize = 64 * 1024;

/// Dropping it closes the connection to the launcher; unacknowledged input goes to the next
/// connection.
pub(super) struct Stdin {
    from: From,
    window: usize,
    /// Bytes passed on since the last acknowledgement to the launcher.
    given: usize,
}

enum From {
    /// There is no input, or no more.
    Internal,
    /// A connection under way.
    Soon(JoinSet<io::Result<JobInput>>),
    Launcher(JobInput),
}

impl Default for Stdin {
    /// No input.
    fn default() -> Self {
        Self { from: From::Internal, window: WINDOW_BYTES, given: 0 }
    }
}

impl Stdin {
    pub(super) fn begin(connecting: JoinSet<io::Result<JobInput>>) -> Self {
        Self { from: From::Soon(connecting), ..Self::default() }
    }

    /// The next bytes for the supervisor, to be sent before the next call; empty at the end.
    /// Pending while there is no input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        loop {
            match self.try_next().await {
                Ok(Some(bytes)) => return bytes,
                Ok(None) => {}
                Err(error) => {
                    tracing::info!(%error, "standard input of rank 0 ends");
                    self.from = From::Internal;
                    return Vec::new();
                }
            }
        }
    }

    /// Acknowledges everything passed on: an image will contain it.
    pub(super) async fn settle(&mut self) {
        if let From::Launcher(stdin) = &mut self.from
            && let Err(error) = stdin.taken(core::mem::take(&mut self.given)).await
        {
            tracing::info!(%error, "standard input of rank 0 ends");
            self.from = From::Internal;
        }
    }

    async fn try_next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match &mut self.from {
            From::Internal => core::future::pending().await,
            From::Soon(connecting) => {
                if let Some(connected) = connecting.join_next().await {
                    self.from = From::Launcher(connected.map_err(io::Error::other)??);
                }
                Ok(None)
            }
            From::Launcher(stdin) => {
                stdin.taken(core::mem::take(&mut self.given)).await?;
                if self.window == 0 {
                    return core::future::pending().await;
                }
                let mut bytes = vec![0; self.window.min(INPUT_BYTES_MAX)];
                let got = stdin.read(&mut bytes).await?;
                bytes.truncate(got);
                self.window -= got;
                self.given = got;
                if got == 0 {
                    self.from = From::Internal;
                }
                Ok(Some(bytes))
            }
        }
    }

    /// The supervisor has passed bytes on. A restored pod may count bytes from before.
    pub(super) fn took(&mut self, bytes: u32) {
        self.window = WINDOW_BYTES.min(self.window.saturating_add(bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn no_more_is_on_the_way_than_the_window() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stdin, accepted) = tokio::join!(TcpStream::connect(&address), listener.accept());
        let stdin = stdin.map(JobInput::new);
        let (mut launcher, _) = accepted.unwrap();
        let mut feed = Stdin { from: From::Launcher(stdin.unwrap()), ..Stdin::default() };
        launcher.write_all(&vec![7; WINDOW_BYTES + 10]).await.unwrap();
        launcher.shutdown().await.unwrap();
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
        drop(feed);
        let mut reported = String::new();
        launcher.read_to_string(&mut reported).await.unwrap();
        let all: usize = reported.lines().map(|line| line.parse::<usize>().unwrap()).sum();
        assert_eq!(all, WINDOW_BYTES + 10, "the launcher knows what went on");
    }
}
