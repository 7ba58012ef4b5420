//! Limits the connections of a listening socket.
//!
//! A connection has until a deadline for its first message (the hello), the TLS handshake included.
//! The number of connections before their hello is limited; a new one closes the oldest of the
//! source (a user, or an address) that has most of them. A healthy peer says hello within
//! milliseconds, and no source can keep others out. An ordinary user that connects again and again
//! is dropped before any of this. After the hello, limits per socket and per user apply; publishers
//! have places of their own. Not responsible for: what a hello is, and who is a publisher.

use crate::close_signal::{CloseSignal, CloseWatch};
use crate::inspector::{Flood, Inspector};
use crate::peer_errors::PeerErrors;
use crate::tls::trust::PeerTrust;
use crate::token_bucket::{Rate, TokenBucket};
use crate::{BoxIo, Connection, Credentials};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Connections beyond the limit for all that publishers may have, so that other users cannot keep
/// the faults of a node from its agent.
pub const PUBLISHERS_SPARE: usize = 64;
/// Connections of root for requests only, beyond all others.
const ROOT_SPARE: usize = 8;

/// New connections of one ordinary user: all ranks of a job may come at once, and come again.
pub const USER_CONNECTIONS: Rate = Rate { per_s: 200, burst: 1024 };
/// Users whose rate is known. Those that were quiet are forgotten; more users have no rate, as the
/// limits per socket still hold.
const RATES_MAX: usize = 1024;

/// Connections of one user from which on each gets a smaller send buffer.
const CROWD: usize = 16;

/// The limits of one listening socket.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections before their hello.
    pub waiting_max: usize,
    /// Connections after their hello.
    pub open_max: usize,
    /// Connections of one user after their hello; root has no such limit.
    pub per_user_max: usize,
    /// Time from accept to hello, TLS handshake included.
    pub hello: Duration,
}

/// Says whether places are reserved for a user.
pub type IsPublisher = Box<dyn Fn(Credentials) -> bool + Send + Sync>;

/// Says as which user a user counts: all user ids of one person as one.
pub type Payer = Box<dyn Fn(u32) -> u32 + Send + Sync>;

/// Counts the connections of one listening socket.
pub struct ConnectionLimiter {
    limits: Limits,
    errors: Arc<PeerErrors>,
    is_publisher: IsPublisher,
    payer: Payer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, (Arc<CloseSignal>, Source)>,
    /// How many wait of each source.
    by_source: BTreeMap<Source, usize>,
    open: BTreeMap<u64, (Arc<CloseSignal>, Option<u32>)>,
    per_user: HashMap<u32, usize>,
    rates: HashMap<u32, TokenBucket>,
}

/// The source of a connection, as far as it is known before the Hello.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    User(u32),
    /// Without the port.
    Address(Arc<str>),
}

impl Source {
    fn of(connection: &Connection, payer: Option<u32>) -> Self {
        match payer {
            Some(uid) => Self::User(uid),
            None => {
                let address = connection.address.as_str();
                Self::Address(address.rsplit_once(':').map_or(address, |(host, _)| host).into())
            }
        }
    }
}

/// The limit that refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// For all users together.
    #[error("the agent serves {0} connections already, which is its limit")]
    All(usize),
    /// For one user.
    #[error(
        "user {uid} has {max} connections to the agent already, which is the limit for one user"
    )]
    User {
        /// The user.
        uid: u32,
        /// The limit.
        max: usize,
    },
}

/// A connection with a long stream asked for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one connection carries one stream: open another connection")]
pub struct StreamTaken;

impl ConnectionLimiter {
    /// A limiter without connections.
    pub fn new(
        limits: Limits,
        errors: Arc<PeerErrors>,
        is_publisher: impl Fn(Credentials) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with_payers(limits, errors, is_publisher, |uid| uid)
    }

    /// The same; `payer` says as which user a user counts.
    pub fn with_payers(
        limits: Limits,
        errors: Arc<PeerErrors>,
        is_publisher: impl Fn(Credentials) -> bool + Send + Sync + 'static,
        payer: impl Fn(u32) -> u32 + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (is_publisher, payer) = (Box::new(is_publisher), Box::new(payer));
        Arc::new(Self { limits, errors, is_publisher, payer, state: Mutex::default() })
    }

