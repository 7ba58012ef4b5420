//! [`Client`]: the handle of a program.

use crate::batch::Batch;
use crate::config::ClientConfig;
use crate::connection;
use crate::error::{ConfigError, SubscribeError, WaitError};
use crate::session::{Session, SessionError, Trouble};
use crate::shared::{Handles, Shared};
use crate::subscription::Subscription;
use core::fmt;
use core::time::Duration;
use ftb_core::filter::Filter;
use ftb_core::node::api::Start;
use ftb_core::protocol::Features;
use ftb_core::{ConfirmLevel, PublisherId};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::timeout;

pub mod builder;
pub mod publish;

pub use builder::ClientBuilder;

/// A client of this node's agent: publishes and subscribes.
///
/// It attaches in the background, and again when the attachment is lost. It can be made and used
/// without an agent. Cloning returns another handle to the same client. When the last handle and
/// the last [`Subscription`] are dropped, the client sends its events to an attached agent and
/// ends; [`Client::flush`] and [`Client::close`] wait for that.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ftb_client::{Client, Delivery, Severity, Start, event};
///
/// let client = Client::builder("example").build()?;
/// let mut faults = client.subscribe("event_space=ftb.ipmi, severity>=error", Start::Now).await?;
/// client.publish(event("ftb.ipmi", "FTB_IPMI_FANFAIL")?.severity(Severity::Error))?;
/// if let Some(Delivery::Event(fault)) = faults.next().await {
///     println!("{} on {}", fault.event.name, fault.host);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Handles>,
    /// What events must survive before they are confirmed; `None`: the agent's default.
    confirm: Option<ConfirmLevel>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.inner.shared.config;
        f.debug_struct("Client")
            .field("name", &config.name)
            .field("socket", &config.socket)
            .finish()
    }
}

/// Counters of a client, and its buffered events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Events accepted for publication.
    pub published: u64,
    /// Of these: committed.
    pub confirmed: u64,
    /// Of these: refused by the agent.
    pub refused: u64,
    /// Events shed because the buffer was full, by severity, lowest first.
    pub shed: [u64; 4],
    /// Events that were not sent to any agent when the client ended, by severity, lowest first.
    pub given_up: [u64; 4],
    /// Events that were sent and not confirmed when the client ended: they may have been delivered
    /// or not.
    pub in_doubt: u64,
    /// Events that were not sent yet, by severity, lowest first.
    pub waiting: [u64; 4],
    /// Events that were sent and are not confirmed.
    pub in_flight: u64,
    /// Bytes of events that were not sent yet.
    pub waiting_bytes: usize,
    /// Bytes of events that were sent and are not confirmed.
    pub in_flight_bytes: usize,
    /// Events delivered to subscriptions.
    pub delivered: u64,
    /// Duplicate events, which were not delivered again.
    pub copies: u64,
    /// Events for a subscription that had ended or was paused.
    pub late: u64,
    /// Events that arrived after newer ones of their publishers: reported as gaps.
    pub overtaken: u64,
    /// Gaps delivered to subscriptions.
    pub gaps: u64,
    /// How often a subscription was paused because its reader was slow.
    pub paused: u64,
    /// How often the client attached.
    pub attachments: u64,
}

/// The agent that a client is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The cluster's name.
    pub cluster: String,
    /// The agent's host.
    pub host: String,
    /// The largest payload that it accepts, in bytes.
    pub payload_bytes_max: usize,
    /// It verifies the signatures of events that move jobs: do not act on one that is not
    /// [`Received::is_verified`](crate::Received::is_verified). False: the cluster has no
    /// certificates, or accepts unsigned events. A reload of the agent may change it: it applies
    /// from the next delivery on.
    pub requires_signatures: bool,
    /// It counts no condition that a program of its host states of another host: `monitors` of its
    /// configuration does not name the host. Agents of older releases do not say so.
    pub is_own_host_only: bool,
}

impl Client {
    /// A builder for a client of that name, with all defaults.
    pub fn builder(name: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(name)
    }

    /// Makes a client that attaches in the background on the current tokio runtime.
    ///
    /// # Errors
    /// [`ConfigError`]: the configuration is wrong, or there is no runtime. A missing agent is no
    /// error: see [`Client::wait_connected`].
    pub fn connect(config: ClientConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let runtime = Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
        let shared = Arc::new(Shared::new(config));
        runtime.spawn(connection::run(Arc::clone(&shared)));
        let confirm = shared.config.confirm;
        Ok(Self { inner: Arc::new(Handles { shared }), confirm })
    }

    /// The same client: events that are published through this handle are confirmed at that level,
    /// if it can be had ([`ConfirmLevel::Memory`] or [`ConfirmLevel::Disk`]). The receipt names the
    /// level. Confirmations keep the order of the events: one that is to be on disk delays those
    /// behind it.
    #[must_use]
    pub fn confirming(&self, level: ConfirmLevel) -> Self {
        Self { confirm: Some(level), ..self.clone() }
    }

