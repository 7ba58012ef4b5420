//! What is measured: tables of rows, each a system under a load.

use crate::load::{Load, Mode};
use crate::server::System;
use crate::server::agents::Layout;
use crate::wire::nats::Storage;

/// Bytes of an event unless a case says otherwise.
const SIZE: usize = 200;
/// The row in which all systems carry the same typed event of that size.
pub(crate) const SAME: &str = "200 B, same event";
/// That with a call of our client for every event, not one for all that a publisher has at once.
const SAME_SINGLY: &str = "200 B, same event, a call for each";
/// The same for 16 subscribers.
pub(crate) const SAME_16: &str = "16 subscribers, same event";
/// An agent that has links in both directions, and nothing to do.
pub(crate) const IDLE_INNER: &str = "an inner agent with 2 children, 1 client";
/// One agent.
const FTB: System = System::Ftb(Layout::ONE);

/// One table of the report.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name on the command line and in the markers of the report.
    pub(crate) name: &'static str,
    /// What it is, in words.
    pub(crate) title: &'static str,
    /// Which numbers it shows.
    pub(crate) shows: Shows,
    /// Part of a quick run.
    pub(crate) quick: bool,
    /// Runs of every row in a full run.
    pub(crate) repetitions: usize,
    /// How long one of them is, in percent of the usual: many short turns where the machine's moods
    /// decide, long ones where there is little to see.
    pub(crate) length_percent: u64,
    /// Its rows, measured in turn.
    pub(crate) rows: Vec<Row>,
}

impl Case {
    /// Keeps the rows whose system or label contains a text, and those they are compared to.
    pub(crate) fn keep_only(&mut self, text: &str) {
        self.keep(|row| row.label.contains(text) || row.system.name().contains(text));
    }

    /// Keeps some rows, and those they are compared to.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&Row) -> bool) {
        let mut kept: Vec<usize> =
            (0..self.rows.len()).filter(|place| wanted(&self.rows[*place])).collect();
        kept.extend(kept.clone().iter().filter_map(|place| self.rows[*place].against));
        kept.sort_unstable();
        kept.dedup();
        self.rows = kept.iter().map(|place| self.rows[*place].clone()).collect();
        for row in &mut self.rows {
            let place = row.against.and_then(|against| kept.binary_search(&against).ok());
            row.against = place;
        }
    }
}

/// Which numbers of a run matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Deliveries a second and what they cost.
    Rate,
    /// Latencies.
    Latency,
    /// What it costs to be there.
    Rest,
    /// Resident memory, for each of something.
    Memory,
}

/// One system under one load.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What sets it apart in its table, beside the system.
    pub(crate) label: String,
    /// Whom.
    pub(crate) system: System,
    /// With what.
    pub(crate) load: Load,
    /// The row of the same table that it is compared to.
    pub(crate) against: Option<usize>,
    /// For memory: how many clients, links or subscriptions it has more than that row.
    pub(crate) units: Option<(usize, &'static str)>,
}

impl Row {
    /// One that is compared to none.
    pub(crate) fn new(label: impl Into<String>, system: System, load: Load) -> Self {
        Self { label: label.into(), system, load, against: None, units: None }
    }

    fn against(self, row: usize) -> Self {
        Self { against: Some(row), ..self }
    }

    fn for_each_of(self, count: usize, what: &'static str) -> Self {
        Self { units: Some((count, what)), ..self }
    }
}

/// Rows of several systems under one load, each compared to NATS core, which is among them.
fn beside_nats(label: &str, systems: &[System], load: &Load, first: usize) -> Vec<Row> {
    let nats = systems.iter().position(|system| *system == System::Nats);
    let rows = systems.iter().enumerate().map(|(place, system)| {
        let row = Row::new(label, *system, load.clone());
        match nats {
            Some(nats) if nats != place => row.against(first + nats),
            _ => row,
        }
    });
    rows.collect()
}