    /// Whether its user connects too often: drop it. Root and publishers may.
    pub fn is_too_often(&self, connection: &Connection) -> bool {
        let limited = |who: &Credentials| who.uid != 0 && !(self.is_publisher)(*who);
        let Some(who) = connection.credentials.filter(limited) else { return false };
        let payer = (self.payer)(who.uid);
        let is_admitted = self.state.lock().take(payer, Instant::now());
        if !is_admitted {
            self.errors.count_quietly("connections_refused");
        }
        !is_admitted
    }

    /// Admits a connection, which may close one before its hello: the oldest of the source that has
    /// most of them.
    pub fn admit(self: &Arc<Self>, connection: Connection) -> LimitedIo {
        let close = Arc::new(CloseSignal::default());
        let payer = connection.credentials.map(|who| (self.payer)(who.uid));
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.wait(id, Arc::clone(&close), Source::of(&connection, payer));
        let evicted = match state.waiting.len() > self.limits.waiting_max {
            true => state.evict(),
            false => None,
        };
        drop(state);
        if let Some(evicted) = evicted {
            evicted.close();
            let what = "too many silent connections";
            self.errors.count("connections_evicted", &connection.address, what);
        }
        let permit = Arc::new(Permit {
            id,
            payer,
            limiter: Arc::clone(self),
            close: Arc::clone(&close),
            said_hello: AtomicBool::new(false),
            has_stream: AtomicBool::new(false),
        });
        let peer = Peer {
            address: connection.address.into(),
            credentials: connection.credentials,
            certified_hosts: None,
            trust: None,
            permit,
        };
        LimitedIo {
            io: connection.io,
            deadline: Box::pin(tokio::time::sleep(self.limits.hello)),
            closed: CloseWatch::new(close),
            peer,
        }
    }

    /// Whether the peer's user has many connections: then each gets a smaller send buffer.
    pub fn is_crowded(&self, peer: &Peer) -> bool {
        let count = peer.permit.payer.and_then(|uid| self.state.lock().per_user.get(&uid).copied());
        count.is_some_and(|count| count >= CROWD)
    }

    /// The counters for errors of these connections.
    pub fn errors(&self) -> &PeerErrors {
        &self.errors
    }

    /// Closes all connections.
    pub fn close_all(&self) {
        let state = self.state.lock();
        state.waiting.values().for_each(|(close, _)| close.close());
        state.open.values().for_each(|(close, _)| close.close());
    }

    /// Connections after and before their hello.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.open.len(), state.waiting.len())
    }
}

/// A counted connection.
struct Permit {
    id: u64,
    /// As whom its user counts.
    payer: Option<u32>,
    limiter: Arc<ConnectionLimiter>,
    close: Arc<CloseSignal>,
    said_hello: AtomicBool,
    has_stream: AtomicBool,
}

impl Permit {
    fn release(&self) {
        let mut state = self.limiter.state.lock();
        state.leave(self.id);
        if let Some((_, Some(uid))) = state.open.remove(&self.id)
            && let Some(count) = state.per_user.get_mut(&uid)
        {
            *count -= 1;
            if *count == 0 {
                state.per_user.remove(&uid);
            }
        }
    }
}

/// The other end of a connection. Each of its requests carries a copy.
#[derive(Clone)]
pub struct Peer {
    address: Arc<str>,
    credentials: Option<Credentials>,
    certified_hosts: Option<Arc<[String]>>,
    trust: Option<Arc<PeerTrust>>,
    permit: Arc<Permit>,
}

impl Peer {
    /// For the log.
    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Unix sockets only.
    pub fn credentials(&self) -> Option<Credentials> {
        self.credentials
    }

    /// The host names in the peer's certificate; `None` without TLS.
    pub fn certified_hosts(&self) -> Option<&[String]> {
        self.certified_hosts.as_deref()
    }

    /// The peer's certificate; `None` without TLS.
    pub fn trust(&self) -> Option<&PeerTrust> {
        self.trust.as_deref()
    }

