#![allow(clippy::unwrap_used)]
use super::*;
use crate::condition::{Provenance, Truth};
use crate::ident::{EventId, PublisherId};
use crate::log::conditions::{ConditionLimits, ConditionTable};
use crate::numbers::LogIndex;
use crate::sealed::{Head, Sealed, SealedRef};
use crate::severity::Severity;
use crate::testing::{Stated, counted_mark, stated};
use Truth::{False, True, Unknown};
use proptest::prelude::*;

const LIVE: ReadPlace = ReadPlace { subscription: 1, reading: 0, is_row: false };
const ROW: ReadPlace = ReadPlace { is_row: true, ..LIVE };

fn fan() -> Subject {
    Subject::new("node01", "FAN 1", "FANFAIL")
}

fn claim(account: u64, seq: u64, truth: Truth) -> Claim {
    let event = EventId { publisher: PublisherId { account, token: 1 }, seq: seq.into() };
    Claim { clock: Some(account), ..Claim::new(event, truth, Severity::Error, seq) }
}

/// An agent has found the publisher of a statement lost.
fn lost(of: Claim, seq: u64) -> Claim {
    let own = claim(9, seq, Unknown);
    Claim { source: of.source, replaces: Some(of.event), clock: None, ..own }
}

#[test]
fn a_loss_counts_without_what_it_replaces_only_as_a_row() {
    let unknown = lost(claim(1, 5, True), 6);
    assert!(!TableView::default().take(fan(), LIVE, unknown), "a stolen key invents it");
    let mut view = TableView::default();
    assert!(view.take(fan(), ROW, unknown));
    assert_eq!(view.get(&fan()).map(|row| row.truth), Some(Unknown));
}

#[test]
fn the_first_row_of_a_reading_counts_whatever_was_known_before_its_gap() {
    let again = ROW.next_reading();
    let well = claim(1, 4, False);
    let by_hand = Claim { is_kept: true, ..claim(3, 1, True) };
    let unknown = lost(claim(1, 5, True), 6);
    for (before, row) in [
        (well, unknown),
        (well, lost(claim(2, 1, True), 6)),
        (by_hand, unknown),
        (by_hand, claim(2, 1, False)),
    ] {
        let mut view = TableView::default();
        assert!(view.take(fan(), ROW, before));
        assert!(!view.take(fan(), LIVE, row), "{row:?} over {before:?}");
        assert!(view.take(fan(), again, row), "{row:?} over {before:?}");
    }
    // What comes behind the rows, before the past ends, is no row.
    let mut view = TableView::default();
    assert!(view.take(fan(), again, claim(1, 5, True)));
    assert!(!view.take(fan(), again, claim(1, 4, False)));
}

#[test]
fn a_row_that_changes_while_the_table_is_read_counts() {
    let mut view = TableView::default();
    view.take(fan(), ROW, Claim { is_kept: true, ..claim(3, 1, True) });
    // It was cleared by hand, and failed again, before the next page was read.
    let next = claim(1, 5, True);
    assert!(!view.take(fan(), ROW, next));
    let marked = Claim { is_counted: true, ..next };
    assert!(view.take(fan(), ROW, marked));
    let forged = Claim { is_counted: true, ..claim(1, 4, False) };
    assert!(!view.take(fan(), LIVE, forged), "a mark is worth nothing outside a table");
}

#[test]
fn what_a_reading_does_not_have_any_more_is_stale() {
    let subject = |host: &str| Subject::new(host, "FAN 1", "FANFAIL");
    let mut view = TableView::default();
    let other = ReadPlace { subscription: 2, ..ROW };
    let hosts = ["gone", "live", "kept", "doubtful", "other"];
    for (host, place) in hosts.into_iter().zip([ROW, LIVE, ROW, ROW, other]) {
        view.take(subject(host), place, claim(1, 5, True));
    }
    let again = ROW.next_reading();
    assert!(view.take(subject("kept"), again, claim(1, 5, True)), "the same row again");
    view.keep(&subject("doubtful"), again);
    view.keep(&subject("other"), again);
    view.keep(&subject("unknown"), again);
    let ended = ReadPlace { is_row: false, ..again };
    let stale: Vec<Subject> = view.stale(ended).cloned().collect();
    assert_eq!(stale, [subject("gone"), subject("live")]);
    stale.iter().for_each(|subject| view.forget(subject));
    assert_eq!((view.stale(ended).count(), view.len()), (0, 3));
}

#[test]
fn an_older_row_of_another_subscription_undoes_nothing() {
    let mut view = TableView::default();
    view.take(fan(), LIVE, claim(1, 5, True));
    let other = ReadPlace { subscription: 2, reading: 7, is_row: true };
    assert!(!view.take(fan(), other, Claim { is_counted: true, ..claim(1, 4, False) }));
    assert!(view.take(fan(), other, claim(1, 6, False)));
}

