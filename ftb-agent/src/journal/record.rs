//! The journal's bytes: chunks of log entries, and the few records about them. Every piece carries
//! a checksum, and nothing is taken out of bytes whose checksum is wrong.
//!
//! Numbers are little-endian. A chunk is `crc32c u32 | written_ns u64 | count u32`, then `count`
//! entries of `crc32c u32 | len u32 | kind u8 | index u64 | content`. A record is `crc32c u32 |
//! content`, and so is the head of a segment. Responsible for: encoding, checking. Not responsible
//! for: where it lies.

use bytes::{Buf as _, BufMut as _, Bytes};
use ftb_core::epochs::{EpochHistory, Segment};
use ftb_core::frame::{Content, DedupRanges, Item};
use ftb_core::node::api::{Gap, GapReason};
use ftb_core::numbers::LogIndex;
use ftb_core::{Epoch, EventSpace, OriginId, Position, PublisherId, Rank, Severity, Spaces};
use ftb_proto::event::decode_sealed;

/// Before the entries of a chunk.
const CHUNK_HEAD_BYTES: usize = 4 + 8 + 4;
/// Before the content of an entry.
const ENTRY_HEAD_BYTES: usize = 4 + 4 + 1 + 8;
const KIND_EVENT: u8 = 1;
const KIND_GAP: u8 = 2;

/// Bytes that are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// What stands at the head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// When it was written, Unix nanoseconds.
    pub written_ns: u64,
    /// How many entries it has.
    pub count: usize,
}

/// Makes a chunk of entries.
pub fn encode_chunk(written_ns: u64, items: &[Item]) -> Vec<u8> {
    let entries: usize = items.iter().map(Item::count).sum();
    let bytes: usize = items.iter().map(Item::len).sum::<usize>() + entries * ENTRY_HEAD_BYTES;
    let mut out = Vec::with_capacity(CHUNK_HEAD_BYTES + bytes);
    let mut head = [0; CHUNK_HEAD_BYTES - 4];
    (&mut head[..8]).put_u64_le(written_ns);
    (&mut head[8..]).put_u32_le(u32::try_from(entries).unwrap_or(u32::MAX));
    out.put_u32_le(crc32c::crc32c(&head));
    out.put_slice(&head);
    for item in items {
        match &item.content {
            Content::Events(run) => {
                for (index, event) in (item.index.get()..).zip(run.iter()) {
                    encode_entry(&mut out, index.into(), KIND_EVENT, event.len(), |out| {
                        out.put_slice(event.bytes())
                    });
                }
            }
            Content::Gap(gap) => {
                let gap = encode_gap(gap);
                encode_entry(&mut out, item.index, KIND_GAP, gap.len(), |out| out.put_slice(&gap));
            }
        }
    }
    out
}

/// Appends an entry whose content has `len` bytes, which `put` appends.
fn encode_entry(
    out: &mut Vec<u8>,
    index: LogIndex,
    kind: u8,
    len: usize,
    put: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.put_u32_le(0);
    // An event has at most a few MiB.
    out.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
    out.put_u8(kind);
    out.put_u64_le(index.get());
    put(out);
    let crc = crc32c::crc32c(&out[start + 4..]);
    (&mut out[start..start + 4]).put_u32_le(crc);
}

/// Reads the head of a chunk.
///
/// # Errors
/// [`Damaged`].
pub fn chunk_head(mut chunk: &[u8]) -> Result<ChunkHead, Damaged> {
    if chunk.len() < CHUNK_HEAD_BYTES {
        return Err(Damaged("a chunk is shorter than its head"));
    }
    let crc = chunk.get_u32_le();
    if crc32c::crc32c(&chunk[..CHUNK_HEAD_BYTES - 4]) != crc {
        return Err(Damaged("the checksum of a chunk's head is wrong"));
    }
    let written_ns = chunk.get_u64_le();
    let count = usize::try_from(chunk.get_u32_le()).unwrap_or(usize::MAX);
    Ok(ChunkHead { written_ns, count })
}

