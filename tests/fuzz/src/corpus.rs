//! Kept inputs: one file for each target, one input a line, as a Rust string literal without its
//! quotes. Lines that begin with `#` are comments. Readable in a review, and few files.

use crate::INPUT_BYTES_MAX;
use std::path::{Path, PathBuf};

/// Most bytes of one kept input, and of all of a target.
pub(crate) const KEPT_INPUT_BYTES_MAX: usize = 1024;
pub(crate) const KEPT_BYTES_MAX: usize = 12 * 1024;

/// A path of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The file with the kept inputs of a target.
pub fn path(target: &str) -> PathBuf {
    repository(&format!("tests/fuzz/corpus/{target}.txt"))
}

/// The kept inputs of a target; none without its file.
///
/// # Panics
/// A line is no input.
pub fn read(target: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(path(target)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| bytes(line).unwrap_or_else(|| panic!("{target}: {line}"))).collect()
}

/// The content of the files of a folder of the repository with this extension, in order.
pub(crate) fn files(folder: &str, extension: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(repository(folder)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    let contents = paths.into_iter().filter_map(|path| std::fs::read(path).ok());
    contents.filter(|content| content.len() <= INPUT_BYTES_MAX).collect()
}

/// Keeps the seeds of a target, the shortest first; of long texts the first lines that are neither
/// empty nor a comment.
#[cfg_attr(feature = "libfuzzer", allow(dead_code, reason = "libFuzzer keeps what it finds"))]
pub(crate) fn begin(target: &str, seeds: &[Vec<u8>]) {
    let mut inputs: Vec<Vec<u8>> = seeds.iter().map(|seed| beginning(seed)).collect();
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    inputs.dedup();
    let mut bytes = 0;
    inputs.retain(|input| {
        bytes += input.len();
        bytes <= KEPT_BYTES_MAX
    });
    let lines: String = inputs.iter().map(|input| line(input) + "\n").collect();
    let path = path(target);
    std::fs::write(&path, lines).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// What of a seed is kept.
fn beginning(seed: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for line in seed.split_inclusive(|byte| *byte == b'\n') {
        let is_short = seed.len() <= KEPT_INPUT_BYTES_MAX;
        let is_kept = is_short || !matches!(line.first(), None | Some(b'#' | b'\n'));
        if is_kept && kept.len() + line.len() <= KEPT_INPUT_BYTES_MAX {
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// An input as a line.
pub fn line(input: &[u8]) -> String {
    let line = input.escape_ascii().to_string();
    match line.strip_prefix('#') {
        // It would be a comment.
        Some(rest) => format!("\\x23{rest}"),
        None => line,
    }
}

/// The input of a line.
fn bytes(line: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), line.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, more) = rest.split_first()?;
        rest = more;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let (digits, more) = rest.split_at_checked(2)?;
                rest = more;
                u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_line_is_read_or_refused_and_each_input_survives_its_line() {
        let seeds = ["severity=info", "\\x00\\n\\\\", "# a comment"];
        crate::Target::new("corpus").seeds(seeds).check(|input| {
            assert_eq!(bytes(&line(input)).as_deref(), Some(input));
            let _ = str::from_utf8(input).ok().and_then(bytes);
        });
    }

    #[test]
    fn every_byte_survives_its_line() {
        let all: Vec<u8> = (0..=255).collect();
        for input in [&all[..], b"# no comment", b"", b"\\x41\"'"] {
            let line = line(input);
            assert!(!line.contains('\n') && !line.starts_with('#'), "{line}");
            assert_eq!(bytes(&line).as_deref(), Some(input));
        }
        assert_eq!(bytes("\\x4"), None);
    }
}
