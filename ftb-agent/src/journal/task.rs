//! The task that writes the journal: it writes all waiting entries at once, syncs according to the
//! fsync mode, and notifies the driver.
//!
//! A disk that is full or cannot be written is tried again every few seconds. After an fsync error
//! the journal stays off. A store with damaged records is renamed, and a new one starts.

use super::config::Fsync;
use super::damage::Damage;
use super::log_store::{LogStore, LogStoreError};
use super::{Failure, Opened, Plan, Statistics};
use crate::handle::Handle;
use crate::world::{Clock, Storage, StoreError, World};
use ftb_core::frame::Item;
use ftb_core::node::api::{Input, JournalRead, JournalWrite, Restored};
use ftb_core::numbers::LogIndex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// A disk with less free space is full: the store must be able to finish its current write.
const FREE_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// A full disk is usable again with this much free space.
const FREE_BYTES_AGAIN: u64 = 2 * FREE_BYTES_MIN;
/// Free space is checked again after this many bytes,
const LOOK_BYTES: usize = 4 * 1024 * 1024;
/// or this time.
const LOOK: Duration = Duration::from_secs(1);
/// First pause before the disk is tried again; doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(500);
/// The longest pause between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Mode `batch`: pause between a write and the sync of the checkpoint.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(1);
/// Time without writes after which the checkpoint states that everything is synced. The next write
/// then waits for a sync of the checkpoint.
const SETTLE: Duration = Duration::from_secs(10);
/// Interval of the check for old segments.
const TRIM: Duration = Duration::from_secs(600);

/// The task.
pub struct Task {
    plan: Plan,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    state: State,
    statistics: Arc<Statistics>,
    /// The core knows the content of the journal.
    known: bool,
    /// Generation and last index of what the core knows to be written.
    reported_write: Option<(u64, LogIndex)>,
    /// When to sync the log and the checkpoint.
    sync_at: Option<Instant>,
    /// The last check of free space.
    room: Option<Room>,
    /// The pause after the next failure.
    pause: Duration,
    damage: Damage,
}

enum State {
    /// The store is open, or does not exist yet.
    Ready(Option<LogStore>),
    /// It cannot be written. `None`: an fsync has failed, and the journal stays off.
    Failed { at: Option<Instant>, reported: bool, reason: String },
    /// It is open again; writes from before the failure are void.
    Reopened(LogStore),
}

/// A check of free space.
struct Room {
    looked_at: Instant,
    written: usize,
}

enum Step {
    Write(Option<JournalWrite>),
    Read(JournalRead),
    Sync,
    Retry,
    Trim,
}

/// A journal that was opened.
pub struct OpenedStore {
    /// The open store.
    pub log_store: LogStore,
    /// Its content.
    pub restored: Restored,
    /// It was read and cannot be written.
    pub failed: Option<LogStoreError>,
}

/// Opens the journal. If its records are damaged, renames it and creates a new one. Notes damage
/// even if it then fails.
///
/// # Errors
/// [`LogStoreError::Foreign`]: it must stay as it is. Other errors: it cannot be used now.
pub fn open(
    storage: &dyn Storage,
    plan: &Plan,
    now_ns: u64,
    damage: &mut Damage,
) -> Result<OpenedStore, LogStoreError> {
    let attempt = || {
        let store = storage.open(&plan.folder)?;
        LogStore::open(store, &plan.cluster, plan.bounds.clone(), now_ns)
    };
    let mut opened = attempt();
    if let Err(LogStoreError::Damaged(reason) | LogStoreError::Store(StoreError::Damaged(reason))) =
        &opened
    {
        let aside = storage.set_aside(&plan.folder, now_ns);
        let lies = match &aside {
            Ok(aside) => format!("lies in {}", aside.display()),
            // It may be renamed all the same: then the next attempt finds nothing.
            Err(error) => format!("is being set aside ({error})"),
        };
        damage.found(format!("the journal could not be read ({reason}) and {lies}"));
        aside?;
        opened = attempt();
    }
    let (mut log_store, mut restored) = opened?;
    if let Some(found) = restored.damage.take() {
        damage.found(found);
    }
    let failed = log_store.repair(now_ns).err();
    Ok(OpenedStore { log_store, restored, failed })
}

