//! What ftb-act has done, on disk: a journal of changes, synced before anything is done.
//!
//! `DIR/state` has the whole state as its first line, and a change in each further one. Each line
//! begins with its number: a reader sees a missing one. A last line that was cut off by a crash
//! does not count. Behind [`LINES_MAX`] changes, the file is written anew beside, synced and
//! renamed.
//!
//! Not responsible for: what the changes mean ([`crate::act`]).

use crate::act::{Delta, Saved};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Most changes before the state is written anew.
pub const LINES_MAX: u64 = 10_000;
/// The name of the file.
const FILE: &str = "state";

/// One line: its number, and the state or a change.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    n: u64,
    v: T,
}

/// The state on disk, open for changes: no other process has it open.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    file: File,
    /// Bytes that are known to be good.
    length: u64,
    /// The number of the last line.
    revision: u64,
    /// Held until the end.
    _lock: Flock<File>,
}

impl Store {
    /// Opens the state in a folder, which is made if there is none. `life` is that of a new state.
    ///
    /// # Errors
    /// It cannot be read or written, another process has it open, or a line makes no sense.
    pub fn open(folder: &Path, life: u64) -> io::Result<(Self, Saved)> {
        fs::create_dir_all(folder)?;
        let lock = OpenOptions::new().create(true).append(true).open(folder.join("lock"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
            io::Error::other(format!("{}: {error}: does ftb-act run?", folder.display()))
        })?;
        let saved = read(folder)?.unwrap_or_else(|| Saved { life, ..Saved::default() });
        let (file, length) = write_anew(folder, &saved)?;
        let folder = folder.to_owned();
        Ok((Self { folder, file, length, revision: 0, _lock: lock }, saved))
    }

    /// Appends changes and syncs them. After an error nothing of them counts.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn append(&mut self, deltas: &[Delta]) -> io::Result<()> {
        if deltas.is_empty() {
            return Ok(());
        }
        // What a failed attempt has left.
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        let mut bytes = Vec::new();
        for (n, delta) in (self.revision + 1..).zip(deltas) {
            serde_json::to_writer(&mut bytes, &Line { n, v: delta })?;
            bytes.push(b'\n');
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        self.revision += deltas.len() as u64;
        if self.revision < LINES_MAX {
            return Ok(());
        }
        // The changes are safe: a file that cannot be made shorter now is so later.
        if let Ok(Some(saved)) = read(&self.folder)
            && let Ok((file, length)) = write_anew(&self.folder, &saved)
        {
            (self.file, self.length, self.revision) = (file, length, 0);
        }
        Ok(())
    }
}

/// Reads the state; `None`: there is none.
///
/// # Errors
/// It cannot be read, or a line makes no sense.
pub fn read(folder: &Path) -> io::Result<Option<Saved>> {
    let path = folder.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(&path, &error)),
    };
    let wrong =
        |n: u64, why: &dyn std::fmt::Display| named(&path, &format!("line {}: {why}", n + 1));
    let mut reader = BufReader::new(file);
    let mut text = String::new();
    let mut saved: Option<Saved> = None;
    for n in 0_u64.. {
        text.clear();
        reader.read_line(&mut text)?;
        if !text.ends_with('\n') {
            break;
        }
        let number = match &mut saved {
            None => {
                let line: Line<Saved> =
                    serde_json::from_str(&text).map_err(|error| wrong(n, &error))?;
                saved = Some(line.v);
                line.n
            }
            Some(saved) => {
                let line: Line<Delta> =
                    serde_json::from_str(&text).map_err(|error| wrong(n, &error))?;
                saved.apply(line.v);
                line.n
            }
        };
        if number != n {
            return Err(wrong(n, &format!("it has the number {number}")));
        }
    }
    Ok(saved)
}

fn named(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

/// Writes the whole state to a new file, which takes the place of the old one.
fn write_anew(folder: &Path, saved: &Saved) -> io::Result<(File, u64)> {
    let mut bytes = serde_json::to_vec(&Line { n: 0, v: saved })?;
    bytes.push(b'\n');
    let file = ftb_cli::files::replace(folder, FILE, &bytes)?;
    Ok((file, bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::act::BreakerState;

    fn breaker(reason: &str) -> Delta {
        let reason = reason.to_owned();
        Delta::Breaker(BreakerState { is_open: true, is_confirmed: false, reason })
    }

    #[test]
    fn changes_are_there_again_and_a_line_that_was_cut_off_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, saved) = Store::open(folder.path(), 7).unwrap();
        assert_eq!(saved, Saved { life: 7, ..Saved::default() });
        assert!(Store::open(folder.path(), 8).is_err(), "another process has it");
        store.append(&[breaker("a"), breaker("b")]).unwrap();
        drop(store);
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        for (cut, reason) in [(0, "b"), (1, "a"), (10, "a")] {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let found = read(folder.path()).unwrap().unwrap();
            assert_eq!((found.life, &found.breaker.reason[..]), (7, reason), "{cut}");
        }
        let text = String::from_utf8(whole).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(&path, format!("{}\n{}\n", lines[0], lines[2])).unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 2: it has the number 2"), "{error}");
    }

    #[test]
    fn a_long_file_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(folder.path(), 7).unwrap();
        let many: Vec<Delta> = (0..LINES_MAX).map(|n| breaker(&n.to_string())).collect();
        store.append(&many).unwrap();
        store.append(&[breaker("last")]).unwrap();
        let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert_eq!(read(folder.path()).unwrap().unwrap().breaker.reason, "last");
    }
}
