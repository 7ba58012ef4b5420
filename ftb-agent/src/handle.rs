//! Bounded channels to the driver.
//!
//! A sender waits while the channel is full, or more than [`INBOX_BYTES_MAX`] wait in it. Links and
//! clients have separate channels, so that a storm of clients does not delay links. Not responsible
//! for: how the driver handles a command.

use ftb_core::EventId;
use ftb_core::frame::Frame;
use ftb_core::node::Census;
use ftb_core::node::api::{ClientId, ClientInfo, DialId, Input, LinkId, TreeNode};
use ftb_core::trace::{EventTrace, TraceSubject};
use ftb_proto::client::Outgoing;
use ftb_transport::tls::validity::Validity;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Commands that may wait for the driver in one inbox.
const INBOX_COMMANDS_MAX: usize = 1024;
/// Bytes that may wait for the driver in one inbox.
pub const INBOX_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The unit in which waiting bytes are counted.
const CHARGE_BYTES: usize = 1024;

/// Input of the driver.
pub enum Command {
    /// Input for the core.
    Input {
        /// The input.
        input: Input,
        /// Its share of the inbox, released after handling.
        charge: Option<OwnedSemaphorePermit>,
    },
    /// A transport to another agent is open.
    LinkOpened {
        /// Its id.
        link: LinkId,
        /// Dialed or accepted.
        origin: LinkOrigin,
        /// The channel for its frames.
        outbox: mpsc::Sender<Frame>,
        /// Ends the transport.
        cancel: CancellationToken,
    },
    /// A client has said hello.
    ClientOpened {
        /// Its id.
        client: ClientId,
        /// The client.
        info: ClientInfo,
        /// The channel for its messages.
        outbox: mpsc::Sender<Outgoing>,
        /// True: its publications are not read.
        paused: watch::Sender<bool>,
    },
    /// Returns the status of the agent.
    Status(oneshot::Sender<Status>),
    /// Returns numbers of the cluster, if this agent is the acting root.
    Census(oneshot::Sender<Option<Census>>),
    /// Returns the members of the tree.
    Tree {
        /// After this time the local view is returned.
        within: Duration,
        /// The channel for the answer.
        reply: oneshot::Sender<Tree>,
    },
    /// Returns what all agents answer.
    Trace {
        /// What they are asked for.
        subject: TraceSubject,
        /// Time for the answers of other agents.
        within: Duration,
        /// The channel for the answer.
        reply: oneshot::Sender<EventTrace>,
    },
    /// The certificates of a start or a reload, and when they end.
    Certificates(Vec<Validity>),
    /// Closes everything; the driver ends when everything is sent.
    Stop,
}

/// The bytes of an input, rounded up, from its share of the inbox.
pub fn charged_bytes(charge: Option<&OwnedSemaphorePermit>) -> u64 {
    charge.map_or(0, |charge| (charge.num_permits() * CHARGE_BYTES) as u64)
}

/// The side that opened a link.
pub enum LinkOrigin {
    /// This agent, for the core's dial.
    Dialed(DialId),
    /// Another agent.
    Accepted {
        /// The host names in its certificate; `None` without TLS.
        certified_hosts: Option<Vec<String>>,
    },
}

/// The answer to [`Command::Status`].
pub struct Status {
    /// Status of the core.
    pub node: ftb_core::node::NodeStatus,
    /// When the agent started, on its monotonic clock.
    pub started_ns: u64,
    /// Now, on the same clock.
    pub now_ns: u64,
    /// When the first of its certificates and revocation lists ends, in Unix nanoseconds.
    pub certificate_end_ns: Option<u64>,
}

/// The answer to [`Command::Tree`].
pub struct Tree {
    /// The members.
    pub nodes: Vec<TreeNode>,
    /// True: the acting root answered.
    pub complete: bool,
}

/// The driver has ended: the agent stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is stopping")]
pub struct Stopping;

/// Sends commands to the driver. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    links: Lane,
    clients: Lane,
    ids: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Lane {
    sender: mpsc::Sender<Command>,
    bytes: Arc<Semaphore>,
}

/// The driver's side of the channels.
pub struct Inbox {
    /// From links, dials and the agent itself.
    pub links: mpsc::Receiver<Command>,
    /// From clients.
    pub clients: mpsc::Receiver<Command>,
}

/// The channels of one driver.
pub fn channel() -> (Handle, Inbox) {
    let lane = || {
        let (sender, receiver) = mpsc::channel(INBOX_COMMANDS_MAX);
        let bytes = Arc::new(Semaphore::new(INBOX_BYTES_MAX / CHARGE_BYTES));
        (Lane { sender, bytes }, receiver)
    };
    let (links, links_inbox) = lane();
    let (clients, clients_inbox) = lane();
    // 0 is the agent itself.
    let ids = Arc::new(AtomicU64::new(1));
    (Handle { links, clients, ids }, Inbox { links: links_inbox, clients: clients_inbox })
}

impl Lane {
    async fn send(&self, command: Command) -> Result<(), Stopping> {
        self.sender.send(command).await.map_err(|_| Stopping)
    }

    async fn input(&self, input: Input, bytes: usize) -> Result<(), Stopping> {
        let units = (bytes.min(INBOX_BYTES_MAX)).div_ceil(CHARGE_BYTES);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let charge = Arc::clone(&self.bytes).acquire_many_owned(units).await.ok();
        self.send(Command::Input { input, charge }).await
    }
}

impl Handle {
    /// A unique number for a link, a client or a query.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a command about a link or the agent. Waits while the inbox is full.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn command(&self, command: Command) -> Result<(), Stopping> {
        self.links.send(command).await
    }

    /// Sends input from a link with `bytes` of content.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn link_input(&self, input: Input, bytes: usize) -> Result<(), Stopping> {
        self.links.input(input, bytes).await
    }

    /// Sends a command about a client. Waits while the inbox is full.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn client_command(&self, command: Command) -> Result<(), Stopping> {
        self.clients.send(command).await
    }

    /// Sends input from a client with `bytes` of content.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn client_input(&self, input: Input, bytes: usize) -> Result<(), Stopping> {
        self.clients.input(input, bytes).await
    }

    /// The status of the agent.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn status(&self) -> Result<Status, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.client_command(Command::Status(reply)).await?;
        answer.await.map_err(|_| Stopping)
    }

    /// Numbers of the cluster; `None`: this agent is not the acting root.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn census(&self) -> Result<Option<Census>, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.client_command(Command::Census(reply)).await?;
        answer.await.map_err(|_| Stopping)
    }

    /// The path of an event, as the agents remember it.
    ///
    /// # Errors
    /// The agent stops.
    pub async fn trace(&self, event: EventId, within: Duration) -> Result<EventTrace, Stopping> {
        self.ask_all(TraceSubject::Event(event), within).await
    }

    /// The reports of all agents.
    ///
    /// # Errors
    /// The agent stops.
    pub async fn reports(&self, within: Duration) -> Result<EventTrace, Stopping> {
        self.ask_all(TraceSubject::Reports, within).await
    }

    async fn ask_all(
        &self,
        subject: TraceSubject,
        within: Duration,
    ) -> Result<EventTrace, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.client_command(Command::Trace { subject, within, reply }).await?;
        answer.await.map_err(|_| Stopping)
    }

    /// The tree; the local view if the acting root does not answer `within` this time.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn tree(&self, within: Duration) -> Result<Tree, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.client_command(Command::Tree { within, reply }).await?;
        answer.await.map_err(|_| Stopping)
    }
}
