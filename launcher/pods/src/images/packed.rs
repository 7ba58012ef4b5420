//! A directory image as one sequence of bytes that is read in place: the stream of [`tree::send`],
//! and then the checksum of it. So an image in memory is protected and sent without a copy of it,
//! and one that was computed from parity is known to be right.

use super::tree::{self, Sum};
use std::fs::{self, File};
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes behind the stream: the checksum in hexadecimal digits, and the end of the line.
const CHECKSUM_BYTES: u64 = 9;
/// Read at once for the checksum.
const READ_BYTES: usize = 256 * 1024;

fn checksum_line(crc: u32) -> String {
    format!("{crc:08x}\n")
}

/// Reads what follows a stream that was received.
///
/// # Errors
/// The system's; the stream was not the one that was packed.
pub fn check(from: &mut impl BufRead, received: &Sum) -> io::Result<()> {
    let mut line = [0; CHECKSUM_BYTES as usize];
    from.read_exact(&mut line)?;
    let right = checksum_line(received.crc);
    if line != *right.as_bytes() {
        let (is, was) = (right.trim_end(), String::from_utf8_lossy(&line));
        let problem = format!("its checksum is {is}, and was {} when it was saved", was.trim_end());
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(())
}

/// A file in the sequence: its line, then its bytes.
#[derive(Debug)]
struct PackedFile {
    /// Where its line begins.
    begin: u64,
    line: String,
    name: String,
    length: u64,
}

/// A directory image that does not change any more.
#[derive(Debug)]
pub struct Packed {
    dir: PathBuf,
    /// The last one is the end of the stream, with the checksum as its content.
    files: Vec<PackedFile>,
    bytes: u64,
    /// Computed when it is read: the ranks go on by then.
    checksum: Mutex<Option<String>>,
}

impl Packed {
    /// # Errors
    /// The system's, or a file that an image may not contain.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let (files, bytes) = layout(dir)?;
        Ok(Self { dir: dir.to_owned(), files, bytes, checksum: Mutex::new(None) })
    }

    /// Length of the sequence.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads bytes of the sequence.
    ///
    /// # Errors
    /// It ends before, it is gone, or the system's.
    pub fn read_exact_at(&self, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !to.is_empty() {
            let got = self.read_at(to, offset)?;
            to = &mut to[got..];
            offset += got as u64;
        }
        Ok(())
    }

    /// Reads from one file, or its line; at least one byte.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let after = self.files.partition_point(|file| file.begin <= offset);
        let file = after.checked_sub(1).and_then(|at| self.files.get(at));
        let file = file.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (line, at) = (file.line.as_bytes(), offset - file.begin);
        if let Some(rest) = usize::try_from(at).ok().and_then(|at| line.get(at..))
            && !rest.is_empty()
        {
            let length = rest.len().min(to.len());
            to[..length].copy_from_slice(&rest[..length]);
            return Ok(length);
        }
        let at = at - line.len() as u64;
        let left = file.length.saturating_sub(at);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(to.len());
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if file.name.is_empty() {
            let line = self.checksum()?;
            // Within the nine bytes.
            to[..length].copy_from_slice(&line.as_bytes()[at as usize..][..length]);
            return Ok(length);
        }
        File::open(self.dir.join(&file.name))?.read_exact_at(&mut to[..length], at)?;
        Ok(length)
    }

    /// The line with the checksum; the first call reads all files.
    fn checksum(&self) -> io::Result<String> {
        let mut known = self.checksum.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &*known {
            return Ok(line.clone());
        }
        let (mut crc, mut piece) = (0, vec![0; READ_BYTES]);
        for file in self.files.iter().filter(|file| !file.name.is_empty()) {
            crc = crc32c::crc32c_append(crc, file.line.as_bytes());
            let (from, mut at) = (File::open(self.dir.join(&file.name))?, 0);
            while at < file.length {
                let left = usize::try_from(file.length - at).unwrap_or(usize::MAX);
                let piece = &mut piece[..left.min(READ_BYTES)];
                from.read_exact_at(piece, at)?;
                crc = crc32c::crc32c_append(crc, piece);
                at += piece.len() as u64;
            }
        }
        Ok(known.insert(checksum_line(crc)).clone())
    }
}

/// Length of the sequence of a directory.
///
/// # Errors
/// The system's, or a file that an image may not contain.
pub fn bytes(dir: &Path) -> io::Result<u64> {
    layout(dir).map(|(_, bytes)| bytes)
}

fn layout(dir: &Path) -> io::Result<(Vec<PackedFile>, u64)> {
    let (mut files, mut begin) = (Vec::new(), 0);
    for name in tree::list(dir)? {
        let length = fs::metadata(dir.join(&name))?.len();
        let line = format!("{length} {name}\n");
        let end = begin + line.len() as u64 + length;
        files.push(PackedFile { begin, line, name, length });
        begin = end;
    }
    let (line, name, length) = ("\n".to_owned(), String::new(), CHECKSUM_BYTES);
    files.push(PackedFile { begin, line, name, length });
    Ok((files, begin + 1 + CHECKSUM_BYTES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stream_with_another_byte_is_refused_with_both_checksums() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("image");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("pages"), [7; 2 * READ_BYTES + 5]).unwrap();
        let packed = Packed::of(&dir).unwrap();
        let mut stream = vec![0; usize::try_from(packed.bytes()).unwrap()];
        packed.read_exact_at(&mut stream, 0).unwrap();
        let received = |name: &str, mut stream: &[u8]| {
            let sum = tree::receive(
                &mut stream,
                &root.path().join(name),
                super::super::Outlives::Nothing,
            )?;
            check(&mut stream, &sum)
        };
        received("right", &stream).unwrap();
        stream[READ_BYTES] ^= 1;
        let error = received("wrong", &stream).unwrap_err().to_string();
        assert!(
            error.contains("its checksum is") && error.contains("when it was saved"),
            "{error}"
        );
        assert!(received("short", &stream[..stream.len() - 1]).is_err());
    }

    #[test]
    fn a_packed_directory_is_the_stream_of_its_files_wherever_one_reads() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("image");
        fs::create_dir_all(dir.join("deep")).unwrap();
        for (name, bytes) in [("a", &b"one"[..]), ("deep/pages", &[7; 300]), ("nil", b"")] {
            fs::write(dir.join(name), bytes).unwrap();
        }
        let mut stream = Vec::new();
        let sum = tree::send(&dir, &mut stream).unwrap();
        stream.extend(checksum_line(sum.crc).bytes());
        let packed = Packed::of(&dir).unwrap();
        assert_eq!((packed.bytes(), bytes(&dir).unwrap()), (stream.len() as u64, packed.bytes()));
        for begin in 0..stream.len() {
            for length in [1, 5, stream.len() - begin] {
                let mut piece = vec![0; length.min(stream.len() - begin)];
                packed.read_exact_at(&mut piece, begin as u64).unwrap();
                assert_eq!(piece, stream[begin..begin + piece.len()]);
            }
        }
        assert!(packed.read_exact_at(&mut [0; 2], packed.bytes() - 1).is_err());
        fs::remove_dir_all(&dir).unwrap();
        assert!(packed.read_exact_at(&mut [0; 300], 0).is_err(), "it is gone");
    }
}
