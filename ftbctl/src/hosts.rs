//! `ftbctl hosts`: host lists as sets, for scripts.
//!
//! Responsible for: reading lists from arguments or standard input, and what the commands print.
//! Not responsible for: the syntax of host lists (`ftb_core::hostlist`). Needs no agent.

use crate::cli::HostsCommand;
use crate::failure::Failure;
use crate::output::Output;
use ftb_core::hostlist::{Hostlist, fold};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Read as _;

/// Most hosts of one call. More are refused.
const HOSTS_MAX: usize = 1 << 20;
/// Longest text that is read from standard input, in bytes.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Hosts without doubles, in the order of their names and numbers.
#[derive(Debug, Default)]
struct Hosts(BTreeMap<Vec<Part>, String>);

/// A piece of a host name: `node`, then 7 of width 3. Numbers sort as numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u128, usize),
    Text(String),
}

/// Runs one of the commands.
pub(crate) fn run(command: &HostsCommand, mut output: Output) -> Result<(), Failure> {
    match command {
        HostsCommand::Fold { lists } => print(&mut output, &read(lists)?)?,
        HostsCommand::Expand { lists } => {
            for host in read(lists)?.0.values() {
                output.line(host)?;
            }
        }
        HostsCommand::Count { lists } => {
            let count = read(lists)?.0.len();
            match output.is_json() {
                true => output.json(&json!({ "type": "hosts", "count": count }))?,
                false => output.line(&count.to_string())?,
            }
        }
        HostsCommand::Diff { list, others } => {
            let (mut hosts, others) = (Hosts::of([list])?, Hosts::of(others)?);
            hosts.0.retain(|key, _| !others.0.contains_key(key));
            print(&mut output, &hosts)?;
        }
        HostsCommand::Intersect { list, others } => {
            let mut hosts = Hosts::of([list])?;
            for other in others {
                let other = Hosts::of([other])?;
                hosts.0.retain(|key, _| other.0.contains_key(key));
            }
            print(&mut output, &hosts)?;
        }
    }
    output.flush()
}

fn print(output: &mut Output, hosts: &Hosts) -> Result<(), Failure> {
    let folded = fold(hosts.0.values().map(String::as_str));
    match output.is_json() {
        true => output.json(&json!({ "type": "hosts", "hosts": folded, "count": hosts.0.len() })),
        false => output.line(&folded),
    }
}

/// The lists, or standard input if there are none.
fn read(lists: &[String]) -> Result<Hosts, Failure> {
    if !lists.is_empty() {
        return Hosts::of(lists);
    }
    let mut text = String::new();
    std::io::stdin().lock().take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
    Hosts::of([text])
}

impl Hosts {
    /// All hosts of some lists.
    fn of<T: AsRef<str>>(lists: impl IntoIterator<Item = T>) -> Result<Self, Failure> {
        let mut hosts = Self::default();
        for list in lists {
            for word in words(list.as_ref()) {
                let list = Hostlist::parse(word).map_err(|error| {
                    Failure::usage(format_args!("{word:?} is no host list: {error}"))
                })?;
                if hosts.0.len() + list.len() > HOSTS_MAX {
                    return Err(Failure::usage(format_args!("more than {HOSTS_MAX} hosts")));
                }
                for host in list.iter() {
                    hosts.0.entry(key(&host)).or_insert(host);
                }
            }
        }
        Ok(hosts)
    }
}

/// The words between blanks, and between commas outside of brackets.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let words = text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c.is_whitespace() || c == ',' && depth == 0
    });
    words.filter(|word| !word.is_empty())
}

/// What a host is sorted and compared by: case does not count.
fn key(host: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = host;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        parts.push(match piece.parse() {
            Ok(number) if is_digit => Part::Number(number, piece.len()),
            _ => Part::Text(piece.to_ascii_lowercase()),
        });
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folded(lists: &[&str]) -> String {
        fold(Hosts::of(lists).unwrap().0.values().map(String::as_str))
    }

    #[test]
    fn hosts_of_all_lists_are_sorted_by_number_and_stand_there_once() {
        assert_eq!(folded(&["node10 node9", "node[1-3],node2\nNODE3"]), "node[1-3,9-10]");
        assert_eq!(folded(&["r2n1,r1n[01-02],login"]), "login,r1n[01-02],r2n1");
        assert_eq!(folded(&["n2", "n002"]), "n[2,002]", "the width is part of the name");
        assert_eq!(folded(&[" , "]), "");
    }

    #[test]
    fn a_wrong_list_is_named() {
        let Err(Failure::Reported { code, message }) = Hosts::of(["node[1-2],node[3"]) else {
            panic!("taken");
        };
        assert_eq!(code, ftb_cli::USAGE);
        assert!(message.contains("node[3") && message.contains("column"), "{message}");
    }
}
