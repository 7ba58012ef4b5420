//! Files that a test renders: pages, tables, golden files.

use std::fs;
use std::path::Path;

/// Set: files of which the tests render another text are written.
const BLESS_ENV: &str = "FTB_BLESS";

/// Whether this run writes files instead of comparing them.
pub fn is_blessing() -> bool {
    std::env::var_os(BLESS_ENV).is_some()
}

/// Compares a rendered file with its kept text; with `FTB_BLESS=1` it is written before.
///
/// # Panics
/// They differ, or the file cannot be read or written.
#[track_caller]
pub fn assert_file_is_current(path: impl AsRef<Path>, rendered: impl AsRef<[u8]>) {
    let (path, rendered) = (path.as_ref(), rendered.as_ref());
    let shown = path.display();
    if is_blessing() {
        fs::write(path, rendered).unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
    let kept = fs::read(path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    if kept != rendered {
        let difference = difference(&kept, rendered);
        panic!("{shown} is not what this test renders, FTB_BLESS=1 writes it: {difference}");
    }
}

/// The first line in which two texts differ.
fn difference(kept: &[u8], rendered: &[u8]) -> String {
    let lines = |text: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
    };
    let (kept, rendered) = (lines(kept), lines(rendered));
    let same = kept.iter().zip(&rendered).take_while(|(kept, rendered)| kept == rendered).count();
    let (kept, rendered) = (kept.get(same), rendered.get(same));
    format!("line {}: kept {kept:?}, rendered {rendered:?}", same + 1)
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_is_named_by_its_first_line() {
        let found = difference(b"a\nb\nc", b"a\nx\nc");
        assert_eq!(found, "line 2: kept Some(\"b\"), rendered Some(\"x\")");
        assert_eq!(difference(b"a\n", b"a\nb\n"), "line 2: kept None, rendered Some(\"b\")");
    }
}
