//! The sending side of a rank, and its channels to peers.
//!
//! Part of the CR layer of the thesis (section 2.2): while channels are suspended, messages of the
//! program's threads wait in each peer's **outstanding send queue**, and follow in order on resume.
//! Responsible for numbering the messages of each pair. Not responsible for when to suspend
//! ([`crate::job`]), nor for sockets ([`crate::channel`]).

use crate::agreement::Counts;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::frame::{Class, Frame};
use crate::inbox::{Inbox, Message};
use crate::{limits, lock};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// The sending side.
pub(crate) struct Router {
    rank: u32,
    inbox: Arc<Inbox>,
    outgoing: Vec<Outgoing>,
    /// Looked up on demand, while there is a directory.
    routes: RwLock<Vec<Option<Arc<dyn Channel>>>>,
    directory: RwLock<Option<Directory>>,
    /// Counts how often the rank has gone back to an image.
    era: AtomicU64,
}

/// Finds the channel to a rank once its address is known.
pub(crate) type Directory = Box<dyn Fn(u32) -> Result<Arc<dyn Channel>> + Send + Sync>;

#[derive(Default)]
struct Outgoing {
    state: Mutex<Sending>,
    /// Number of the last message. It changes under the lock of the state; the thread that makes
    /// the sender's link reads it without.
    sent: AtomicU64,
    room: Condvar,
}

struct Sending {
    suspended: bool,
    outstanding: VecDeque<Outstanding>,
    outstanding_bytes: usize,
}

impl Default for Sending {
    /// No message can be sent before the first connection.
    fn default() -> Self {
        Self { suspended: true, outstanding: VecDeque::new(), outstanding_bytes: 0 }
    }
}

/// A message that was sent while its channel was suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outstanding {
    pub class: Class,
    pub tag: u32,
    pub payload: Vec<u8>,
}

impl Router {
    pub(crate) fn new(rank: u32, size: u32, inbox: Arc<Inbox>) -> Self {
        Self {
            rank,
            inbox,
            outgoing: (0..size).map(|_| Outgoing::default()).collect(),
            routes: RwLock::new((0..size).map(|_| None).collect()),
            directory: RwLock::new(None),
            era: AtomicU64::new(0),
        }
    }

    /// Ranks of the job.
    pub(crate) fn size(&self) -> u32 {
        // Made from a u32.
        self.outgoing.len() as u32
    }

    /// Messages from before the last rollback are of another era.
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Sends a message, or queues it while suspended.
    pub(crate) fn send(&self, to: u32, class: Class, tag: u32, payload: &[u8]) -> Result<()> {
        self.send_in(self.era(), to, class, tag, payload)
    }

    /// The same, within that era only.
    pub(crate) fn send_in(
        &self,
        era: u64,
        to: u32,
        class: Class,
        tag: u32,
        payload: &[u8],
    ) -> Result<()> {
        let size = self.size();
        let no_such_rank = || Error::NoSuchRank { rank: to, size };
        let outgoing = self.outgoing.get(to as usize).ok_or_else(no_such_rank)?;
        if payload.len() > limits::MESSAGE_BYTES_MAX {
            return Err(Error::MessageTooLong {
                bytes: payload.len(),
                max: limits::MESSAGE_BYTES_MAX,
            });
        }
        let mut sending = lock(&outgoing.state);
        let is_over = || if self.era() == era { Ok(()) } else { Err(Error::RolledBack) };
        is_over()?;
        while sending.suspended {
            let bytes = sending.outstanding_bytes + payload.len();
            if bytes <= limits::OUTSTANDING_BYTES_MAX || sending.outstanding.is_empty() {
                sending.outstanding_bytes = bytes;
                sending.outstanding.push_back(Outstanding {
                    class,
                    tag,
                    payload: payload.to_vec(),
                });
                return Ok(());
            }
            let waited = outgoing.room.wait(sending);
            sending = waited.unwrap_or_else(PoisonError::into_inner);
            is_over()?;
        }
        self.transmit(to, class, tag, payload)
    }

    /// Sends a control frame, also while suspended. It is lost between the tear-down of a channel
    /// and its next connection: only hints are under way then, which the launcher repeats.
    pub(crate) fn send_control(&self, to: u32, payload: &[u8]) {
        if let Err(error) = self.transmit_frame(to, &Frame::Control { payload }) {
            tracing::debug!(rank = self.rank, to, %error, "control frame not sent");
        }
    }

    /// Queues messages from now on. Returns how many went to each rank.
    pub(crate) fn suspend(&self) -> Counts {
        let count = |(to, mut sending): (u32, MutexGuard<'_, Sending>)| {
            sending.suspended = true;
            (to, self.sent(to))
        };
        self.each().map(count).filter(|(to, sent)| *to != self.rank && *sent > 0).collect()
    }

    /// Sends again, the outstanding messages first.
    pub(crate) fn resume(&self) -> Result<()> {
        for (to, mut sending) in self.each() {
            while let Some(message) = sending.outstanding.pop_front() {
                let Outstanding { class, tag, payload } = message;
                self.transmit(to, class, tag, &payload)?;
            }
            sending.outstanding_bytes = 0;
            sending.suspended = false;
            self.outgoing[to as usize].room.notify_all();
        }
        Ok(())
    }

