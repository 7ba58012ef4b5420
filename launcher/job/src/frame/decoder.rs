//! Frames out of the bytes of a link, which come in pieces of any size. Pure.

use super::{HEADER_BYTES, Incoming, announced, assembled};
use crate::limits;
use std::io;

/// Least rest of a payload that is received where it stays, not through a buffer, in bytes.
const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// Most bytes of a payload that are prepared before they come.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

/// One frame after the other.
#[derive(Default)]
pub(crate) struct Decoder {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    filled: usize,
    /// Size of the payload, when the header is there.
    len: usize,
    /// What has come of it; zeros may follow.
    payload: Vec<u8>,
    /// Bytes of the payload that have come.
    received: usize,
}

impl Decoder {
    /// Whether no frame is begun.
    pub(crate) fn is_between(&self) -> bool {
        self.filled == 0
    }

    /// How many bytes the frame, or its header, needs at least.
    pub(crate) fn wanted(&self) -> usize {
        if self.filled < HEADER_BYTES { HEADER_BYTES - self.filled } else { self.left() }
    }

    /// Takes bytes to the end of a frame at most: how many, and the frame.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]; the link must be closed.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<Incoming>)> {
        let head = bytes.len().min(HEADER_BYTES - self.filled);
        if head > 0 {
            self.header[self.filled..][..head].copy_from_slice(&bytes[..head]);
            self.filled += head;
            if self.filled < HEADER_BYTES {
                return Ok((head, None));
            }
            self.len = announced(&self.header)?;
            self.payload = Vec::with_capacity(self.len.min(limits::BLOCK_BYTES_MAX));
        }
        let body = self.left().min(bytes.len() - head);
        self.payload.truncate(self.received);
        self.reserve(self.received + body);
        self.payload.extend_from_slice(&bytes[head..head + body]);
        Ok((head + body, self.advance(body)?))
    }

    /// Where bytes of a long payload may be put at once; empty where that saves nothing.
    /// [`Decoder::advance`] follows.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.left() < DIRECT_BYTES_MIN {
            return &mut [];
        }
        let end = self.received + self.left().min(AHEAD_BYTES_MAX);
        if self.payload.len() < end {
            self.reserve(end);
            self.payload.resize(end, 0);
        }
        &mut self.payload[self.received..end]
    }

    /// `count` bytes were put there: the frame, if it is complete.
    ///
    /// # Errors
    /// As [`Decoder::take`].
    pub(crate) fn advance(&mut self, count: usize) -> io::Result<Option<Incoming>> {
        self.received += count;
        if self.filled < HEADER_BYTES || self.left() > 0 {
            return Ok(None);
        }
        (self.filled, self.received) = (0, 0);
        assembled(&self.header, core::mem::take(&mut self.payload)).map(Some)
    }

    /// Bytes of the payload that have not come; 0 within the header.
    fn left(&self) -> usize {
        if self.filled < HEADER_BYTES { 0 } else { self.len - self.received }
    }

    /// Memory grows with what arrives, not with what a header announces.
    fn reserve(&mut self, bytes: usize) {
        let capacity = self.payload.capacity();
        if capacity < bytes {
            let grown = bytes.max(2 * capacity).min(self.len);
            self.payload.reserve_exact(grown - self.payload.len());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::{Class, Frame, renewal_payload};
    use proptest::prelude::*;

    fn wire(frames: &[Frame<'_>]) -> Vec<u8> {
        let bytes = |frame: &Frame<'_>| [&frame.header()[..], frame.payload()].concat();
        frames.iter().flat_map(bytes).collect()
    }

    fn incoming(frame: &Frame<'_>) -> Incoming {
        match *frame {
            Frame::Data { class, tag, seq, payload } => {
                Incoming::Data { class, tag, seq, payload: payload.to_vec() }
            }
            Frame::Control { payload } => Incoming::Control { payload: payload.to_vec() },
            Frame::Renewal { fence, .. } => Incoming::Renewal { fence, counts: (3, 2) },
            Frame::Goodbye => Incoming::Goodbye,
        }
    }

    /// All frames of these pieces, where `direct` of a long payload at the place where it stays.
    fn decoded(pieces: &mut dyn Iterator<Item = &[u8]>, direct: bool) -> Vec<Incoming> {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for mut piece in pieces {
            while !piece.is_empty() {
                let space: &mut [u8] = if direct { decoder.space() } else { &mut [] };
                let count = space.len().min(piece.len());
                let (taken, frame) = if count > 0 {
                    space[..count].copy_from_slice(&piece[..count]);
                    (count, decoder.advance(count).unwrap())
                } else {
                    decoder.take(piece).unwrap()
                };
                piece = &piece[taken..];
                frames.extend(frame);
            }
        }
        assert!(decoder.is_between());
        frames
    }

    fn data(payload: &[u8]) -> Frame<'_> {
        Frame::Data { class: Class::Within(7), tag: 9, seq: 4, payload }
    }

    #[test]
    fn frames_come_out_whole_wherever_their_bytes_are_split() {
        let counts = renewal_payload((3, 2));
        let renewal = Frame::Renewal { fence: 8, payload: &counts };
        let control = Frame::Control { payload: b"{}" };
        let frames = [data(b"hello"), Frame::Goodbye, renewal, data(b""), control];
        let (wire, expected) = (wire(&frames), frames.each_ref().map(incoming));
        for at in 0..=wire.len() {
            let (first, second) = wire.split_at(at);
            assert_eq!(decoded(&mut [first, second].into_iter(), false), expected, "at {at}");
        }
        assert_eq!(decoded(&mut wire.chunks(1), false), expected);
    }

    #[test]
    fn memory_grows_with_what_arrives_and_not_with_what_is_announced() {
        let mut decoder = Decoder::default();
        let mut header = data(b"").header();
        header[16..].copy_from_slice(&(limits::MESSAGE_BYTES_MAX as u32).to_le_bytes());
        decoder.take(&header).unwrap();
        assert_eq!(decoder.payload.capacity(), limits::BLOCK_BYTES_MAX);
        let mut arrived = 0;
        while arrived < 8 << 20 {
            let count = decoder.space().len().min(100_000);
            assert_eq!(decoder.advance(count).unwrap(), None);
            arrived += count;
            let most = 2 * (arrived + AHEAD_BYTES_MAX);
            assert!(
                decoder.payload.capacity() <= most.max(limits::BLOCK_BYTES_MAX),
                "at {arrived}"
            );
        }
        let over = (limits::MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes();
        header[16..].copy_from_slice(&over);
        assert!(Decoder::default().take(&header).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn frames_of_ragged_sizes_survive_ragged_pieces(
            sizes in proptest::collection::vec(prop_oneof![0_usize..70, 0_usize..600_000], 1..6),
            piece in prop_oneof![1_usize..40, 1_usize..300_000],
            direct: bool,
        ) {
            let payloads: Vec<Vec<u8>> = (1_u8..).zip(&sizes)
                .map(|(first, size)| (0..*size).map(|at| first.wrapping_add(at as u8)).collect())
                .collect();
            let frames: Vec<Frame<'_>> = payloads.iter().map(|payload| data(payload)).collect();
            let expected: Vec<Incoming> = frames.iter().map(incoming).collect();
            let piece = piece.max(sizes.iter().sum::<usize>() / 20_000);
            prop_assert_eq!(decoded(&mut wire(&frames).chunks(piece), direct), expected);
        }

        #[test]
        fn random_bytes_in_pieces_never_panic(
            bytes: Vec<u8>,
            kind in 0_u8..9,
            piece in 1_usize..9,
        ) {
            let mut decoder = Decoder::default();
            let framed = [&[super::super::MAGIC, kind, 0, 0][..], &bytes].concat();
            for mut piece in framed.chunks(piece) {
                while let Ok((taken @ 1.., _)) = decoder.take(piece) {
                    piece = &piece[taken..];
                }
            }
        }
    }
}
