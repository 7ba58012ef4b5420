//! A short way through events that differ from one before in nothing but number, time and payload.
//!
//! A publisher's events mostly do. Once the shape of one is known ([`ContentShape::of`] of what its
//! publisher has encoded, [`SealedShape::of`] of that with the stamps around it), the next is compared
//! with it part by part (`fits`): parts that are to the byte those of an event that was checked need no
//! second look, and every text lies where it lay. Whatever does not fit goes the long way. Events that
//! lie in a list one behind the other, all of one length, are found in one go ([`Following`]).

use super::walk::Walker;
use super::{BESIDE_PAYLOAD_BYTES_MAX, EventHead, SEALED_BYTES_MAX};
use core::ops::Range;
use ftb_core::limits;
use ftb_core::own::{OwnParts, TIME_BYTES, varint_len};
use ftb_core::run::Listed;
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

/// What events in a row are compared by, and as what.
type Chunk = [u8; 16];
type Words = [u64; 2];
const CHUNK_BYTES: usize = size_of::<Chunk>();
/// Most of these before the payload; events with more are compared one by one.
const CHUNKS_MAX: usize = 16;

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
    /// Where the time begins.
    pub(super) fn time_at(&self) -> usize {
        self.time_at
    }

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

    /// Where the time begins in it.
    pub(super) fn time_at(&self) -> usize {
        self.content_at + self.content.time_at
    }

    /// Where the payload begins in it.
    fn payload_at(&self) -> usize {
        self.content_at + self.content.payload.start as usize
    }

    /// Where others like it, as long as it, have what is their own.
    pub(super) fn own_parts(&self) -> OwnParts {
        let [seq_at, time_at, payload_at] =
            [SEQ_AT, self.time_at(), self.payload_at()].map(super::span_number);
        OwnParts { seq_at, time_at, payload_at }
    }

    /// The same of one that has this shape.
    pub(super) fn own_parts_of(&self, own: &OwnSealed) -> OwnParts {
        let payload_at = own.content_at + own.content.payload.start as usize;
        let [seq_at, time_at, payload_at] =
            [SEQ_AT, own.content_at + self.content.time_at, payload_at].map(super::span_number);
        OwnParts { seq_at, time_at, payload_at }
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
        let time_at = self.time_at();
        let payload_at = self.payload_at();
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

/// How events of a list are compared with a known one that are as long in every part: with what a list
/// has before each, in all but number, time and payload, at once.
#[derive(Clone, Debug)]
pub(super) struct Following {
    /// Which bits count, and what they are in the known one.
    chunks: [Compared; CHUNKS_MAX],
    used: usize,
    /// The same of the last bytes of the event, where no whole chunk is left for the end of what counts.
    last: Compared,
    /// From one event to the next.
    step: usize,
    /// Where the number is, counted from what a list has before the event; at most eight bytes.
    seq: Range<usize>,
}

/// Some bytes of the known event: which bits of them count, and what they are.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    mask: Words,
    own: Words,
}

impl Compared {
    /// What differed before, and what differs here.
    #[inline]
    fn differ(&self, chunk: &Chunk, before: Words) -> Words {
        let (words, Self { mask, own }) = (words(chunk), self);
        [0, 1].map(|half| before[half] | ((words[half] & mask[half]) ^ own[half]))
    }
}

#[inline]
fn words(chunk: &Chunk) -> Words {
    let number = u128::from_le_bytes(*chunk);
    [number as u64, (number >> 64) as u64]
}

impl Following {
    /// Of events of that shape that are as long as `known`, which it is of; `None` of those that have too
    /// much before their payloads.
    pub(super) fn of(shape: &SealedShape, known: &[u8]) -> Option<Self> {
        let listed = Listed::of(known.len());
        let before = listed.bytes().len();
        let step = before + known.len();
        let end = before + shape.payload_at();
        let seq = before + SEQ_AT..before + SEQ_AT + shape.seq_len;
        let time = before + shape.time_at()..before + shape.time_at() + TIME_BYTES;
        if end.div_ceil(CHUNK_BYTES) > CHUNKS_MAX || step < CHUNK_BYTES || seq.len() > 8 {
            return None;
        }
        let byte = |at: usize| -> (u8, u8) {
            let counts = at < end && !seq.contains(&at) && !time.contains(&at);
            match listed.bytes().get(at).or_else(|| known.get(at - before)) {
                Some(byte) if counts => (u8::MAX, *byte),
                _ => (0, 0),
            }
        };
        let chunk = |from: usize| {
            let (mut mask, mut bytes) = (Chunk::default(), Chunk::default());
            for (at, (mask, own)) in (from..).zip(mask.iter_mut().zip(&mut bytes)) {
                (*mask, *own) = byte(at);
            }
            Compared { mask: words(&mask), own: words(&bytes) }
        };
        let used = end.div_ceil(CHUNK_BYTES).min(step / CHUNK_BYTES);
        let mut chunks = [Compared::default(); CHUNKS_MAX];
        for (place, own) in chunks.iter_mut().enumerate().take(used) {
            *own = chunk(place * CHUNK_BYTES);
        }
        Some(Self { chunks, used, last: chunk(step - CHUNK_BYTES), step, seq })
    }

