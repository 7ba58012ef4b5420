//! A Unix socket that wakes its task for received bytes only.
//!
//! The kernel wakes a task that polls a Unix socket for writing each time the peer reads. tokio's
//! stream polls for both directions all the time, so each message costs the sender one wake-up
//! more. This stream polls for writing only after a write found no room.
//!
//! Not responsible for: what the bytes mean.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use socket2::SockRef;
use std::io::{self, IoSlice, Write as _};
use std::net::Shutdown;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Size of the send buffer: what the peer may leave unread, in bytes as the kernel counts them.
/// The kernel doubles it, which is enough for a few messages of full size, and grants no more than
/// `net.core.wmem_max`.
const SEND_BUFFER_BYTES: usize = 212_992;
/// After this many writes in a row that found room, the stream stops polling for writing.
const WRITES_WITH_ROOM: u32 = 64;

/// One end of a connected Unix socket.
#[derive(Debug)]
pub struct UnixStream {
    /// Polled for reading.
    socket: AsyncFd<std::os::unix::net::UnixStream>,
    /// The same socket, polled for writing, if a recent write found no room.
    writable: Option<AsyncFd<std::os::unix::net::UnixStream>>,
    /// Writes in a row that found room.
    writes_with_room: u32,
}

#[allow(unsafe_code, reason = "tokio cannot know that the socket keeps its descriptor")]
fn register(
    socket: std::os::unix::net::UnixStream,
    interest: Interest,
) -> io::Result<AsyncFd<std::os::unix::net::UnixStream>> {
    // SAFETY: the socket owns its descriptor, returns the same one each time, and lives as long as
    // its registration.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest)? })
}

impl UnixStream {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// Too many files are open, or there is no runtime.
    pub fn new(socket: tokio::net::UnixStream) -> io::Result<Self> {
        let socket = socket.into_std()?;
        SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER_BYTES)?;
        let socket = register(socket, Interest::READABLE)?;
        Ok(Self { socket, writable: None, writes_with_room: 0 })
    }

    /// Writes as soon as there is room.
    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&std::os::unix::net::UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = match &self.writable {
                Some(writable) => Some(ready!(writable.poll_write_ready(context))?),
                None => None,
            };
            let written = write(self.socket.get_ref());
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match &mut ready {
                    Some(ready) => ready.clear_ready(),
                    None => {
                        let same = self.socket.get_ref().try_clone()?;
                        self.writable = Some(register(same, Interest::WRITABLE)?);
                        self.writes_with_room = 0;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    let is_polled = ready.is_some();
                    self.writes_with_room = self.writes_with_room.saturating_add(1);
                    if is_polled && self.writes_with_room >= WRITES_WITH_ROOM {
                        self.writable = None;
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncRead for UnixStream {
    #[allow(unsafe_code, reason = "reads into uninitialised memory")]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut readable = ready!(self.socket.poll_read_ready(context))?;
            // SAFETY: the memory is only written to, never de-initialised.
            let space = unsafe { buffer.unfilled_mut() };
            let asked = space.len();
            match SockRef::from(self.socket.get_ref()).recv(space) {
                Ok(count) => {
                    if count > 0 && count < asked {
                        // The socket is empty; further bytes wake the task.
                        readable.clear_ready();
                    }
                    // SAFETY: `recv` has written `count` bytes.
                    unsafe { buffer.assume_init(count) };
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |mut socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |mut socket| socket.write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn pair() -> (UnixStream, tokio::net::UnixStream) {
        let (one, other) = tokio::net::UnixStream::pair().unwrap();
        (UnixStream::new(one).unwrap(), other)
    }

    #[tokio::test]
    async fn a_writer_and_a_reader_that_wait_for_each_other_lose_no_byte() {
        // Far more than a socket holds.
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut one, other) = pair();
        let mut other = UnixStream::new(other).unwrap();
        let write = async {
            for part in bytes.chunks(100_000) {
                one.write_all(part).await.unwrap();
            }
            one.shutdown().await.unwrap();
        };
        let mut read = Vec::new();
        let (_, count) = tokio::join!(write, other.read_to_end(&mut read));
        assert_eq!(count.unwrap(), bytes.len());
        assert_eq!(read, bytes);
    }

    #[tokio::test]
    async fn the_stream_polls_for_writing_only_after_a_write_without_room() {
        let (mut one, mut other) = pair();
        let part = vec![7; 50_000];
        let mut sent = 0;
        let fill = poll_fn(|context| {
            loop {
                match Pin::new(&mut one).poll_write(context, &part) {
                    Poll::Ready(count) => sent += count.unwrap(),
                    Poll::Pending => return Poll::Ready(()),
                }
            }
        });
        fill.await;
        assert!(one.writable.is_some());
        let mut read = vec![0; sent];
        other.read_exact(&mut read).await.unwrap();
        for _ in 0..WRITES_WITH_ROOM {
            assert!(one.writable.is_some());
            one.write_all(b"x").await.unwrap();
        }
        assert!(one.writable.is_none());
        one.write_all(b"x").await.unwrap();
        let mut rest = vec![0; WRITES_WITH_ROOM as usize + 1];
        other.read_exact(&mut rest).await.unwrap();
    }

    #[tokio::test]
    async fn a_closed_peer_is_the_end_for_reads_and_an_error_for_writes() {
        let (mut one, other) = pair();
        drop(other);
        assert_eq!(one.read(&mut [0; 8]).await.unwrap(), 0);
        let error = one.write_all(&[0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
