//! Standard input on its way into a pod: from the launcher's streams to the tender, which hands it to rank 0. The
//! tender says what the rank has taken, and no more than [`WINDOW_BYTES`] are ever on the way to it: a rank that does
//! not read holds the launcher's input, not the tender.

use super::words::INPUT_BYTES_MAX;
use crate::input::JobInput;
use std::io;
use tokio::task::JoinSet;

/// The rank that has a standard input.
pub(super) const FED_RANK: u32 = 0;
/// Most bytes that the tender has not handed on yet.
pub(super) const WINDOW_BYTES: usize = 64 * 1024;

/// See the module. When it is dropped, the connection to the launcher's streams goes too; what was not handed on then goes
/// to whoever connects next.
pub(super) struct Feed {
    from: From,
    window: usize,
    /// Bytes that were given since the launcher was told.
    given: usize,
}

enum From {
    /// Nobody, or nobody any more.
    Nobody,
    /// The launcher, when the connection is made.
    Soon(JoinSet<io::Result<JobInput>>),
    /// The launcher.
    Launcher(JobInput),
}

impl Default for Feed {
    /// Nothing to feed anybody with.
    fn default() -> Self {
        Self { from: From::Nobody, window: WINDOW_BYTES, given: 0 }
    }
}

impl Feed {
    /// Begins to fetch standard input from the launcher.
    pub(super) fn begin(connecting: JoinSet<io::Result<JobInput>>) -> Self {
        Self { from: From::Soon(connecting), ..Self::default() }
    }

    /// The next bytes, which must go to the tender before this is called again; none at the end of the input. Never comes
    /// back where there is nothing to wait for. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        loop {
            match self.try_next().await {
                Ok(Some(bytes)) => return bytes,
                Ok(None) => {}
                Err(error) => {
                    tracing::info!(%error, "standard input of rank 0 ends");
                    self.from = From::Nobody;
                    return Vec::new();
                }
            }
        }
    }

    /// What was given is where nothing can lose it: nobody else must get it.
    pub(super) async fn settle(&mut self) {
        if let From::Launcher(fed) = &mut self.from
            && let Err(error) = fed.taken(core::mem::take(&mut self.given)).await
        {
            tracing::info!(%error, "standard input of rank 0 ends");
            self.from = From::Nobody;
        }
    }

    async fn try_next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match &mut self.from {
            From::Nobody => core::future::pending().await,
            From::Soon(connecting) => {
                if let Some(connected) = connecting.join_next().await {
                    self.from = From::Launcher(connected.map_err(io::Error::other)??);
                }
                Ok(None)
            }
            From::Launcher(fed) => {
                fed.taken(core::mem::take(&mut self.given)).await?;
                if self.window == 0 {
                    return core::future::pending().await;
                }
                let mut bytes = vec![0; self.window.min(INPUT_BYTES_MAX)];
                let got = fed.read(&mut bytes).await?;
                bytes.truncate(got);
                self.window -= got;
                self.given = got;
                if got == 0 {
                    self.from = From::Nobody;
                }
                Ok(Some(bytes))
            }
        }
    }

    /// The tender has handed so many bytes on. A pod that was brought back may have some of before.
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
        let (fed, accepted) = tokio::join!(TcpStream::connect(&address), listener.accept());
        let fed = fed.map(JobInput::new);
        let (mut launcher, _) = accepted.unwrap();
        let mut feed = Feed { from: From::Launcher(fed.unwrap()), ..Feed::default() };
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
        let mut told = String::new();
        launcher.read_to_string(&mut told).await.unwrap();
        let all: usize = told.lines().map(|line| line.parse::<usize>().unwrap()).sum();
        assert_eq!(all, WINDOW_BYTES + 10, "the launcher knows what went on");
    }
}
