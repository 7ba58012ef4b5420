//! A short way through events that differ from one before in nothing but number, time and payload.
//!
//! A publisher's events mostly do. Once the shape of one is known ([`ContentShape::of`] of what its
//! publisher has encoded, [`SealedShape::of`] of that with the stamps around it), the next is compared
//! with it part by part (`fits`): parts that are to the byte those of an event that was checked need no
//! second look, and every text lies where it lay. Whatever does not fit goes the long way.

use super::encode::varint_len;
use super::walk::Walker;
use super::{BESIDE_PAYLOAD_BYTES_MAX, EventHead, SEALED_BYTES_MAX};
use core::ops::Range;
use ftb_core::limits;
use ftb_core::sealed::Span;

/// Keys of fields, in the order in which our own encoders write them.
const ID: u8 = 0x0a;
const ACCOUNT: u8 = 0x09;
const TOKEN: u8 = 0x11;
const SEQ: u8 = 0x18;
const CONTENT: u8 = 0x7a;
const SPACE: u8 = 0x0a;
const NAME: u8 = 0x12;
const SEVERITY: u8 = 0x18;
const TIME: u8 = 0x21;
const PAYLOAD: u8 = 0x7a;

/// Where the number begins in a sealed event: behind two keys with a length and two halves of the
/// publisher's id.
const SEQ_AT: usize = 2 + 9 + 9 + 1;
const TIME_BYTES: usize = 8;

/// Where what may differ lies in a publisher's bytes; offsets count from their beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentShape {
    time_at: usize,
    /// Behind the key of the payload.
    payload_len_at: usize,
    /// That of the event that it is of.
    payload: Span,
}

/// What an event that fits has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnContent {
    pub(super) time_ns: u64,
    /// Counts from the publisher's first byte.
    pub(super) payload: Span,
}

impl ContentShape {
    /// That of a publisher's bytes in which `head` was found; `None` of unusual ones. The bytes leave no
    /// other way to read them: every key follows where a field ends.
    pub(super) fn of(content: &[u8], head: &EventHead) -> Option<Self> {
        let end_of = |span: Span| (span.start + span.len) as usize;
        let (space_end, name_end) = (end_of(head.space), end_of(head.name));
        let time_at = name_end + 3;
        let head_fits = content.get(..2)? == [SPACE, head.space.len as u8]
            && space_end == 2 + head.space.len as usize
            && content.get(space_end..space_end + 2)? == [NAME, head.name.len as u8]
            && name_end == space_end + 2 + head.name.len as usize
            && content.get(name_end) == Some(&SEVERITY)
            && content.get(name_end + 2) == Some(&TIME);
        let payload_at = head.payload.start as usize;
        let payload_len_at = payload_at.checked_sub(varint_len(u64::from(head.payload.len)))?;
        let ends = payload_at + head.payload.len as usize == content.len();
        let rest = content.get(time_at + TIME_BYTES..payload_len_at.checked_sub(1)?)?;
        (head_fits && ends && content[payload_len_at - 1] == PAYLOAD && are_fields(rest))
            .then_some(Self { time_at, payload_len_at, payload: head.payload })
    }

    /// What is its own in a publisher's bytes, if they have this shape. `known` are those that it is of.
    #[inline]
    pub(super) fn fits(
        &self,
        known: &[u8],
        content: &[u8],
        payload_bytes_max: usize,
    ) -> Option<OwnContent> {
        let time_end = self.time_at + TIME_BYTES;
        let same = |part: Range<usize>| Some(content.get(part.clone())? == known.get(part)?);
        if !(same(0..self.time_at)? && same(time_end..self.payload_len_at)?) {
            return None;
        }
        let time = content.get(self.time_at..)?.first_chunk::<TIME_BYTES>()?;
        let (payload_len, len) = varint(&content[self.payload_len_at..])?;
        let payload_at = self.payload_len_at + len;
        let ends = content.len().checked_sub(payload_at)? as u64 == payload_len;
        let bounded =
            payload_len <= payload_bytes_max as u64 && payload_at <= BESIDE_PAYLOAD_BYTES_MAX;
        (ends && bounded).then(|| OwnContent {
            time_ns: u64::from_le_bytes(*time),
            payload: Span { start: payload_at as u32, len: payload_len as u32 },
        })
    }
}

