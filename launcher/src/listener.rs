//! The listener of a process of the job: handshakes, and what each connection is for. The bytes of
//! a connection are those of [`crate::connection`].

use crate::connection::{Connection, Purpose, accept};
use crate::image_server::{self, ImageServer};
use core::time::Duration;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::names::NODES_MAX;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Most handshakes of a listener; a further one ends the oldest.
const HANDSHAKES_MAX: usize = 128;
/// No other handshake ends one that is younger.
const HANDSHAKE_MIN: Duration = Duration::from_millis(100);
/// Least time between two log lines of a listener about refused connections.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Most served connections of processes of the job; others wait.
const CONNECTIONS_MAX: usize = 2 * NODES_MAX;
/// Open files that suffice for the largest job.
const FILES: u64 = 65_536;

/// A connection, or a word about another JL, for the task of the tree.
pub enum FromListener {
    Tree(Connection),
    Launcher(String),
}

/// Handshakes of a listener. Strangers can hold at most [`HANDSHAKES_MAX`] descriptors.
#[derive(Default)]
struct Handshakes {
    tasks: JoinSet<()>,
    /// The oldest first.
    started: VecDeque<(Instant, AbortHandle)>,
    refused: Refused,
}

/// Counts refused connections, so that a stranger that connects often does not fill the log: the
/// first one is logged at once, further ones as one line each [`REPORT_EVERY`].
#[derive(Clone, Default)]
struct Refused(Arc<Mutex<RefusedCount>>);

#[derive(Default)]
struct RefusedCount {
    count: u64,
    /// Earliest time of the next line.
    next: Option<Instant>,
}

impl RefusedCount {
    /// How many to log now, if any.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + REPORT_EVERY);
        Some(core::mem::take(&mut self.count))
    }
}

impl Refused {
    fn report(&self, last: &dyn core::fmt::Display) {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now());
        if let Some(count) = counted {
            tracing::warn!(count, %last, "connections were refused");
        }
    }
}

impl Handshakes {
    fn begin(&mut self, handshake: impl Future<Output = ()> + Send + 'static) {
        self.started.push_back((Instant::now(), self.tasks.spawn(handshake)));
    }

    /// Waits until there is room for another one.
    async fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.started.retain(|(_, task)| !task.is_finished());
        while self.tasks.len() >= HANDSHAKES_MAX
            && let Some((started, oldest)) = self.started.pop_front()
        {
            let ends = self.tasks.join_next();
            if tokio::time::timeout_at(started + HANDSHAKE_MIN, ends).await.is_ok() {
                self.started.push_front((started, oldest));
                continue;
            }
            self.refused.report(&"it was ended to make room");
            oldest.abort();
            self.tasks.join_next().await;
        }
    }
}

/// Serves a listener until it is dropped. A misbehaving peer is dropped and logged.
pub async fn serve(
    listener: TcpListener,
    secret: Secret,
    images: ImageServer,
    tree: mpsc::Sender<FromListener>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut handshakes = Handshakes::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        handshakes.make_room().await;
        let (secret, images, tree) = (secret.clone(), images.clone(), tree.clone());
        let (places, refused) = (Arc::clone(&places), handshakes.refused.clone());
        handshakes.begin(async move {
            match accept(stream, &secret).await {
                Ok((connection, purpose)) => drop(tokio::spawn(async move {
                    let _place = places.acquire_owned().await;
                    if let Err(error) = attend(connection, purpose, &images, &tree).await {
                        // Its process has ended or was stopped.
                        tracing::info!(%peer, %error, "a connection of the job failed");
                    }
                })),
                Err(error) => refused.report(&format_args!("{peer}: {error}")),
            }
        });
    }
}

/// Serves a connection of a process of the job.
async fn attend(
    connection: Connection,
    purpose: Purpose,
    images: &ImageServer,
    tree: &mpsc::Sender<FromListener>,
) -> io::Result<()> {
    let to_tree = match purpose {
        Purpose::Image(of) => return image_server::answer(connection, of, images).await,
        Purpose::Tree => FromListener::Tree(connection),
        Purpose::Launcher(address) => FromListener::Launcher(address),
    };
    let _ = tree.send(to_tree).await;
    Ok(())
}

/// Raises the limit of open files: other nodes connect to this process. With fewer files smaller
/// jobs still run. The ranks inherit the limit, and some programs close all files up to it.
pub fn allow_many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(FILES)
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(FILES), hard);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::connection::{HANDSHAKE_WAIT, dial};
    use ftb_launcher_core::link::cipher::HELLO_BYTES;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    #[test]
    fn refused_connections_are_logged_at_once_and_then_once_a_minute() {
        let (mut refused, start) = (RefusedCount::default(), Instant::now());
        let logged = [0, 1, 2, 4, 5].map(|part| refused.add(start + REPORT_EVERY / 4 * part));
        assert_eq!(logged, [Some(1), None, None, Some(3), None]);
    }

    #[tokio::test]
    async fn silent_strangers_make_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tree, mut accepted) = mpsc::channel(1);
        let (secret, images) = (Secret::new("key"), ImageServer::new("/nowhere".into()));
        tokio::spawn(serve(listener, secret.clone(), images, tree));
        let mut strangers = Vec::new();
        for _ in 0..HANDSHAKES_MAX + 2 {
            strangers.push(TcpStream::connect(&address).await.unwrap());
        }
        dial(&address, &secret, &Purpose::Tree).await.unwrap();
        assert!(matches!(accepted.recv().await, Some(FromListener::Tree(_))));
        for oldest in &mut strangers[..3] {
            // Long before the deadline of its handshake.
            let mut hello = Vec::new();
            let end = tokio::time::timeout(HANDSHAKE_WAIT / 2, oldest.read_to_end(&mut hello));
            assert_eq!(end.await.unwrap().unwrap(), HELLO_BYTES);
        }
    }
}