    /// Sends a goodbye to every linked rank.
    pub(crate) fn goodbye(&self) {
        for (to, mut sending) in self.each() {
            let linked = to != self.rank && self.inbox.is_linked(to);
            if linked && self.transmit_frame(to, &Frame::Goodbye).is_err() {
                tracing::debug!(rank = self.rank, to, "the other rank is already gone");
            }
            sending.suspended = true;
        }
    }

    /// Makes the link to that rank if there is none, so that its end shows.
    pub(crate) fn reach(&self, to: u32) -> Result<()> {
        self.through(to, |channel| channel.reach(to))
    }

    /// Sets the directory of channels; `None`: there are no channels.
    pub(crate) fn set_directory(&self, directory: Option<Directory>) {
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = directory;
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.iter_mut().for_each(|route| *route = None);
    }

    /// The name of the channel that leads to that rank.
    pub(crate) fn route_name(&self, to: u32) -> Option<&'static str> {
        let is_other = to < self.size() && to != self.rank;
        Some(self.route(to).ok().filter(|_| is_other)?.name())
    }

    fn route(&self, to: u32) -> Result<Arc<dyn Channel>> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = routes.get(to as usize).and_then(Option::as_ref) {
            return Ok(Arc::clone(channel));
        }
        drop(routes);
        // Under the lock, so that no route of a replaced directory is stored.
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let lost = || Error::PeerLost { rank: to, reason: "there is no channel to it".to_owned() };
        let channel = directory.as_ref().ok_or_else(lost)?(to)?;
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        *routes.get_mut(to as usize).ok_or_else(lost)? = Some(Arc::clone(&channel));
        Ok(channel)
    }

    /// Messages sent to that rank and received from it in the job's life.
    pub(crate) fn counts(&self, rank: u32) -> (u64, u64) {
        (self.sent(rank), self.inbox.received(rank))
    }

    fn sent(&self, to: u32) -> u64 {
        self.outgoing[to as usize].sent.load(Ordering::Acquire)
    }

    /// The content of an image: messages sent to each rank, and the outstanding ones.
    pub(crate) fn snapshot(&self) -> Vec<(u64, Vec<Outstanding>)> {
        let each = self.each();
        each.map(|(to, sending)| (self.sent(to), sending.outstanding.iter().cloned().collect()))
            .collect()
    }

    /// Restores what [`Router::snapshot`] returned, before the first connection.
    pub(crate) fn restore(&self, peers: Vec<(u64, Vec<Outstanding>)>) {
        for ((to, mut sending), (sent, outstanding)) in self.each().zip(peers) {
            self.outgoing[to as usize].sent.store(sent, Ordering::Release);
            sending.outstanding_bytes = outstanding.iter().map(|m| m.payload.len()).sum();
            sending.outstanding = outstanding.into();
        }
    }

    /// Goes back to what [`Router::snapshot`] returned: a new era, suspended and without channels.
    pub(crate) fn go_back(&self, peers: Vec<(u64, Vec<Outstanding>)>) {
        self.era.fetch_add(1, Ordering::AcqRel);
        self.set_directory(None);
        for (to, mut sending) in self.each() {
            sending.suspended = true;
            self.outgoing[to as usize].room.notify_all();
        }
        self.restore(peers);
    }

    fn each(&self) -> impl Iterator<Item = (u32, MutexGuard<'_, Sending>)> {
        (0..).zip(&self.outgoing).map(|(to, outgoing)| (to, lock(&outgoing.state)))
    }

    /// The caller holds the lock of that rank's sending state.
    fn transmit(&self, to: u32, class: Class, tag: u32, payload: &[u8]) -> Result<()> {
        let seq = self.sent(to) + 1;
        if to == self.rank {
            let payload = payload.to_vec();
            let message = Message { class, tag, seq, payload };
            self.inbox.push_own(to, message)?;
        } else {
            let frame = Frame::Data { class, tag, seq, payload };
            self.transmit_frame(to, &frame)?;
        }
        self.outgoing[to as usize].sent.store(seq, Ordering::Release);
        Ok(())
    }

    fn transmit_frame(&self, to: u32, frame: &Frame<'_>) -> Result<()> {
        self.through(to, |channel| channel.send(to, frame))
    }

    fn through(
        &self,
        to: u32,
        use_channel: impl FnOnce(&dyn Channel) -> io::Result<()>,
    ) -> Result<()> {
        let lost = |reason: String| Error::PeerLost { rank: to, reason };
        // The first use makes the link, which takes time: under no lock.
        let channel = self.route(to)?;
        use_channel(&*channel).map_err(|error| {
            // The reading side may know the reason.
            match self.inbox.check_recall().and_then(|()| self.inbox.check(to)) {
                Err(known) => known,
                Ok(()) => lost(format!("channel {}: {error}", channel.name())),
            }
        })
    }
}
