//! Detects ftb-job in a program by the mark that the library leaves in every program
//! (`ftb_job::MARK`).
//!
//! It reads the program, the files that its command line names, and the files that scripts among
//! them name. Libraries loaded at run time are not seen.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Part of the launcher's protocol.
const MARK: &[u8] = b"ftb-job.mark.5e2b7c41d0a9f386";
/// Most files that are read.
const FILES_MAX: usize = 32;
/// Most bytes read of one file.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a script that are searched for names of files.
const SCRIPT_BYTES_MAX: usize = 64 * 1024;
const CHUNK_BYTES: usize = 1 << 20;

/// Whether a command line runs a program with ftb-job. `path`: the ranks' `PATH`; `cwd`: their
/// directory.
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
            ScanResult::Marked => return true,
            ScanResult::Script(text) => todo.extend(files_in(&text, path, cwd)),
            ScanResult::Other => {}
        }
    }
    false
}

enum ScanResult {
    Marked,
    Script(String),
    Other,
}

/// Reads a file to its end or to the mark. An unreadable file has none.
fn look(file: &Path) -> ScanResult {
    let Ok(file) = File::open(file) else {
        return ScanResult::Other;
    };
    let mut file = file.take(FILE_BYTES_MAX);
    let (mut window, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        let got = match file.read(&mut chunk) {
            Ok(0) | Err(_) => return ScanResult::Other,
            Ok(got) => &chunk[..got],
        };
        let first = window.is_empty();
        window.extend_from_slice(got);
        if first && window.starts_with(b"#!") {
            let text = &window[..window.len().min(SCRIPT_BYTES_MAX)];
            return ScanResult::Script(String::from_utf8_lossy(text).into_owned());
        }
        if window.windows(MARK.len()).any(|part| part == MARK) {
            return ScanResult::Marked;
        }
        // The mark may span two chunks.
        window.drain(..window.len().saturating_sub(MARK.len()));
    }
}

/// The regular files that a text names, without quotes and separators of a shell.
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