    /// The peer has said a valid hello, so its deadline no longer applies. Idempotent.
    ///
    /// # Errors
    /// [`Full`]: refuse the connection.
    pub fn on_hello(&self) -> Result<(), Full> {
        let is_publisher = &self.permit.limiter.is_publisher;
        let is_publisher = self.credentials.is_some_and(is_publisher);
        self.open(if is_publisher { PUBLISHERS_SPARE } else { 0 })
    }

    /// As [`Peer::on_hello`], for a connection that sends requests only. Root gets in when the
    /// agent is full, to find out why.
    ///
    /// # Errors
    /// [`Full`]: refuse the request.
    pub fn on_request(&self) -> Result<(), Full> {
        let is_root = self.credentials.is_some_and(|credentials| credentials.uid == 0);
        self.open(if is_root { PUBLISHERS_SPARE + ROOT_SPARE } else { 0 })
    }

    fn open(&self, spare: usize) -> Result<(), Full> {
        if self.permit.said_hello.load(Ordering::Acquire) {
            return Ok(());
        }
        let limiter = &self.permit.limiter;
        let mut state = limiter.state.lock();
        let Some((close, source)) = state.leave(self.permit.id) else {
            return Ok(());
        };
        let uid = self.permit.payer.filter(|uid| *uid != 0);
        match state.count(uid, &limiter.limits, spare) {
            Ok(()) => {
                state.open.insert(self.permit.id, (close, uid));
                self.permit.said_hello.store(true, Ordering::Release);
                Ok(())
            }
            Err(full) => {
                state.wait(self.permit.id, close, source);
                Err(full)
            }
        }
    }

    /// Claims the one long stream that a connection may carry.
    ///
    /// # Errors
    /// [`StreamTaken`].
    pub fn claim_stream(&self) -> Result<(), StreamTaken> {
        match self.permit.has_stream.swap(true, Ordering::AcqRel) {
            true => Err(StreamTaken),
            false => Ok(()),
        }
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.permit.close.close();
    }

    /// Waits until this side has closed the connection.
    pub async fn closed(&self) {
        self.permit.close.closed().await;
    }

    fn count_error(&self, kind: &'static str, what: &str) {
        self.permit.limiter.errors.count(kind, &self.address, what);
    }
}

impl State {
    fn wait(&mut self, id: u64, close: Arc<CloseSignal>, source: Source) {
        *self.by_source.entry(source.clone()).or_default() += 1;
        self.waiting.insert(id, (close, source));
    }

    fn leave(&mut self, id: u64) -> Option<(Arc<CloseSignal>, Source)> {
        let (close, source) = self.waiting.remove(&id)?;
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
        Some((close, source))
    }

    /// Takes a token of a user.
    fn take(&mut self, uid: u32, now: Instant) -> bool {
        if self.rates.len() >= RATES_MAX && !self.rates.contains_key(&uid) {
            self.rates.retain(|_, bucket| !bucket.is_full(now));
            if self.rates.len() >= RATES_MAX {
                return true;
            }
        }
        let bucket = self.rates.entry(uid);
        bucket.or_insert_with(|| TokenBucket::new(USER_CONNECTIONS, now)).take(1, now)
    }

    /// Takes the oldest waiting connection of the source that has most of them.
    fn evict(&mut self) -> Option<Arc<CloseSignal>> {
        let (most, _) = self.by_source.iter().max_by_key(|(_, count)| **count)?;
        let oldest = self.waiting.iter().find(|(_, (_, source))| source == most);
        let id = *oldest?.0;
        self.leave(id).map(|(close, _)| close)
    }

    /// Counts one more open connection of a user, if the limits allow it.
    fn count(&mut self, uid: Option<u32>, limits: &Limits, spare: usize) -> Result<(), Full> {
        if self.open.len() >= limits.open_max + spare {
            return Err(Full::All(limits.open_max));
        }
        let Some(uid) = uid else { return Ok(()) };
        let count = self.per_user.get(&uid).copied().unwrap_or(0);
        if count >= limits.per_user_max {
            return Err(Full::User { uid, max: limits.per_user_max });
        }
        self.per_user.insert(uid, count + 1);
        Ok(())
    }
}

/// A limited connection. Reads fail when its hello is late or it is closed.
pub struct LimitedIo {
    io: BoxIo,
    deadline: Pin<Box<Sleep>>,
    closed: CloseWatch,
    peer: Peer,
}

