//! Whether a program contains ftb-job, found by the mark that the library leaves in every program
//! that links it (`ftb_job::MARK`).
//!
//! Looks at the program, at each file that its command line names, and at each file that a script
//! among them names. What a program loads at run time is not seen.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The mark. Part of the launcher's protocol.
const MARK: &[u8] = b"ftb-job.mark.5e2b7c41d0a9f386";
/// Most files that are looked at.
const FILES_MAX: usize = 32;
/// Most bytes of one file that are looked at.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a script in which names of files are looked for.
const SCRIPT_BYTES_MAX: usize = 64 * 1024;
/// Read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Whether a command line runs a program that contains ftb-job. `path`: the ranks' `PATH`; `cwd`:
/// their directory.
pub fn links_ftb_job(argv: &[String], path: &str, cwd: &Path) -> bool {
    let mut todo: Vec<PathBuf> = argv.iter().flat_map(|word| files_in(word, path, cwd)).collect();
    todo.reverse();
    let mut seen = BTreeSet::new();
    while let Some(file) = todo.pop() {
        if seen.len() >= FILES_MAX {
            return false;
        }
        if !seen.insert(file.clone()) {
            continue;
        }
        match look(&file) {
            Look::Marked => return true,
            Look::Script(text) => todo.extend(files_in(&text, path, cwd)),
            Look::Other => {}
        }
    }
    false
}

enum Look {
    Marked,
    Script(String),
    Other,
}

/// Reads a file to its end, or to the mark. A file that cannot be read has none.
fn look(file: &Path) -> Look {
    let Ok(file) = File::open(file) else {
        return Look::Other;
    };
    let mut file = file.take(FILE_BYTES_MAX);
    let (mut window, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        let got = match file.read(&mut chunk) {
            Ok(0) | Err(_) => return Look::Other,
            Ok(got) => &chunk[..got],
        };
        let first = window.is_empty();
        window.extend_from_slice(got);
        if first && window.starts_with(b"#!") {
            let text = &window[..window.len().min(SCRIPT_BYTES_MAX)];
            return Look::Script(String::from_utf8_lossy(text).into_owned());
        }
        if window.windows(MARK.len()).any(|part| part == MARK) {
            return Look::Marked;
        }
        // The mark may lie across two chunks.
        window.drain(..window.len().saturating_sub(MARK.len()));
    }
}

/// The regular files that a text names: its words, without the quotes and separators of a shell.
fn files_in(text: &str, path: &str, cwd: &Path) -> Vec<PathBuf> {
    let is_edge = |c: char| c.is_whitespace() || "'\"`;|&()<>$={}".contains(c);
    let words = text.split(is_edge).filter(|word| !word.is_empty());
    words.filter_map(|word| file_of(word, path, cwd)).take(FILES_MAX).collect()
}

fn file_of(word: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(cwd.join(word)).filter(|file| file.is_file());
    }
    std::env::split_paths(path).map(|dir| dir.join(word)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn links(dir: &Path, words: &[&str]) -> bool {
        let argv: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        links_ftb_job(&argv, &dir.display().to_string(), dir)
    }

    #[test]
    fn the_mark_is_found_in_the_program_and_behind_wrappers() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        let mut marked = vec![0; CHUNK_BYTES - 5];
        marked.extend(MARK);
        file("marked", &marked);
        file("plain", &[&MARK[..MARK.len() - 1], &vec![7; 2 * CHUNK_BYTES]].concat());
        file("wrapper", b"#!/bin/sh\nexec \"./marked\" --steps 3\n");
        file("other", b"#!/bin/sh\nexec ./plain # not that one\n");
        for words in [
            &["marked"][..],
            &["./marked", "10"],
            &["sh", "-c", "sleep 1; exec ./marked"],
            &["./wrapper"],
            &["plain", "--", "marked"],
        ] {
            assert!(links(dir.path(), words), "{words:?}");
        }
        for words in [&["plain"][..], &["./other"], &["nothing"], &["sh", "-c", "./plain"], &[]] {
            assert!(!links(dir.path(), words), "{words:?}");
        }
    }

    #[test]
    fn the_library_has_the_mark_that_is_looked_for() {
        assert_eq!(ftb_job::MARK, MARK);
    }
}
