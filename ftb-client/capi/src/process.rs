//! What the calling process has connected.
//!
//! A fork copies the memory but not the threads of the library. So everything hangs on one value,
//! and a forked child begins with a new one: the handles of its parent mean nothing to it, it does
//! not touch a lock that a vanished thread may hold, and it can connect anew.

use crate::abi::{ClientHandle, ClientInfo, Code};
use crate::client::{Connected, Identity, START_MAX, same_client};
use crate::common::{Common, Shared};
use crate::engine::Engine;
use crate::report::{Reporter, WRITE_MAX};
use crate::settings::Settings;
use arc_swap::ArcSwap;
use ftb_client::config::SOCKET_ENV;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most clients of one process.
const CLIENTS_MAX: usize = 256;
/// How long `FTB_Connect` waits for an agent that listens, before it goes on without.
pub(crate) const ATTACH_MAX: Duration = Duration::from_secs(2);
/// How long the end of the process waits for confirmations.
const EXIT_MAX: Duration = Duration::from_secs(1);

struct Running {
    engine: Engine,
    reporter: Reporter,
}

/// The process. Never freed: threads may be in it at any time.
pub(crate) struct Process {
    /// The pid to compare with, unless the kernel forgets this value in a forked child.
    pid: Option<u32>,
    shared: Shared,
    clients: ArcSwap<Vec<Arc<Connected>>>,
    /// Held while clients come and go; the engine is started with the first.
    running: Mutex<Option<Running>>,
    connected_ever: AtomicBool,
    /// It was reported that no agent was reached.
    alone_reported: AtomicBool,
}

impl Process {
    /// The present process, with nothing in it. Nothing is started.
    pub(crate) fn new(is_wiped_on_fork: bool) -> Self {
        let pid = std::process::id();
        Self {
            pid: (!is_wiped_on_fork).then_some(pid),
            shared: Arc::new(Common::of_process(pid)),
            clients: ArcSwap::default(),
            running: Mutex::new(None),
            connected_ever: AtomicBool::new(false),
            alone_reported: AtomicBool::new(false),
        }
    }

    /// Whether this is the value of the calling process, and not of the one that it was forked
    /// from.
    pub(crate) fn is_present(&self) -> bool {
        self.pid.is_none_or(|pid| pid == std::process::id())
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The client of a handle.
    pub(crate) fn find(&self, handle: &ClientHandle) -> Result<Arc<Connected>, Code> {
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        let clients = self.clients.load();
        let found = clients.iter().find(|client| same_client(&client.id, &handle.client_id));
        match found {
            Some(client) => Ok(Arc::clone(client)),
            // As in the original: with the last client the library itself is gone.
            None if clients.is_empty() && self.connected_ever.load(Ordering::Relaxed) => {
                Err(Code::General)
            }
            None => Err(Code::InvalidHandle),
        }
    }

    /// Connects a client. Waits a moment for an agent, and goes on without one unless it was
    /// demanded.
    pub(crate) fn connect(&self, identity: Identity, info: &ClientInfo) -> Result<(), Code> {
        let (client, engine) = self.start(identity, info)?;
        let Settings { connect_wait: demanded, socket, .. } = self.settings();
        let why = match attach(&client, &engine, *demanded, socket) {
            Attached::Refused(why) => {
                client.say(&why);
                Code::General
            }
            Attached::No(why) => {
                if !self.alone_reported.swap(true, Ordering::Relaxed) {
                    client.say(&alone(&why, demanded.is_some()));
                }
                if demanded.is_none() {
                    client.watch();
                    return Ok(());
                }
                Code::NetworkNoRoute
            }
            Attached::Yes => {
                client.watch();
                return Ok(());
            }
        };
        self.remove(&client);
        // Nothing was published: there is nothing to report.
        let _ = client.leave();
        Err(why)
    }

    fn start(
        &self,
        identity: Identity,
        info: &ClientInfo,
    ) -> Result<(Arc<Connected>, Engine), Code> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = self.clients.load_full();
        // The order of the original: a job id that is too long first.
        crate::text::text(&info.client_jobid).ok_or(Code::InvalidValue)?;
        if clients.iter().any(|client| same_client(&client.id, &identity.id)) {
            return Err(Code::DupCall);
        }
        if clients.len() >= CLIENTS_MAX {
            return Err(Code::General);
        }
        if running.is_none() {
            let engine = Engine::start().map_err(|_| Code::General)?;
            let Settings { quiet, remarks, .. } = self.settings();
            let settle_max = self.settings().patience(WRITE_MAX);
            let reporter = Reporter::new(engine.clone(), *quiet, settle_max);
            remarks.iter().for_each(|remark| reporter.say(remark));
            reporter.settle();
            *running = Some(Running { engine, reporter });
        }
        let Some(Running { engine, reporter }) = &*running else { return Err(Code::General) };
        let client = Connected::start(identity, info, engine, reporter, &self.shared)?;
        let client = Arc::new(client);
        self.connected_ever.store(true, Ordering::Relaxed);
        let more = clients.iter().cloned().chain([Arc::clone(&client)]).collect();
        self.clients.store(Arc::new(more));
        Ok((client, engine.clone()))
    }

