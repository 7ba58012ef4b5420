use super::*;
use crate::space::EventSpace;
use crate::testing::{folded, republished, said};

const ALICE: ClientId = ClientId(1);
const MS: u64 = 1_000_000;

fn rule() -> StormRule {
    StormRule {
        space: EventSpace::new("ftb.test").ok(),
        severity_max: Severity::Warning,
        fold_ms: 1_000,
        group_by: Vec::new(),
        events_per_s: 0,
        burst: 1,
    }
}

fn storms(rules: Vec<StormRule>) -> StormControl {
    StormControl::new(rules, Some(Folder(folded)))
}

/// Feeds events of one publisher, from sequence 1 on; gives what left as (sequence, covers).
struct Feeder {
    storms: StormControl,
    seq: u64,
    left: Vec<(u64, u32)>,
}

impl Feeder {
    fn new(rules: Vec<StormRule>) -> Self {
        Self { storms: storms(rules), seq: 0, left: Vec::new() }
    }

    fn send(&mut self, at_ms: u64, name: &str, severity: Severity) -> StormDecision {
        self.seq += 1;
        let mut out = Vec::new();
        let sealed = said("FTB.Test.port", name, self.seq, severity);
        let fate = self.storms.take(at_ms * MS, ALICE, sealed, &mut out);
        self.note(&out);
        fate
    }

    fn tick(&mut self, at_ms: u64) {
        let mut out = Vec::new();
        self.storms.tick(at_ms * MS, &mut out);
        self.note(&out);
    }

    fn note(&mut self, out: &[Sealed]) {
        self.left.extend(out.iter().map(|sealed| (sealed.id().seq.get(), sealed.head().covers)));
    }

    fn left(&mut self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.left)
    }
}

#[test]
fn the_first_passes_at_once_and_the_rest_of_a_window_is_one_event() {
    let mut feeder = Feeder::new(vec![rule()]);
    assert_eq!(feeder.send(0, "DOWN", Severity::Info), StormDecision::Passed);
    for at in 1..100 {
        assert_eq!(feeder.send(at, "down", Severity::Info), StormDecision::Folded);
    }
    assert_eq!(feeder.left(), [(1, 0)]);
    assert_eq!(feeder.storms.deadline_ns(), Some(1_000 * MS));
    feeder.tick(999);
    assert_eq!(feeder.left(), []);
    feeder.tick(1_000);
    assert_eq!(feeder.left(), [(100, 98)]);
    assert_eq!(feeder.storms.bytes(), 0);
    // The storm goes on: nothing passes at once, one more fold.
    assert_eq!(feeder.send(1_500, "DOWN", Severity::Info), StormDecision::Folded);
    feeder.tick(2_000);
    assert_eq!(feeder.left(), [(101, 0)]);
    // A window without anything in it is the end.
    feeder.tick(3_000);
    assert_eq!(feeder.storms.deadline_ns(), None);
    assert_eq!(feeder.send(3_001, "DOWN", Severity::Info), StormDecision::Passed);
}

#[test]
fn other_spaces_worse_severities_and_republished_events_pass_in_their_order() {
    let mut feeder = Feeder::new(vec![rule()]);
    feeder.send(0, "DOWN", Severity::Info);
    feeder.send(1, "DOWN", Severity::Info);
    feeder.send(2, "DOWN", Severity::Info);
    assert_eq!(feeder.send(3, "DOWN", Severity::Error), StormDecision::Passed);
    assert_eq!(feeder.left(), [(1, 0), (3, 1), (4, 0)], "what was folded before it leaves first");
    assert_eq!(
        feeder.send(4, "DOWN", Severity::Info),
        StormDecision::Folded,
        "its window is still open"
    );
    let mut out = Vec::new();
    let other = said("ftb.testing", "DOWN", 6, Severity::Info);
    assert_eq!(feeder.storms.take(5, ALICE, other, &mut out), StormDecision::Passed);
    let again = republished(&said("ftb.test", "DOWN", 7, Severity::Info));
    assert_eq!(feeder.storms.take(5, ALICE, again, &mut out), StormDecision::Passed);
    let seqs: Vec<u64> = out.iter().map(|sealed| sealed.id().seq.get()).collect();
    assert_eq!(seqs, [5, 6, 7]);
}

