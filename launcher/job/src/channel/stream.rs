//! Channels over byte streams: TCP between nodes, Unix sockets between the ranks of one node.
//!
//! One connection for each peer with messages, and one thread that reads all of them
//! ([`poller`]). The first sender dials, in its own thread. If both dial at once, the connection of
//! the higher rank counts. Unix sockets are abstract: they leave no file and end with their
//! process. Not responsible for the meaning of frames.
//!
//! Over a recovery in place the listening socket stays, and so do connections. After the barrier
//! the first sender says on the kept connection that it sends for the new barrier, and the other
//! side answers ([`Frame::Renewal`]). What came before that is dropped. A kept connection that is
//! not confirmed in time, or that has ended, is replaced by a new one, once.

mod acceptance;
mod connection;
mod files;
mod line;
mod links;
mod poller;
mod reading;
mod socket;

use super::{Channel, Endpoint, Opening};
use crate::error::{Error, Result};
use crate::frame::{self, Frame};
use crate::hello::{CHALLENGE_BYTES, HELLO_BYTES, Hello, Introduction, Side, TOKEN_BYTES};
use crate::{limits, lock};
use connection::Connection;
use line::Line;
use links::Links;
use poller::{Command, Mail, Poller};
use socket::{ListeningSocket, Medium, Socket};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

pub(crate) use socket::random_bytes;

/// A channel of links over byte streams.
pub struct StreamChannel {
    medium: Medium,
    poller: Arc<Poller>,
    /// From open to suspend.
    active: RwLock<Option<Arc<Ends>>>,
    /// The last recovery that the rank was called back for.
    called: AtomicU64,
}

struct Ends {
    opening: Opening,
    medium: Medium,
    mail: Arc<Mail>,
    links: Mutex<Links>,
    /// The state of a link or of the barrier has changed, or a dial is over.
    changed: Condvar,
}

impl StreamChannel {
    /// TCP, reached at that address.
    pub fn tcp(address: IpAddr) -> Self {
        Self::new(Medium::Tcp(address), Arc::default())
    }

    /// Unix sockets between the ranks of one node.
    pub fn unix() -> Self {
        Self::new(Medium::Unix, Arc::default())
    }

    /// Unix sockets within a node, and TCP, reached at that address. One thread reads both.
    pub fn unix_and_tcp(address: IpAddr) -> [Self; 2] {
        let poller = Arc::<Poller>::default();
        [Medium::Unix, Medium::Tcp(address)].map(|medium| Self::new(medium, Arc::clone(&poller)))
    }

    fn new(medium: Medium, poller: Arc<Poller>) -> Self {
        Self { medium, poller, active: RwLock::new(None), called: AtomicU64::new(0) }
    }

    fn ends(&self) -> io::Result<Arc<Ends>> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(active.as_ref().ok_or(io::ErrorKind::NotConnected)?))
    }

    /// Changes the links, if it is open; whether it is.
    fn change(&self, change: impl FnOnce(&mut Links)) -> bool {
        let Ok(ends) = self.ends() else { return false };
        let is_awaited = {
            let mut links = lock(&ends.links);
            change(&mut links);
            links.take_awaited()
        };
        ends.changed.notify_all();
        if is_awaited {
            // A poller that has ended waits for nothing.
            ends.mail.post(Command::Barrier).ok();
        }
        true
    }

    /// The ends of a channel that opens.
    fn listen(&self, opening: &Opening, mail: Arc<Mail>) -> io::Result<String> {
        let (listening, address) = ListeningSocket::bind(self.medium, opening)?;
        // Under the lock: a call back comes before this or finds the links.
        let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let called = self.called.load(Ordering::Acquire);
        let ends = Arc::new(Ends {
            opening: opening.clone(),
            medium: self.medium,
            mail,
            links: Mutex::new(Links::new(opening.fence, called)),
            changed: Condvar::new(),
        });
        let (answer, added) = channel();
        ends.mail.post(Command::Listen(Arc::clone(&ends), listening, answer))?;
        added.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        *active = Some(ends);
        Ok(address)
    }
}

