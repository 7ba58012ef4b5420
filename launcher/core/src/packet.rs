//! Packets: what processes of the launcher send each other, apart from events, PMI, images and the
//! links of ranks.
//!
//! A packet is a head, one line of JSON, and the bytes that belong to it: `JSON LF`, or `LENGTH
//! SPACE JSON LF BYTES`. So it ends by itself, in a pipe as in a frame of the job connection. Who
//! receives it limits it. Input is hostile until it is parsed.
//!
//! Not responsible for: what a head says, and how its bytes travel.

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most digits of a length.
const LENGTH_DIGITS_MAX: usize = 10;

/// Why something is no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("a packet is longer than {0} bytes")]
    Length(usize),
    #[error("{0} bytes are not one whole packet")]
    Torn(usize),
    #[error("the head of a packet is malformed: {0}")]
    Head(String),
    #[error("the head of a packet has no bytes, and {0} follow")]
    Bytes(usize),
}

/// What a head says.
pub trait PacketHead: Serialize + DeserializeOwned {
    /// The field for the bytes behind the head (`#[serde(skip)]`), where there is one.
    fn bytes(&mut self) -> Option<&mut Bytes> {
        None
    }

    /// What the types of its fields do not say.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn encode(mut self) -> Bytes {
        let bytes = self.bytes().map(core::mem::take).unwrap_or_default();
        // JSON has no line end within.
        let head = serde_json::to_vec(&self).unwrap_or_default();
        let mut packet = BytesMut::with_capacity(LENGTH_DIGITS_MAX + 2 + head.len() + bytes.len());
        if !bytes.is_empty() {
            packet.extend_from_slice(format!("{} ", bytes.len()).as_bytes());
        }
        packet.extend_from_slice(&head);
        packet.extend_from_slice(b"\n");
        packet.extend_from_slice(&bytes);
        packet.freeze()
    }

    /// Reads one whole packet.
    ///
    /// # Errors
    /// [`PacketError`].
    fn decode(packet: Bytes) -> Result<Self, PacketError> {
        let end = packet.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(PacketError::Torn(packet.len()))?;
        let (length, json) = parted(&packet[..end]);
        let bytes = packet.slice(end + 1..);
        if bytes.len() != length {
            return Err(PacketError::Torn(packet.len()));
        }
        let wrong = |error: serde_json::Error| PacketError::Head(error.to_string());
        let mut head: Self = serde_json::from_slice(json).map_err(wrong)?;
        match head.bytes() {
            Some(field) => *field = bytes,
            None if length > 0 => return Err(PacketError::Bytes(length)),
            None => {}
        }
        head.check().map_err(|problem| PacketError::Head(problem.to_owned()))?;
        Ok(head)
    }
}

/// How many bytes follow a line, and its JSON.
fn parted(line: &[u8]) -> (usize, &[u8]) {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let length = str::from_utf8(&line[..digits]).ok().and_then(|digits| digits.parse().ok());
    match (length, &line[digits..]) {
        (Some(length), [b' ', json @ ..])
            if digits <= LENGTH_DIGITS_MAX && json.starts_with(b"{") =>
        {
            (length, json)
        }
        _ => (0, line),
    }
}

/// Packets out of a stream, which comes in pieces of any size.
#[derive(Clone, Debug)]
pub struct PacketDecoder {
    packet_bytes_max: usize,
    bytes: BytesMut,
    /// Bytes at the beginning without a line end.
    searched: usize,
}

