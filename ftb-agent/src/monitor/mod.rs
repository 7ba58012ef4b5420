//! What monitoring systems read of an agent over HTTP on a loopback address: metrics, health, the
//! tree, conditions, events.
//!
//! Responsible for: `[metrics]` of the configuration, the resources and their answers. Everything
//! here is for every user of the host: a loopback address knows no user, so that only what all
//! users may read is shown. Not responsible for: HTTP and its limits (`server`), what a metric is
//! (`metrics`), the web page and its token (`page`), reading the log ([`crate::public_reading`]).

pub mod metrics;
pub mod page;
mod server;
mod silenced;
mod stream;
mod usage;

use crate::admin;
use crate::journal::Statistics;
use crate::public_reading::{self, ReadingError, ReadingSources};
use crate::world::Listener;
use bytes::Bytes;
use ftb_core::filter::Filter;
use ftb_core::node::JournalState;
use ftb_core::node::TreeRole;
use ftb_core::node::api::Start;
use ftb_proto::json::AgentObject;
use ftb_transport::limiter::{ConnectionLimiter, Limits};
use ftb_transport::peer_errors::PeerErrors;
use metrics::Snapshot;
use page::{Page, Rack};
use serde::{Deserialize, Serialize};
use server::{Answer, Problem};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stream::EventStream;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Connections that have not sent their request; a further one closes the oldest. And connections
/// whose request is answered; a further one gets status 503.
pub const CONNECTIONS_MAX: usize = 64;
/// Streams of events at once, of these connections. A further one gets status 503.
pub const STREAMS_MAX: usize = 16;
/// The age up to which an answer is given again: many readers cost no more than one.
pub const AGE_MAX: Duration = Duration::from_secs(1);
/// How long the driver may take for its part of an answer.
const DRIVER_MAX: Duration = Duration::from_secs(1);
/// How long the acting root may take to describe the tree, and the log to give the conditions.
const CLUSTER_MAX: Duration = Duration::from_secs(2);

/// The table `[metrics]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Where to listen, a loopback address; `None`: nowhere.
    pub listen: Option<SocketAddr>,
}

impl MetricsConfig {
    /// Checks the address.
    ///
    /// # Errors
    /// Other hosts could read it.
    pub fn check(&self) -> Result<(), String> {
        match self.listen {
            Some(address) if !address.ip().is_loopback() => Err(format!(
                "metrics.listen is {address}: expected a loopback address, such as \
                 127.0.0.1:9464; a collector on this host passes metrics on"
            )),
            _ => Ok(()),
        }
    }
}

/// What the resources read.
pub struct Sources {
    /// The agent.
    pub agent: ReadingSources,
    /// Counters of peer errors.
    pub errors: Arc<PeerErrors>,
    /// How much is on disk; `None` without a journal.
    pub journal: Option<Arc<Statistics>>,
    /// The limiters of links and of clients.
    pub limiters: [Arc<ConnectionLimiter>; 2],
    /// The web page, if there is one.
    pub page: Option<Page>,
}

/// The resources.
pub struct Monitor {
    sources: Sources,
    metrics: Mutex<Option<Kept>>,
    tree: Mutex<Option<Kept>>,
    conditions: Mutex<Option<Kept>>,
    streams: Arc<Semaphore>,
}

/// An answer that is given again.
struct Kept {
    since: Instant,
    text: Bytes,
}

/// Serves until `closing`; `ended` ends every connection at once.
pub fn serve(
    listener: Box<dyn Listener>,
    sources: Sources,
    closing: CancellationToken,
    ended: CancellationToken,
) {
    let limits = Limits {
        waiting_max: CONNECTIONS_MAX,
        open_max: CONNECTIONS_MAX,
        per_user_max: usize::MAX,
        hello: sources.agent.terms.hello,
    };
    let limiter = ConnectionLimiter::new(limits, Arc::clone(&sources.errors), |_| false);
    let tasks = sources.agent.tasks.clone();
    let monitor = Arc::new(Monitor {
        sources,
        metrics: Mutex::default(),
        tree: Mutex::default(),
        conditions: Mutex::default(),
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
    });
    server::serve(server::Server { listener, limiter, monitor, tasks, closing, ended });
}

/// Gives the kept answer, or makes one. Who comes meanwhile waits for it.
async fn kept(
    place: &Mutex<Option<Kept>>,
    make: impl Future<Output = Result<Bytes, Problem>>,
) -> Result<Bytes, Problem> {
    let mut place = place.lock().await;
    if let Some(kept) = place.as_ref().filter(|kept| kept.since.elapsed() < AGE_MAX) {
        return Ok(kept.text.clone());
    }
    let text = make.await?;
    *place = Some(Kept { since: Instant::now(), text: text.clone() });
    Ok(text)
}

/// What the page says of the agent that serves it.
#[derive(Serialize)]
struct AboutDocument<'a> {
    cluster: &'a str,
    host: &'a str,
    version: &'static str,
    /// Every user may read the events of jobs.
    shows_jobs: bool,
    now_ns: u64,
    racks: &'a [Rack],
}

#[derive(Serialize)]
struct TreeDocument<'a> {
    complete: bool,
    nodes: Vec<AgentObject<'a>>,
}

