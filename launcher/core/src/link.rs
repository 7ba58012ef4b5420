//! The job connection: what only JL and NLAs of one job may read. It follows the launch tree.
//!
//! - [`cipher`]: handshake and frames of one connection; also of one that copies images
//! - [`packet`]: what a frame of the tree has in it, and which messages
//! - [`session`]: the numbered messages between the JL and one node, resumed after an interruption
//! - [`router`]: the connections of one process: which node lies behind which
//!
//! `launcher/core/protocol.md` is the contract. Not responsible for: sockets, randomness.

pub mod cipher;
pub mod packet;
pub mod router;
pub mod session;

/// What a peer did against the protocol. Its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("the peer is not of this protocol")]
    Protocol,
    #[error("wrong key")]
    Key,
    #[error("a frame is too long")]
    Length,
    #[error("a frame is damaged or forged")]
    Forged,
    #[error("the connections form a loop")]
    Loop,
    #[error("a message is out of sequence")]
    Sequence,
    #[error("too many messages wait for acknowledgement")]
    Full,
}

#[cfg(test)]
mod tests;