impl LimitedIo {
    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.closed.is_closed(cx) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed by this agent"));
        }
        let is_waiting = !self.peer.permit.said_hello.load(Ordering::Acquire);
        if is_waiting && self.deadline.as_mut().poll(cx).is_ready() {
            let what = "no hello before its deadline";
            self.peer.count_error("hello_late", what);
            self.peer.close();
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        Ok(())
    }
}

impl Drop for LimitedIo {
    fn drop(&mut self) {
        self.peer.close();
        self.peer.permit.release();
    }
}

impl AsyncRead for LimitedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for LimitedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A peer that does not read must not keep a closed connection alive.
        if self.closed.is_closed(cx) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// The connection as the HTTP/2 server sees it: limited, decrypted and inspected.
pub struct InspectedIo {
    io: BoxIo,
    peer: Peer,
    inspector: Inspector,
    start: Instant,
    /// The peer has sent bytes.
    has_received: bool,
    /// The peer exceeded the limit on control frames; nothing more is read.
    is_flooded: bool,
}

impl InspectedIo {
    /// A connection without TLS.
    pub fn plain(limited: LimitedIo) -> Self {
        let peer = limited.peer.clone();
        Self::new(Box::new(limited), peer)
    }

    /// A connection with TLS, and the host names in the peer's certificate.
    pub(crate) fn certified(
        io: BoxIo,
        mut peer: Peer,
        hosts: Vec<String>,
        trust: Arc<PeerTrust>,
    ) -> Self {
        peer.certified_hosts = Some(hosts.into());
        peer.trust = Some(trust);
        Self::new(io, peer)
    }

    fn new(io: BoxIo, peer: Peer) -> Self {
        let (inspector, start) = (Inspector::default(), Instant::now());
        Self { io, peer, inspector, start, has_received: false, is_flooded: false }
    }

