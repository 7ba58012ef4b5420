//! FMI, the fault tolerant messaging interface: messages as in MPI, a loop that protects memory of
//! the program, and communicators that survive the death of ranks. `launcher/job/capi` has it for
//! C, with names of FMI and of MPI.
//!
//! After a death every call fails with [`FmiError::RolledBack`] until the program calls
//! [`Fmi::pass`] again: then its memory, its communicators and the loop id are those of the last
//! set, on survivors and on the processes that replace dead ranks. A process that replaces one runs
//! the program from its beginning; up to the loop its receives have the results of the first run
//! (`fmi/prologue.rs`).
//!
//! Responsible for the numbers and the state of the program's calls. Not responsible for links,
//! safe points and images ([`Job`]).

mod collectives;
mod communicators;
mod prologue;
mod receives;
mod repair;
mod values;

use crate::error::{Error, Result};
use crate::frame::Class;
use crate::image::{ImageError, Reader, Writer};
use crate::inbox::{Pattern, Waited};
use crate::job::{Job, SafePoint};
use crate::limits;
use crate::looping::{LoopError, Regions};
use crate::state::{StartState, State};
use communicators::{ALONE, Communicators, Proposal, WORLD};
use prologue::Prologue;
use receives::{Received, Receives, Wanted};

pub use communicators::{Comm, Grid};
pub use repair::Agreed;
pub use values::{Combine, Layout, Primitive};

/// Why a call of FMI failed.
#[derive(Debug, thiserror::Error)]
pub enum FmiError {
    /// Ranks have died. Every call fails until the program calls [`Fmi::pass`].
    #[error("the job recovers from a death: call FMI_Loop")]
    RolledBack,
    /// A rank of the job has died that the call involves. The others can go on
    /// ([`Fmi::shrink`]).
    #[error("rank {rank} of the job has died: {reason}")]
    RankDied {
        /// Which.
        rank: u32,
        /// How that showed.
        reason: String,
    },
    /// A member has revoked the communicator ([`Fmi::revoke`]).
    #[error("the communicator is revoked: call MPIX_Comm_shrink")]
    Revoked,
    /// A receive that was posted before a recovery, or that was waited for already.
    #[error("this request was cancelled by a recovery, or was waited for already")]
    Cancelled,
    /// A wrong argument, or a call at the wrong time; nothing has changed.
    #[error("{0}")]
    Invalid(String),
    /// The message is longer than its receive has room.
    #[error("the message has {bytes} bytes, and there is room for {room}")]
    Truncated {
        /// Of the message.
        bytes: usize,
        /// Of the receive.
        room: usize,
    },
    /// A limit of the library.
    #[error("{0}")]
    Full(String),
    /// This rank goes on in another process: end this one, with code 0.
    #[error("this rank has moved to another process")]
    Moved,
    /// The job cannot go on.
    #[error(transparent)]
    Job(Error),
}

impl From<Error> for FmiError {
    fn from(error: Error) -> Self {
        match error {
            Error::RolledBack => Self::RolledBack,
            Error::RankDied { rank, reason } => Self::RankDied { rank, reason },
            Error::Revoked => Self::Revoked,
            Error::MessageTooLong { .. } => Self::Full(error.to_string()),
            error => Self::Job(error),
        }
    }
}

impl From<LoopError> for FmiError {
    fn from(error: LoopError) -> Self {
        match error {
            LoopError::Job(error) => error.into(),
            error => Self::Invalid(error.to_string()),
        }
    }
}

impl FmiError {
    /// The exit code of a program that ends because of it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Job(error) => error.exit_code(),
            Self::Moved => 0,
            _ => 1,
        }
    }
}

/// A message as a member of a communicator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its sender's number in the communicator.
    pub from: u32,
    /// Its tag.
    pub tag: u32,
    /// Its content.
    pub payload: Vec<u8>,
}

/// A receive that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    comm: Comm,
    number: u64,
}

/// One rank of a job with FMI.
pub struct Fmi {
    job: Job,
    loops: Loops,
    receives: Receives,
    point: Option<Point>,
}

/// Where a process begins again: what it has there.
struct Point {
    receives: u64,
    polls: u64,
    communicators: Communicators,
}