    pub(crate) fn confirm(&self) -> Option<ConfirmLevel> {
        self.confirm
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.inner), self.confirm)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Whether an agent is attached now.
    pub fn connected(&self) -> bool {
        self.shared().is_attached()
    }

    /// The id under which this client publishes; `None`: no agent has accepted it yet.
    pub fn publisher(&self) -> Option<PublisherId> {
        Some(self.shared().lock().publisher()).filter(|publisher| publisher.account != 0)
    }

    /// The agent that is attached now.
    pub fn agent(&self) -> Option<Agent> {
        let session = self.shared().lock();
        session.hello_ack().map(|hello_ack| Agent {
            cluster: hello_ack.cluster.clone(),
            host: hello_ack.host.clone(),
            payload_bytes_max: hello_ack.payload_bytes_max,
            requires_signatures: hello_ack.features.contains(Features::SIGNED),
            is_own_host_only: hello_ack.features.contains(Features::OWN_HOST_ONLY),
        })
    }

    /// Resolves when an agent is attached. Cancel-safe.
    ///
    /// # Errors
    /// After `deadline`, by the result of the last attempt: [`WaitError::NoAgent`],
    /// [`WaitError::Refused`] or [`WaitError::Detached`].
    pub async fn wait_connected(&self, deadline: Duration) -> Result<(), WaitError> {
        let attached = self.shared().wait_for(|session| {
            if session.is_closed() {
                return Some(Err(WaitError::Closed));
            }
            session.hello_ack().map(|_| Ok(()))
        });
        match timeout(deadline, attached).await {
            Ok(result) => result,
            Err(_) => Err(self.not_attached()),
        }
    }

    /// Resolves with the agent's reason when it refuses this client: it is full, or of another
    /// release. The client continues to attempt. `None` when the client has ended, which this does
    /// not delay. Cancel-safe.
    pub fn refused(&self) -> impl Future<Output = Option<String>> + Send + use<> {
        let shared = Arc::clone(&self.inner.shared);
        async move {
            let refused = |session: &mut Session| match &session.trouble {
                Trouble::Refused { code, message } => {
                    let (code, message) = (code.clone(), message.clone());
                    Some(Some(SessionError::Refused { code, message }.to_string()))
                }
                _ => session.has_ended().then_some(None),
            };
            shared.wait_for_refusal(refused).await
        }
    }

    /// Why no agent is attached.
    fn not_attached(&self) -> WaitError {
        let socket = self.shared().config.socket.clone();
        match self.shared().lock().trouble.clone() {
            Trouble::NoAgent(why) => WaitError::NoAgent { socket, why },
            Trouble::Refused { code, message } => WaitError::Refused { socket, code, message },
            Trouble::Detached(why) => WaitError::Detached { socket, why },
            Trouble::Untried => {
                WaitError::Detached { socket, why: "the first attempt has not ended".to_owned() }
            }
        }
    }

    /// Resolves when each accepted event is confirmed, refused or shed. Cancel-safe.
    ///
    /// # Errors
    /// After `deadline`: as [`Client::wait_connected`] when no agent is attached, else
    /// [`WaitError::Unconfirmed`].
    pub async fn flush(&self, deadline: Duration) -> Result<(), WaitError> {
        let shared = self.shared();
        let flushed = shared.wait_for_agent(|session| session.outbox.is_empty().then_some(()));
        if timeout(deadline, flushed).await.is_ok() {
            return Ok(());
        }
        if !self.connected() {
            return Err(self.not_attached());
        }
        let session = shared.lock();
        let bytes = session.outbox.waiting_bytes() + session.outbox.in_flight_bytes();
        Err(WaitError::Unconfirmed { bytes })
    }

    /// Subscribes: resolves when the subscription is active in the whole tree. Every matching
    /// event from then on, published anywhere, is delivered or reported as a gap. Waits while there
    /// is no agent. Dropping the future unsubscribes.
    ///
    /// The syntax of filters is that of [`Filter`]: `event_space=ftb.ipmi, severity>=error`; an
    /// empty one wants everything.
    ///
    /// # Errors
    /// [`SubscribeError`]: the filter is wrong (with the column), or the agent refuses it.
    pub async fn subscribe(
        &self,
        filter: &str,
        start: Start,
    ) -> Result<Subscription, SubscribeError> {
        Filter::parse(filter)?;
        let subscription = Subscription::new(Arc::clone(&self.inner), filter, start)?;
        subscription.activated().await?;
        Ok(subscription)
    }

    /// The counters of the client.
    pub fn stats(&self) -> Stats {
        let session = self.shared().lock();
        let (outbox, inbox) = (session.outbox.counts(), session.inbox.counts());
        Stats {
            published: outbox.accepted,
            confirmed: outbox.confirmed,
            refused: outbox.refused,
            shed: outbox.shed,
            given_up: outbox.given_up,
            in_doubt: outbox.in_doubt,
            waiting: session.outbox.waiting_events(),
            in_flight: session.outbox.in_flight_events(),
            waiting_bytes: session.outbox.waiting_bytes(),
            in_flight_bytes: session.outbox.in_flight_bytes(),
            delivered: inbox.delivered,
            copies: inbox.copies,
            late: inbox.late,
            overtaken: inbox.overtaken,
            gaps: inbox.gaps,
            paused: inbox.paused,
            attachments: session.attachments(),
        }
    }

    /// Ends the client for all its handles: waits until each event is confirmed, then detaches.
    /// Subscriptions end after their queued deliveries.
    ///
    /// # Errors
    /// [`WaitError`]: an event was not confirmed within `deadline`. The client is closed also
    /// then.
    pub async fn close(&self, deadline: Duration) -> Result<(), WaitError> {
        let flushed = self.flush(deadline).await;
        let shared = self.shared();
        shared.update(Session::leave);
        // The connection's task has its own deadline for that.
        self.ended().await;
        flushed
    }

    /// Resolves when the connection's task has ended. Does not keep the client alive.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.inner.shared);
        async move { shared.wait_for(|session| session.has_ended().then_some(())).await }
    }
}
