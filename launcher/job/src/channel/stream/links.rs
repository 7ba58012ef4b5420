//! The links of a rank over one channel, and the barrier that they are of.
//!
//! A link outlives a recovery in place: it belongs to the processes at its two ends. After the
//! barrier of the recovery it is used again when both have confirmed it ([`Up::fence`]). A link to
//! a process that was replaced or left out ends.

use super::super::Endpoint;
use super::connection::Connection;
use crate::limits;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

#[derive(Default)]
pub(super) struct Links {
    /// The barrier in which all ranks meet, or have met last.
    fence: u64,
    /// Whether this rank knows that they have.
    met: bool,
    /// The last recovery that this rank was called back for, by the number of its barrier.
    called: u64,
    closed: bool,
    peers: BTreeMap<u32, Endpoint>,
    up: BTreeMap<u32, Up>,
    pub(super) dialling: BTreeSet<u32>,
    /// Dialled but not introduced, by a number of their own.
    pending: BTreeMap<u64, Arc<Connection>>,
    /// Accepted but not introduced: anyone may connect. The oldest has the least number.
    unproved: BTreeMap<u64, Arc<Connection>>,
    number_last: u64,
    pub(super) refused: RefusedConnections,
    readers: Vec<JoinHandle<()>>,
}

/// A link.
struct Up {
    connection: Arc<Connection>,
    /// The barrier since which both sides use it.
    fence: u64,
    /// Kept over a recovery, and the other rank has sent nothing over it since: it may have given
    /// it up.
    is_silent: bool,
    /// Its reader has ended.
    ended: bool,
}

impl Up {
    /// Nothing is lost with it if the other rank has given it up.
    fn is_unused(&self) -> bool {
        self.is_silent && !self.connection.is_used()
    }
}

/// What the end of a connection means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// Nothing: it is not the link to its rank, or not that of this barrier.
    Other,
    /// The other rank may have given it up before either side used it.
    Unused,
    /// The link to its rank has ended.
    Lost,
}

impl Links {
    /// Links of that barrier. `called` is the last recovery that the rank was called back for.
    pub(super) fn new(fence: u64, called: u64) -> Self {
        Self { fence, called, ..Self::default() }
    }

    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether links may be made, confirmed and used.
    pub(super) fn is_open(&self) -> bool {
        self.met && !self.is_over()
    }

    /// Whether this rank makes no links before another barrier.
    pub(super) fn is_over(&self) -> bool {
        self.closed || self.called > self.fence
    }

    /// Whether this rank still waits for what it does since that barrier.
    pub(super) fn goes_on(&self, fence: u64) -> bool {
        self.fence == fence && !self.is_over()
    }

    /// The next barrier; links stay. Nobody dials for it before this rank has entered it.
    pub(super) fn begin(&mut self, fence: u64) {
        self.close_unknown();
        self.fence = fence;
        self.met = false;
        self.up.retain(|_, up| !up.ended);
    }

    /// All ranks have met in the barrier.
    pub(super) fn meet(&mut self) {
        self.met = true;
    }

    /// The rank is called back for the recovery with that barrier: what is not introduced ends. The
    /// rank may be in that barrier already, or beyond it with links to replacements.
    pub(super) fn call_back(&mut self, fence: u64, dead: &BTreeSet<u32>) {
        self.called = self.called.max(fence);
        if self.is_over() {
            self.close_unknown();
        }
        let links = dead.iter().filter_map(|rank| self.up.get(rank));
        for up in links.filter(|up| up.fence < fence) {
            up.connection.socket().close();
        }
    }

