//! The task that writes the journal: takes what the driver hands out, writes what has come together,
//! makes it survive a power failure as the policy says, and tells the driver.
//!
//! A disk that cannot be written (full, gone, damaged) is given up at once and tried again every few
//! seconds: with room again, the log is written from where it can go on. A store whose bytes are
//! damaged is set aside, and a new one begun.

use super::config::Fsync;
use super::damage::Damage;
use super::keeper::{KeepError, Keeper};
use super::{Failure, Gauge, Opened, Plan};
use crate::handle::Handle;
use crate::world::{Clock, Storage, StoreError, World};
use ftb_core::frame::Item;
use ftb_core::node::api::{Input, JournalRead, JournalWrite, Restored};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// With less room than this a disk counts as full: the store must be able to finish what it does.
const FREE_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// A full disk counts as free again with so much room: not one that a few events fill again.
const FREE_BYTES_AGAIN: u64 = 2 * FREE_BYTES_MIN;
/// It is looked again how much room there is when so much was written since,
const LOOK_BYTES: usize = 4 * 1024 * 1024;
/// or so long ago.
const LOOK: Duration = Duration::from_secs(1);
/// How long after a failure the disk is tried again; doubled up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(500);
/// The longest pause between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long after a write that was synced at once the mark of how far that is is synced, too.
const MARK: Duration = Duration::from_secs(1);
/// How long nothing must have been written before the mark says that nothing is left to be synced: what is
/// written next waits for a sync of the mark again.
const SETTLE: Duration = Duration::from_secs(10);
/// How often a journal that nothing is written to looks whether something is too old.
const TRIM: Duration = Duration::from_secs(600);

/// The task.
pub struct Task {
    plan: Plan,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    state: State,
    gauge: Arc<Gauge>,
    /// The agent knows what an earlier life has left.
    known: bool,
    /// When what was written is to be synced, and marked as such.
    sync_at: Option<Instant>,
    /// How much room there was, and what was written since.
    room: Option<Room>,
    /// How long after the next failure the disk is tried again.
    pause: Duration,
    damage: Damage,
}

enum State {
    /// There is no store yet, or it is open.
    Ready(Option<Keeper>),
    /// It cannot be written. `None`: an fsync has failed, and the journal stays off.
    Failed { at: Option<Instant>, told: bool, reason: String },
    /// It is open again: what was handed out for the one before is void.
    Reopened(Keeper),
}

/// When it was last looked how much room the disk has.
struct Room {
    looked_at: Instant,
    written: usize,
}

enum Turn {
    Write(Option<JournalWrite>),
    Read(JournalRead),
    Sync,
    Retry,
    Trim,
}

/// A journal that was opened.
pub struct Found {
    /// It.
    pub keeper: Keeper,
    /// What an earlier life has left in it.
    pub restored: Restored,
    /// It was read and cannot be written.
    pub failed: Option<KeepError>,
}

/// Opens the journal that a plan names; one that is damaged is set aside, and a new one made. What is wrong
/// with it is noted, also where it cannot be opened then.
///
/// # Errors
/// [`KeepError::Foreign`]: it must not be touched. Anything else: it cannot be used now.
pub fn open(
    storage: &dyn Storage,
    plan: &Plan,
    now_ns: u64,
    damage: &mut Damage,
) -> Result<Found, KeepError> {
    let attempt = || {
        let store = storage.open(&plan.folder)?;
        Keeper::open(store, &plan.cluster, plan.bounds.clone(), now_ns)
    };
    let mut opened = attempt();
    if let Err(KeepError::Damaged(reason) | KeepError::Store(StoreError::Damaged(reason))) = &opened
    {
        let aside = storage.set_aside(&plan.folder, now_ns);
        let lies = match &aside {
            Ok(aside) => format!("lies in {}", aside.display()),
            // It may be gone from its place all the same: then the next try finds nothing.
            Err(error) => format!("is being set aside ({error})"),
        };
        damage.found(format!("the journal could not be read ({reason}) and {lies}"));
        aside?;
        opened = attempt();
    }
    let (mut keeper, mut restored) = opened?;
    if let Some(found) = restored.damage.take() {
        damage.found(found);
    }
    let failed = keeper.repair(now_ns).err();
    Ok(Found { keeper, restored, failed })
}

