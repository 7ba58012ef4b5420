//! What the agent reaches of the world, behind small traits: network, clock, randomness, storage.
//!
//! Responsible for: the seam that lets a thousand agents run in one process over in-memory streams
//! with paused time. [`crate::system`] is the real world, [`crate::memory`] the other one. Not
//! responsible for: TLS and limits ([`ftb_transport`]).

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
    /// `ConnectionRefused` means that the host lives and nobody listens there.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>>;
    /// Listens for other agents.
    fn listen_links<'a>(&'a self, address: &'a str)
    -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
    /// Listens for clients of this host.
    fn listen_clients<'a>(&'a self, path: &'a Path)
    -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
}

/// What time it is.
pub trait Clock: Send + Sync + 'static {
    /// Now, on both clocks.
    fn now(&self) -> Now;
    /// The moment to sleep until for a deadline on the monotonic clock.
    fn instant(&self, mono_ns: u64) -> Instant;
    /// A new alarm of this clock. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The system has no timer left.
    fn alarm(&self) -> io::Result<Box<dyn Alarm>>;
}

/// Wakes a task at a time that is often moved.
pub trait Alarm: Send + 'static {
    /// Whether that time (on the monotonic clock, in nanoseconds) has come; else the task is woken when
    /// it comes, or a little before a later time than the one it was asked for last, to be asked again.
    /// `None`: it never comes.
    fn poll_due(&mut self, context: &mut Context<'_>, at_ns: Option<u64>) -> Poll<()>;
}

/// Where random numbers come from.
pub trait Entropy: Send + Sync + 'static {
    /// A number that nobody can guess; never 0.
    ///
    /// # Errors
    /// The source of randomness failed.
    fn draw(&self) -> io::Result<u64>;
}

/// What can go wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk: full, gone, not to be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was written could not be synced: it may read well and be gone after a power failure.
    #[error("what was written could not be synced: {0}")]
    Unsynced(io::Error),
    /// Another process has it open.
    #[error("another process is using it: give each agent a journal of its own")]
    Locked,
    /// It is not what was written: it must not be used any more.
    #[error("{0}")]
    Damaged(String),
    /// It is in a form that this version does not know: nothing may be changed in it.
    #[error("{0}")]
    Foreign(String),
}

/// One change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A record, in the place of the one of that key.
    Put(&'static str, Vec<u8>),
    /// A chunk at the end of a segment, its key above those of the others. The segment is made where it
    /// is not there.
    Append {
        /// Which segment.
        segment: u64,
        /// The chunk's key.
        first: u64,
        /// The chunk.
        chunk: Vec<u8>,
    },
    /// The end of a segment is not there any more.
    Cut {
        /// Which segment.
        segment: u64,
        /// The key of the first chunk that goes.
        from: u64,
    },
}

/// Where stores are.
pub trait Storage: Send + Sync + 'static {
    /// Whether there is a store in that folder, or may be one: it cannot be looked at.
    fn exists(&self, folder: &Path) -> bool;
    /// Opens the store in that folder; makes both where they are not there.
    ///
    /// # Errors
    /// [`StoreError`].
    fn open(&self, folder: &Path) -> Result<Box<dyn Store>, StoreError>;
    /// Moves a store that is damaged aside, so that another can be made; says where it is now.
    ///
    /// # Errors
    /// It could not be moved.
    fn set_aside(&self, folder: &Path, now_ns: u64) -> Result<PathBuf, StoreError>;
    /// Bytes that can still be written there.
    ///
    /// # Errors
    /// The file system does not say.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
    /// Whether its calls block, and need a thread of their own.
    fn is_blocking(&self) -> bool;
}

/// An open store: records by name, and segments of chunks by number. After an error other than of
/// [`Store::get`] and [`Store::read`] it is to be opened again.
pub trait Store: Send {
    /// A record.
    ///
    /// # Errors
    /// [`StoreError`], here and below.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// The numbers of the segments, rising.
    fn segments(&mut self) -> Result<Vec<u64>, StoreError>;
    /// Shows the chunks of a segment, rising by key. After an error the store knows of those that it has
    /// shown, and a cut takes the others too.
    fn read(&mut self, segment: u64, visit: &mut dyn FnMut(u64, Vec<u8>))
    -> Result<(), StoreError>;
    /// One chunk.
    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError>;
    /// Makes the changes in their order: a crash leaves the first few of them, and of records that stand
    /// together all or none. They survive the process, with `sync` a power failure too, and so does what
    /// stands before a cut or a record when that is made.
    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError>;
    /// Gives a segment up.
    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError>;
    /// Makes everything survive a power failure, also what was there when it was opened.
    fn sync(&mut self) -> Result<(), StoreError>;
    /// Keeps a small record apart from everything else, in the place of the last one; with `sync` it
    /// survives a power failure.
    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError>;
    /// That record; empty where there is none.
    fn acknowledged(&mut self) -> Result<Vec<u8>, StoreError>;
    /// What was damaged and taken from a copy when the store was opened, to be reported.
    fn mended(&mut self) -> Option<String> {
        None
    }
    /// In which boot of its machine this is: what was written is there as long as that stays the same,
    /// synced or not. `None`: it is not known.
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
    // A deadline beyond a year is as good as none, and cannot overflow the clock.
    const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
    start + Duration::from_nanos(mono_ns).min(start.elapsed() + FAR)
}

/// An alarm over tokio's timer.
struct TokioAlarm {
    start: Instant,
    sleep: Pin<Box<Sleep>>,
    /// For when.
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