/// Reads the entries of a chunk up to the first that is damaged; what came before it is good.
pub fn decode_chunk(chunk: &Bytes) -> (Vec<Item>, Result<ChunkHead, Damaged>) {
    let head = match chunk_head(chunk) {
        Ok(head) => head,
        Err(damaged) => return (Vec::new(), Err(damaged)),
    };
    let mut rest = chunk.slice(CHUNK_HEAD_BYTES..);
    let mut items = Vec::new();
    for _ in 0..head.count {
        match decode_entry(&mut rest) {
            Ok(item) => items.push(item),
            Err(damaged) => return (items, Err(damaged)),
        }
    }
    (items, Ok(head))
}

fn decode_entry(rest: &mut Bytes) -> Result<Item, Damaged> {
    if rest.len() < ENTRY_HEAD_BYTES {
        return Err(Damaged("a chunk ends within an entry"));
    }
    let crc = rest.get_u32_le();
    let len = (&rest[..4]).get_u32_le() as usize;
    let end = len.saturating_add(ENTRY_HEAD_BYTES - 4);
    if rest.len() < end {
        return Err(Damaged("an entry is longer than its chunk"));
    }
    if crc32c::crc32c(&rest[..end]) != crc {
        return Err(Damaged("the checksum of an entry is wrong"));
    }
    rest.advance(4);
    let kind = rest.get_u8();
    let index = rest.get_u64_le();
    let content = rest.split_to(len);
    let content = match kind {
        KIND_EVENT => decode_sealed(content)
            .map(|sealed| Content::Events(sealed.into()))
            .map_err(|_| Damaged("an entry is no event that this version can read"))?,
        KIND_GAP => Content::Gap(decode_gap(content)?),
        _ => return Err(Damaged("an entry is of a kind that this version does not know")),
    };
    Ok(Item { index: index.into(), content })
}

/// Before the names of its spaces, one a line.
const GAP_BYTES: usize = 2 * POSITION_BYTES + 1 + 8 + 1;
const POSITION_BYTES: usize = 24;

fn encode_gap(gap: &Gap) -> Vec<u8> {
    let mut out = Vec::with_capacity(GAP_BYTES);
    put_position(&mut out, gap.after);
    put_position(&mut out, gap.until);
    out.put_u8(match gap.reason {
        GapReason::Shed => 1,
        GapReason::Retention => 2,
        GapReason::LogLost => 3,
        GapReason::Late => 4,
    });
    // 0: unknown. A gap in a log stands for one event at least.
    out.put_u64_le(gap.count.unwrap_or(0));
    let severity = gap.severity_max.map_or(0, Severity::to_wire);
    out.put_u8(u8::try_from(severity).unwrap_or(0));
    let names = gap.spaces.names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(EventSpace::as_str).collect();
    out.put_slice(names.join("\n").as_bytes());
    out
}

fn decode_gap(mut bytes: Bytes) -> Result<Gap, Damaged> {
    if bytes.len() < GAP_BYTES {
        return Err(Damaged("a gap has the wrong size"));
    }
    let after = get_position(&mut bytes);
    let until = get_position(&mut bytes);
    let reason = match bytes.get_u8() {
        1 => GapReason::Shed,
        2 => GapReason::Retention,
        3 => GapReason::LogLost,
        4 => GapReason::Late,
        _ => return Err(Damaged("a gap has a reason that this version does not know")),
    };
    let count = bytes.get_u64_le();
    let severity_max = match bytes.get_u8() {
        0 => None,
        number => Some(
            Severity::from_wire(number.into()).ok_or(Damaged("a gap has an unknown severity"))?,
        ),
    };
    let wrong = Damaged("a gap names what is no event space");
    let names = core::str::from_utf8(&bytes).map_err(|_| wrong)?;
    let names = names.split('\n').filter(|name| !name.is_empty());
    let spaces = Spaces::named(names).map_err(|_| wrong)?;
    Ok(Gap { after, until, reason, count: (count > 0).then_some(count), severity_max, spaces })
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    put_epoch(out, position.epoch);
    out.put_u64_le(position.index.get());
}

