//! The sending side of a rank, and which channel leads to whom.
//!
//! Part of the CR layer of the thesis (section 2.2): while channels are suspended, what the program's
//! threads send waits in each peer's **outstanding send queue** and follows in order when they are
//! resumed. Responsible for numbering the messages of each pair. Not responsible for when to suspend
//! ([`crate::job`]), nor for sockets ([`crate::channel`]).

use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::frame::{Class, Frame};
use crate::inbox::{Inbox, Message};
use crate::{limits, lock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// Everything that sends.
pub(crate) struct Router {
    rank: u32,
    inbox: Arc<Inbox>,
    outgoing: Vec<Outgoing>,
    routes: RwLock<Vec<Option<Arc<dyn Channel>>>>,
    /// Counts how often the rank has gone back to an image.
    era: AtomicU64,
}

#[derive(Default)]
struct Outgoing {
    state: Mutex<Sending>,
    room: Condvar,
}

struct Sending {
    sent: u64,
    suspended: bool,
    outstanding: VecDeque<Outstanding>,
    outstanding_bytes: usize,
}

impl Default for Sending {
    /// Nothing can be sent before the first connection.
    fn default() -> Self {
        Self { sent: 0, suspended: true, outstanding: VecDeque::new(), outstanding_bytes: 0 }
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
            era: AtomicU64::new(0),
        }
    }

    /// Ranks of the job.
    pub(crate) fn size(&self) -> u32 {
        // Made from a u32.
        self.outgoing.len() as u32
    }

    /// What was before the rank went back last is of another era.
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Sends a message, or leaves it outstanding.
    pub(crate) fn send(&self, to: u32, class: Class, tag: u32, payload: &[u8]) -> Result<()> {
        self.send_in(self.era(), to, class, tag, payload)
    }

    /// The same, only while that era lasts.
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
        self.transmit(&mut sending, to, class, tag, payload)
    }

    /// Sends a control frame. One for a suspended channel is dropped: the agreement sends only where
    /// none is suspended, but for hints, which the launcher's repetition brings again.
    pub(crate) fn send_control(&self, to: u32, payload: &[u8]) {
        let sending = lock(&self.outgoing[to as usize].state);
        if !sending.suspended
            && let Err(error) = self.transmit_frame(to, &Frame::Control { payload })
        {
            tracing::debug!(rank = self.rank, to, %error, "control frame not sent");
        }
    }

    /// From now on messages stay here. Tells every other rank which was the last.
    pub(crate) fn suspend(&self) -> Result<()> {
        for (to, mut sending) in self.each() {
            sending.suspended = true;
            if to != self.rank {
                let seq = sending.sent;
                self.transmit_frame(to, &Frame::Suspend { seq })?;
            }
        }
        Ok(())
    }

    /// Messages go out again, the outstanding ones first. `links_kept` where the links are those that
    /// were suspended, so that the other side must be told.
    pub(crate) fn resume(&self, links_kept: bool) -> Result<()> {
        for (to, mut sending) in self.each() {
            if links_kept && to != self.rank {
                self.transmit_frame(to, &Frame::Resume)?;
            }
            while let Some(message) = sending.outstanding.pop_front() {
                let Outstanding { class, tag, payload } = message;
                self.transmit(&mut sending, to, class, tag, &payload)?;
            }
            sending.outstanding_bytes = 0;
            sending.suspended = false;
            self.outgoing[to as usize].room.notify_all();
        }
        Ok(())
    }

    /// Tells every other rank that nothing more comes.
    pub(crate) fn goodbye(&self) {
        for (to, mut sending) in self.each() {
            if to != self.rank && self.transmit_frame(to, &Frame::Goodbye).is_err() {
                tracing::debug!(rank = self.rank, to, "the other rank is already gone");
            }
            sending.suspended = true;
        }
    }

    /// The channel to each rank from now on.
    pub(crate) fn set_routes(&self, routes: Vec<Option<Arc<dyn Channel>>>) {
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = routes;
    }

    /// The name of the channel that leads to that rank.
    pub(crate) fn route_name(&self, to: u32) -> Option<&'static str> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        Some(routes.get(to as usize)?.as_ref()?.name())
    }

    /// Messages sent to that rank and received from it in the job's life.
    pub(crate) fn counts(&self, rank: u32) -> (u64, u64) {
        let sent = lock(&self.outgoing[rank as usize].state).sent;
        (sent, self.inbox.received(rank))
    }

    /// What belongs to an image: how many messages were sent to each rank, and what is outstanding.
    pub(crate) fn snapshot(&self) -> Vec<(u64, Vec<Outstanding>)> {
        let each = self.each();
        each.map(|(_, sending)| (sending.sent, sending.outstanding.iter().cloned().collect()))
            .collect()
    }

    /// Puts back what [`Router::snapshot`] gave, before the first connection.
    pub(crate) fn restore(&self, peers: Vec<(u64, Vec<Outstanding>)>) {
        for ((_, mut sending), (sent, outstanding)) in self.each().zip(peers) {
            sending.sent = sent;
            sending.outstanding_bytes = outstanding.iter().map(|m| m.payload.len()).sum();
            sending.outstanding = outstanding.into();
        }
    }

    /// Everything is as in an image, what [`Router::snapshot`] gave: a new era, suspended and without channels.
    pub(crate) fn go_back(&self, peers: Vec<(u64, Vec<Outstanding>)>) {
        self.era.fetch_add(1, Ordering::AcqRel);
        self.set_routes((0..self.size()).map(|_| None).collect());
        for (to, mut sending) in self.each() {
            sending.suspended = true;
            self.outgoing[to as usize].room.notify_all();
        }
        self.restore(peers);
    }

    fn each(&self) -> impl Iterator<Item = (u32, MutexGuard<'_, Sending>)> {
        (0..).zip(&self.outgoing).map(|(to, outgoing)| (to, lock(&outgoing.state)))
    }

    fn transmit(
        &self,
        sending: &mut Sending,
        to: u32,
        class: Class,
        tag: u32,
        payload: &[u8],
    ) -> Result<()> {
        let seq = sending.sent + 1;
        if to == self.rank {
            let payload = payload.to_vec();
            let message = Message { class, tag, seq, payload };
            self.inbox.push_own(to, message)?;
        } else {
            let frame = Frame::Data { class, tag, seq, payload };
            self.transmit_frame(to, &frame)?;
        }
        sending.sent = seq;
        Ok(())
    }

    fn transmit_frame(&self, to: u32, frame: &Frame<'_>) -> Result<()> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let lost = |reason: String| Error::PeerLost { rank: to, reason };
        let Some(channel) = &routes[to as usize] else {
            return Err(lost("there is no channel to it".to_owned()));
        };
        channel.send(to, frame).map_err(|error| {
            // The reading side may know better why.
            match self.inbox.check(to) {
                Err(known) => known,
                Ok(()) => lost(format!("channel {}: {error}", channel.name())),
            }
        })
    }
}
