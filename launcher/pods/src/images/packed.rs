//! A directory image as one sequence of bytes that is read in place: the stream of [`tree::send`].
//! So an image in memory is protected and sent without a copy of it.

use super::tree;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

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
    files: Vec<PackedFile>,
    bytes: u64,
}

impl Packed {
    /// # Errors
    /// The system's, or a file that an image may not contain.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let (files, bytes) = layout(dir)?;
        Ok(Self { dir: dir.to_owned(), files, bytes })
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
        File::open(self.dir.join(&file.name))?.read_exact_at(&mut to[..length], at)?;
        Ok(length)
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
    files.push(PackedFile { begin, line: "\n".to_owned(), name: String::new(), length: 0 });
    Ok((files, begin + 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_packed_directory_is_the_stream_of_its_files_wherever_one_reads() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("image");
        fs::create_dir_all(dir.join("deep")).unwrap();
        for (name, bytes) in [("a", &b"one"[..]), ("deep/pages", &[7; 300]), ("nil", b"")] {
            fs::write(dir.join(name), bytes).unwrap();
        }
        let mut stream = Vec::new();
        tree::send(&dir, &mut stream).unwrap();
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
