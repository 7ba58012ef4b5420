//! What has come in from the other ranks and was not taken yet: the thesis' temporary receive queue
//! (section 2.2), in use all the time.
//!
//! Responsible for matching, for the order and the completeness of each pair's messages, for the mark
//! that a suspension sets in them, for the bound of each peer's bytes, and for knowing who is gone. Not
//! responsible for reading sockets: channels bring what they have read.

use crate::error::{Error, Result};
use crate::frame::{Class, Incoming};
use crate::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a waiting message costs beside its payload: the bound is one of memory.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub class: Class,
    pub tag: u32,
    pub seq: u64,
    pub payload: Vec<u8>,
}

/// Receives the payloads of control frames: `(from, payload)`.
pub(crate) type ControlSink = Box<dyn Fn(u32, Vec<u8>) + Send + Sync>;

/// The receiving side of a rank. Channels hold it and bring what comes.
pub struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    control: ControlSink,
    bytes_max: usize,
}

/// The launcher has called this rank back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recall {
    /// In this episode.
    pub episode: u64,
    /// To its own image of this set.
    pub set: String,
}

struct State {
    peers: Vec<Peer>,
    /// From then on nothing of now counts, and every call says so.
    recall: Option<Recall>,
    /// The bound does not hold back what is in flight while channels are drained or closed.
    unbounded: bool,
}

#[derive(Default)]
struct Peer {
    /// By class and tag, so that one who waits for one of them does not search the others.
    queues: BTreeMap<(Class, u32), VecDeque<Message>>,
    bytes: usize,
    received: u64,
    /// The last message before the suspension that is going on.
    cut: Option<u64>,
    suspended: bool,
    /// Its reader waits for room.
    stalled: bool,
    link: Link,
}

#[derive(Default, PartialEq, Eq)]
enum Link {
    /// Not connected yet, or torn down on purpose.
    #[default]
    Down,
    Up,
    /// Ended after a suspend: right before a tear-down, a loss otherwise.
    Ended,
    Lost(String),
    Finished,
}

impl Inbox {
    pub(crate) fn new(size: u32, bytes_max: usize, control: ControlSink) -> Self {
        Self {
            state: Mutex::new(State {
                peers: (0..size).map(|_| Peer::default()).collect(),
                recall: None,
                unbounded: false,
            }),
            changed: Condvar::new(),
            control,
            bytes_max,
        }
    }

    /// The rank is called back: whoever waits here is told.
    pub(crate) fn call_back(&self, recall: Recall) {
        lock(&self.state).recall = Some(recall);
        self.changed.notify_all();
    }

    /// Where to, when it is called back.
    pub(crate) fn recall(&self) -> Option<Recall> {
        lock(&self.state).recall.clone()
    }

    /// Fails where the rank is called back.
    pub(crate) fn check_recall(&self) -> Result<()> {
        lock(&self.state).check_recall()
    }

