//! FMI for C: [`ftb_job::fmi::Fmi`] with the addresses, counts and types of C. `include/fmi.h` is
//! the contract.

mod calls;
mod repair;
mod shapes;
mod types;

use crate::fail;
use core::ffi::{c_int, c_void};
use ftb_job::fmi::{Arrived, Comm, Fmi, FmiError, Layout, Posted};
use ftb_job::limits;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use repair::Groups;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use types::Types;

const SUCCESS: c_int = 0;
const ERR_RECOVERY: c_int = 1;
const ERR_STATE: c_int = 5;
/// Of no call: `FMI_Loop` ends the process.
const MOVED: c_int = 8;
const ERR_RANK_DIED: c_int = 9;
const COMM_NULL: c_int = -1;
const ANY_SOURCE: c_int = -1;
const PROC_NULL: c_int = -2;
const ANY_TAG: c_int = -1;
/// `FMI_UNDEFINED`
const UNDEFINED: c_int = -32766;
const REQUEST_NULL: i64 = 0;
/// A request that was complete at once: a send, or one with no rank.
const REQUEST_DONE: i64 = -1;

/// `FMI_Status`
#[repr(C)]
struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    bytes: usize,
}

/// FMI in this process.
enum Stage {
    Before,
    Running(Box<Running>),
    Over,
}

static STAGE: Mutex<Stage> = Mutex::new(Stage::Before);

struct Running {
    fmi: Fmi,
    types: Types,
    groups: Groups,
    /// Receives that the program has posted and not waited for.
    pending: BTreeMap<i64, Pending>,
    last_request: i64,
}

/// A receive and where its message goes.
struct Pending {
    posted: Posted,
    buffer: Buffer,
}

/// Memory of the program for a number of values of a type.
struct Buffer {
    start: *mut u8,
    count: usize,
    layout: Layout,
}

// SAFETY: an address may be sent to any thread. It is used only in a call of the program, which
// promises there that the memory may be used.
unsafe impl Send for Buffer {}

fn code_of(error: &FmiError) -> c_int {
    match error {
        FmiError::RolledBack => ERR_RECOVERY,
        FmiError::Cancelled => 2,
        FmiError::Invalid(_) => 3,
        FmiError::Truncated { .. } => 4,
        FmiError::Full(_) => 6,
        FmiError::Job(_) => 7,
        FmiError::Moved => MOVED,
        FmiError::RankDied { .. } => ERR_RANK_DIED,
        FmiError::Revoked => 10,
    }
}

fn failed(name: &str, error: &FmiError) -> c_int {
    fail(&format!("{name}: {error}"), code_of(error))
}

fn stage() -> std::sync::MutexGuard<'static, Stage> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `work` with FMI of this process.
fn running(name: &str, work: impl FnOnce(&mut Running) -> Result<(), FmiError>) -> c_int {
    match &mut *stage() {
        Stage::Running(running) => match work(running) {
            Ok(()) => SUCCESS,
            Err(error) => failed(name, &error),
        },
        Stage::Before => fail(&format!("{name}: FMI_Init comes first"), ERR_STATE),
        Stage::Over => fail(&format!("{name}: after FMI_Finalize"), ERR_STATE),
    }
}

fn invalid<T>(problem: impl Into<String>) -> Result<T, FmiError> {
    Err(FmiError::Invalid(problem.into()))
}

/// A lost link must be an error of a call, and not the end of the process.
fn ignore_sigpipe() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler runs: the signal is ignored, or has the handler of the program again.
    let before = unsafe { sigaction(Signal::SIGPIPE, &ignore) };
    if let Ok(before) = before
        && !matches!(before.handler(), SigHandler::SigDfl)
    {
        // SAFETY: as above.
        let _ = unsafe { sigaction(Signal::SIGPIPE, &before) };
    }
}

