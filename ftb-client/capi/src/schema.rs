//! Schema files: words between `start` and `end`.
//!
//! ```text
//! start
//! FTB.FTB_EXAMPLES.WATCHDOG     # must be the client's own event space
//! WATCH_DOG_EVENT  info
//! end
//! ```
//!
//! Responsible for: reading such a file without waiting for anything, and its structure. What a
//! good name is, is [`crate::declared`]'s.

use crate::abi::Code;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Largest schema file, in bytes: thousand times what a hundred events need.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// An event as the file has it: name and severity, both unchecked.
pub(crate) type Words<'a> = (&'a [u8], &'a [u8]);

/// The bytes of a regular file. A pipe or a device is refused, not waited for.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Code> {
    let bad = |_| Code::InvalidSchemaFile;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(bad)?;
    if !file.metadata().map_err(bad)?.is_file() {
        return Err(Code::InvalidSchemaFile);
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(bad)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Code::InvalidSchemaFile);
    }
    Ok(bytes)
}

/// The events that a file declares, and whether words stood before the first `start`. `space` is
/// the event space that every block must be about.
pub(crate) fn parse<'a>(bytes: &'a [u8], space: &str) -> Result<(Vec<Words<'a>>, bool), Code> {
    let mut events = Vec::new();
    let mut skipped = false;
    let mut blocks = 0;
    let mut words = words(bytes);
    while let Some(word) = words.next() {
        if word != b"start" {
            skipped |= blocks == 0;
            continue;
        }
        let declared = words.next().ok_or(Code::InvalidSchemaFile)?;
        if !declared.eq_ignore_ascii_case(space.as_bytes()) {
            return Err(Code::InvalidSchemaFile);
        }
        loop {
            let name = words.next().ok_or(Code::InvalidSchemaFile)?;
            if name == b"end" {
                break;
            }
            events.push((name, words.next().ok_or(Code::InvalidSchemaFile)?));
        }
        blocks += 1;
    }
    if blocks == 0 { Err(Code::InvalidSchemaFile) } else { Ok((events, skipped)) }
}

/// The words of all lines, up to `#` in each.
fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.flat_map(|line| {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: &str = "FTB.X.Y";

    fn names(text: &str) -> Result<Vec<String>, Code> {
        let (events, _) = parse(text.as_bytes(), SPACE)?;
        let text = |(name, severity): &Words<'_>| {
            format!("{}:{}", String::from_utf8_lossy(name), String::from_utf8_lossy(severity))
        };
        Ok(events.iter().map(text).collect())
    }

    #[test]
    fn blocks_comments_and_words_before_them() {
        let text =
            "# my events\nstart\nftb.x.y\nA info # one\nB\nfatal end\nstart FTB.X.Y C all end";
        assert_eq!(names(text), Ok(vec!["A:info".into(), "B:fatal".into(), "C:all".into()]));
        assert_eq!(names("start FTB.X.Y end"), Ok(vec![]));
        let (_, skipped) = parse(b"hello start FTB.X.Y end", SPACE).unwrap_or_default();
        assert!(skipped);
    }

    #[test]
    fn what_is_no_schema_file_is_refused() {
        for bad in [
            "",
            "# only",
            "A info",
            "start",
            "start FTB.X.Y",
            "start FTB.X.Y A",
            "START x",
            "start FTB.X.Y A info",
            "start FTB.X.Z A info end",
            "start FTB.X.Y A info END",
        ] {
            assert_eq!(names(bad), Err(Code::InvalidSchemaFile), "{bad:?}");
        }
        for path in ["/nonexistent/schema", "/", "/dev/zero"] {
            assert_eq!(read(Path::new(path)), Err(Code::InvalidSchemaFile), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let _ = parse(&bytes, SPACE);
        }
    }
}
