//! The catalogue of events is complete: publishers take their names from it, and docs/events.md
//! shows it.
#![allow(clippy::unwrap_used)]

use ftb_core::catalog::{EVENTS, EventEntry, TRACE_TAG, names};
use ftb_fuzz::kept::assert_file_is_current;
use ftb_launcher_core::policy::{self, Policy};
use ftb_tests::repository::{read, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The sources of all programs that publish.
const PUBLISHERS: [&str; 14] = [
    "ftb-act/src",
    "ftb-agent/src",
    "ftb-bridge/src",
    "ftb-core/src/node",
    "ftb-core/src/model/condition.rs",
    "ftb-ib/src",
    "ftb-ipmi/src",
    "ftb-slurm/src",
    "ftbctl/src",
    "launcher/core/src",
    "launcher/job/src",
    "launcher/pods/src",
    "launcher/src",
    "ftb-client/src",
];
/// Names with FTB_ that are no events: environment variables.
const NO_EVENTS: [&str; 33] = [
    "FTB_AGENT_SOCKET",
    "FTB_BIN_DIR",
    "FTB_BOOT_ID",
    "FTB_CA_DIR",
    "FTB_CONFIRM",
    "FTB_CRIU",
    "FTB_EPISODE",
    "FTB_IMAGE",
    "FTB_IMAGE_DIR",
    "FTB_INCARNATION",
    "FTB_IPMI_PASSWORD",
    "FTB_JOBS_DIR",
    "FTB_JOB_ADDRESS",
    "FTB_JOB_ID",
    "FTB_JOB_PEER_GRACE_S",
    "FTB_JOB_RECEIVE_BYTES",
    "FTB_LAUNCH_AGENT_SOCKET",
    "FTB_LOCAL_RANK",
    "FTB_LOG",
    "FTB_LOG_FORMAT",
    "FTB_LOOP",
    "FTB_MEMORY_FIRST",
    "FTB_NODE",
    "FTB_ON_DEATH",
    "FTB_PARKED",
    "FTB_PID",
    "FTB_PROGRESS_FD",
    "FTB_RANK",
    "FTB_RANK_FD",
    "FTB_RESTORE",
    "FTB_RESTORE_SIZE",
    "FTB_SET",
    "FTB_SIZE",
];

/// The code of all publishers without tests and comments, by file.
fn code_of_publishers() -> BTreeMap<String, String> {
    let below = |path: &&str| -> Vec<PathBuf> {
        let within = root().join(path);
        match within.is_dir() {
            true => {
                sources(&within, &["rs"]).iter().map(|file| Path::new(path).join(file)).collect()
            }
            false => vec![PathBuf::from(path)],
        }
    };
    let names = PUBLISHERS.iter().flat_map(below).map(|path| path.to_string_lossy().into_owned());
    let is_test = |name: &String| name.contains("/tests/") || name.ends_with("/tests.rs");
    let code = |name: String| {
        let text = read(&name);
        let code = text.lines().take_while(|line| *line != "mod tests {");
        let code = code.filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        (name, code)
    };
    names.filter(|name| !is_test(name)).map(code).collect()
}

/// The string literals that are names of events by their form.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        let rest = text.strip_prefix("FTB_").unwrap_or_default();
        !rest.is_empty()
            && rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_' || b.is_ascii_digit())
    };
    code.split('"').filter(is_name)
}

#[test]
fn publishers_take_the_names_of_their_events_from_the_catalogue() {
    let mut wrong = Vec::new();
    for (file, code) in code_of_publishers() {
        let names = literals(&code).filter(|name| !NO_EVENTS.contains(name));
        wrong.extend(names.map(|name| format!("{file}: {name:?}")));
    }
    let how = "add an entry to ftb-core/src/model/catalog/events.rs and use its constant";
    assert!(wrong.is_empty(), "{how}:\n{}", wrong.join("\n"));
}

/// An entry of an event that nothing publishes any more misleads readers.
#[test]
fn every_entry_is_published_by_some_program() {
    let code = code_of_publishers();
    // MVAPICH2 publishes it; libverbs' numbers become names in ftb-ib's table; rules of bridge.toml
    // name those of the facility.
    let is_foreign = |entry: &&EventEntry| {
        entry.name == names::FTB_MIGRATE_TRIGGER || entry.space == "ftb.facility"
    };
    let words: BTreeSet<&str> = code
        .values()
        .flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .collect();
    let unused = EVENTS.iter().filter(|entry| !is_foreign(entry) && !words.contains(entry.name));
    let unused: Vec<&str> = unused.map(|entry| entry.name).collect();
    assert!(unused.is_empty(), "nothing publishes {unused:?}");
}

/// The row of an event in docs/events.md.
fn row(entry: &EventEntry, policy: &Policy) -> String {
    let sets: Vec<&str> = entry.sets().map(|condition| condition.key).collect();
    let clears: Vec<&str> = entry.clears().map(|condition| condition.key).collect();
    let stated = [("sets", &sets), ("clears", &clears)];
    let stated = stated.into_iter().filter(|(_, keys)| !keys.is_empty());
    let stated = stated.map(|(verb, keys)| format!("{verb} {}", keys.join(", ")));
    let stated = stated.collect::<Vec<_>>().join("; ");
    let mut actions = Vec::new();
    for reaction in policy.reactions(entry.space, entry.name, &sets) {
        if !actions.contains(&reaction.action) {
            actions.push(reaction.action);
        }
    }
    let EventEntry { name, severity, payload, tags, cause, .. } = entry;
    let actions = actions.join(", ");
    format!("| {name} | {severity} | {payload} | {tags} | {cause} | {stated} | {actions} |\n")
}

fn page() -> String {
    let policy = Policy::parse(policy::DEFAULT).unwrap();
    let mut text = format!(
        "# Events\n\n\
         Every event of ftb, from `ftb-core/src/model/catalog` (`FTB_BLESS=1`, test `events`). \
         `ftbctl\nexplain NAME` shows an entry, and what the policies of your jobs do. No payload: \
         text. `A` is\n`ADAPTER:<i>` (from 0), `P` `PORT:<j>` (from 1), `C` \
         `COUNTER:<c>::RATE:<r>::LIMIT:<l>`. `?`: not\nalways. The tag `{TRACE_TAG}` makes agents \
         remember the path of any event. *Job*: built-in policy.\n"
    );
    text += "\n| event | severity | payload | tags | cause | condition | job |\n\
             |---|---|---|---|---|---|---|\n";
    let mut space = "";
    for entry in EVENTS {
        if entry.space != space {
            space = entry.space;
            text += &format!("| **{space}**, by {} | | | | | | |\n", entry.publisher);
        }
        text += &row(entry, &policy);
    }
    text
}

#[test]
fn the_docs_show_every_event_of_the_catalogue() {
    let path = root().join("docs/events.md");
    assert_file_is_current(path, page());
}
