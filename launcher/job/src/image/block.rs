//! One block of an image, as bytes.

use crate::frame::array;
use crate::limits::BLOCK_BYTES_MAX;

pub(super) const MAGIC: [u8; 8] = *b"FTBIMAGE";
pub(super) const VERSION: u32 = 1;
/// Magic and version.
pub(super) const PREAMBLE_BYTES: usize = 12;
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a block's header that its checksum covers, before the payload.
const SUMMED_BYTES: usize = 12;
pub(super) const END_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Header = 1,
    Section = 2,
    Data = 3,
    End = 4,
}

/// What a block's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub kind: Kind,
    pub index: u32,
    pub len: u32,
    pub checksum: u32,
}

impl BlockHeader {
    pub(super) fn of(kind: Kind, index: u32, payload: &[u8]) -> Self {
        let mut header = Self {
            kind,
            index,
            // At most BLOCK_BYTES_MAX.
            len: payload.len() as u32,
            checksum: 0,
        };
        header.checksum = header.sum(payload);
        header
    }

    pub(super) fn sum(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.encode()[..SUMMED_BYTES]), payload)
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let kind = match bytes[..4] {
            [1, 0, 0, 0] => Kind::Header,
            [2, 0, 0, 0] => Kind::Section,
            [3, 0, 0, 0] => Kind::Data,
            [4, 0, 0, 0] => Kind::End,
            _ => return Err("there is no block".to_owned()),
        };
        let len = u32::from_le_bytes(array(&bytes[8..12]));
        if len as usize > BLOCK_BYTES_MAX {
            return Err(format!("the block says it has {len} bytes"));
        }
        Ok(Self {
            kind,
            index: u32::from_le_bytes(array(&bytes[4..8])),
            len,
            checksum: u32::from_le_bytes(array(&bytes[12..16])),
        })
    }
}

/// Payload of the end block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Blocks before it.
    pub blocks: u32,
    /// Bytes before it.
    pub bytes: u64,
    /// Of all those bytes.
    pub checksum: u32,
}

impl End {
    pub(super) fn encode(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..4].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == END_BYTES).then(|| Self {
            blocks: u32::from_le_bytes(array(&bytes[..4])),
            bytes: u64::from_le_bytes(array(&bytes[4..12])),
            checksum: u32::from_le_bytes(array(&bytes[12..16])),
        })
    }
}