impl Channel for StreamChannel {
    fn name(&self) -> &'static str {
        self.medium.name()
    }

    fn reaches(&self, own: &Endpoint, peer: &Endpoint) -> bool {
        let both = [own, peer];
        let opened = both.iter().all(|end| end.addresses.contains_key(self.name()));
        let same_node = !own.node.is_empty() && own.node.eq_ignore_ascii_case(&peer.node);
        opened && (same_node || self.medium != Medium::Unix)
    }

    fn open(&self, opening: &Opening) -> io::Result<String> {
        self.suspend();
        files::allow_links(opening.own.rank, opening.size);
        let mail = self.poller.enter()?;
        let opened = self.listen(opening, mail);
        opened.inspect_err(|_| self.poller.leave(None)).map_err(files::explained)
    }

    fn begin(&self, fence: u64) -> bool {
        let is_read = self.ends().is_ok_and(|ends| !ends.mail.is_over());
        is_read && self.change(|links| links.begin(fence))
    }

    fn forget(&self, rank: u32) {
        self.change(|links| links.forget(rank));
    }

    fn meet(&self) {
        self.change(Links::meet);
    }

    fn connect(&self, peer: &Endpoint) -> Result<()> {
        if self.change(|links| links.know(peer)) {
            return Ok(());
        }
        let problem = "its end is gone".to_owned();
        Err(Error::Channel { channel: self.name(), problem })
    }

    fn send(&self, to: u32, frame: &Frame<'_>) -> io::Result<()> {
        let ends = self.ends()?;
        let (fence, link) = ends.link_to(to)?;
        link.send(fence, frame, &|| lock(&ends.links).goes_on(fence))
    }

    fn reach(&self, to: u32) -> io::Result<()> {
        self.ends()?.link_to(to).map(drop)
    }

    fn suspend(&self) {
        let active = self.active.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ends) = active else {
            return;
        };
        lock(&ends.links).close();
        ends.changed.notify_all();
        self.poller.leave(Some(&ends));
    }

    fn sever(&self, to: u32) {
        let Ok(ends) = self.ends() else { return };
        if let Some(link) = lock(&ends.links).any(to) {
            link.socket().end_writing();
        }
    }

    fn call_back(&self, fence: u64, dead: &BTreeSet<u32>) {
        self.called.fetch_max(fence, Ordering::AcqRel);
        self.change(|links| links.call_back(fence, dead));
    }
}

impl Drop for StreamChannel {
    fn drop(&mut self) {
        self.suspend();
    }
}