/// One block of such rows for each variant.
fn variants(systems: &[System], variants: &[(&str, Load)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (label, load) in variants {
        rows.extend(beside_nats(label, systems, load, rows.len()));
    }
    rows
}

/// Everything that can be measured, in the order of the report.
pub(crate) fn all() -> Vec<Case> {
    let full = Load::new(Mode::Full, SIZE);
    let few = [FTB, System::Nats, System::Plain];
    let routed = [FTB, System::Nats, System::Zenoh, System::Plain];
    let many = [
        FTB,
        System::Nats,
        System::Zenoh,
        System::Mosquitto(0),
        System::Mosquitto(1),
        System::Plain,
    ];
    let mut cases = vec![
        case("relay", "One publisher, one subscriber, full speed", Shows::Rate, {
            let mut rows = variants(&many, &[("200 B", full.clone())]);
            let typed = full.clone().typed();
            let first = rows.len();
            rows.extend(beside_nats(SAME, &routed, &typed, first));
            rows.push(Row::new(SAME_SINGLY, FTB, typed.singly()).against(first));
            rows
        }),
        case("fanout", "One publisher, many subscribers, full speed", Shows::Rate, {
            let mut rows = variants(
                &[FTB, System::Nats, System::Zenoh, System::Mosquitto(0), System::Plain],
                &[("16 subscribers", full.clone().subscribers(16))],
            );
            let typed = full.clone().typed().subscribers(16);
            rows.extend(beside_nats(SAME_16, &routed, &typed, rows.len()));
            let wide = full.clone().subscribers(128);
            rows.extend(beside_nats("128 subscribers", &few, &wide, rows.len()));
            rows
        }),
        case("ping", "One message in flight", Shows::Latency, {
            variants(&many, &[("200 B", Load::new(Mode::PingPong, SIZE))])
        }),
        case("rates", "Latency at a given rate, one publisher, one subscriber", Shows::Latency, {
            let paced = |per_s| Load::new(Mode::Paced(per_s), SIZE);
            let rates = [
                ("100/s", paced(100)),
                ("1,000/s", paced(1000)),
                ("10,000/s", paced(10_000)),
                ("100,000/s", paced(100_000)),
            ];
            variants(&few, &rates)
        }),
    ];
    cases.extend(size_cases(&few, &full));
    cases.extend(tree_cases(&full));
    cases.extend([
        case("confirmed", "Publishing until the system says that it holds it", Shows::Rate, {
            confirmed(&Load::new(Mode::Acknowledged, SIZE))
        }),
        case("filters", "Beside subscriptions that do not match, full speed", Shows::Rate, {
            filters(&full)
        }),
        case("idle", "Nothing happens", Shows::Rest, idle()),
        case("memory", "Resident memory", Shows::Memory, memory()),
    ]);
    cases.iter_mut().for_each(set_effort);
    cases
}

/// How often and how long a case runs.
fn set_effort(case: &mut Case) {
    case.quick = ["relay", "fanout", "ping"].contains(&case.name);
    case.repetitions = match case.name {
        "relay" | "filters" => 5,
        // Judged by ratios that lie near their bounds, of runs that differ by a tenth.
        "ping" | "hops" => 11,
        // Judged by one event in a hundred of some hundred: runs differ by half.
        "rates" => 15,
        "memory" | "trees" | "tree-rate" => 1,
        "idle" => 2,
        _ => 3,
    };
    case.length_percent = match case.name {
        "ping" => 40,
        "idle" => 400,
        _ => 100,
    };
}

/// Cases with more publishers, and with other sizes of events.
fn size_cases(few: &[System], full: &Load) -> [Case; 2] {
    [
        case("publishers", "Many publishers, one subscriber, full speed", Shows::Rate, {
            let loads = [
                ("8 publishers", full.clone().publishers(8)),
                ("64 publishers", full.clone().publishers(64)),
                ("1,000 publishers", full.clone().publishers(1000)),
            ];
            variants(few, &loads)
        }),
        case("sizes", "Other sizes of events, full speed", Shows::Rate, {
            let sized = |size| Load::new(Mode::Full, size);
            let sizes = [("64 B", sized(64)), ("4 KiB", sized(4096)), ("64 KiB", sized(65_536))];
            variants(few, &sizes)
        }),
    ]
}

/// Cases with more than one agent.
fn tree_cases(full: &Load) -> Vec<Case> {
    vec![
        case("hops", "More agents between publisher and subscriber, full speed", Shows::Rate, {
            let layouts = [
                Layout::ONE,
                Layout::chain(2),
                Layout::chain(2).tls(),
                Layout::chain(3),
                Layout::SIBLINGS,
                Layout::chain(4),
            ];
            let rows = layouts.iter().enumerate().map(|(place, layout)| {
                let row = Row::new("200 B", System::Ftb(*layout), full.clone());
                // TLS is compared to the same without, everything else to one agent.
                if layout.tls { row.against(place - 1) } else { row.against(0) }
            });
            rows.collect()
        }),
        case(
            "trees",
            "From leaf to leaf, one in flight, and changes of subscriptions",
            Shows::Latency,
            {
                let ping = Load::new(Mode::PingPong, SIZE);
                let mut rows = trees("an event", &ping, 0);
                rows.extend(trees(
                    "a subscription",
                    &Load::new(Mode::Resubscribe, SIZE),
                    rows.len(),
                ));
                rows
            },
        ),
        case("tree-rate", "From leaf to leaf, full speed", Shows::Rate, trees("200 B", full, 0)),
    ]
}

fn case(name: &'static str, title: &'static str, shows: Shows, rows: Vec<Row>) -> Case {
    Case { name, title, shows, quick: false, repetitions: 3, length_percent: 100, rows }
}

/// Binary trees of 2, 5 and 8 levels below the root, compared to the smallest.
fn trees(label: &str, load: &Load, first: usize) -> Vec<Row> {
    let rows = [7, 63, 511].map(|agents| {
        Row::new(label, System::Ftb(Layout::tree(agents)), load.clone()).against(first)
    });
    rows.into()
}

fn confirmed(load: &Load) -> Vec<Row> {
    let systems = [
        ("in memory", FTB),
        ("in memory, root and standby", System::Ftb(Layout::chain(2))),
        ("in memory", System::JetStream(Storage::Memory)),
        ("in a file, not synced", System::JetStream(Storage::File)),
        ("by the broker", System::Mosquitto(1)),
        ("in a file, not synced", System::Ftb(Layout::ONE.journal())),
    ];
    let rows = systems.into_iter().map(|(held, system)| {
        let row = Row::new(held, system, load.clone());
        if system == System::JetStream(Storage::Memory) { row } else { row.against(2) }
    });
    rows.collect()
}

fn filters(full: &Load) -> Vec<Row> {
    let mut rows = Vec::new();
    for system in [FTB, System::Nats] {
        let first = rows.len();
        for (label, clients, subscriptions) in [
            ("10 others", 1, 10),
            ("none", 0, 0),
            ("1,000 others", 10, 1000),
            ("10,000 others", 10, 10_000),
            ("100,000 others", 100, 100_000),
        ] {
            let load = full.clone().bystanders(clients, subscriptions);
            rows.push(Row::new(label, system, load).against(first));
        }
    }
    rows
}

fn idle() -> Vec<Row> {
    let load = Load::new(Mode::Idle, SIZE);
    vec![
        Row::new("2 clients", FTB, load.clone()),
        Row::new("2 clients, all agents together", System::Ftb(Layout::chain(3)), load.clone()),
        Row::new("a root with 2 children, 1 client", System::Ftb(Layout::member(0)), load.clone()),
        Row::new(IDLE_INNER, System::Ftb(Layout::member(1)), load.clone()),
        Row::new("a leaf, 1 client", System::Ftb(Layout::member(3)), load.clone()),
        Row::new("2 clients", System::Nats, load.clone()),
        Row::new("2 clients", System::Mosquitto(0), load),
    ]
}

fn memory() -> Vec<Row> {
    let load = Load { subscribers: 0, ..Load::new(Mode::Idle, SIZE) };
    let storm = Load::new(Mode::Full, SIZE).publishers(32).subscribers(32).rests();
    let star = System::Ftb(Layout::star(16));
    let mut rows = Vec::new();
    for system in [FTB, System::Nats] {
        let first = rows.len();
        rows.push(Row::new("1 client", system, load.clone()));
        let clients = load.clone().bystanders(500, 500);
        let row = Row::new("500 more clients, a subscription each", system, clients);
        rows.push(row.against(first).for_each_of(500, "client"));
        rows.push(Row::new("10 more clients", system, load.clone().bystanders(10, 10)));
        let subscriptions = load.clone().bystanders(10, 10_010);
        let row = Row::new("10,000 more subscriptions", system, subscriptions);
        rows.push(row.against(first + 2).for_each_of(10_000, "subscription"));
    }
    let row = Row::new("16 children, 1 client", star, load);
    rows.push(row.against(0).for_each_of(16, "link"));
    rows.push(Row::new("16 children, 64 clients, after a storm", star, storm));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_compared_to_another_one_of_its_table() {
        for case in all() {
            for (place, row) in case.rows.iter().enumerate() {
                let known = row.against.is_none_or(|against| against < case.rows.len());
                assert!(known, "{} row {place}", case.name);
                assert!(row.units.is_none() || row.against != Some(place), "{}", case.name);
            }
        }
    }

    #[test]
    fn chosen_rows_keep_what_they_are_compared_to() {
        let mut cases = all();
        cases.iter_mut().for_each(|case| case.keep_only("128 subscribers"));
        let fanout = cases.iter().find(|case| case.name == "fanout").map(|case| &case.rows);
        let rows = fanout.map(Vec::as_slice).unwrap_or_default();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0].against, Some(1));
        assert_eq!(rows[1].system, System::Nats);
    }

    #[test]
    fn rows_of_a_table_are_distinct() {
        for case in all() {
            let mut names: Vec<_> =
                case.rows.iter().map(|row| (row.label.clone(), row.system.name())).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), case.rows.len(), "{}", case.name);
        }
    }
}
