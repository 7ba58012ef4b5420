use super::*;
use crate::condition::Truth;
use crate::log::conditions::ConditionRow;
use crate::log::entries::Log;
use crate::numbers::LogIndex;
use crate::sealed::{Head, Sealed};
use crate::testing::{Stated, counted_mark, said};
use Severity::{Error, Fatal, Info, Warning};

fn reserve(bytes: usize) -> Reserve {
    let protected = EventSpace::new("ftb.ipmi").expect("a space");
    let (protected, conditions) = ([protected].into(), ConditionLimits::default());
    Reserve { bytes, protected, conditions, mark: Some(counted_mark()) }
}

fn item(first: u64, events: &[(&str, Severity)]) -> Item {
    let sealed: Vec<Sealed> = (first..)
        .zip(events)
        .map(|(index, (space, severity))| said(space, "X", index, *severity))
        .collect();
    let run = Run::collect(sealed.iter().map(Sealed::as_ref)).expect("some events");
    Item { index: first.into(), content: Content::Events(run) }
}

/// The last index of a hole, its count, and its highest severity.
type Hole = (u64, u64, Option<Severity>);

/// What is there, and what is missing.
fn contents(retained: &Retained, after: u64) -> (Vec<u64>, Vec<Hole>) {
    let (mut there, mut holes) = (Vec::new(), Vec::new());
    let epochs = EpochHistory::new();
    let after = LogIndex::new(after);
    let mut at = after;
    for item in retained.items(after, &epochs) {
        match &item.content {
            Content::Events(_) => {
                assert_eq!(item.index, at.next(), "no index is left out");
                there.extend(item.index.get()..=item.last().get());
            }
            Content::Gap(gap) => {
                assert_eq!((gap.after.index, gap.until.index), (at, item.index));
                holes.push((item.index.get(), gap.count.unwrap_or(0), gap.severity_max));
            }
        }
        at = item.last();
    }
    assert_eq!(at, retained.last());
    (there, holes)
}

#[test]
fn info_goes_first_and_each_hole_states_its_count() {
    let mut retained = Retained::new(10.into(), ConditionLimits::default());
    let app = "app.x";
    let events = [(app, Info), (app, Fatal), (app, Info), (app, Info), (app, Warning)];
    retained.take(&item(11, &events), &reserve(1 << 20));
    let holes = vec![(11, 1, Some(Info)), (14, 2, Some(Info))];
    assert_eq!(contents(&retained, 10), (vec![12, 15], holes));
    let part = vec![(14, 1, Some(Info))];
    assert_eq!(contents(&retained, 13), (vec![15], part), "a hole is cut where a reader is");
}

#[test]
fn what_does_not_fit_goes_mildest_and_oldest_first() {
    let mut retained = Retained::new(0.into(), ConditionLimits::default());
    let app = "app.x";
    for batch in 0..30 {
        let events = [(app, Warning), (app, Fatal), (app, Error), (app, Info)];
        retained.take(&item(1 + 4 * batch, &events), &reserve(60_000));
        assert!(retained.bytes() <= 60_000 + 2 * 60_000 / TALLY_PART);
    }
    let (there, holes) = contents(&retained, 0);
    let of = |place: u64| there.iter().filter(|index| *index % 4 == place).count();
    assert_eq!((of(1), of(0)), (0, 0), "WARNING and INFO are gone before ERROR");
    assert!((20..30).contains(&of(2)), "{} FATAL, {} ERROR", of(2), of(3));
    let missing: u64 = holes.iter().map(|hole| hole.1).sum();
    assert_eq!(missing + there.len() as u64, 120);
}

#[test]
fn a_flood_of_one_user_leaves_the_share_of_protected_spaces_alone() {
    let mut retained = Retained::new(0.into(), ConditionLimits::default());
    for index in 1..=10 {
        retained.take(&item(index, &[("ftb.ipmi", Warning)]), &reserve(100_000));
    }
    for index in 11..=500 {
        retained.take(&item(index, &[("app.flood", Fatal)]), &reserve(100_000));
    }
    let (there, holes) = contents(&retained, 0);
    assert_eq!(there[..10], (1..=10).collect::<Vec<u64>>(), "all protected events are there");
    assert_eq!(holes.len(), 1, "{holes:?}");
    assert_eq!(holes[0].2, Some(Fatal));
    assert_eq!(holes[0].1 + there.len() as u64, 500);
}

#[test]
fn a_look_back_by_time_finds_what_was_dropped_too() {
    let mut retained = Retained::new(0.into(), ConditionLimits::default());
    // The time of an event is its number.
    retained.take(&item(1, &[("app.x", Info); 5]), &reserve(1 << 20));
    retained.take(&item(6, &[("app.x", Fatal); 5]), &reserve(1 << 20));
    assert_eq!(retained.since(0), Some(0.into()));
    assert_eq!(retained.since(8), Some(7.into()));
    assert_eq!(retained.since(11), None);
}

