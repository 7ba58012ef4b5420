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
    /// The poller waits for another state of the barrier.
    awaited: bool,
    peers: BTreeMap<u32, Endpoint>,
    up: BTreeMap<u32, Up>,
    pub(super) dialling: BTreeSet<u32>,
    /// Not introduced: dialled, or accepted of a rank that is proved. By a number of their own.
    pending: BTreeMap<u64, Arc<Connection>>,
    /// Accepted and not proved: anyone may connect. The oldest has the least number.
    unproved: BTreeMap<u64, Unproved>,
    number_last: u64,
    pub(super) refused: RefusedConnections,
}

struct Unproved {
    connection: Arc<Connection>,
    since: Instant,
}

/// A link.
struct Up {
    connection: Arc<Connection>,
    /// The barrier since which both sides use it.
    fence: u64,
    /// Its reader has ended.
    ended: bool,
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

    /// Whether what this rank sends of that barrier may still count.
    pub(super) fn goes_on(&self, fence: u64) -> bool {
        self.fence == fence && !self.is_over()
    }

    /// The next barrier; links stay.
    pub(super) fn begin(&mut self, fence: u64) {
        self.fence = fence;
        self.met = false;
        self.up.retain(|_, up| !up.ended);
    }

    /// All ranks have met in the barrier.
    pub(super) fn meet(&mut self) {
        self.met = true;
    }

    /// The rank is called back for the recovery with that barrier: what is not introduced ends, and
    /// links to the dead. The rank may have begun that barrier already: what is of it stays.
    pub(super) fn call_back(&mut self, fence: u64, dead: &BTreeSet<u32>) {
        self.called = self.called.max(fence);
        if self.is_over() {
            self.close_unknown();
        }
        let to_dead = dead.iter().filter_map(|rank| self.up.get(rank));
        for up in to_dead.filter(|up| up.fence < fence) {
            up.connection.socket().close();
        }
    }

    /// No link any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.close_unknown();
        self.up.values().for_each(|up| up.connection.socket().close());
        self.up.clear();
    }

    /// Whether this rank knows that all have met in that barrier; false if they have not, or meet
    /// in another one, `None` if that shows later: [`Links::take_awaited`] is true then.
    pub(super) fn met(&mut self, fence: u64) -> Option<bool> {
        let is_now = self.fence == fence;
        if is_now && !self.met && !self.is_over() {
            self.awaited = true;
            return None;
        }
        Some(is_now && self.is_open())
    }

    /// Whether [`Links::met`] was asked too early since the last call.
    pub(super) fn take_awaited(&mut self) -> bool {
        core::mem::take(&mut self.awaited)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    fn close_unknown(&mut self) {
        let unproved = self.unproved.values().map(|unproved| &unproved.connection);
        let unknown = self.pending.values().chain(unproved);
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

    /// A new link, in place of one that is not confirmed; false if another one counts.
    pub(super) fn add(&mut self, rank: u32, connection: &Arc<Connection>, fence: u64) -> bool {
        if !self.is_open() || fence != self.fence || self.confirmed(rank).is_some() {
            return false;
        }
        // A rank that is called back from now on keeps it.
        self.pending.retain(|_, other| !Arc::ptr_eq(other, connection));
        self.drop_link(rank);
        let up = Up { connection: Arc::clone(connection), fence, ended: false };
        self.up.insert(rank, up);
        true
    }

    /// Both sides use this link since that barrier; false if another one counts.
    pub(super) fn confirm(&mut self, rank: u32, connection: &Arc<Connection>, fence: u64) -> bool {
        let is_now = self.is_open() && fence == self.fence;
        let own = self.own_of(rank, connection).filter(|_| is_now);
        own.map(|up| up.fence = fence).is_some()
    }

    /// That rank dials in that barrier: what is not confirmed will not be.
    pub(super) fn dialled(&mut self, rank: u32, fence: u64) {
        if fence == self.fence && self.confirmed(rank).is_none() {
            self.drop_link(rank);
        }
    }

    /// The other rank does not confirm this link.
    pub(super) fn give_up(&mut self, rank: u32, connection: &Arc<Connection>) {
        if self.own_of(rank, connection).is_some() {
            self.drop_link(rank);
        }
    }

    /// The reader of this link has ended; whether both sides have used it since the last barrier.
    /// One that they have not leaves room for another one.
    pub(super) fn ended(&mut self, rank: u32, connection: &Arc<Connection>) -> bool {
        let fence = self.fence;
        let Some(up) = self.own_of(rank, connection) else { return false };
        up.ended = true;
        let is_confirmed = up.fence == fence;
        if !is_confirmed {
            self.up.remove(&rank);
        }
        is_confirmed
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
        let since = Instant::now();
        while self.unproved.len() >= room && self.turn_away(since) {}
        self.number_last += 1;
        let connection = Arc::clone(connection);
        self.unproved.insert(self.number_last, Unproved { connection, since });
        Some(self.number_last)
    }

    /// Closes the oldest connection that anyone may have made, if it is of before that time;
    /// whether there was one.
    pub(super) fn turn_away(&mut self, before: Instant) -> bool {
        let Some(oldest) = self.unproved.first_entry().filter(|o| o.get().since <= before) else {
            return false;
        };
        oldest.remove().connection.socket().close();
        true
    }

    /// A rank has made that connection: it is not turned away any more.
    pub(super) fn prove(&mut self, number: u64) {
        let proved = self.unproved.remove(&number);
        self.pending.extend(proved.map(|proved| (number, proved.connection)));
    }

    /// A rank waits for the barrier.
    #[cfg(test)]
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// The other side of that connection is known, or it has ended.
    pub(super) fn introduced(&mut self, number: u64) {
        self.pending.remove(&number);
        self.unproved.remove(&number);
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
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    /// A link of that barrier to rank 0, and its other end.
    fn linked(links: &mut Links, fence: u64) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        assert!(links.add(0, &Arc::new(Connection::new(Socket::Unix(near))), fence));
        far
    }

    #[test]
    fn a_call_back_that_comes_after_its_barrier_has_begun_ends_what_is_of_before() {
        let mut links = Links::new(1, 0);
        links.meet();
        let mut before = linked(&mut links, 1);
        links.begin(2);
        assert!(!links.goes_on(1), "a blocked send of before ends");
        links.call_back(2, &[0].into());
        assert_eq!(before.read(&mut [0]).unwrap(), 0, "it is closed");
        links.meet();
        // The process that replaces the dead one.
        let mut fresh = linked(&mut links, 2);
        links.call_back(2, &[0].into());
        assert_eq!(fresh.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(links.goes_on(2));
    }

    #[test]
    fn refused_connections_are_logged_at_once_and_then_once_a_minute() {
        let (mut refused, start) = (RefusedConnections::default(), Instant::now());
        let at = |part: u32| start + limits::REFUSED_EVERY / 4 * part;
        let logged = [0, 1, 2, 4, 5].map(|part| refused.count(at(part)));
        assert_eq!(logged, [Some(1), None, None, Some(3), None]);
    }
}
