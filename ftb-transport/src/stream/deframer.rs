//! Cuts messages out of DATA frames, and limits their length.

use super::StreamError;
use crate::frame_body::PREFIX_BYTES;
use bytes::{Buf as _, Bytes, BytesMut};

/// Received bytes that are not yet messages.
#[derive(Debug, Default)]
pub(super) struct Deframer {
    message_bytes_max: usize,
    /// The last frame, as far as it is not consumed.
    data: Bytes,
    /// The beginning of a message that spans several frames.
    partial: BytesMut,
}

impl Deframer {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, ..Self::default() }
    }

    /// Adds a frame. Call it after [`Deframer::next`] has returned `None`.
    pub(super) fn add(&mut self, data: Bytes) {
        self.data = data;
    }

    /// The next complete message.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        if self.partial.is_empty()
            && let Some(len) = self.len_of(&self.data)?
            && let Some(whole) = self.data.get(..PREFIX_BYTES + len)
        {
            let whole = whole.len();
            return Ok(Some(self.data.split_to(whole).slice(PREFIX_BYTES..)));
        }
        self.collect(PREFIX_BYTES);
        let Some(len) = self.len_of(&self.partial)? else { return Ok(None) };
        self.collect(PREFIX_BYTES + len);
        if self.partial.len() < PREFIX_BYTES + len {
            return Ok(None);
        }
        // The message takes its buffer along: an idle stream keeps no memory.
        Ok(Some(std::mem::take(&mut self.partial).freeze().slice(PREFIX_BYTES..)))
    }

    /// Checks that the stream ends after a complete message.
    pub(super) fn end(&self) -> Result<(), StreamError> {
        if self.partial.is_empty() {
            return Ok(());
        }
        Err(StreamError::Malformed("the stream ends in the middle of a message".to_owned()))
    }

    /// Moves received bytes to the partial message until it has `len` bytes.
    fn collect(&mut self, len: usize) {
        let missing = len.saturating_sub(self.partial.len());
        if self.data.is_empty() {
            return;
        }
        if self.partial.capacity() < len {
            // The exact size: appending would double the buffer.
            let mut whole = BytesMut::with_capacity(len);
            whole.extend_from_slice(&self.partial);
            self.partial = whole;
        }
        let received = self.data.split_to(missing.min(self.data.len()));
        self.partial.extend_from_slice(received.chunk());
    }

    /// The length of the message that starts here; `None` until its prefix is complete.
    fn len_of(&self, bytes: &[u8]) -> Result<Option<usize>, StreamError> {
        let Some((prefix, _)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [compressed, len @ ..] = *prefix;
        let len = u32::from_be_bytes(len) as usize;
        if compressed != 0 {
            let text = "a compressed message, which was not negotiated";
            return Err(StreamError::Malformed(text.to_owned()));
        }
        let max = self.message_bytes_max;
        if len > max {
            let text = format!("a message of {len} bytes: at most {max} are allowed");
            return Err(StreamError::Malformed(text));
        }
        Ok(Some(len))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    proptest! {
        #[test]
        fn messages_come_out_of_frames_cut_at_any_place(
            messages in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..50), 0..10),
            cuts in proptest::collection::vec(1..60_usize, 1..40),
        ) {
            let framed: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
            let mut bytes = Bytes::from(framed);
            let mut deframer = Deframer::new(50);
            let mut found = Vec::new();
            for cut in cuts.iter().cycle() {
                while let Some(message) = deframer.next().unwrap() {
                    found.push(message.to_vec());
                }
                if bytes.is_empty() {
                    break;
                }
                deframer.add(bytes.split_to((*cut).min(bytes.len())));
            }
            prop_assert!(deframer.end().is_ok());
            prop_assert_eq!(found, messages);
        }
    }

    #[test]
    fn long_compressed_and_incomplete_messages_are_errors() {
        for prefix in [[0, 0, 0, 0, 101], [1, 0, 0, 0, 1]] {
            let mut deframer = Deframer::new(100);
            deframer.add(Bytes::copy_from_slice(&prefix));
            assert!(deframer.next().is_err(), "before any memory is reserved");
        }
        let mut deframer = Deframer::new(100);
        deframer.add(Bytes::from_static(&[0, 0, 0, 0, 100, 7]));
        assert!(deframer.next().unwrap().is_none());
        assert!(deframer.end().is_err());
    }
}
