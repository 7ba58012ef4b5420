//! The state of a parallel program in the memory of its nodes: `ftb.job`.

use crate::error::Trouble;
use ftb_job::{JobPlace, LoopError, Looping};
use pyo3::prelude::*;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Made by the first call.
static LOOPING: Mutex<Option<Looping>> = Mutex::new(None);
/// Of the same; known while a thread is in `loop`.
static PLACE: OnceLock<JobPlace> = OnceLock::new();

impl From<LoopError> for Trouble {
    fn from(error: LoopError) -> Self {
        let kind = if error.code() == -65 { "state" } else { "job" };
        Self::new(kind, error)
    }
}

/// Calls `work` with the state of this process.
fn with<T>(work: impl FnOnce(&mut Looping) -> Result<T, LoopError>) -> Result<T, Trouble> {
    let mut looping = LOOPING.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match &mut *looping {
        Some(looping) => work(looping)?,
        empty => {
            let looping = empty.insert(Looping::from_env()?);
            PLACE.get_or_init(|| looping.place());
            work(looping)?
        }
    })
}

/// Protects the memory of a buffer, which the Python half keeps.
#[pyfunction]
fn job_protect(py: Python<'_>, name: &str, address: usize, bytes: usize) -> PyResult<()> {
    let protect = |looping: &mut Looping| {
        let start = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: `ftb/job.py` keeps the buffer, so that it stays where it is.
        unsafe { looping.protect(name, start, bytes) }
    };
    Ok(py.detach(|| with(protect))?)
}

/// The next loop id. Other threads of the interpreter run meanwhile.
#[pyfunction]
fn job_loop(py: Python<'_>) -> PyResult<u64> {
    let mut raised = None;
    let mut goes_on = || {
        // Ctrl-C, while it waits for the first save.
        raised = Python::attach(|py| py.check_signals()).err();
        raised.is_none()
    };
    let passed = py.detach(|| with(|looping| looping.pass_while(&mut goes_on)));
    match raised {
        Some(raised) => Err(raised),
        None => Ok(passed?),
    }
}

/// Number of this process, and how many there are. It waits for no other thread that is in `loop`.
#[pyfunction]
fn job_place(py: Python<'_>) -> PyResult<(u32, u32)> {
    let place = match PLACE.get() {
        Some(place) => place.clone(),
        None => py.detach(|| with(|looping| Ok(looping.place())))?,
    };
    Ok((place.rank(), place.size()))
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(job_protect, module)?)?;
    module.add_function(wrap_pyfunction!(job_loop, module)?)?;
    module.add_function(wrap_pyfunction!(job_place, module)?)
}
