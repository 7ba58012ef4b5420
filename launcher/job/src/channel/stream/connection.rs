//! One connection to another rank: frames in order, each of one barrier.

use super::socket::Socket;
use crate::frame::{Frame, HEADER_BYTES, RENEWAL_BYTES, renewal_payload};
use crate::{limits, lock};
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

const RENEWAL_FRAME_BYTES: usize = HEADER_BYTES + RENEWAL_BYTES;

pub(super) struct Connection {
    socket: Socket,
    /// Locked while a frame is written: frames must not mix.
    sending: Mutex<Sent>,
}

/// What was sent.
#[derive(Default)]
pub(super) struct Sent {
    /// The barrier of the frames; 0 before the introduction.
    fence: u64,
    /// The rest of a renewal that [`Connection::try_renew`] has begun: it precedes other frames.
    rest: Vec<u8>,
    /// Its barrier.
    next: u64,
}

impl Connection {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, sending: Mutex::default() }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads and writes of the introduction end in time.
    pub(super) fn begin_introduction(&self) -> io::Result<()> {
        self.socket.set_timeouts(Some(limits::HELLO_TIMEOUT), limits::HELLO_TIMEOUT)
    }

    /// Frames of that barrier may follow, as soon as the guard is dropped.
    pub(super) fn end_introduction(&self, fence: u64) -> io::Result<MutexGuard<'_, Sent>> {
        let mut sending = lock(&self.sending);
        self.socket.set_timeouts(None, limits::SEND_CHECK)?;
        sending.fence = fence;
        Ok(sending)
    }

    pub(super) fn read_exactly<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        (&self.socket).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a frame of that barrier. While there is no room it asks `waits` whether to go on; if
    /// not, it completes a frame that it has begun within [`limits::BEGUN_MAX`], else it closes the
    /// connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`]: nothing was sent. Else the connection is broken.
    pub(super) fn send(
        &self,
        fence: u64,
        frame: &Frame<'_>,
        waits: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let sending = lock(&self.sending);
        if sending.fence != fence || !sending.rest.is_empty() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.write(&frame.header(), frame.payload(), waits)
    }

    /// What follows is of that barrier: says so to the other rank, once, with the counts of
    /// messages sent to it and received from it.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(super) fn renew(
        &self,
        fence: u64,
        counts: (u64, u64),
        waits: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut sending = lock(&self.sending);
        if !sending.rest.is_empty() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if sending.fence < fence {
            self.write(&renewal(fence, counts), &[], waits)?;
            sending.fence = fence;
        }
        Ok(())
    }

    /// The same without waiting; false: call it again, since another thread writes or there is no
    /// room.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn try_renew(&self, fence: u64, counts: (u64, u64)) -> io::Result<bool> {
        let mut sending = match self.sending.try_lock() {
            Ok(sending) => sending,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        while sending.fence < fence || !sending.rest.is_empty() {
            if sending.rest.is_empty() {
                (sending.rest, sending.next) = (renewal(fence, counts), fence);
            }
            let count = match self.socket.send_now(&sending.rest) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // What is not begun is not owed.
                    if sending.rest.len() == RENEWAL_FRAME_BYTES {
                        sending.rest.clear();
                    }
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            sending.rest.drain(..count);
            if sending.rest.is_empty() {
                sending.fence = sending.next;
            }
        }
        Ok(true)
    }

    /// Whether a frame is being written.
    #[cfg(test)]
    pub(super) fn is_sending(&self) -> bool {
        self.sending.try_lock().is_err()
    }

    fn write(&self, first: &[u8], second: &[u8], waits: &dyn Fn() -> bool) -> io::Result<()> {
        let (mut written, mut until) = (0, None);
        while written < first.len() + second.len() {
            let head = IoSlice::new(&first[written.min(first.len())..]);
            let body = IoSlice::new(&second[written.saturating_sub(first.len())..]);
            match (&self.socket).write_vectored(&[head, body]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No room for `SEND_CHECK`.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !waits() {
                        self.check_begun(written, &mut until)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A frame that is not begun is given up at once, another one `BEGUN_MAX` after the first call.
    fn check_begun(&self, written: usize, until: &mut Option<Instant>) -> io::Result<()> {
        if written == 0 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let until = until.get_or_insert_with(|| Instant::now() + limits::BEGUN_MAX);
        if until.saturating_duration_since(Instant::now()) > Duration::ZERO {
            return Ok(());
        }
        self.socket.close();
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// A renewal on the wire.
fn renewal(fence: u64, counts: (u64, u64)) -> Vec<u8> {
    let payload = &renewal_payload(counts);
    [&Frame::Renewal { fence, payload }.header()[..], payload].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::{Incoming, read_frame};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_renewal_without_room_is_tried_again_and_comes_whole_and_once() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let connection = Connection::new(Socket::Unix(near));
        drop(connection.end_introduction(1).unwrap());
        let goodbye = Frame::Goodbye.header();
        while connection.socket().send_now(&goodbye).is_ok() {}
        assert!(!connection.try_renew(2, (4, 5)).unwrap());
        let refused = connection.send(1, &Frame::Goodbye, &|| false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotConnected, "there is no room");
        let writing = lock(&connection.sending);
        assert!(!connection.try_renew(2, (4, 5)).unwrap(), "another thread writes");
        drop(writing);
        far.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut frames = 0;
        while let Ok(frame) = read_frame(&mut far) {
            assert_eq!(frame, Some(Incoming::Goodbye));
            frames += 1;
        }
        assert!(frames > 0);
        assert!(connection.try_renew(2, (4, 5)).unwrap());
        assert!(connection.try_renew(2, (4, 5)).unwrap());
        let of_before = connection.send(1, &Frame::Goodbye, &|| true).unwrap_err();
        assert_eq!(of_before.kind(), io::ErrorKind::NotConnected);
        connection.send(2, &Frame::Goodbye, &|| true).unwrap();
        let renewal = Incoming::Renewal { fence: 2, counts: (4, 5) };
        assert_eq!(read_frame(&mut far).unwrap(), Some(renewal));
        assert_eq!(read_frame(&mut far).unwrap(), Some(Incoming::Goodbye));
    }
}
