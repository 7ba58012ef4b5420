//! The file of a segment: chunks one after the other, a frame before each.
//!
//! Responsible for: the offsets of chunks, and which chunks are complete. Not responsible for:
//! files and fsync ([`super::files`]).

use crate::world::StoreError;
use bytes::{Buf as _, BufMut as _};
use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read as _, Write as _};
use std::path::Path;

/// Before a chunk.
pub(super) const FRAME_BYTES: usize = 4 + 4 + 8;
/// The longest chunk, in bytes: far above what is written at once (`WRITE_BYTES`), and above the
/// head of a segment that names as many publishers as are remembered.
pub(super) const CHUNK_BYTES_MAX: u32 = 128 * 1024 * 1024;
/// Of a segment that is read from its beginning to its end.
const READ_BYTES: usize = 256 * 1024;

/// The chunks of a segment.
#[derive(Default)]
pub(super) struct Places {
    /// Rising by place.
    chunks: Vec<Place>,
    /// Behind the last chunk that is whole: there the next one comes.
    pub(super) end: u64,
}

/// Where a chunk lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    key: u64,
    /// Where the chunk begins in its file, behind its frame.
    pub(super) at: u64,
    pub(super) bytes: u32,
}

/// What stands before a chunk.
pub(super) fn frame(key: u64, bytes: u32) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    (&mut frame[4..8]).put_u32_le(bytes);
    (&mut frame[8..]).put_u64_le(key);
    let crc = crc32c::crc32c(&frame[4..]);
    (&mut frame[..4]).put_u32_le(crc);
    frame
}

/// Key and length of the chunk that follows; `None`: it is no frame.
fn parse_frame(frame: &[u8; FRAME_BYTES]) -> Option<(u64, u32)> {
    let mut rest = &frame[..];
    let crc = rest.get_u32_le();
    if crc32c::crc32c(rest) != crc {
        return None;
    }
    let bytes = rest.get_u32_le();
    Some((rest.get_u64_le(), bytes))
}

/// Shows the chunks of a segment that are whole, and notes where they are.
pub(super) fn read_chunks(
    path: &Path,
    places: &mut Places,
    visit: &mut dyn FnMut(u64, Vec<u8>),
) -> Result<(), StoreError> {
    let file = File::open(path).map_err(StoreError::of_read)?;
    let len = file.metadata()?.len();
    let mut file = BufReader::with_capacity(READ_BYTES, file);
    loop {
        let mut head = [0; FRAME_BYTES];
        let Some(room) = (len - places.end).checked_sub(head.len() as u64) else { return Ok(()) };
        file.read_exact(&mut head).map_err(StoreError::of_read)?;
        let is_whole =
            |(_, bytes): &(u64, u32)| u64::from(*bytes) <= room && *bytes <= CHUNK_BYTES_MAX;
        let Some((key, bytes)) = parse_frame(&head).filter(is_whole) else { return Ok(()) };
        let mut chunk = vec![0; bytes as usize];
        file.read_exact(&mut chunk).map_err(StoreError::of_read)?;
        places.push(key, bytes);
        visit(key, chunk);
    }
}

/// Writes one behind the other, at once where the file takes it.
pub(super) fn write_both(file: &mut File, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(first), IoSlice::new(second)];
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Places {
    /// A chunk was put at the end.
    pub(super) fn push(&mut self, key: u64, bytes: u32) {
        let at = self.end + FRAME_BYTES as u64;
        self.chunks.push(Place { key, at, bytes });
        self.end = at + u64::from(bytes);
    }

    /// Forgets the chunks of a key and of later ones.
    pub(super) fn cut(&mut self, key: u64) {
        while let Some(last) = self.chunks.pop_if(|last| last.key >= key) {
            self.end = last.at - FRAME_BYTES as u64;
        }
    }

    /// Where the chunk of a key lies.
    pub(super) fn find(&self, key: u64) -> Option<Place> {
        let at = self.chunks.binary_search_by_key(&key, |place| place.key).ok()?;
        self.chunks.get(at).copied()
    }
}
