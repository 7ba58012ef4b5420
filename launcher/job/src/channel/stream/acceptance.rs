//! The listener's side of an introduction: bytes in, the hello out. Pure.
//!
//! Responsible for what a rank says about itself; not for links and barriers.

use crate::frame;
use crate::hello::{CHALLENGE_BYTES, HELLO_BYTES, Hello, Introduction, Side};
use std::io;

/// An accepted connection whose other side may be anyone.
pub(super) struct Acceptance {
    introduction: Introduction,
    own: u32,
    size: u32,
    bytes: [u8; HELLO_BYTES],
    /// How many of them have come.
    filled: usize,
}

impl Acceptance {
    /// At that rank of a job with `size` ranks.
    pub(super) fn new(introduction: Introduction, own: u32, size: u32) -> Self {
        Self { introduction, own, size, bytes: [0; HELLO_BYTES], filled: 0 }
    }

    /// What is sent first.
    pub(super) fn challenge(&self) -> &[u8; CHALLENGE_BYTES] {
        &self.introduction.challenge
    }

    /// How many bytes are missing.
    pub(super) fn wanted(&self) -> usize {
        HELLO_BYTES - self.filled
    }

    /// Takes bytes, at most those that are missing; the hello when it is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: the peer is no other rank of the job, or wants another one.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<Option<Hello>> {
        let count = bytes.len().min(self.wanted());
        self.bytes[self.filled..][..count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        if self.wanted() > 0 {
            return Ok(None);
        }
        let hello = self.introduction.open(Side::Dialer, &self.bytes)?;
        let from = hello.from;
        if hello.to != self.own {
            return Err(frame::invalid("the hello is not for this rank"));
        }
        if from == self.own || from >= self.size {
            return Err(frame::invalid(format!("rank {from} does not connect here")));
        }
        Ok(Some(hello))
    }

    /// The answer on the wire.
    pub(super) fn seal(&self, answer: &Hello) -> [u8; HELLO_BYTES] {
        self.introduction.seal(Side::Listener, answer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hello::TOKEN_BYTES;

    fn introduction() -> Introduction {
        Introduction { token: [1; TOKEN_BYTES], challenge: [2; CHALLENGE_BYTES] }
    }

    fn said(from: u32, to: u32) -> Hello {
        Hello { from, to, fence: 3, nonce: [7; 16], sent: 4, received: 5 }
    }

    /// At rank 2 of four.
    fn heard(pieces: &mut dyn Iterator<Item = &[u8]>) -> io::Result<Option<Hello>> {
        let mut acceptance = Acceptance::new(introduction(), 2, 4);
        let mut hello = None;
        for piece in pieces {
            assert_eq!(hello, None);
            hello = acceptance.take(piece)?;
        }
        Ok(hello)
    }

    #[test]
    fn a_hello_is_heard_wherever_its_bytes_are_split() {
        let hello = said(1, 2);
        let wire = introduction().seal(Side::Dialer, &hello);
        for at in 1..wire.len() {
            let (first, second) = wire.split_at(at);
            assert_eq!(heard(&mut [first].into_iter()).unwrap(), None, "at {at}");
            let whole = heard(&mut [first, second].into_iter()).unwrap();
            assert_eq!(whole.as_ref(), Some(&hello), "at {at}");
        }
        assert_eq!(heard(&mut wire.chunks(1)).unwrap(), Some(hello));
    }

    #[test]
    fn a_hello_of_no_other_rank_or_for_another_one_is_refused() {
        for (from, to) in [(1, 3), (2, 2), (4, 2)] {
            let wire = introduction().seal(Side::Dialer, &said(from, to));
            assert!(heard(&mut wire.chunks(9)).is_err(), "{from} to {to}");
        }
        let stranger = Introduction { token: [0; TOKEN_BYTES], ..introduction() };
        let wire = stranger.seal(Side::Dialer, &said(1, 2));
        assert!(heard(&mut wire.chunks(9)).is_err());
    }
}
