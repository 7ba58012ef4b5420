//! The numbered messages between the JL and one node. Each arrives once and in order, over any
//! number of connections, while both processes live. Unacknowledged messages are sent again after
//! an interruption.

use super::LinkError;
use super::packet::PacketBody;
use bytes::Bytes;
use std::collections::VecDeque;

/// Most bytes of unacknowledged messages that take further ones which their senders repeat. Kept
/// messages are always taken: the windows of the streams limit them.
pub const UNACKED_BYTES_MAX: usize = 32 * 1024 * 1024;

#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Messages from number `first` on.
    unacked: VecDeque<Bytes>,
    unacked_bytes: usize,
    first: u64,
    /// The number of the next message of the peer.
    expected: u64,
}

impl Session {
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Whether the peer has everything.
    pub fn is_idle(&self) -> bool {
        self.unacked.is_empty()
    }

    /// The peer is another process: numbers begin again. It gets what the earlier one has not
    /// acknowledged.
    pub fn restart(&mut self) {
        (self.first, self.expected) = (0, 0);
    }

    /// Keeps a message until it is acknowledged. `keep`: its sender does not repeat it.
    ///
    /// # Errors
    /// [`LinkError::Full`]; the message is not sent.
    pub fn send(&mut self, message: Bytes, keep: bool) -> Result<PacketBody, LinkError> {
        if !keep && self.unacked_bytes + message.len() > UNACKED_BYTES_MAX {
            return Err(LinkError::Full);
        }
        let number = self.first + self.unacked.len() as u64;
        self.unacked_bytes += message.len();
        self.unacked.push_back(message.clone());
        Ok(PacketBody::Message { number, message })
    }

    /// The path is new: the messages to send again.
    ///
    /// # Errors
    /// [`LinkError::Sequence`].
    pub fn on_resume(
        &mut self,
        expected: u64,
    ) -> Result<impl Iterator<Item = PacketBody>, LinkError> {
        self.on_ack(expected)?;
        let again = (self.first..).zip(self.unacked.iter().cloned());
        Ok(again.map(|(number, message)| PacketBody::Message { number, message }))
    }

    /// # Errors
    /// [`LinkError::Sequence`].
    pub fn on_ack(&mut self, expected: u64) -> Result<(), LinkError> {
        if expected > self.first + self.unacked.len() as u64 {
            return Err(LinkError::Sequence);
        }
        while self.first < expected {
            let message = self.unacked.pop_front().unwrap_or_default();
            self.unacked_bytes -= message.len();
            self.first += 1;
        }
        Ok(())
    }

    /// The message, if it is new.
    ///
    /// # Errors
    /// [`LinkError::Sequence`]: messages before it are missing.
    pub fn on_message(&mut self, number: u64, message: Bytes) -> Result<Option<Bytes>, LinkError> {
        if number > self.expected {
            return Err(LinkError::Sequence);
        }
        let new = number == self.expected;
        self.expected += u64::from(new);
        Ok(new.then_some(message))
    }
}
