//! A client, and what became of its events.

use crate::convert::{EventParts, start};
use crate::error::Trouble;
use crate::own::{Own, runtime};
use crate::pending::Pending;
use crate::subscription::Subscription;
use ftb_client::{Batch, EventRef};
use pyo3::prelude::*;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Longest wait that is kept exactly; longer ones are as good as for ever.
const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Seconds as Python gives them; `None` and what is no time is for ever.
fn duration(seconds: Option<f64>) -> Duration {
    let given = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    given.unwrap_or(WAIT_MAX).min(WAIT_MAX)
}

/// A client of this node's agent.
#[pyclass(frozen, module = "ftb._native")]
pub(crate) struct Client(Own<Held>);

/// The owner of the client.
enum Held {
    /// The program.
    Program(ftb_client::Client),
    /// A task of its own, until everything that it has accepted is confirmed.
    Task(Leaving),
}

/// A client that the program has let go: it goes with this value at the latest.
struct Leaving {
    client: Weak<ftb_client::Client>,
    task: AbortHandle,
}

impl Leaving {
    fn new(client: ftb_client::Client) -> Result<Self, Trouble> {
        let client = Arc::new(client);
        let weak = Arc::downgrade(&client);
        let flushed = async move { drop(client.flush(WAIT_MAX).await) };
        Ok(Self { client: weak, task: runtime()?.spawn(flushed).abort_handle() })
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Held {
    fn client(&self) -> Option<ftb_client::Client> {
        match self {
            Self::Program(client) => Some(client.clone()),
            Self::Task(leaving) => leaving.client.upgrade().as_deref().cloned(),
        }
    }
}

impl Client {
    fn client(&self) -> Result<ftb_client::Client, Trouble> {
        self.0
            .with(|held| held.as_ref().and_then(Held::client))?
            .ok_or_else(|| Trouble::new("closed", "the client is closed"))
    }

    /// What an iterable gives, as one batch.
    fn batch(&self, events: &Bound<'_, PyAny>) -> PyResult<Batch> {
        let mut batch = self.client()?.batch();
        for (index, event) in events.try_iter()?.enumerate() {
            let event: EventParts = event?.extract()?;
            let added =
                event.into_event().and_then(|event| Ok(batch.push(EventRef::from(&event))?));
            added.map_err(|trouble| trouble.at(index))?;
        }
        Ok(batch)
    }

    /// Work of this client that yields nothing.
    fn pending<F>(&self, work: impl FnOnce(ftb_client::Client) -> F) -> PyResult<Pending>
    where
        F: Future<Output = Result<(), Trouble>> + Send + 'static,
    {
        Ok(Pending::new(work(self.client()?), |()| None::<()>)?)
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(
        name: String,
        job_id: String,
        agent: Option<String>,
        buffer_bytes: Option<usize>,
        queue_bytes: Option<usize>,
        retry_max_s: Option<f64>,
    ) -> PyResult<Self> {
        let mut builder = ftb_client::Client::builder(name).job_id(job_id);
        if let Some(socket) = agent {
            builder = builder.agent(socket);
        }
        if let Some(bytes) = buffer_bytes {
            builder = builder.buffer_bytes(bytes);
        }
        if let Some(bytes) = queue_bytes {
            builder = builder.queue_bytes(bytes);
        }
        if retry_max_s.is_some() {
            builder = builder.retry_max(duration(retry_max_s));
        }
        let _entered = runtime()?.enter();
        let client = builder.build().map_err(Trouble::from)?;
        Ok(Self(Own::new(Held::Program(client))))
    }

    /// Whether an agent is attached now.
    fn connected(&self) -> PyResult<bool> {
        Ok(self.client()?.connected())
    }

    /// Cluster, host and largest payload of the agent that is attached now.
    fn agent(&self) -> PyResult<Option<(String, String, usize)>> {
        let agent = self.client()?.agent();
        Ok(agent.map(|agent| (agent.cluster, agent.host, agent.payload_bytes_max)))
    }

    /// Published, confirmed, refused, shed, bytes that are not confirmed, delivered, gaps, paused,
    /// attachments.
    fn stats(&self) -> PyResult<[u64; 9]> {
        let stats = self.client()?.stats();
        Ok([
            stats.published,
            stats.confirmed,
            stats.refused,
            stats.shed.iter().sum(),
            (stats.waiting_bytes + stats.in_flight_bytes) as u64,
            stats.delivered,
            stats.gaps,
            stats.paused,
            stats.attachments,
        ])
    }

    fn publish(&self, event: EventParts) -> PyResult<Receipt> {
        let receipt = self.client()?.publish(event.into_event()?).map_err(Trouble::from)?;
        Ok(Receipt::new(receipt))
    }

    fn publish_wait(&self, event: EventParts) -> PyResult<Pending> {
        let (client, event) = (self.client()?, event.into_event()?);
        Ok(Pending::new(async move { Ok(client.publish_wait(event).await?) }, Receipt::new)?)
    }

    fn publish_many(&self, events: &Bound<'_, PyAny>) -> PyResult<Receipts> {
        let receipts = self.batch(events)?.publish().map_err(Trouble::from)?;
        Ok(Receipts::new(receipts))
    }

    fn publish_many_wait(&self, events: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let mut batch = self.batch(events)?;
        Ok(Pending::new(async move { Ok(batch.publish_wait().await?) }, Receipts::new)?)
    }

    fn subscribe(
        &self,
        filter: String,
        after: Option<&str>,
        since_ns: Option<u64>,
        conditions: bool,
    ) -> PyResult<Pending> {
        let (client, start) = (self.client()?, start(after, since_ns, conditions)?);
        let work = async move { Subscription::new(client.subscribe(&filter, start).await?) };
        Ok(Pending::new(work, |subscription| subscription)?)
    }

    fn wait_connected(&self, seconds: Option<f64>) -> PyResult<Pending> {
        let deadline = duration(seconds);
        self.pending(|client| async move {
            client.wait_connected(deadline).await?;
            Ok(())
        })
    }

    fn flush(&self, seconds: Option<f64>) -> PyResult<Pending> {
        let deadline = duration(seconds);
        self.pending(|client| async move {
            client.flush(deadline).await?;
            Ok(())
        })
    }

    /// The program needs it no more: it goes as soon as everything that it has accepted is
    /// confirmed, and no later than this object.
    fn let_go(&self) -> PyResult<()> {
        let client = self.client()?;
        let leaving = Leaving::new(client)?;
        self.0.with(|held| drop(held.replace(Held::Task(leaving))))?;
        Ok(())
    }

    fn close(&self, seconds: Option<f64>) -> PyResult<Pending> {
        let deadline = duration(seconds);
        self.pending(|client| async move {
            client.close(deadline).await?;
            Ok(())
        })
    }
}

/// What becomes of an event that was accepted.
#[pyclass(frozen, module = "ftb._native")]
pub(crate) struct Receipt(Own<ftb_client::Receipt>);

impl Receipt {
    pub(crate) fn new(receipt: ftb_client::Receipt) -> Self {
        Self(Own::new(receipt))
    }
}

#[pymethods]
impl Receipt {
    /// Its id, once it is confirmed; to be called once.
    fn confirmed(&self) -> PyResult<Pending> {
        let receipt = self.0.with(Option::take)?;
        let receipt =
            receipt.ok_or_else(|| Trouble::new("closed", "the receipt is waited for already"))?;
        Ok(Pending::new(async move { Ok(receipt.confirmed().await?.to_string()) }, |id| id)?)
    }
}

/// What becomes of events that were published together.
#[pyclass(frozen, module = "ftb._native")]
pub(crate) struct Receipts(Own<ftb_client::Receipts>);

impl Receipts {
    pub(crate) fn new(receipts: ftb_client::Receipts) -> Self {
        Self(Own::new(receipts))
    }

    fn receipts(&self) -> Result<ftb_client::Receipts, Trouble> {
        let receipts = self.0.with(|receipts| receipts.clone())?;
        receipts.ok_or_else(|| Trouble::new("closed", "there are no receipts"))
    }
}

#[pymethods]
impl Receipts {
    /// How many events it were.
    fn count(&self) -> PyResult<usize> {
        Ok(self.receipts()?.len())
    }

    /// Those of the single events, in their order.
    fn each(&self) -> PyResult<Vec<Receipt>> {
        Ok(self.receipts()?.map(Receipt::new).collect())
    }

    /// The ids of all, once all are confirmed.
    fn confirmed(&self) -> PyResult<Pending> {
        let receipts = self.receipts()?;
        let work = async move {
            receipts.confirmed().await?;
            let mut ids = Vec::with_capacity(receipts.len());
            for receipt in receipts {
                ids.push(receipt.confirmed().await?.to_string());
            }
            Ok(ids)
        };
        Ok(Pending::new(work, |ids| ids)?)
    }
}
