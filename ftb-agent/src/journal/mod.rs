//! The journal: the log of acting root and standby on disk.
//!
//! What is written, and what an acknowledgement means, is the core's (`ftb_core::node::journal`); here
//! it meets a disk. docs/journal.md has the whole story. Responsible for: opening the journal when the
//! agent starts, writing what the driver hands out on a thread of its own ([`task`]), never in the
//! driver's way. Not responsible for: the layout ([`keeper`]), the bytes ([`record`]), the store
//! ([`files`], [`memory`]).

pub mod config;
mod damage;
pub mod files;
pub mod keeper;
pub mod memory;
mod reading;
pub mod record;
mod segment;
pub mod task;

use crate::handle::Handle;
use crate::world::{StoreError, World};
use config::{Fsync, JournalConfig};
use damage::Damage;
use ftb_core::node::JOURNAL_READS_MAX;
use ftb_core::node::api::{JournalRead, JournalWrite, Restored};
use keeper::{Bounds, KeepError, Keeper};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use task::{Found, Task};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Writes that wait for the disk, each of up to [`WRITE_BYTES`] and 1,024 events. Full: the rest waits
/// in the core, as a place in the log.
const WRITES_MAX: usize = 8;
/// Bytes after which a write is cut.
pub const WRITE_BYTES: usize = 512 * 1024;

/// How much is on disk, for who asks.
#[derive(Debug, Default)]
pub struct Gauge {
    bytes: AtomicU64,
    oldest_ns: AtomicU64,
}

impl Gauge {
    fn set(&self, keeper: &Keeper) {
        self.bytes.store(keeper.bytes(), Ordering::Relaxed);
        self.oldest_ns.store(keeper.oldest_ns(), Ordering::Relaxed);
    }

    /// Bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the oldest of it was written, Unix nanoseconds; 0 where nothing is there.
    pub fn oldest_ns(&self) -> u64 {
        self.oldest_ns.load(Ordering::Relaxed)
    }
}

/// What the journal's task needs to know.
pub struct Plan {
    cluster: String,
    folder: PathBuf,
    bounds: Bounds,
    fsync: Fsync,
}

/// The driver's way to its journal.
pub struct Pen {
    /// What is to be written.
    pub writes: mpsc::Sender<JournalWrite>,
    /// Which pages are to be read.
    pub reads: mpsc::Sender<JournalRead>,
}

/// The journal of an agent that starts.
pub struct Opened {
    /// What an earlier life has left.
    pub restored: Restored,
    /// Why it cannot be written now.
    pub failed: Option<Failure>,
    /// How much is on disk, kept up by the task.
    pub gauge: Arc<Gauge>,
    plan: Plan,
    keeper: Option<Keeper>,
    damage: Damage,
    /// It was read, also where it cannot be written now.
    known: bool,
}

/// A journal that cannot be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) reason: String,
    /// An fsync has failed: the journal is not tried again.
    pub(crate) is_final: bool,
}

impl Failure {
    /// The error.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<KeepError> for Failure {
    fn from(error: KeepError) -> Self {
        Self { reason: error.to_string(), is_final: error.is_fsync() }
    }
}

/// Why an agent must not start with that journal.
#[derive(Debug, thiserror::Error)]
#[error("the journal in {folder}: {reason}")]
pub struct JournalError {
    folder: String,
    reason: String,
}

impl Opened {
    /// Reads what is there; makes nothing. A journal that is damaged is set aside, one that cannot be
    /// read now is tried again later: the agent starts.
    ///
    /// # Errors
    /// The journal belongs to another cluster, or was written by a newer version.
    pub async fn read(
        config: &JournalConfig,
        cluster: &str,
        folder: PathBuf,
        memory_bytes: usize,
        world: &World,
    ) -> Result<Self, JournalError> {
        let protected = Arc::clone(&config.protected);
        let bounds = Bounds { bytes: config.bytes, age: config.age, memory_bytes, protected };
        let plan = Plan { cluster: cluster.to_owned(), folder, bounds, fsync: config.fsync };
        let now_ns = world.clock.now().wall_ns;
        let storage = Arc::clone(&world.storage);
        if !storage.exists(&plan.folder) {
            return Ok(Self::nothing(plan, None));
        }
        let blocking = storage.is_blocking();
        let open = move || {
            let mut damage = Damage::default();
            let opened = task::open(storage.as_ref(), &plan, now_ns, &mut damage);
            (opened, plan, damage)
        };
        let (opened, plan, mut damage) = match blocking {
            true => tokio::task::spawn_blocking(open).await.map_err(|error| JournalError {
                folder: String::new(),
                reason: error.to_string(),
            })?,
            false => open(),
        };
        match opened {
            Ok(Found { keeper, mut restored, failed }) => {
                let (entries, last) = (restored.items.len(), restored.stored.last);
                tracing::info!(entries, last, folder = %plan.folder.display(), "journal read");
                restored.damage = damage.take_untold();
                task::log_unclean(&restored);
                let gauge = Arc::new(Gauge::default());
                gauge.set(&keeper);
                let failed = failed.map(Failure::from);
                let keeper = failed.is_none().then_some(keeper);
                Ok(Self { restored, failed, gauge, plan, keeper, damage, known: true })
            }
            Err(KeepError::Foreign(reason) | KeepError::Store(StoreError::Foreign(reason))) => {
                Err(JournalError { folder: plan.folder.display().to_string(), reason })
            }
            Err(error) => Ok(Self { damage, ..Self::nothing(plan, Some(Failure::from(error))) }),
        }
    }

    fn nothing(plan: Plan, failed: Option<Failure>) -> Self {
        let (restored, gauge, damage) = (Restored::default(), Arc::default(), Damage::default());
        let known = failed.is_none();
        Self { restored, failed, gauge, plan, keeper: None, damage, known }
    }

    /// Starts to write and to read: on a thread where the storage blocks. Ends when the sender of what
    /// is to be written is dropped and everything is written.
    pub fn start(self, world: &World, handle: Handle) -> (Pen, JoinHandle<()>) {
        let (writes, receiver) = mpsc::channel(WRITES_MAX);
        let (reads, wanted) = mpsc::channel(JOURNAL_READS_MAX);
        let blocking = world.storage.is_blocking();
        let task = Task::new(self, world, handle);
        let running = match blocking {
            true => tokio::task::spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(task.run(receiver, wanted)),
                    Err(error) => tracing::error!(%error, "cannot start the journal"),
                }
            }),
            false => tokio::spawn(task.run(receiver, wanted)),
        };
        (Pen { writes, reads }, running)
    }
}