fn init() -> c_int {
    let mut stage = stage();
    match &*stage {
        Stage::Before => {}
        Stage::Running(_) => return fail("FMI_Init: it was called before", ERR_STATE),
        Stage::Over => return fail("FMI_Init: after FMI_Finalize", ERR_STATE),
    }
    ignore_sigpipe();
    match Fmi::init() {
        Ok(fmi) => {
            let (types, groups) = (Types::default(), Groups::default());
            let (pending, last_request) = (BTreeMap::new(), 0);
            *stage =
                Stage::Running(Box::new(Running { fmi, types, groups, pending, last_request }));
            SUCCESS
        }
        Err(error) => failed("FMI_Init", &error),
    }
}

/// Leaves the job. In a recovery this process is behind its loop and has no way back: another one
/// replaces it.
fn finalize() -> c_int {
    let mut stage = stage();
    match std::mem::replace(&mut *stage, Stage::Over) {
        Stage::Before => {
            *stage = Stage::Before;
            fail("FMI_Finalize: FMI_Init comes first", ERR_STATE)
        }
        Stage::Over => fail("FMI_Finalize: it was called before", ERR_STATE),
        Stage::Running(running) => match running.fmi.finalize() {
            Ok(()) => SUCCESS,
            Err(FmiError::RolledBack) => {
                eprintln!(
                    "FMI_Finalize: ranks have died, and this one has left its loop: another \
                     process takes its place"
                );
                // It does not return. Handlers of the program's end would write its results.
                let _ = kill(nix::unistd::getpid(), Signal::SIGKILL);
                std::process::abort()
            }
            Err(error) => failed("FMI_Finalize", &error),
        },
    }
}

impl Buffer {
    fn bytes(&self) -> usize {
        self.count.saturating_mul(self.layout.bytes())
    }

    /// Refuses values that are too many for a message.
    fn fits(&self) -> Result<(), FmiError> {
        let (bytes, max) = (self.bytes(), limits::MESSAGE_BYTES_MAX);
        if bytes > max {
            return Err(FmiError::Full(format!("{bytes} bytes: a message has at most {max}")));
        }
        Ok(())
    }

    /// The message that these values are.
    ///
    /// # Safety
    /// The memory may be read.
    unsafe fn pack(&self) -> Result<Vec<u8>, FmiError> {
        self.fits()?;
        let mut message = Vec::with_capacity(self.bytes());
        for (offset, bytes) in self.layout.pieces(self.count) {
            // SAFETY: the piece is within the values that the caller promises.
            let piece = unsafe { std::slice::from_raw_parts(self.start.add(offset), bytes) };
            message.extend_from_slice(piece);
        }
        Ok(message)
    }

    /// Puts a message there, and its begin if it is longer.
    ///
    /// # Safety
    /// The memory may be written.
    unsafe fn unpack(&self, mut message: &[u8]) -> Result<(), FmiError> {
        let (bytes, room) = (message.len(), self.bytes());
        for (offset, len) in self.layout.pieces(self.count) {
            if message.is_empty() {
                break;
            }
            let (piece, rest) = message.split_at(len.min(message.len()));
            // SAFETY: the piece is within the values that the caller promises, and `message` is
            // memory of this library.
            unsafe {
                core::ptr::copy_nonoverlapping(piece.as_ptr(), self.start.add(offset), piece.len());
            }
            message = rest;
        }
        if bytes > room { Err(FmiError::Truncated { bytes, room }) } else { Ok(()) }
    }
}

impl Running {
    fn comm(comm: c_int) -> Result<Comm, FmiError> {
        Comm::try_from(comm).or_else(|_| invalid(format!("there is no communicator {comm}")))
    }

