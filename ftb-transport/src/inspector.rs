//! Inspects the bytes of an HTTP/2 connection before the HTTP/2 library does.
//!
//! It corrects two things in the library: h2 answers PING and SETTINGS frames without limit, and it
//! refuses a request whose `:authority` contains a percent sign. gRPC clients of other languages
//! send one on a Unix socket (`tmp%2Fagent.sock`).
//!
//! Not responsible for: all other rules of HTTP/2. Bytes that break them pass on to h2.

use core::time::Duration;

/// PING and SETTINGS frames that a connection may send at once.
const ASKS_BURST: u64 = 1_000;
/// Further such frames in each second.
const ASKS_PER_S: u64 = 100;
/// Bytes sent to the peer for which it may send one more such frame: some gRPC libraries measure
/// the connection with a PING for each frame of data.
const ASK_BYTES: u64 = 64;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// Bytes of the answer to a PING.
const PONG_BYTES: u64 = 17;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// GOAWAY with ENHANCE_YOUR_CALM, the last stream and debug data that gRPC knows.
const GOAWAY: &[u8] = b"\0\0\x16\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0btoo_many_pings";

/// The peer exceeded the limit on PING and SETTINGS frames: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {ASKS_PER_S} PING or SETTINGS frames a second, {ASKS_BURST} at once")]
pub(crate) struct Flood;

/// Inspects one connection, from its first byte.
#[derive(Debug, Default)]
pub(crate) struct Inspector {
    incoming: Incoming,
    outgoing: Frames,
    asks: Asks,
}

impl Inspector {
    /// Inspects received bytes and replaces percent signs in `:authority`. `now` returns the time
    /// since a fixed point; it is called only for counted frames.
    ///
    /// # Errors
    /// [`Flood`]: stop reading.
    pub(crate) fn received(
        &mut self,
        bytes: &mut [u8],
        mut now: impl FnMut() -> Duration,
    ) -> Result<(), Flood> {
        self.incoming.pass(bytes, |head| match head.kind {
            PING | SETTINGS if head.flags & ACK == 0 => self.asks.ask(now()),
            _ => Ok(()),
        })
    }

    /// Inspects sent bytes.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.asks.sent = self.asks.sent.saturating_add(bytes.len() as u64);
        self.outgoing.skip(bytes);
    }

    /// The GOAWAY frame for a flooding peer; `None` in the middle of an outgoing frame.
    pub(crate) fn goaway(&self) -> Option<&'static [u8]> {
        self.outgoing.is_between().then_some(GOAWAY)
    }
}

/// The limit on PING and SETTINGS frames.
#[derive(Debug, Default)]
struct Asks {
    /// Received such frames.
    count: u64,
    /// Bytes sent to the peer, answers included.
    sent: u64,
    start: Option<Duration>,
}

impl Asks {
    fn ask(&mut self, now: Duration) -> Result<(), Flood> {
        self.count += 1;
        let since = now.saturating_sub(*self.start.get_or_insert(now));
        let answers = PONG_BYTES.saturating_mul(self.count);
        let earned = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let earned = earned.saturating_mul(ASKS_PER_S) / 1_000;
        let allowed = ASKS_BURST
            .saturating_add(earned)
            .saturating_add(self.sent.saturating_sub(answers) / ASK_BYTES);
        if self.count > allowed { Err(Flood) } else { Ok(()) }
    }
}

/// A frame header.
#[derive(Clone, Copy, Debug)]
struct Head {
    len: usize,
    kind: u8,
    flags: u8,
}

/// Finds the beginning of each frame.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// Missing bytes of the current frame.
    rest: usize,
}

impl Frames {
    fn is_between(&self) -> bool {
        self.rest == 0 && self.head_len == 0
    }

    /// Adds one byte of a header; returns the header when it is complete.
    fn take(&mut self, byte: u8) -> Option<Head> {
        self.head[self.head_len] = byte;
        self.head_len += 1;
        if self.head_len < HEAD_BYTES {
            return None;
        }
        self.head_len = 0;
        let [high, middle, low, kind, flags, ..] = self.head;
        self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(Head { len: self.rest, kind, flags })
    }