fn get_position(bytes: &mut Bytes) -> Position {
    let epoch = get_epoch(bytes);
    Position { epoch, index: bytes.get_u64_le().into() }
}

fn put_epoch(out: &mut Vec<u8>, epoch: Epoch) {
    out.put_u64_le(epoch.number);
    out.put_u64_le(epoch.root.0);
}

fn get_epoch(bytes: &mut Bytes) -> Epoch {
    let number = bytes.get_u64_le();
    Epoch { number, root: OriginId(bytes.get_u64_le()) }
}

/// Set in the first index of a epoch whose root had no copy of the log: no index is so high.
const TORN: u64 = 1 << 63;

/// Which log the journal holds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Manifest {
    /// Its epoch history.
    pub epochs: EpochHistory,
    /// It is complete after this index.
    pub after: LogIndex,
    /// Segments before this one belong to another log.
    pub segment: u64,
}

/// Puts a checksum before a record.
fn record(content: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + content.len());
    out.put_u32_le(crc32c::crc32c(&content));
    out.extend(content);
    out
}

fn checked(record: Vec<u8>) -> Result<Bytes, Damaged> {
    let mut bytes = Bytes::from(record);
    if bytes.len() < 4 {
        return Err(Damaged("a record is shorter than its checksum"));
    }
    let crc = bytes.get_u32_le();
    match crc32c::crc32c(&bytes) == crc {
        true => Ok(bytes),
        false => Err(Damaged("the checksum of a record is wrong")),
    }
}

/// Makes the record of a beginning.
pub fn encode_manifest(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64_le(manifest.after.get());
    out.put_u64_le(manifest.segment);
    for segment in manifest.epochs.segments() {
        put_epoch(&mut out, segment.epoch);
        out.put_u64_le(segment.first.get() | if segment.incomplete { TORN } else { 0 });
    }
    record(out)
}

/// Reads the record of a beginning.
///
/// # Errors
/// [`Damaged`].
pub fn decode_manifest(bytes: Vec<u8>) -> Result<Manifest, Damaged> {
    const SEGMENT_BYTES: usize = 24;
    let mut bytes = checked(bytes)?;
    if bytes.len() < 16 || !(bytes.len() - 16).is_multiple_of(SEGMENT_BYTES) {
        return Err(Damaged("the record of the epoch history has the wrong size"));
    }
    let (after, segment) = (bytes.get_u64_le(), bytes.get_u64_le());
    let mut segments = Vec::new();
    while bytes.has_remaining() {
        let epoch = get_epoch(&mut bytes);
        let first = bytes.get_u64_le();
        segments.push(Segment {
            epoch,
            first: (first & !TORN).into(),
            incomplete: first & TORN != 0,
        });
    }
    let epochs = EpochHistory::from_segments(segments)
        .map_err(|_| Damaged("the record of the epoch history is invalid"))?;
    Ok(Manifest { epochs, after: after.into(), segment })
}

/// Makes the record of which segment is the reserve of the log whose first segment is given.
pub fn encode_reserve(of: u64, segment: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64_le(of);
    out.put_u64_le(segment);
    record(out)
}

/// Reads it.
///
/// # Errors
/// [`Damaged`].
pub fn decode_reserve(bytes: Vec<u8>) -> Result<(u64, u64), Damaged> {
    let mut bytes = checked(bytes)?;
    match bytes.len() {
        16 => Ok((bytes.get_u64_le(), bytes.get_u64_le())),
        _ => Err(Damaged("the record of the reserve has the wrong size")),
    }
}

/// Where a segment begins.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Head {
    /// Its entries follow this index.
    pub after: LogIndex,
    /// Events that were logged before.
    pub dedup: DedupRanges,
}

/// Makes the head of a segment.
pub fn encode_head(head: &Head) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64_le(head.after.get());
    put_dedup(&mut out, &head.dedup);
    record(out)
}

