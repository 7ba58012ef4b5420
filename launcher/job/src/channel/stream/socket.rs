//! The sockets of a channel over byte streams: TCP, and abstract Unix sockets.

use super::super::Opening;
use crate::error::Result;
use crate::frame;
use crate::hello::TOKEN_BYTES;
use crate::limits;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::Duration;

/// What a channel's sockets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// Between any two ranks, with this rank's address.
    Tcp(IpAddr),
    /// Between ranks whose nodes have the same name.
    Unix,
}

impl Medium {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Unix => "unix",
        }
    }
}

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn dial(medium: Medium, address: &str) -> io::Result<Self> {
        match medium {
            Medium::Tcp(_) => {
                let parsed: Result<SocketAddr, _> = address.parse();
                let address = parsed.map_err(|error| frame::invalid(error.to_string()))?;
                let stream = TcpStream::connect_timeout(&address, limits::CONNECT_TIMEOUT)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Medium::Unix => {
                let address = UnixAddr::from_abstract_name(address)?;
                UnixStream::connect_addr(&address).map(Self::Unix)
            }
        }
    }

    /// Reads what has come, without waiting.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, buffer, RecvFlags::DONTWAIT)?.1)
    }

    /// Whether the other side has closed it, or it is broken, and nothing is left to read.
    pub(super) fn has_ended(&self) -> bool {
        match rustix::net::recv(self, &mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, count)) => count == 0,
            Err(error) => error != Errno::WOULDBLOCK,
        }
    }

    /// Writes what there is room for, without waiting.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    /// How long a read and a write wait at most.
    pub(super) fn set_timeouts(&self, read: Option<Duration>, write: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(Some(write))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(Some(write))
            }
        }
    }

    /// Closes both directions; written bytes still arrive.
    pub(super) fn close(&self) {
        self.shut_down(Shutdown::Both);
    }

    /// A blocked write returns.
    pub(super) fn end_writing(&self) {
        self.shut_down(Shutdown::Write);
    }

    fn shut_down(&self, how: Shutdown) {
        // The other side may have closed it.
        match self {
            Self::Tcp(stream) => stream.shutdown(how).ok(),
            Self::Unix(stream) => stream.shutdown(how).ok(),
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match *self {
            Socket::Tcp(stream) => (&*stream).read(buffer),
            Socket::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {
            Socket::Tcp(stream) => (&*stream).write_vectored(buffers),
            Socket::Unix(stream) => (&*stream).write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl ListeningSocket {
    pub(super) fn bind(medium: Medium, opening: &Opening) -> io::Result<(Self, String)> {
        let (socket, address) = match medium {
            Medium::Tcp(address) => {
                let listener = TcpListener::bind((address, 0))?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?.to_string();
                (Self::Tcp(listener), address)
            }
            Medium::Unix => {
                let hex = |byte: &u8| format!("{byte:02x}");
                let random: String = random_bytes()?.iter().map(hex).collect();
                let name = format!("ftb-job-{}-{random}", opening.own.rank);
                let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
                listener.set_nonblocking(true)?;
                (Self::Unix(listener), name)
            }
        };
        // All ranks may dial at once.
        rustix::net::listen(&socket, limits::DIALLING_MAX)?;
        Ok((socket, address))
    }

    /// The next connection that has come, without waiting.
    pub(super) fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept()?.0)),
        }
    }

    /// Whether one has come.
    pub(super) fn is_waiting(&self) -> bool {
        let mut polled = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// From the system's generator. Opens no file: the last one may be that of a connection.
pub(crate) fn random_bytes() -> io::Result<[u8; TOKEN_BYTES]> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