    /// Waits until the rank is called back; false when the time is over.
    pub(crate) fn wait_recall(&self, timeout: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, timeout, |s| s.recall.is_none());
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0.recall.is_some()
    }

    /// Everything is as in an image, what [`Inbox::snapshot`] gave, and the recall is over. No channel uses the
    /// inbox at that time.
    pub(crate) fn go_back(&self, peers: Vec<(u64, Vec<Message>)>) {
        let mut state = lock(&self.state);
        state.peers.iter_mut().for_each(|peer| *peer = Peer::default());
        state.recall = None;
        state.unbounded = false;
        drop(state);
        self.restore(peers);
    }

    /// A link to that rank is there.
    pub fn link_up(&self, from: u32) {
        self.with_peer(from, |peer| {
            peer.link = Link::Up;
            peer.suspended = false;
        });
    }

    /// Takes a frame from that rank's link. Blocks while the peer's bytes are at their bound.
    ///
    /// # Errors
    /// What is wrong with a frame that must not come now; the link must be closed.
    pub fn accept(&self, from: u32, frame: Incoming) -> Result<(), String> {
        match frame {
            Incoming::Data { class, tag, seq, payload } => {
                self.accept_message(from, Message { class, tag, seq, payload })
            }
            Incoming::Suspend { seq } => self.mark(from, seq),
            Incoming::Resume => {
                self.with_peer(from, |peer| peer.suspended = false);
                Ok(())
            }
            Incoming::Control { payload } => {
                (self.control)(from, payload);
                Ok(())
            }
            Incoming::Goodbye => {
                self.with_peer(from, |peer| peer.link = Link::Finished);
                Ok(())
            }
        }
    }

    /// That rank's link has ended, with what was wrong where something was.
    pub fn link_ended(&self, from: u32, problem: Option<String>) {
        self.with_peer(from, |peer| match (&peer.link, problem) {
            (Link::Finished | Link::Down | Link::Lost(_) | Link::Ended, _) => {}
            (Link::Up, None) if peer.suspended => peer.link = Link::Ended,
            (Link::Up, problem) => {
                let closed = || "its connection was closed".to_owned();
                peer.link = Link::Lost(problem.unwrap_or_else(closed));
            }
        });
    }

    /// The first message from that rank with that class and tag, waiting for it.
    pub(crate) fn take(&self, from: u32, class: Class, tag: u32) -> Result<Vec<u8>> {
        let mut state = lock(&self.state);
        loop {
            state.check_recall()?;
            let peer = &mut state.peers[from as usize];
            if let Some(payload) = peer.pop(class, tag) {
                if peer.stalled {
                    self.changed.notify_all();
                }
                return Ok(payload);
            }
            if peer.stalled {
                return Err(Error::ReceiveQueueFull {
                    rank: from,
                    bytes: peer.bytes,
                    max: self.bytes_max,
                });
            }
            peer.check(from)?;
            state = self.wait(state);
        }
    }

    /// A message of this rank to itself.
    pub(crate) fn push_own(&self, rank: u32, message: Message) -> Result<()> {
        let mut state = lock(&self.state);
        let peer = &mut state.peers[rank as usize];
        if peer.is_full(message.payload.len(), self.bytes_max) {
            return Err(Error::ReceiveQueueFull { rank, bytes: peer.bytes, max: self.bytes_max });
        }
        peer.received = message.seq;
        peer.push(message);
        self.changed.notify_all();
        Ok(())
    }

    /// From now on what is in flight comes in whatever the bound says.
    pub(crate) fn lift_bound(&self) {
        lock(&self.state).unbounded = true;
        self.changed.notify_all();
    }

    /// Waits until every other rank has sent its suspend: nothing is in flight any more.
    pub(crate) fn wait_drained(&self, own: u32) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            state.check_recall()?;
            let peers = || (0_u32..).zip(&state.peers).filter(|(rank, _)| *rank != own);
            if peers().all(|(_, peer)| peer.cut.is_some()) {
                return Ok(());
            }
            for (rank, peer) in peers().filter(|(_, peer)| peer.cut.is_none()) {
                peer.check(rank)?;
            }
            state = self.wait(state);
        }
    }

    /// What belongs to an image: the messages that wait from each rank up to its suspend, and the
    /// numbers of the last ones.
    pub(crate) fn snapshot(&self) -> Vec<(u64, Vec<Message>)> {
        let state = lock(&self.state);
        let peers = state.peers.iter().map(|peer| {
            let cut = peer.cut.unwrap_or(peer.received);
            let messages = peer.queues.values().flatten();
            let before = messages.filter(|message| message.seq <= cut).cloned();
            (cut, before.collect())
        });
        peers.collect()
    }

    /// Puts back what [`Inbox::snapshot`] gave, into a new inbox.
    pub(crate) fn restore(&self, peers: Vec<(u64, Vec<Message>)>) {
        let mut state = lock(&self.state);
        for (peer, (received, messages)) in state.peers.iter_mut().zip(peers) {
            peer.received = received;
            messages.into_iter().for_each(|message| peer.push(message));
        }
    }

    /// The links are being torn down, on purpose.
    pub(crate) fn links_down(&self) {
        let mut state = lock(&self.state);
        for peer in &mut state.peers {
            if !matches!(peer.link, Link::Finished) {
                peer.link = Link::Down;
            }
        }
        self.changed.notify_all();
    }

    /// The suspension is over; the bound holds again.
    pub(crate) fn end_suspension(&self) {
        let mut state = lock(&self.state);
        state.unbounded = false;
        for peer in &mut state.peers {
            peer.cut = None;
            if peer.link == Link::Ended {
                peer.link = Link::Lost("it ended while its channel was suspended".to_owned());
            }
        }
        self.changed.notify_all();
    }

    /// How many messages have come from that rank in the job's life.
    pub fn received(&self, from: u32) -> u64 {
        lock(&self.state).peers[from as usize].received
    }

    /// Fails where that rank is lost or has finalized.
    pub(crate) fn check(&self, rank: u32) -> Result<()> {
        lock(&self.state).peers[rank as usize].check(rank)
    }

    /// Fails where any rank is lost.
    pub(crate) fn check_all(&self) -> Result<()> {
        let state = lock(&self.state);
        let lost = |(rank, peer): (u32, &Peer)| match peer.check(rank) {
            Err(error @ Error::PeerLost { .. }) => Err(error),
            _ => Ok(()),
        };
        (0_u32..).zip(&state.peers).try_for_each(lost)
    }

    /// Waits until every other rank has said goodbye.
    pub(crate) fn wait_finished(&self, own: u32) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            let mut all = true;
            for (rank, peer) in (0_u32..).zip(&state.peers).filter(|(rank, _)| *rank != own) {
                match peer.check(rank) {
                    Err(Error::PeerFinished { .. }) => {}
                    Err(error) => return Err(error),
                    Ok(()) => all = false,
                }
            }
            if all {
                return Ok(());
            }
            state = self.wait(state);
        }
    }

    /// Waits until every one of those ranks has a link.
    ///
    /// # Errors
    /// The ranks that have none when the time is over, or that are lost.
    pub fn wait_links(&self, peers: &[u32], timeout: Duration) -> Result<(), Vec<u32>> {
        let deadline = Instant::now() + timeout;
        let mut state = lock(&self.state);
        loop {
            let is_missing = |rank: &&u32| state.peers[**rank as usize].link == Link::Down;
            let missing: Vec<u32> = peers.iter().filter(is_missing).copied().collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if missing.is_empty() {
                return Ok(());
            }
            if left.is_zero() {
                return Err(missing);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn accept_message(&self, from: u32, message: Message) -> Result<(), String> {
        let mut state = lock(&self.state);
        loop {
            if state.recall.is_some() {
                return Err("this rank goes back to its last set".to_owned());
            }
            let unbounded = state.unbounded;
            let peer = &mut state.peers[from as usize];
            if peer.suspended || message.seq != peer.received + 1 {
                return Err(format!(
                    "message {} came after message {}{}",
                    message.seq,
                    peer.received,
                    if peer.suspended { " and a suspend" } else { "" }
                ));
            }
            peer.stalled = !unbounded && peer.is_full(message.payload.len(), self.bytes_max);
            if !peer.stalled {
                peer.received = message.seq;
                peer.push(message);
                self.changed.notify_all();
                return Ok(());
            }
            // A receiver that waits for another tag must learn that it waits in vain.
            self.changed.notify_all();
            state = self.wait(state);
        }
    }

    fn mark(&self, from: u32, seq: u64) -> Result<(), String> {
        let mut state = lock(&self.state);
        let peer = &mut state.peers[from as usize];
        if peer.suspended || seq != peer.received {
            return Err(format!("a suspend after message {seq}, but {} have come", peer.received));
        }
        peer.suspended = true;
        peer.cut = Some(seq);
        self.changed.notify_all();
        Ok(())
    }

    fn with_peer(&self, rank: u32, change: impl FnOnce(&mut Peer)) {
        change(&mut lock(&self.state).peers[rank as usize]);
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    fn check_recall(&self) -> Result<()> {
        if self.recall.is_some() { Err(Error::RolledBack) } else { Ok(()) }
    }
}

impl Peer {
    /// A single message may be larger than the bound: it is taken when it is alone.
    fn is_full(&self, bytes: usize, bytes_max: usize) -> bool {
        self.bytes > 0 && self.bytes + bytes + MESSAGE_OVERHEAD_BYTES > bytes_max
    }

    fn push(&mut self, message: Message) {
        self.bytes += message.payload.len() + MESSAGE_OVERHEAD_BYTES;
        let queue = self.queues.entry((message.class, message.tag));
        queue.or_default().push_back(message);
    }

    fn pop(&mut self, class: Class, tag: u32) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(&(class, tag))?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&(class, tag));
        }
        let payload = message?.payload;
        self.bytes -= payload.len() + MESSAGE_OVERHEAD_BYTES;
        Some(payload)
    }

    fn check(&self, rank: u32) -> Result<()> {
        match &self.link {
            Link::Lost(reason) => Err(Error::PeerLost { rank, reason: reason.clone() }),
            Link::Finished => Err(Error::PeerFinished { rank }),
            Link::Down | Link::Up | Link::Ended => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    fn inbox(bytes_max: usize) -> Arc<Inbox> {
        let inbox = Inbox::new(3, bytes_max, Box::new(|_, _| ()));
        inbox.link_up(1);
        inbox.link_up(2);
        Arc::new(inbox)
    }

    fn data(tag: u32, seq: u64, bytes: usize) -> Incoming {
        Incoming::Data { class: Class::User, tag, seq, payload: vec![seq as u8; bytes] }
    }

    #[test]
    fn messages_match_by_tag_and_keep_their_order() {
        let inbox = inbox(1000);
        for (tag, seq) in [(7, 1), (8, 2), (7, 3)] {
            inbox.accept(1, data(tag, seq, 1)).unwrap();
        }
        assert_eq!(inbox.take(1, Class::User, 8).unwrap(), [2]);
        assert_eq!(inbox.take(1, Class::User, 7).unwrap(), [1]);
        assert_eq!(inbox.take(1, Class::User, 7).unwrap(), [3]);
    }

    #[test]
    fn a_lost_or_doubled_message_is_found() {
        let inbox = inbox(1000);
        inbox.accept(1, data(0, 1, 1)).unwrap();
        assert!(inbox.accept(1, data(0, 1, 1)).is_err());
        assert!(inbox.accept(1, data(0, 3, 1)).is_err());
        assert!(inbox.accept(1, Incoming::Suspend { seq: 2 }).is_err());
        inbox.accept(1, Incoming::Suspend { seq: 1 }).unwrap();
        assert!(inbox.accept(1, data(0, 2, 1)).is_err());
    }

    /// A fast peer may have resumed before this rank has written its image.
    #[test]
    fn what_comes_after_the_suspend_is_not_in_the_snapshot() {
        let inbox = inbox(1000);
        inbox.accept(1, data(0, 1, 1)).unwrap();
        inbox.accept(1, Incoming::Suspend { seq: 1 }).unwrap();
        inbox.accept(1, Incoming::Resume).unwrap();
        inbox.accept(1, data(0, 2, 1)).unwrap();
        inbox.accept(2, Incoming::Suspend { seq: 0 }).unwrap();
        inbox.wait_drained(0).unwrap();
        let snapshot = inbox.snapshot();
        assert_eq!((snapshot[1].0, snapshot[1].1.len()), (1, 1));

        let restored = super::tests::inbox(1000);
        restored.restore(snapshot);
        restored.accept(1, data(0, 2, 1)).unwrap();
        assert_eq!(restored.take(1, Class::User, 0).unwrap(), [1]);
    }

    #[test]
    fn a_full_queue_holds_the_peer_back_and_a_hopeless_receive_fails() {
        let inbox = inbox(200);
        inbox.accept(1, data(7, 1, 90)).unwrap();
        let reader = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || inbox.accept(1, data(8, 2, 90)))
        };
        let error = inbox.take(1, Class::User, 8).unwrap_err();
        assert!(matches!(error, Error::ReceiveQueueFull { rank: 1, .. }));
        assert_eq!(inbox.take(1, Class::User, 7).unwrap().len(), 90);
        reader.join().unwrap().unwrap();
        assert_eq!(inbox.take(1, Class::User, 8).unwrap().len(), 90);
    }

    #[test]
    fn a_drain_takes_everything_in_flight_whatever_the_bound_says() {
        let inbox = inbox(100);
        inbox.lift_bound();
        for seq in 1..=5 {
            inbox.accept(1, data(0, seq, 90)).unwrap();
        }
        inbox.accept(1, Incoming::Suspend { seq: 5 }).unwrap();
        assert_eq!(inbox.snapshot()[1].1.len(), 5);
    }

    #[test]
    fn a_peer_is_lost_finished_or_torn_down_and_these_differ() {
        let inbox = inbox(1000);
        inbox.link_ended(1, None);
        let lost = inbox.take(1, Class::User, 0).unwrap_err();
        assert!(matches!(lost, Error::PeerLost { rank: 1, .. }));
        inbox.accept(2, Incoming::Goodbye).unwrap();
        inbox.link_ended(2, None);
        let finished = inbox.take(2, Class::User, 0).unwrap_err();
        assert!(matches!(finished, Error::PeerFinished { rank: 2 }));

        let inbox = super::tests::inbox(1000);
        inbox.accept(1, Incoming::Suspend { seq: 0 }).unwrap();
        inbox.link_ended(1, None);
        assert!(inbox.check_all().is_ok(), "torn down after a suspend");
        inbox.end_suspension();
        assert!(inbox.check_all().is_err(), "but it never came back");
    }
}