impl Task {
    /// A task that has not started.
    pub fn new(opened: Opened, world: &World, handle: Handle) -> Self {
        let Opened { plan, log_store, failed, statistics, damage, known, .. } = opened;
        let state = match failed {
            None => State::Ready(log_store),
            Some(Failure { reason, is_final }) => {
                let at = (!is_final).then(|| Instant::now() + RETRY);
                State::Failed { at, reported: false, reason }
            }
        };
        let mut task = Self {
            plan,
            storage: Arc::clone(&world.storage),
            clock: Arc::clone(&world.clock),
            handle,
            statistics,
            known,
            state,
            reported_write: None,
            sync_at: None,
            room: None,
            pause: RETRY,
            damage,
        };
        if matches!(task.state, State::Ready(Some(_))) {
            task.sync_soon();
        }
        task
    }

    /// Runs until the writer is dropped and everything is written.
    pub async fn run(
        mut self,
        mut writes: mpsc::Receiver<JournalWrite>,
        mut reads: mpsc::Receiver<JournalRead>,
    ) {
        let mut trim_at = Instant::now() + TRIM;
        loop {
            self.tell_failure().await;
            let retry_at = match &self.state {
                State::Failed { at, .. } => *at,
                _ => None,
            };
            let turn = tokio::select! {
                biased;
                write = writes.recv() => Step::Write(write),
                Some(read) = reads.recv() => Step::Read(read),
                () = until(self.sync_at) => Step::Sync,
                () = until(retry_at) => Step::Retry,
                () = sleep_until(trim_at) => Step::Trim,
            };
            match turn {
                Step::Write(None) => break,
                Step::Write(Some(write)) => {
                    self.write_all(write, &mut writes).await;
                    // Reads must not wait for the end of all writes.
                    if let Ok(read) = reads.try_recv() {
                        self.read(&read).await;
                    }
                }
                Step::Read(read) => self.read(&read).await,
                Step::Sync => self.sync().await,
                Step::Retry => self.retry().await,
                Step::Trim => {
                    trim_at = Instant::now() + TRIM;
                    let now_ns = self.clock.now().wall_ns;
                    self.with_log_store(|log_store| {
                        log_store.close_chunk();
                        log_store.trim(now_ns)
                    });
                }
            }
        }
        // After an orderly end nothing is unsynced.
        self.with_open(|log_store| log_store.settle(true).map(drop));
    }

    /// Writes one entry of the channel. In mode `batch` also all that wait, with one fsync.
    async fn write_all(&mut self, first: JournalWrite, writes: &mut mpsc::Receiver<JournalWrite>) {
        let mut waiting = match self.plan.fsync {
            Fsync::Batch => writes.len(),
            Fsync::Interval(_) => 0,
        };
        let mut next = Some(first);
        let mut written = None;
        while let Some(write) = next {
            next = match waiting.checked_sub(1) {
                Some(fewer) => {
                    waiting = fewer;
                    writes.try_recv().ok()
                }
                None => None,
            };
            let sync = self.plan.fsync == Fsync::Batch && next.is_none();
            let is_of_log = write.begin.is_some() || write.changes_mark || !write.items.is_empty();
            if self.write(&write, sync) && is_of_log {
                written = Some((write.generation, write.until));
            }
        }
        if matches!(self.state, State::Failed { .. }) {
            return;
        }
        if let Some((generation, until)) = written {
            self.with_log_store(LogStore::acknowledge);
            if matches!(self.state, State::Failed { .. }) {
                return;
            }
            self.sync_soon();
            if !matches!(self.plan.fsync, Fsync::Interval(_)) {
                self.pause = RETRY;
            }
            self.reported_write = Some((generation, until));
            self.tell_written().await;
        }
        // Continuous writes must not delay the sync.
        if self.sync_at.is_some_and(|at| at <= Instant::now()) {
            self.sync().await;
        }
    }

