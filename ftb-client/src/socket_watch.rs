//! Waits for the socket of an agent that is not running.
//!
//! Responsible for: one inotify watch on the deepest existing folder on the way to the socket.
//! Not responsible for: connecting, pauses. Where inotify is not available (its limits are per
//! user), the client only has its pauses.

use core::future::poll_fn;
use core::pin::Pin;
use futures_core::Stream as _;
use inotify::{EventStream, Inotify, WatchMask};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path};

/// Room for some events: the longest has 272 bytes.
type Buffer = [u8; 1024];

/// Watches for the next step on the way to a socket.
pub(crate) struct SocketWatch {
    events: EventStream<Buffer>,
    /// The entry of the watched folder that leads to the socket.
    entry: OsString,
    /// The entry is the socket, not a folder above it.
    is_socket: bool,
}

/// What a watch saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The socket appeared or changed. The watch remains valid.
    Socket,
    /// A folder on the way appeared or went away: a new watch is needed.
    Path,
}

impl SocketWatch {
    /// # Errors
    /// The system's: no folder of the path can be watched, or the user has too many watches.
    pub(crate) fn new(socket: &Path) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        let mask = WatchMask::CREATE
            | WatchMask::MOVED_TO
            | WatchMask::ATTRIB
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for path in socket.ancestors() {
            let Some(Component::Normal(entry)) = path.components().next_back() else { break };
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            match inotify.watches().add(folder.unwrap_or(Path::new(".")), mask) {
                Ok(_) => {
                    let events = inotify.into_event_stream([0; _])?;
                    return Ok(Self { events, entry: entry.to_owned(), is_socket: path == socket });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Resolves when the entry on the way to the socket appears or changes, or the watched folder
    /// goes away. Cancel-safe.
    ///
    /// # Errors
    /// The system's: a new watch is needed.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            let next = poll_fn(|context| Pin::new(&mut self.events).poll_next(context)).await;
            let event = next.ok_or(io::ErrorKind::UnexpectedEof)??;
            // An event without a name is about the watched folder itself.
            match event.name {
                Some(name) if name != self.entry => {}
                Some(_) if self.is_socket => return Ok(Change::Socket),
                _ => return Ok(Change::Path),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Long enough that only a hang reaches it.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn changed(watch: &mut SocketWatch) -> Change {
        timeout(PATIENCE, watch.changed()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_watch_reports_the_next_step_on_the_way_to_the_socket_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("run");
        let socket = folder.join("agent.sock");
        let mut watch = SocketWatch::new(&socket).unwrap();
        fs::write(dir.path().join("other"), "").unwrap();
        let other = timeout(Duration::from_millis(20), watch.changed()).await;
        assert!(other.is_err(), "another entry is not on the way");
        fs::create_dir(&folder).unwrap();
        assert_eq!(changed(&mut watch).await, Change::Path);
        let mut watch = SocketWatch::new(&socket).unwrap();
        fs::write(&socket, "").unwrap();
        assert_eq!(changed(&mut watch).await, Change::Socket);
        fs::remove_dir_all(&folder).unwrap();
        while changed(&mut watch).await != Change::Path {}
    }

    #[tokio::test]
    async fn a_relative_path_and_a_path_without_folders_can_be_watched() {
        assert!(SocketWatch::new(Path::new("agent.sock")).is_ok());
        assert!(SocketWatch::new(Path::new("no/such/folder/agent.sock")).is_ok());
        assert!(SocketWatch::new(Path::new("/agent.sock")).is_ok());
        assert!(SocketWatch::new(Path::new("/")).is_err());
    }
}
