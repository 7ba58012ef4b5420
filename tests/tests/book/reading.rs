//! Commands that only read: those of all pages run against real agents.
//!
//! A page names hosts, events and files that this cluster does not have. So a command may find
//! nothing, which is exit code 1; but bad input, no answer, or a panic is a mistake of the page.

use crate::commands::Found;
use std::collections::BTreeSet;
use std::process::Output;

/// Whether a command has answered: it found what was asked for, or that it is not so; the health
/// of a host may be unknown (exit code 2).
pub(crate) fn has_answered(words: &[String], output: &Output) -> bool {
    match output.status.code() {
        Some(0 | 1) => true,
        Some(2) if words[0] == "health" => {
            String::from_utf8_lossy(&output.stdout).contains(" unknown: ")
        }
        _ => false,
    }
}

/// Commands of ftbctl that change nothing and end by themselves, by their first words.
const READERS: [&[&str]; 12] = [
    &["tree"],
    &["node"],
    &["status"],
    &["health"],
    &["conditions"],
    &["events"],
    &["explain"],
    &["trace"],
    &["hosts"],
    &["silence", "list"],
    &["ca", "show"],
    &["top", "--once"],
];
/// What makes them wait, or needs what only the reader has.
const WAITS: [&str; 5] = ["--wait", "--wait-clear", "--follow", "--watch", "-f"];

/// The commands among these that only read, each once, without the program.
pub(crate) fn readers(found: impl IntoIterator<Item = Found>) -> BTreeSet<Vec<String>> {
    let reads = |found: Found| {
        let words = found.words.get(1..)?.to_vec();
        // A sentence may mention a command by its name alone.
        let is_mention = found.place.contains('`') && words.len() == 1;
        let is_ours = found.words[0] == "ftbctl" && !is_mention;
        let begins = |verb: &[&str]| words.len() >= verb.len() && words[..verb.len()] == *verb;
        let waits = words.iter().any(|word| {
            let option = word.split('=').next().unwrap_or_default();
            WAITS.contains(&option)
        });
        (is_ours && !waits && READERS.iter().any(|verb| begins(verb))).then_some(words)
    };
    found.into_iter().filter_map(reads).collect()
}

#[test]
fn commands_that_change_something_or_wait_are_left_out() {
    let page = "```sh\nftbctl tree --down\nftbctl tree --wait=full\nftbctl silence add n1\n\
                ftbctl silence list\nftbctl hosts fold a1 a2\nftb-launch ps\n```\n";
    let found: Vec<String> =
        readers(crate::commands::commands("page", page)).iter().map(|w| w.join(" ")).collect();
    assert_eq!(found, ["hosts fold a1 a2", "silence list", "tree --down"]);
}