/// What an image holds beside the messages.
struct Loops {
    /// The next loop id; `None` before the first.
    next: Option<u64>,
    regions: Regions,
    communicators: Communicators,
    prologue: Prologue,
    /// The last receive of the process that was saved.
    receives: u64,
    /// What a process that was started from an image has read of it.
    saved: Option<Saved>,
}

/// What precedes the memory of the program in an image.
struct Saved {
    next: u64,
    receives: u64,
    communicators: Communicators,
    prologue: Vec<u8>,
}

const LOOP: &str = "fmi.loop";
const RECEIVES: &str = "fmi.receives";
const COMMUNICATORS: &str = "fmi.communicators";
const PROLOGUE: &str = "fmi.prologue";

impl Saved {
    fn read(reader: &mut Reader) -> Result<Self, ImageError> {
        let (next, receives) = (reader.u64(LOOP)?, reader.u64(RECEIVES)?);
        let communicators = serde_json::from_slice(&reader.bytes(COMMUNICATORS)?)
            .map_err(|error| reader.refuse(format!("its communicators are malformed: {error}")))?;
        Ok(Self { next, receives, communicators, prologue: reader.bytes(PROLOGUE)? })
    }
}

impl State for Loops {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64(LOOP, self.next.unwrap_or_default())?;
        writer.u64(RECEIVES, self.receives)?;
        let communicators = serde_json::to_vec(&self.communicators).unwrap_or_default();
        writer.bytes(COMMUNICATORS, &communicators)?;
        writer.bytes(PROLOGUE, &self.prologue.encode())?;
        self.regions.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        let saved = self.saved.take().map_or_else(|| Saved::read(reader), Ok)?;
        let prologue = Prologue::decode(&saved.prologue);
        self.prologue = prologue.ok_or_else(|| reader.refuse("its prologue is malformed"))?;
        self.regions.restore(reader)?;
        self.next = Some(saved.next);
        self.receives = saved.receives;
        self.communicators = saved.communicators;
        Ok(())
    }
}

impl Fmi {
    /// Joins the job of this process; without a launcher a job of one rank.
    ///
    /// # Errors
    /// As [`Job::init`].
    pub fn init() -> Result<Self, FmiError> {
        Self::new(Job::init()?)
    }

    /// On a job that has not communicated.
    ///
    /// # Errors
    /// An image that is not of a program with FMI.
    pub fn new(mut job: Job) -> Result<Self, FmiError> {
        job.can_roll_back(true);
        let saved = job.peek(Saved::read)?;
        let prologue = match &saved {
            // No process replaces another.
            None if job.goes_on() => Prologue::over(),
            None => Prologue::default(),
            Some(saved) => Prologue::replay(&saved.prologue).ok_or_else(|| {
                FmiError::Invalid("the image has a malformed prologue".to_owned())
            })?,
        };
        let communicators = Communicators::new(job.rank(), job.size());
        let regions = Regions::default();
        let loops = Loops { next: None, regions, communicators, prologue, receives: 0, saved };
        let fmi = Self { job, loops, receives: Receives::default(), point: None };
        [WORLD, ALONE].into_iter().try_for_each(|comm| fmi.join(comm))?;
        Ok(fmi)
    }

    /// The communicator of all ranks.
    pub const WORLD: Comm = WORLD;
    /// The communicator of this rank alone.
    pub const ALONE: Comm = ALONE;

    /// This rank's number in a communicator.
    ///
    /// # Errors
    /// [`FmiError::Invalid`].
    pub fn rank(&self, comm: Comm) -> Result<u32, FmiError> {
        Ok(self.loops.communicators.get(comm)?.place)
    }

    /// Ranks of a communicator.
    ///
    /// # Errors
    /// [`FmiError::Invalid`].
    pub fn size(&self, comm: Comm) -> Result<u32, FmiError> {
        Ok(self.loops.communicators.get(comm)?.size())
    }

    /// Whether every call fails until [`Fmi::pass`].
    pub fn is_rolled_back(&self) -> bool {
        self.job.must_restore() && !self.loops.prologue.is_replaying()
    }