    fn skip(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            if let Some((first, more)) = bytes.split_first() {
                self.take(*first);
                bytes = more;
            }
        }
    }
}

/// The bytes from the peer.
#[derive(Debug, Default)]
struct Incoming {
    /// Received bytes of the connection preface.
    preface: usize,
    frames: Frames,
    /// The header block of the current request.
    block: Option<Block>,
}

impl Incoming {
    fn pass<E>(
        &mut self,
        bytes: &mut [u8],
        mut began: impl FnMut(Head) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = bytes;
        while let Some(first) = bytes.first_mut() {
            if self.preface < PREFACE.len() {
                self.preface += 1;
            } else if self.frames.rest == 0 {
                if let Some(head) = self.frames.take(*first) {
                    self.begin(head);
                    began(head)?;
                }
            } else {
                let passed = self.frames.rest.min(bytes.len());
                let (now, later) = bytes.split_at_mut(passed);
                if let Some(block) = &mut self.block {
                    now.iter_mut().for_each(|byte| block.pass(byte));
                }
                self.frames.rest -= passed;
                bytes = later;
                self.end();
                continue;
            }
            bytes = &mut bytes[1..];
            self.end();
        }
        Ok(())
    }

    fn begin(&mut self, head: Head) {
        match (head.kind, &mut self.block) {
            (HEADERS, block) => {
                *block = Some(Block {
                    fields: Fields::default(),
                    left: head.len,
                    padding: None,
                    is_padded: head.flags & PADDED != 0,
                    skip: if head.flags & PRIORITY == 0 { 0 } else { 5 },
                    is_last: head.flags & END_HEADERS != 0,
                });
            }
            (CONTINUATION, Some(block)) => {
                block.left = head.len;
                (block.padding, block.is_padded) = (None, false);
                block.is_last = head.flags & END_HEADERS != 0;
            }
            (_, block) => *block = None,
        }
    }

    /// Ends the header block after its last frame.
    fn end(&mut self) {
        let is_over = self.frames.is_between() && self.preface == PREFACE.len();
        if is_over && self.block.as_ref().is_some_and(|block| block.is_last) {
            self.block = None;
        }
    }
}

/// A partly received header block.
#[derive(Debug)]
struct Block {
    fields: Fields,
    /// Missing bytes of the frame.
    left: usize,
    /// Padding among them.
    padding: Option<usize>,
    is_padded: bool,
    /// Missing bytes of the priority.
    skip: usize,
    is_last: bool,
}

impl Block {
    fn pass(&mut self, byte: &mut u8) {
        self.left = self.left.saturating_sub(1);
        if self.is_padded && self.padding.is_none() {
            self.padding = Some(usize::from(*byte));
        } else if self.skip > 0 {
            self.skip -= 1;
        } else if self.left >= self.padding.unwrap_or(0) {
            self.fields.pass(byte);
        }
    }
}

const AUTHORITY: &[u8] = b":authority";
/// The index of `:authority` in the static table of RFC 7541.
const AUTHORITY_INDEX: u8 = 1;

/// Steps through the fields of a header block (RFC 7541) without its tables.
#[derive(Debug, Default)]
enum Fields {
    #[default]
    Begin,
    /// The rest of an index or a size.
    Number(After),
    /// The first byte of a length.
    Length(Kind),
    /// The rest of a length.
    LongLength { kind: Kind, is_huffman: bool, len: usize, shift: u32 },
    /// A text.
    Text { kind: Kind, is_huffman: bool, len: usize, offset: usize, is_same: bool },
    /// Not a valid header block; its bytes pass unchanged.
    Invalid,
}

#[derive(Clone, Copy, Debug)]
enum After {
    Field,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    Value,
    Authority,
}

