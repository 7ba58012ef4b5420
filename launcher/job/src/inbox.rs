//! Received messages that the program has not taken: the thesis' temporary receive queue (section
//! 2.2), always in use.
//!
//! Responsible for matching, for order and completeness of each pair's messages, for the cut of a
//! suspension, for the limit of each peer's bytes, and for lost peers. Not responsible for sockets:
//! channels deliver what they read.

mod living;
mod posted;

use crate::error::{Error, Result};
use crate::frame::{Class, Incoming};
use crate::{limits, lock};
use living::Revocations;
pub(crate) use posted::{Matched, Pattern, Waited};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Memory of a waiting message beside its payload; the limit is one of memory.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub class: Class,
    pub tag: u32,
    pub seq: u64,
    pub payload: Vec<u8>,
}

/// Receives the payloads of control frames: `(from, payload)`. It does not wait: without room it
/// gives the payload back.
pub(crate) type ControlSink = Box<dyn Fn(u32, Vec<u8>) -> Option<Vec<u8>> + Send + Sync>;

/// Called once, when there may be room for what did not fit. It runs under the lock of the inbox.
pub(crate) type RoomCall = Box<dyn FnOnce() + Send>;

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It was taken, or dropped.
    Taken,
    /// The peer's bytes are at their bound. A [`RoomCall`] follows.
    Full(Incoming),
    /// Too many control frames wait. No call follows.
    Busy(Incoming),
}

/// The receiving side of a rank; channels deliver into it.
pub struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
    control: ControlSink,
    bytes_max: usize,
}

/// The launcher requests that this rank goes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recall {
    /// In this episode.
    pub episode: u64,
    /// To its own image of this set.
    pub set: String,
    /// Ranks are left out: the program must divide its state anew.
    pub divides: bool,
}

struct InboxState {
    peers: Vec<Peer>,
    /// The last barrier: what links have from before it is dropped.
    fence: u64,
    /// From then on every call fails with it.
    recall: Option<Recall>,
    /// The limit does not apply while channels are drained or closed.
    unbounded: bool,
    /// Channels are being drained: the end of a complete link is not a loss.
    draining: bool,
    /// All ranks are at their end: the end of a link is not a loss.
    finishing: bool,
    revocations: Revocations,
}

#[derive(Default)]
struct Peer {
    /// By class and tag, so that a search is short.
    queues: BTreeMap<(Class, u32), VecDeque<Message>>,
    bytes: usize,
    received: u64,
    /// The last message before the open suspension.
    cut: Option<u64>,
    /// A message of it waits for room.
    stalled: bool,
    /// Its reader does something else until then.
    room: Option<RoomCall>,
    link: Link,
    /// The launcher says that it is dead.
    is_dead: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Link {
    /// Not connected: no message yet, or torn down on purpose.
    #[default]
    Down,
    Up,
    /// Ended while channels were drained: correct before a tear-down, otherwise a loss.
    Ended,
    Lost(String),
    Finished,
}

impl Inbox {
    pub(crate) fn new(size: u32, bytes_max: usize, control: ControlSink) -> Self {
        Self {
            state: Mutex::new(InboxState {
                peers: (0..size).map(|_| Peer::default()).collect(),
                fence: 0,
                recall: None,
                unbounded: false,
                draining: false,
                finishing: false,
                revocations: Revocations::default(),
            }),
            changed: Condvar::new(),
            control,
            bytes_max,
        }
    }

    /// The rank must go back: every waiting call returns.
    pub(crate) fn call_back(&self, recall: Recall) {
        let mut state = lock(&self.state);
        state.recall = Some(recall);
        state.call_room();
        self.changed.notify_all();
    }

    /// The request to go back, if any.
    pub(crate) fn recall(&self) -> Option<Recall> {
        lock(&self.state).recall.clone()
    }

    /// Fails if the rank must go back.
    pub(crate) fn check_recall(&self) -> Result<()> {
        lock(&self.state).check_recall()
    }