    /// Tells the core how much is written and synced.
    async fn tell_written(&mut self) {
        let (Some((generation, until)), State::Ready(Some(log_store))) =
            (self.reported_write, &self.state)
        else {
            return;
        };
        let synced = log_store.synced();
        self.tell(Input::Journaled { generation, until, synced }).await;
    }

    /// Writes one entry of the channel; true if it is written.
    fn write(&mut self, write: &JournalWrite, sync: bool) -> bool {
        // A new beginning of the log is current, and so is a write of members only. A change of the
        // mark is of the store before.
        let is_of_now = write.begin.is_some() || write.items.is_empty() && !write.changes_mark;
        if is_of_now
            && let State::Reopened(_) = &self.state
            && let State::Reopened(log_store) =
                std::mem::replace(&mut self.state, State::Ready(None))
        {
            self.state = State::Ready(Some(log_store));
        }
        let now_ns = self.clock.now().wall_ns;
        match &self.state {
            State::Ready(None) => match self.open(now_ns) {
                Ok((log_store, restored))
                    if restored == Restored::default() && !self.damage.is_pending() =>
                {
                    self.state = State::Ready(Some(log_store));
                }
                // The disk was mounted late: the core does not know its content and would overwrite
                // it.
                Ok(_) => {
                    self.known = false;
                    self.fail(&"it was not there when the agent started; its log is taken up");
                    return false;
                }
                // The same may be true here.
                Err(error) => {
                    self.known = false;
                    match error.is_fsync() {
                        true => self.fail_for_good(&error),
                        false => self.fail(&error),
                    }
                    return false;
                }
            },
            State::Ready(Some(_)) => {}
            // The core sent it before it knew of the failure.
            State::Failed { .. } | State::Reopened(_) => return false,
        }
        let bytes = write.items.iter().map(Item::len).sum();
        if self.is_to_look(bytes) && self.is_full(FREE_BYTES_MIN) {
            self.fail(&"no space is left on the disk");
            return false;
        }
        self.with_log_store(|log_store| log_store.write(write, now_ns, sync));
        matches!(self.state, State::Ready(_))
    }

    /// Reads a page; answers in any case.
    async fn read(&mut self, read: &JournalRead) {
        let mut page = None;
        self.with_log_store(|log_store| {
            page = Some(log_store.page(read)?);
            Ok(())
        });
        self.tell(Input::JournalRead { read: read.read, page }).await;
    }

    /// Whether to check the free space. The check comes before the disk is full, because other
    /// programs may use it.
    fn is_to_look(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        if let Some(room) = &mut self.room
            && now < room.looked_at + LOOK
            && room.written < LOOK_BYTES
        {
            room.written += bytes;
            return false;
        }
        self.room = Some(Room { looked_at: now, written: bytes });
        true
    }

    fn is_full(&self, min: u64) -> bool {
        self.storage.free_bytes(&self.plan.folder).is_ok_and(|free| free < min)
    }

    /// The pause between a write and its sync.
    fn sync_pause(&self) -> Duration {
        match self.plan.fsync {
            Fsync::Batch => CHECKPOINT_PAUSE,
            Fsync::Interval(interval) => interval,
        }
    }

    /// Schedules a sync of log and checkpoint, also for entries from before the restart.
    fn sync_soon(&mut self) {
        let at = Instant::now() + self.sync_pause();
        self.sync_at = Some(self.sync_at.map_or(at, |before| before.min(at)));
    }

    async fn sync(&mut self) {
        let mut is_settled = true;
        let was_synced = self.is_synced();
        self.with_open(|log_store| {
            is_settled = log_store.settle(false)?;
            Ok(())
        });
        self.sync_at = (!is_settled).then(|| Instant::now() + self.sync_pause().max(SETTLE));
        if matches!(self.state, State::Ready(_)) {
            self.pause = RETRY;
            if !was_synced {
                self.tell_written().await;
            }
        }
    }