impl Monitor {
    /// The metrics, as OpenMetrics text.
    async fn metrics(&self) -> Result<Answer, Problem> {
        let text = kept(&self.metrics, async {
            let Sources { agent, errors, journal, limiters, .. } = &self.sources;
            let (handle, terms) = (&agent.handle, &agent.terms);
            let counts = limiters.each_ref().map(|limiter| limiter.counts());
            let (status, census) = in_time(async {
                let status = handle.status().await?;
                Ok((status, handle.census().await?))
            })
            .await?;
            let snapshot = Snapshot {
                host: terms.host.clone(),
                cluster: terms.cluster.clone(),
                uptime: Duration::from_nanos(status.now_ns.saturating_sub(status.started_ns)),
                node: Some(status.node),
                certificate_end_ns: status.certificate_end_ns,
                census,
                silenced: match census {
                    Some(_) => silenced::count(agent).await,
                    None => None,
                },
                journal: journal.as_ref().map(|journal| (journal.bytes(), journal.oldest_ns())),
                connections: counts.map(|(open, waiting)| open + waiting),
                peer_errors: errors.counters(),
                usage: usage::now(),
            };
            metrics::encode(snapshot).map(Bytes::from).map_err(Problem::failed)
        });
        Ok(Answer::text(metrics::CONTENT_TYPE, text.await?))
    }

    /// Whether the agent works: its driver answers.
    async fn health(&self) -> Result<Answer, Problem> {
        in_time(self.sources.agent.handle.status()).await?;
        Ok(Answer::plain("ok\n"))
    }

    /// Whether the agent carries events: it has a place in the tree, and its journal works.
    async fn readiness(&self) -> Result<Answer, Problem> {
        let status = in_time(self.sources.agent.handle.status()).await?;
        match (status.node.role, status.node.journal) {
            (TreeRole::Searching, _) => Err(Problem::not_ready("the agent searches a parent")),
            (_, Some(JournalState::Degraded)) => {
                Err(Problem::not_ready("the journal has failed: the log is in memory only"))
            }
            _ => Ok(Answer::plain("ok\n")),
        }
    }

    /// The tree.
    async fn tree(&self) -> Result<Answer, Problem> {
        let text = kept(&self.tree, async {
            let tree =
                self.sources.agent.handle.tree(CLUSTER_MAX).await.map_err(Problem::not_ready)?;
            let nodes = admin::tree_nodes(tree.nodes);
            let nodes = nodes.iter().map(AgentObject::from).collect();
            as_json(&TreeDocument { complete: tree.complete, nodes })
        });
        Ok(Answer::text(server::JSON, text.await?))
    }

    /// The conditions that hold or are unknown.
    async fn conditions(&self) -> Result<Answer, Problem> {
        let text = kept(&self.conditions, async {
            let all = Filter::parse("condition=*").map_err(Problem::failed)?;
            let read =
                timeout(CLUSTER_MAX, public_reading::conditions(&self.sources.agent, all)).await;
            let read = read.map_err(|_| Problem::not_ready("the log does not answer in time"))?;
            as_json(&read?.document())
        });
        Ok(Answer::text(server::JSON, text.await?))
    }

    /// The agent, for the page.
    fn about(&self, page: &Page) -> Result<Answer, Problem> {
        let agent = &self.sources.agent;
        let about = AboutDocument {
            cluster: &agent.terms.cluster,
            host: &agent.terms.host,
            version: env!("CARGO_PKG_VERSION"),
            shows_jobs: ["ftb.jl", "ftb.nla"]
                .iter()
                .all(|space| public_reading::is_open(agent, space)),
            now_ns: unix_ns(),
            racks: page.racks(),
        };
        Ok(Answer::text(server::JSON, as_json(&about)?))
    }

    /// A stream of events from now, a position or a time on.
    async fn events(&self, filter: &str, start: Start) -> Result<Answer, Problem> {
        let filter = Filter::parse(filter).map_err(Problem::wrong)?;
        let place = Arc::clone(&self.streams).try_acquire_owned();
        let place = place.map_err(|_| Problem::full("there are too many streams of events"))?;
        let reading = public_reading::open(&self.sources.agent, filter, start).await?;
        Ok(Answer::stream(EventStream::new(reading, place)))
    }
}

impl From<ReadingError> for Problem {
    fn from(error: ReadingError) -> Self {
        match error {
            ReadingError::Denied(line) => Self::denied(line),
            ReadingError::Full(line) => Self::full(line),
            ReadingError::Stopping => Self::not_ready(error),
        }
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn as_json(document: &impl Serialize) -> Result<Bytes, Problem> {
    serde_json::to_vec(document).map(Bytes::from).map_err(Problem::failed)
}

/// The driver's answer, if it comes in time.
async fn in_time<T>(
    answer: impl Future<Output = Result<T, crate::handle::Stopping>>,
) -> Result<T, Problem> {
    match timeout(DRIVER_MAX, answer).await {
        Err(_) => Err(Problem::not_ready("the driver does not answer")),
        Ok(answer) => answer.map_err(Problem::not_ready),
    }
}