    /// Waits until the rank must go back; false after `timeout`.
    pub(crate) fn wait_recall(&self, timeout: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, timeout, |s| s.recall.is_none());
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0.recall.is_some()
    }

    /// From now on only what links have from that barrier counts.
    pub(crate) fn begin(&self, fence: u64) {
        let mut state = lock(&self.state);
        state.fence = fence;
        state.call_room();
    }

    /// Restores what [`Inbox::snapshot`] returned and ends recalls up to this episode; a later one
    /// stays. Nothing counts that links have from before the barrier of this episode.
    pub(crate) fn go_back(&self, episode: u64, peers: Vec<(u64, Vec<Message>)>) {
        let mut state = lock(&self.state);
        state.fence = episode;
        state.call_room();
        state.peers.iter_mut().for_each(|peer| *peer = Peer::default());
        state.recall.take_if(|recall| recall.episode <= episode);
        state.unbounded = false;
        state.draining = false;
        drop(state);
        self.restore(peers);
    }

    /// A link to that rank is there, of that barrier.
    pub fn link_up(&self, from: u32, fence: u64) {
        self.with_peer(from, fence, |peer| peer.link = Link::Up);
    }

    /// Takes a frame from that rank's link, of that barrier. Drops it if it is of an earlier one,
    /// or if this rank goes back. Blocks while the peer's bytes are at their bound.
    ///
    /// # Errors
    /// What is wrong with a frame that must not come now; the link must be closed.
    pub fn accept(&self, from: u32, fence: u64, frame: Incoming) -> Result<(), String> {
        let mut frame = frame;
        loop {
            let mut state = lock(&self.state);
            let offered = self.try_frame(&mut state, from, fence, frame)?;
            // A receiver of another tag must learn that no message can come.
            self.changed.notify_all();
            frame = match offered {
                Offered::Taken => return Ok(()),
                Offered::Full(frame) => {
                    drop(self.wait(state));
                    frame
                }
                Offered::Busy(frame) => {
                    // The control thread says nothing when it has taken one.
                    drop(self.changed.wait_timeout(state, limits::SEND_CHECK));
                    frame
                }
            };
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As [`Inbox::accept`].
    pub(crate) fn offer(
        &self,
        from: u32,
        fence: u64,
        frame: Incoming,
        room: &dyn Fn() -> RoomCall,
    ) -> Result<Offered, String> {
        let mut state = lock(&self.state);
        let offered = self.try_frame(&mut state, from, fence, frame)?;
        if matches!(offered, Offered::Full(_)) {
            state.peers[from as usize].room = Some(room());
        }
        drop(state);
        // A receiver of another tag must learn that no message can come.
        self.changed.notify_all();
        Ok(offered)
    }

    /// The caller notifies those that wait.
    fn try_frame(
        &self,
        state: &mut InboxState,
        from: u32,
        fence: u64,
        frame: Incoming,
    ) -> Result<Offered, String> {
        match frame {
            Incoming::Renewal { .. } => return Err("a renewal is for the channel".to_owned()),
            _ if !state.counts(fence) => {}
            Incoming::Data { class, tag, seq, payload } => {
                return self.try_message(state, from, Message { class, tag, seq, payload });
            }
            Incoming::Control { payload } => {
                if let Some(payload) = (self.control)(from, payload) {
                    return Ok(Offered::Busy(Incoming::Control { payload }));
                }
            }
            Incoming::Goodbye => {
                state.peers[from as usize].link = Link::Finished;
            }
        }
        Ok(Offered::Taken)
    }

    /// That rank's link has ended, with the problem, if any. It was of that barrier.
    pub fn link_ended(&self, from: u32, fence: u64, problem: Option<String>) {
        let mut state = lock(&self.state);
        if state.fence != fence {
            return;
        }
        let (draining, finishing) = (state.draining, state.finishing);
        let peer = &mut state.peers[from as usize];
        peer.forget_reader();
        if peer.link == Link::Up {
            let closed = || "its connection was closed".to_owned();
            peer.link = match problem {
                _ if finishing => Link::Finished,
                _ if draining => Link::Ended,
                problem => Link::Lost(problem.unwrap_or_else(closed)),
            };
        }
        self.changed.notify_all();
    }

    /// Waits for the first message from that rank with that class and tag; `None` if there was no
    /// link to detect its end for `UNLINKED_MAX`. It fails if one of the `involved` ranks is lost.
    pub(crate) fn take(
        &self,
        (from, involved): (u32, &[u32]),
        class: Class,
        tag: u32,
        unlinked_max: Duration,
    ) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + unlinked_max;
        let mut state = lock(&self.state);
        loop {
            if let Some(payload) = self.try_take(&mut state, (from, involved), class, tag)? {
                return Ok(Some(payload));
            }
            if state.peers[from as usize].link != Link::Down {
                state = self.wait(state);
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Waits until that rank's reader waits for room.
    #[cfg(test)]
    pub(crate) fn wait_stalled(&self, from: u32) {
        let mut state = lock(&self.state);
        while !state.peers[from as usize].stalled {
            state = self.wait(state);
        }
    }

    /// The same, where there is a link.
    pub(crate) fn take_linked(
        &self,
        (from, involved): (u32, &[u32]),
        class: Class,
        tag: u32,
    ) -> Result<Vec<u8>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(payload) = self.try_take(&mut state, (from, involved), class, tag)? {
                return Ok(payload);
            }
            state = self.wait(state);
        }
    }

    fn try_take(
        &self,
        state: &mut InboxState,
        (from, involved): (u32, &[u32]),
        class: Class,
        tag: u32,
    ) -> Result<Option<Vec<u8>>> {
        state.check_recall()?;
        state.revocations.check(class)?;
        let peer = &mut state.peers[from as usize];
        let stalled = peer.stalled;
        if let Some(Message { payload, .. }) = peer.pop(class, tag) {
            if stalled {
                self.changed.notify_all();
            }
            return Ok(Some(payload));
        }
        if peer.stalled {
            let (bytes, max) = (peer.bytes, self.bytes_max);
            return Err(Error::ReceiveQueueFull { rank: from, bytes, max });
        }
        peer.check(from)?;
        state.check_living(involved)?;
        Ok(None)
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

    /// Suspends the limit for messages in flight.
    pub(crate) fn lift_bound(&self) {
        let mut state = lock(&self.state);
        state.unbounded = true;
        state.call_room();
        self.changed.notify_all();
    }

    /// Channels are about to be drained.
    pub(crate) fn begin_drain(&self) {
        let mut state = lock(&self.state);
        state.unbounded = true;
        state.draining = true;
        state.call_room();
        self.changed.notify_all();
    }

    /// Waits until these numbers of messages have arrived from each rank, 0 from others: nothing is
    /// in flight, and this is the cut.
    pub(crate) fn wait_drained(&self, own: u32, expected: &[(u32, u64)]) -> Result<()> {
        let mut state = lock(&self.state);
        for (rank, peer) in (0..).zip(&mut state.peers).filter(|(rank, _)| *rank != own) {
            let named = expected.iter().find(|(from, _)| *from == rank);
            peer.cut = Some(named.map_or(0, |(_, count)| *count));
        }
        loop {
            state.check_recall()?;
            let missing =
                |(_, peer): &(u32, &Peer)| peer.cut.is_some_and(|cut| peer.received < cut);
            let mut behind = (0_u32..).zip(&state.peers).filter(missing).peekable();
            if behind.peek().is_none() {
                return Ok(());
            }
            for (rank, peer) in behind {
                peer.check(rank)?;
                if peer.link == Link::Ended {
                    let reason = "its connection ended before all had come over it".to_owned();
                    return Err(Error::PeerLost { rank, reason });
                }
            }
            state = self.wait(state);
        }
    }

    /// The content of an image: the messages that wait from each rank up to the cut, and the
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

    /// Restores what [`Inbox::snapshot`] returned into a new inbox.
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
            peer.forget_reader();
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
        state.draining = false;
        for peer in &mut state.peers {
            peer.cut = None;
            if peer.link == Link::Ended {
                peer.link = Link::Lost("it ended while its channel was drained".to_owned());
            }
        }
        self.changed.notify_all();
    }

    /// Whether a writable link to that rank exists.
    pub(crate) fn is_linked(&self, to: u32) -> bool {
        matches!(lock(&self.state).peers[to as usize].link, Link::Up | Link::Finished)
    }

    /// Messages from that rank in the job's life.
    pub fn received(&self, from: u32) -> u64 {
        lock(&self.state).peers[from as usize].received
    }

    /// Fails if that rank is lost or has finalized.
    pub(crate) fn check(&self, rank: u32) -> Result<()> {
        lock(&self.state).peers[rank as usize].check(rank)
    }

    /// Fails if any rank is lost.
    pub(crate) fn check_all(&self) -> Result<()> {
        let state = lock(&self.state);
        let lost = |(rank, peer): (u32, &Peer)| match peer.check(rank) {
            Err(error @ Error::PeerLost { .. }) => Err(error),
            _ => Ok(()),
        };
        (0_u32..).zip(&state.peers).try_for_each(lost)
    }

    /// All ranks are at their end: a closed peer has finished.
    pub(crate) fn begin_finish(&self) {
        lock(&self.state).finishing = true;
        self.changed.notify_all();
    }

    /// Waits for the goodbye of every linked rank; of dead ones not, if the job goes on without.
    pub(crate) fn wait_finished(&self, own: u32, goes_on: bool) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            let mut all = true;
            for (rank, peer) in (0_u32..).zip(&state.peers).filter(|(rank, _)| *rank != own) {
                match peer.check(rank) {
                    Err(Error::PeerFinished { .. }) => {}
                    Err(Error::PeerLost { .. }) if goes_on => {}
                    Err(error) => return Err(error),
                    Ok(()) => all &= peer.link == Link::Down,
                }
            }
            if all {
                return Ok(());
            }
            state = self.wait(state);
        }
    }

