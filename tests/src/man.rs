//! Man pages of programs and shell completions are made from the same definitions as the help. They
//! are kept in `deploy/man` and `deploy/completions`: an installation needs neither the programs to
//! run nor a generator.

use crate::roff::{escape, unescape};
use clap_complete::Shell;
pub use ftb_fuzz::kept::assert_file_is_current;
use std::fs;
use std::path::Path;

/// Compares the pages of a command and of its subcommands (`name-subcommand`) in `deploy/man`, and
/// its completions in `deploy/completions`, with their definition; with `FTB_BLESS=1` in the
/// environment they are written instead.
///
/// # Panics
/// They differ, or a page cannot be read or written, or there is one of a subcommand that is gone.
#[track_caller]
pub fn assert_page_is_current(command: clap::Command, section: &str) {
    let name = command.get_name().to_owned();
    assert_completions_are_current(&command);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/man");
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(command, section, &mut pages);
    for (file, page) in &pages {
        assert_file_is_current(folder.join(file), page);
    }
    for file in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{error}")).flatten() {
        let file = file.file_name().to_string_lossy().into_owned();
        let ours = file.starts_with(&format!("{name}.")) || file.starts_with(&format!("{name}-"));
        let ours = ours && file.ends_with(&format!(".{section}"));
        let known = pages.iter().any(|(page, _)| *page == file);
        assert!(!ours || known, "deploy/man/{file}: {name} has no such subcommand any more");
    }
}

/// The completions of a command for each shell, under the names by which the shells find them.
#[track_caller]
fn assert_completions_are_current(command: &clap::Command) {
    let name = command.get_name().to_owned();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/completions");
    for (shell, file) in [
        (Shell::Bash, format!("bash/{name}")),
        (Shell::Zsh, format!("zsh/_{name}")),
        (Shell::Fish, format!("fish/{name}.fish")),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), &name, &mut text);
        assert_file_is_current(folder.join(file), &text);
    }
}

/// Where the examples begin in the text that `--help` shows behind the options.
const EXAMPLES: &str = "Examples:\n";
/// Where they begin and end in a man page.
const PAGE_EXAMPLES: (&str, &str) = (".SH EXAMPLES\n.nf\n", ".fi\n");

fn render(command: clap::Command, section: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        render(below.clone(), section, pages);
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let examples = examples_of(&name, &command);
    let mut page = Vec::new();
    // Man pages have a section for them.
    clap_mangen::Man::new(command.after_long_help(None))
        .section(section)
        .render(&mut page)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    page.extend(examples.into_bytes());
    pages.push((format!("{name}.{section}"), page));
}

/// The section of examples of a page, from what `--help` shows behind the options: what `-h` shows
/// there too, then the examples. Empty if there are none.
fn examples_of(name: &str, command: &clap::Command) -> String {
    let Some(long) = command.get_after_long_help() else { return String::new() };
    let short = command.get_after_help().map_or_else(String::new, |text| format!("{text}\n\n"));
    let lines = long.to_string().strip_prefix(&(short + EXAMPLES)).map(str::to_owned);
    let lines = lines.unwrap_or_else(|| panic!("{name}: --help does not end with -h and examples"));
    let line = |line: &str| {
        let line = line.strip_prefix("  ").unwrap_or_else(|| panic!("{name}: indent {line:?}"));
        escape(line) + "\n"
    };
    let lines: String = lines.lines().map(line).collect();
    format!("{}{lines}{}", PAGE_EXAMPLES.0, PAGE_EXAMPLES.1)
}

/// The examples of the man pages of commands, by the name of the page. The tests of the programs
/// compare the pages with `--help`.
///
/// # Panics
/// A page cannot be read.
pub fn examples() -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/man");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{error}")).flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some((name, "1" | "8")) = file.rsplit_once('.') else { continue };
        let page = fs::read_to_string(entry.path()).unwrap_or_else(|e| panic!("{file}: {e}"));
        let lines = page.split_once(PAGE_EXAMPLES.0).and_then(|(_, rest)| {
            let lines = rest.strip_suffix(PAGE_EXAMPLES.1)?;
            Some(lines.lines().map(unescape).collect())
        });
        found.push((name.to_owned(), lines.unwrap_or_default()));
    }
    found.sort();
    found
}
