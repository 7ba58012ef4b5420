//! The way to the driver: bounded channels, and what may lie in them.
//!
//! Responsible for: back-pressure. A sender waits while the channel is full or while more than
//! [`INBOX_BYTES_MAX`] wait in it; links and clients have their own, so that a storm of clients
//! does not hold up the links. Not responsible for: what the driver does with it.

use ftb_core::frame::Frame;
use ftb_core::node::api::{ClientId, ClientInfo, DialId, Input, LinkId, TreeNode};
use ftb_proto::client::Outgoing;
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

/// What the driver is told.
pub enum Command {
    /// Something for the core.
    Input {
        /// What.
        input: Input,
        /// Its share of the inbox, given back when the driver has handled it.
        charge: Option<OwnedSemaphorePermit>,
    },
    /// A transport to another agent is there.
    LinkOpened {
        /// Its id.
        link: LinkId,
        /// Where it comes from.
        origin: LinkOrigin,
        /// Where its frames go.
        outbox: mpsc::Sender<Frame>,
        /// Ends the transport.
        cancel: CancellationToken,
    },
    /// A client has said hello.
    ClientOpened {
        /// Its id.
        client: ClientId,
        /// Who it is.
        info: ClientInfo,
        /// Where its messages go.
        outbox: mpsc::Sender<Outgoing>,
        /// Whether its publications are read.
        paused: watch::Sender<bool>,
    },
    /// How is the agent?
    Status(oneshot::Sender<Status>),
    /// How is the tree?
    Tree {
        /// When the local view must do.
        within: Duration,
        /// Where the answer goes.
        reply: oneshot::Sender<Tree>,
    },
    /// Say goodbye everywhere; the driver ends when everything is sent.
    Stop,
}

/// The bytes of an input, rounded up, that its share of the inbox stands for.
pub fn charged_bytes(charge: Option<&OwnedSemaphorePermit>) -> u64 {
    charge.map_or(0, |charge| (charge.num_permits() * CHARGE_BYTES) as u64)
}

/// Where a link comes from.
pub enum LinkOrigin {
    /// The core asked for it.
    Dialed(DialId),
    /// Another agent connected.
    Accepted {
        /// What its certificate vouches for; `None` without TLS.
        certified_hosts: Option<Vec<String>>,
    },
}

/// The answer to [`Command::Status`].
pub struct Status {
    /// What the core says.
    pub node: ftb_core::node::NodeStatus,
    /// When the agent started, on its monotonic clock.
    pub started_ns: u64,
    /// Now, on the same clock.
    pub now_ns: u64,
}

/// The answer to [`Command::Tree`].
pub struct Tree {
    /// The members.
    pub nodes: Vec<TreeNode>,
    /// Whether the acting root said so.
    pub complete: bool,
}

/// The driver has ended: the agent stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is stopping")]
pub struct Stopping;

/// Speaks to the driver. Cheap to clone.
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

/// The driver's end.
pub struct Inbox {
    /// From links, dials and the agent itself.
    pub links: mpsc::Receiver<Command>,
    /// From clients.
    pub clients: mpsc::Receiver<Command>,
}

/// Both ends of the way to a driver.
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
    /// A number for a link, a client or a query, never given twice.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the driver something about a link or the agent. Waits while the inbox is full.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn command(&self, command: Command) -> Result<(), Stopping> {
        self.links.send(command).await
    }

    /// Gives the core something from a link that has `bytes` of content.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn link_input(&self, input: Input, bytes: usize) -> Result<(), Stopping> {
        self.links.input(input, bytes).await
    }

    /// Tells the driver something about a client. Waits while the inbox is full.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn client_command(&self, command: Command) -> Result<(), Stopping> {
        self.clients.send(command).await
    }

    /// Gives the core something from a client that has `bytes` of content.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn client_input(&self, input: Input, bytes: usize) -> Result<(), Stopping> {
        self.clients.input(input, bytes).await
    }

    /// How the agent is.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn status(&self) -> Result<Status, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.client_command(Command::Status(reply)).await?;
        answer.await.map_err(|_| Stopping)
    }

    /// How the tree is; the local view when the acting root has not answered `within` that time.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn tree(&self, within: Duration) -> Result<Tree, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.client_command(Command::Tree { within, reply }).await?;
        answer.await.map_err(|_| Stopping)
    }
}
