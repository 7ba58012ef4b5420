//! Channels over byte streams: TCP between nodes, Unix sockets between the ranks of one node.
//!
//! One connection and one reading thread for each peer with messages: the first sender dials. If
//! both dial at once, the connection of the higher rank counts. Unix sockets are abstract: they
//! leave no file and end with their process. Not responsible for the meaning of frames.

use super::{Channel, Endpoint, Opening};
use crate::error::{Error, Result};
use crate::frame::{self, Frame, HEADER_BYTES};
use crate::hello::{CHALLENGE_BYTES, HELLO_BYTES, Hello, Introduction, Side, TOKEN_BYTES};
use crate::{limits, lock, spawn_helper};
use nix::sys::socket;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A channel of links over byte streams.
pub struct StreamChannel {
    kind: Kind,
    active: RwLock<Option<Active>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Between any two ranks, with this rank's address.
    Tcp(IpAddr),
    /// Between ranks whose nodes have the same name.
    Unix,
}

/// What exists from open to suspend.
struct Active {
    ends: Arc<Ends>,
    listener: Arc<Listener>,
    acceptor: JoinHandle<()>,
}

struct Ends {
    opening: Opening,
    kind: Kind,
    links: Mutex<Links>,
    /// A link is up, or a dial is over.
    changed: Condvar,
}

#[derive(Default)]
struct Links {
    peers: BTreeMap<u32, Endpoint>,
    up: BTreeMap<u32, Arc<Link>>,
    dialling: BTreeSet<u32>,
    /// Dialled but not introduced, by a number of their own.
    pending: BTreeMap<u64, Arc<Link>>,
    /// Accepted but not introduced: anyone may connect. The oldest has the least number.
    unproved: BTreeMap<u64, Arc<Link>>,
    number_last: u64,
    refused: RefusedConnections,
    readers: Vec<JoinHandle<()>>,
    closed: bool,
}

/// Connections that were refused since the last line of the log.
#[derive(Default)]
struct RefusedConnections {
    count: u64,
    logged: Option<Instant>,
}

impl RefusedConnections {
    /// Counts one; how many to log now, if any.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let waits = |at: Instant| now.saturating_duration_since(at) < limits::REFUSED_EVERY;
        if self.logged.is_some_and(waits) {
            return None;
        }
        self.logged = Some(now);
        Some(core::mem::take(&mut self.count))
    }
}

struct Link {
    stream: Stream,
    /// Frames must not mix.
    write: Mutex<()>,
}

impl StreamChannel {
    /// TCP, reached at that address.
    pub fn tcp(address: IpAddr) -> Self {
        Self::new(Kind::Tcp(address))
    }

    /// Unix sockets between the ranks of one node.
    pub fn unix() -> Self {
        Self::new(Kind::Unix)
    }

    fn new(kind: Kind) -> Self {
        Self { kind, active: RwLock::new(None) }
    }

    fn ends(&self) -> io::Result<Arc<Ends>> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        let active = active.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Arc::clone(&active.ends))
    }
}

impl Channel for StreamChannel {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn reaches(&self, own: &Endpoint, peer: &Endpoint) -> bool {
        let both = [own, peer];
        let opened = both.iter().all(|end| end.addresses.contains_key(self.name()));
        let same_node = !own.node.is_empty() && own.node.eq_ignore_ascii_case(&peer.node);
        opened && (same_node || self.kind != Kind::Unix)
    }

    fn open(&self, opening: &Opening) -> io::Result<String> {
        self.suspend();
        let (listener, address) = Listener::bind(self.kind, opening)?;
        let listener = Arc::new(listener);
        let ends = Arc::new(Ends {
            opening: opening.clone(),
            kind: self.kind,
            links: Mutex::default(),
            changed: Condvar::new(),
        });
        let acceptor = {
            let (listener, ends) = (Arc::clone(&listener), Arc::clone(&ends));
            spawn_helper("ftb-accept", move || accept_all(&listener, &ends))?
        };
        *self.active.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Active { ends, listener, acceptor });
        Ok(address)
    }

    fn connect(&self, peer: &Endpoint) -> Result<()> {
        let failed = |error: io::Error| Error::Channel {
            channel: self.name(),
            problem: format!("its end is gone: {error}"),
        };
        let ends = self.ends().map_err(failed)?;
        lock(&ends.links).peers.insert(peer.rank, peer.clone());
        Ok(())
    }

    fn send(&self, to: u32, frame: &Frame<'_>) -> io::Result<()> {
        self.ends()?.link_to(to)?.send(frame)
    }

    fn reach(&self, to: u32) -> io::Result<()> {
        self.ends()?.link_to(to).map(drop)
    }

    fn suspend(&self) {
        let active = self.active.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(active) = active else {
            return;
        };
        active.listener.stop();
        // A thread that panicked has nothing left to release.
        active.acceptor.join().ok();
        for reader in active.ends.close() {
            reader.join().ok();
        }
    }

    fn sever(&self, to: u32) {
        let Ok(ends) = self.ends() else { return };
        if let Some(link) = lock(&ends.links).up.get(&to) {
            link.stream.end_writing();
        }
    }

    fn interrupt(&self) {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(active) = active.as_ref() {
            active.ends.interrupt();
        }
    }
}

