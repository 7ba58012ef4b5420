//! Reads the log with the rights that every user of the host has, as a client without a socket.
//!
//! Responsible for: attaching to the driver, subscribing, and what of the deliveries all users may
//! read. Not responsible for: what is done with it.

use crate::access::{Access, ReadRight};
use crate::clients::{Terms, narrowed};
use crate::delivery_filter::DeliveryFilter;
use crate::handle::{Command, Handle, Stopping};
use crate::signing::Signing;
use crate::transports;
use arc_swap::ArcSwap;
use ftb_core::PublisherId;
use ftb_core::condition::Truth;
use ftb_core::filter::Filter;
use ftb_core::node::api::{ClientId, ClientInfo, Input, Start, SubscriptionId};
use ftb_proto::client::{FromAgent, Outgoing};
use ftb_proto::condition_state::ConditionState;
use ftb_proto::json::ConditionObject;
use ftb_proto::wire::Outbound as _;
use ftb_transport::Credentials;
use serde::Serialize;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

/// No user of a host has this number: its rights are those of everyone, and it has published
/// nothing. Its subscriptions share the budget of one user.
const EVERYONE: Credentials = Credentials { uid: u32::MAX, gid: u32::MAX, pid: 0 };
const SUBSCRIPTION: SubscriptionId = SubscriptionId(0);

/// Rows of a table of conditions. Further ones are left out, and `complete` is false.
pub const ROWS_MAX: usize = 10_000;

/// What a reading needs of the agent.
#[derive(Clone)]
pub struct ReadingSources {
    /// The driver.
    pub handle: Handle,
    /// Names of this agent.
    pub terms: Arc<Terms>,
    /// The rules by which users read events.
    pub access: Arc<ArcSwap<Access>>,
    /// Verifies events.
    pub signing: Arc<Signing>,
    /// The tasks of the agent.
    pub tasks: TaskTracker,
}

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadingError {
    /// Not every user may read that.
    #[error("{0}")]
    Denied(String),
    /// A limit is reached.
    #[error("{0}")]
    Full(String),
    #[error("the agent is stopping")]
    Stopping,
}

impl From<Stopping> for ReadingError {
    fn from(_: Stopping) -> Self {
        Self::Stopping
    }
}

/// A subscription that runs. It ends when it is dropped.
pub(crate) struct PublicReading {
    client: ClientId,
    inbox: mpsc::Receiver<Outgoing>,
    filter: DeliveryFilter,
    handle: Handle,
    tasks: TaskTracker,
    /// The driver may pause a client that publishes; this one does not.
    _paused: watch::Receiver<bool>,
}

/// Whether every user may read all events of this event space.
pub(crate) fn is_open(sources: &ReadingSources, space: &str) -> bool {
    sources.access.load().of(EVERYONE).reading(space.as_bytes()) == ReadRight::All
}

/// Begins to read.
pub(crate) async fn open(
    sources: &ReadingSources,
    filter: Filter,
    start: Start,
) -> Result<PublicReading, ReadingError> {
    let ReadingSources { handle, access, signing, terms, tasks } = sources;
    let denied = |why: String| ReadingError::Denied(why);
    let filter = narrowed(&access.load().of(EVERYONE), filter).map_err(denied)?;
    let client = ClientId(handle.next_id());
    let (outbox, inbox) = mpsc::channel(transports::DEPTH);
    let (pause, paused) = watch::channel(false);
    let info = ClientInfo {
        uid: EVERYONE.uid,
        gid: EVERYONE.gid,
        pid: std::process::id(),
        name: "http".to_owned(),
        job_id: String::new(),
        publisher: PublisherId {
            account: PublisherId::account_of(&terms.host, EVERYONE.uid),
            token: client.0,
        },
    };
    let opened = Command::ClientOpened { client, info, outbox, paused: pause };
    handle.client_command(opened).await?;
    let reading = PublicReading {
        client,
        inbox,
        filter: DeliveryFilter::new(access.clone(), signing.clone(), EVERYONE),
        handle: handle.clone(),
        tasks: tasks.clone(),
        _paused: paused,
    };
    let filter = filter.into();
    let input = Input::Subscribe { client, subscription: SUBSCRIPTION, filter, start };
    handle.client_input(input, 0).await?;
    Ok(reading)
}

impl PublicReading {
    /// The next message, as a client reads it; `None`: the agent stops.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromAgent>> {
        loop {
            let Some(message) = ready!(self.inbox.poll_recv(cx)) else { return Poll::Ready(None) };
            let readable = match message {
                Outgoing::Core(message) => self.filter.readable(message),
                message => Some(message),
            };
            let bytes = readable.map(|message| message.into_slices().concat());
            // What this agent has encoded, it can decode.
            let decoded = bytes.and_then(|bytes| FromAgent::decode(bytes.into()).ok());
            if decoded.is_some() {
                return Poll::Ready(decoded);
            }
        }
    }

    async fn next(&mut self) -> Option<FromAgent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl Drop for PublicReading {
    fn drop(&mut self) {
        let (handle, client) = (self.handle.clone(), self.client);
        self.tasks.spawn(async move {
            // A driver that has ended has forgotten it.
            let _ = handle.client_input(Input::ClientDetached { client }, 0).await;
        });
    }
}

/// The conditions that hold or are unknown, without watches.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<ConditionState>,
    hidden: u32,
    is_cut: bool,
}

/// The same for programs.
#[derive(Serialize)]
pub(crate) struct ConditionDocument<'a> {
    complete: bool,
    hidden: u32,
    conditions: Vec<ConditionObject<'a>>,
}

impl Table {
    /// The rows.
    pub(crate) fn rows(&self) -> &[ConditionState] {
        &self.rows
    }

    pub(crate) fn document(&self) -> ConditionDocument<'_> {
        ConditionDocument {
            complete: !self.is_cut,
            hidden: self.hidden,
            conditions: self.rows.iter().map(ConditionObject::from).collect(),
        }
    }

    fn take(&mut self, state: ConditionState) {
        if state.is_watch() || state.truth == Truth::False {
            return;
        }
        match self.rows.len() < ROWS_MAX {
            true => self.rows.push(state),
            false => self.is_cut = true,
        }
    }
}

/// Reads the conditions that match a filter.
pub(crate) async fn conditions(
    sources: &ReadingSources,
    filter: Filter,
) -> Result<Table, ReadingError> {
    let mut reading = open(sources, filter, Start::Conditions).await?;
    let mut table = Table::default();
    while let Some(message) = reading.next().await {
        match message {
            FromAgent::Deliver { mut events, .. } => {
                while let Some(received) = events.take_first() {
                    if let Some(state) = ConditionState::of(&received) {
                        table.take(state);
                    }
                }
            }
            FromAgent::Covered { history_ended: true, hidden, .. } => {
                table.hidden = hidden;
                return Ok(table);
            }
            FromAgent::Rejected { message, .. } => return Err(ReadingError::Full(message)),
            _ => {}
        }
    }
    Err(ReadingError::Stopping)
}
