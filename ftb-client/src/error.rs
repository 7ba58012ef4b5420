//! What can go wrong, one line each: what, where, what to do.

use ftb_core::event::EventError;
use ftb_core::filter::FilterError;
use std::path::PathBuf;

/// A client that cannot be made. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A name over its bound.
    #[error("the {field} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// There is no tokio runtime to live on.
    #[error("a client needs a tokio runtime: use ftb_client::blocking in a program without one")]
    NoRuntime,
    /// The thread of a blocking client cannot be started.
    #[error("the client's thread cannot be started: {0}")]
    Thread(String),
}

/// An event that was not accepted for publication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// It breaks a limit.
    #[error(transparent)]
    Event(#[from] EventError),
    /// No room, and nothing of lower severity to shed. Counted as shed.
    #[error(
        "the buffer of unconfirmed events is full ({held_bytes} of {bytes_max} bytes): \
         is an agent there? Wait with publish_wait, or raise buffer_bytes"
    )]
    Full {
        /// Buffered bytes.
        held_bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// No room beside the other events of its batch.
    #[error(
        "the batch has no room for the event ({held_bytes} of {bytes_max} bytes): \
         publish the batch first, or raise buffer_bytes"
    )]
    BatchFull {
        /// Bytes of the batch.
        held_bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

/// An event that was accepted and will not be confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unconfirmed {
    /// It was shed for others before an agent accepted it.
    #[error("the event was shed: the buffer was full, and no agent accepted events in time")]
    Shed,
    /// The agent refused it.
    #[error("the agent refused the event ({code}): {message}")]
    Refused {
        /// Stable word: one of [`ftb_core::node::api::RejectCode`].
        code: String,
        /// For users.
        message: String,
    },
    /// The client was closed first. It may have been delivered or not.
    #[error("the client was closed before the event was confirmed")]
    Closed,
}

/// A subscription that did not become active, or that has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The filter cannot be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The agent said no.
    #[error("the agent refused the subscription ({code}): {message}")]
    Refused {
        /// Stable word: one of [`ftb_core::node::api::RejectCode`].
        code: String,
        /// For people.
        message: String,
    },
    /// Too many at once.
    #[error("the client has {0} subscriptions, no more are allowed: drop one, or use one filter")]
    TooMany(usize),
    /// It was not active in time (only where a deadline was given).
    #[error("the subscription was not active in time: is an agent there?")]
    Timeout,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

/// Nothing answers, or not in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// No agent listened at the socket within the deadline.
    #[error("no agent at {socket}: {why}")]
    NoAgent {
        /// Where it was looked for.
        socket: PathBuf,
        /// What the last attempt said.
        why: String,
    },
    /// An agent listens there, and turns this client away.
    #[error("the agent at {socket} refused this client ({code}): {message}")]
    Refused {
        /// Its socket.
        socket: PathBuf,
        /// Stable word: one of [`ftb_core::node::api::RejectCode`].
        code: String,
        /// For people.
        message: String,
    },
    /// A process listens there, and the client is not attached to it.
    #[error("not attached to the agent at {socket}: {why}")]
    Detached {
        /// Its socket.
        socket: PathBuf,
        /// What the last attempt said.
        why: String,
    },
    /// Events were still unconfirmed at the deadline.
    #[error("{bytes} bytes of events are still unconfirmed")]
    Unconfirmed {
        /// How much.
        bytes: usize,
    },
    /// Nothing happened until the deadline.
    #[error("nothing happened in time")]
    Timeout,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}
