//! The gate that every incoming connection passes: how many there may be, and how long one may
//! stay silent before its hello.
//!
//! Responsible for: bounds on connections (waiting, open, per user) and the deadline of the hello,
//! so that a flood of connections that never speak costs a bounded number of slots and turns away
//! only its own. When too many wait, the oldest that waits is closed: an honest peer says hello
//! within milliseconds, a silent one is always the oldest. Not responsible for: what is said.

use crate::closing::{Closing, Watch};
use crate::hostile::Hostile;
use crate::world::{BoxIo, Conn, Credentials};
use ftb_proto::stream::{Flood, Inspector};
use std::collections::{BTreeMap, HashMap};
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Connections of root that only ask questions, beyond the bound on all.
const ROOT_SPARE: usize = 8;

/// Connections of one user beyond which each gets less room for what the socket did not take.
const CROWD: usize = 16;

/// The bounds of one gate.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections that have not said hello.
    pub waiting_max: usize,
    /// Most connections that have.
    pub open_max: usize,
    /// Most of these that one user may have; root is not counted.
    pub per_user_max: usize,
    /// How long a connection may take from accept to hello, TLS handshake included.
    pub hello: Duration,
}

/// Counts the connections of one listening socket.
pub struct Gate {
    bounds: Bounds,
    hostile: Arc<Hostile>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, Arc<Closing>>,
    open: BTreeMap<u64, (Arc<Closing>, Option<u32>)>,
    per_user: HashMap<u32, usize>,
}

/// Why a connection may not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The bound on all.
    #[error("the agent serves {0} connections already, which is its limit")]
    All(usize),
    /// The bound for one user.
    #[error(
        "user {uid} has {max} connections to the agent already, which is the limit for one user"
    )]
    User {
        /// Whose.
        uid: u32,
        /// The bound.
        max: usize,
    },
}

/// A connection that carries a stream already wanted another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one connection carries one stream: open another connection")]
pub struct Taken;

impl Gate {
    /// An open gate.
    pub fn new(bounds: Bounds, hostile: Arc<Hostile>) -> Arc<Self> {
        Arc::new(Self { bounds, hostile, state: Mutex::default() })
    }

    /// Lets a connection in to wait for its hello.
    pub fn admit(self: &Arc<Self>, conn: Conn) -> Guarded {
        let closing = Arc::new(Closing::default());
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let oldest = match state.waiting.len() >= self.bounds.waiting_max {
            true => state.waiting.pop_first(),
            false => None,
        };
        state.waiting.insert(id, Arc::clone(&closing));
        drop(state);
        if let Some((_, oldest)) = oldest {
            oldest.close();
            self.hostile.count("connections_evicted", &conn.address, "too many silent connections");
        }
        let ticket = Arc::new(Ticket {
            id,
            gate: Arc::clone(self),
            closing: Arc::clone(&closing),
            heard: AtomicBool::new(false),
            attached: AtomicBool::new(false),
        });
        let peer = Peer {
            address: conn.address.into(),
            credentials: conn.credentials,
            certified_hosts: None,
            ticket,
        };
        Guarded {
            io: conn.io,
            deadline: Box::pin(tokio::time::sleep(self.bounds.hello)),
            closed: Watch::new(closing),
            peer,
        }
    }

    /// Whether a peer's user has so many connections that each gets less room.
    pub fn is_crowded(&self, peer: &Peer) -> bool {
        let uid = peer.credentials.map(|who| who.uid);
        let count = uid.and_then(|uid| self.state().per_user.get(&uid).copied());
        count.is_some_and(|count| count >= CROWD)
    }

    /// Where misbehaviour is counted.
    pub fn hostile(&self) -> &Hostile {
        &self.hostile
    }

    /// Closes everything at once.
    pub fn close_all(&self) {
        let state = self.state();
        state.waiting.values().for_each(|closing| closing.close());
        state.open.values().for_each(|(closing, _)| closing.close());
    }