    /// Closes the connection of a flooding peer, with a GOAWAY frame if the socket has room for it.
    fn on_flood(&mut self, cx: &mut Context<'_>, error: Flood) -> io::Error {
        if !std::mem::replace(&mut self.is_flooded, true) {
            if let Some(goaway) = self.inspector.goaway() {
                let _ = Pin::new(&mut self.io).poll_write(cx, goaway);
                let _ = Pin::new(&mut self.io).poll_flush(cx);
            }
            self.peer.count_error("control_flood", &error.to_string());
            self.peer.close();
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// Counts a connection whose bytes never made a request; the HTTP/2 server does not report it.
impl Drop for InspectedIo {
    fn drop(&mut self) {
        let Permit { has_stream, said_hello, close, .. } = &*self.peer.permit;
        let has_request = has_stream.load(Ordering::Acquire) || said_hello.load(Ordering::Acquire);
        if self.has_received && !has_request && !close.is_closed() {
            self.peer.count_error("connection_malformed", "the received bytes are no request");
        }
    }
}

impl AsyncRead for InspectedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_flooded {
            return Poll::Ready(Err(self.on_flood(cx, Flood)));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let received = &mut buf.filled_mut()[before..];
        self.has_received |= !received.is_empty();
        let start = self.start;
        match self.inspector.received(received, || start.elapsed()) {
            Ok(()) => read,
            Err(error) => Poll::Ready(Err(self.on_flood(cx, error))),
        }
    }
}

impl AsyncWrite for InspectedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = &written {
            self.inspector.sent(buf.get(..*count).unwrap_or(buf));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(count)) = &written {
            let mut left = *count;
            for buf in bufs {
                let sent = buf.len().min(left);
                self.inspector.sent(&buf[..sent]);
                left -= sent;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FTB: u32 = 500;

    fn limiter(waiting_max: usize, open_max: usize) -> Arc<ConnectionLimiter> {
        let hello = Duration::from_secs(60);
        let limits = Limits { waiting_max, open_max, per_user_max: usize::MAX, hello };
        ConnectionLimiter::new(limits, Arc::default(), |who| who.uid == FTB)
    }

    fn user(uid: u32) -> Connection {
        let credentials = Some(Credentials { uid, gid: uid, pid: 1 });
        Connection { io: Box::new(tokio::io::empty()), address: String::new(), credentials }
    }

    fn address(text: &str) -> Connection {
        Connection { address: text.to_owned(), credentials: None, ..user(0) }
    }

    fn is_closed(io: &LimitedIo) -> bool {
        io.peer.permit.close.is_closed()
    }

    #[tokio::test]
    async fn a_full_waiting_room_closes_the_oldest_connection_of_the_source_with_most() {
        for (honest, flood) in [
            (user as fn(u32) -> Connection, user as fn(u32) -> Connection),
            (|_| address("10.0.0.1:999"), |port| address(&format!("10.0.0.2:{port}"))),
        ] {
            let limiter = limiter(4, 10);
            let first = limiter.admit(honest(1));
            let mut flooding: Vec<LimitedIo> = Vec::new();
            for _ in 0..100 {
                flooding.push(limiter.admit(flood(2)));
            }
            assert!(!is_closed(&first), "the one that waits alone stays");
            assert_eq!(flooding.iter().filter(|io| !is_closed(io)).count(), 3);
            assert!(flooding[97..].iter().all(|io| !is_closed(io)), "the oldest went");
            let second = limiter.admit(honest(1));
            assert!(!is_closed(&second) && is_closed(&flooding[97]));
            assert_eq!(limiter.counts(), (0, 4));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_that_connects_without_end_is_dropped_and_others_are_not() {
        let limiter = limiter(4, 10);
        let dropped = |uid: u32| {
            let tries = 0..2 * USER_CONNECTIONS.burst;
            tries.filter(|_| limiter.is_too_often(&user(uid))).count()
        };
        let burst = USER_CONNECTIONS.burst as usize;
        assert_eq!((dropped(1), dropped(2), dropped(0), dropped(FTB)), (burst, burst, 0, 0));
        assert!(!limiter.is_too_often(&address("10.0.0.1:999")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(dropped(1), 2 * burst - USER_CONNECTIONS.per_s as usize);
    }

    #[tokio::test]
    async fn all_user_ids_of_one_person_count_as_one_user() {
        let hello = Duration::from_secs(60);
        let limits = Limits { waiting_max: 4, open_max: 100, per_user_max: 2, hello };
        let payer = |uid: u32| if uid < 1_000 { uid } else { 1_000 };
        let limiter = ConnectionLimiter::with_payers(limits, Arc::default(), |_| false, payer);
        let open: Vec<LimitedIo> = (1_000..1_002).map(|uid| limiter.admit(user(uid))).collect();
        assert!(open.iter().all(|io| io.peer.on_hello().is_ok()));
        let third = limiter.admit(user(1_002));
        assert_eq!(third.peer.on_hello(), Err(Full::User { uid: 1_000, max: 2 }));
        let other = limiter.admit(user(999));
        assert!(other.peer.on_hello().is_ok());
        let waiting = limiter.admit(user(998));
        let flood: Vec<LimitedIo> = (2_000..2_100).map(|uid| limiter.admit(user(uid))).collect();
        assert!(!is_closed(&waiting), "the person with most of them loses one");
        drop((open, third, other, waiting, flood));
        assert_eq!(limiter.counts(), (0, 0));
    }

    #[tokio::test]
    async fn publishers_attach_when_other_users_have_all_places() {
        let limiter = limiter(100, 3);
        let open: Vec<LimitedIo> = (1..=3).map(|uid| limiter.admit(user(uid))).collect();
        assert!(open.iter().all(|io| io.peer.on_hello().is_ok()));
        assert_eq!(limiter.admit(user(4)).peer.on_hello(), Err(Full::All(3)));
        let publishers: Vec<LimitedIo> =
            (0..PUBLISHERS_SPARE).map(|_| limiter.admit(user(FTB))).collect();
        assert!(publishers.iter().all(|io| io.peer.on_hello().is_ok()));
        assert_eq!(limiter.admit(user(FTB)).peer.on_hello(), Err(Full::All(3)));
        let root = limiter.admit(user(0));
        assert!(root.peer.on_request().is_ok(), "root can still ask why");
        drop((open, publishers, root));
        assert_eq!(limiter.counts(), (0, 0));
    }
}
