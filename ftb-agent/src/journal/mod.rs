//! The journal: the log of acting root and standby on disk (docs/journal.md).
//!
//! The agent opens the journal at its start and writes it in a thread ([`task`]), so that the
//! driver never waits for the disk. The thread writes all that `Node::poll_journal` gave in one go,
//! syncs as the mode says, and returns `Journaled`. `JournalBegin` states which log it is and from
//! which index the disk is void. Reads of old history take pages through the same thread.
//!
//! Not responsible for: what is written and what an acknowledgement means (`ftb_core::node`),
//! segments ([`log_store`]), bytes ([`record`]), files ([`files`]).

pub mod config;
mod damage;
pub mod files;
pub mod log_store;
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
use log_store::{Bounds, LogStore, LogStoreError};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use task::{OpenedStore, Task};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Writes on their way to the disk, each of at most [`WRITE_BYTES`] and 1,024 events. Further
/// entries wait in the core's log.
const WRITES_MAX: usize = 8;
/// Largest write, in bytes.
pub const WRITE_BYTES: usize = 512 * 1024;

/// Size and age of the log on disk, for status reports.
#[derive(Debug, Default)]
pub struct Statistics {
    bytes: AtomicU64,
    oldest_ns: AtomicU64,
}

impl Statistics {
    fn set(&self, log_store: &LogStore) {
        self.bytes.store(log_store.bytes(), Ordering::Relaxed);
        self.oldest_ns.store(log_store.oldest_ns(), Ordering::Relaxed);
    }

    /// Bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the oldest entry was written, in Unix nanoseconds; 0 without entries.
    pub fn oldest_ns(&self) -> Option<u64> {
        Some(self.oldest_ns.load(Ordering::Relaxed)).filter(|oldest_ns| *oldest_ns != 0)
    }
}

/// Settings of the journal.
pub struct Plan {
    cluster: String,
    folder: PathBuf,
    bounds: Bounds,
    fsync: Fsync,
}

/// The driver's channels to the journal.
pub struct LogWriter {
    /// Writes.
    pub writes: mpsc::Sender<JournalWrite>,
    /// Requests for pages of old entries.
    pub reads: mpsc::Sender<JournalRead>,
}

/// The journal of an agent that starts.
pub struct Opened {
    /// Content from before the restart.
    pub restored: Restored,
    /// Why it cannot be written now.
    pub failed: Option<Failure>,
    /// Updated by the task.
    pub statistics: Arc<Statistics>,
    plan: Plan,
    log_store: Option<LogStore>,
    damage: Damage,
    /// It was read, even if it cannot be written.
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

impl From<LogStoreError> for Failure {
    fn from(error: LogStoreError) -> Self {
        Self { reason: error.to_string(), is_final: error.is_fsync() }
    }
}

/// The agent must not start with this journal.
#[derive(Debug, thiserror::Error)]
#[error("the journal in {folder}: {reason}")]
pub struct JournalError {
    folder: String,
    reason: String,
}

impl Opened {
    /// Reads the journal, and creates nothing. A journal whose records are damaged is renamed. One
    /// that cannot be read is tried again later, and the agent starts.
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
        let (bytes, age, conditions) = (config.bytes, config.age, config.conditions);
        let bounds = Bounds { bytes, age, memory_bytes, protected, conditions };
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
            Ok(OpenedStore { log_store, mut restored, failed }) => {
                let (entries, last) = (restored.items.len(), restored.stored.last);
                let folder = plan.folder.display();
                tracing::info!(entries, last = last.get(), %folder, "journal read");
                restored.damage = damage.take_pending();
                task::log_unclean(&restored);
                let statistics = Arc::new(Statistics::default());
                statistics.set(&log_store);
                let failed = failed.map(Failure::from);
                let log_store = failed.is_none().then_some(log_store);
                Ok(Self { restored, failed, statistics, plan, log_store, damage, known: true })
            }
            Err(
                LogStoreError::Foreign(reason) | LogStoreError::Store(StoreError::Foreign(reason)),
            ) => Err(JournalError { folder: plan.folder.display().to_string(), reason }),
            Err(error) => Ok(Self { damage, ..Self::nothing(plan, Some(Failure::from(error))) }),
        }
    }

    fn nothing(plan: Plan, failed: Option<Failure>) -> Self {
        let (restored, statistics, damage) =
            (Restored::default(), Arc::default(), Damage::default());
        let known = failed.is_none();
        Self { restored, failed, statistics, plan, log_store: None, damage, known }
    }

    /// Starts the task, in a thread if the storage blocks. It ends when the sender of writes is
    /// dropped and everything is written.
    pub fn start(self, world: &World, handle: Handle) -> (LogWriter, JoinHandle<()>) {
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
        (LogWriter { writes, reads }, running)
    }
}
