//! The frames of one link, as the poller takes them: it never waits.
//!
//! Responsible for what has come and cannot be passed on yet. Not responsible for sockets that are
//! watched ([`super::poller`]).

use super::Ends;
use super::connection::Connection;
use crate::frame::{self, Decoder, Incoming};
use crate::inbox::{Offered, RoomCall};
use crate::{limits, lock};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// When the poller goes on with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// When something has come.
    Watch,
    /// The same, and then.
    Until(Instant),
    /// Not before then.
    Pause(Instant),
    /// When the barrier of the channel is in another state.
    Barrier,
    /// When the inbox calls.
    Room,
    /// Soon: what it waits for says nothing.
    Soon,
    /// It has ended.
    Over,
}

/// Makes the call that ends [`Next::Room`].
pub(super) type Room<'a> = &'a dyn Fn() -> RoomCall;

/// A link that is read.
pub(super) struct Reading {
    pub(super) from: u32,
    /// The barrier of the frames.
    pub(super) fence: u64,
    decoder: Decoder,
    held: Option<Held>,
    /// What came behind it, from `at` on.
    rest: Vec<u8>,
    at: usize,
}

/// What cannot be passed on yet.
enum Held {
    Frame(Incoming),
    /// With the counts of the other rank.
    Renewal((u64, u64)),
}

impl Reading {
    pub(super) fn new(from: u32, fence: u64) -> Self {
        let decoder = Decoder::default();
        Self { from, fence, decoder, held: None, rest: Vec::new(), at: 0 }
    }

    /// Passes on what has come, at most [`limits::TURN_BYTES_MAX`]. The link is over when it ends
    /// between two frames.
    ///
    /// # Errors
    /// The socket's, or why the link must end.
    pub(super) fn turn(
        &mut self,
        (ends, link): (&Ends, &Arc<Connection>),
        buffer: &mut [u8],
        room: Room<'_>,
    ) -> io::Result<Next> {
        if let Some(next) = self.resume((ends, link), room)? {
            return Ok(next);
        }
        let mut left = limits::TURN_BYTES_MAX;
        while left > 0 {
            let space = self.decoder.space();
            let is_direct = !space.is_empty();
            let target = if is_direct { space } else { &mut *buffer };
            let asked = target.len();
            let count = match link.socket().receive(target) {
                Ok(0) if self.decoder.is_between() => return Ok(Next::Over),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let next = if is_direct {
                match self.decoder.advance(count)? {
                    Some(frame) => self.pass((ends, link), frame, room)?,
                    None => None,
                }
            } else {
                self.feed((ends, link), &buffer[..count], room)?
            };
            if let Some(next) = next {
                return Ok(next);
            }
            if count < asked {
                break;
            }
            left = left.saturating_sub(count);
        }
        Ok(Next::Watch)
    }

    /// What has come before; when to go on, if that is not now.
    fn resume(
        &mut self,
        at: (&Ends, &Arc<Connection>),
        room: Room<'_>,
    ) -> io::Result<Option<Next>> {
        if let Some(held) = self.held.take()
            && let Some(next) = self.give(at, held, room)?
        {
            return Ok(Some(next));
        }
        while self.at < self.rest.len() {
            let (taken, frame) = self.decoder.take(&self.rest[self.at..])?;
            self.at += taken;
            if let Some(frame) = frame
                && let Some(next) = self.pass(at, frame, room)?
            {
                return Ok(Some(next));
            }
        }
        (self.rest, self.at) = (Vec::new(), 0);
        Ok(None)
    }

    fn feed(
        &mut self,
        at: (&Ends, &Arc<Connection>),
        bytes: &[u8],
        room: Room<'_>,
    ) -> io::Result<Option<Next>> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let (taken, frame) = self.decoder.take(bytes)?;
            bytes = &bytes[taken..];
            if let Some(frame) = frame
                && let Some(next) = self.pass(at, frame, room)?
            {
                self.rest = bytes.to_vec();
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    fn pass(
        &mut self,
        at: (&Ends, &Arc<Connection>),
        frame: Incoming,
        room: Room<'_>,
    ) -> io::Result<Option<Next>> {
        let held = match frame {
            Incoming::Renewal { fence, counts } if fence > self.fence => {
                self.fence = fence;
                Held::Renewal(counts)
            }
            frame => Held::Frame(frame),
        };
        self.give(at, held, room)
    }

    /// Passes on, or holds it.
    fn give(
        &mut self,
        (ends, link): (&Ends, &Arc<Connection>),
        held: Held,
        room: Room<'_>,
    ) -> io::Result<Option<Next>> {
        let (from, fence) = (self.from, self.fence);
        let (held, next) = match held {
            Held::Frame(frame) => {
                let offered = ends.opening.inbox.offer(from, fence, frame, room);
                match offered.map_err(frame::invalid)? {
                    Offered::Taken => return Ok(None),
                    Offered::Full(frame) => (Held::Frame(frame), Next::Room),
                    Offered::Busy(frame) => (Held::Frame(frame), Next::Soon),
                }
            }
            Held::Renewal(counts) => match ends.on_renewal(from, fence, counts, link)? {
                None => return Ok(None),
                Some(next) => (Held::Renewal(counts), next),
            },
        };
        self.held = Some(held);
        Ok(Some(next))
    }
}

impl Ends {
    /// The other rank uses a kept link again. Answers, unless this rank has asked; when to call
    /// again, if that is not possible now.
    ///
    /// # Errors
    /// Why the link must end.
    fn on_renewal(
        &self,
        from: u32,
        fence: u64,
        counts: (u64, u64),
        link: &Arc<Connection>,
    ) -> io::Result<Option<Next>> {
        match lock(&self.links).met(fence) {
            None => return Ok(Some(Next::Barrier)),
            // Of a barrier of before, where this rank was called back meanwhile.
            Some(false) => return Ok(None),
            Some(true) => {}
        }
        self.compare(from, counts).map_err(frame::invalid)?;
        if !link.try_renew(fence, (self.opening.counts)(from))? {
            return Ok(Some(Next::Soon));
        }
        let mut links = lock(&self.links);
        if links.confirm(from, link, fence) {
            self.opening.inbox.link_up(from, fence);
            self.changed.notify_all();
            return Ok(None);
        }
        match links.is_open() && links.fence() == fence {
            true => Err(frame::invalid("another connection counts")),
            false => Ok(None),
        }
    }
}
