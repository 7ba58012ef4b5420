//! What ftb is meant to reach, and whether the results at hand reach it.

use super::{NONE, headline};
use crate::case::{IDLE_INNER, SAME, SAME_16, Shows};
use crate::load::Outcome;
use crate::run::{CaseRuns, RowRuns};
use crate::server::System;
use crate::server::agents::Layout;
use crate::wire::nats::Storage;
use std::fmt::Write as _;

const FTB: System = System::Ftb(Layout::ONE);
const JETSTREAM: System = System::JetStream(Storage::File);

/// Events a second of the original, CIFTS FTB 0.6.2, on one agent from one publisher to one
/// subscriber at full speed, with its own library: the best of six runs (86,000 to 155,000) on a
/// machine of this kind.
const ORIGINAL_PER_S: f64 = 155_000.0;

/// One row of one case.
type Place = (&'static str, &'static str, System);

/// A number that must be reached.
struct Target {
    what: &'static str,
    /// What is measured, and what it is divided by.
    rows: (Place, Option<Place>),
    number: fn(&Outcome) -> f64,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

fn ratio(what: &'static str, mine: Place, theirs: Place, least: f64) -> Target {
    let number = headline(Shows::Rate);
    Target { what, rows: (mine, Some(theirs)), number, bound: Bound::AtLeast(least) }
}

fn latency(what: &'static str, mine: Place, theirs: Place, number: fn(&Outcome) -> f64) -> Target {
    Target { what, rows: (mine, Some(theirs)), number, bound: Bound::AtMost(1.0) }
}

fn at_least(what: &'static str, mine: Place, number: fn(&Outcome) -> f64, least: f64) -> Target {
    Target { what, rows: (mine, None), number, bound: Bound::AtLeast(least) }
}

fn at_most(what: &'static str, mine: Place, number: fn(&Outcome) -> f64, most: f64) -> Target {
    Target { what, rows: (mine, None), number, bound: Bound::AtMost(most) }
}

fn all() -> Vec<Target> {
    [relay(), latencies(), confirmed(), rest()].into_iter().flatten().collect()
}

fn relay() -> Vec<Target> {
    let hops = |layout| ("hops", "200 B", System::Ftb(layout));
    vec![
        ratio(
            "one subscriber, same event, times NATS core",
            ("relay", SAME, FTB),
            ("relay", SAME, System::Nats),
            1.5,
        ),
        ratio(
            "one subscriber, same event, times the plain relay",
            ("relay", SAME, FTB),
            ("relay", SAME, System::Plain),
            0.8,
        ),
        ratio(
            "one subscriber, same event, times Zenoh's router",
            ("relay", SAME, FTB),
            ("relay", SAME, System::Zenoh),
            2.0,
        ),
        at_least(
            "one subscriber, times CIFTS FTB 0.6.2 at its best (155,000/s)",
            ("relay", SAME, FTB),
            |outcome| outcome.deliveries_per_s() / ORIGINAL_PER_S,
            10.0,
        ),
        ratio(
            "one subscriber, bytes only at the peer, times NATS core",
            ("relay", "200 B", FTB),
            ("relay", "200 B", System::Nats),
            1.5,
        ),
        ratio(
            "16 subscribers, same event, times NATS core",
            ("fanout", SAME_16, FTB),
            ("fanout", SAME_16, System::Nats),
            2.0,
        ),
        ratio("3 agents in a chain, times 1 agent", hops(Layout::chain(3)), hops(Layout::ONE), 0.6),
        ratio(
            "mutual TLS, times plain links",
            hops(Layout::chain(2).tls()),
            hops(Layout::chain(2)),
            0.8,
        ),
    ]
}

fn latencies() -> Vec<Target> {
    let p99 = headline(Shows::Latency);
    vec![
        latency(
            "p99 at 1,000/s, times NATS core",
            ("rates", "1,000/s", FTB),
            ("rates", "1,000/s", System::Nats),
            p99,
        ),
        latency(
            "p99 at 10,000/s, times NATS core",
            ("rates", "10,000/s", FTB),
            ("rates", "10,000/s", System::Nats),
            p99,
        ),
        latency(
            "ping-pong p50, times NATS core",
            ("ping", "200 B", FTB),
            ("ping", "200 B", System::Nats),
            |outcome| outcome.latency.p50_ns as f64,
        ),
    ]
}

fn confirmed() -> Vec<Target> {
    vec![
        ratio(
            "confirmed (journal on), times JetStream's file store",
            ("confirmed", "in a file, not synced", System::Ftb(Layout::ONE.journal())),
            ("confirmed", "in a file, not synced", JETSTREAM),
            2.0,
        ),
        ratio(
            "confirmed (in memory), times JetStream's file store",
            ("confirmed", "in memory", FTB),
            ("confirmed", "in a file, not synced", JETSTREAM),
            2.0,
        ),
    ]
}

fn rest() -> Vec<Target> {
    vec![
        at_most(
            "% of a core at 100,000/s",
            ("rates", "100,000/s", FTB),
            |outcome| outcome.server_cores() * 100.0,
            25.0,
        ),
        at_most(
            "% of a core when idle",
            ("idle", "2 clients", FTB),
            |outcome| outcome.server_cores() * 100.0,
            0.1,
        ),
        at_most(
            "wake-ups/s when idle",
            ("idle", "2 clients", FTB),
            Outcome::server_sleeps_per_s,
            1.0,
        ),
        at_most(
            "% of a core when idle, an inner agent of a tree",
            ("idle", IDLE_INNER, System::Ftb(Layout::member(1))),
            |outcome| outcome.server_cores() * 100.0,
            0.1,
        ),
        at_most(
            "wake-ups/s when idle, an inner agent of a tree with 3 links",
            ("idle", IDLE_INNER, System::Ftb(Layout::member(1))),
            Outcome::server_sleeps_per_s,
            6.0,
        ),
        at_most(
            "MiB, 16 children and 64 clients, after a storm",
            ("memory", "16 children, 64 clients, after a storm", System::Ftb(Layout::star(16))),
            |outcome| outcome.servers.rss_kib as f64 / 1024.0,
            32.0,
        ),
        ratio(
            "100,000 other subscriptions, times 10",
            ("filters", "100,000 others", FTB),
            ("filters", "10 others", FTB),
            1.0 / 1.2,
        ),
    ]
}

fn find(results: &[CaseRuns], (case, label, system): Place) -> Option<&RowRuns> {
    let case = results.iter().find(|results| results.case.name == case)?;
    case.rows.iter().find(|runs| runs.row.label == label && runs.row.system == system)
}

/// What was measured; `None` when a row is not there or has no good run.
fn measured(target: &Target, results: &[CaseRuns]) -> Option<f64> {
    let median = |place| Some(find(results, place)?.summary(target.number)?.median);
    let mine = median(target.rows.0)?;
    Some(match target.rows.1 {
        Some(theirs) => mine / median(theirs)?,
        None => mine,
    })
}

/// All targets whose case was run.
pub(super) fn table(results: &[CaseRuns]) -> String {
    let mut text = "| target | wanted | measured | |\n|---|--:|--:|---|\n".to_owned();
    for target in all() {
        let places = [Some(target.rows.0), target.rows.1];
        if !places.into_iter().flatten().all(|place| find(results, place).is_some()) {
            continue;
        }
        let (sign, bound) = match target.bound {
            Bound::AtLeast(bound) => ("≥", bound),
            Bound::AtMost(bound) => ("≤", bound),
        };
        let measured = measured(&target, results);
        let met = measured.map(|measured| match target.bound {
            Bound::AtLeast(bound) => measured >= bound,
            Bound::AtMost(bound) => measured <= bound,
        });
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "no good run",
        };
        let measured = measured.map_or(NONE.to_owned(), |measured| format!("{measured:.2}"));
        let _ = writeln!(text, "| {} | {sign} {bound:.2} | {measured} | {verdict} |", target.what);
    }
    text
}

/// The table, when every case that has a target was run.
pub(super) fn whole_table(results: &[CaseRuns]) -> Option<String> {
    let there = all().iter().all(|target| find(results, target.rows.0).is_some());
    there.then(|| table(results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn every_target_names_rows_that_exist() {
        let blank = |case: case::Case| CaseRuns {
            rows: case
                .rows
                .iter()
                .map(|row| RowRuns { row: row.clone(), outcomes: vec![], failures: vec![] })
                .collect(),
            case,
        };
        let results: Vec<CaseRuns> = case::all().into_iter().map(blank).collect();
        for target in all() {
            for place in [Some(target.rows.0), target.rows.1].into_iter().flatten() {
                assert!(find(&results, place).is_some(), "{}: {place:?}", target.what);
            }
        }
    }
}