/// Reads it.
///
/// # Errors
/// [`Damaged`].
pub fn decode_head(bytes: Vec<u8>) -> Result<Head, Damaged> {
    let mut bytes = checked(bytes)?;
    if bytes.len() < 8 {
        return Err(Damaged("the head of a segment ends too early"));
    }
    Ok(Head { after: bytes.get_u64_le().into(), dedup: get_dedup(bytes)? })
}

/// Makes the record of the events that were logged before.
pub fn encode_dedup(dedup: &DedupRanges) -> Vec<u8> {
    let mut out = Vec::new();
    put_dedup(&mut out, dedup);
    record(out)
}

fn put_dedup(out: &mut Vec<u8>, dedup: &DedupRanges) {
    for (publisher, ranges) in &dedup.publishers {
        out.put_u64_le(publisher.account);
        out.put_u64_le(publisher.token);
        out.put_u32_le(u32::try_from(ranges.len()).unwrap_or(u32::MAX));
        for (first, last) in ranges {
            out.put_u64_le(*first);
            out.put_u64_le(*last);
        }
    }
}

/// Reads it.
///
/// # Errors
/// [`Damaged`].
pub fn decode_dedup(bytes: Vec<u8>) -> Result<DedupRanges, Damaged> {
    get_dedup(checked(bytes)?)
}

fn get_dedup(mut bytes: Bytes) -> Result<DedupRanges, Damaged> {
    const SHORT: Damaged = Damaged("the record of logged events ends too early");
    let mut publishers = Vec::new();
    while bytes.has_remaining() {
        if bytes.len() < 20 {
            return Err(SHORT);
        }
        let (account, token) = (bytes.get_u64_le(), bytes.get_u64_le());
        let count = bytes.get_u32_le() as usize;
        if bytes.len() / 16 < count {
            return Err(SHORT);
        }
        let ranges: Vec<_> = (0..count).map(|_| (bytes.get_u64_le(), bytes.get_u64_le())).collect();
        if ranges.iter().any(|(first, last)| first > last) {
            return Err(Damaged("a range of logged events ends before it begins"));
        }
        publishers.push((PublisherId { account, token }, ranges));
    }
    Ok(DedupRanges { publishers })
}

/// Makes the record of the agents that are in no member list.
pub fn encode_dynamic_members(dynamic_members: &[(String, Rank)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (host, rank) in dynamic_members {
        // A host's name has at most 255 bytes.
        let Ok(len) = u8::try_from(host.len()) else { continue };
        out.put_u32_le(rank.0);
        out.put_u8(len);
        out.put_slice(host.as_bytes());
    }
    record(out)
}

/// Reads it.
///
/// # Errors
/// [`Damaged`].
pub fn decode_dynamic_members(bytes: Vec<u8>) -> Result<Vec<(String, Rank)>, Damaged> {
    let mut bytes = checked(bytes)?;
    let mut dynamic_members = Vec::new();
    while bytes.has_remaining() {
        if bytes.len() < 5 {
            return Err(Damaged("the record of unlisted agents ends too early"));
        }
        let rank = Rank(bytes.get_u32_le());
        let len = usize::from(bytes.get_u8());
        if bytes.len() < len || !rank.is_unlisted() {
            return Err(Damaged("the record of unlisted agents makes no sense"));
        }
        let host = String::from_utf8(bytes.split_to(len).to_vec())
            .map_err(|_| Damaged("the record of unlisted agents has a name that is no text"))?;
        dynamic_members.push((host, rank));
    }
    Ok(dynamic_members)
}

/// How far a log was acknowledged; it lies beside the log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// The segment that the log began with then: of another log it says nothing.
    pub segment: u64,
    /// Acknowledged to the core up to this index.
    pub acknowledged: LogIndex,
    /// and up to which it had been synced.
    pub synced: LogIndex,
    /// More may have been acknowledged since that was not synced: the checkpoint itself can be
    /// older than that.
    pub unsynced: bool,
    /// In which boot of the machine it was made, where that was known.
    pub boot: Option<u128>,
    /// The log begins after this index; `None` in a checkpoint that does not state it.
    pub begin: Option<LogIndex>,
}