impl Fields {
    fn pass(&mut self, byte: &mut u8) {
        *self = match std::mem::replace(self, Self::Invalid) {
            Self::Begin => Self::begin(*byte),
            Self::Number(after) if *byte & 0x80 != 0 => Self::Number(after),
            Self::Number(After::Field) => Self::Begin,
            Self::Number(After::Value) => Self::Length(Kind::Value),
            Self::Length(kind) => {
                let (is_huffman, len) = (*byte & 0x80 != 0, usize::from(*byte & 0x7f));
                match len {
                    0x7f => Self::LongLength { kind, is_huffman, len, shift: 0 },
                    len => Self::text(kind, is_huffman, len),
                }
            }
            Self::LongLength { kind, is_huffman, len, shift } if shift <= 14 => {
                let len = len + (usize::from(*byte & 0x7f) << shift);
                match *byte & 0x80 {
                    0 => Self::text(kind, is_huffman, len),
                    _ => Self::LongLength { kind, is_huffman, len, shift: shift + 7 },
                }
            }
            Self::Text { kind, is_huffman, len, offset, is_same } => {
                if kind == Kind::Authority && !is_huffman && *byte == b'%' {
                    // Same length, and valid. The agent does not use the authority.
                    *byte = b'-';
                }
                let is_same = is_same && AUTHORITY.get(offset) == Some(&*byte);
                match offset + 1 {
                    next if next < len => {
                        Self::Text { kind, is_huffman, len, offset: next, is_same }
                    }
                    _ => Self::after(kind, !is_huffman && is_same && len == AUTHORITY.len()),
                }
            }
            Self::LongLength { .. } | Self::Invalid => Self::Invalid,
        };
    }

    fn begin(byte: u8) -> Self {
        let (prefix, after) = match byte {
            0x80.. => (0x7f, After::Field),
            0x40.. => (0x3f, After::Value),
            0x20.. => (0x1f, After::Field),
            _ => (0x0f, After::Value),
        };
        match (byte & prefix, after) {
            (index, after) if index == prefix => Self::Number(after),
            (_, After::Field) => Self::Begin,
            (0, After::Value) => Self::Length(Kind::Name),
            (AUTHORITY_INDEX, After::Value) => Self::Length(Kind::Authority),
            (_, After::Value) => Self::Length(Kind::Value),
        }
    }

    fn text(kind: Kind, is_huffman: bool, len: usize) -> Self {
        match len {
            0 => Self::after(kind, false),
            len => Self::Text { kind, is_huffman, len, offset: 0, is_same: true },
        }
    }

