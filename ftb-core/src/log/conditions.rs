//! The table of conditions: for each subject the statement that counts. It is a function of the
//! log: [`ConditionTable::apply`] takes its entries in order.
//!
//! Rules, for a statement *s* about a subject with the row *r*:
//! 1. Without *r*, *s* counts.
//! 2. Of two statements of one publisher the later one counts. Logs that merge bring older ones.
//! 3. A *false* of another publisher never counts if an agent repeats it, or if it is older than
//!    *r*. Clocks of two hosts are compared with a tolerance of `CLOCKS_APART_NS_MAX`.
//! 4. Otherwise *s* counts.
//!
//! A log that retains the event of each row, and drops those that were replaced, yields the same
//! table: the row of a subject is its last statement that counts.
//!
//! Responsible for: which statements count, and the bounds of the table. Not responsible for: the
//! events themselves, which the log retains (`retained.rs`).

use crate::condition::{RecommendedAction, Subject, Truth};
use crate::ident::{EventId, OriginId};
use crate::sealed::SealedRef;
use crate::severity::Severity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most rows.
pub const CONDITIONS_MAX: usize = 32_768;
/// Most bytes of the events of all rows.
pub const CONDITIONS_BYTES_MAX: usize = 24 << 20;
/// Clocks of two hosts may differ by this much.
const CLOCKS_APART_NS_MAX: u64 = 60_000_000_000;
/// Memory of a row beside its event and its texts, near enough.
const ROW_BYTES: usize = 320;

/// The statement that counts for a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionRow {
    /// The index of its event.
    pub index: u64,
    /// Its event.
    pub event: EventId,
    /// The publisher's statement: its event, or the one that this event repeats.
    pub source: EventId,
    /// Whether the condition holds.
    pub truth: Truth,
    /// How bad it is.
    pub severity: Severity,
    /// What is recommended.
    pub action: RecommendedAction,
    /// Since when, in Unix nanoseconds.
    pub onset_ns: u64,
    /// When it was stated, in Unix nanoseconds.
    pub time_ns: u64,
    /// When it becomes unknown, in Unix nanoseconds.
    pub expires_at_ns: Option<u64>,
    /// The agent of its publisher.
    pub owner: OriginId,
    /// It outlives its publisher.
    pub is_kept: bool,
    /// Size of its event in bytes.
    bytes: usize,
    /// An agent repeats the statement of its publisher.
    is_repeat: bool,
}

/// What decides between two statements about one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The publisher's statement.
    pub source: EventId,
    /// What it states.
    pub truth: Truth,
    /// When, in Unix nanoseconds.
    pub time_ns: u64,
    /// An agent repeats it.
    pub is_repeat: bool,
}

impl Claim {
    /// Whether it counts where the other one counted; the module has the rules.
    pub fn counts_over(&self, old: &Self) -> bool {
        let (ours, theirs) = (self.source.publisher, old.source.publisher);
        if ours == theirs {
            return self.source.seq >= old.source.seq;
        }
        let same_clock = ours.account == theirs.account;
        let tolerance_ns = if same_clock { 0 } else { CLOCKS_APART_NS_MAX };
        let is_late = self.is_repeat || self.time_ns.saturating_add(tolerance_ns) < old.time_ns;
        !(self.truth == Truth::False && is_late) || old.truth == Truth::False
    }
}

impl ConditionRow {
    fn claim(&self) -> Claim {
        let Self { source, truth, time_ns, is_repeat, .. } = *self;
        Claim { source, truth, time_ns, is_repeat }
    }

    /// Rows with a lower weight go first when the table is full.
    fn weight(&self) -> (u8, Severity, u64) {
        let truth = match self.truth {
            Truth::False => 0,
            Truth::Unknown => 1,
            Truth::True => 2,
        };
        (truth, self.severity, self.index)
    }
}

/// What a statement has done to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It does not count.
    Ignored,
    /// It counts. The events of these indices do not count any more; if the table is full, the
    /// statement's own may be among them.
    Counts {
        /// Their indices.
        gone: Vec<u64>,
    },
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionTable {
    rows: BTreeMap<Arc<Subject>, ConditionRow>,
    by_index: BTreeMap<u64, Arc<Subject>>,
    by_weight: BTreeSet<(u8, Severity, u64)>,
    bytes: usize,
    /// Rows that hold or are unknown, and went because the table was full.
    dropped: u64,
}