#[test]
fn two_kinds_that_alternate_are_two_folds_and_none_is_held_before_both_are() {
    let mut feeder = Feeder::new(vec![rule()]);
    for round in 0..10 {
        feeder.send(round, "UP", Severity::Info);
        feeder.send(round, "DOWN", Severity::Info);
    }
    feeder.tick(1_000);
    assert_eq!(feeder.left(), [(1, 0), (2, 0), (19, 0), (20, 17)]);
    assert_eq!(feeder.storms.acked_up_to(ALICE, 2.into()), 2.into());
    assert_eq!(feeder.storms.acked_up_to(ALICE, 19.into()), 2.into());
    assert_eq!(feeder.storms.acked_up_to(ALICE, 20.into()), 20.into());
    assert_eq!(feeder.storms.acked_up_to(ALICE, 25.into()), 25.into());
}

#[test]
fn a_fold_ends_early_and_kinds_and_bytes_are_bounded() {
    let mut feeder = Feeder::new(vec![rule()]);
    for _ in 0..=FOLD_EVENTS_MAX {
        feeder.send(0, "DOWN", Severity::Info);
    }
    let covers = u32::try_from(FOLD_EVENTS_MAX - 1).expect("a small number");
    assert_eq!(feeder.left(), [(1, 0), (FOLD_EVENTS_MAX + 1, covers)]);
    for kind in 0..2 * WINDOWS_MAX {
        feeder.send(1, &format!("KIND-{kind}"), Severity::Info);
    }
    assert_eq!(feeder.storms.windows, WINDOWS_MAX);
    for kind in 0..WINDOWS_MAX - 1 {
        for _ in 0..2 {
            feeder.send(2, &format!("KIND-{kind}"), Severity::Info);
        }
        assert!(feeder.storms.bytes() <= FOLD_BYTES_MAX);
    }
    let mut out = Vec::new();
    feeder.storms.forget(ALICE, &mut out);
    assert!(!out.is_empty());
    assert_eq!((feeder.storms.bytes(), feeder.storms.windows), (0, 0));
}

#[test]
fn a_publisher_over_its_rate_is_cut_short_in_blocks_and_fatal_has_its_own_lane() {
    let limited = StormRule {
        fold_ms: 0,
        group_by: Vec::new(),
        events_per_s: 100,
        burst: 50,
        severity_max: Severity::Fatal,
        ..rule()
    };
    let mut feeder = Feeder::new(vec![limited]);
    let fates: Vec<StormDecision> = (0..100).map(|_| feeder.send(0, "X", Severity::Info)).collect();
    assert_eq!(fates.iter().filter(|fate| **fate == StormDecision::Passed).count(), 50);
    assert_eq!(fates[50], StormDecision::Shed { begins: true });
    assert_eq!(fates[51], StormDecision::Shed { begins: false });
    assert_eq!(feeder.send(0, "X", Severity::Fatal), StormDecision::Passed);
    assert_eq!(feeder.send(99, "X", Severity::Info), StormDecision::Shed { begins: false });
    assert_eq!(
        feeder.send(100, "X", Severity::Info),
        StormDecision::Passed,
        "a tenth of a second's worth"
    );
    // Over ten seconds no more than burst and rate allow, whatever is said.
    let passed = (0..10_000)
        .filter(|at| feeder.send(100 + at, "X", Severity::Info) == StormDecision::Passed);
    let passed = passed.count();
    assert!((900..=1_060).contains(&passed), "{passed}");
}

#[test]
fn the_longest_matching_space_decides_and_new_rules_begin_anew() {
    let all = StormRule { space: None, fold_ms: 0, events_per_s: 1, ..rule() };
    let mut feeder = Feeder::new(vec![all.clone(), rule()]);
    feeder.send(0, "A", Severity::Info);
    assert_eq!(
        feeder.send(0, "A", Severity::Info),
        StormDecision::Folded,
        "the general rule would shed it"
    );
    let mut out = Vec::new();
    feeder.storms.set_rules(vec![all], &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(feeder.send(0, "A", Severity::Info), StormDecision::Passed);
    assert_eq!(feeder.send(0, "A", Severity::Info), StormDecision::Shed { begins: true });
}
