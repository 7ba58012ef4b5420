//! What survives the bridge: the conditions in spite of which people have resumed hosts.
//!
//! One JSON file, replaced as a whole. Not responsible for: what it means ([`crate::bridge`]).

use crate::bridge::ACCEPTED_MAX;
use ftb_core::condition::Subject;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file.
const FILE: &str = "accepted.json";
/// Most bytes of the file that are read.
const BYTES_MAX: u64 = 64 << 20;

/// The file, and what it has.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    saved: BTreeMap<Subject, u64>,
}

impl Store {
    /// Reads the file of a folder. Without one nothing is accepted.
    ///
    /// # Errors
    /// It cannot be read, or is none of ours: the place and the problem.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join(FILE);
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let read = || {
            use std::io::Read as _;
            let mut text = String::new();
            std::fs::File::open(&path)?.take(BYTES_MAX).read_to_string(&mut text)?;
            Ok(text)
        };
        let rows: Vec<(String, String, String, u64)> = match read() {
            Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(wrong(&error)),
            Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(&error))?,
        };
        let rows = rows.into_iter().take(ACCEPTED_MAX);
        let saved = rows.map(|(host, component, key, onset_ns)| {
            (Subject::new(&host, &component, &key), onset_ns)
        });
        Ok(Self { folder: folder.to_owned(), saved: saved.collect() })
    }

    /// One that has nothing.
    pub fn empty(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), saved: BTreeMap::new() }
    }

    /// What the file has.
    pub fn saved(&self) -> &BTreeMap<Subject, u64> {
        &self.saved
    }

    /// Writes the file, if it has something else.
    ///
    /// # Errors
    /// The place and the problem. The file has what it had.
    pub fn save(&mut self, accepted: &BTreeMap<Subject, u64>) -> Result<(), String> {
        if *accepted == self.saved {
            return Ok(());
        }
        let rows: Vec<_> = accepted
            .iter()
            .map(|(subject, onset_ns)| {
                (subject.host(), subject.component(), subject.key(), onset_ns)
            })
            .collect();
        let written = serde_json::to_vec(&rows).map_err(io::Error::from);
        let written = written.and_then(|text| ftb_cli::files::replace(&self.folder, FILE, &text));
        written.map_err(|error| format!("{}: {error}", self.folder.join(FILE).display()))?;
        self.saved.clone_from(accepted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_saved_is_there_again_and_another_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let accepted = BTreeMap::from([(Subject::new("node07", "FAN 1", "FANFAIL"), 5)]);
        store.save(&accepted).unwrap();
        assert_eq!(Store::open(folder.path()).unwrap().saved(), &accepted);
        std::fs::write(folder.path().join(FILE), "[1]").unwrap();
        store.save(&accepted).unwrap();
        let problem = Store::open(folder.path()).unwrap_err();
        assert!(problem.contains("accepted.json: "), "{problem}");
        let mut nowhere = Store::empty(&folder.path().join("none"));
        assert!(nowhere.save(&accepted).is_err() && nowhere.saved().is_empty());
    }
}
