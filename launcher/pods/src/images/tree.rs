//! A directory image as one stream. For each file in the order of names: `LENGTH NAME\n` and the
//! bytes; at the end an empty line. More pieces of a growing file may follow as `+LENGTH NAME\n`.
//! The CRC-32C covers the whole stream, so a missing or renamed file counts as damage. Received
//! names must lie below the directory.

use super::{Outlives, copy, read_line, sync_dir};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::{Component, Path, PathBuf};

/// Most files of one image.
pub const FILES_MAX: usize = 65_536;
/// Deepest nesting of folders.
pub const DEPTH_MAX: usize = 16;

/// Prefix of the length of a further piece of a file.
const MORE: &str = "+";

/// Size and checksum of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Of all files.
    pub bytes: u64,
    pub crc: u32,
}

/// Whether an image may contain a file of this name.
fn good(name: &str) -> bool {
    let path = Path::new(name);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let depth = path.components().count();
    !name.is_empty()
        && !name.contains('\n')
        && path.components().all(plain)
        && depth <= DEPTH_MAX
        && path.to_str().is_some_and(|text| !text.ends_with('/'))
}

/// All files below `dir` by name. Other file types are an error, because they cannot be copied.
pub fn list(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(dir.join(&folder))? {
            let entry = entry?;
            let name = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            let text = name.to_str().filter(|text| good(text)).map(str::to_owned);
            let bad = || io::Error::other(format!("{} cannot be part of an image", name.display()));
            if kind.is_dir() {
                folders.push(name.clone());
            } else if kind.is_file() {
                names.push(text.ok_or_else(bad)?);
            } else {
                return Err(bad());
            }
            if names.len() + folders.len() > FILES_MAX {
                return Err(io::Error::other(format!("an image of more than {FILES_MAX} files")));
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Bytes of all files below `dir`.
///
/// # Errors
/// The system's, or a file that an image may not contain.
pub fn bytes(dir: &Path) -> io::Result<u64> {
    let length = |name: &String| fs::metadata(dir.join(name)).map(|data| data.len());
    list(dir)?.iter().map(length).sum()
}

/// Writes files of a directory, or pieces of them, as one stream.
pub struct Sender<'a, W> {
    dir: &'a Path,
    to: &'a mut W,
    sum: Sum,
}

impl<'a, W: Write> Sender<'a, W> {
    pub fn new(dir: &'a Path, to: &'a mut W) -> Self {
        Self { dir, to, sum: Sum { bytes: 0, crc: 0 } }
    }

    pub fn file(&mut self, name: &str) -> io::Result<()> {
        let mut file = File::open(self.dir.join(name))?;
        let length = file.metadata()?.len();
        self.piece(name, &mut file, length, false)
    }

    /// The next `length` bytes of a file. `more`: a further piece.
    pub fn piece(
        &mut self,
        name: &str,
        file: &mut File,
        length: u64,
        more: bool,
    ) -> io::Result<()> {
        let head = format!("{}{length} {name}\n", if more { MORE } else { "" });
        self.to.write_all(head.as_bytes())?;
        self.sum.crc = crc32c::crc32c_append(self.sum.crc, head.as_bytes());
        self.sum.crc = copy(file, self.to, length, self.sum.crc)?;
        self.sum.bytes += length;
        Ok(())
    }

    pub fn end(self) -> io::Result<Sum> {
        self.to.write_all(b"\n")?;
        Ok(self.sum)
    }
}

/// Writes all files below `dir` to `to`.
///
/// # Errors
/// The system's, or a file that an image may not contain.
pub fn send(dir: &Path, to: &mut impl Write) -> io::Result<Sum> {
    let mut sender = Sender::new(dir, to);
    for name in list(dir)? {
        sender.file(&name)?;
    }
    sender.end()
}

/// Reads the output of [`Sender`] into the new directory `dir`.
///
/// # Errors
/// The system's; a stream that ends early or has a forbidden name.
pub fn receive(from: &mut impl BufRead, dir: &Path, outlives: Outlives) -> io::Result<Sum> {
    fs::create_dir(dir)?;
    let mut sum = Sum { bytes: 0, crc: 0 };
    let mut names = BTreeSet::new();
    loop {
        let head = read_line(from)?;
        if head.is_empty() {
            break;
        }
        let (more, words) = head.strip_prefix(MORE).map_or((false, &*head), |rest| (true, rest));
        let (length, name) = words
            .split_once(' ')
            .and_then(|(length, name)| Some((length.parse::<u64>().ok()?, name)))
            .filter(|(_, name)| good(name) && names.contains(*name) == more)
            .ok_or_else(|| io::Error::other("this is no file of an image"))?;
        if !more {
            names.insert(name.to_owned());
        }
        if names.len() > FILES_MAX {
            return Err(io::Error::other(format!("an image of more than {FILES_MAX} files")));
        }
        let path = dir.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = File::options().append(true).create_new(!more).open(&path)?;
        sum.crc = crc32c::crc32c_append(sum.crc, format!("{head}\n").as_bytes());
        sum.crc = copy(from, &mut file, length, sum.crc)?;
        sum.bytes += length;
        outlives.sync(&file)?;
    }
    if outlives == Outlives::Host {
        sync_dir(dir)?;
    }
    Ok(sum)
}

/// Deletes a file or a directory, if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    let is_dir = match fs::symlink_metadata(path) {
        Ok(data) => data.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stream_names_files_below_and_nowhere_else() {
        for name in ["../x", "/etc/x", "a/../../x", "", "a/..", "."] {
            let dir = tempfile::tempdir().unwrap();
            let stream = format!("1 {name}\nx\n");
            let error = receive(&mut stream.as_bytes(), &dir.path().join("image"), Outlives::Host)
                .unwrap_err();
            assert!(error.to_string().contains("no file of an image"), "{name}: {error}");
        }
        let dir = tempfile::tempdir().unwrap();
        for (at, stream) in
            ["5 a\nxy", "1 a\nx1 a\nx\n", "x a\n", "1 a\nx", "+1 a\nx\n", "1 a\nx+1 b\nx\n"]
                .iter()
                .enumerate()
        {
            let image = dir.path().join(at.to_string());
            assert!(receive(&mut stream.as_bytes(), &image, Outlives::Host).is_err(), "{stream}");
        }
    }

    #[test]
    fn an_entry_that_is_not_a_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        assert!(send(dir.path(), &mut io::sink()).is_err());
    }

    #[test]
    fn another_name_is_another_sum() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), b"x").unwrap();
        let before = send(dir.path(), &mut io::sink()).unwrap();
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let after = send(dir.path(), &mut io::sink()).unwrap();
        assert!(before.crc != after.crc && before.bytes == after.bytes);
    }
}