    /// The state after a text.
    fn after(kind: Kind, is_authority: bool) -> Self {
        match (kind, is_authority) {
            (Kind::Name, true) => Self::Length(Kind::Authority),
            (Kind::Name, false) => Self::Length(Kind::Value),
            (Kind::Value | Kind::Authority, _) => Self::Begin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// The output, which must not depend on where the input is cut.
    fn passed(bytes: &[u8]) -> Vec<u8> {
        let mut whole = bytes.to_vec();
        Inspector::default().received(&mut whole, Duration::default).expect("no flood");
        for cut in 0..bytes.len() {
            let mut parts = bytes.to_vec();
            let (one, other) = parts.split_at_mut(cut);
            let mut inspector = Inspector::default();
            inspector.received(one, Duration::default).expect("no flood");
            inspector.received(other, Duration::default).expect("no flood");
            assert_eq!(parts, whole, "cut at {cut}");
        }
        whole
    }

    fn literal(start: &[u8], value: &str) -> Vec<u8> {
        [start, &[value.len() as u8], value.as_bytes()].concat()
    }

    #[test]
    fn percent_signs_are_replaced_in_the_authority_only() {
        let with = |value: &str| {
            let path = literal(&[0x04], "/a%2Fb");
            let by_index = literal(&[0x41], value);
            let by_name = literal(&[b"\x40\x0a", AUTHORITY].concat(), value);
            let other = literal(b"\0\x0a:authoritx", "x%2Fy");
            let long = [&literal(&[0x0f, 0x80, 0x01], "%")[..], &[0x3f, 0x81, 0x01, 0x82]].concat();
            [path, by_index, long, other, by_name].concat()
        };
        let (sent, wanted) = (with("tmp%2Fa.sock"), with("tmp-2Fa.sock"));
        let settings = frame(SETTINGS, 0, &[]);
        let connection = |block: &[u8]| {
            let (one, other) = block.split_at(15);
            let padded = [&[3, 0, 0, 0, 0, 9], one, b"%%%"].concat();
            [
                PREFACE,
                &settings,
                &frame(HEADERS, END_HEADERS, block),
                &frame(0, 0, b"%:authority%"),
                &frame(HEADERS, PADDED | PRIORITY, &padded),
                &frame(CONTINUATION, END_HEADERS, other),
                &frame(PING, 0, &[b'%'; 8]),
            ]
            .concat()
        };
        assert_eq!(passed(&connection(&sent)), connection(&wanted));
    }

    #[test]
    fn garbage_passes_unchanged() {
        let block = [0x41, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'%', 0x41, 1, b'%'];
        let garbage = [PREFACE, &frame(HEADERS, 0, &block), &[b'%'; 100]].concat();
        assert_eq!(passed(&garbage), garbage);
        assert_eq!(passed(&[b'%'; 60]), [b'%'; 60]);
    }

    #[test]
    fn a_flood_of_ping_or_settings_frames_is_an_error_and_acknowledgements_are_not_counted() {
        for (kind, payload) in [(PING, &[0; 8][..]), (SETTINGS, &[])] {
            let mut inspector = Inspector::default();
            let start = Duration::from_secs(7);
            inspector.received(&mut PREFACE.to_vec(), || start).expect("a preface");
            let many = ASKS_BURST as usize;
            let mut answers = frame(kind, ACK, payload).repeat(10 * many);
            assert_eq!(inspector.received(&mut answers, || start), Ok(()));
            let mut asks = frame(kind, 0, payload).repeat(many);
            assert_eq!(inspector.received(&mut asks, || start), Ok(()));
            let mut one = frame(kind, 0, payload);
            let later = start + Duration::from_millis(1_000 / ASKS_PER_S);
            assert_eq!(inspector.received(&mut one, || later), Ok(()));
            assert_eq!(inspector.received(&mut one, || later), Err(Flood));
        }
    }

    #[test]
    fn a_peer_that_receives_data_may_send_more_pings() {
        let mut inspector = Inspector::default();
        inspector.received(&mut PREFACE.to_vec(), Duration::default).expect("a preface");
        let (ping, pong) = (frame(PING, 0, &[0; 8]), frame(PING, ACK, &[0; 8]));
        let data = frame(0, 0, &[0; 200]);
        for _ in 0..10 * ASKS_BURST {
            inspector.sent(&data);
            assert_eq!(inspector.received(&mut ping.clone(), Duration::default), Ok(()));
            inspector.sent(&pong);
        }
        // Answers to its own frames do not raise the limit.
        let mut inspector = Inspector::default();
        inspector.received(&mut PREFACE.to_vec(), Duration::default).expect("a preface");
        let flood = (0..=ASKS_BURST).find(|_| {
            inspector.sent(&pong);
            inspector.received(&mut ping.clone(), Duration::default).is_err()
        });
        assert_eq!(flood, Some(ASKS_BURST));
    }

    #[test]
    fn a_goaway_frame_is_sent_between_frames_only() {
        let mut inspector = Inspector::default();
        assert!(inspector.goaway().is_some_and(|words| words[16] == 11));
        let data = frame(0, 0, &[0; 100]);
        for cut in 1..data.len() {
            inspector.sent(&data[..cut]);
            assert_eq!(inspector.goaway(), None, "cut at {cut}");
            inspector.sent(&data[cut..]);
            assert!(inspector.goaway().is_some());
        }
    }
}
