//! Connections: gRPC streams over HTTP/2, on Unix sockets and TCP, with TLS and limits; requests of
//! HTTP/1.1 to web servers.
//!
//! The agent and its clients exchange events over long gRPC streams. This crate holds the code
//! that makes these streams fast and keeps hostile peers out. It knows no message of ftb: callers
//! pass and receive encoded messages as bytes. Any gRPC implementation may be the other side.
//!
//! | module | responsibility |
//! |---|---|
//! | [`executor`] | polls all futures of one connection in one task |
//! | [`stream`] | messages of one gRPC stream, as client and as server |
//! | [`frame_body`] | one message as slices of shared buffers, sent as one DATA frame |
//! | [`outbound`] | a channel of values as the sending half of a stream |
//! | [`heap`] | returns the memory of messages to the system |
//! | [`unix`] | Unix sockets with fewer wake-ups than tokio's |
//! | [`tls`] | mutual TLS and certificate checks |
//! | [`web`] | requests to web servers, HTTP/1.1 |
//! | `inspector` | limits on PING and SETTINGS frames, which h2 lacks |
//! | `close_signal` | ends a connection from another task |
//! | [`limiter`] | limits on connections, deadlines for their first message |
//! | [`peer_errors`] | counts and logs protocol errors of peers |
//!
//! Not responsible for: what a message means, who may send it, where sockets come from.

mod close_signal;
pub mod executor;
pub mod frame_body;
pub mod heap;
mod inspector;
pub mod limiter;
pub mod outbound;
pub mod peer_errors;
pub mod stream;
pub mod tls;
pub mod token_bucket;
pub mod unix;
pub mod web;

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream between two agents, or between an agent and a client.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A byte stream of any kind.
pub type BoxIo = Box<dyn Io>;

/// The kernel's answer to who is at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
    /// Process id when the socket connected.
    pub pid: u32,
}

/// A fresh connection.
pub struct Connection {
    /// Its bytes.
    pub io: BoxIo,
    /// The peer, for logs.
    pub address: String,
    /// Unix sockets only.
    pub credentials: Option<Credentials>,
}
