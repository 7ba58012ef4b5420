//! Traits for everything outside the agent: network, clock, randomness, storage.
//!
//! With `tests/common/network.rs` a thousand agents run in one process over in-memory streams with
//! paused time; [`crate::system`] is the real system. Not responsible for: TLS and limits
//! ([`ftb_transport`]).

use ftb_core::Now;
use ftb_transport::Connection;
use futures_util::future::BoxFuture;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// A bound socket.
pub trait Listener: Send + 'static {
    /// Waits for the next connection. Cancel safe: a cancelled call loses no connection.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>>;
    /// Where it is bound.
    fn address(&self) -> String;
}

/// The network as one agent sees it.
pub trait Net: Send + Sync + 'static {
    /// Connects to another agent. The caller sets the deadline: a dial to a crashed host hangs.
    /// `ConnectionRefused` means that the host is up and no agent listens.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>>;
    /// Listens for other agents.
    fn listen_links<'a>(&'a self, address: &'a str)
    -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
    /// Listens for clients of this host.
    fn listen_clients<'a>(&'a self, path: &'a Path)
    -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
}

/// The clocks.
pub trait Clock: Send + Sync + 'static {
    /// The current time on both clocks.
    fn now(&self) -> Now;
    /// The tokio instant of a deadline on the monotonic clock.
    fn instant(&self, mono_ns: u64) -> Instant;
    /// A new alarm of this clock. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The system has no timer left.
    fn alarm(&self) -> io::Result<Box<dyn Alarm>>;
}

/// Wakes a task at a deadline that often moves.
pub trait Alarm: Send + 'static {
    /// Ready at this time (monotonic, in nanoseconds). Otherwise wakes the task at the deadline. If
    /// the deadline has moved a little later, the wake-up may come early. `None`: never ready.
    fn poll_due(&mut self, context: &mut Context<'_>, at_ns: Option<u64>) -> Poll<()>;
}

/// A source of random numbers.
pub trait Entropy: Send + Sync + 'static {
    /// An unpredictable number; never 0.
    ///
    /// # Errors
    /// The source of randomness failed.
    fn draw(&self) -> io::Result<u64>;
}

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, gone or read-only.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An fsync has failed: the data may be readable now and gone after a power failure.
    #[error("what was written could not be synced: {0}")]
    Unsynced(io::Error),
    /// Another process has it open.
    #[error("another process is using it: give each agent a journal of its own")]
    Locked,
    /// The store is damaged and must not be used.
    #[error("{0}")]
    Damaged(String),
    /// The store has an unknown format and must not be changed.
    #[error("{0}")]
    Foreign(String),
}