#[test]
fn the_rows_of_a_host_are_found_by_its_name() {
    let mut view = TableView::default();
    for host in ["node01", "node010", "node0", "Node02"] {
        for key in ["FANFAIL", "WATCHED"] {
            view.take(Subject::new(host, "", key), ROW, claim(1, 1, True));
        }
    }
    let keys = |host: &str| view.of_host(host).map(|(of, _)| of.to_string()).collect::<Vec<_>>();
    assert_eq!(keys("NODE01"), ["node01 FANFAIL", "node01 WATCHED"]);
    assert_eq!((keys("node02").len(), keys("node").len(), view.len()), (2, 0, 8));
}

/// What happens to the log and its reader.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One of four publishers on two hosts says something about one of two subjects.
    Say { by: u64, about: u8, truth: Truth, is_kept: bool, is_severe: bool, late_s: u64 },
    /// An agent repeats what a publisher has said before.
    Repeat { what: usize, on: u8 },
    /// An agent finds the publisher of a statement, or of a repetition, lost.
    Lose { what: usize, is_severe: bool },
    /// A merge brings an entry again.
    Merge { what: usize },
    /// The reader misses entries, and reads the table again in pages of a size.
    Miss { entries: usize, page: usize, tail: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let truth = prop_oneof![3 => Just(True), 3 => Just(False), 1 => Just(Unknown)];
    let rarely = || prop_oneof![5 => Just(false), 1 => Just(true)];
    let say = (0..4_u64, 0..2_u8, truth, rarely(), rarely(), 0..90_u64);
    let say = say.prop_map(|(by, about, truth, is_kept, is_mild, late_s)| {
        let is_severe = !is_mild;
        Step::Say { by, about, truth, is_kept, is_severe, late_s }
    });
    let what = || 0..12_usize;
    prop_oneof![
        6 => say,
        2 => (what(), 0..2_u8).prop_map(|(what, on)| Step::Repeat { what, on }),
        3 => (what(), rarely()).prop_map(|(what, is_mild)| {
            Step::Lose { what, is_severe: !is_mild }
        }),
        1 => what().prop_map(|what| Step::Merge { what }),
        1 => (0..5_usize, 1..3_usize, 0..4_usize).prop_map(|(entries, page, tail)| {
            Step::Miss { entries, page, tail }
        }),
    ]
}

/// What a reader gets next.
#[derive(Clone, Copy, Debug)]
enum Reading {
    Live,
    /// That many entries do not arrive.
    Misses {
        entries: usize,
        page: usize,
        tail: usize,
    },
    /// It has read the rows up to an index.
    Pages {
        until: LogIndex,
        page: usize,
        tail: usize,
    },
    /// That many entries arrive before the reading ends.
    Tail(usize),
}

/// A log with its table, and two readers that get the same.
struct Stream {
    log: Vec<Sealed>,
    table: ConditionTable,
    reading: Reading,
    place: ReadPlace,
    /// Else the rows have no marks, as events over a bound, and one page takes all.
    is_marked: bool,
    /// It forgets all after a gap, as programs do that show the table.
    shows: TableView<Claim>,
    /// It forgets nothing, as the launcher does.
    keeps: TableView<Claim>,
}

fn claim_of(event: SealedRef<'_>) -> (Subject, Claim) {
    let condition = event.condition().unwrap();
    (condition.subject(), Claim::of(event, condition))
}

impl Stream {
    fn new(is_marked: bool) -> Self {
        let (log, table) = (Vec::new(), ConditionTable::new(ConditionLimits::default()));
        let (shows, keeps) = (TableView::default(), TableView::default());
        Self { log, table, reading: Reading::Live, place: LIVE, is_marked, shows, keeps }
    }

    /// The event of a step, if it makes one.
    fn event(&self, step: Step) -> Option<Sealed> {
        let seq = self.log.len() as u64 + 1;
        let now_ns = (1_000 + 10 * seq) * 1_000_000_000;
        let back = |what: usize| self.log.iter().rev().nth(what);
        let severity = |is_severe| if is_severe { Severity::Error } else { Severity::Info };
        let (said, time_ns) = match step {
            Step::Say { by, about, truth, is_kept, is_severe, late_s } => {
                let publisher_host = ["a", "b"][(by % 2) as usize];
                let (token, severity) = (by + 1, severity(is_severe));
                let component = ["FAN 1", "FAN 2"][usize::from(about)];
                let said = Stated { token, seq, publisher_host, component, ..Stated::default() };
                let said = Stated { host: "node01", truth, is_kept, severity, ..said };
                (stated(&said), now_ns - late_s * 1_000_000_000)
            }
            Step::Repeat { what, on } => {
                let before = back(what)?.as_ref();
                let condition =
                    before.condition().filter(|c| c.head().provenance.replaces.is_none());
                let again = repeated(before, condition?.head().truth, seq, None);
                let host = ["a", "b"][usize::from(on)];
                (
                    stated(&Stated { token: 90 + u64::from(on), publisher_host: host, ..again }),
                    now_ns,
                )
            }
            Step::Lose { what, is_severe } => {
                let before = back(what)?.as_ref();
                let (subject, claim) = claim_of(before);
                // Of a subject that the table has lost a reader believes no loss: rule 1.
                self.table.get(&subject).filter(|_| claim.replaces.is_none())?;
                let lost = repeated(before, Unknown, seq, Some(claim.event));
                let severity = severity(is_severe);
                (stated(&Stated { severity, publisher_host: "b", ..lost }), now_ns)
            }
            Step::Merge { what } => return back(what).cloned(),
            Step::Miss { .. } => return None,
        };
        let head = Head { time_ns, ..*said.head() };
        Some(Sealed::new(head, said.bytes().clone()).unwrap())
    }