    fn try_message(
        &self,
        state: &mut InboxState,
        from: u32,
        message: Message,
    ) -> Result<Offered, String> {
        let is_dropped = state.revocations.check(message.class).is_err();
        let unbounded = state.unbounded || is_dropped;
        let peer = &mut state.peers[from as usize];
        if message.seq != peer.received + 1 {
            let (seq, last) = (message.seq, peer.received);
            return Err(format!("message {seq} came after message {last}"));
        }
        peer.stalled = !unbounded && peer.is_full(message.payload.len(), self.bytes_max);
        if peer.stalled {
            let Message { class, tag, seq, payload } = message;
            return Ok(Offered::Full(Incoming::Data { class, tag, seq, payload }));
        }
        peer.received = message.seq;
        if !is_dropped {
            peer.push(message);
        }
        Ok(Offered::Taken)
    }

    fn with_peer(&self, rank: u32, fence: u64, change: impl FnOnce(&mut Peer)) {
        let mut state = lock(&self.state);
        if state.counts(fence) {
            change(&mut state.peers[rank as usize]);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, InboxState>) -> MutexGuard<'a, InboxState> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl InboxState {
    fn check_recall(&self) -> Result<()> {
        if self.recall.is_some() { Err(Error::RolledBack) } else { Ok(()) }
    }

    /// Whether frames of that barrier count.
    fn counts(&self, fence: u64) -> bool {
        self.fence == fence && self.recall.is_none()
    }

    /// What did not fit may fit now, or is dropped.
    fn call_room(&mut self) {
        self.peers.iter_mut().for_each(Peer::call_room);
    }
}

impl Peer {
    /// A message above the limit is accepted when it is alone.
    fn is_full(&self, bytes: usize, bytes_max: usize) -> bool {
        self.bytes > 0 && self.bytes + bytes + MESSAGE_OVERHEAD_BYTES > bytes_max
    }