    /// How many connections have said hello, and how many have not.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.open.len(), state.waiting.len())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a gate's books; given back when the connection and everybody who knows it are gone.
struct Ticket {
    id: u64,
    gate: Arc<Gate>,
    closing: Arc<Closing>,
    heard: AtomicBool,
    attached: AtomicBool,
}

impl Ticket {
    fn leave(&self) {
        let mut state = self.gate.state();
        state.waiting.remove(&self.id);
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

/// The other end of a connection; every request that comes over it carries one.
#[derive(Clone)]
pub struct Peer {
    /// For the log.
    pub address: Arc<str>,
    /// Known for local sockets only.
    pub credentials: Option<Credentials>,
    /// The host names that its certificate vouches for; `None` without TLS.
    pub certified_hosts: Option<Arc<[String]>>,
    ticket: Arc<Ticket>,
}

impl Peer {
    /// The peer has said a valid hello: its deadline is off. Saying it twice changes nothing.
    ///
    /// # Errors
    /// [`Full`]: the connection must be refused.
    pub fn heard(&self) -> Result<(), Full> {
        self.let_in(0)
    }

    /// As [`Peer::heard`], for a connection that only asks questions: those of root find room in an agent
    /// that is full, for who else could find out why it is?
    ///
    /// # Errors
    /// As there.
    pub fn asks(&self) -> Result<(), Full> {
        let is_root = self.credentials.is_some_and(|who| who.uid == 0);
        self.let_in(if is_root { ROOT_SPARE } else { 0 })
    }

    fn let_in(&self, spare: usize) -> Result<(), Full> {
        if self.ticket.heard.load(Ordering::Acquire) {
            return Ok(());
        }
        let gate = &self.ticket.gate;
        let mut state = gate.state();
        let Some(closing) = state.waiting.remove(&self.ticket.id) else {
            return Ok(());
        };
        let uid = self.credentials.map(|c| c.uid).filter(|uid| *uid != 0);
        let result = if state.open.len() >= gate.bounds.open_max + spare {
            Err(Full::All(gate.bounds.open_max))
        } else {
            match uid {
                Some(uid) => match state.per_user.get(&uid).copied().unwrap_or(0) {
                    count if count >= gate.bounds.per_user_max => {
                        Err(Full::User { uid, max: gate.bounds.per_user_max })
                    }
                    count => {
                        state.per_user.insert(uid, count + 1);
                        Ok(())
                    }
                },
                None => Ok(()),
            }
        };
        if result.is_ok() {
            state.open.insert(self.ticket.id, (closing, uid));
            self.ticket.heard.store(true, Ordering::Release);
        } else {
            state.waiting.insert(self.ticket.id, closing);
        }
        result
    }

    /// Claims the one long stream that a connection may carry.
    ///
    /// # Errors
    /// [`Taken`]: there is one already.
    pub fn attach_once(&self) -> Result<(), Taken> {
        match self.ticket.attached.swap(true, Ordering::AcqRel) {
            true => Err(Taken),
            false => Ok(()),
        }
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.ticket.closing.close();
    }

    /// Ends when the connection was closed from this side.
    pub async fn closed(&self) {
        self.ticket.closing.closed().await;
    }
}

/// A connection behind the gate: it fails by itself when its hello is late or when it is closed.
pub struct Guarded {
    io: BoxIo,
    deadline: Pin<Box<Sleep>>,
    closed: Watch,
    peer: Peer,
}

impl Guarded {
    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.closed.is_closed(cx) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed by this agent"));
        }
        if !self.peer.ticket.heard.load(Ordering::Acquire)
            && self.deadline.as_mut().poll(cx).is_ready()
        {
            let gate = &self.peer.ticket.gate;
            gate.hostile.count("hello_late", &self.peer.address, "no hello before its deadline");
            self.peer.close();
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no hello before its deadline"));
        }
        Ok(())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.peer.close();
        self.peer.ticket.leave();
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
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

/// What the gRPC server is given: a guarded stream, with TLS around it or not.
pub struct Served {
    io: BoxIo,
    peer: Peer,
    inspector: Inspector,
    /// When its first byte could come.
    since: Instant,
    /// Bytes have come.
    spoke: bool,
    /// The peer asked for too many answers: its last words, and that nothing more is read.
    flooded: bool,
}

impl Served {
    /// A stream that speaks in the clear.
    pub fn plain(guarded: Guarded) -> Self {
        let peer = guarded.peer.clone();
        Self::new(Box::new(guarded), peer)
    }

    /// A stream behind TLS, with the names that the peer's certificate vouches for.
    pub fn certified(io: BoxIo, mut peer: Peer, hosts: Vec<String>) -> Self {
        peer.certified_hosts = Some(hosts.into());
        Self::new(io, peer)
    }

    fn new(io: BoxIo, peer: Peer) -> Self {
        let (inspector, since) = (Inspector::default(), Instant::now());
        Self { io, peer, inspector, since, spoke: false, flooded: false }
    }

    /// Ends the connection of a peer that floods it. A peer that does not read what it is sent gets
    /// no last words.
    fn flood(&mut self, cx: &mut Context<'_>, error: Flood) -> io::Error {
        if !std::mem::replace(&mut self.flooded, true) {
            if let Some(words) = self.inspector.farewell() {
                let _ = Pin::new(&mut self.io).poll_write(cx, words);
                let _ = Pin::new(&mut self.io).poll_flush(cx);
            }
            let gate = &self.peer.ticket.gate;
            gate.hostile.count("control_flood", &self.peer.address, &error.to_string());
            self.peer.close();
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// A connection whose bytes never made a request ends in the gRPC server, which tells nobody.
impl Drop for Served {
    fn drop(&mut self) {
        let ticket = &self.peer.ticket;
        let asked = ticket.attached.load(Ordering::Acquire) || ticket.heard.load(Ordering::Acquire);
        if self.spoke && !asked && !ticket.closing.is_closed() {
            let what = "what came makes no request";
            ticket.gate.hostile.count("connection_malformed", &self.peer.address, what);
        }
    }
}

impl AsyncRead for Served {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flooded {
            return Poll::Ready(Err(self.flood(cx, Flood)));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let came = &mut buf.filled_mut()[before..];
        self.spoke |= !came.is_empty();
        let since = self.since;
        match self.inspector.received(came, || since.elapsed()) {
            Ok(()) => read,
            Err(error) => Poll::Ready(Err(self.flood(cx, error))),
        }
    }
}

impl AsyncWrite for Served {
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