impl Task {
    /// A task that has done nothing.
    pub fn new(opened: Opened, world: &World, handle: Handle) -> Self {
        let Opened { plan, keeper, failed, gauge, damage, known, .. } = opened;
        let state = match failed {
            None => State::Ready(keeper),
            Some(Failure { reason, is_final }) => {
                let at = (!is_final).then(|| Instant::now() + RETRY);
                State::Failed { at, told: false, reason }
            }
        };
        let mut task = Self {
            plan,
            storage: Arc::clone(&world.storage),
            clock: Arc::clone(&world.clock),
            handle,
            gauge,
            known,
            state,
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

    /// Runs until nothing more will come and everything is written.
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
                write = writes.recv() => Turn::Write(write),
                Some(read) = reads.recv() => Turn::Read(read),
                () = until(self.sync_at) => Turn::Sync,
                () = until(retry_at) => Turn::Retry,
                () = sleep_until(trim_at) => Turn::Trim,
            };
            match turn {
                Turn::Write(None) => break,
                Turn::Write(Some(write)) => {
                    self.write_all(write, &mut writes).await;
                    // Who reads must not wait until nobody writes.
                    if let Ok(read) = reads.try_recv() {
                        self.read(&read).await;
                    }
                }
                Turn::Read(read) => self.read(&read).await,
                Turn::Sync => self.sync(),
                Turn::Retry => self.retry().await,
                Turn::Trim => {
                    trim_at = Instant::now() + TRIM;
                    let now_ns = self.clock.now().wall_ns;
                    self.with_keeper(|keeper| {
                        keeper.close_chunk();
                        keeper.trim(now_ns)
                    });
                }
            }
        }
        // Also where nothing is synced else: an agent that ends in order leaves nothing that may be missing.
        self.with_open(|keeper| keeper.settle(true).map(drop));
    }

    /// Writes one piece. Where it is synced before it is acknowledged, so are those that wait, and the last
    /// of them carries the sync for all.
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
            if self.write(&write, sync) && (write.begin.is_some() || !write.items.is_empty()) {
                written = Some((write.generation, write.until));
            }
        }
        if matches!(self.state, State::Failed { .. }) {
            return;
        }
        if let Some((generation, until)) = written {
            self.with_keeper(Keeper::acknowledge);
            if matches!(self.state, State::Failed { .. }) {
                return;
            }
            self.sync_soon();
            if !matches!(self.plan.fsync, Fsync::Interval(_)) {
                self.pause = RETRY;
            }
            self.tell(Input::Journaled { generation, until }).await;
        }
        // Who writes without a pause must not put it off.
        if self.sync_at.is_some_and(|at| at <= Instant::now()) {
            self.sync();
        }
    }

    /// Writes one piece; says whether it is there.
    fn write(&mut self, write: &JournalWrite, sync: bool) -> bool {
        // What says where the log begins is of now, and so is what has nothing to do with the log.
        let is_of_now = write.begin.is_some() || write.items.is_empty();
        if is_of_now
            && let State::Reopened(_) = &self.state
            && let State::Reopened(keeper) = std::mem::replace(&mut self.state, State::Ready(None))
        {
            self.state = State::Ready(Some(keeper));
        }
        let now_ns = self.clock.now().wall_ns;
        match &self.state {
            State::Ready(None) => match self.open(now_ns) {
                Ok((keeper, restored))
                    if restored == Restored::default() && !self.damage.is_untold() =>
                {
                    self.state = State::Ready(Some(keeper));
                }
                // Its disk came late: the core has not heard of what is there, and would write over it.
                Ok(_) => {
                    self.known = false;
                    self.fail(&"it was not there when the agent started; its log is taken up");
                    return false;
                }
                // It may be such a one.
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
            // What the core has handed out before it heard of the failure.
            State::Failed { .. } | State::Reopened(_) => return false,
        }
        let bytes = write.items.iter().map(Item::len).sum();
        if self.is_to_look(bytes) && self.is_full(FREE_BYTES_MIN) {
            self.fail(&"no space is left on the disk");
            return false;
        }
        self.with_keeper(|keeper| keeper.write(write, now_ns, sync));
        matches!(self.state, State::Ready(_))
    }

    /// Reads a page, and answers in any case.
    async fn read(&mut self, read: &JournalRead) {
        let mut page = None;
        self.with_keeper(|keeper| {
            page = Some(keeper.page(read)?);
            Ok(())
        });
        self.tell(Input::JournalRead { read: read.read, page }).await;
    }

    /// Whether it is time to look how much room there is. The disk tells when it is full; that is looked
    /// for before, so that others who use it are not held up by what a log takes at its speed.
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

    /// How long after a write all of it is synced and marked as such.
    fn sync_pause(&self) -> Duration {
        match self.plan.fsync {
            Fsync::Batch => MARK,
            Fsync::Interval(interval) => interval,
        }
    }

    /// All of it is synced and marked as such after a while: what was written, and once what a life before has
    /// left, whose mark may be older, also where nothing will be written.
    fn sync_soon(&mut self) {
        let at = Instant::now() + self.sync_pause();
        self.sync_at = Some(self.sync_at.map_or(at, |before| before.min(at)));
    }

    fn sync(&mut self) {
        let mut is_settled = true;
        self.with_open(|keeper| {
            is_settled = keeper.settle(false)?;
            Ok(())
        });
        self.sync_at = (!is_settled).then(|| Instant::now() + self.sync_pause().max(SETTLE));
        if matches!(self.state, State::Ready(_)) {
            self.pause = RETRY;
        }
    }

    /// Does something with the store that is written to and read.
    fn with_keeper(&mut self, what: impl FnOnce(&mut Keeper) -> Result<(), KeepError>) {
        if matches!(self.state, State::Ready(_)) {
            self.with_open(what);
        }
    }

    /// The same, also with one that is open again and not written to yet.
    fn with_open(&mut self, what: impl FnOnce(&mut Keeper) -> Result<(), KeepError>) {
        let (State::Ready(Some(keeper)) | State::Reopened(keeper)) = &mut self.state else {
            return;
        };
        match what(keeper) {
            Ok(()) => self.gauge.set(keeper),
            Err(error) if error.is_fsync() => self.fail_for_good(&error),
            Err(error) => self.fail(&error),
        }
    }

    /// An fsync has failed: the kernel may drop what was written and report success next time. So the
    /// journal stays off until the agent starts again.
    fn fail_for_good(&mut self, error: &KeepError) {
        self.fail(error);
        if let State::Failed { at, reason, .. } = &mut self.state {
            *at = None;
            reason.push_str("; the journal is off until the agent restarts");
        }
    }

    /// The store is closed: what is on it is found out when it is opened again.
    fn fail(&mut self, error: &dyn std::fmt::Display) {
        let reason = format!("{}: {error}", self.plan.folder.display());
        tracing::error!(reason, "the journal cannot be written");
        let at = self.next_try();
        self.sync_at = None;
        self.room = None;
        self.state = State::Failed { at: Some(at), told: false, reason };
    }

    /// When the disk is tried again: one that only fails when it is written is opened and read in vain
    /// each time, so the pauses grow until it was written and, where that is wanted, synced.
    fn next_try(&mut self) -> Instant {
        let at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(RETRY_MAX);
        at
    }

    async fn tell_failure(&mut self) {
        if let State::Failed { told, reason, .. } = &mut self.state
            && !std::mem::replace(told, true)
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
            Some(Ok((keeper, restored))) => {
                tracing::info!(folder = %self.plan.folder.display(), "the journal is open again");
                let known = std::mem::replace(&mut self.known, true);
                let stored = keeper.stored();
                self.state = State::Reopened(keeper);
                self.sync_soon();
                let restored = (!known).then(|| Box::new(restored));
                restored.iter().for_each(|restored| log_unclean(restored));
                let damage = self.damage.take_untold();
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

    fn open(&mut self, now_ns: u64) -> Result<(Keeper, Restored), KeepError> {
        let found = open(self.storage.as_ref(), &self.plan, now_ns, &mut self.damage)?;
        match found.failed {
            Some(error) => Err(error),
            None => Ok((found.keeper, found.restored)),
        }
    }

    async fn tell(&mut self, input: Input) {
        // An error means that the agent is stopping.
        let _ = self.handle.link_input(input, 0).await;
    }
}

/// Says in the agent's log what the core says by an event.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::journal::keeper::Bounds;
    use crate::journal::memory::MemoryStorage;
    use crate::world::{Change, Store};
    use std::io;
    use std::path::{Path, PathBuf};

    /// A storage that moves a store aside, and then cannot say that it is there for good.
    struct Doubtful(MemoryStorage);

    impl Storage for Doubtful {
        fn exists(&self, folder: &Path) -> bool {
            self.0.exists(folder)
        }

        fn open(&self, folder: &Path) -> Result<Box<dyn Store>, StoreError> {
            self.0.open(folder)
        }

        fn set_aside(&self, folder: &Path, now_ns: u64) -> Result<PathBuf, StoreError> {
            self.0.set_aside(folder, now_ns)?;
            Err(StoreError::Unsynced(io::Error::other("no sync")))
        }

        fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
            self.0.free_bytes(folder)
        }

        fn is_blocking(&self) -> bool {
            false
        }
    }

    /// A store that was damaged is gone from its place, and the next try finds a fresh one: what became of it is
    /// told all the same.
    #[test]
    fn a_store_whose_setting_aside_failed_is_told_by_who_opens_the_next() {
        let storage = Doubtful(MemoryStorage::default());
        let protected = ftb_core::node::protected_by_default();
        let bounds = Bounds { bytes: 1 << 20, age: RETRY, memory_bytes: 1 << 20, protected };
        let (cluster, folder) = ("test".to_owned(), PathBuf::from("/journal"));
        let plan = Plan { cluster, folder, bounds, fsync: Fsync::Batch };
        let mut store = storage.open(&plan.folder).unwrap();
        store.write(vec![Change::Put("format", b"nonsense".to_vec())], true).unwrap();
        let mut damage = Damage::default();
        let opened = open(&storage, &plan, 1, &mut damage);
        assert!(matches!(opened, Err(KeepError::Store(StoreError::Unsynced(_)))));
        let found = open(&storage, &plan, 2, &mut damage).unwrap();
        assert_eq!(found.restored, Restored::default());
        assert!(damage.take_untold().unwrap().contains("is being set aside"));
    }
}
