//! The Unix socket between a client and its agent, which wakes its task for what has come and at no
//! other time.
//!
//! The kernel tells whoever watches a Unix socket for room whenever the peer has read something of what
//! was sent. Tokio's own stream watches for both from its first to its last day: every message costs the
//! sender one more wake-up of a thread, and where it sends one at a time that is most of what it does.
//! Here a socket is watched for room only when it had none.
//!
//! Responsible for: reading and writing without that. Not responsible for: what is said.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use socket2::SockRef;
use std::io::{self, IoSlice, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// What the peer may leave unread before there is no room, in bytes as the kernel counts them: it takes
/// twice that, a few messages of full size. So much is granted by a kernel with its own settings
/// (`net.core.wmem_max`), one with lower ones grants what it has.
const UNREAD_BYTES: usize = 212_992;
/// After so many writes in a row for which there was room, it is not watched any more.
const ROOMY_WRITES: u32 = 64;

/// One end of a connected Unix socket.
#[derive(Debug)]
pub struct LocalStream {
    /// Watched for what comes.
    socket: AsyncFd<UnixStream>,
    /// The same socket, watched for room, since there was none lately.
    room: Option<AsyncFd<UnixStream>>,
    /// Writes in a row for which there was room.
    roomy: u32,
}

#[allow(unsafe_code, reason = "tokio cannot know that the socket keeps its descriptor")]
fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: the socket owns its descriptor, gives the same one each time, and is not given away before
    // the registration ends.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest)? })
}

impl LocalStream {
    /// The same socket.
    ///
    /// # Errors
    /// Too many files are open, or there is no runtime.
    pub fn new(socket: tokio::net::UnixStream) -> io::Result<Self> {
        let socket = socket.into_std()?;
        SockRef::from(&socket).set_send_buffer_size(UNREAD_BYTES)?;
        let socket = watch(socket, Interest::READABLE)?;
        Ok(Self { socket, room: None, roomy: 0 })
    }

    /// Writes as soon as there is room.
    fn poll_some(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut room = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(context))?),
                None => None,
            };
            let written = write(self.socket.get_ref());
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match &mut room {
                    Some(room) => room.clear_ready(),
                    None => {
                        let same = self.socket.get_ref().try_clone()?;
                        self.room = Some(watch(same, Interest::WRITABLE)?);
                        self.roomy = 0;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    let watched = room.is_some();
                    self.roomy = self.roomy.saturating_add(1);
                    if watched && self.roomy >= ROOMY_WRITES {
                        self.room = None;
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncRead for LocalStream {
    #[allow(unsafe_code, reason = "it reads into memory that nobody has written to")]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut come = ready!(self.socket.poll_read_ready(context))?;
            // SAFETY: nothing in it is made uninitialised, it is only written to.
            let space = unsafe { buffer.unfilled_mut() };
            let asked = space.len();
            match SockRef::from(self.socket.get_ref()).recv(space) {
                Ok(count) => {
                    if count > 0 && count < asked {
                        // All that there was: more wakes the task again.
                        come.clear_ready();
                    }
                    // SAFETY: so many bytes of it were written just now.
                    unsafe { buffer.assume_init(count) };
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => come.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_some(context, |mut socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_some(context, |mut socket| socket.write_vectored(pieces))
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

    fn pair() -> (LocalStream, tokio::net::UnixStream) {
        let (one, other) = tokio::net::UnixStream::pair().unwrap();
        (LocalStream::new(one).unwrap(), other)
    }

    /// Far more than a socket holds, so that both wait for each other again and again.
    #[tokio::test]
    async fn what_is_written_is_read_whoever_is_slow() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (one, other) = tokio::net::UnixStream::pair().unwrap();
        let (mut one, mut other) =
            (LocalStream::new(one).unwrap(), LocalStream::new(other).unwrap());
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
    async fn room_is_watched_for_only_where_there_was_none() {
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
        assert!(one.room.is_some(), "it waits for room");
        let mut read = vec![0; sent];
        other.read_exact(&mut read).await.unwrap();
        for _ in 0..ROOMY_WRITES {
            assert!(one.room.is_some());
            one.write_all(b"x").await.unwrap();
        }
        assert!(one.room.is_none(), "there was room for long");
        one.write_all(b"x").await.unwrap();
        let mut rest = vec![0; ROOMY_WRITES as usize + 1];
        other.read_exact(&mut rest).await.unwrap();
    }

    #[tokio::test]
    async fn the_end_and_a_peer_that_is_gone_are_told() {
        let (mut one, other) = pair();
        drop(other);
        assert_eq!(one.read(&mut [0; 8]).await.unwrap(), 0);
        let error = one.write_all(&[0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