    fn push(&mut self, message: Message) {
        self.bytes += message.payload.len() + MESSAGE_OVERHEAD_BYTES;
        let queue = self.queues.entry((message.class, message.tag));
        queue.or_default().push_back(message);
    }

    /// The tag of the oldest message of that class.
    fn oldest_tag(&self, class: Class) -> Option<u32> {
        let queues = self.queues.range((class, 0)..=(class, u32::MAX));
        let fronts = queues.filter_map(|((_, tag), queue)| Some((queue.front()?.seq, *tag)));
        fronts.min().map(|(_, tag)| tag)
    }

    fn pop(&mut self, class: Class, tag: u32) -> Option<Message> {
        let queue = self.queues.get_mut(&(class, tag))?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&(class, tag));
        }
        let message = message?;
        // Its reader looks again whether there is room.
        self.stalled = false;
        self.call_room();
        self.bytes -= message.payload.len() + MESSAGE_OVERHEAD_BYTES;
        Some(message)
    }

    /// What its reader held ends with it.
    fn forget_reader(&mut self) {
        (self.stalled, self.room) = (false, None);
    }

    fn call_room(&mut self) {
        if let Some(call) = self.room.take() {
            call();
        }
    }

    /// It is dead, or its link has ended without a goodbye.
    fn is_lost(&self) -> bool {
        self.link != Link::Finished && (self.is_dead || matches!(self.link, Link::Lost(_)))
    }

    fn check(&self, rank: u32) -> Result<()> {
        match &self.link {
            Link::Down | Link::Up | Link::Ended if self.is_dead => {
                Err(Error::PeerLost { rank, reason: "the launcher reports its death".to_owned() })
            }
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
    use std::sync::atomic::{AtomicU32, Ordering};

    fn inbox(bytes_max: usize) -> Arc<Inbox> {
        let inbox = Inbox::new(3, bytes_max, Box::new(|_, _| None));
        inbox.link_up(1, 0);
        inbox.link_up(2, 0);
        Arc::new(inbox)
    }

    fn taken(inbox: &Inbox, from: u32, tag: u32) -> Result<Vec<u8>> {
        inbox.take_linked((from, &[]), Class::User, tag)
    }

    fn data(tag: u32, seq: u64, bytes: usize) -> Incoming {
        Incoming::Data { class: Class::User, tag, seq, payload: vec![seq as u8; bytes] }
    }

    #[test]
    fn messages_match_by_tag_and_keep_their_order() {
        let inbox = inbox(1000);
        for (tag, seq) in [(7, 1), (8, 2), (7, 3)] {
            inbox.accept(1, 0, data(tag, seq, 1)).unwrap();
        }
        assert_eq!(taken(&inbox, 1, 8).unwrap(), [2]);
        assert_eq!(taken(&inbox, 1, 7).unwrap(), [1]);
        assert_eq!(taken(&inbox, 1, 7).unwrap(), [3]);
    }

    /// A frame of another barrier, or for a rank that goes back.
    #[test]
    fn frames_of_before_a_recovery_are_dropped_and_change_nothing() {
        let inbox = inbox(1000);
        inbox.accept(1, 0, data(7, 1, 1)).unwrap();
        inbox.call_back(Recall { episode: 5, set: "s".to_owned(), divides: false });
        inbox.accept(1, 0, data(7, 2, 1)).unwrap();
        inbox.accept(1, 0, Incoming::Goodbye).unwrap();
        inbox.go_back(5, (0..3).map(|_| (0, Vec::new())).collect());
        inbox.accept(1, 0, data(7, 3, 1)).unwrap();
        inbox.accept(1, 0, Incoming::Goodbye).unwrap();
        inbox.link_up(1, 0);
        assert!(!inbox.is_linked(1));
        inbox.link_up(1, 5);
        inbox.link_ended(1, 0, None);
        inbox.accept(1, 5, data(7, 1, 1)).unwrap();
        assert_eq!(taken(&inbox, 1, 7).unwrap(), [1]);
        assert_eq!(inbox.received(1), 1);
    }

    #[test]
    fn a_lost_or_doubled_message_is_found() {
        let inbox = inbox(1000);
        inbox.accept(1, 0, data(0, 1, 1)).unwrap();
        assert!(inbox.accept(1, 0, data(0, 1, 1)).is_err());
        assert!(inbox.accept(1, 0, data(0, 3, 1)).is_err());
    }

    /// A fast peer may have resumed before this rank has written its image.
    #[test]
    fn what_comes_after_the_cut_is_not_in_the_snapshot() {
        let inbox = inbox(1000);
        inbox.begin_drain();
        inbox.accept(1, 0, data(0, 1, 1)).unwrap();
        inbox.accept(1, 0, data(0, 2, 1)).unwrap();
        inbox.wait_drained(0, &[(1, 1)]).unwrap();
        let snapshot = inbox.snapshot();
        assert_eq!((snapshot[1].0, snapshot[1].1.len()), (1, 1));

        let restored = super::tests::inbox(1000);
        restored.restore(snapshot);
        restored.accept(1, 0, data(0, 2, 1)).unwrap();
        assert_eq!(taken(&restored, 1, 0).unwrap(), [1]);
    }

    #[test]
    fn a_full_queue_holds_the_peer_back_and_a_hopeless_receive_fails() {
        let inbox = inbox(200);
        inbox.accept(1, 0, data(7, 1, 90)).unwrap();
        let reader = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || inbox.accept(1, 0, data(8, 2, 90)))
        };
        let error = taken(&inbox, 1, 8).unwrap_err();
        assert!(matches!(error, Error::ReceiveQueueFull { rank: 1, .. }));
        assert_eq!(taken(&inbox, 1, 7).unwrap().len(), 90);
        reader.join().unwrap().unwrap();
        assert_eq!(taken(&inbox, 1, 8).unwrap().len(), 90);
    }

    /// Each change that may make room, or drops what waits, calls its reader once.
    #[test]
    fn a_reader_that_does_not_wait_is_called_when_there_may_be_room() {
        let changes: [&dyn Fn(&Inbox); 7] = [
            &|inbox| drop(taken(inbox, 1, 7).unwrap()),
            &Inbox::lift_bound,
            &Inbox::begin_drain,
            &|inbox| inbox.begin(1),
            &|inbox| {
                inbox.call_back(Recall { episode: 5, set: "s".to_owned(), divides: false });
            },
            &|inbox| inbox.go_back(5, (0..3).map(|_| (0, Vec::new())).collect()),
            &|inbox| inbox.revoke(&[(3, 0)]),
        ];
        for (number, change) in changes.iter().enumerate() {
            let inbox = inbox(200);
            let calls = Arc::new(AtomicU32::new(0));
            let room = || {
                let calls = Arc::clone(&calls);
                let call = move || {
                    calls.fetch_add(1, Ordering::AcqRel);
                };
                Box::new(call) as RoomCall
            };
            inbox.accept(1, 0, data(7, 1, 90)).unwrap();
            let full = inbox.offer(1, 0, data(8, 2, 90), &room).unwrap();
            assert_eq!(full, Offered::Full(data(8, 2, 90)), "change {number}");
            // Others are not held back.
            assert_eq!(inbox.offer(2, 0, data(7, 1, 90), &room).unwrap(), Offered::Taken);
            drop(taken(&inbox, 2, 7).unwrap());
            assert_eq!(calls.load(Ordering::Acquire), 0, "change {number}");
            change(&inbox);
            inbox.lift_bound();
            assert_eq!(calls.load(Ordering::Acquire), 1, "change {number}");
            assert_eq!(inbox.offer(1, 0, data(8, 2, 90), &room).unwrap(), Offered::Taken);
        }
    }

    #[test]
    fn what_a_reader_held_ends_with_its_link() {
        for is_lost in [true, false] {
            let inbox = inbox(200);
            let room = || -> RoomCall { Box::new(|| panic!("its reader is gone")) };
            inbox.accept(1, 0, data(7, 1, 90)).unwrap();
            inbox.offer(1, 0, data(8, 2, 90), &room).unwrap();
            match is_lost {
                true => inbox.link_ended(1, 0, None),
                false => inbox.links_down(),
            }
            let next = inbox.take((1, &[]), Class::User, 8, Duration::ZERO);
            let found = matches!(next, Err(Error::PeerLost { rank: 1, .. }));
            assert_eq!(found, is_lost, "{next:?}");
            assert!(is_lost || matches!(next, Ok(None)), "{next:?}");
            inbox.lift_bound();
            assert_eq!(taken(&inbox, 1, 7).unwrap().len(), 90);
        }
    }

    #[test]
    fn a_control_frame_without_room_comes_back() {
        let inbox = Inbox::new(2, 100, Box::new(|_, payload| Some(payload)));
        let frame = || Incoming::Control { payload: b"{}".to_vec() };
        let room = || panic!("no call follows");
        assert_eq!(inbox.offer(1, 0, frame(), &room).unwrap(), Offered::Busy(frame()));
    }

    #[test]
    fn a_receiver_in_the_order_of_sending_gets_everything_whatever_the_bound() {
        let inbox = inbox(200);
        let sender = Arc::clone(&inbox);
        let sender = std::thread::spawn(move || {
            (1..=1000).try_for_each(|seq| sender.accept(1, 0, data(7, seq, 90)))
        });
        for _ in 0..1000 {
            assert_eq!(taken(&inbox, 1, 7).unwrap().len(), 90);
        }
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn a_drain_takes_everything_in_flight_whatever_the_bound_says() {
        let inbox = inbox(100);
        inbox.begin_drain();
        for seq in 1..=5 {
            inbox.accept(1, 0, data(0, seq, 90)).unwrap();
        }
        inbox.wait_drained(0, &[(1, 5)]).unwrap();
        assert_eq!(inbox.snapshot()[1].1.len(), 5);
    }

    #[test]
    fn a_peer_is_lost_finished_or_torn_down_and_these_differ() {
        let inbox = inbox(1000);
        inbox.link_ended(1, 0, None);
        let lost = taken(&inbox, 1, 0).unwrap_err();
        assert!(matches!(lost, Error::PeerLost { rank: 1, .. }));
        inbox.accept(2, 0, Incoming::Goodbye).unwrap();
        inbox.link_ended(2, 0, None);
        let finished = taken(&inbox, 2, 0).unwrap_err();
        assert!(matches!(finished, Error::PeerFinished { rank: 2 }));

        let inbox = super::tests::inbox(1000);
        inbox.begin_drain();
        inbox.accept(1, 0, data(0, 1, 1)).unwrap();
        inbox.link_ended(1, 0, None);
        assert!(inbox.check_all().is_ok(), "torn down while channels are drained");
        inbox.wait_drained(0, &[(1, 1)]).unwrap();
        let early = inbox.wait_drained(0, &[(1, 2)]).unwrap_err();
        assert!(matches!(early, Error::PeerLost { rank: 1, .. }), "and a message is missing");
        inbox.end_suspension();
        assert!(inbox.check_all().is_err(), "but it never came back");
    }

    #[test]
    fn who_waits_for_a_rank_that_it_has_no_link_to_learns_that() {
        let inbox = Inbox::new(2, 1000, Box::new(|_, _| None));
        assert_eq!(inbox.take((1, &[]), Class::User, 0, Duration::ZERO).unwrap(), None);
        inbox.link_up(1, 0);
        inbox.accept(1, 0, data(0, 1, 1)).unwrap();
        assert!(inbox.take((1, &[]), Class::User, 0, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn at_the_end_no_rank_waits_for_one_that_it_never_spoke_to() {
        let inbox = inbox(1000);
        inbox.begin_finish();
        inbox.accept(1, 0, Incoming::Goodbye).unwrap();
        inbox.link_ended(2, 0, Some("reset".to_owned()));
        inbox.wait_finished(0, false).unwrap();
        let other = Inbox::new(3, 1000, Box::new(|_, _| None));
        other.wait_finished(0, false).unwrap();
    }
}