    /// No link any more; returns the threads to wait for.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        self.close_unknown();
        self.up.values().for_each(|up| up.connection.socket().close());
        self.up.clear();
        core::mem::take(&mut self.readers)
    }

    fn close_unknown(&mut self) {
        let unknown = self.pending.values().chain(self.unproved.values());
        unknown.for_each(|connection| connection.socket().close());
    }

    /// The peer is at that address. A link to the process at another address ends.
    pub(super) fn know(&mut self, peer: &Endpoint) {
        let rank = peer.rank;
        let before = self.peers.insert(rank, peer.clone());
        let is_kept = self.up.get(&rank).is_some_and(|up| up.fence < self.fence);
        if is_kept && before.is_some_and(|before| before != *peer) {
            self.drop_link(rank);
        }
    }

    /// The process of that rank was replaced or left out.
    pub(super) fn forget(&mut self, rank: u32) {
        self.peers.remove(&rank);
        self.drop_link(rank);
    }

    fn drop_link(&mut self, rank: u32) {
        if let Some(up) = self.up.remove(&rank) {
            up.connection.socket().close();
        }
    }

    pub(super) fn peer(&self, rank: u32) -> Option<&Endpoint> {
        self.peers.get(&rank)
    }

    /// The link to that rank, confirmed or not.
    pub(super) fn any(&self, rank: u32) -> Option<&Arc<Connection>> {
        Some(&self.up.get(&rank)?.connection)
    }

    /// The link to that rank that both sides use since the last barrier.
    pub(super) fn confirmed(&self, rank: u32) -> Option<&Arc<Connection>> {
        let up = self.up.get(&rank)?;
        (up.fence == self.fence).then_some(&up.connection)
    }

    fn own_of(&mut self, rank: u32, connection: &Arc<Connection>) -> Option<&mut Up> {
        self.up.get_mut(&rank).filter(|up| Arc::ptr_eq(&up.connection, connection))
    }

    /// That rank dials since that barrier: it uses no kept link that is not confirmed.
    pub(super) fn dialled(&mut self, rank: u32, fence: u64) {
        if self.goes_on(fence) && self.up.get(&rank).is_some_and(|up| up.fence < fence) {
            self.drop_link(rank);
        }
    }

    /// A new link, dialled by this rank or by the other one. It takes the place of one that is not
    /// confirmed, that has ended, or that the other rank has given up; false if another one counts.
    pub(super) fn add(
        &mut self,
        rank: u32,
        connection: &Arc<Connection>,
        fence: u64,
        own_dial: bool,
    ) -> bool {
        let counts = |up: &Up| up.fence == self.fence && !up.ended && (own_dial || !up.is_unused());
        if !self.is_open() || fence != self.fence || self.up.get(&rank).is_some_and(counts) {
            return false;
        }
        // A rank that is called back from now on keeps it.
        let is_other = |_: &u64, other: &mut Arc<Connection>| !Arc::ptr_eq(other, connection);
        self.pending.retain(is_other);
        self.unproved.retain(is_other);
        self.drop_link(rank);
        let up = Up { connection: Arc::clone(connection), fence, is_silent: false, ended: false };
        self.up.insert(rank, up);
        true
    }

    /// Both sides use this link since that barrier; false if another one counts.
    pub(super) fn confirm(&mut self, rank: u32, connection: &Arc<Connection>, fence: u64) -> bool {
        let is_now = self.is_open() && fence == self.fence;
        let own = self.own_of(rank, connection).filter(|_| is_now);
        let confirms = |up: &mut Up| (up.fence, up.is_silent) = (fence, true);
        own.map(confirms).is_some()
    }

    /// A frame has come over a link that was kept.
    pub(super) fn heard(&mut self, rank: u32, connection: &Arc<Connection>) {
        if let Some(up) = self.own_of(rank, connection) {
            up.is_silent = false;
        }
    }

    /// The other rank does not confirm this link.
    pub(super) fn give_up(&mut self, rank: u32, connection: &Arc<Connection>) {
        if self.own_of(rank, connection).is_some() {
            self.drop_link(rank);
        }
    }

    /// The reader of this connection has ended. A link that is not confirmed or not used leaves room
    /// for another one.
    pub(super) fn ended(&mut self, rank: u32, connection: &Arc<Connection>) -> LinkEnd {
        let fence = self.fence;
        let Some(up) = self.own_of(rank, connection) else { return LinkEnd::Other };
        up.ended = true;
        let end = match up.fence < fence {
            true => LinkEnd::Other,
            false if up.is_unused() => LinkEnd::Unused,
            false => return LinkEnd::Lost,
        };
        self.up.remove(&rank);
        end
    }

    /// Keeps a dialled connection until the other side is known; returns its number.
    pub(super) fn dial(&mut self, connection: &Arc<Connection>) -> u64 {
        self.number_last += 1;
        self.pending.insert(self.number_last, Arc::clone(connection));
        self.number_last
    }

    /// The same for an accepted one. Beyond `room` the oldest one is closed.
    pub(super) fn accept(&mut self, connection: &Arc<Connection>, room: usize) -> Option<u64> {
        if self.closed {
            return None;
        }
        while self.unproved.len() >= room
            && let Some((_, oldest)) = self.unproved.pop_first()
        {
            oldest.socket().close();
        }
        self.number_last += 1;
        self.unproved.insert(self.number_last, Arc::clone(connection));
        Some(self.number_last)
    }

    /// The other side of that connection is known, or it has ended.
    pub(super) fn introduced(&mut self, number: u64) {
        self.pending.remove(&number);
        self.unproved.remove(&number);
    }

    /// Keeps a reader until [`Links::close`] or its end.
    pub(super) fn keep(&mut self, reader: JoinHandle<()>) {
        self.readers.retain(|reader| !reader.is_finished());
        self.readers.push(reader);
    }
}