impl Drop for StreamChannel {
    fn drop(&mut self) {
        self.suspend();
    }
}

fn accept_all(listener: &Listener, ends: &Arc<Ends>) {
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) if is_passing(&error) => continue,
            // The listener was stopped.
            Err(_) => return,
        };
        if let Err(error) = ends.welcome(stream) {
            ends.report(&error);
        }
    }
}

/// Errors of one connection, not of the listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

impl Ends {
    /// Accepts a connection; its thread runs the introduction and then reads.
    fn welcome(self: &Arc<Self>, stream: Stream) -> io::Result<()> {
        let link = Arc::new(Link::new(stream));
        let mut links = lock(&self.links);
        if links.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let number = links.accept(&link, self.opening.size as usize + limits::HANDSHAKING_MAX);
        let ends = Arc::clone(self);
        let reader = spawn_helper("ftb-read", move || {
            let heard = ends.hear(&link);
            lock(&ends.links).unproved.remove(&number);
            match heard {
                Ok(from) => ends.read(from, &link),
                Err(error) => {
                    link.stream.close();
                    ends.report(&error);
                }
            }
        });
        links.readers.retain(|reader| !reader.is_finished());
        links.readers.push(reader?);
        Ok(())
    }

    /// Logs a refused connection: the first one at once, others together.
    fn report(&self, error: &io::Error) {
        let rank = self.opening.own.rank;
        // Both have dialled, and the other connection counts.
        if error.kind() == io::ErrorKind::AlreadyExists {
            tracing::debug!(rank, %error, "connection not needed");
        } else if let Some(count) = lock(&self.links).refused.count(Instant::now()) {
            tracing::warn!(rank, count, %error, "connections were refused");
        }
    }

    /// The accepting side of the introduction.
    fn hear(&self, link: &Arc<Link>) -> io::Result<u32> {
        let own = &self.opening.own;
        link.stream.set_timeout(Some(limits::HELLO_TIMEOUT))?;
        let introduction = Introduction { token: own.token, challenge: random_bytes()? };
        (&link.stream).write_all(&introduction.challenge)?;
        let hello = introduction.open(Side::Dialer, &link.read_exactly::<HELLO_BYTES>()?)?;
        if hello.to != own.rank || hello.fence != self.opening.fence {
            return Err(frame::invalid("the hello is not for this rank and fence"));
        }
        if hello.from == own.rank || hello.from >= self.opening.size {
            let from = hello.from;
            return Err(frame::invalid(format!("rank {from} does not connect here")));
        }
        let answer = introduction.seal(Side::Listener, &self.hello(hello.from, hello.nonce));
        // No frame precedes the answer.
        let _answering = lock(&link.write);
        let taken = self.check_counts(&hello).and_then(|()| self.add(hello.from, link, false));
        if taken.is_ok() || self.counts_differ(&hello) {
            (&link.stream).write_all(&answer)?;
        }
        taken?;
        Ok(hello.from)
    }

