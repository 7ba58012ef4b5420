//! Detects a library by which a program saves itself: by the marks that ftb-job
//! (`ftb_job::MARK`) and `ftb_job.h` leave in every program, in Python by the words that import
//! `ftb.job`.
//!
//! It reads the program, the files that its command line names, and the files that scripts among
//! them name. Libraries loaded at run time are not seen.

use ftb_launcher_pods::backend::auto::Library;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The mark of ftb-job. Part of the launcher's protocol.
const MARK: &[u8] = b"ftb-job.mark.5e2b7c41d0a9f386";
/// The mark of `ftb_job.h`, as long as that of ftb-job.
const LOOP_MARK: &[u8] = b"ftb-job.mark.a1c7d25e90f3b864";
/// How a Python program imports `ftb.job`.
const IMPORTS: [&str; 3] = ["from ftb import job", "import ftb.job", "from ftb.job import"];
/// Most files that are read.
const FILES_MAX: usize = 32;
/// Most bytes read of one file.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a script that are searched for names of files.
const SCRIPT_BYTES_MAX: usize = 64 * 1024;
const CHUNK_BYTES: usize = 1 << 20;

/// The library of the program that a command line runs. `path`: the ranks' `PATH`; `cwd`: their
/// directory.
pub fn library_of(argv: &[String], path: &str, cwd: &Path) -> Library {
    let mut todo: Vec<PathBuf> = argv.iter().flat_map(|word| files_in(word, path, cwd)).collect();
    todo.reverse();
    let mut seen = BTreeSet::new();
    while let Some(file) = todo.pop() {
        if seen.len() >= FILES_MAX {
            return Library::Neither;
        }
        if !seen.insert(file.clone()) {
            continue;
        }
        match look(&file) {
            ScanResult::Marked(library) => return library,
            ScanResult::Script(text) => todo.extend(files_in(&text, path, cwd)),
            ScanResult::Other => {}
        }
    }
    Library::Neither
}

enum ScanResult {
    Marked(Library),
    Script(String),
    Other,
}

/// The library whose mark is in these bytes.
fn mark_in(bytes: &[u8]) -> Option<Library> {
    bytes.windows(MARK.len()).filter(|part| part.starts_with(b"ftb-")).find_map(|part| match part {
        MARK => Some(Library::Job),
        LOOP_MARK => Some(Library::Loop),
        _ => None,
    })
}

/// Reads a file to its end or to a mark. An unreadable file has none.
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
        if let Some(library) = mark_in(&window) {
            return ScanResult::Marked(library);
        }
        let head = &window[..window.len().min(SCRIPT_BYTES_MAX)];
        if first && !head.contains(&0) {
            let text = String::from_utf8_lossy(head);
            if IMPORTS.iter().any(|words| text.contains(words)) {
                return ScanResult::Marked(Library::Loop);
            }
            if text.starts_with("#!") {
                return ScanResult::Script(text.into_owned());
            }
        }
        // A mark may span two chunks.
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

    fn library(dir: &Path, words: &[&str]) -> Library {
        let argv: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        library_of(&argv, &dir.display().to_string(), dir)
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
            assert_eq!(library(dir.path(), words), Library::Job, "{words:?}");
        }
        for words in [&["plain"][..], &["./other"], &["nothing"], &["sh", "-c", "./plain"], &[]] {
            assert_eq!(library(dir.path(), words), Library::Neither, "{words:?}");
        }
    }

    #[test]
    fn a_program_with_the_c_header_or_the_python_module_is_one_with_a_loop() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("binary", &[&[0xff_u8; 70][..], LOOP_MARK, &[0; 70]].concat()[..]),
            ("train.py", b"import os\nfrom ftb import job\n"),
            ("script.py", b"#!/usr/bin/env python3\nimport ftb.job\n"),
            ("other.py", b"from ftb.job import loop, protect\n"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
            assert_eq!(library(dir.path(), &["python3", name]), Library::Loop, "{name}");
        }
        std::fs::write(dir.path().join("watch.py"), "import ftb\n").unwrap();
        assert_eq!(library(dir.path(), &["python3", "watch.py"]), Library::Neither);
    }

    #[test]
    fn the_libraries_have_the_marks_that_are_looked_for() {
        assert_eq!(ftb_job::MARK, MARK);
        let header = include_bytes!("../job/capi/include/ftb_job.h");
        assert_eq!(mark_in(header), Some(Library::Loop));
    }
}
