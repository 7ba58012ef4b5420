//! Man pages that belong to no single command line: section 5 is made from the samples of
//! `deploy/config`, section 7 from the catalogue of events and the pages of the documentation.
//! `FTB_BLESS=1` writes them. Also: the page of ftb-agent is that of this program.
#![allow(clippy::unwrap_used, missing_docs)]

mod config;
mod overview;

use clap::CommandFactory as _;
use ftb_agent::process::Args;
use ftb_tests::cluster::binary;
use ftb_tests::man::{assert_file_is_current, assert_page_is_current, examples};
use ftb_tests::repository::root;
use ftb_tests::skip::skip;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn folder() -> PathBuf {
    root().join("deploy/man")
}

/// The pages of sections 5 and 7: file name and text.
fn pages() -> Vec<(String, String)> {
    let mut pages = config::pages(&root());
    pages.push(("ftb.7".to_owned(), overview::ftb(&root())));
    pages.push(("ftb-events.7".to_owned(), overview::events()));
    pages
}

#[test]
fn the_man_page_says_the_same() {
    assert_page_is_current(Args::command(), "8");
}

#[test]
fn sections_5_and_7_are_made_from_samples_catalogue_and_pages() {
    let pages = pages();
    for (file, text) in &pages {
        assert_file_is_current(folder().join(file), text);
    }
    let made: BTreeSet<String> = pages.into_iter().map(|(file, _)| file).collect();
    let kept = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let kept = kept.map(|name| name.to_string_lossy().into_owned());
    let kept: BTreeSet<String> = kept.filter(|n| n.ends_with(".5") || n.ends_with(".7")).collect();
    assert_eq!(kept, made, "deploy/man has pages that nothing makes");
}

/// Pages of commands that people type, and so their `--help`. Launch agents start ftb-nla.
#[test]
fn every_page_of_a_command_has_examples_that_begin_with_it_or_feed_it() {
    let mut count = 0;
    for (page, lines) in examples() {
        let is_typed = !page.starts_with("ftb-nla");
        count += usize::from(is_typed);
        assert_eq!(!lines.is_empty(), is_typed, "{page}");
        let program = page.split('-').take(1 + usize::from(page.starts_with("ftb-")));
        let program = program.collect::<Vec<_>>().join("-");
        assert!(lines.is_empty() || lines.iter().any(|line| line.contains(&program)), "{page}");
    }
    assert!(count > 60, "only {count} pages");
}

/// Every page of every section is read by groff without a warning, and names what it sees also.
#[test]
fn groff_has_no_complaint_about_a_page() {
    if Command::new("groff").arg("--version").output().is_err() {
        return skip("groff is missing (apt-get install groff)");
    }
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let mut groff = Command::new("groff");
        let output = groff.args(["-man", "-ww", "-z", "-Kutf8"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", path.display());
    }
}

#[test]
fn wrong_usage_ends_every_program_with_the_same_exit_code() {
    let usage = i32::from(ftb_cli::USAGE);
    for (package, name) in [
        ("ftb-act", "ftb-act"),
        ("ftb-agent", "ftb-agent"),
        ("ftb-bridge", "ftb-bridge"),
        ("ftb-ib", "ftb-ib"),
        ("ftb-ipmi", "ftb-ipmi"),
        ("ftb-launcher", "ftb-launch"),
        ("ftb-launcher", "ftb-nla"),
        ("ftb-slurm", "ftb-slurm"),
        ("ftbctl", "ftbctl"),
    ] {
        let program = binary(package, name).unwrap();
        let code = |word: &str| Command::new(&program).arg(word).output().unwrap().status.code();
        assert_eq!((code("--no-such-option"), code("--help")), (Some(usage), Some(0)), "{name}");
    }
}

/// Older names still work, but no page shows them.
#[test]
fn every_program_has_the_same_option_and_variable_for_the_agents_socket() {
    let mut shown = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().replace("\\-", "-");
        for other in ["--agent\\fR", "--agent ", "--socket", "_AGENT_SOCKET"] {
            let text = text.replace("FTB_AGENT_SOCKET", "");
            assert!(!text.contains(other), "{}: {other}", path.display());
        }
        shown += usize::from(text.contains("--agent-socket\\fR"));
    }
    assert!(shown > 30, "only {shown} pages have the option");
}

#[test]
fn samples_have_one_style() {
    let mut found = Vec::new();
    let mut folders = vec![root().join("deploy/config")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let wrong = |line: &str, why| format!("{}: {line}: {why}", path.display());
            for line in text.lines() {
                let key = ftb_tests::samples::key_of(line);
                let is_comment = line == "#" || line.starts_with("# ");
                if line.starts_with('#') && key.is_none() && !is_comment {
                    found.push(wrong(line, "neither `# text` nor `#key`"));
                }
                if key.is_some_and(|key| !config::is_toml(key)) {
                    found.push(wrong(line, "no key behind the #: a comment has a space"));
                }
                if line.chars().count() > 100 {
                    found.push(wrong(line, "longer than 100 columns"));
                }
                let name = key.unwrap_or(line).split(" =").next().unwrap_or_default();
                if ["agent", "socket", "socket_path"].contains(&name) {
                    found.push(wrong(line, "the agent's socket is `agent_socket`"));
                }
            }
        }
    }
    assert_eq!(found, [""; 0]);
}