    /// The existing link to that rank, or a new one.
    fn link_to(self: &Arc<Self>, to: u32) -> io::Result<Arc<Link>> {
        let mut links = lock(&self.links);
        loop {
            if let Some(link) = links.up.get(&to) {
                return Ok(Arc::clone(link));
            }
            if links.closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            if !links.dialling.contains(&to) {
                break;
            }
            links = self.changed.wait(links).unwrap_or_else(PoisonError::into_inner);
        }
        let peer = links.peers.get(&to).cloned().ok_or(io::ErrorKind::NotConnected)?;
        links.dialling.insert(to);
        drop(links);
        let dialled = self.dial(&peer);
        let mut links = lock(&self.links);
        links.dialling.remove(&to);
        self.changed.notify_all();
        let error = match dialled {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        // A missing rank cannot have dialled at the same moment.
        let crossed = error.kind() != io::ErrorKind::ConnectionRefused;
        let wait = if crossed { limits::HELLO_TIMEOUT } else { Duration::ZERO };
        let missing = |links: &mut Links| !links.up.contains_key(&to) && !links.closed;
        let waited = self.changed.wait_timeout_while(links, wait, missing);
        links = waited.unwrap_or_else(PoisonError::into_inner).0;
        links.up.get(&to).map(Arc::clone).ok_or(error)
    }

    /// The dialling side of the introduction.
    fn dial(self: &Arc<Self>, peer: &Endpoint) -> io::Result<Arc<Link>> {
        let address = peer.addresses.get(self.kind.name()).map_or("", String::as_str);
        let link = Arc::new(Link::new(Stream::dial(self.kind, address)?));
        // A later `Links::close` ends this link too.
        let number = {
            let mut links = lock(&self.links);
            if links.closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            links.dial(&link)
        };
        let introduced = self.introduce(&link, peer);
        lock(&self.links).pending.remove(&number);
        introduced?;
        let (ends, rank, reading) = (Arc::clone(self), peer.rank, Arc::clone(&link));
        let reader = spawn_helper("ftb-read", move || ends.read(rank, &reading))?;
        lock(&self.links).readers.push(reader);
        Ok(link)
    }

    fn introduce(&self, link: &Arc<Link>, peer: &Endpoint) -> io::Result<()> {
        link.stream.set_timeout(Some(limits::HELLO_TIMEOUT))?;
        let challenge = link.read_exactly::<CHALLENGE_BYTES>()?;
        let introduction = Introduction { token: peer.token, challenge };
        let hello = self.hello(peer.rank, random_bytes()?);
        (&link.stream).write_all(&introduction.seal(Side::Dialer, &hello))?;
        let answer = introduction.open(Side::Listener, &link.read_exactly::<HELLO_BYTES>()?)?;
        if answer.from != peer.rank || answer.to != hello.from || answer.nonce != hello.nonce {
            return Err(frame::invalid("another rank answered"));
        }
        self.check_counts(&answer)?;
        self.add(peer.rank, link, true)
    }

    fn hello(&self, to: u32, nonce: [u8; TOKEN_BYTES]) -> Hello {
        let (sent, received) = (self.opening.counts)(to);
        Hello { from: self.opening.own.rank, to, fence: self.opening.fence, nonce, sent, received }
    }

    /// The counts of both sides must match; otherwise a message was lost or doubled by a suspension
    /// or an image.
    fn check_counts(&self, hello: &Hello) -> io::Result<()> {
        if !self.counts_differ(hello) {
            return Ok(());
        }
        let (sent, received) = (self.opening.counts)(hello.from);
        Err(frame::invalid(format!(
            "rank {} has sent {} and received {} messages, this rank has received {received} \
             and sent {sent}: they are not of the same set",
            hello.from, hello.sent, hello.received
        )))
    }

    fn counts_differ(&self, hello: &Hello) -> bool {
        (hello.received, hello.sent) != (self.opening.counts)(hello.from)
    }

    fn add(&self, rank: u32, link: &Arc<Link>, own_dial: bool) -> io::Result<()> {
        link.stream.set_timeout(None)?;
        let mut links = lock(&self.links);
        let crossed = !own_dial && links.dialling.contains(&rank) && self.opening.own.rank > rank;
        if links.closed || crossed || links.up.contains_key(&rank) {
            let problem = format!("rank {rank} is connected already");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        links.up.insert(rank, Arc::clone(link));
        self.opening.inbox.link_up(rank);
        self.changed.notify_all();
        Ok(())
    }

    fn read(&self, from: u32, link: &Link) {
        const READ_BYTES: usize = 64 * 1024;
        let inbox = &self.opening.inbox;
        let mut stream = BufReader::with_capacity(READ_BYTES, &link.stream);
        let problem = loop {
            match frame::read_frame(&mut stream) {
                Ok(Some(frame)) => {
                    if let Err(problem) = inbox.accept(from, frame) {
                        break Some(problem);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        link.stream.close();
        inbox.link_ended(from, problem);
    }

    /// Ends all links for good.
    fn interrupt(&self) {
        let mut links = lock(&self.links);
        links.closed = true;
        self.changed.notify_all();
        let unknown = links.pending.values().chain(links.unproved.values());
        for link in links.up.values().chain(unknown) {
            link.stream.close();
        }
    }

    /// Ends all links; returns the threads to wait for.
    fn close(&self) -> Vec<JoinHandle<()>> {
        self.interrupt();
        let mut links = lock(&self.links);
        links.up.clear();
        std::mem::take(&mut links.readers)
    }
}

impl Links {
    /// Keeps a dialled link until the other side is known; returns its number.
    fn dial(&mut self, link: &Arc<Link>) -> u64 {
        self.number_last += 1;
        self.pending.insert(self.number_last, Arc::clone(link));
        self.number_last
    }

    /// The same for an accepted link. Beyond `room` the oldest one is closed.
    fn accept(&mut self, link: &Arc<Link>, room: usize) -> u64 {
        while self.unproved.len() >= room
            && let Some((_, oldest)) = self.unproved.pop_first()
        {
            oldest.stream.close();
        }
        self.number_last += 1;
        self.unproved.insert(self.number_last, Arc::clone(link));
        self.number_last
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Unix => "unix",
        }
    }
}

impl Link {
    fn new(stream: Stream) -> Self {
        Self { stream, write: Mutex::new(()) }
    }

    fn read_exactly<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        (&self.stream).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&self, frame: &Frame<'_>) -> io::Result<()> {
        let header: [u8; HEADER_BYTES] = frame.header();
        let payload = frame.payload();
        let _no_other = lock(&self.write);
        let mut stream = &self.stream;
        let written = loop {
            match stream.write_vectored(&[IoSlice::new(&header), IoSlice::new(payload)]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => break written?,
            }
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if written < HEADER_BYTES {
            stream.write_all(&header[written..])?;
        }
        stream.write_all(&payload[written.saturating_sub(HEADER_BYTES)..])
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn dial(kind: Kind, address: &str) -> io::Result<Self> {
        match kind {
            Kind::Tcp(_) => {
                let parsed: Result<SocketAddr, _> = address.parse();
                let address = parsed.map_err(|error| frame::invalid(error.to_string()))?;
                let stream = TcpStream::connect_timeout(&address, limits::CONNECT_TIMEOUT)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Kind::Unix => {
                let address = UnixAddr::from_abstract_name(address)?;
                UnixStream::connect_addr(&address).map(Self::Unix)
            }
        }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }

    /// Closes both directions; written bytes still arrive.
    fn close(&self) {
        self.shut_down(Shutdown::Both);
    }

    /// A blocked write returns.
    fn end_writing(&self) {
        self.shut_down(Shutdown::Write);
    }

    fn shut_down(&self, how: Shutdown) {
        // The other side may have closed it.
        match self {
            Self::Tcp(stream) => stream.shutdown(how).ok(),
            Self::Unix(stream) => stream.shutdown(how).ok(),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match *self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {
            Stream::Tcp(stream) => (&*stream).write_vectored(buffers),
            Stream::Unix(stream) => (&*stream).write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn bind(kind: Kind, opening: &Opening) -> io::Result<(Self, String)> {
        match kind {
            Kind::Tcp(address) => {
                let listener = TcpListener::bind((address, 0))?;
                let address = listener.local_addr()?.to_string();
                Ok((Self::Tcp(listener), address))
            }
            Kind::Unix => {
                let hex = |byte: &u8| format!("{byte:02x}");
                let random: String = random_bytes()?.iter().map(hex).collect();
                let name = format!("ftb-job-{}-{random}", opening.own.rank);
                let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
                Ok((Self::Unix(listener), name))
            }
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }

    /// Wakes the thread that accepts; on Linux a listening socket can be shut down.
    fn stop(&self) {
        let fd = match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener) => listener.as_raw_fd(),
        };
        if let Err(error) = socket::shutdown(fd, socket::Shutdown::Both) {
            tracing::debug!(%error, "listener was stopped already");
        }
    }
}

/// From the system's generator.
pub(crate) fn random_bytes() -> io::Result<[u8; TOKEN_BYTES]> {
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::inbox::Inbox;
    use std::net::Ipv4Addr;

    /// A rank of two with an open channel, and its address.
    fn opened(rank: u32) -> (StreamChannel, Endpoint) {
        let token = random_bytes().unwrap();
        let own = Endpoint { rank, node: String::new(), token, addresses: BTreeMap::new() };
        let inbox = Arc::new(Inbox::new(2, 1 << 20, Box::new(|_, _| ())));
        let counts = Arc::new(|_| (0, 0));
        let opening = Opening { own: own.clone(), size: 2, fence: 1, inbox, counts };
        let channel = StreamChannel::tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let address = channel.open(&opening).unwrap();
        (channel, Endpoint { addresses: [("tcp".to_owned(), address)].into(), ..own })
    }

    #[test]
    fn silent_strangers_make_room_for_a_rank() {
        let ((_listens, at), (dials, _)) = (opened(0), opened(1));
        let connect = |_| TcpStream::connect(&at.addresses["tcp"]).unwrap();
        let mut strangers: Vec<_> = (0..limits::HANDSHAKING_MAX + 4).map(connect).collect();
        // Long before their deadline.
        for oldest in &mut strangers[..2] {
            oldest.set_read_timeout(Some(limits::HELLO_TIMEOUT / 2)).unwrap();
            let mut challenge = Vec::new();
            oldest.read_to_end(&mut challenge).unwrap();
            // Closed, on a busy machine before its challenge.
            assert!([0, CHALLENGE_BYTES].contains(&challenge.len()), "{challenge:?}");
        }
        dials.connect(&at).unwrap();
        dials.reach(0).unwrap();
    }

    /// The test relays a rank's introduction, as an attacker between the ranks would.
    #[test]
    fn a_recorded_introduction_is_refused_the_second_time() {
        let ((_listens, at), (dials, _)) = (opened(0), opened(1));
        let relay = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let between = [("tcp".to_owned(), relay.local_addr().unwrap().to_string())].into();
        dials.connect(&Endpoint { addresses: between, ..at.clone() }).unwrap();
        let dialling = std::thread::spawn(move || dials.reach(0));
        let (mut rank, _) = relay.accept().unwrap();
        let (mut challenge, mut hello) = ([0; CHALLENGE_BYTES], [0; HELLO_BYTES]);
        let mut real = TcpStream::connect(&at.addresses["tcp"]).unwrap();
        real.read_exact(&mut challenge).unwrap();
        rank.write_all(&challenge).unwrap();
        rank.read_exact(&mut hello).unwrap();
        drop((real, rank, dialling));
        let mut again = TcpStream::connect(&at.addresses["tcp"]).unwrap();
        again.read_exact(&mut challenge).unwrap();
        again.write_all(&hello).unwrap();
        let mut answer = Vec::new();
        again.read_to_end(&mut answer).ok();
        assert!(answer.is_empty(), "{answer:?}");
    }

    /// The other rank reads nothing any more, as one whose node has lost its power.
    #[test]
    fn a_blocked_send_to_a_dead_rank_ends() {
        let ((listens, at), (dials, _)) = (opened(0), opened(1));
        dials.connect(&at).unwrap();
        // Its reader waits for room without an end.
        std::mem::forget(listens);
        let dials = Arc::new(dials);
        let sending = Arc::clone(&dials);
        let (sent, sends) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let payload = vec![0; 16 << 20];
            for seq in 1.. {
                let class = crate::frame::Class::User;
                let frame = Frame::Data { class, tag: 0, seq, payload: &payload };
                let error = sending.send(0, &frame).err().map(|error| error.kind());
                sent.send(error).unwrap();
                if error.is_some() {
                    return;
                }
            }
        });
        // The first one waits at its receiver, the next ones find no room.
        assert_eq!(sends.recv().unwrap(), None);
        dials.sever(0);
        let next = || sends.recv_timeout(limits::HELLO_TIMEOUT).unwrap();
        let ended = std::iter::repeat_with(next).find_map(|sent| sent);
        assert_eq!(ended, Some(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn refused_connections_are_logged_at_once_and_then_once_a_minute() {
        let (mut refused, start) = (RefusedConnections::default(), Instant::now());
        let at = |part: u32| start + limits::REFUSED_EVERY / 4 * part;
        let logged = [0, 1, 2, 4, 5].map(|part| refused.count(at(part)));
        assert_eq!(logged, [Some(1), None, None, Some(3), None]);
    }
}
