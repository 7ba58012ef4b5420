//! Something that is under way, and the descriptor that tells when to look.

use crate::alarm::Alarm;
use crate::error::Trouble;
use crate::own::{Own, runtime};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Makes the Python object of a result. It is called with the interpreter attached.
type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

type Work = Pin<Box<dyn Future<Output = Result<Convert, Trouble>> + Send>>;

/// See the module. Dropping it takes back what is under way.
#[pyclass(frozen, module = "ftb._native")]
pub(crate) struct Pending {
    work: Own<Work>,
    alarm: Arc<Alarm>,
}

impl Pending {
    /// `convert` makes the Python object of what the work yields.
    pub(crate) fn new<T, P>(
        work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
        convert: impl FnOnce(T) -> P + Send + 'static,
    ) -> Result<Self, Trouble>
    where
        T: Send + 'static,
        P: for<'py> IntoPyObjectExt<'py>,
    {
        let work = async move {
            let value = work.await?;
            let convert: Convert = Box::new(|py| convert(value).into_py_any(py));
            Ok(convert)
        };
        Ok(Self { work: Own::new(Box::pin(work)), alarm: Alarm::new()? })
    }
}

#[pymethods]
impl Pending {
    /// The descriptor to wait for.
    fn fileno(&self) -> i32 {
        self.alarm.fileno()
    }

    /// Takes back what is under way. In a forked process there is nothing to take back: it is its
    /// parent's.
    fn give_up(&self) {
        let _ = self.work.with(|work| drop(work.take()));
    }

    /// `None` while it is under way, then once a tuple with the result.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let _entered = runtime()?.enter();
        let outcome = self.work.with(|work| {
            let Some(future) = work else {
                return Poll::Ready(Err(Trouble::new("closed", "its result was taken already")));
            };
            let polled = self.alarm.poll(future.as_mut());
            if polled.is_ready() {
                *work = None;
            }
            polled
        })?;
        let Poll::Ready(outcome) = outcome else { return Ok(None) };
        let convert = outcome?;
        Ok(Some((convert(py)?,)))
    }
}
