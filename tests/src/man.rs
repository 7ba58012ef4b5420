//! Man pages are made from the same definitions as the help, and kept in `deploy/man`, so that an
//! installation needs neither the programs to run nor a generator.

use std::fs;
use std::path::Path;

/// Compares the page of a command in `deploy/man` with its definition; with `FTB_BLESS=1` in the
/// environment it is written instead.
///
/// # Panics
/// They differ, or the page cannot be read or written.
#[track_caller]
pub fn assert_page_is_current(command: clap::Command, section: &str) {
    let name = command.get_name().to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .section(section)
        .render(&mut page)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../deploy/man/{name}.{section}"));
    if std::env::var_os("FTB_BLESS").is_some() {
        fs::write(&path, &page).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let kept = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(kept == page, "deploy/man/{name}.{section} is not that of this {name}: FTB_BLESS=1");
}
