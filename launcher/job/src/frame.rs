//! The bytes on a link between ranks.
//!
//! A link starts with the introduction ([`crate::hello`]); then frames follow, each a fixed header
//! and a payload. Responsible for encoding and for refusing invalid frames; not for order and
//! counts ([`crate::inbox`]).

mod decoder;

use crate::limits;
pub(crate) use decoder::Decoder;
use std::io::{self, Read};

/// The owner of a message: the program or a collective operation. The classes never match each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// From `send` to `recv`.
    User,
    /// Inside a collective operation; the tag is the count of collective operations.
    Collective,
    /// Between two members of the communicator with this number.
    Within(u16),
    /// Inside a collective operation of that communicator.
    CollectiveWithin(u16),
}

impl Class {
    /// Its kind and the number of its communicator, 0 without one.
    pub(crate) fn to_wire(self) -> (u8, u16) {
        match self {
            Self::User => (DATA_USER, 0),
            Self::Collective => (DATA_COLLECTIVE, 0),
            Self::Within(communicator) => (DATA_WITHIN, communicator),
            Self::CollectiveWithin(communicator) => (DATA_COLLECTIVE_WITHIN, communicator),
        }
    }

    pub(crate) fn from_wire(kind: u8, communicator: u16) -> Option<Self> {
        match (kind, communicator) {
            (DATA_USER, 0) => Some(Self::User),
            (DATA_COLLECTIVE, 0) => Some(Self::Collective),
            (DATA_WITHIN, communicator) => Some(Self::Within(communicator)),
            (DATA_COLLECTIVE_WITHIN, communicator) => Some(Self::CollectiveWithin(communicator)),
            _ => None,
        }
    }
}

/// One frame, its payload borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message. Sequence numbers of a pair start at 1 and have no holes.
    Data {
        /// Whose.
        class: Class,
        /// What the receiver asks for.
        tag: u32,
        /// Its number among the messages of this pair.
        seq: u64,
        /// The message.
        payload: &'a [u8],
    },
    /// For the agreement on a safe point.
    Control {
        /// JSON.
        payload: &'a [u8],
    },
    /// What follows is of another barrier: the link was kept over a recovery. Both sides send it.
    Renewal {
        /// The barrier.
        fence: u64,
        /// See [`renewal_payload`].
        payload: &'a [u8; RENEWAL_BYTES],
    },
    /// The sender has finalized; the end of the link is not a loss.
    Goodbye,
}

/// The payload of [`Frame::Renewal`]: messages sent to the other rank and received from it.
pub fn renewal_payload((sent, received): (u64, u64)) -> [u8; RENEWAL_BYTES] {
    let mut payload = [0; RENEWAL_BYTES];
    payload[..8].copy_from_slice(&sent.to_le_bytes());
    payload[8..].copy_from_slice(&received.to_le_bytes());
    payload
}

const MAGIC: u8 = 0xF7;
const DATA_USER: u8 = 1;
const DATA_COLLECTIVE: u8 = 2;
const DATA_WITHIN: u8 = 3;
const DATA_COLLECTIVE_WITHIN: u8 = 4;
const CONTROL: u8 = 5;
const GOODBYE: u8 = 6;
const RENEWAL: u8 = 7;
/// Size of the payload of a renewal in bytes.
pub const RENEWAL_BYTES: usize = 16;

/// Size of a frame's header in bytes: magic, kind, communicator (2), tag, number, length; little
/// endian.
pub(crate) const HEADER_BYTES: usize = 20;

impl Frame<'_> {
    /// The header; the payload follows it.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let ((kind, communicator), tag, seq) = match self {
            Self::Data { class, tag, seq, .. } => (class.to_wire(), *tag, *seq),
            Self::Control { .. } => ((CONTROL, 0), 0, 0),
            Self::Renewal { fence, .. } => ((RENEWAL, 0), 0, *fence),
            Self::Goodbye => ((GOODBYE, 0), 0, 0),
        };
        // The payload was checked against MESSAGE_BYTES_MAX, which fits.
        let len = self.payload().len() as u32;
        let mut header = [0; HEADER_BYTES];
        header[0] = MAGIC;
        header[1] = kind;
        header[2..4].copy_from_slice(&communicator.to_le_bytes());
        header[4..8].copy_from_slice(&tag.to_le_bytes());
        header[8..16].copy_from_slice(&seq.to_le_bytes());
        header[16..20].copy_from_slice(&len.to_le_bytes());
        header
    }

    /// The payload; empty for a frame without one.
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Data { payload, .. } | Self::Control { payload } => payload,
            Self::Renewal { payload, .. } => *payload,
            Self::Goodbye => &[],
        }
    }
}