/// Where what may differ lies in a sealed event; offsets count from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedShape {
    seq_len: usize,
    /// Behind the key of the content.
    content_len_at: usize,
    content_at: usize,
    content: ContentShape,
}

/// What a sealed event that fits has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnSealed {
    pub(super) seq: u64,
    /// Where the publisher's bytes begin in it.
    pub(super) content_at: usize,
    pub(super) content: OwnContent,
}

impl SealedShape {
    /// That of a sealed event of that sequence, in which the publisher's bytes were found at `content`
    /// and in those `head`; `None` of an unusual one. Not for a fold: what it covers was compared with
    /// its own number, and says nothing of another's.
    pub(super) fn of(whole: &[u8], content: Span, head: &EventHead, seq: u64) -> Option<Self> {
        let seq_len = varint_len(seq);
        let id_end = SEQ_AT + seq_len;
        let id_fits = whole.get(..2)? == [ID, (id_end - 2) as u8]
            && whole.get(2) == Some(&ACCOUNT)
            && whole.get(11) == Some(&TOKEN)
            && whole.get(20) == Some(&SEQ);
        let content_at = content.start as usize;
        let content_len_at = content_at.checked_sub(varint_len(u64::from(content.len)))?;
        let stamps = whole.get(id_end..content_len_at.checked_sub(1)?)?;
        let ends = content_at + content.len as usize == whole.len();
        if !(id_fits && ends && whole[content_len_at - 1] == CONTENT && are_fields(stamps)) {
            return None;
        }
        let content = ContentShape::of(whole.get(content_at..)?, head)?;
        Some(Self { seq_len, content_len_at, content_at, content })
    }

    /// Where the publisher's bytes begin in the event that it is of.
    pub(super) fn content_at(&self) -> usize {
        self.content_at
    }

    /// What is its own in a sealed event, if it has this shape. `known` is the one that it is of.
    #[inline]
    pub(super) fn fits(&self, known: &[u8], whole: &[u8]) -> Option<OwnSealed> {
        if let Some(own) = self.fits_as_long(known, whole) {
            return Some(own);
        }
        let seq_end = SEQ_AT + self.seq_len;
        let same = |part: Range<usize>| Some(whole.get(part.clone())? == known.get(part)?);
        if !(same(0..SEQ_AT)? && same(seq_end..self.content_len_at)?) {
            return None;
        }
        let (seq, _) = varint(&whole[SEQ_AT..seq_end]).filter(|(_, len)| *len == self.seq_len)?;
        let (content_len, len) = varint(&whole[self.content_len_at..])?;
        let content_at = self.content_len_at + len;
        let content = whole.get(content_at..)?;
        let known = known.get(self.content_at..)?;
        let own = self.content.fits(known, content, limits::PAYLOAD_BYTES_MAX)?;
        let ends = content.len() as u64 == content_len;
        (ends && whole.len() <= SEALED_BYTES_MAX && seq > 0).then_some(OwnSealed {
            seq,
            content_at,
            content: own,
        })
    }

    /// What is its own in a sealed event that has this shape and is as long in every part: what lies
    /// between number and time, and between time and payload, are the same bytes, lengths among them.
    #[inline]
    fn fits_as_long(&self, known: &[u8], whole: &[u8]) -> Option<OwnSealed> {
        let seq_end = SEQ_AT + self.seq_len;
        let time_at = self.content_at + self.content.time_at;
        let payload_at = self.content_at + self.content.payload.start as usize;
        let same = |part: Range<usize>| Some(whole.get(part.clone())? == known.get(part)?);
        let fits = whole.len() == known.len()
            && whole.first_chunk::<SEQ_AT>()? == known.first_chunk::<SEQ_AT>()?
            && same(seq_end..time_at)?
            && same(time_at + TIME_BYTES..payload_at)?;
        if !fits {
            return None;
        }
        let time = whole.get(time_at..)?.first_chunk::<TIME_BYTES>()?;
        let (seq, _) = varint(&whole[SEQ_AT..seq_end])
            .filter(|(seq, len)| *seq > 0 && *len == self.seq_len)?;
        let content =
            OwnContent { time_ns: u64::from_le_bytes(*time), payload: self.content.payload };
        Some(OwnSealed { seq, content_at: self.content_at, content })
    }
}