    /// Memory of the program; NULL only without values.
    fn buffer(&self, start: *const c_void, count: c_int, of: c_int) -> Result<Buffer, FmiError> {
        let layout = self.types.layout(of)?;
        let Ok(count) = usize::try_from(count) else {
            return invalid(format!("{count} values"));
        };
        if start.addr() == usize::MAX {
            return invalid("FMI_IN_PLACE is for reductions only");
        }
        if start.is_null() && count > 0 && layout.bytes() > 0 {
            return invalid(format!("the buffer of {count} values is NULL"));
        }
        Ok(Buffer { start: start.cast_mut().cast(), count, layout })
    }

    /// A tag, or none for any where that is allowed.
    fn tag(tag: c_int, any: bool) -> Result<Option<u32>, FmiError> {
        match u32::try_from(tag) {
            Ok(tag) => Ok(Some(tag)),
            Err(_) if any && tag == ANY_TAG => Ok(None),
            Err(_) => invalid(format!("{tag} is no tag")),
        }
    }

    fn rank(rank: c_int) -> Result<u32, FmiError> {
        u32::try_from(rank).or_else(|_| invalid(format!("there is no rank {rank}")))
    }

    /// Sends values.
    ///
    /// # Safety
    /// The memory may be read.
    unsafe fn send(
        &mut self,
        buffer: &Buffer,
        (to, tag, comm): (c_int, c_int, c_int),
    ) -> Result<(), FmiError> {
        let (comm, tag) = (Self::comm(comm)?, Self::tag(tag, false)?.unwrap_or_default());
        if to == PROC_NULL {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let message = unsafe { buffer.pack()? };
        self.fmi.send(comm, Self::rank(to)?, tag, &message)
    }

    /// Posts a receive; the request is complete at once for no rank.
    fn post(
        &mut self,
        buffer: Buffer,
        (from, tag, comm): (c_int, c_int, c_int),
    ) -> Result<i64, FmiError> {
        let (comm, tag) = (Self::comm(comm)?, Self::tag(tag, true)?);
        let from = match from {
            PROC_NULL => return Ok(REQUEST_DONE),
            ANY_SOURCE => None,
            from => Some(Self::rank(from)?),
        };
        let posted = self.fmi.post(comm, from, tag)?;
        self.last_request += 1;
        self.pending.insert(self.last_request, Pending { posted, buffer });
        Ok(self.last_request)
    }

    /// The receive of a request; `None`: it is over, or there was none.
    fn posted(&self, request: i64) -> Option<Posted> {
        self.pending.get(&request).map(|pending| pending.posted)
    }

    /// Whether waiting for a request returns at once.
    fn is_ready(&mut self, request: i64) -> Result<bool, FmiError> {
        self.posted(request).map_or(Ok(true), |posted| self.fmi.is_ready(posted))
    }

    /// Waits until one of these requests is ready; which. `None`: there are none.
    fn wait_ready(&mut self, requests: &[i64]) -> Result<Option<usize>, FmiError> {
        if let Some(at) = requests.iter().position(|request| self.posted(*request).is_none()) {
            return Ok(Some(at));
        }
        let all: Vec<Posted> =
            requests.iter().filter_map(|request| self.posted(*request)).collect();
        match all.is_empty() {
            true => Ok(None),
            false => self.fmi.wait_ready(&all).map(Some),
        }
    }

    /// Waits for a request; its message is in the memory then.
    ///
    /// # Safety
    /// The memory of the receive may be written.
    unsafe fn wait(&mut self, request: i64) -> Result<Status, FmiError> {
        if request == REQUEST_NULL || request == REQUEST_DONE {
            return Ok(Status { source: PROC_NULL, tag: ANY_TAG, error: SUCCESS, bytes: 0 });
        }
        let pending = self.pending.remove(&request).ok_or(FmiError::Cancelled)?;
        let Arrived { from, tag, payload } = self.fmi.wait(pending.posted)?;
        // SAFETY: the caller's promise.
        unsafe { pending.buffer.unpack(&payload)? };
        let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let bytes = payload.len();
        Ok(Status { source: number(from), tag: number(tag), error: SUCCESS, bytes })
    }
}
