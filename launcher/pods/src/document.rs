//! Documents: the JSON files that the launcher keeps. A field `version` says which form one has; it
//! is left out in the first.
//!
//! Not responsible for: where they are, and how one replaces another.

use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Largest document in bytes: a specification of the job for each of its nodes.
pub const BYTES_MAX: u64 = 1 << 30;

/// What a document has in it: a struct.
pub trait Document: Serialize + DeserializeOwned {
    /// Of its form. Others are not read.
    const VERSION: u32 = FIRST;
}

/// The version of a document without this field.
const FIRST: u32 = 1;

#[derive(Serialize)]
struct Written<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(flatten)]
    document: &'a T,
}

#[derive(Deserialize)]
struct Form {
    version: Option<u32>,
}

/// The text of a document.
///
/// # Errors
/// It is larger than [`BYTES_MAX`].
pub fn encode<T: Document>(document: &T) -> io::Result<Vec<u8>> {
    let version = Some(T::VERSION).filter(|version| *version != FIRST);
    let text = serde_json::to_vec(&Written { version, document })?;
    check_length(text.len() as u64)?;
    Ok(text)
}

/// Reads a document.
///
/// # Errors
/// The system's, or it is too large, of another version, or malformed.
pub fn decode<T: Document>(file: File) -> io::Result<T> {
    let mut text = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    check_length(text.len() as u64)?;
    let Form { version } = serde_json::from_slice(&text)?;
    let (version, known) = (version.unwrap_or(FIRST), T::VERSION);
    if version != known {
        let problem = format!("it has version {version}, and this release reads version {known}");
        return Err(io::Error::other(problem));
    }
    Ok(serde_json::from_slice(&text)?)
}

/// Opens a regular file. A symbolic link is not followed, and a pipe does not block.
///
/// # Errors
/// The system's, or it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

fn check_length(bytes: u64) -> io::Result<()> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Old {
        ranks: Vec<u32>,
    }

    impl Document for Old {}

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct New {
        ranks: Vec<u32>,
    }

    impl Document for New {
        const VERSION: u32 = 2;
    }

    #[test]
    fn a_document_is_read_by_releases_that_know_its_version_and_refused_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set.json");
        let read = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            (decode::<Old>(open(&path).unwrap()), decode::<New>(open(&path).unwrap()))
        };
        let old = encode(&Old { ranks: vec![1, 2] }).unwrap();
        assert_eq!(old, b"{\"ranks\":[1,2]}");
        let (same, newer) = read(&old);
        assert_eq!(same.unwrap(), Old { ranks: vec![1, 2] });
        let error = newer.unwrap_err().to_string();
        assert_eq!(error, "it has version 1, and this release reads version 2");
        let new = encode(&New { ranks: vec![3] }).unwrap();
        let (older, same) = read(&new);
        assert!(older.unwrap_err().to_string().contains("it has version 2"));
        assert_eq!(same.unwrap(), New { ranks: vec![3] });
        for torn in [&new[..new.len() - 1], b"", b"{\"version\":2}", b"[]"] {
            assert!(read(torn).1.is_err(), "{torn:?}");
        }
    }

    #[test]
    fn neither_a_link_nor_a_pipe_nor_a_document_without_end_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("set.json"), dir.path().join("link"));
        fs::write(&file, "{\"ranks\":[]}").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open(&link).is_err());
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open(&pipe).unwrap_err().to_string().contains("no regular file"));
        decode::<Old>(open(&file).unwrap()).unwrap();
        check_length(BYTES_MAX).unwrap();
        check_length(BYTES_MAX + 1).unwrap_err();
    }
}
