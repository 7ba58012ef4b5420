//! `libftbjob`: [`ftb_job::Looping`] and [`ftb_job::fmi`] for C. `include/ftb_job.h` and
//! `include/fmi.h` are the contract.

#![allow(unsafe_code, reason = "functions for C: their pointers are the caller's promise")]
#![allow(non_snake_case, reason = "the names of FMI")]

mod fmi;

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use ftb_job::{JobPlace, LoopError, Looping};
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Of a wrong argument, as [`LoopError::Invalid`].
const INVALID: c_int = -3;
const FAILED: c_int = -1;

/// Made by the first call.
static LOOPING: Mutex<Option<Looping>> = Mutex::new(None);
/// Of the same; for calls that must not wait for a thread that is in `ftb_loop`.
static PLACE: OnceLock<JobPlace> = OnceLock::new();

thread_local! {
    static REASON: RefCell<CString> = RefCell::default();
}

/// Keeps the reason of a failure for `ftb_job_error`.
fn fail(reason: &str, code: c_int) -> c_int {
    let text = CString::new(reason.replace('\0', " ")).unwrap_or_default();
    REASON.with(|kept| kept.replace(text));
    code
}

/// The reason of the last failure of this thread.
fn reason() -> String {
    REASON.with(|kept| kept.borrow().to_string_lossy().into_owned())
}

/// Calls `work` with the state of this process.
fn with<T>(work: impl FnOnce(&mut Looping) -> Result<T, LoopError>) -> Result<T, c_int> {
    let mut looping = LOOPING.lock().unwrap_or_else(PoisonError::into_inner);
    let result = match &mut *looping {
        Some(looping) => work(looping),
        empty => match Looping::from_env() {
            Ok(new) => {
                PLACE.get_or_init(|| new.place());
                work(empty.insert(new))
            }
            Err(error) => Err(error),
        },
    };
    result.map_err(|error| fail(&error.to_string(), error.code()))
}

/// The place of this process; waits at most for the first call of all.
fn place() -> Result<JobPlace, c_int> {
    match PLACE.get() {
        Some(place) => Ok(place.clone()),
        None => with(|looping| Ok(looping.place())),
    }
}

fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Protects memory.
///
/// # Safety
/// `name` is NULL or a text that ends with a zero. The rest is as `ftb_job.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_protect(
    name: *const c_char,
    memory: *mut c_void,
    bytes: usize,
) -> c_int {
    if name.is_null() {
        return fail("ftb_protect: the name is NULL", INVALID);
    }
    // SAFETY: the caller's promise.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else {
        return fail("ftb_protect: the name is not UTF-8", INVALID);
    };
    // SAFETY: as for this function.
    code(with(|looping| unsafe { looping.protect(name, memory.cast(), bytes) }))
}

/// The loop id, or a code.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_loop() -> i64 {
    let passed = with(|looping| looping.pass());
    passed.map_or_else(i64::from, |id| i64::try_from(id).unwrap_or(i64::MAX))
}

/// Counts a step.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_progress() -> c_int {
    match place().map(|place| place.progress()) {
        Ok(true) => 0,
        Ok(false) => fail("ftb_progress: this process was not started by ftb-launch", FAILED),
        Err(code) => code,
    }
}

/// The number of this process.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_job_rank() -> c_int {
    number(place().map(|place| place.rank()))
}

/// How many processes there are.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_job_size() -> c_int {
    number(place().map(|place| place.size()))
}

fn number(result: Result<u32, c_int>) -> c_int {
    result.map_or_else(|code| code, |number| c_int::try_from(number).unwrap_or(c_int::MAX))
}

/// Why the last failed call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_job_error() -> *const c_char {
    REASON.with(|kept| kept.borrow().as_ptr())
}
