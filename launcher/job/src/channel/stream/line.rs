//! One connection as the poller reads it: the introduction of an accepted one, then frames.
//!
//! Responsible for its end, of which links and inbox hear, wherever it is dropped.

use super::acceptance::Acceptance;
use super::connection::Connection;
use super::reading::{Next, Reading, Room};
use super::socket::{Socket, random_bytes};
use super::{Ends, not_connected};
use crate::hello::{HELLO_BYTES, Hello, Introduction};
use crate::{limits, lock};
use std::io;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Line {
    ends: Arc<Ends>,
    link: Arc<Connection>,
    stage: LineStage,
}

enum LineStage {
    /// Accepted: anyone may be there until then. With its number among the links.
    Unproved { number: u64, acceptance: Acceptance, until: Instant },
    /// A rank dials. It may have left the barrier first.
    Proved { number: u64, acceptance: Acceptance, hello: Hello },
    /// It is introduced.
    Up(Reading),
    /// Its end was reported.
    Over,
}

impl Line {
    /// An accepted connection; it gets its challenge.
    pub(super) fn accepted(ends: &Arc<Ends>, socket: Socket) -> io::Result<Self> {
        let link = Arc::new(Connection::new(socket));
        let (own, size) = (&ends.opening.own, ends.opening.size);
        let room = size as usize + limits::HANDSHAKING_MAX;
        let number = lock(&ends.links).accept(&link, room).ok_or_else(not_connected)?;
        let challenged = random_bytes().and_then(|challenge| {
            let introduction = Introduction { token: own.token, challenge };
            let acceptance = Acceptance::new(introduction, own.rank, size);
            send_whole(&link, acceptance.challenge())?;
            Ok(acceptance)
        });
        let acceptance = challenged.inspect_err(|_| {
            lock(&ends.links).introduced(number);
        })?;
        let until = Instant::now() + limits::HELLO_TIMEOUT;
        let stage = LineStage::Unproved { number, acceptance, until };
        Ok(Self { ends: Arc::clone(ends), link, stage })
    }

    /// A dialled connection that is introduced, of that barrier.
    pub(super) fn dialled(ends: &Arc<Ends>, link: &Arc<Connection>, to: u32, fence: u64) -> Self {
        let (ends, link) = (Arc::clone(ends), Arc::clone(link));
        Self { ends, link, stage: LineStage::Up(Reading::new(to, fence)) }
    }

    pub(super) fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    pub(super) fn socket(&self) -> &Socket {
        self.link.socket()
    }

    /// Takes what has come; the end is reported.
    pub(super) fn turn(&mut self, buffer: &mut [u8], room: Room<'_>) -> Next {
        let turned = match &mut self.stage {
            LineStage::Unproved { .. } => self.hear(),
            LineStage::Proved { .. } => self.answer(),
            LineStage::Up(reading) => reading.turn((&self.ends, &self.link), buffer, room),
            LineStage::Over => return Next::Over,
        };
        match turned {
            Ok(Next::Over) => self.end(None),
            Ok(next) => return next,
            Err(error) => self.end(Some(error)),
        }
        Next::Over
    }

    /// The channel is suspended: takes what has come before the socket was closed, and ends.
    pub(super) fn finish(&mut self, buffer: &mut [u8]) {
        if matches!(self.stage, LineStage::Up(_)) {
            for _ in 0..limits::LAST_TURNS_MAX {
                match self.turn(buffer, &|| Box::new(|| ())) {
                    Next::Watch => {}
                    Next::Over => return,
                    _ => break,
                }
            }
        }
        self.end(Some(not_connected()));
    }

    /// Ends it, with the problem, if any.
    pub(super) fn end(&mut self, error: Option<io::Error>) {
        match core::mem::replace(&mut self.stage, LineStage::Over) {
            LineStage::Unproved { number, .. } | LineStage::Proved { number, .. } => {
                self.link.socket().close();
                lock(&self.ends.links).introduced(number);
                self.ends.report(&error.unwrap_or_else(not_connected));
            }
            LineStage::Up(Reading { from, fence, .. }) => {
                let problem = error.map(|error| error.to_string());
                self.ends.end_link(from, fence, &self.link, problem);
            }
            LineStage::Over => {}
        }
    }

    fn hear(&mut self) -> io::Result<Next> {
        let LineStage::Unproved { number, acceptance, until } = &mut self.stage else {
            return Ok(Next::Watch);
        };
        let (number, mut bytes) = (*number, [0; HELLO_BYTES]);
        let hello = loop {
            let wanted = acceptance.wanted();
            match self.link.socket().receive(&mut bytes[..wanted]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    if let Some(hello) = acceptance.take(&bytes[..count])? {
                        break hello;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return match Instant::now() < *until {
                        true => Ok(Next::Until(*until)),
                        false => Err(io::ErrorKind::TimedOut.into()),
                    };
                }
                Err(error) => return Err(error),
            }
        };
        {
            let mut links = lock(&self.ends.links);
            // A rank that dials has no link, or has given it up.
            links.dialled(hello.from, hello.fence);
            links.prove(number);
        }
        self.ends.changed.notify_all();
        self.prove(hello);
        self.answer()
    }

    fn prove(&mut self, hello: Hello) {
        self.stage = match core::mem::replace(&mut self.stage, LineStage::Over) {
            LineStage::Unproved { number, acceptance, .. } => {
                LineStage::Proved { number, acceptance, hello }
            }
            stage => stage,
        };
    }

    fn answer(&mut self) -> io::Result<Next> {
        let LineStage::Proved { number, acceptance, hello } = &self.stage else {
            return Ok(Next::Watch);
        };
        let (ends, from, fence) = (&self.ends, hello.from, hello.fence);
        match lock(&ends.links).met(fence) {
            None => return Ok(Next::Barrier),
            Some(false) => {
                let problem =
                    format!("rank {from} dials after barrier {fence}, this rank does not");
                return Err(io::Error::new(io::ErrorKind::NotConnected, problem));
            }
            Some(true) => {}
        }
        // The barrier may have taken longer than the other side waits.
        if self.link.socket().has_ended() {
            return Err(not_connected());
        }
        let answer = acceptance.seal(&ends.hello(from, fence, hello.nonce));
        // No frame precedes the answer.
        let answering = self.link.end_introduction(fence)?;
        let counted = ends.check_counts(hello);
        let differ = counted.is_err();
        let taken = counted.and_then(|()| ends.add(from, fence, &self.link, false));
        let answered = match taken.is_ok() || differ {
            true => send_whole(&self.link, &answer),
            false => Ok(()),
        };
        taken?;
        lock(&ends.links).introduced(*number);
        drop(answering);
        self.stage = LineStage::Up(Reading::new(from, fence));
        answered.map(|()| Next::Watch)
    }
}

impl Drop for Line {
    /// After a panic: no link stays without a reader unnoticed.
    fn drop(&mut self) {
        self.end(Some(reader_ended()));
    }
}

pub(super) fn reader_ended() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the thread that reads links has ended")
}

/// Sends a part of an introduction. There is room for it, unless the other side reads nothing.
fn send_whole(link: &Connection, bytes: &[u8]) -> io::Result<()> {
    match link.socket().send_now(bytes)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
