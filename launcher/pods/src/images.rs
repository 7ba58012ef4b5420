//! Images on the disk of a node: their places, checksums and deletion. An image is a file or a
//! directory of files ([`tree`]), which may be read while it is written ([`growing`]), or as one
//! sequence ([`packed`]). Not responsible for connections.

pub mod growing;
pub mod packed;
pub mod tree;

use ftb_launcher_core::names::SetId;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};

/// Longest line between the pieces of an image in bytes.
const LINE_BYTES_MAX: u64 = 512;
const CHUNK_BYTES: usize = 256 * 1024;

/// What a fetched image must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlives {
    /// A crash of the host: it is synced before it is reported.
    Host,
    /// Nothing: its ranks start from it at once, and the source still has it.
    Nothing,
}

impl Outlives {
    /// Syncs a file where the image must outlive the host.
    pub fn sync(self, file: &File) -> io::Result<()> {
        if self == Self::Host { file.sync_all() } else { Ok(()) }
    }
}

/// `<root>/<set>/rank-<r>.img`.
pub fn path(root: &Path, set: &SetId, rank: u32) -> PathBuf {
    root.join(set.as_str()).join(format!("rank-{rank}.img"))
}

/// The path of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePath {
    /// As this process sees it.
    pub here: PathBuf,
    /// As commands in the node's pods see it.
    pub inside: PathBuf,
}

impl ImagePath {
    /// For commands that need no image.
    pub fn none() -> Self {
        Self { here: PathBuf::from("/"), inside: PathBuf::from("/") }
    }
}

/// The newest migration for which that rank's image is below `root`.
pub fn newest_migration(root: &Path, rank: u32) -> Option<ftb_launcher_core::names::Episode> {
    let sets = fs::read_dir(root).ok()?.filter_map(Result::ok);
    let names =
        sets.filter_map(|entry| entry.file_name().to_str().and_then(|n| SetId::new(n).ok()));
    let made = names.filter(|set| path(root, set, rank).exists());
    made.filter_map(|set| set.migration()).max()
}

/// Reads one line without its newline.
///
/// # Errors
/// The stream breaks or ends before the line does, or the line is too long.
pub fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(text) => Ok(text.to_owned()),
        None => Err(io::Error::other("the peer sent no whole line")),
    }
}

/// Bytes and CRC-32C of the image at `path`.
pub fn sum(path: &Path) -> io::Result<(u64, u32)> {
    if fs::metadata(path)?.is_dir() {
        let sum = tree::send(path, &mut io::sink())?;
        return Ok((sum.bytes, sum.crc));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((length, copy(&mut file, &mut io::sink(), length, 0)?))
}

/// SHA-256 of the image at `path`, in hex; of a directory over its stream ([`tree`]).
pub fn digest(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    if fs::metadata(path)?.is_dir() {
        tree::send(path, &mut hasher)?;
    } else {
        io::copy(&mut File::open(path)?, &mut hasher)?;
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Copies exactly `length` bytes; returns their CRC-32C, continued from `crc`.
pub fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    length: u64,
    mut crc: u32,
) -> io::Result<u32> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = length;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let got = from.read(&mut chunk[..want])?;
        if got == 0 {
            return Err(io::Error::other(format!("{left} bytes are missing")));
        }
        crc = crc32c::crc32c_append(crc, &chunk[..got]);
        to.write_all(&chunk[..got])?;
        left -= got as u64;
    }
    Ok(crc)
}

/// Makes a rename in `dir` durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Deletes a set below `root`, if it exists.
pub fn drop_set(root: &Path, set: &SetId) {
    let dir = root.join(set.as_str());
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(dir = %dir.display(), %error, "a set cannot be deleted");
        }
        _ => {}
    }
}