/// Connections that were refused since the last line of the log.
#[derive(Default)]
pub(super) struct RefusedConnections {
    count: u64,
    logged: Option<Instant>,
}

impl RefusedConnections {
    /// Counts one; how many to log now, if any.
    pub(super) fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let waits = |at: Instant| now.saturating_duration_since(at) < limits::REFUSED_EVERY;
        if self.logged.is_some_and(waits) {
            return None;
        }
        self.logged = Some(now);
        Some(core::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::socket::Socket;
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A rank after barrier 2 whose link to rank 1 was kept, and the other end.
    fn kept() -> (Links, Arc<Connection>, UnixStream) {
        let mut links = Links::new(1, 0);
        let (link, other) = connection();
        links.meet();
        assert!(links.add(1, &link, 1, true));
        links.begin(2);
        links.meet();
        (links, link, other)
    }

    fn connection() -> (Arc<Connection>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Arc::new(Connection::new(Socket::Unix(near))), far)
    }

    #[test]
    fn only_the_link_that_counts_is_lost_with_its_end() {
        let (mut links, old, _far) = kept();
        let (new, _other) = connection();
        assert!(links.add(1, &new, 2, false), "the kept one is not confirmed");
        assert_eq!(links.ended(1, &old), LinkEnd::Other);
        assert!(links.confirmed(1).is_some_and(|link| Arc::ptr_eq(link, &new)));
        assert_eq!(links.ended(1, &new), LinkEnd::Lost);
        let (next, _another) = connection();
        assert!(links.add(1, &next, 2, false), "a rank that has no link dials again");
    }

    /// The other rank has not seen the confirmation in time.
    #[test]
    fn a_confirmed_link_gives_way_to_a_dial_until_it_is_used() {
        let (mut links, link, _far) = kept();
        assert!(links.confirm(1, &link, 2));
        assert!(!links.add(1, &connection().0, 2, true), "this rank has not given it up");
        assert_eq!(links.ended(1, &link), LinkEnd::Unused);
        assert!(links.any(1).is_none());

        let (mut links, link, _far) = kept();
        assert!(links.confirm(1, &link, 2));
        assert!(links.add(1, &connection().0, 2, false));

        let (mut links, link, _far) = kept();
        assert!(links.confirm(1, &link, 2));
        links.heard(1, &link);
        assert!(!links.add(1, &connection().0, 2, false), "the other rank has sent over it");
        assert_eq!(links.ended(1, &link), LinkEnd::Lost);
    }

    #[test]
    fn a_late_call_back_ends_links_to_the_dead_and_not_to_their_replacements() {
        let (mut links, link, mut far) = kept();
        far.set_nonblocking(true).unwrap();
        let mut byte = [0];
        let open = std::io::Read::read(&mut far, &mut byte).unwrap_err();
        assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
        links.call_back(2, &BTreeSet::from([1]));
        assert_eq!(std::io::Read::read(&mut far, &mut byte).unwrap(), 0);
        assert_eq!(links.ended(1, &link), LinkEnd::Other);
        let (new, mut other) = connection();
        assert!(links.add(1, &new, 2, false));
        other.set_nonblocking(true).unwrap();
        links.call_back(2, &BTreeSet::from([1]));
        let open = std::io::Read::read(&mut other, &mut byte).unwrap_err();
        assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn refused_connections_are_logged_at_once_and_then_once_a_minute() {
        let (mut refused, start) = (RefusedConnections::default(), Instant::now());
        let at = |part: u32| start + limits::REFUSED_EVERY / 4 * part;
        let logged = [0, 1, 2, 4, 5].map(|part| refused.count(at(part)));
        assert_eq!(logged, [Some(1), None, None, Some(3), None]);
    }
}