/// Whether these are whole fields.
fn are_fields(bytes: &[u8]) -> bool {
    let mut walker = Walker::new("part", bytes);
    loop {
        match walker.next() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// A number of at most nine bytes in its shortest form, and how many bytes it has.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let shortest = place == 0 || *byte != 0;
            return shortest.then_some((number, place + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{Stamps, check_event, encode_event, seal, walk_sealed};
    use ftb_core::{Event, EventId, PublisherId};

    fn event(time_ns: u64, payload: usize) -> Vec<u8> {
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        event.time_ns = time_ns;
        event.client_name = "some".to_owned();
        event.payload = vec![7; payload].into();
        encode_event(&event).to_vec()
    }

    /// Whatever byte is another one: an event that fits is as the long way finds it.
    #[test]
    fn what_fits_is_what_the_long_way_finds() {
        let known = event(1, 200);
        let shape = ContentShape::of(&known, &check_event(&known, 300).unwrap()).unwrap();
        let long = check_event(&known, 300).unwrap();
        let (mut short, mut others) = (0, 0);
        for length in [5, 127, 128, 200, 300] {
            let whole = event(2, length);
            for at in 0..=whole.len() {
                let mut bytes = whole.clone();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1;
                }
                let Some(own) = shape.fits(&known, &bytes, 300) else {
                    others += 1;
                    continue;
                };
                short += 1;
                let head = check_event(&bytes, 300).unwrap();
                assert_eq!((head.time_ns, head.payload), (own.time_ns, own.payload));
                assert_eq!(EventHead { time_ns: 1, payload: long.payload, ..head }, long);
            }
        }
        assert!(short > 700 && others > 100, "{short} and {others}");
        assert_eq!(shape.fits(&known, &event(2, 300), 299), None, "over the bound");
    }

    /// The same of sealed events, as long as the known one and of other lengths.
    #[test]
    fn what_fits_of_a_sealed_event_is_what_the_long_way_finds() {
        let publisher = PublisherId { account: 1, token: 2 };
        let sealed = |seq: u64, content: &[u8]| {
            let id = EventId { publisher, seq };
            let stamps = Stamps { id, host: "node017", uid: 0, pid: 7, republished: false };
            seal(&stamps, content, 300).unwrap().bytes().to_vec()
        };
        let known = sealed(200, &event(1, 200));
        let parts = walk_sealed(&known).unwrap();
        let head = check_event(&event(1, 200), 300).unwrap();
        let shape = SealedShape::of(&known, parts.event, &head, 200).unwrap();
        let (mut as_long, mut shorter, mut others) = (0, 0, 0);
        for (seq, length) in
            [(201, 200), (16_383, 200), (201, 199), (201, 5), (20_000, 200), (3, 200)]
        {
            let whole = sealed(seq, &event(2, length));
            for (at, bit) in (0..=whole.len()).flat_map(|at| [(at, 1), (at, 0x80)]) {
                let mut bytes = whole.clone();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
                let Some(own) = shape.fits(&known, &bytes) else {
                    others += 1;
                    continue;
                };
                match shape.fits_as_long(&known, &bytes) {
                    Some(short) => {
                        as_long += 1;
                        assert_eq!(short, own);
                    }
                    None => shorter += 1,
                }
                let found = walk_sealed(&bytes).unwrap();
                assert_eq!((found.id.publisher, found.id.seq), (publisher, own.seq));
                assert_eq!((found.uid, found.pid, found.republished), (0, 7, false));
                assert_eq!(found.event.start as usize, own.content_at);
                let inner = check_event(&bytes[own.content_at..], 300).unwrap();
                assert_eq!(
                    (inner.time_ns, inner.payload),
                    (own.content.time_ns, own.content.payload)
                );
                assert_eq!(EventHead { time_ns: 1, payload: head.payload, ..inner }, head);
            }
        }
        assert!(as_long > 800 && shorter > 300 && others > 500, "{as_long} {shorter} {others}");
        assert!(shape.fits(&known, &known[..known.len() - 1]).is_none());
    }
}
