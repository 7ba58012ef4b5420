//! One gRPC message as slices of shared buffers.
//!
//! The message goes out as one DATA frame of HTTP/2, so the receiver has it in one buffer.
//! Not responsible for: encoding messages.

use bytes::{Buf, Bytes};
use std::io::IoSlice;

/// Bytes before each message of a stream: a flag for compression, which ftb never uses, and the
/// length of the message.
pub(crate) const PREFIX_BYTES: usize = 5;

/// A message with its gRPC length prefix, as one buffer in several slices.
#[derive(Debug, Default)]
pub struct FrameBody {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that are not sent.
    prefix_left: usize,
    slices: Vec<Bytes>,
    /// Slices before this index are sent.
    next: usize,
    remaining: usize,
}

impl FrameBody {
    /// A message that consists of these slices.
    ///
    /// # Panics
    /// The message is longer than 4 GiB; every caller sends at most one batch, which is far below.
    #[must_use]
    pub fn message(slices: Vec<Bytes>) -> Self {
        let len: usize = slices.iter().map(Bytes::len).sum();
        let prefix = u32::try_from(len).expect("a message is at most one batch, far below 4 GiB");
        let [a, b, c, d] = prefix.to_be_bytes();
        let (prefix, remaining) = ([0, a, b, c, d], PREFIX_BYTES + len);
        Self { prefix, prefix_left: PREFIX_BYTES, slices, next: 0, remaining }
    }

    /// Bytes that already contain their prefixes.
    pub(crate) fn raw(bytes: Bytes) -> Self {
        Self { remaining: bytes.len(), slices: vec![bytes], ..Self::default() }
    }

    /// The slices that are not sent.
    fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let prefix = &self.prefix[PREFIX_BYTES - self.prefix_left..];
        let slices =
            self.slices.get(self.next..).unwrap_or_default().iter().map(|slice| &slice[..]);
        core::iter::once(prefix).chain(slices).filter(|slice| !slice.is_empty())
    }
}

impl Buf for FrameBody {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.unsent().next().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, target: &mut [IoSlice<'a>]) -> usize {
        let pairs = target.iter_mut().zip(self.unsent());
        pairs.map(|(target, slice)| *target = IoSlice::new(slice)).count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "{count} of {} bytes", self.remaining);
        self.remaining -= count;
        let of_prefix = count.min(self.prefix_left);
        self.prefix_left -= of_prefix;
        count -= of_prefix;
        while let Some(slice) = self.slices.get_mut(self.next).filter(|_| count > 0) {
            let sent = count.min(slice.len());
            slice.advance(sent);
            count -= sent;
            if slice.is_empty() {
                // Frees the buffer.
                *slice = Bytes::new();
                self.next += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_yields_its_slices_in_steps_of_any_size() {
        let slices = [&b"ab"[..], b"", b"cde", b"f"].map(Bytes::from_static);
        for step in 1..=11 {
            let mut body = FrameBody::message(slices.to_vec());
            let mut sent = Vec::new();
            while body.has_remaining() {
                let mut target = [IoSlice::new(&[]); 8];
                let count = body.chunks_vectored(&mut target);
                let all: Vec<u8> =
                    target[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(all.len(), body.remaining());
                let step = step.min(all.len());
                sent.extend_from_slice(&all[..step]);
                assert!(all.starts_with(body.chunk()) && !body.chunk().is_empty());
                body.advance(step);
            }
            assert_eq!(sent, b"\0\0\0\0\x06abcdef");
        }
    }
}
