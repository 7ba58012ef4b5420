//! A subscription, read without waiting.

use crate::alarm::Alarm;
use crate::convert::{GapParts, ReceivedParts, gap_parts, received_parts};
use crate::error::Trouble;
use crate::own::Own;
use ftb_client::Delivery;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake as _};

/// See the module. Dropping it unsubscribes.
#[pyclass(frozen, module = "ftb._native")]
pub(crate) struct Subscription {
    subscription: Own<ftb_client::Subscription>,
    alarm: Arc<Alarm>,
}

impl Subscription {
    pub(crate) fn new(subscription: ftb_client::Subscription) -> Result<Self, Trouble> {
        Ok(Self { subscription: Own::new(subscription), alarm: Alarm::new()? })
    }
}

fn closed() -> Trouble {
    Trouble::new("closed", "the subscription is closed")
}

#[pymethods]
impl Subscription {
    /// The descriptor to wait for.
    fn fileno(&self) -> i32 {
        self.alarm.fileno()
    }

    /// `None` where nothing is there yet; else a word and its parts: `event`, `gap`, or `end` with
    /// kind and message of what ended it (`None`: the past is over, or it was closed).
    fn poll(&self, py: Python<'_>, past_only: bool) -> PyResult<Option<(&'static str, Py<PyAny>)>> {
        let (next, why) = self.subscription.with(|subscription| {
            let subscription = subscription.as_mut().ok_or_else(closed)?;
            let next = match past_only {
                true => self.alarm.poll(pin!(subscription.next_of_past())),
                false => self.alarm.poll(pin!(subscription.next())),
            };
            Ok::<_, Trouble>((next, subscription.ended()))
        })??;
        let Poll::Ready(next) = next else { return Ok(None) };
        Ok(Some(match next {
            Some(Delivery::Event(received)) => {
                let parts: ReceivedParts = received_parts(&received);
                ("event", parts.into_py_any(py)?)
            }
            Some(Delivery::Gap(gap)) => {
                let parts: GapParts = gap_parts(&gap);
                ("gap", parts.into_py_any(py)?)
            }
            None => ("end", why.map(|why| Trouble::from(why).parts()).into_py_any(py)?),
        }))
    }

    /// Where it stands.
    fn position(&self) -> PyResult<String> {
        Ok(self.subscription.with(|subscription| {
            subscription.as_ref().map(|open| open.position().to_string()).ok_or_else(closed)
        })??)
    }

    /// Unsubscribes, and wakes who waits: it stays worth looking from then on.
    fn close(&self) -> PyResult<()> {
        self.subscription.with(|subscription| drop(subscription.take()))?;
        self.alarm.wake_by_ref();
        Ok(())
    }
}