/// One frame that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// [`Frame::Data`].
    Data {
        /// Whose.
        class: Class,
        /// What the receiver asks for.
        tag: u32,
        /// Its number.
        seq: u64,
        /// The message.
        payload: Vec<u8>,
    },
    /// [`Frame::Control`].
    Control {
        /// JSON.
        payload: Vec<u8>,
    },
    /// [`Frame::Renewal`].
    Renewal {
        /// The barrier.
        fence: u64,
        /// Messages that the other rank has sent to this one, and received from it.
        counts: (u64, u64),
    },
    /// [`Frame::Goodbye`].
    Goodbye,
}

/// Reads the next frame; `Ok(None)` if the stream ends between two frames.
///
/// # Errors
/// The stream's; [`io::ErrorKind::InvalidData`] for an invalid frame, after which the link must be
/// closed.
pub fn read_frame(stream: &mut impl Read) -> io::Result<Option<Incoming>> {
    const PIECE_BYTES: usize = 8 * 1024;
    let (mut decoder, mut piece) = (Decoder::default(), [0; PIECE_BYTES]);
    loop {
        // Nothing of the next frame.
        let wanted = decoder.wanted().min(PIECE_BYTES);
        match stream.read(&mut piece[..wanted]) {
            Ok(0) if decoder.is_between() => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                if let (_, Some(frame)) = decoder.take(&piece[..count])? {
                    return Ok(Some(frame));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The size of the payload behind a header.
fn announced(header: &[u8; HEADER_BYTES]) -> io::Result<usize> {
    let [MAGIC, kind, ..] = *header else {
        return Err(invalid("no frame"));
    };
    let len = u32::from_le_bytes(array(&header[16..20])) as usize;
    let len_max = match kind {
        DATA_USER..=DATA_COLLECTIVE_WITHIN => limits::MESSAGE_BYTES_MAX,
        CONTROL => limits::CONTROL_BYTES_MAX,
        RENEWAL => RENEWAL_BYTES,
        _ => 0,
    };
    if len > len_max {
        return Err(invalid("a frame over its bound"));
    }
    Ok(len)
}

/// The frame of a header and its payload, which has the announced size.
fn assembled(header: &[u8; HEADER_BYTES], payload: Vec<u8>) -> io::Result<Incoming> {
    let kind = header[1];
    let communicator = u16::from_le_bytes(array(&header[2..4]));
    let tag = u32::from_le_bytes(array(&header[4..8]));
    let seq = u64::from_le_bytes(array(&header[8..16]));
    match (kind, communicator, Class::from_wire(kind, communicator)) {
        (_, _, Some(class)) => Ok(Incoming::Data { class, tag, seq, payload }),
        (CONTROL, 0, _) => Ok(Incoming::Control { payload }),
        (GOODBYE, 0, _) => Ok(Incoming::Goodbye),
        (RENEWAL, 0, _) if payload.len() == RENEWAL_BYTES => {
            let number = |bytes: &[u8]| u64::from_le_bytes(array(bytes));
            let counts = (number(&payload[..8]), number(&payload[8..]));
            Ok(Incoming::Renewal { fence: seq, counts })
        }
        _ => Err(invalid("a frame of unknown kind")),
    }
}

pub(crate) fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

/// The callers slice exactly `N` bytes.
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_the_wire(tag: u32, seq: u64, within: u16, payload: Vec<u8>) {
            let (class, other) = (Class::Collective, Class::CollectiveWithin(within));
            let counts = (u64::from(tag), seq);
            let frames = [
                Frame::Data { class, tag, seq, payload: &payload },
                Frame::Data { class: other, tag, seq, payload: &payload },
                Frame::Control { payload: &payload },
                Frame::Renewal { fence: seq, payload: &renewal_payload(counts) },
                Frame::Goodbye,
            ];
            let mut wire = Vec::new();
            for frame in &frames {
                wire.extend_from_slice(&frame.header());
                wire.extend_from_slice(frame.payload());
            }
            let mut stream = wire.as_slice();
            let expected = [
                Incoming::Data { class, tag, seq, payload: payload.clone() },
                Incoming::Data { class: other, tag, seq, payload: payload.clone() },
                Incoming::Control { payload },
                Incoming::Renewal { fence: seq, counts },
                Incoming::Goodbye,
            ];
            for frame in expected {
                prop_assert_eq!(read_frame(&mut stream).unwrap(), Some(frame));
            }
            prop_assert_eq!(read_frame(&mut stream).unwrap(), None);
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, kind in 0_u8..9) {
            read_frame(&mut bytes.as_slice()).ok();
            let mut framed = vec![MAGIC, kind, 0, 0];
            framed.extend(bytes);
            read_frame(&mut framed.as_slice()).ok();
        }
    }

    #[test]
    fn a_torn_frame_is_an_error_and_not_an_end() {
        let frame = Frame::Data { class: Class::User, tag: 1, seq: 1, payload: b"hello" };
        let mut wire = frame.header().to_vec();
        wire.extend_from_slice(frame.payload());
        for cut in 1..wire.len() {
            assert!(read_frame(&mut &wire[..cut]).is_err(), "cut at {cut}");
        }
    }
}