fn not_connected() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl Ends {
    /// Logs a refused connection: the first one at once, others together.
    fn report(&self, error: &io::Error) {
        use io::ErrorKind::{AlreadyExists, NotConnected};
        let rank = self.opening.own.rank;
        // Both have dialled, and the other connection counts; or one of them goes back first.
        if matches!(error.kind(), AlreadyExists | NotConnected) {
            tracing::debug!(rank, %error, "connection not needed");
            return;
        }
        // The log may be slow: not under the lock.
        let counted = lock(&self.links).refused.count(Instant::now());
        if let Some(count) = counted {
            tracing::warn!(rank, count, %error, "connections were refused");
        }
    }

    /// The existing link to that rank, or a new one, and the barrier.
    fn link_to(self: &Arc<Self>, to: u32) -> io::Result<(u64, Arc<Connection>)> {
        let mut links = lock(&self.links);
        loop {
            if !links.is_open() {
                return Err(not_connected());
            }
            if let Some(link) = links.confirmed(to) {
                return Ok((links.fence(), Arc::clone(link)));
            }
            if !links.dialling.contains(&to) {
                break;
            }
            links = self.changed.wait(links).unwrap_or_else(PoisonError::into_inner);
        }
        let peer = links.peer(to).cloned().ok_or_else(not_connected)?;
        let (fence, kept) = (links.fence(), links.any(to).cloned());
        links.dialling.insert(to);
        drop(links);
        let renewed = kept.is_some_and(|kept| self.renew(to, fence, &kept));
        let made = if renewed { Ok(()) } else { self.dial(fence, &peer) };
        let mut links = lock(&self.links);
        links.dialling.remove(&to);
        self.changed.notify_all();
        // A missing rank cannot have dialled at the same moment.
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if made.as_ref().is_err_and(|error| !refused(error)) {
            links = self.wait_confirmed(links, to, fence, limits::HELLO_TIMEOUT);
        }
        match links.confirmed(to).filter(|_| links.fence() == fence) {
            Some(link) => Ok((fence, Arc::clone(link))),
            None => Err(made.err().unwrap_or_else(not_connected)),
        }
    }

    /// Waits until there is a link to that rank, or none can be made.
    fn wait_confirmed<'a>(
        &self,
        links: MutexGuard<'a, Links>,
        to: u32,
        fence: u64,
        timeout: Duration,
    ) -> MutexGuard<'a, Links> {
        let waits = |links: &mut Links| {
            links.is_open() && links.fence() == fence && links.confirmed(to).is_none()
        };
        let waited = self.changed.wait_timeout_while(links, timeout, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Has the other rank confirm a link of an earlier barrier; whether there is a link now.
    fn renew(&self, to: u32, fence: u64, kept: &Arc<Connection>) -> bool {
        let until = Instant::now() + limits::RENEWAL_TIMEOUT;
        let waits = || Instant::now() < until && lock(&self.links).goes_on(fence);
        let asked = kept.renew(fence, (self.opening.counts)(to), &waits);
        let mut links = lock(&self.links);
        if asked.is_ok() {
            // It has ended, or another one is there.
            let answers = |links: &mut Links| {
                let is_kept = links.any(to).is_some_and(|any| Arc::ptr_eq(any, kept));
                is_kept && links.is_open() && links.confirmed(to).is_none()
            };
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout_while(links, left, answers);
            links = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_there = links.fence() == fence && links.confirmed(to).is_some();
        if !is_there && links.is_open() && links.fence() == fence {
            tracing::info!(rank = self.opening.own.rank, to, fence, "a kept connection is remade");
            links.give_up(to, kept);
        }
        is_there
    }

    /// The dialling side of the introduction.
    fn dial(self: &Arc<Self>, fence: u64, peer: &Endpoint) -> io::Result<()> {
        let socket = self.socket_to(fence, peer).map_err(files::explained)?;
        let link = Arc::new(Connection::new(socket));
        // A later `Links::close` or `Links::call_back` ends this one too.
        let number = {
            let mut links = lock(&self.links);
            if !links.is_open() || links.fence() != fence {
                return Err(not_connected());
            }
            links.dial(&link)
        };
        let introduced = self.introduce(fence, &link, peer);
        lock(&self.links).introduced(number);
        introduced?;
        self.mail.post(Command::Read(Line::dialled(self, &link, peer.rank, fence)))
    }

    /// Waits for a file, if there is none now.
    fn socket_to(&self, fence: u64, peer: &Endpoint) -> io::Result<Socket> {
        let address = peer.addresses.get(self.medium.name()).map_or("", String::as_str);
        let until = Instant::now() + limits::CONNECT_TIMEOUT;
        let waits = |links: &mut Links| {
            links.is_open() && links.fence() == fence && links.confirmed(peer.rank).is_none()
        };
        loop {
            let error = match Socket::dial(self.medium, address) {
                Err(error) if files::is_missing(&error) && Instant::now() < until => error,
                dialled => return dialled,
            };
            let waited =
                self.changed.wait_timeout_while(lock(&self.links), limits::ACCEPT_PAUSE, waits);
            let (_links, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if !waited.timed_out() {
                return Err(error);
            }
        }
    }

    fn introduce(&self, fence: u64, link: &Arc<Connection>, peer: &Endpoint) -> io::Result<()> {
        link.begin_introduction()?;
        let challenge = link.read_exactly::<CHALLENGE_BYTES>()?;
        let introduction = Introduction { token: peer.token, challenge };
        let hello = self.hello(peer.rank, fence, random_bytes()?);
        link.socket().write_all(&introduction.seal(Side::Dialer, &hello))?;
        let answer = introduction.open(Side::Listener, &link.read_exactly::<HELLO_BYTES>()?)?;
        if answer.from != peer.rank || answer.to != hello.from || answer.nonce != hello.nonce {
            return Err(frame::invalid("another rank answered"));
        }
        self.check_counts(&answer)?;
        drop(link.end_introduction(fence)?);
        self.add(peer.rank, fence, link, true)
    }

    fn hello(&self, to: u32, fence: u64, nonce: [u8; TOKEN_BYTES]) -> Hello {
        let (sent, received) = (self.opening.counts)(to);
        Hello { from: self.opening.own.rank, to, fence, nonce, sent, received }
    }

    fn check_counts(&self, hello: &Hello) -> io::Result<()> {
        let counts = (hello.sent, hello.received);
        self.compare(hello.from, counts).map_err(frame::invalid)
    }

    /// The counts of both sides must match; otherwise a message was lost or doubled by a suspension
    /// or an image.
    fn compare(&self, from: u32, (sent, received): (u64, u64)) -> Result<(), String> {
        let (own_sent, own_received) = (self.opening.counts)(from);
        if (received, sent) == (own_sent, own_received) {
            return Ok(());
        }
        Err(format!(
            "rank {from} has sent {sent} and received {received} messages, this rank has received \
             {own_received} and sent {own_sent}: they are not of the same set"
        ))
    }

    fn add(&self, rank: u32, fence: u64, link: &Arc<Connection>, own_dial: bool) -> io::Result<()> {
        let mut links = lock(&self.links);
        let crossed = !own_dial && links.dialling.contains(&rank) && self.opening.own.rank > rank;
        if crossed || !links.add(rank, link, fence) {
            let problem = format!("rank {rank} is connected already");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        self.opening.inbox.link_up(rank, fence);
        self.changed.notify_all();
        Ok(())
    }

    /// A link that was read has ended, with the problem, if any. The last frames were of that
    /// barrier.
    fn end_link(&self, from: u32, fence: u64, link: &Arc<Connection>, problem: Option<String>) {
        link.socket().close();
        // Under the lock: another link that takes its place is reported afterwards.
        let mut links = lock(&self.links);
        if links.ended(from, link) {
            self.opening.inbox.link_ended(from, fence, problem);
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::Class;
    use crate::inbox::{Inbox, Recall};
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::atomic::AtomicBool;

    /// Most bytes that wait at a rank of these tests.
    const BYTES_MAX: usize = 1 << 20;

    /// A rank of two with an open channel, its address and its inbox, after barrier 1.
    fn with_inbox(rank: u32) -> (StreamChannel, Endpoint, Arc<Inbox>) {
        of_many(rank, 2, None)
    }

    /// The same of more ranks. `full`: that many control frames find no room.
    pub(super) fn of_many(
        rank: u32,
        size: u32,
        full: Option<u64>,
    ) -> (StreamChannel, Endpoint, Arc<Inbox>) {
        let token = random_bytes().unwrap();
        let own = Endpoint { rank, node: String::new(), token, addresses: BTreeMap::new() };
        let refused = AtomicU64::new(full.unwrap_or_default());
        let sink = move |_, payload| {
            let left = |left: u64| left.checked_sub(1);
            let is_full = refused.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok();
            is_full.then_some(payload)
        };
        let inbox = Arc::new(Inbox::new(size, BYTES_MAX, Box::new(sink)));
        inbox.begin(1);
        let counts = Arc::new(|_| (0, 0));
        let to = Arc::clone(&inbox);
        let opening = Opening { own: own.clone(), size, fence: 1, inbox: to, counts };
        let channel = StreamChannel::tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let address = channel.open(&opening).unwrap();
        channel.meet();
        (channel, Endpoint { addresses: [("tcp".to_owned(), address)].into(), ..own }, inbox)
    }

    pub(super) fn opened(rank: u32) -> (StreamChannel, Endpoint) {
        let (channel, endpoint, _) = with_inbox(rank);
        (channel, endpoint)
    }

    fn called_back(channel: &StreamChannel, inbox: &Inbox, fence: u64) {
        let set = "s".to_owned();
        inbox.call_back(Recall { episode: fence, set, divides: false });
        channel.call_back(fence, &BTreeSet::new());
    }

    /// What a rank does that goes back in place, up to the barrier.
    fn gone_back(channel: &StreamChannel, inbox: &Inbox, fence: u64) {
        inbox.go_back(fence, vec![(0, Vec::new()); 2]);
        assert!(channel.begin(fence));
    }

    /// As after a panic.
    fn end_reader(channel: &StreamChannel) {
        let mail = Arc::clone(&channel.ends().unwrap().mail);
        mail.post(Command::Stop).unwrap();
        while mail.post(Command::Barrier).is_ok() {
            std::thread::yield_now();
        }
    }

    fn user(seq: u64, payload: &[u8]) -> Frame<'_> {
        Frame::Data { class: Class::User, tag: 0, seq, payload }
    }

    fn next(inbox: &Inbox, from: u32) -> Vec<u8> {
        inbox.take_linked((from, &[]), Class::User, 0).unwrap()
    }

    fn link_of(channel: &StreamChannel, to: u32) -> Arc<Connection> {
        let ends = channel.ends().unwrap();
        let links = lock(&ends.links);
        Arc::clone(links.any(to).unwrap())
    }

    /// Both go back, twice in a row; in between one of them sends, and the other is called back.
    #[test]
    fn a_kept_link_gives_nothing_of_before_the_recovery() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        dials.send(0, &user(1, b"first")).unwrap();
        assert_eq!(next(&heard, 1), b"first");
        let (link, other) = (link_of(&dials, 0), link_of(&listens, 1));
        for fence in [2, 3] {
            called_back(&listens, &heard, fence);
            // This rank does not know yet.
            dials.send(0, &user(2, b"stale")).unwrap();
            called_back(&dials, &own, fence);
            let refused = dials.send(0, &user(3, b"refused")).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::NotConnected);
            gone_back(&listens, &heard, fence);
            gone_back(&dials, &own, fence);
            dials.meet();
            // The listener leaves the barrier later: the other waits for its confirmation.
            std::thread::scope(|scope| {
                scope.spawn(|| dials.send(0, &user(1, b"fresh")).unwrap());
                scope.spawn(|| listens.meet());
            });
            assert_eq!(next(&heard, 1), b"fresh");
            listens.send(1, &user(1, b"back")).unwrap();
            assert_eq!(next(&own, 0), b"back");
            assert!(Arc::ptr_eq(&link, &link_of(&dials, 0)), "fence {fence}");
            assert!(Arc::ptr_eq(&other, &link_of(&listens, 1)), "fence {fence}");
            dials.send(0, &user(2, b"seen")).unwrap();
            assert_eq!(next(&heard, 1), b"seen");
        }
    }

    /// Both use the kept link at once: one confirmation is enough.
    #[test]
    fn ranks_that_use_a_kept_link_at_once_keep_it() {
        let ((listens, at, heard), (dials, back, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        listens.connect(&back).unwrap();
        dials.reach(0).unwrap();
        let link = link_of(&dials, 0);
        for fence in 2..20 {
            for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
                called_back(channel, inbox, fence);
                gone_back(channel, inbox, fence);
            }
            std::thread::scope(|scope| {
                for (channel, to) in [(&listens, 1), (&dials, 0)] {
                    scope.spawn(move || {
                        channel.meet();
                        channel.send(to, &user(1, &fence.to_le_bytes())).unwrap();
                    });
                }
            });
            assert_eq!(next(&heard, 1), fence.to_le_bytes());
            assert_eq!(next(&own, 0), fence.to_le_bytes());
            assert!(Arc::ptr_eq(&link, &link_of(&dials, 0)), "fence {fence}");
        }
    }

    /// One end of it has ended, or nothing comes over it any more.
    #[test]
    fn a_kept_link_that_is_broken_is_remade_once() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        // It passes nothing more on when the test wants it.
        let relay = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let between = [("tcp".to_owned(), relay.local_addr().unwrap().to_string())].into();
        let behind = at.addresses["tcp"].clone();
        let silent = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&silent);
        let relays = std::thread::spawn(move || relay_pairs(&relay, &behind, &stops));
        dials.connect(&Endpoint { addresses: between, ..at }).unwrap();
        dials.send(0, &user(1, b"first")).unwrap();
        assert_eq!(next(&heard, 1), b"first");
        for (fence, is_silent) in [(2, false), (3, true)] {
            let link = link_of(&dials, 0);
            for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
                called_back(channel, inbox, fence);
                gone_back(channel, inbox, fence);
            }
            match is_silent {
                true => silent.store(true, Ordering::Release),
                false => link_of(&listens, 1).socket().close(),
            }
            for channel in [&listens, &dials] {
                channel.meet();
            }
            dials.send(0, &user(1, b"again")).unwrap();
            assert_eq!(next(&heard, 1), b"again");
            assert!(!Arc::ptr_eq(&link, &link_of(&dials, 0)), "fence {fence}");
        }
        drop((dials, listens));
        relays.join().unwrap();
    }

    /// Its peer answers only when the other link is there.
    #[test]
    fn the_end_of_a_link_that_was_replaced_loses_no_peer() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        dials.reach(0).unwrap();
        let (kept, other) = (link_of(&dials, 0), link_of(&listens, 1));
        for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
            called_back(channel, inbox, 2);
            gone_back(channel, inbox, 2);
        }
        // Its reader cannot answer.
        let answering = other.end_introduction(1).unwrap();
        kept.renew(2, (0, 0), &|| true).unwrap();
        for channel in [&listens, &dials] {
            channel.meet();
        }
        let ends = dials.ends().unwrap();
        lock(&ends.links).give_up(0, &kept);
        dials.send(0, &user(1, b"again")).unwrap();
        assert_eq!(next(&heard, 1), b"again");
        drop(answering);
        // Until only the test has it: its reader has ended.
        while Arc::strong_count(&other) > 1 {
            std::thread::yield_now();
        }
        assert!(heard.is_linked(1));
        listens.send(1, &user(1, b"back")).unwrap();
        assert_eq!(next(&own, 0), b"back");
    }

    /// The rank that waited for it dials before its peer knows the result of the barrier.
    #[test]
    fn a_rank_that_meets_late_does_not_confirm_what_was_given_up() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        dials.reach(0).unwrap();
        let kept = link_of(&dials, 0);
        for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
            called_back(channel, inbox, 2);
            gone_back(channel, inbox, 2);
        }
        kept.renew(2, (0, 0), &|| true).unwrap();
        dials.meet();
        let (near, far) = (dials.ends().unwrap(), listens.ends().unwrap());
        lock(&near.links).give_up(0, &kept);
        std::thread::scope(|scope| {
            scope.spawn(|| dials.send(0, &user(1, b"again")).unwrap());
            let (links, wait) = (lock(&far.links), limits::HELLO_TIMEOUT / 2);
            let is_kept = |links: &mut Links| links.any(1).is_some();
            let (links, waited) = far.changed.wait_timeout_while(links, wait, is_kept).unwrap();
            drop(links);
            listens.meet();
            assert!(!waited.timed_out());
        });
        assert_eq!(next(&heard, 1), b"again");
        assert!(heard.is_linked(1));
    }

    /// Passes on three connections, the second only until `stops`.
    fn relay_pairs(relay: &TcpListener, behind: &str, stops: &Arc<AtomicBool>) {
        for number in 0..3 {
            let (near, _) = relay.accept().unwrap();
            let far = TcpStream::connect(behind).unwrap();
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
            {
                let stops = Arc::clone(stops);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    loop {
                        match from.read(&mut bytes) {
                            Ok(0) | Err(_) => break,
                            Ok(_) if number == 1 && stops.load(Ordering::Acquire) => {}
                            Ok(count) => to.write_all(&bytes[..count]).unwrap_or_default(),
                        }
                    }
                    to.shutdown(std::net::Shutdown::Write).ok();
                });
            }
        }
    }

    /// The other rank takes nothing more until it is called back too, or never is.
    #[test]
    fn a_begun_message_is_completed_by_a_rank_that_goes_back_or_its_link_ends() {
        // More than the buffers of a connection hold.
        let big = vec![0; 48 * BYTES_MAX];
        for both in [true, false] {
            let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
            dials.connect(&at).unwrap();
            // It stays at the receiver: the next one finds no room.
            dials.send(0, &user(1, &big)).unwrap();
            let link = link_of(&dials, 0);
            let begun = AtomicU64::new(0);
            let send = |seq| {
                begun.store(seq, Ordering::Release);
                dials.send(0, &user(seq, &big)).err()
            };
            std::thread::scope(|scope| {
                let sends = scope.spawn(|| (2..).find_map(send).unwrap());
                heard.wait_stalled(1);
                // The message behind it cannot be completed either.
                while begun.load(Ordering::Acquire) < 3 || !link.is_sending() {
                    std::thread::yield_now();
                }
                if both {
                    called_back(&listens, &heard, 2);
                }
                called_back(&dials, &own, 2);
                let error = sends.join().unwrap().kind();
                let expected =
                    if both { io::ErrorKind::NotConnected } else { io::ErrorKind::TimedOut };
                assert_eq!(error, expected);
            });
            called_back(&listens, &heard, 2);
            for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
                gone_back(channel, inbox, 2);
                channel.meet();
            }
            dials.send(0, &user(1, b"fresh")).unwrap();
            assert_eq!(next(&heard, 1), b"fresh");
            assert_eq!(Arc::ptr_eq(&link, &link_of(&dials, 0)), both);
        }
    }

    /// Rank 1 sends more than there is room for, again and again; rank 2 is not held back by that.
    #[test]
    fn a_link_without_room_is_not_read_and_no_other_link_waits_for_it() {
        const BIG: usize = BYTES_MAX / 3;
        const COUNT: u64 = 60;
        let (_listens, at, heard) = of_many(0, 3, None);
        let ((floods, ..), (answers, ..)) = (of_many(1, 3, None), of_many(2, 3, None));
        for channel in [&floods, &answers] {
            channel.connect(&at).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 1..=COUNT {
                    // The frames behind it are small: many of them come with one read.
                    let len = if seq % 3 == 0 { BIG } else { 16 };
                    floods.send(0, &user(seq, &vec![seq as u8; len])).unwrap();
                }
            });
            for seq in 1..=COUNT {
                if seq <= COUNT / 2 {
                    heard.wait_stalled(1);
                }
                for more in [2 * seq - 1, 2 * seq] {
                    answers.send(0, &user(more, &more.to_le_bytes())).unwrap();
                    assert_eq!(next(&heard, 2), more.to_le_bytes());
                }
                let message = next(&heard, 1);
                let len = if seq % 3 == 0 { BIG } else { 16 };
                assert_eq!((message[0], message.len()), (seq as u8, len));
            }
        });
    }

    /// The control thread takes none for a while.
    #[test]
    fn control_frames_without_room_hold_back_their_link_alone() {
        let ((_listens, at, heard), (dials, ..)) = (of_many(0, 3, Some(8)), of_many(1, 3, None));
        let (other, ..) = of_many(2, 3, None);
        for channel in [&dials, &other] {
            channel.connect(&at).unwrap();
        }
        dials.send(0, &Frame::Control { payload: b"{}" }).unwrap();
        dials.send(0, &user(1, b"behind")).unwrap();
        other.send(0, &user(1, b"other")).unwrap();
        assert_eq!(next(&heard, 2), b"other");
        assert_eq!(next(&heard, 1), b"behind");
    }

    #[test]
    fn a_call_back_while_a_channel_opens_is_not_lost() {
        let (channel, _, inbox) = with_inbox(0);
        let opening = channel.ends().unwrap().opening.clone();
        for fence in 2..400 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // At each moment of the opening in turn.
                    let (start, wait) = (Instant::now(), Duration::from_micros(fence));
                    while start.elapsed() < wait {
                        std::hint::spin_loop();
                    }
                    channel.call_back(fence, &BTreeSet::new());
                });
                let before = Opening { fence: fence - 1, ..opening.clone() };
                channel.open(&before).unwrap();
            });
            assert!(lock(&channel.ends().unwrap().links).is_over(), "fence {fence}");
        }
        drop(inbox);
    }

    #[test]
    fn a_link_that_finds_no_reader_is_lost_at_once() {
        let ((_listens, at, _), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        end_reader(&dials);
        dials.reach(0).ok();
        let error = own.take_linked((0, &[]), Class::User, 0).unwrap_err().to_string();
        assert!(error.contains("the thread that reads links has ended"), "{error}");
        assert!(dials.send(0, &user(1, b"")).is_err());
    }

    #[test]
    fn a_link_that_its_reader_drops_is_lost() {
        let ((_listens, at, _), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        dials.reach(0).unwrap();
        own.check(0).unwrap();
        drop(Line::dialled(&dials.ends().unwrap(), &link_of(&dials, 0), 0, 1));
        assert!(matches!(own.check(0), Err(Error::PeerLost { rank: 0, .. })));
    }

    #[test]
    fn a_reader_that_has_ended_is_replaced_when_its_channels_open_again() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        let opening = Opening { fence: 2, ..listens.ends().unwrap().opening.clone() };
        let other = StreamChannel::new(Medium::Unix, Arc::clone(&listens.poller));
        other.open(&opening).unwrap();
        assert!(listens.begin(2));
        end_reader(&listens);
        assert!(!listens.begin(2) && !other.begin(2));
        let addresses = [("tcp".to_owned(), listens.open(&opening).unwrap())].into();
        other.open(&opening).unwrap();
        other.suspend();
        heard.go_back(2, vec![(0, Vec::new()); 2]);
        gone_back(&dials, &own, 2);
        for channel in [&listens, &dials] {
            channel.meet();
        }
        dials.connect(&Endpoint { addresses, ..at }).unwrap();
        dials.send(0, &user(1, b"again")).unwrap();
        assert_eq!(next(&heard, 1), b"again");
        let mail = Arc::clone(&listens.ends().unwrap().mail);
        assert!(!mail.is_over());
        listens.suspend();
        assert!(mail.is_over(), "the last channel ends it");
    }

    /// It has proved itself long before this rank meets the others.
    #[test]
    fn strangers_do_not_turn_away_a_rank_that_waits_for_the_barrier() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
            gone_back(channel, inbox, 2);
        }
        dials.meet();
        dials.connect(&at).unwrap();
        std::thread::scope(|scope| {
            let reaching = scope.spawn(|| dials.reach(0));
            wait_awaited(&listens);
            let connect = |_| TcpStream::connect(&at.addresses["tcp"]).unwrap();
            let mut strangers: Vec<_> = (0..limits::HANDSHAKING_MAX + 4).map(connect).collect();
            strangers[0].set_read_timeout(Some(limits::HELLO_TIMEOUT / 2)).unwrap();
            strangers[0].read_to_end(&mut Vec::new()).unwrap();
            listens.meet();
            reaching.join().unwrap().unwrap();
        });
        assert!(heard.is_linked(1));
    }

    /// Until a rank waits for the barrier at this one.
    fn wait_awaited(channel: &StreamChannel) {
        let ends = channel.ends().unwrap();
        while !lock(&ends.links).is_awaited() {
            std::thread::yield_now();
        }
    }

    /// Its process dials again; the link of before is not the one that counts.
    #[test]
    fn a_rank_that_gives_up_before_the_barrier_is_not_lost() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        for (channel, inbox) in [(&listens, &heard), (&dials, &own)] {
            gone_back(channel, inbox, 2);
        }
        let mut early = TcpStream::connect(&at.addresses["tcp"]).unwrap();
        let mut challenge = [0; CHALLENGE_BYTES];
        early.read_exact(&mut challenge).unwrap();
        let introduction = Introduction { token: at.token, challenge };
        let hello = dials.ends().unwrap().hello(0, 2, random_bytes().unwrap());
        early.write_all(&introduction.seal(Side::Dialer, &hello)).unwrap();
        wait_awaited(&listens);
        drop(early);
        for channel in [&listens, &dials] {
            channel.meet();
        }
        dials.connect(&at).unwrap();
        dials.send(0, &user(1, b"again")).unwrap();
        assert_eq!(next(&heard, 1), b"again");
    }

    /// Each byte comes long before the connection would have been silent for too long.
    #[test]
    fn a_stranger_that_drips_its_hello_is_turned_away_in_time() {
        let (_listens, at) = opened(0);
        let mut stranger = TcpStream::connect(&at.addresses["tcp"]).unwrap();
        let mut challenge = [0; CHALLENGE_BYTES];
        stranger.read_exact(&mut challenge).unwrap();
        let (start, pause) = (Instant::now(), limits::HELLO_TIMEOUT / 20);
        stranger.set_read_timeout(Some(pause)).unwrap();
        let is_open = |stranger: &mut TcpStream| {
            let waited = stranger.read(&mut [0]).map_err(|error| error.kind());
            waited == Err(io::ErrorKind::WouldBlock)
        };
        let dripped = (0..HELLO_BYTES)
            .take_while(|_| stranger.write_all(b"F").is_ok() && is_open(&mut stranger));
        assert!(dripped.count() < HELLO_BYTES / 2);
        assert!(start.elapsed() >= limits::HELLO_TIMEOUT / 2);
    }

    #[test]
    fn a_link_to_a_process_that_was_replaced_or_died_ends() {
        let ((listens, at, heard), (dials, _, own)) = (with_inbox(0), with_inbox(1));
        dials.connect(&at).unwrap();
        dials.reach(0).unwrap();
        called_back(&dials, &own, 2);
        gone_back(&dials, &own, 2);
        dials.forget(0);
        dials.meet();
        let refused = dials.send(0, &user(1, b"")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotConnected, "its address is unknown");
        drop((listens, heard));
        let (replacement, at, heard) = with_inbox(0);
        gone_back(&replacement, &heard, 2);
        replacement.meet();
        dials.connect(&at).unwrap();
        dials.send(0, &user(1, b"fresh")).unwrap();
        assert_eq!(next(&heard, 1), b"fresh");
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
}
