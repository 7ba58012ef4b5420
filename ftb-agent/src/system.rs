//! The real system: TCP, Unix sockets, clock and randomness.
//!
//! One socket path belongs to one agent: the agent replaces the stale socket of a crashed agent,
//! and refuses to start beside a live one. Not responsible for: data on the sockets.

use crate::alarm::KernelAlarm;
use crate::journal::files::DiskStorage;
use crate::world::{Alarm, Clock, Entropy, Listener, Net, TokioClock, World};
use ftb_core::Now;
use ftb_transport::unix::UnixStream;
use ftb_transport::{Connection, Credentials};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, fchmodat};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::Instant;

/// Connections that may wait in the kernel for `accept`.
const BACKLOG: i32 = 1024;
/// Time without TCP acknowledgement before the kernel closes a link. Heartbeats detect a loss
/// earlier; this frees the socket of a vanished host.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// The real system as a [`World`].
pub fn world() -> World {
    World {
        net: Arc::new(SystemNet),
        clock: Arc::new(clock()),
        entropy: Arc::new(SystemEntropy),
        storage: Arc::new(DiskStorage),
    }
}

/// The operating system's clocks.
pub fn clock() -> impl Clock {
    let wall: fn() -> u64 = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    };
    SystemClock(Arc::new(TokioClock::new(wall)))
}

struct SystemClock(Arc<TokioClock<fn() -> u64>>);

impl Clock for SystemClock {
    fn now(&self) -> Now {
        self.0.now()
    }

    fn instant(&self, mono_ns: u64) -> Instant {
        self.0.instant(mono_ns)
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(KernelAlarm::new(Arc::clone(&self.0) as Arc<dyn Clock>)?))
    }
}

/// The random number generator of the crypto library, seeded by the kernel.
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn draw(&self) -> io::Result<u64> {
        let random = rustls::crypto::ring::default_provider().secure_random;
        loop {
            let mut bytes = [0; 8];
            let failed = |_| io::Error::other("the system's random number generator failed");
            random.fill(&mut bytes).map_err(failed)?;
            match u64::from_le_bytes(bytes) {
                0 => {}
                number => return Ok(number),
            }
        }
    }
}

/// TCP between agents, a Unix socket for clients.
pub struct SystemNet;

impl Net for SystemNet {
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        async move {
            let stream = TcpStream::connect(address).await?;
            tune(&stream)?;
            Ok(Connection { io: Box::new(stream), address: address.to_owned(), credentials: None })
        }
        .boxed()
    }

    fn listen_links<'a>(
        &'a self,
        address: &'a str,
    ) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        async move {
            let address: SocketAddr = address
                .parse()
                .map_err(|_| io::Error::other("expected IP:PORT, for example 0.0.0.0:14451"))?;
            let domain = Domain::for_address(address);
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            socket.set_cloexec(true)?;
            // A restarted agent must not wait until old connections of its port time out.
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            let listener = TcpListener::from_std(socket.into())?;
            Ok(Box::new(TcpLinks(listener)) as Box<dyn Listener>)
        }
        .boxed()
    }

    fn listen_clients<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        let listener = UnixClients::bind(path);
        let listener = listener.map(|listener| Box::new(listener) as Box<dyn Listener>);
        std::future::ready(listener).boxed()
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let idle =
        TcpKeepalive::new().with_time(UNACKNOWLEDGED_MAX).with_interval(UNACKNOWLEDGED_MAX / 3);
    socket.set_tcp_keepalive(&idle)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}

struct TcpLinks(TcpListener);

impl Listener for TcpLinks {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        async {
            let (stream, address) = self.0.accept().await?;
            tune(&stream)?;
            Ok(Connection { io: Box::new(stream), address: address.to_string(), credentials: None })
        }
        .boxed()
    }

    fn address(&self) -> String {
        self.0.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
    }
}

/// Adds context to an error.
fn about(what: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The lock file of a socket: `agent.lock` beside `agent.sock`. Other names keep their extension,
/// so that `ftb.node01` and `ftb.node02` do not share a lock.
fn lock_of(socket: &Path) -> PathBuf {
    if socket.extension().is_some_and(|extension| extension == "sock") {
        return socket.with_extension("lock");
    }
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// The socket file of this agent, removed when the agent stops.
struct UnixClients {
    listener: UnixListener,
    path: PathBuf,
    /// Held as long as the agent lives; the kernel frees it when the agent crashes.
    _lock: Flock<File>,
}

impl UnixClients {
    fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o755).create(folder);
            made.map_err(about(&format!("cannot make the folder {}", folder.display())))?;
        }
        let lock_path = lock_of(path);
        let opened = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let what = format!(
            "cannot open {}, perhaps another user's: remove it or set another socket",
            lock_path.display()
        );
        let file = opened.map_err(about(&what))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
            let text = match errno {
                nix::Error::EWOULDBLOCK => "another agent is running with this socket".to_owned(),
                other => format!("cannot lock {}: {other}", lock_path.display()),
            };
            io::Error::new(io::ErrorKind::AddrInUse, text)
        })?;
        match std::fs::symlink_metadata(path) {
            // This agent holds the lock, so a crashed agent has left the socket.
            Ok(meta) if meta.file_type().is_socket() => {
                let what = "cannot remove what an agent, perhaps of another user, has left there: \
                            remove it or set another socket";
                std::fs::remove_file(path).map_err(about(what))?;
            }
            Ok(_) => {
                let text = "the file is there and is no socket: move it away or set another path";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        // Every user may connect: the credentials decide what a client may do.
        let all_users = Mode::from_bits_truncate(0o666);
        fchmodat(
            nix::fcntl::AT_FDCWD,
            path,
            all_users,
            nix::sys::stat::FchmodatFlags::FollowSymlink,
        )?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock })
    }
}

impl Drop for UnixClients {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

impl Listener for UnixClients {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        async {
            let (stream, _) = self.listener.accept().await?;
            let peer = stream.peer_cred()?;
            let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
            let credentials = Credentials { uid: peer.uid(), gid: peer.gid(), pid };
            let address = format!("uid {} pid {pid}", peer.uid());
            let io = Box::new(UnixStream::new(stream)?);
            Ok(Connection { io, address, credentials: Some(credentials) })
        }
        .boxed()
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_different_names_have_locks_of_their_own() {
        let lock = |socket: &str| lock_of(Path::new(socket)).display().to_string();
        assert_eq!(lock("/run/ftb/agent.sock"), "/run/ftb/agent.lock");
        assert_eq!(lock("/run/ftb.node01"), "/run/ftb.node01.lock");
        assert_eq!(lock("/run/ftb.node02"), "/run/ftb.node02.lock");
        assert_eq!(lock("agent"), "agent.lock");
    }
}
