//! Events that are alike, told by what is their own: number, time and payload.
//!
//! What a publisher says in a row mostly differs in nothing else. So the first of such events is
//! told whole, and of the others only the time ([`TIME_BYTES`], the lowest first) and the payload,
//! one behind the other; their numbers follow that of the first. Each is as long as the first.
//!
//! Responsible for: where the own parts of an event lie, and the whole event made of them. Not
//! responsible for: which events are alike.

use bytes::BufMut;

/// Bytes of a time.
pub const TIME_BYTES: usize = 8;

/// Where an event has what is its own, from its own first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnParts {
    /// Its number, as a varint.
    pub seq_at: u32,
    /// Its time: [`TIME_BYTES`].
    pub time_at: u32,
    /// Its payload, which goes to its end.
    pub payload_at: u32,
}

impl OwnParts {
    /// How many bytes tell one of the others, if each is as long as that.
    pub fn step(&self, event_len: usize) -> usize {
        TIME_BYTES + event_len.saturating_sub(self.payload_at as usize)
    }

    /// Whether they follow each other and lie in an event as long as that with numbers up to
    /// `last`, of which the first has as many bytes.
    pub(crate) fn fit(&self, event_len: u32, first: u64, last: u64) -> bool {
        let seq_end = u64::from(self.seq_at) + varint_len(last) as u64;
        let time_end = u64::from(self.time_at) + TIME_BYTES as u64;
        varint_len(first) == varint_len(last)
            && seq_end <= u64::from(self.time_at)
            && time_end <= u64::from(self.payload_at)
            && self.payload_at <= event_len
    }

    /// Appends the event that is like `known` but for these. The parts lie in it (`fit`).
    pub(crate) fn put(&self, known: &[u8], seq: u64, own: &[u8], out: &mut impl BufMut) {
        let [seq_at, time_at, payload_at] =
            [self.seq_at, self.time_at, self.payload_at].map(|at| at as usize);
        let (time, payload) = own.split_at(TIME_BYTES);
        out.put_slice(&known[..seq_at]);
        put_varint(seq, out);
        out.put_slice(&known[seq_at + varint_len(seq)..time_at]);
        out.put_slice(time);
        out.put_slice(&known[time_at + TIME_BYTES..payload_at]);
        out.put_slice(payload);
    }
}

/// How many bytes a varint has.
pub fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a varint.
pub(crate) fn put_varint(mut number: u64, out: &mut impl BufMut) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_made_of_a_known_one_and_its_own() {
        let parts = OwnParts { seq_at: 1, time_at: 4, payload_at: 13 };
        let known = b"k\x81\x01-timetime+payload";
        assert!(parts.fit(known.len() as u32, 129, 16_383));
        assert_eq!(parts.step(known.len()), TIME_BYTES + 7);
        let mut whole = Vec::new();
        parts.put(known, 300, b"TIMETIMEothers.", &mut whole);
        assert_eq!(whole, b"k\xac\x02-TIMETIME+others.");
        assert_eq!(whole.len(), known.len());
    }

    #[test]
    fn parts_that_do_not_lie_in_the_event_one_behind_the_other_do_not_fit() {
        let parts = OwnParts { seq_at: 1, time_at: 4, payload_at: 13 };
        assert!(parts.fit(13, 128, 16_383), "an empty payload");
        assert!(!parts.fit(12, 128, 16_383), "its payload lies behind its end");
        assert!(!parts.fit(20, 127, 128), "a number with another length");
        assert!(!parts.fit(20, 1 << 21, 1 << 21), "a number that reaches over the time");
        assert!(!OwnParts { payload_at: 11, ..parts }.fit(20, 128, 129), "in the time");
        let far = OwnParts { seq_at: u32::MAX, time_at: u32::MAX, payload_at: u32::MAX };
        assert!(!far.fit(u32::MAX, 1, 2));
    }

    #[test]
    fn a_number_has_as_many_bytes_as_it_is_written_in() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(number, &mut bytes);
            assert_eq!(bytes.len(), varint_len(number), "{number}");
        }
    }
}
