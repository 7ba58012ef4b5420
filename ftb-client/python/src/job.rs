//! The state of a parallel program in the memory of its nodes: `ftb.job`.

use crate::error::Trouble;
use ftb_job::{LoopError, Looping};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Made by the first call.
static LOOPING: Mutex<Option<Looping>> = Mutex::new(None);

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
        empty => work(empty.insert(Looping::from_env()?))?,
    })
}

/// Protects the memory of a buffer, which the Python half keeps.
#[pyfunction]
fn job_protect(name: &str, address: usize, bytes: usize) -> PyResult<()> {
    let start = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: `ftb/job.py` keeps the buffer, so that it stays where it is.
    Ok(with(|looping| unsafe { looping.protect(name, start, bytes) })?)
}

/// The next loop id. Other threads of the interpreter run meanwhile.
#[pyfunction]
fn job_loop(py: Python<'_>) -> PyResult<u64> {
    Ok(py.detach(|| with(|looping| looping.pass()))?)
}

/// Number of this process, and how many there are.
#[pyfunction]
fn job_place() -> PyResult<(u32, u32)> {
    Ok(with(|looping| Ok((looping.rank(), looping.size())))?)
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(job_protect, module)?)?;
    module.add_function(wrap_pyfunction!(job_loop, module)?)?;
    module.add_function(wrap_pyfunction!(job_place, module)?)
}