impl StoreError {
    /// The error of a read: a file that ends too early, or is not where it was, is damage.
    pub fn of_read(error: io::Error) -> Self {
        use io::ErrorKind::{NotFound, UnexpectedEof};
        match error.kind() {
            NotFound | UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

/// One change to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replaces the record of this key.
    Put(&'static str, Vec<u8>),
    /// Appends a chunk to a segment; its key is above all others. Creates the segment if necessary.
    Append {
        /// The segment.
        segment: u64,
        /// The chunk's key.
        first: u64,
        /// The chunk.
        chunk: Vec<u8>,
    },
    /// Removes the end of a segment.
    Cut {
        /// The segment.
        segment: u64,
        /// The key of the first removed chunk.
        from: u64,
    },
}

/// The disks of a host.
pub trait Storage: Send + Sync + 'static {
    /// Whether the folder contains a store, or cannot be read.
    fn exists(&self, folder: &Path) -> bool;
    /// Opens the store in this folder; creates both if necessary.
    ///
    /// # Errors
    /// [`StoreError`].
    fn open(&self, folder: &Path) -> Result<Box<dyn Store>, StoreError>;
    /// Renames a damaged store and returns its new path.
    ///
    /// # Errors
    /// It could not be moved.
    fn set_aside(&self, folder: &Path, now_ns: u64) -> Result<PathBuf, StoreError>;
    /// Free space for this folder, in bytes.
    ///
    /// # Errors
    /// The file system does not say.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
    /// Whether calls block and need a separate thread.
    fn is_blocking(&self) -> bool;
}

/// An open store: records by name, and segments of chunks by number. After an error, except from
/// [`Store::get`] and [`Store::read`], open it again.
pub trait Store: Send {
    /// A record.
    ///
    /// # Errors
    /// [`StoreError`], here and below.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// The numbers of the segments, ascending.
    fn segments(&mut self) -> Result<Vec<u64>, StoreError>;
    /// Visits the chunks of a segment, ascending by key. After an error the store knows the visited
    /// chunks, and a cut also removes the others.
    fn read(&mut self, segment: u64, visit: &mut dyn FnMut(u64, Vec<u8>))
    -> Result<(), StoreError>;
    /// One chunk.
    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError>;
    /// Applies the changes in order. A crash leaves the first few; adjacent records are atomic. The
    /// changes survive the process, and with `sync` a power failure. Changes before a cut or a
    /// record are synced before it.
    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError>;
    /// Removes a segment.
    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError>;
    /// Syncs everything, including data from before the store was opened.
    fn sync(&mut self) -> Result<(), StoreError>;
    /// Writes the checkpoint in place; with `sync` it survives a power failure.
    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError>;
    /// The checkpoint; empty if there is none.
    fn acknowledged(&mut self) -> Result<Vec<u8>, StoreError>;
    /// Damage that was repaired from a copy when the store was opened.
    fn mended(&mut self) -> Option<String> {
        None
    }
    /// The boot id of the machine, if known. Written data survives within one boot, synced or not.
    fn boot(&mut self) -> Option<u128>;
}

/// The world of one agent.
#[derive(Clone)]
pub struct World {
    /// Its network.
    pub net: Arc<dyn Net>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Its randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Its disks.
    pub storage: Arc<dyn Storage>,
}

/// A clock over tokio's, which tests can pause; the wall clock is the caller's.
pub struct TokioClock<W> {
    start: Instant,
    wall: W,
}

impl<W: Fn() -> u64 + Send + Sync + 'static> TokioClock<W> {
    /// Starts at 1 ns; `wall` gives Unix nanoseconds. Must be called inside a tokio runtime when
    /// its time is paused.
    pub fn new(wall: W) -> Self {
        Self { start: Instant::now(), wall }
    }
}

impl<W: Fn() -> u64 + Send + Sync + 'static> Clock for TokioClock<W> {
    fn now(&self) -> Now {
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { mono_ns: elapsed.saturating_add(1), wall_ns: (self.wall)() }
    }

    fn instant(&self, mono_ns: u64) -> Instant {
        instant(self.start, mono_ns)
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        let sleep = Box::pin(sleep_until(self.start));
        Ok(Box::new(TokioAlarm { start: self.start, sleep, set_ns: 0 }))
    }
}

fn instant(start: Instant, mono_ns: u64) -> Instant {
    // Limits a deadline to one year, so that it cannot overflow the clock.
    const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
    start + Duration::from_nanos(mono_ns).min(start.elapsed() + FAR)
}

/// An alarm over tokio's timer.
struct TokioAlarm {
    start: Instant,
    sleep: Pin<Box<Sleep>>,
    /// The set deadline.
    set_ns: u64,
}

impl Alarm for TokioAlarm {
    fn poll_due(&mut self, context: &mut Context<'_>, at_ns: Option<u64>) -> Poll<()> {
        let Some(at_ns) = at_ns else { return Poll::Pending };
        if self.set_ns != at_ns {
            self.set_ns = at_ns;
            self.sleep.as_mut().reset(instant(self.start, at_ns));
        }
        self.sleep.as_mut().poll(context)
    }
}