    /// From one event to the next, in bytes.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// How many events at the beginning of a list, at most so many, are like the known one and have the
    /// numbers behind `seq`.
    pub(super) fn count(&self, list: &[u8], seq: u64, most: usize) -> usize {
        let (mut seq, mut number) = (seq, self.number(seq));
        let follows = |event: &&[u8]| {
            seq += 1;
            // Only the lowest seven bits change, mostly.
            number = match number {
                Some(before) if before & 0x7f != 0x7f => Some(before + 1),
                _ => self.number(seq),
            };
            self.is_alike(event) && number.is_some() && self.number_in(event) == number
        };
        list.chunks_exact(self.step).take(most).take_while(follows).count()
    }

    #[inline]
    fn is_alike(&self, event: &[u8]) -> bool {
        let (whole, _) = event.as_chunks::<CHUNK_BYTES>();
        let Some(last) = event.last_chunk::<CHUNK_BYTES>() else { return false };
        let mut differ = self.last.differ(last, Words::default());
        for (compared, chunk) in self.chunks.iter().take(self.used).zip(whole) {
            differ = compared.differ(chunk, differ);
        }
        differ[0] | differ[1] == 0
    }

    /// The number of an event, as it lies there.
    #[inline]
    fn number_in(&self, event: &[u8]) -> Option<u64> {
        let bytes = event.get(self.seq.start..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes) & (u64::MAX >> (64 - 8 * self.seq.len())))
    }

    /// A number as it lies in an event; `None` of one that has not as many bytes.
    fn number(&self, seq: u64) -> Option<u64> {
        if varint_len(seq) != self.seq.len() {
            return None;
        }
        let byte = |place: usize| (seq >> (7 * place) & 0x7f) << (8 * place);
        let more = (0..self.seq.len() - 1).map(|place| 0x80 << (8 * place));
        Some((0..self.seq.len()).map(byte).chain(more).sum())
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
    use ftb_core::{Event, EventId, PublisherId, Tag};

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

    /// Events of a list that follow a known one: whatever bit is another one, those that are found in one
    /// go are those that are found one by one, up to the first that is not.
    #[test]
    fn what_follows_in_a_list_is_what_is_found_one_by_one() {
        let publisher = PublisherId { account: 1, token: 2 };
        let sealed = |seq: u64, payload: usize| {
            let id = EventId { publisher, seq };
            let stamps = Stamps { id, host: "node017", uid: 0, pid: 7, republished: false };
            seal(&stamps, &event(seq * 1000, payload), 300).unwrap().bytes().to_vec()
        };
        let (mut all, mut fewer) = (0, 0);
        // Lengths of one byte and of two, and over the end of the numbers of one and of two bytes.
        for (first, payload) in [(130, 1), (250, 127), (16_381, 200), (126, 30)] {
            let known = sealed(first, payload);
            let parts = walk_sealed(&known).unwrap();
            let head = check_event(&event(first * 1000, payload), 300).unwrap();
            let shape = SealedShape::of(&known, parts.event, &head, first).unwrap();
            let following = Following::of(&shape, &known).unwrap();
            let listed = Listed::of(known.len());
            assert_eq!(following.step(), listed.bytes().len() + known.len());
            let whole: Vec<u8> = (first + 1..first + 4)
                .flat_map(|seq| [listed.bytes(), &sealed(seq, payload)].concat())
                .collect();
            for bit in 0..=8 * whole.len() {
                let mut list = whole.clone();
                if let Some(byte) = list.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                let one_by_one = list.chunks_exact(following.step()).zip(first + 1..);
                let one_by_one = one_by_one.take_while(|(event, seq)| {
                    let (before, event) = event.split_at(listed.bytes().len());
                    let own = shape.fits_as_long(&known, event);
                    before == listed.bytes() && own.is_some_and(|own| own.seq == *seq)
                });
                let expected = one_by_one.count();
                assert_eq!(following.count(&list, first, 9), expected, "bit {bit} of {first}");
                if expected == 3 { all += 1 } else { fewer += 1 }
            }
            assert_eq!(following.count(&whole, first, 2), 2.min(following.count(&whole, first, 9)));
            assert_eq!(following.count(&whole, first + 1, 9), 0, "not the numbers that follow");
        }
        assert!(all > 3000 && fewer > 3000, "{all} and {fewer}");
    }

    #[test]
    fn what_has_much_before_its_payload_is_compared_one_by_one() {
        let publisher = PublisherId { account: 1, token: 2 };
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        event.time_ns = 1;
        event.client_name = "c".repeat(60);
        event.tags = vec![Tag { key: "k".to_owned(), value: "v".repeat(200) }];
        event.payload = vec![7; 20].into();
        let id = EventId { publisher, seq: 7 };
        let stamps = Stamps { id, host: "node017", uid: 0, pid: 7, republished: false };
        let content = encode_event(&event);
        let known = seal(&stamps, &content, 300).unwrap().bytes().to_vec();
        let parts = walk_sealed(&known).unwrap();
        let head = check_event(&content, 300).unwrap();
        let shape = SealedShape::of(&known, parts.event, &head, 7).unwrap();
        assert!(shape.fits_as_long(&known, &known).is_some());
        assert!(Following::of(&shape, &known).is_none());
    }
}