    /// Whether everything that is written is synced.
    fn is_synced(&self) -> bool {
        match &self.state {
            State::Ready(Some(log_store)) => log_store.synced() == log_store.stored().last,
            State::Ready(None) | State::Reopened(_) | State::Failed { .. } => true,
        }
    }

    /// Uses the store if it is ready.
    fn with_log_store(&mut self, what: impl FnOnce(&mut LogStore) -> Result<(), LogStoreError>) {
        if matches!(self.state, State::Ready(_)) {
            self.with_open(what);
        }
    }

    /// The same, also for a store that was opened again.
    fn with_open(&mut self, what: impl FnOnce(&mut LogStore) -> Result<(), LogStoreError>) {
        let (State::Ready(Some(log_store)) | State::Reopened(log_store)) = &mut self.state else {
            return;
        };
        match what(log_store) {
            Ok(()) => self.statistics.set(log_store),
            Err(error) if error.is_fsync() => self.fail_for_good(&error),
            Err(error) => self.fail(&error),
        }
    }

    /// An fsync has failed: the kernel may drop what was written and report success next time. So
    /// the journal stays off until the agent starts again.
    fn fail_for_good(&mut self, error: &LogStoreError) {
        self.fail(error);
        if let State::Failed { at, reason, .. } = &mut self.state {
            *at = None;
            reason.push_str("; the journal is off until the agent restarts");
        }
    }

    /// Closes the store; its content is read when it is opened again.
    fn fail(&mut self, error: &dyn std::fmt::Display) {
        let reason = format!("{}: {error}", self.plan.folder.display());
        tracing::error!(reason, "the journal cannot be written");
        let at = self.next_try();
        self.sync_at = None;
        self.reported_write = None;
        self.room = None;
        self.state = State::Failed { at: Some(at), reported: false, reason };
    }

    /// When to try the disk again. The pauses grow until a write, and in mode `interval` a sync,
    /// has succeeded.
    fn next_try(&mut self) -> Instant {
        let at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(RETRY_MAX);
        at
    }

    async fn tell_failure(&mut self) {
        if let State::Failed { reported, reason, .. } = &mut self.state
            && !std::mem::replace(reported, true)
        {
            let error = reason.clone();
            self.tell(Input::JournalFailed { error }).await;
        }
    }

    /// Tries the disk again.
    async fn retry(&mut self) {
        let now_ns = self.clock.now().wall_ns;
        let opened = match self.is_full(FREE_BYTES_AGAIN) {
            true => None,
            false => Some(self.open(now_ns)),
        };
        match opened {
            Some(Err(error)) if error.is_fsync() => self.fail_for_good(&error),
            Some(Ok((log_store, restored))) => {
                tracing::info!(folder = %self.plan.folder.display(), "the journal is open again");
                let known = std::mem::replace(&mut self.known, true);
                let stored = log_store.stored();
                self.state = State::Reopened(log_store);
                self.sync_soon();
                let restored = (!known).then(|| Box::new(restored));
                restored.iter().for_each(|restored| log_unclean(restored));
                let damage = self.damage.take_pending();
                self.tell(Input::JournalOpened { stored, restored, damage }).await;
            }
            Some(Err(_)) | None => {
                let next = self.next_try();
                if let State::Failed { at, .. } = &mut self.state {
                    *at = Some(next);
                }
            }
        }
    }

    fn open(&mut self, now_ns: u64) -> Result<(LogStore, Restored), LogStoreError> {
        let found = open(self.storage.as_ref(), &self.plan, now_ns, &mut self.damage)?;
        match found.failed {
            Some(error) => Err(error),
            None => Ok((found.log_store, found.restored)),
        }
    }

    async fn tell(&mut self, input: Input) {
        // An error means that the agent is stopping.
        let _ = self.handle.link_input(input, 0).await;
    }
}

/// Logs an unclean shutdown; the core publishes the event.
pub(super) fn log_unclean(restored: &Restored) {
    if let Some(unclean) = &restored.unclean {
        tracing::warn!(unclean, "the end of the journal may be missing");
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