    /// Takes a client out. Whether it was there.
    fn remove(&self, client: &Arc<Connected>) -> bool {
        let _changing = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = self.clients.load_full();
        let rest: Vec<_> = clients.iter().filter(|c| !Arc::ptr_eq(c, client)).cloned().collect();
        let found = rest.len() < clients.len();
        self.clients.store(Arc::new(rest));
        found
    }

    /// Disconnects a client.
    pub(crate) fn disconnect(&self, handle: &ClientHandle) -> Result<(), Code> {
        let client = self.find(handle)?;
        if !self.remove(&client) {
            return Err(Code::InvalidHandle);
        }
        client.leave()
    }

    /// The process ends without having disconnected: hands over what is still under way, and
    /// reports what is lost.
    pub(crate) fn exit(&self) {
        // All clients flush at the same time: one deadline for all.
        let deadline = Instant::now() + self.settings().patience(EXIT_MAX);
        let clients = self.clients.load();
        for client in clients.iter().filter(|client| client.link.connected()) {
            client.flush(deadline.saturating_duration_since(Instant::now()));
        }
        clients.iter().for_each(|client| client.report_end());
        // They have one reporter.
        clients.first().inspect(|client| client.end_reports());
    }
}

/// What has become of a new client within the time that there was.
enum Attached {
    Yes,
    /// The agent will not have it, and says why.
    Refused(String),
    /// Not yet, and why not.
    No(String),
}

/// What a process reports once that reached no agent.
fn alone(why: &str, demanded: bool) -> String {
    let consequence = if demanded {
        "FTB_CONNECT_WAIT has passed, so FTB_Connect fails"
    } else {
        "Its events wait in a buffer, and are given up if no agent comes"
    };
    format!("{why} {SOCKET_ENV} names the agent's socket. {consequence}.")
}

/// Waits for an agent that listens, at most [`ATTACH_MAX`], or for any as long as demanded.
fn attach(
    client: &Connected,
    engine: &Engine,
    demanded: Option<Duration>,
    socket: &Path,
) -> Attached {
    let deadline = match demanded {
        Some(demanded) => demanded,
        None => match listens(socket) {
            Ok(()) => ATTACH_MAX,
            Err(why) => {
                let socket = socket.display();
                let hint = match why.kind() {
                    io::ErrorKind::PermissionDenied => "This user may not open the socket.",
                    _ => "Is ftb-agent running there?",
                };
                return Attached::No(format!("no agent at {socket}: {why}. {hint}"));
            }
        },
    };
    let link = client.link.clone();
    let attached = engine.wait(deadline, async move {
        tokio::select! {
            connected = link.wait_connected(Duration::MAX) => {
                connected.ok().map(|()| Attached::Yes)
            }
            refused = link.refused() => refused.map(Attached::Refused),
        }
    });
    attached.flatten().unwrap_or_else(|| {
        let link = client.link.clone();
        let why = engine.wait(START_MAX, async move { link.wait_connected(Duration::ZERO).await });
        match why {
            // It came in the last moment.
            Some(Ok(())) => Attached::Yes,
            Some(Err(why)) => Attached::No(format!("{why}.")),
            None => Attached::No("the thread of the library does not run.".to_owned()),
        }
    })
}

/// Whether a process has that socket; if not, why. Neither waits nor depends on when any thread
/// runs, and does not disturb the agent: a datagram socket cannot be connected to its stream
/// socket, which is said only where one is open (`EPROTOTYPE`, connect(2)).
fn listens(socket: &Path) -> io::Result<()> {
    match UnixDatagram::unbound().and_then(|probe| probe.connect(socket)) {
        Err(why) if why.raw_os_error() == Some(libc::EPROTOTYPE) => Ok(()),
        Err(why) => Err(why),
        Ok(()) => Err(io::Error::other("a datagram socket lies there")),
    }
}