    /// The beginning of each iteration, with the memory to protect: the loop id 0, 1, ...; after a
    /// recovery that of the last set, whose content is then in the memory.
    ///
    /// The memory may be elsewhere at each call; its pieces keep their number and sizes. All ranks
    /// call it equally often, and no receive is posted across a call. Before its n-th call no rank
    /// needs a message that another sends after its n-th.
    ///
    /// # Safety
    /// The memory must stay mapped until the next call returns, and no other thread may write to it
    /// during a call.
    ///
    /// # Errors
    /// [`FmiError::RolledBack`] only behind a point of restart: go back to it.
    /// [`FmiError::Moved`]. Otherwise the job cannot go on.
    #[expect(unsafe_code, reason = "a promise of the program about its memory")]
    pub unsafe fn pass(&mut self, memory: &[(*mut u8, usize)]) -> Result<u64, FmiError> {
        if !self.loops.regions.are(memory) {
            // SAFETY: the caller's promise.
            self.loops.regions = unsafe { Regions::numbered(memory)? };
        }
        loop {
            match self.try_pass() {
                Err(FmiError::RolledBack) if self.point.is_none() => {}
                passed => return passed,
            }
        }
    }

    fn try_pass(&mut self) -> Result<u64, FmiError> {
        if self.job.must_restore() {
            if !self.job.has_peeked() {
                self.loops.saved = None;
            }
            self.job.restore(&mut self.loops)?;
            self.receives.cancel(self.loops.receives);
        } else {
            self.loops.prologue.end()?;
            self.loops.receives = self.receives.last();
            let passed = match self.loops.next {
                None => self.job.first_safe_point(&self.loops)?,
                Some(_) => self.job.safe_point(&self.loops)?,
            };
            if passed == SafePoint::MovedAway {
                return Err(FmiError::Moved);
            }
        }
        let here = self.loops.next.unwrap_or_default();
        self.loops.next = Some(here + 1);
        Ok(here)
    }

    /// A point of restart begins here. After [`FmiError::RolledBack`] the program goes on behind it
    /// and calls this again; up to [`Fmi::pass`] its receives have the results of the first time
    /// then, and what it sends goes nowhere.
    pub fn restart_point(&mut self) -> StartState {
        // A rank may be called back again while it replays.
        if self.job.must_restore()
            && let Some(Point { receives, polls, communicators }) = &self.point
        {
            self.receives.rewind(*receives);
            self.loops.communicators = communicators.clone();
            self.loops.prologue.replay_again(*polls);
            return StartState::Restarted;
        }
        let communicators = self.loops.communicators.clone();
        let (receives, polls) = (self.receives.last(), self.loops.prologue.polls());
        self.point = Some(Point { receives, polls, communicators });
        match self.job.must_restore() {
            true => StartState::Added,
            false => StartState::New,
        }
    }

    /// Whether that receive can still be waited for.
    pub fn is_open(&self, posted: Posted) -> bool {
        self.receives.is_open(posted.number)
    }

    /// Takes a receive back that was not waited for.
    pub fn withdraw(&mut self, posted: Posted) {
        self.receives.forget(posted.number);
    }