impl PacketDecoder {
    pub fn new(packet_bytes_max: usize) -> Self {
        Self { packet_bytes_max, bytes: BytesMut::new(), searched: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet; `None` until more bytes come.
    ///
    /// # Errors
    /// [`PacketError`]. Its line is skipped, so a reader may go on.
    pub fn next_packet<T: PacketHead>(&mut self) -> Result<Option<T>, PacketError> {
        let max = self.packet_bytes_max;
        let found = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.bytes.len(), |at| self.searched + at);
        let (line, length) = match found {
            Some(_) => (self.searched + 1, parted(&self.bytes[..self.searched]).0),
            None => (self.searched, 0),
        };
        let whole = line.saturating_add(length);
        if whole > max {
            self.searched = 0;
            drop(self.bytes.split_to(line));
            return Err(PacketError::Length(max));
        }
        if found.is_none() || self.bytes.len() < whole {
            return Ok(None);
        }
        self.searched = 0;
        T::decode(self.bytes.split_to(whole).freeze()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    enum Said {
        Plain(String),
        Full {
            of: u32,
            #[serde(skip)]
            bytes: Bytes,
        },
    }

    impl PacketHead for Said {
        fn bytes(&mut self) -> Option<&mut Bytes> {
            match self {
                Self::Full { bytes, .. } => Some(bytes),
                Self::Plain(_) => None,
            }
        }

        fn check(&self) -> Result<(), &'static str> {
            if matches!(self, Self::Full { of: 9, .. }) { Err("there is no 9") } else { Ok(()) }
        }
    }

    fn full(bytes: &[u8]) -> Said {
        Said::Full { of: 3, bytes: Bytes::copy_from_slice(bytes) }
    }

    fn decode(text: &str) -> Result<Said, PacketError> {
        Said::decode(text.to_owned().into())
    }

    #[test]
    fn a_packet_is_a_line_and_its_bytes_and_anything_else_is_refused_with_the_reason() {
        for (said, text) in [
            (Said::Plain("a\nb".to_owned()), "{\"Plain\":\"a\\nb\"}\n"),
            (full(b""), "{\"Full\":{\"of\":3}}\n"),
            (full(b"x\ny"), "3 {\"Full\":{\"of\":3}}\nx\ny"),
        ] {
            assert_eq!(said.clone().encode(), text);
            assert_eq!(decode(text), Ok(said));
        }
        for (bad, problem) in [
            ("", "0 bytes are not one whole packet"),
            ("{\"Plain\":\"a\"}", "13 bytes are not"),
            ("{\"Plain\":\"a\"}\nx", "15 bytes are not"),
            ("2 {\"Full\":{\"of\":3}}\nx", "21 bytes are not"),
            ("1 {\"Plain\":\"a\"}\nx", "no bytes, and 1 follow"),
            ("{\"Other\":1}\n", "malformed: unknown variant `Other`"),
            ("99999999999999999999 {}\n", "malformed"),
            ("{\"Full\":{\"of\":9}}\n", "malformed: there is no 9"),
        ] {
            let error = decode(bad).unwrap_err().to_string();
            assert!(error.contains(problem), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_stream_goes_on_behind_a_line_that_is_no_packet() {
        let mut packets = PacketDecoder::new(40);
        packets.push(b"Welcome!\n12 monkeys\n");
        packets.push(&full(b"hello").encode());
        for _ in 0..2 {
            let error = packets.next_packet::<Said>().unwrap_err();
            assert!(matches!(error, PacketError::Head(_)), "{error}");
        }
        assert_eq!(packets.next_packet(), Ok(Some(full(b"hello"))));
        assert_eq!(packets.next_packet::<Said>(), Ok(None));
    }

    #[test]
    fn what_is_longer_than_a_packet_may_be_is_not_kept() {
        let mut packets = PacketDecoder::new(40);
        packets.push(&[b'x'; 41]);
        assert_eq!(packets.next_packet::<Said>(), Err(PacketError::Length(40)));
        assert_eq!(packets.bytes.len(), 0);
        let head = "{\"Full\":{\"of\":3}}\n";
        for length in ["21", "9999999999"] {
            packets.push(format!("{length} {head}").as_bytes());
            assert_eq!(packets.next_packet::<Said>(), Err(PacketError::Length(40)));
        }
        packets.push(&full(&[7; 19]).encode());
        assert_eq!(packets.next_packet(), Ok(Some(full(&[7; 19]))), "40 bytes");
    }

    proptest! {
        #[test]
        fn packets_come_out_whole_wherever_a_stream_is_split(
            all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            text: String,
            piece in 1_usize..300,
        ) {
            let mut expected: Vec<Said> = all.iter().map(|bytes| full(bytes)).collect();
            expected.push(Said::Plain(text));
            let stream: Vec<u8> = expected.iter().flat_map(|said| said.clone().encode()).collect();
            let (mut packets, mut found) = (PacketDecoder::new(1 << 20), Vec::new());
            for piece in stream.chunks(piece) {
                packets.push(piece);
                while let Some(said) = packets.next_packet::<Said>().unwrap() {
                    found.push(said);
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_panic_a_reader(bytes: Vec<u8>) {
            drop(Said::decode(bytes.clone().into()));
            let mut packets = PacketDecoder::new(64);
            packets.push(&bytes);
            while !matches!(packets.next_packet::<Said>(), Ok(None)) {}
        }
    }
}
