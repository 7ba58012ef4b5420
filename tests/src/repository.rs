//! The files of the repository, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// The top folder.
///
/// # Panics
/// Never: this crate lies below it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it has a parent").to_owned()
}

/// The text of a file, by its path from the top folder.
///
/// # Panics
/// It cannot be read.
#[track_caller]
pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder, by their paths from it, in order.
///
/// # Panics
/// A folder cannot be read.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    walk(folder, |_| true)
}

/// The files with one of these extensions, without those of builds and of hidden folders.
///
/// # Panics
/// A folder cannot be read.
pub fn sources(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = walk(folder, |name| name != "target" && !name.starts_with('.'));
    found.retain(|path| {
        path.extension().is_some_and(|e| extensions.contains(&&*e.to_string_lossy()))
    });
    found
}

fn walk(top: &Path, enters: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder);
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.expect("a folder can be read").path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !path.is_dir() {
                found.push(path.strip_prefix(top).unwrap_or(&path).to_owned());
            } else if enters(&name) {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}
