//! From what was found to what is read: `phases.md`.

use super::{ALL_END, KILL};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What happens in every phase alike.
const EVERYWHERE: [&str; 2] = [KILL, ALL_END];
/// Remedies in the order of their rows.
const WORKFLOWS: [&str; 6] = ["none", "start", "checkpoint", "migration", "rollback", "end"];
/// Phases in the order of their rows.
const ORDER: [&str; 15] = [
    "gather",
    "reset",
    "prepare",
    "save",
    "store",
    "leave",
    "abort",
    "copy",
    "launch",
    "restart",
    "join",
    "resume",
    "end",
    "not all have met",
    "running",
];

/// The number of the remedy, and the phase.
fn parts(place: &str) -> (usize, &str) {
    let (workflow, phase) = place.split_once(' ').unwrap_or(("none", place));
    let number = WORKFLOWS.iter().position(|other| *other == workflow);
    (number.unwrap_or(0), if number.is_none() { "not all have met" } else { phase })
}

/// Where it leads, in words; nothing where it leads nowhere.
fn outcome(from: &str, next: &BTreeSet<String>) -> String {
    let is_end =
        |place: &str| place.starts_with("end ") || (place == "over" && !from.starts_with("end "));
    let is_back = |place: &str| place.starts_with("rollback ");
    let resets = next.contains("start reset");
    let goes_back = next.iter().any(|place| is_back(place)) && !is_back(from);
    let mut words = BTreeSet::new();
    for place in next.iter().filter(|place| *place != from) {
        words.insert(match place.as_str() {
            place if goes_back && (is_back(place) || place == "start reset" || is_end(place)) => {
                "*recovery*"
            }
            place if resets && (place == "start reset" || is_end(place)) => "*restart*",
            place if is_end(place) => "end",
            // Within a remedy its phases need no more than their names.
            place if parts(place).0 == parts(from).0 => parts(place).1,
            place => place,
        });
    }
    words.into_iter().collect::<Vec<_>>().join(", or ")
}

#[derive(Default)]
pub(super) struct Found {
    /// What is asked in each phase, by name.
    pub(super) asks: BTreeMap<String, BTreeSet<String>>,
    /// Where what leads to from where.
    pub(super) edges: BTreeMap<(String, &'static str), BTreeSet<String>>,
}

impl Found {
    /// What leads elsewhere. The same of several phases of a remedy, and several things that lead
    /// to the same, are one row.
    pub(super) fn rows(&self) -> Vec<String> {
        let mut by_outcome: BTreeMap<(usize, &str, String), Vec<&str>> = BTreeMap::new();
        for ((place, what), next) in &self.edges {
            let (workflow, phase) = parts(place);
            let outcome = outcome(place, next);
            if !outcome.is_empty() && !EVERYWHERE.contains(what) {
                by_outcome.entry((workflow, what, outcome)).or_default().push(phase);
            }
        }
        let mut by_phases: BTreeMap<(usize, Vec<&str>, String), Vec<&str>> = BTreeMap::new();
        for ((workflow, what, outcome), mut phases) in by_outcome {
            phases.sort_by_key(|phase| ORDER.iter().position(|other| other == phase));
            by_phases.entry((workflow, phases, outcome)).or_default().push(what);
        }
        let key = |phases: &[&str]| -> Vec<Option<usize>> {
            phases.iter().map(|phase| ORDER.iter().position(|other| other == phase)).collect()
        };
        let mut rows: Vec<_> = by_phases.into_iter().collect();
        rows.sort_by_key(|((workflow, phases, _), _)| (*workflow, key(phases)));
        let row =
            |((workflow, phases, outcome), what): &((usize, Vec<&str>, String), Vec<&str>)| {
                format!(
                    "| {} | {} | {} | {outcome} |",
                    WORKFLOWS[*workflow],
                    phases.join(", "),
                    what.join("; ")
                )
            };
        rows.iter().map(row).collect()
    }

    pub(super) fn page(&self, rows: &[String]) -> String {
        let mut page = String::from(
            "# What the launcher does in each phase\n\n\
             A test tries every input in every reachable state and renders this page\n\
             (`launcher/core/src/jl/tests/table.rs`;\n\
             `FTB_BLESS=1 cargo test -p ftb-launcher-core --lib table` writes it).\n\
             The jobs have three ranks on two nodes with two spares, use each backend, start\n\
             anew or from a set, with `on_death = \"rollback\"`. `launcher/core/protocol.md`\n\
             explains phases and events.\n\n\
             ## Requests of each phase, repeated each second until they are answered\n\n\
             | workflow | phase | requests, if needed |\n|---|---|---|\n",
        );
        let mut asks: Vec<_> =
            self.asks.iter().map(|(place, names)| (parts(place), names)).collect();
        let order = |phase: &str| ORDER.iter().position(|other| *other == phase);
        asks.sort_by_key(|((workflow, phase), _)| (*workflow, order(phase)));
        for ((workflow, phase), names) in asks {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            let _ = writeln!(page, "| {} | {phase} | {names} |", WORKFLOWS[workflow]);
        }
        page += "\n## Transitions\n\n\
             An input without a row leaves the phase as it is; it may try another node or\n\
             set. *Recovery* is a rollback (phase copy, or restart if all images are in\n\
             place), otherwise a *restart*: a start from phase reset on. Without a set,\n\
             without a spare, or after too many recoveries without progress, the job ends.\n\
             It also ends in every phase on request, or when all ranks have ended. An event\n\
             stands for the last one that was awaited, a deadline for one silent node or all\n\
             of them.\n\n\
             | workflow | phase | input | next |\n|---|---|---|---|\n";
        for row in rows {
            page += row;
            page.push('\n');
        }
        page
    }
}
