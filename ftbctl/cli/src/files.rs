//! Files that are replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file of a folder, and gives it, open behind its last byte. A reader, also after a
/// power failure, finds all of the old bytes or all of the new ones; when this returns, the new
/// ones. They are written to `NAME.new` before.
///
/// # Errors
/// The folder or the disk. Then the old file is still in place, or the new one may not be synced.
pub fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<File> {
    let (path, beside) = (folder.join(name), folder.join(format!("{name}.new")));
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    // Before the rename: behind it, an error would leave the caller with a file without a name.
    let parent = File::open(folder)?;
    fs::rename(&beside, &path)?;
    parent.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_that_is_replaced_is_there_whole_and_none_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let read = || fs::read_to_string(folder.path().join("state")).unwrap();
        replace(folder.path(), "state", b"a long first text").unwrap();
        let mut file = replace(folder.path(), "state", b"second").unwrap();
        assert_eq!(read(), "second");
        file.write_all(b", and more").unwrap();
        assert_eq!(read(), "second, and more");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // What an attempt has left that was cut off does not matter, and a failure changes nothing.
        fs::create_dir(folder.path().join("state.new")).unwrap();
        assert!(replace(folder.path(), "state", b"third").is_err());
        assert_eq!(read(), "second, and more");
    }
}
