//! Man pages of programs and shell completions are made from the same definitions as the help. They
//! are kept in `deploy/man` and `deploy/completions`: an installation needs neither the programs to
//! run nor a generator.

mod examples;

pub use examples::EXAMPLES;

use crate::roff::escape;
use clap_complete::Shell;
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
        assert_file_is_current(&folder.join(file), page);
    }
    for file in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{error}")).flatten() {
        let file = file.file_name().to_string_lossy().into_owned();
        let ours = file.starts_with(&format!("{name}.")) || file.starts_with(&format!("{name}-"));
        let ours = ours && file.ends_with(&format!(".{section}"));
        let known = pages.iter().any(|(page, _)| *page == file);
        assert!(!ours || known, "deploy/man/{file}: {name} has no such subcommand any more");
    }
}

/// Compares a generated file with its kept text; with `FTB_BLESS=1` it is written instead.
///
/// # Panics
/// They differ, or the file cannot be read or written.
#[track_caller]
pub fn assert_file_is_current(path: &Path, text: &[u8]) {
    let shown = path.display();
    if std::env::var_os("FTB_BLESS").is_some() {
        fs::write(path, text).unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
    let kept = fs::read(path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert!(kept == text, "{shown} is not that of this program: FTB_BLESS=1 writes it");
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
        assert_file_is_current(&folder.join(file), &text);
    }
}

fn render(command: clap::Command, section: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        render(below.clone(), section, pages);
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .section(section)
        .render(&mut page)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    page.extend(examples_of(&name).into_bytes());
    pages.push((format!("{name}.{section}"), page));
}

/// The section of examples of a page; empty if it has none.
fn examples_of(page: &str) -> String {
    let examples = EXAMPLES.iter().find(|(name, _)| *name == page);
    let lines = examples.map(|(_, lines)| lines.iter().map(|line| escape(line) + "\n").collect());
    lines.map_or_else(String::new, |lines: String| format!(".SH EXAMPLES\n.nf\n{lines}.fi\n"))
}