impl ConditionTable {
    /// Takes the next event of the log, if it states a condition.
    pub fn apply(&mut self, index: u64, event: SealedRef<'_>) -> Applied {
        let Some(condition) = event.condition() else { return Applied::Ignored };
        let provenance = condition.head().provenance;
        let row = ConditionRow {
            index,
            event: event.id(),
            source: condition.source(),
            truth: condition.head().truth,
            severity: condition.severity(),
            action: condition.head().action,
            onset_ns: condition.onset_ns(),
            time_ns: event.time_ns(),
            expires_at_ns: condition.expires_at_ns(),
            owner: provenance.owner,
            is_kept: condition.head().is_kept,
            bytes: event.len(),
            is_repeat: provenance.source.is_some() && provenance.replaces.is_none(),
        };
        let subject = condition.subject();
        if self.rows.get(&subject).is_some_and(|old| !row.claim().counts_over(&old.claim())) {
            return Applied::Ignored;
        }
        let mut gone: Vec<u64> = self.remove(&subject).into_iter().map(|row| row.index).collect();
        let subject = Arc::new(subject);
        self.bytes += cost(&subject, &row);
        self.by_index.insert(index, Arc::clone(&subject));
        self.by_weight.insert(row.weight());
        self.rows.insert(subject, row);
        while self.rows.len() > CONDITIONS_MAX || self.bytes > CONDITIONS_BYTES_MAX {
            let Some((_, _, lightest)) = self.by_weight.first().copied() else { break };
            let Some(subject) = self.by_index.get(&lightest).cloned() else { break };
            let row = self.remove(&subject);
            self.dropped += u64::from(row.is_some_and(|row| row.truth != Truth::False));
            gone.push(lightest);
        }
        Applied::Counts { gone }
    }

    fn remove(&mut self, subject: &Subject) -> Option<ConditionRow> {
        let (subject, row) = self.rows.remove_entry(subject)?;
        self.bytes -= cost(&subject, &row);
        self.by_index.remove(&row.index);
        self.by_weight.remove(&row.weight());
        Some(row)
    }

    /// Forgets the rows up to an index.
    pub(crate) fn forget_until(&mut self, index: u64) {
        while let Some(first) = self.by_index.first_entry().filter(|first| *first.key() <= index) {
            let subject = first.get().clone();
            self.remove(&subject);
        }
    }

    /// The row of a subject.
    pub fn get(&self, subject: &Subject) -> Option<&ConditionRow> {
        self.rows.get(subject)
    }