    fn append(&mut self, event: Sealed) {
        let index = LogIndex::new(self.log.len() as u64 + 1);
        self.table.apply(index, event.as_ref());
        self.log.push(event.clone());
        match self.reading {
            Reading::Live => self.deliver(event.as_ref()),
            Reading::Tail(left) => {
                self.deliver(event.as_ref());
                self.reading = Reading::Tail(left - 1);
            }
            Reading::Misses { entries, page, tail } => {
                let entries = entries.saturating_sub(1);
                self.reading = Reading::Misses { entries, page, tail };
            }
            Reading::Pages { .. } => {}
        }
        self.read_on();
    }

    /// What follows at once: the next page, or the end of the reading.
    fn read_on(&mut self) {
        match self.reading {
            Reading::Misses { entries: 0, page, tail } => {
                self.place = self.place.next_reading();
                self.shows.clear();
                self.reading = Reading::Pages { until: LogIndex::ZERO, page, tail };
            }
            Reading::Pages { until, page, tail } => {
                let page = if self.is_marked { page } else { usize::MAX };
                let rows: Vec<LogIndex> = self.table.indices_after(until).take(page).collect();
                for index in &rows {
                    let event = self.log[index.get() as usize - 1].clone();
                    let marked = (counted_mark().put)(event.as_ref()).filter(|_| self.is_marked);
                    self.deliver(marked.unwrap_or(event).as_ref());
                }
                self.reading = match rows.last() {
                    Some(last) if rows.len() == page => Reading::Pages { until: *last, page, tail },
                    _ => Reading::Tail(tail),
                };
            }
            _ => {}
        }
        if let Reading::Tail(0) = self.reading {
            self.place.is_row = false;
            self.reading = Reading::Live;
        }
    }

    fn deliver(&mut self, event: SealedRef<'_>) {
        let (subject, claim) = claim_of(event);
        self.shows.take(subject.clone(), self.place, claim);
        self.keeps.take(subject, self.place, claim);
    }

    fn step(&mut self, step: Step) {
        if let (Step::Miss { entries, page, tail }, Reading::Live) = (step, self.reading) {
            self.reading = Reading::Misses { entries, page, tail };
        }
        match self.event(step) {
            Some(event) => self.append(event),
            None => self.read_on(),
        }
    }

    /// Whether both readers have the rows of the table, event by event.
    fn check(&self) -> Result<(), TestCaseError> {
        for (name, view) in [("shows", &self.shows), ("keeps", &self.keeps)] {
            let known = view.iter().map(|(subject, claim)| (subject, claim.event, claim.truth));
            let known: Vec<_> = known.collect();
            let rows: Vec<_> =
                self.table.iter().map(|(of, row)| (of, row.event, row.truth)).collect();
            prop_assert_eq!(known, rows, "{}", name);
        }
        Ok(())
    }
}

/// What an agent says of a statement that is not its own.
fn repeated<'a>(
    of: SealedRef<'a>,
    truth: Truth,
    seq: u64,
    replaces: Option<EventId>,
) -> Stated<'a> {
    let condition = of.condition().unwrap();
    let source = Some(condition.source());
    let provenance = Provenance { source, replaces, ..Stated::default().provenance };
    Stated {
        token: 90,
        seq,
        host: condition.host(),
        component: condition.component(),
        truth,
        severity: condition.severity(),
        provenance,
        is_kept: condition.head().is_kept,
        onset_ns: condition.onset_ns(),
        ..Stated::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    /// Merges, repetitions, kept statements, lost publishers, and gaps.
    #[test]
    fn a_reader_has_the_truths_of_the_table(
        steps in proptest::collection::vec(any_step(), 1..60),
        is_marked in any::<bool>(),
    ) {
        let mut stream = Stream::new(is_marked);
        for step in steps {
            stream.step(step);
            if let Reading::Live = stream.reading {
                stream.check()?;
            }
        }
        // The last reading ends.
        while !matches!(stream.reading, Reading::Live) {
            stream.reading = match stream.reading {
                Reading::Misses { page, tail, .. } => Reading::Misses { entries: 0, page, tail },
                Reading::Tail(_) => Reading::Tail(0),
                other => other,
            };
            stream.read_on();
        }
        stream.check()?;
    }
}
