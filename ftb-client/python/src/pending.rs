//! Something that is under way, and the descriptor that tells when to look.

use crate::client::{Receipt, Receipts};
use crate::error::Trouble;
use crate::own::{Own, runtime};
use crate::subscription::Subscription;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use std::future::Future;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// A descriptor that becomes readable when it is woken.
pub(crate) struct Alarm(EventFd);

impl Alarm {
    pub(crate) fn new() -> Result<Arc<Self>, Trouble> {
        EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map(|fd| Arc::new(Self(fd)))
            .map_err(|error| Trouble::new("config", format!("no more descriptors: {error}")))
    }

    pub(crate) fn fileno(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Looks at a future once; it wakes this alarm when it is worth looking again.
    pub(crate) fn look<T>(
        self: &Arc<Self>,
        future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Poll<T> {
        // What woke it until now is what is looked at now. That it was not woken is no error.
        let _ = self.0.read();
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Full means readable already.
        let _ = self.0.write(1);
    }
}

/// What comes out.
pub(crate) enum Outcome {
    Done,
    Id(String),
    Ids(Vec<String>),
    Receipt(ftb_client::Receipt),
    Receipts(ftb_client::Receipts),
    Subscription(ftb_client::Subscription),
}

type Work = Pin<Box<dyn Future<Output = Result<Outcome, Trouble>> + Send>>;

/// See the module. Dropping it takes back what is under way.
#[pyclass(frozen, module = "ftb._native")]
pub(crate) struct Pending {
    work: Own<Work>,
    alarm: Arc<Alarm>,
}

impl Pending {
    pub(crate) fn new(
        work: impl Future<Output = Result<Outcome, Trouble>> + Send + 'static,
    ) -> Result<Self, Trouble> {
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
            let looked = self.alarm.look(future.as_mut());
            if looked.is_ready() {
                *work = None;
            }
            looked
        })?;
        let Poll::Ready(outcome) = outcome else { return Ok(None) };
        let value = match outcome? {
            Outcome::Done => py.None(),
            Outcome::Id(id) => id.into_py_any(py)?,
            Outcome::Ids(ids) => ids.into_py_any(py)?,
            Outcome::Receipt(receipt) => Receipt::new(receipt).into_py_any(py)?,
            Outcome::Receipts(receipts) => Receipts::new(receipts).into_py_any(py)?,
            Outcome::Subscription(subscription) => {
                Subscription::new(subscription)?.into_py_any(py)?
            }
        };
        Ok(Some((value,)))
    }
}