    /// The rows, by subject.
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &ConditionRow)> {
        self.rows.iter().map(|(subject, row)| (&**subject, row))
    }

    /// The indices of rows behind an index, rising.
    pub fn indices_after(&self, after: u64) -> impl Iterator<Item = u64> {
        self.by_index.range(after.saturating_add(1)..).map(|(index, _)| *index)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Memory that it uses, events included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows that hold or are unknown, and went because the table was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn cost(subject: &Subject, row: &ConditionRow) -> usize {
    ROW_BYTES + subject.len() + row.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Provenance;
    use crate::ident::PublisherId;
    use crate::sealed::Sealed;
    use crate::testing::{Stated, stated};
    use Truth::{False, True};

    fn id(token: u64, seq: u64) -> EventId {
        EventId { publisher: PublisherId { account: 1, token }, seq }
    }

    fn fan(token: u64, seq: u64, truth: Truth) -> Sealed {
        stated(&Stated { token, seq, truth, ..Stated::default() })
    }

    fn table(events: &[Sealed]) -> ConditionTable {
        let mut table = ConditionTable::default();
        for (index, event) in (1..).zip(events) {
            table.apply(index, event.as_ref());
        }
        table
    }

    fn truth(table: &ConditionTable) -> Option<Truth> {
        table.iter().next().map(|(_, row)| row.truth)
    }

    #[test]
    fn of_two_statements_of_one_publisher_the_later_counts_in_any_order() {
        let (older, newer) = (fan(1, 6, False), fan(1, 7, True));
        assert_eq!(truth(&table(&[older.clone(), newer.clone()])), Some(True));
        assert_eq!(truth(&table(&[newer, older])), Some(True), "a merge brings the older one");
    }

    #[test]
    fn an_older_false_of_another_life_of_a_publisher_never_counts() {
        // The time of an event is its number.
        let (old, new) = (fan(1, 5, False), fan(2, 9, True));
        assert_eq!(truth(&table(&[new.clone(), old])), Some(True));
        assert_eq!(truth(&table(&[new, fan(1, 10, False)])), Some(False));
    }

    #[test]
    fn a_repeated_statement_stands_for_the_original() {
        let source = Provenance { source: Some(id(1, 6)), ..Stated::default().provenance };
        let repeated =
            stated(&Stated { token: 9, seq: 1, provenance: source, ..Stated::default() });
        let rows = table(&[fan(1, 6, True), repeated.clone()]);
        assert_eq!(rows.iter().next().map(|(_, row)| (row.index, row.source)), Some((2, id(1, 6))));
        let cleared = [fan(1, 6, True), repeated, fan(1, 7, False)];
        assert_eq!(truth(&table(&cleared)), Some(False));
    }

    #[test]
    fn a_false_that_an_agent_repeats_never_clears_what_another_publisher_states() {
        let source = Provenance { source: Some(id(1, 5)), ..Stated::default().provenance };
        let repeated =
            Stated { token: 9, seq: 90, truth: False, provenance: source, ..Stated::default() };
        let events = [fan(1, 5, False), fan(2, 7, True), stated(&repeated)];
        assert_eq!(truth(&table(&events)), Some(True));
        let all = table(&events);
        let row = all.iter().next().map(|(_, row)| row.source);
        assert_eq!(row, Some(id(2, 7)));
    }

    #[test]
    fn a_false_of_another_host_that_a_merge_brings_a_minute_late_never_counts() {
        let at = |account: u64, time_ns, truth| Claim {
            source: EventId { publisher: PublisherId { account, token: account }, seq: 1 },
            truth,
            time_ns,
            is_repeat: false,
        };
        let dead = at(1, 100_000_000_000, True);
        assert!(!at(2, 39_000_000_000, False).counts_over(&dead), "61 s older");
        assert!(at(2, 41_000_000_000, False).counts_over(&dead), "clocks may differ");
        assert!(at(2, 39_000_000_000, True).counts_over(&dead));
    }

    #[test]
    fn the_rows_alone_yield_the_same_table() {
        let events = [
            fan(1, 1, True),
            fan(1, 2, False),
            fan(2, 9, True),
            fan(1, 3, False),
            fan(2, 10, Truth::Unknown),
        ];
        let all = table(&events);
        let mut rest = ConditionTable::default();
        for index in all.indices_after(0) {
            rest.apply(index, events[index as usize - 1].as_ref());
        }
        assert_eq!(rest, all);
    }

    #[test]
    fn a_full_table_gives_up_what_is_false_first_and_never_grows() {
        let mut table = ConditionTable::default();
        let mut add = |seq: u64, truth, severity| {
            let component = format!("fan/{seq}");
            let event = stated(&Stated {
                seq,
                truth,
                severity,
                component: &component,
                ..Stated::default()
            });
            table.apply(seq, event.as_ref())
        };
        for seq in 1..=CONDITIONS_MAX as u64 {
            add(seq, if seq == 7 { False } else { True }, Severity::Error);
        }
        let next = CONDITIONS_MAX as u64 + 1;
        assert_eq!(add(next, True, Severity::Error), Applied::Counts { gone: vec![7] });
        assert_eq!(add(next + 1, True, Severity::Info), Applied::Counts { gone: vec![next + 1] });
        assert_eq!(add(next + 2, True, Severity::Fatal), Applied::Counts { gone: vec![1] });
        assert_eq!((table.len(), table.dropped()), (CONDITIONS_MAX, 2));
        assert!(table.bytes() <= CONDITIONS_BYTES_MAX, "{}", table.bytes());
    }
}