#[test]
fn what_is_taken_back_leaves_the_counts_right() {
    let mut retained = Retained::new(0.into(), ConditionLimits::default());
    for first in [1, 4, 7] {
        let events = [("app.x", Info), ("app.x", Fatal), ("app.x", Info)];
        retained.take(&item(first, &events), &reserve(1 << 20));
    }
    retained.truncate(5.into());
    let holes = vec![(1, 1, Some(Info)), (4, 2, Some(Info))];
    assert_eq!(contents(&retained, 0), (vec![2, 5], holes));
    retained.truncate(0.into());
    assert_eq!((retained.bytes(), contents(&retained, 0)), (0, (vec![], vec![])));
}

/// Two segments of a journal: a person marks a host; another run clears that, and a publisher
/// states something. Of the second alone, the clear would not count any more.
#[test]
fn a_later_part_of_a_log_keeps_what_counts_behind_the_part_before() {
    let limits = ConditionLimits::default();
    let nothing = reserve(0);
    let stated = |token, truth, is_kept| {
        let seq = token;
        crate::testing::stated(&Stated { token, seq, truth, is_kept, ..Stated::default() })
    };
    let at = |index: u64, event: Sealed| Item {
        index: index.into(),
        content: Content::Events(event.into()),
    };
    let first = at(1, stated(1, Truth::True, true));
    let second = [at(2, stated(2, Truth::False, true)), at(3, stated(3, Truth::Unknown, false))];
    let mut whole = Retained::new(0.into(), limits);
    std::iter::once(&first).chain(&second).for_each(|item| whole.take(item, &nothing));
    let mut segments = [Retained::new(0.into(), limits), Retained::later_part(1.into(), limits)];
    segments[0].take(&first, &nothing);
    second.iter().for_each(|item| segments[1].take(item, &nothing));
    let mut read = Retained::new(0.into(), limits);
    let epochs = EpochHistory::new();
    for segment in &segments {
        segment.items(0.into(), &epochs).for_each(|item| read.take(&item, &nothing));
    }
    assert_eq!(read.conditions(), whole.conditions());
    let truths: Vec<Truth> = read.conditions().iter().map(|(_, row)| row.truth).collect();
    assert_eq!(truths, [Truth::Unknown]);
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.0 >> 33) % bound
    }

    /// What any of three publishers on two hosts states of a fan. Clocks jump by minutes, and a
    /// merge may bring an older event behind a newer one.
    fn statement(&mut self) -> Sealed {
        let truth = [Truth::True, Truth::False, Truth::Unknown][self.below(3) as usize];
        let publisher_host = ["a", "b"][self.below(2) as usize];
        let severity = [Info, Info, Warning, Error][self.below(4) as usize];
        let (token, seq, is_kept) = (1 + self.below(3), 1 + self.below(300), self.below(4) == 0);
        let component = ["fan/1", "fan/2"][self.below(2) as usize];
        let state = Stated { token, seq, truth, severity, is_kept, component, ..Stated::default() };
        let event = crate::testing::stated(&Stated { publisher_host, host: "node01", ..state });
        let head = Head { time_ns: seq * 1_000_000_000, ..*event.head() };
        Sealed::new(head, event.bytes().clone()).expect("the same spans")
    }
}

/// The rows of a log, applied to its end.
fn rows(log: &mut Log) -> Vec<(String, LogIndex, Truth, usize)> {
    log.apply_conditions(log.last());
    let table = log.conditions();
    let row = |(subject, row): (&crate::condition::Subject, &ConditionRow)| {
        (subject.to_string(), row.index, row.truth, table.bytes())
    };
    table.iter().map(row).collect()
}

/// A log retains some of what it drops. A copy of the rest has the same table, and so has a copy of
/// that copy. Neither the pace of the copies nor the clocks matter.
#[test]
fn a_copy_of_a_log_that_dropped_statements_has_the_same_table() {
    let (limits, epochs) = (ConditionLimits::default(), EpochHistory::new());
    let small = Reserve { protected: Arc::default(), ..reserve(4_000) };
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let mut logs = [(); 3].map(|()| Log::new(0.into(), limits));
        for _ in 0..30 {
            let (index, event) = (logs[0].last().next(), dice.statement());
            logs[0].push(Item { index, content: Content::Events(event.into()) });
            for at in 0..3 {
                if at > 0 && dice.below(2) == 0 {
                    let range = (logs[at].last(), logs[at - 1].last());
                    let count = 1 + dice.below(4) as usize;
                    let (items, until) = logs[at - 1].next(range, 1 << 20, count, &epochs);
                    items.into_iter().for_each(|item| logs[at].push(item));
                    logs[at].cover(until);
                }
                if dice.below(2) == 0 {
                    let last = logs[at].last();
                    logs[at].retire(last, &small);
                }
            }
        }
        for at in 1..3 {
            let range = (logs[at].last(), logs[at - 1].last());
            let (items, until) = logs[at - 1].next(range, 1 << 20, 100, &epochs);
            items.into_iter().for_each(|item| logs[at].push(item));
            logs[at].cover(until);
        }
        let [first, second, third] = &mut logs;
        assert_eq!(rows(first), rows(second), "seed {seed}");
        assert_eq!(rows(first), rows(third), "seed {seed}, a copy of a copy");
    }
}
