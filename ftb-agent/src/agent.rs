//! One agent: its parts put together, started, reloaded and stopped.
//!
//! Responsible for: the order of start (all checks before any socket
//! listens) and of stop (no new peers, close all, drain with a deadline, remove sockets).
//! Not responsible for: signals and systemd, which are the process's ([`crate::process`]).

use crate::access::{Access, SubUids};
use crate::admin::AdminService;
use crate::announce::Announcer;
use crate::clients::{Clients, Terms};
use crate::config::{Config, conditions, storms};
use crate::driver::Driver;
use crate::handle::{self, Command, Handle};
use crate::journal::config::JournalConfig;
use crate::journal::{JournalError, Opened};
use crate::links::{LinkService, Links};
use crate::monitor;
use crate::monitor::page::Page;
use crate::nvhcd::HealthService;
use crate::public_reading::ReadingSources;
use crate::queries::Queries;
use crate::serve;
use crate::signing::Signing;
use crate::trust;
use crate::world::{Listener, Net, World};
use arc_swap::ArcSwap;
use ftb_core::OriginId;
use ftb_core::condition::pairs::ConditionPairs;
use ftb_core::node::api::Input;
use ftb_core::node::{Node, NodeConfig};
use ftb_transport::limiter::{ConnectionLimiter, Limits};
use ftb_transport::peer_errors::PeerErrors;
use ftb_transport::tls::validity::validities;
use ftb_transport::tls::{self, Tls, TlsError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// First pause before the agent tries again to listen for monitoring systems; each is twice the
/// one before.
const MONITOR_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const MONITOR_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The port for other agents.
    #[error("cannot listen for agents on {address}: {error}")]
    ListenLinks {
        /// Which address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The socket for clients.
    #[error("cannot listen for clients on {path}: {error}")]
    ListenClients {
        /// Which path.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The files of the web page.
    #[error("[page]: {0}")]
    Page(String),
    /// A journal that is another's.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A timer.
    #[error("cannot make a timer: {0}")]
    Timer(io::Error),
    /// Randomness.
    #[error("cannot draw an incarnation: {0}")]
    Entropy(io::Error),
}

/// An agent that runs.
pub struct Agent {
    /// Its name in the member list.
    pub host: String,
    /// Where it listens for other agents.
    pub address: String,
    origin: OriginId,
    handle: Handle,
    /// That of the start.
    config: Config,
    tls: Option<Arc<Tls>>,
    access: Arc<ArcSwap<Access>>,
    pairs: Arc<ArcSwap<ConditionPairs>>,
    signing: Arc<Signing>,
    errors: Arc<PeerErrors>,
    limiters: [Arc<ConnectionLimiter>; 2],
    role: watch::Receiver<String>,
    /// Cancelled: accept no more connections.
    closing: CancellationToken,
    /// Cancelled: every task ends at once.
    ended: CancellationToken,
    tasks: TaskTracker,
    journal: Option<JoinHandle<()>>,
    driver: JoinHandle<()>,
}

impl Agent {
    /// Starts an agent. `system_host` is the host's own name; `agent_uid` the user it runs as.
    ///
    /// # Errors
    /// [`StartError`]: nothing listens then.
    pub async fn start(
        config: Config,
        system_host: &str,
        agent_uid: u32,
        world: World,
    ) -> Result<Self, StartError> {
        let host = config.host(system_host);
        let tls = load_certificates(&config, &host)?;
        let origin = OriginId(world.entropy.draw().map_err(StartError::Entropy)?);
        let seed = world.entropy.draw().map_err(StartError::Entropy)?;
        let alarm = world.clock.alarm().map_err(StartError::Timer)?;
        let journal = read_journal(&config, &host, origin, &world).await?;
        let listeners = Listeners::open(&config, &world).await?;
        let address = listeners.links.address();
        let (errors, access, pairs, signing) = shared(&config, agent_uid, tls.clone());
        let (handle, inbox) = handle::channel();
        let (closing, ended) = (CancellationToken::new(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let links = Links {
            handle: handle.clone(),
            errors: Arc::clone(&errors),
            net: Arc::clone(&world.net),
            tls: tls.clone(),
            signing: Arc::clone(&signing),
            tasks: tasks.clone(),
            ended: ended.clone(),
        };
        let terms = terms(&config, &host, origin);
        let (clients, health) = services(&links, &access, &pairs, terms, &config, journal.as_ref());
        let limiters = limiters(&config, &errors, &access);
        serve_monitor(listeners.monitor, &health, &limiters, &closing, &links);
        let sockets = serve::Sockets { tasks: tasks.clone(), closing: closing.clone(), ended };
        let links_served = LinkService(links.clone());
        sockets.serve_links(listeners.links, Arc::clone(&limiters[0]), tls.clone(), links_served);
        sockets.serve_clients(listeners.clients, Arc::clone(&limiters[1]), clients, health);
        let restored = journal.as_ref().map(|journal| journal.restored.clone());
        let unbounded_uids = access.load().unbounded_uids();
        let node = NodeConfig { unbounded_uids, ..config.node(&host, origin) };
        let node = Node::with_journal(world.clock.now(), node, seed, restored);
        let announcer =
            Announcer::new(&host, origin, agent_uid, std::process::id(), Arc::clone(&pairs));
        let (role_sender, role) = watch::channel("starting".to_owned());
        let driver = Driver::new(node, Arc::clone(&world.clock), links, announcer, role_sender);
        let (log_writer, journal) = journal.map(|all| all.start(&world, handle.clone())).unzip();
        let driver = driver.journaled(log_writer);
        // Distinguishes the agents of one process in tests.
        let span = tracing::debug_span!("agent", host);
        let driver = tokio::spawn(driver.run(inbox, alarm).instrument(span));
        tasks.spawn(trust::report(Arc::clone(&signing), handle.clone(), closing.clone()));
        watch_expiry(&config, &handle).await;
        Ok(Self {
            host,
            address,
            origin,
            handle,
            config,
            tls,
            access,
            pairs,
            signing,
            errors,
            limiters,
            role,
            closing,
            ended: sockets.ended,
            tasks,
            journal,
            driver,
        })
    }

    /// Speaks to the running agent.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What the shell has counted.
    pub fn peer_errors(&self) -> &PeerErrors {
        &self.errors
    }

    /// The agent's last change of place in the tree, in words.
    pub fn role(&self) -> watch::Receiver<String> {
        self.role.clone()
    }

    /// Ends when the driver does, which without [`Agent::stop`] is a bug.
    pub async fn failed(&mut self) {
        if let Err(error) = (&mut self.driver).await {
            tracing::error!(%error, "the driver of the agent has ended");
        }
    }

    /// Follows a changed configuration: certificates, access rules, members and fan-out. What needs
    /// a restart is named in the log.
    pub async fn reload(&mut self, config: Config, agent_uid: u32) {
        match (&self.tls, &config.tls) {
            (Some(tls), Some(files)) => match tls.reload(files, &self.host) {
                Err(error) => {
                    tracing::error!(%error, "certificates not taken: the old ones stay in use");
                }
                Ok(doubt) => {
                    match doubt {
                        None => tracing::info!("certificates read again"),
                        Some(doubt) => tracing::warn!("certificates read again: {doubt}"),
                    }
                    watch_expiry(&config, &self.handle).await;
                }
            },
            (None, None) => {}
            _ => tracing::warn!("[tls] was added or removed: this needs a restart"),
        }
        storms::doubts(&config.storm).iter().for_each(|doubt| tracing::warn!("{doubt}"));
        self.signing.demand(config.demands());
        self.access.store(Arc::new(access_of(&config, agent_uid)));
        // The configuration was checked when it was read.
        let pairs = conditions::pairs(&config.condition).unwrap_or_default();
        self.pairs.store(Arc::new(pairs));
        let changed = config.differs_for_good(&self.config);
        if !changed.is_empty() {
            tracing::warn!("{} changed: this needs a restart", changed.join(", "));
        }
        let NodeConfig { members, fanout, allow_unlisted, storm, .. } =
            config.node(&self.host, self.origin);
        let input = Input::Reconfigure { members, fanout, allow_unlisted, storm };
        if self.handle.link_input(input, 0).await.is_err() {
            tracing::warn!("the agent is stopping: members are not read again");
        }
    }

    /// Stops: accepts no more connections, closes all others and sends the queues, all
    /// within `limits.drain`.
    pub async fn stop(self) {
        self.closing.cancel();
        let Self { config, handle, driver, journal, tasks, ended, limiters, .. } = self;
        let abort = driver.abort_handle();
        let drained = async {
            if handle.command(Command::Stop).await.is_ok() {
                let _ = driver.await;
            }
            if let Some(journal) = journal {
                let _ = journal.await;
            }
            tasks.close();
            tasks.wait().await;
        };
        if tokio::time::timeout(config.limits.drain, drained).await.is_err() {
            tracing::warn!(
                "stopping without having sent everything: the drain deadline has passed"
            );
        }
        abort.abort();
        ended.cancel();
        limiters.iter().for_each(|limiter| limiter.close_all());
    }

    /// Ends at once, as a crash does.
    pub fn crash(self) {
        self.driver.abort();
        self.ended.cancel();
        self.closing.cancel();
        self.limiters.iter().for_each(|limiter| limiter.close_all());
    }
}

fn load_certificates(config: &Config, host: &str) -> Result<Option<Arc<Tls>>, TlsError> {
    let load = |files| Tls::load(files, &config.cluster.0).map(Arc::new);
    let tls = config.tls.as_ref().map(load).transpose()?;
    examine_certificate(config, host);
    Ok(tls)
}

/// Logs what is wrong with the certificate. That may be temporary: the agent starts, and serves its
/// own host meanwhile.
fn examine_certificate(config: &Config, host: &str) {
    match config.tls.as_ref().map(|files| tls::examine(files, &config.cluster.0, host)) {
        None | Some(Ok(None)) => {}
        Some(Ok(Some(doubt))) => tracing::warn!("{doubt}"),
        Some(Err(error)) => {
            tracing::error!(%error, "the certificate is for another host or cluster")
        }
    }
}

/// The driver warns before the certificates end. It has just been started, or runs: if it stops, no
/// warning is needed.
async fn watch_expiry(config: &Config, handle: &Handle) {
    match config.tls.as_ref().map(validities) {
        None => {}
        Some(Ok(files)) => drop(handle.command(Command::Certificates(files)).await),
        Some(Err(error)) => tracing::error!(%error, "it is not known when the certificates end"),
    }
}

/// The listening sockets.
struct Listeners {
    links: Box<dyn Listener>,
    clients: Box<dyn Listener>,
    monitor: Option<MonitorSocket>,
}

/// The listening socket for monitoring systems.
struct MonitorSocket {
    address: String,
    /// `None`: the address cannot be had yet.
    listener: Option<Box<dyn Listener>>,
    /// The web page that is served there.
    page: Option<Page>,
}

impl Listeners {
    async fn open(config: &Config, world: &World) -> Result<Self, StartError> {
        let address = config.listen();
        let links = world.net.listen_links(&address).await;
        let links = links.map_err(|error| StartError::ListenLinks { address, error })?;
        let clients = world.net.listen_clients(&config.socket).await.map_err(|error| {
            StartError::ListenClients { path: config.socket.display().to_string(), error }
        })?;
        let page = Page::read(&config.page).map_err(StartError::Page)?;
        let monitor = match config.metrics.listen {
            None => None,
            Some(address) => {
                let address = address.to_string();
                let listener = listen_for_monitors(&address, world).await;
                Some(MonitorSocket { address, listener, page })
            }
        };
        Ok(Self { links, clients, monitor })
    }
}

/// The address for monitoring systems; `None`, and a line of the log, if another program has it or
/// the host does not have it yet. Events are worth more than their metrics: the agent runs without.
async fn listen_for_monitors(address: &str, world: &World) -> Option<Box<dyn Listener>> {
    let opened = world.net.listen_links(address).await;
    let report = |error: &io::Error| {
        tracing::error!(
            "cannot listen for metrics on {address}: {error}: the agent runs without metrics and \
             page, and tries again; if another program keeps the address, correct metrics.listen \
             and restart the agent"
        );
    };
    opened.inspect_err(report).ok()
}

/// Tries until it listens for monitoring systems. The failures were reported by the first attempt.
async fn listen_again(address: &str, net: &dyn Net) -> Box<dyn Listener> {
    let mut pause = MONITOR_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        if let Ok(listener) = net.listen_links(address).await {
            tracing::info!("listens for metrics on {address}");
            return listener;
        }
        pause = (pause * 2).min(MONITOR_PAUSE_MAX);
    }
}

/// What the journal holds; `None` without one.
async fn read_journal(
    config: &Config,
    host: &str,
    origin: OriginId,
    world: &World,
) -> Result<Option<Opened>, JournalError> {
    let Some(folder) = config.journal.folder() else { return Ok(None) };
    let NodeConfig { log_bytes, protected, conditions, .. } = config.node(host, origin);
    let journal = JournalConfig { protected, conditions, ..config.journal.clone() };
    Opened::read(&journal, &config.cluster.0, folder, log_bytes, world).await.map(Some)
}

/// What serves clients, administrators and health checks.
fn services(
    links: &Links,
    access: &Arc<ArcSwap<Access>>,
    pairs: &Arc<ArcSwap<ConditionPairs>>,
    terms: Terms,
    config: &Config,
    journal: Option<&Opened>,
) -> (Clients, HealthService) {
    let Links { handle, errors, ended, signing, .. } = links.clone();
    let terms = Arc::new(terms);
    let clients = Clients {
        handle: handle.clone(),
        errors: Arc::clone(&errors),
        access: Arc::clone(access),
        pairs: Arc::clone(pairs),
        signing,
        terms: Arc::clone(&terms),
        ended,
    };
    let journal = journal.map(|journal| Arc::clone(&journal.statistics));
    let (access, queries) = (Arc::clone(access), Queries::default());
    let sources = reading_sources(&clients, links);
    let admin = AdminService { handle, errors, terms, journal, access, queries };
    (clients, HealthService::new(admin, sources, &config.health))
}

/// What reads the log for every user of the host.
fn reading_sources(clients: &Clients, links: &Links) -> ReadingSources {
    let Clients { handle, access, signing, terms, .. } = clients.clone();
    ReadingSources { handle, terms, access, signing, tasks: links.tasks.clone() }
}

/// Serves monitoring systems, if they have an address, as soon as it can be had.
fn serve_monitor(
    socket: Option<MonitorSocket>,
    health: &HealthService,
    limiters: &[Arc<ConnectionLimiter>; 2],
    closing: &CancellationToken,
    links: &Links,
) {
    let Some(MonitorSocket { address, listener, page }) = socket else { return };
    let AdminService { errors, journal, .. } = health.admin().clone();
    let (agent, limiters) = (health.sources().clone(), limiters.clone());
    let sources = monitor::Sources { agent, errors, journal, limiters, page };
    let (closing, ended) = (closing.clone(), links.ended.clone());
    if let Some(listener) = listener {
        return monitor::serve(listener, sources, closing, ended);
    }
    let net = Arc::clone(&links.net);
    links.tasks.spawn(async move {
        let listening = listen_again(&address, &*net);
        if let Some(listener) = closing.run_until_cancelled(listening).await {
            monitor::serve(listener, sources, closing.clone(), ended);
        }
    });
}

fn access_of(config: &Config, agent_uid: u32) -> Access {
    Access::new(&config.access, agent_uid).on_host(SubUids::of_host())
}

/// What all connections share: counters, and what a reload replaces. The configuration was checked
/// when it was read.
#[allow(clippy::type_complexity)]
fn shared(
    config: &Config,
    agent_uid: u32,
    tls: Option<Arc<Tls>>,
) -> (Arc<PeerErrors>, Arc<ArcSwap<Access>>, Arc<ArcSwap<ConditionPairs>>, Arc<Signing>) {
    let access = Arc::new(ArcSwap::from_pointee(access_of(config, agent_uid)));
    let pairs = conditions::pairs(&config.condition).unwrap_or_default();
    let errors = Arc::<PeerErrors>::default();
    storms::doubts(&config.storm).iter().for_each(|doubt| tracing::warn!("{doubt}"));
    if tls.is_some() && config.monitors.is_none() {
        tracing::warn!(
            "monitors is not set: the key of any host can state conditions of all others. Name the \
             hosts whose programs watch others in agent.toml, or set monitors = \"\""
        );
    }
    if tls.is_some() && !config.require_signatures {
        tracing::warn!(
            "require_signatures = false: the key of any host can forge events of all others. Set \
             it to true in agent.toml when all agents sign"
        );
    }
    let signing = Signing::new(
        tls,
        &config.cluster.0,
        Arc::clone(&access),
        Arc::clone(&errors),
        config.demands(),
    );
    (errors, access, Arc::new(ArcSwap::from_pointee(pairs)), Arc::new(signing))
}

fn terms(config: &Config, host: &str, origin: OriginId) -> Terms {
    Terms {
        cluster: config.cluster.0.clone(),
        host: host.to_owned(),
        origin,
        payload_bytes_max: config.limits.payload_bytes_max.0,
        subscriptions_max: config.limits.subscriptions_per_client_max,
        confirm: config.confirm,
        hello: config.limits.hello,
    }
}

/// The limiters of links and of clients.
fn limiters(
    config: &Config,
    errors: &Arc<PeerErrors>,
    access: &Arc<ArcSwap<Access>>,
) -> [Arc<ConnectionLimiter>; 2] {
    let limits = &config.limits;
    let bounds = |open_max, per_user_max| Limits {
        waiting_max: limits.waiting_max,
        open_max,
        per_user_max,
        hello: limits.hello,
    };
    let links = bounds(limits.links_max, usize::MAX);
    let clients = bounds(limits.clients_max, limits.clients_per_user_max);
    let (access, payers) = (Arc::clone(access), Arc::clone(access));
    let is_publisher = move |who| access.load().is_publisher(who);
    let payer = move |uid| payers.load().payer(uid);
    [
        ConnectionLimiter::new(links, Arc::clone(errors), |_| false),
        ConnectionLimiter::with_payers(clients, Arc::clone(errors), is_publisher, payer),
    ]
}
