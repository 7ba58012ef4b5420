//! Many agents in one process, over in-memory pipes, with tokio's paused time and seeded
//! randomness. Tests cut and heal the network. Latency and loss are the subject of `ftb-core`'s
//! simulation.

use super::disk::MemoryStorage;
use ftb_agent::world::{Clock, Entropy, Listener, Net, TokioClock, World};
use ftb_fuzz::random::SplitMix;
use ftb_transport::{BoxIo, Connection, Credentials};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What a pipe holds in each direction, in bytes; like a socket buffer it pushes back when full.
const PIPE_BYTES: usize = 64 * 1024;
/// Connections that may wait for `accept`.
const BACKLOG: usize = 1024;
/// The wall clock of a simulated world begins here: 2026-01-01, in Unix nanoseconds.
const WALL_START_NS: u64 = 1_767_225_600_000_000_000;

/// A network of hosts in one process. Cloning gives the same network.
#[derive(Clone, Default)]
pub struct MemoryNetwork {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    listeners: BTreeMap<String, mpsc::Sender<Connection>>,
    /// Pairs of hosts that cannot reach each other, the lower name first.
    cuts: BTreeSet<(String, String)>,
    /// The disks of the hosts: they outlive their agents.
    disks: BTreeMap<String, Arc<MemoryStorage>>,
    /// What to break when a pair is cut; those whose ends are gone are removed as new ones come.
    pipes: BTreeMap<(String, String), Vec<Weak<CancellationToken>>>,
}

impl MemoryNetwork {
    /// The world of one host, its randomness from a seed.
    pub fn world(&self, host: &str, seed: u64) -> World {
        World {
            net: Arc::new(HostNet { host: host.to_owned(), network: self.clone() }),
            clock: Arc::new(clock()),
            entropy: Arc::new(SeededEntropy(Mutex::new(SplitMix(seed)))),
            storage: self.disk(host),
        }
    }

    /// The disk of one host.
    pub fn disk(&self, host: &str) -> Arc<MemoryStorage> {
        Arc::clone(self.shared().disks.entry(host.to_owned()).or_default())
    }

    /// Breaks every connection between two hosts and lets none be made until they are healed.
    pub fn cut(&self, a: &str, b: &str) {
        let mut shared = self.shared();
        let pair = pair(a, b);
        for pipe in shared.pipes.remove(&pair).unwrap_or_default() {
            if let Some(token) = pipe.upgrade() {
                token.cancel();
            }
        }
        shared.cuts.insert(pair);
    }

    /// Lets two hosts reach each other again.
    pub fn heal(&self, a: &str, b: &str) {
        self.shared().cuts.remove(&pair(a, b));
    }

    /// Connects to a listening socket of a host as a program on that host.
    ///
    /// # Errors
    /// `ConnectionRefused` if no agent listens there.
    pub async fn connect_client(
        &self,
        host: &str,
        path: &Path,
        credentials: Credentials,
    ) -> io::Result<BoxIo> {
        let conn = self.connect(host, host, &local_name(host, path), Some(credentials)).await?;
        Ok(conn.io)
    }

    async fn connect(
        &self,
        from: &str,
        to: &str,
        address: &str,
        credentials: Option<Credentials>,
    ) -> io::Result<Connection> {
        let broken = Arc::new(CancellationToken::new());
        let Some(backlog) = self.route(from, to, address, &broken)? else {
            // A cut host does not refuse: it does not answer. The caller has a deadline.
            return std::future::pending().await;
        };
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let end = |io, address: &str, credentials| Connection {
            io: Box::new(Pipe::new(io, &broken)),
            address: address.to_owned(),
            credentials,
        };
        let far = end(theirs, from, credentials);
        backlog.send(far).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(end(ours, address, None))
    }

    /// The listener there; `None` when the hosts are cut off from each other.
    fn route(
        &self,
        from: &str,
        to: &str,
        address: &str,
        broken: &Arc<CancellationToken>,
    ) -> io::Result<Option<mpsc::Sender<Connection>>> {
        let mut shared = self.shared();
        let pair = pair(from, to);
        if shared.cuts.contains(&pair) {
            return Ok(None);
        }
        let listener = shared.listeners.get(address).filter(|sender| !sender.is_closed());
        let backlog = listener.cloned().ok_or(io::ErrorKind::ConnectionRefused)?;
        let pipes = shared.pipes.entry(pair).or_default();
        pipes.retain(|pipe| pipe.strong_count() > 0);
        pipes.push(Arc::downgrade(broken));
        Ok(Some(backlog))
    }

    fn listen(&self, address: String) -> io::Result<Box<dyn Listener>> {
        let (sender, waiting) = mpsc::channel(BACKLOG);
        let mut shared = self.shared();
        if shared.listeners.get(&address).is_some_and(|old| !old.is_closed()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        shared.listeners.insert(address.clone(), sender);
        Ok(Box::new(MemoryListener { address, waiting }))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    (low.to_owned(), high.to_owned())
}

fn local_name(host: &str, path: &Path) -> String {
    format!("{host}!{}", path.display())
}

fn clock() -> impl Clock {
    let start = tokio::time::Instant::now();
    TokioClock::new(move || {
        WALL_START_NS + u64::try_from(start.elapsed().as_nanos()).unwrap_or_default()
    })
}

/// The network as one host of it sees it. Addresses are `HOST:PORT`; the host is what is cut.
struct HostNet {
    host: String,
    network: MemoryNetwork,
}

impl Net for HostNet {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        let to = address.rsplit_once(':').map_or(address, |(host, _)| host);
        self.network.connect(&self.host, to, address, None).boxed()
    }

    fn listen_links<'a>(
        &'a self,
        address: &'a str,
    ) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        // Hosts have no IP addresses here: whatever an agent binds, it is its host's name that is
        // dialed.
        let port = address.rsplit_once(':').map_or("0", |(_, port)| port);
        std::future::ready(self.network.listen(format!("{}:{port}", self.host))).boxed()
    }

    fn listen_clients<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        std::future::ready(self.network.listen(local_name(&self.host, path))).boxed()
    }
}

struct MemoryListener {
    address: String,
    waiting: mpsc::Receiver<Connection>,
}

impl Listener for MemoryListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        async { self.waiting.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into()) }
            .boxed()
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

/// One end of a connection that can be cut.
struct Pipe {
    io: DuplexStream,
    _token: Arc<CancellationToken>,
    broken: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Pipe {
    fn new(io: DuplexStream, token: &Arc<CancellationToken>) -> Self {
        let broken = Box::pin(token.as_ref().clone().cancelled_owned());
        Self { io, _token: Arc::clone(token), broken }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.broken.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

struct SeededEntropy(Mutex<SplitMix>);

impl Entropy for SeededEntropy {
    fn draw(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().draw().max(1))
    }
}
