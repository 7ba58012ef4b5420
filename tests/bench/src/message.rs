//! What every benchmark message carries, whatever system moves it: who sent it, its number and
//! when. Subscribers prove order and completeness from these, and measure latency with them.

/// Bytes that the head takes; the smallest message.
pub(crate) const HEAD_BYTES: usize = 20;

/// The head of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Which publisher of this run, from 0.
    pub(crate) publisher: u32,
    /// The publisher's own count, from 1.
    pub(crate) seq: u64,
    /// When it was due or sent, in nanoseconds since the load process started.
    pub(crate) stamp_ns: u64,
}

impl Head {
    /// Writes the head over the first bytes of a message, which must have room for it.
    pub(crate) fn write(&self, message: &mut [u8]) {
        message[..4].copy_from_slice(&self.publisher.to_le_bytes());
        message[4..12].copy_from_slice(&self.seq.to_le_bytes());
        message[12..HEAD_BYTES].copy_from_slice(&self.stamp_ns.to_le_bytes());
    }

    /// The head of a received message; `None` when it is too short to have one.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (publisher, rest) = message.split_first_chunk::<4>()?;
        let (seq, rest) = rest.split_first_chunk::<8>()?;
        let stamp = rest.first_chunk::<8>()?;
        Some(Self {
            publisher: u32::from_le_bytes(*publisher),
            seq: u64::from_le_bytes(*seq),
            stamp_ns: u64::from_le_bytes(*stamp),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_head_survives_the_way() {
        let head = Head { publisher: 7, seq: u64::MAX - 1, stamp_ns: 123_456_789 };
        let mut message = [0xff; 32];
        head.write(&mut message);
        assert_eq!(Head::read(&message).unwrap(), head);
        assert_eq!(message[HEAD_BYTES..], [0xff; 12]);
        assert_eq!(Head::read(&message[..HEAD_BYTES - 1]), None);
    }
}