    /// Sends a message to a member. It may block while the receiver has too many waiting messages.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn send(&mut self, comm: Comm, to: u32, tag: u32, message: &[u8]) -> Result<(), FmiError> {
        let rank = self.loops.communicators.get(comm)?.rank_of(to)?;
        self.give(rank, Class::Within(comm), tag, message)
    }

    /// Posts a receive: from a member or any, with a tag or any. Messages go to the first receive
    /// that they fit.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn post(
        &mut self,
        comm: Comm,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Posted, FmiError> {
        self.check()?;
        self.job.check_living(&[], Class::Within(comm))?;
        let found = self.loops.communicators.get(comm)?;
        let from = from.map(|from| found.rank_of(from)).transpose()?;
        let number = self.receives.post(Pattern { from, class: Class::Within(comm), tag })?;
        Ok(Posted { comm, number })
    }

    /// Waits for the message of a receive.
    ///
    /// # Errors
    /// See [`FmiError`]. The receive is over, but for [`FmiError::RolledBack`], which cancels all.
    pub fn wait(&mut self, posted: Posted) -> Result<Arrived, FmiError> {
        self.check()?;
        let Received { from, tag, payload } = self.wait_number(posted.comm, posted.number)?;
        let from = self.loops.communicators.get(posted.comm)?.place_of(from).unwrap_or_default();
        Ok(Arrived { from, tag, payload })
    }

    /// Whether waiting for that receive would return at once, with its message or with an error.
    ///
    /// # Errors
    /// [`FmiError::RolledBack`]; [`FmiError::Invalid`] if a program that runs again asks more often
    /// before its loop than it did.
    pub fn is_ready(&mut self, posted: Posted) -> Result<bool, FmiError> {
        self.check()?;
        if self.loops.prologue.is_replaying() {
            return Ok(self.loops.prologue.polled()?.is_some());
        }
        let is_ready = self.look(posted)?;
        self.loops.prologue.poll(is_ready.then_some(0));
        Ok(is_ready)
    }

    fn look(&mut self, posted: Posted) -> Result<bool, FmiError> {
        if self.receives.is_complete(posted.number) {
            return Ok(true);
        }
        // It takes none: a complete one has returned before.
        let Ok(Wanted::Posted(patterns, at)) = self.receives.want(posted.number) else {
            return Ok(true);
        };
        let any = self.unacknowledged(posted.comm)?;
        match self.job.look_posted(&patterns, (at, any.as_deref())) {
            Ok(matched) => self.receives.complete(matched),
            Err(_) => {
                self.check()?;
                return Ok(true);
            }
        }
        Ok(self.receives.is_complete(posted.number))
    }

    /// Waits until one of these receives is ready, which is not empty; which.
    ///
    /// # Errors
    /// See [`FmiError`]. The receives can still be waited for, but for [`FmiError::RolledBack`].
    pub fn wait_ready(&mut self, posted: &[Posted]) -> Result<usize, FmiError> {
        self.check()?;
        if self.loops.prologue.is_replaying() {
            let at = self.loops.prologue.polled()?.filter(|at| *at < posted.len());
            return at.ok_or_else(prologue::differs);
        }
        let at = self.wait_any(posted)?;
        self.loops.prologue.poll(Some(at));
        Ok(at)
    }

    /// A message for any of them wakes it, and what lets one of them fail.
    fn wait_any(&mut self, posted: &[Posted]) -> Result<usize, FmiError> {
        let numbers: Vec<u64> = posted.iter().map(|one| one.number).collect();
        loop {
            if let Some(at) = self.first_ready(posted)? {
                return Ok(at);
            }
            if posted.is_empty() {
                return Ok(0);
            }
            let (patterns, places) = self.receives.places(&numbers);
            let any = posted.iter().map(|one| self.unacknowledged(one.comm));
            let any = any.collect::<Result<Vec<_>, _>>()?;
            let wanted: Vec<Waited<'_>> =
                places.into_iter().zip(any.iter().map(Option::as_deref)).collect();
            match self.job.take_posted(&patterns, &wanted) {
                Ok(matched) => self.receives.complete(matched),
                Err(error) => {
                    self.check()?;
                    // That which fails is ready; none is if a sender cannot be reached.
                    return self.first_ready(posted)?.ok_or_else(|| error.into());
                }
            }
            self.check()?;
        }
    }

    /// The first that is ready now.
    fn first_ready(&mut self, posted: &[Posted]) -> Result<Option<usize>, FmiError> {
        for (at, one) in posted.iter().enumerate() {
            if self.look(*one)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Posts a receive and waits for it.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn recv(
        &mut self,
        comm: Comm,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Arrived, FmiError> {
        let posted = self.post(comm, from, tag)?;
        self.wait(posted)
    }

    fn wait_number(&mut self, comm: Comm, number: u64) -> Result<Received, FmiError> {
        if self.loops.prologue.is_replaying() {
            self.receives.forget(number);
            return self.loops.prologue.recorded(number);
        }
        loop {
            match self.receives.want(number)? {
                Wanted::Complete(received) => {
                    self.loops.prologue.record(number, &received);
                    return Ok(received);
                }
                Wanted::Posted(patterns, at) => {
                    let any = self.unacknowledged(comm)?;
                    match self.job.take_posted(&patterns, &[(at, any.as_deref())]) {
                        Ok(matched) => self.receives.complete(matched),
                        Err(error) => {
                            self.receives.forget(number);
                            return Err(error.into());
                        }
                    }
                }
            }
        }
    }

    /// A communicator of the same ranks. All of them call it.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn duplicate(&mut self, comm: Comm) -> Result<Comm, FmiError> {
        let grid = self.loops.communicators.get(comm)?.grid.clone();
        let made = self.split(comm, Some(0), 0)?.unwrap_or_default();
        self.loops.communicators.lay_out(made, grid)?;
        Ok(made)
    }

    /// A communicator of the ranks of `comm` that give the same colour, ordered by key; `None`
    /// without a colour. All of them call it.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn split(
        &mut self,
        comm: Comm,
        color: Option<u32>,
        key: i32,
    ) -> Result<Option<Comm>, FmiError> {
        let own = self.loops.communicators.propose(color, key).encode();
        let all = self.allgather(comm, &own)?;
        let proposals = all.iter().map(|bytes| Proposal::decode(bytes));
        let proposals: Option<Vec<Proposal>> = proposals.collect();
        let proposals = proposals.ok_or_else(|| {
            FmiError::Invalid("the ranks make different communicators at once".to_owned())
        })?;
        let made = self.loops.communicators.make(comm, &proposals)?;
        made.map_or(Ok(()), |made| self.join(made))?;
        Ok(made)
    }

    /// A communicator whose ranks are a grid; `None` on ranks beyond it. All of `comm` call it.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn lay_out(&mut self, comm: Comm, grid: Grid) -> Result<Option<Comm>, FmiError> {
        let found = self.loops.communicators.get(comm)?;
        let (size, place, places) = (found.size(), found.place, grid.size());
        if places > size.into() || places == 0 {
            let problem = format!("a grid of {places} ranks cannot be made of {size}");
            return Err(FmiError::Invalid(problem));
        }
        let made = self.split(comm, (u64::from(place) < places).then_some(0), 0)?;
        if let Some(made) = made {
            self.loops.communicators.lay_out(made, Some(grid))?;
        }
        Ok(made)
    }

    /// The grid of a communicator.
    ///
    /// # Errors
    /// [`FmiError::Invalid`] if it has none.
    pub fn grid(&self, comm: Comm) -> Result<&Grid, FmiError> {
        let grid = &self.loops.communicators.get(comm)?.grid;
        grid.as_ref().ok_or_else(|| FmiError::Invalid("its ranks are no grid".to_owned()))
    }

    /// Ends a communicator here, in which no receive waits. Its number is not used again.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn free(&mut self, comm: Comm) -> Result<(), FmiError> {
        self.check()?;
        if self.receives.has(Class::Within(comm)) {
            let problem = "receives wait in this communicator: wait for them first";
            return Err(FmiError::Invalid(problem.to_owned()));
        }
        self.loops.communicators.free(comm)
    }

    /// The end: waits for all ranks, then leaves.
    ///
    /// # Errors
    /// [`FmiError::RolledBack`]: the job recovers, and this process is behind its loop. It must end
    /// by a signal or with an exit code other than 0, so that the launcher replaces it. Otherwise a
    /// rank that did not reach its end.
    pub fn finalize(self) -> Result<(), FmiError> {
        if self.job.must_restore() {
            return Err(FmiError::RolledBack);
        }
        Ok(self.job.finalize()?)
    }

    /// Ends the whole job with that exit code.
    pub fn abort(self, exit_code: u8) -> ! {
        self.job.abort(exit_code)
    }

    /// Fails while the program must go back to its loop.
    fn check(&self) -> Result<(), FmiError> {
        if self.is_rolled_back() { Err(FmiError::RolledBack) } else { Ok(()) }
    }

    fn give(&mut self, to: u32, class: Class, tag: u32, message: &[u8]) -> Result<(), FmiError> {
        self.check()?;
        if message.len() > limits::MESSAGE_BYTES_MAX {
            let (bytes, max) = (message.len(), limits::MESSAGE_BYTES_MAX);
            return Err(Error::MessageTooLong { bytes, max }.into());
        }
        if self.loops.prologue.is_replaying() {
            return Ok(());
        }
        Ok(self.job.give(to, class, tag, message)?)
    }

    /// A message of a collective operation.
    fn take(
        &mut self,
        (from, involved): (u32, &[u32]),
        class: Class,
        tag: u32,
    ) -> Result<Vec<u8>, FmiError> {
        self.check()?;
        let number = self.receives.number();
        if self.loops.prologue.is_replaying() {
            return Ok(self.loops.prologue.recorded(number)?.payload);
        }
        let payload = self.job.take_among((from, involved), class, tag)?;
        let received = Received { from, tag, payload };
        self.loops.prologue.record(number, &received);
        Ok(received.payload)
    }
}
