//! One connection to another rank: frames in order, each of one barrier.

use super::socket::Socket;
use crate::frame::{Frame, HEADER_BYTES, renewal_payload};
use crate::{limits, lock};
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(super) struct Connection {
    socket: Socket,
    /// The barrier of the frames that are sent; 0 before the introduction. Locked while a frame is
    /// written: frames must not mix.
    sending: Mutex<u64>,
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
    pub(super) fn end_introduction(&self, fence: u64) -> io::Result<MutexGuard<'_, u64>> {
        let mut sending = lock(&self.sending);
        self.socket.set_timeouts(None, limits::SEND_CHECK)?;
        *sending = fence;
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
        if *sending != fence {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.write(frame, waits)
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
        if *sending < fence {
            let payload = &renewal_payload(counts);
            self.write(&Frame::Renewal { fence, payload }, waits)?;
            *sending = fence;
        }
        Ok(())
    }

    /// Whether a frame is being written.
    #[cfg(test)]
    pub(super) fn is_sending(&self) -> bool {
        self.sending.try_lock().is_err()
    }

    fn write(&self, frame: &Frame<'_>, waits: &dyn Fn() -> bool) -> io::Result<()> {
        let (header, payload) = (frame.header(), frame.payload());
        let (mut written, mut until) = (0, None);
        while written < HEADER_BYTES + payload.len() {
            let head = IoSlice::new(&header[written.min(HEADER_BYTES)..]);
            let body = IoSlice::new(&payload[written.saturating_sub(HEADER_BYTES)..]);
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