impl Checkpoint {
    /// Whether it was made in that boot of the machine: then it is what was written last.
    pub fn is_of(&self, boot: Option<u128>) -> bool {
        boot.is_some() && self.boot == boot
    }
}

/// Bytes of a checkpoint, without its checksum.
const CHECKPOINT_BYTES: usize = SHORT_CHECKPOINT_BYTES + 1 + 8;
/// Bytes of one that an older release wrote: it does not state where the log begins.
const SHORT_CHECKPOINT_BYTES: usize = 8 + 8 + 8 + 1 + 16;

/// Makes the record of a checkpoint.
pub fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHECKPOINT_BYTES);
    out.put_u64_le(checkpoint.segment);
    out.put_u64_le(checkpoint.acknowledged.get());
    out.put_u64_le(checkpoint.synced.get());
    out.put_u8(checkpoint.unsynced.into());
    out.put_u128_le(checkpoint.boot.unwrap_or(0));
    // Always the same size: each checkpoint is written over the one before.
    out.put_u8(checkpoint.begin.is_some().into());
    out.put_u64_le(checkpoint.begin.unwrap_or_default().get());
    record(out)
}

/// Reads it.
///
/// # Errors
/// [`Damaged`].
pub fn decode_checkpoint(bytes: Vec<u8>) -> Result<Checkpoint, Damaged> {
    let mut bytes = checked(bytes)?;
    if ![CHECKPOINT_BYTES, SHORT_CHECKPOINT_BYTES].contains(&bytes.len()) {
        return Err(Damaged("it has the wrong size"));
    }
    let (segment, acknowledged) = (bytes.get_u64_le(), bytes.get_u64_le().into());
    let (synced, unsynced) = (bytes.get_u64_le().into(), bytes.get_u8() != 0);
    let boot = Some(bytes.get_u128_le()).filter(|boot| *boot != 0);
    let states_begin = bytes.has_remaining() && bytes.get_u8() != 0;
    let begin = states_begin.then(|| bytes.get_u64_le().into());
    Ok(Checkpoint { segment, acknowledged, synced, unsynced, boot, begin })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::announce::Announcer;
    use ftb_core::Now;
    use ftb_core::node::api::Announcement;

    fn items() -> Vec<Item> {
        let mut announcer = Announcer::new("node1", OriginId(9), 0, 1, Default::default());
        let now = Now { mono_ns: 1, wall_ns: 2 };
        let mut items: Vec<Item> = (5..9)
            .map(|index| {
                let payload = "x".repeat(index as usize * 10);
                let (name, severity) = ("FTB_NODE_SUSPECT", Severity::Warning);
                let (condition, about) = (None, None);
                let announcement =
                    Announcement { name, severity, tags: Vec::new(), payload, condition, about };
                let sealed = announcer.seal(now, announcement).unwrap();
                Item { index: index.into(), content: Content::Events(sealed.into()) }
            })
            .collect();
        let position = |index| Position { epoch: Epoch { number: 3, root: OriginId(7) }, index };
        items.push(Item {
            index: 9.into(),
            content: Content::Gap(Gap {
                after: position(1.into()),
                until: position(4.into()),
                reason: GapReason::LogLost,
                count: Some(3),
                severity_max: Some(Severity::Fatal),
                spaces: Spaces::named(["ftb.ib", "ftb.ipmi.fan"]).unwrap(),
            }),
        });
        items
    }

    #[test]
    fn what_was_written_is_read() {
        let chunk = Bytes::from(encode_chunk(77, &items()));
        let (read, head) = decode_chunk(&chunk);
        assert_eq!(head, Ok(ChunkHead { written_ns: 77, count: 5 }));
        assert_eq!(read, items());
        let mut epochs = EpochHistory::new();
        epochs.open(Epoch { number: 1, root: OriginId(2) }, 1.into(), false);
        epochs.open(Epoch { number: 4, root: OriginId(3) }, 90.into(), true);
        let manifest = Manifest { epochs, after: 12.into(), segment: 3 };
        assert_eq!(decode_manifest(encode_manifest(&manifest)), Ok(manifest));
        let publisher = PublisherId { account: 1, token: 2 };
        let dedup = DedupRanges { publishers: vec![(publisher, vec![(1, 5), (9, 9)])] };
        assert_eq!(decode_dedup(encode_dedup(&dedup)).as_ref(), Ok(&dedup));
        let head = Head { after: 7.into(), dedup };
        assert_eq!(decode_head(encode_head(&head)), Ok(head));
        let dynamic_members = vec![("guest".to_owned(), Rank::UNLISTED_FIRST)];
        assert_eq!(
            decode_dynamic_members(encode_dynamic_members(&dynamic_members)),
            Ok(dynamic_members)
        );
    }

    /// Every single flipped bit, and every place where the bytes may end: only what was written
    /// before comes out, and that there is damage is seen.
    #[test]
    fn no_flipped_bit_and_no_torn_end_gives_a_wrong_entry() {
        let good = items();
        let chunk = encode_chunk(77, &good);
        for bit in 0..chunk.len() * 8 {
            let mut flipped = chunk.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (read, head) = decode_chunk(&Bytes::from(flipped));
            assert!(head.is_err(), "bit {bit} was not noticed");
            assert!(good.starts_with(&read), "bit {bit} gave another entry");
        }
        for len in 0..chunk.len() {
            let (read, head) = decode_chunk(&Bytes::copy_from_slice(&chunk[..len]));
            assert!(head.is_err() && good.starts_with(&read), "torn at {len}");
        }
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_refused() {
        let publisher = PublisherId { account: 1, token: 2 };
        let dedup = DedupRanges { publishers: vec![(publisher, vec![(1, 1), (3, 3), (10, 0)])] };
        assert!(decode_dedup(encode_dedup(&dedup)).is_err());
    }

    #[test]
    fn records_with_a_flipped_bit_are_refused() {
        let mut epochs = EpochHistory::new();
        epochs.open(Epoch { number: 1, root: OriginId(2) }, 1.into(), false);
        let manifest = encode_manifest(&Manifest { epochs, after: 12.into(), segment: 3 });
        let publisher = PublisherId { account: 1, token: 2 };
        let before = DedupRanges { publishers: vec![(publisher, vec![(1, 5)])] };
        let dedup = encode_dedup(&before);
        for bit in 0..manifest.len() * 8 {
            let mut flipped = manifest.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_manifest(flipped).is_err(), "bit {bit}");
        }
        let dynamic_members = encode_dynamic_members(&[("guest".to_owned(), Rank::UNLISTED_FIRST)]);
        for bit in 0..dynamic_members.len() * 8 {
            let mut flipped = dynamic_members.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_dynamic_members(flipped).is_err(), "bit {bit}");
        }
        let listed = encode_dynamic_members(&[("node001".to_owned(), Rank(3))]);
        assert!(decode_dynamic_members(listed).is_err(), "a rank of the list");
        let head = encode_head(&Head { after: 7.into(), dedup: before });
        for bit in 0..head.len() * 8 {
            let mut flipped = head.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_head(flipped).is_err(), "bit {bit}");
        }
        for bit in 0..dedup.len() * 8 {
            let mut flipped = dedup.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_dedup(flipped).is_err(), "bit {bit}");
        }
        let checkpoint = Checkpoint {
            segment: 3,
            acknowledged: 9.into(),
            synced: 7.into(),
            unsynced: true,
            boot: Some(1 << 100),
            begin: Some(5.into()),
        };
        let mut older = encode_checkpoint(&checkpoint)[4..][..SHORT_CHECKPOINT_BYTES].to_vec();
        older = record(older);
        assert_eq!(decode_checkpoint(older), Ok(Checkpoint { begin: None, ..checkpoint.clone() }));
        let bytes = encode_checkpoint(&checkpoint);
        assert_eq!(decode_checkpoint(bytes.clone()), Ok(checkpoint));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_checkpoint(flipped).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|len| decode_checkpoint(bytes[..len].to_vec()).is_err()));
    }
}
