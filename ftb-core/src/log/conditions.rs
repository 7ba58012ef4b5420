//! The table of conditions: for each subject the statement that counts. It is a function of the
//! log: [`ConditionTable::apply`] takes its entries in order.
//!
//! Rules, for a statement *s* about a subject with the row *r*:
//! 1. Without *r*, *s* counts. An agent that finds a publisher lost names the event that *s* may
//!    replace. It counts over that, over the publisher's own event, and over what this agent has
//!    repeated of it before: over no other. It is of the same statement of the publisher, and not
//!    worse than *r*: so a stolen key neither makes a fault of what is well in this way, nor makes
//!    the publisher's next statements old.
//! 2. Of two statements of one publisher the later one counts. Logs that merge bring older ones:
//!    the publisher's event is older than each repetition of it, and one agent repeats in order.
//! 3. A *false* of another publisher never counts if it is older than *r*. Clocks of two hosts are
//!    compared with a tolerance of `CLOCKS_APART_NS_MAX`. If an agent repeats it, it counts on its
//!    own host only, and is as old as the statement that the agent repeats: as if that had come. An
//!    *unknown* of a lost publisher has the time of the agent that found it lost, of no host.
//! 4. A *true* that outlives its publisher was stated by hand or found by other hosts: only such a
//!    statement counts over it.
//! 5. Otherwise *s* counts.
//!
//! The row of a subject is its last statement that counts. A log retains the event of each row. Of
//! the others it may drop any, so *s* meets another row where the log is copied or read from disk.
//! By the rules it might not count over that one: clocks jump, and merges bring old statements. So
//! a log marks the statements that counted ([`crate::sealed::CountedMark`]): they count again.
//!
//! Responsible for: which statements count, and the bounds of the table. Not responsible for: the
//! events themselves, which the log retains (`retained.rs`), and what readers know of the table
//! ([`crate::log::table_view`]).

use crate::condition::{RecommendedAction, Subject, Truth};
use crate::ident::{EventId, OriginId, PublisherId};
use crate::numbers::LogIndex;
use crate::sealed::{ConditionRef, SealedRef};
use crate::severity::Severity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What bounds the table of conditions. It is the same on all agents: else their tables differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionLimits {
    /// Most rows.
    pub rows: usize,
    /// Most bytes of all rows, events included.
    pub bytes: usize,
}

impl Default for ConditionLimits {
    /// Room for 40,000 hosts with three signed watches each.
    fn default() -> Self {
        Self { rows: 131_072, bytes: 192 << 20 }
    }
}

/// Clocks of two hosts may differ by this much.
const CLOCKS_APART_NS_MAX: u64 = 60_000_000_000;
/// Memory of a row beside its event and its texts, near enough.
const ROW_BYTES: usize = 320;

/// The statement that counts for a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionRow {
    /// The index of its event.
    pub index: LogIndex,
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
    /// As in its [`Claim`].
    clock: Option<u64>,
    /// Size of its event in bytes.
    bytes: usize,
}

/// What decides between two statements about one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its event.
    pub event: EventId,
    /// The publisher's statement: that event, or the one that an agent repeats.
    pub source: EventId,
    /// The only event that it may replace: an agent found its publisher lost.
    pub replaces: Option<EventId>,
    /// What it states.
    pub truth: Truth,
    /// When, in Unix nanoseconds.
    pub time_ns: u64,
    /// If an agent repeats it, when its publisher stated it, or before; the onset says so.
    pub stated_ns: u64,
    /// Of which host the clock is, as a hash of its name; `None`: an agent found its publisher
    /// lost.
    pub clock: Option<u64>,
    /// It outlives its publisher.
    pub is_kept: bool,
    /// How bad it is.
    pub severity: Severity,
    /// The log from which it was read has marked that it counted there.
    pub is_counted: bool,
}

impl AsRef<Self> for Claim {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Claim {
    /// A publisher's own statement, by the clock of a host that is not known.
    pub fn new(event: EventId, truth: Truth, severity: Severity, time_ns: u64) -> Self {
        Self {
            event,
            source: event,
            replaces: None,
            truth,
            time_ns,
            stated_ns: time_ns,
            clock: None,
            is_kept: false,
            severity,
            is_counted: false,
        }
    }

    /// Of a statement in an event.
    pub fn of(event: SealedRef<'_>, condition: ConditionRef<'_>) -> Self {
        let provenance = condition.head().provenance;
        Self {
            event: event.id(),
            source: condition.source(),
            replaces: provenance.replaces,
            truth: condition.head().truth,
            time_ns: event.time_ns(),
            stated_ns: condition.head().onset_ns.min(event.time_ns()),
            clock: Self::clock_of(event.host(), provenance.replaces),
            is_kept: condition.head().is_kept,
            severity: condition.severity(),
            is_counted: event.is_counted(),
        }
    }

    /// Whose clock an event of a host has, which may replace another one.
    pub fn clock_of(host: &str, replaces: Option<EventId>) -> Option<u64> {
        replaces.is_none().then(|| PublisherId::account_of(host, 0))
    }

    /// Whether an agent repeats what a publisher has stated.
    fn is_repeat(&self) -> bool {
        self.source != self.event
    }

    /// Whether both are about one statement of a publisher, and this one was made first, whatever
    /// their order in the log.
    fn is_before(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.event, other.event);
        let is_source = ours == self.source && theirs != other.source;
        let is_earlier = ours.publisher == theirs.publisher && ours.seq < theirs.seq;
        self.source == other.source && (is_source || is_earlier)
    }

    /// Whether it counts where the other one counted; the module has the rules.
    pub fn counts_over(&self, old: &Self) -> bool {
        if let Some(replaced) = self.replaces {
            let is_its = replaced == old.event || old.is_before(self);
            return self.source == old.source && is_its && self.severity <= old.severity;
        }
        let (ours, theirs) = (self.source.publisher, old.source.publisher);
        if ours == theirs {
            return self.source.seq >= old.source.seq && !self.is_before(old);
        }
        if old.is_kept && old.truth == Truth::True && !self.is_kept {
            return false;
        }
        let same_clock = self.clock.is_some() && self.clock == old.clock;
        let tolerance_ns = if same_clock { 0 } else { CLOCKS_APART_NS_MAX };
        let is_late = match self.is_repeat() {
            true => !same_clock || self.stated_ns <= old.time_ns,
            false => self.time_ns.saturating_add(tolerance_ns) < old.time_ns,
        };
        !(self.truth == Truth::False && is_late) || old.truth == Truth::False
    }
}

impl ConditionRow {
    fn claim(&self) -> Claim {
        let Self { event, source, truth, severity, time_ns, is_kept, clock, onset_ns, .. } = *self;
        let stated_ns = onset_ns.min(time_ns);
        let own = Claim::new(event, truth, severity, time_ns);
        Claim { source, stated_ns, clock, is_kept, ..own }
    }

    /// Whether it becomes unknown with its publisher's agent.
    pub(crate) fn is_owned(&self) -> bool {
        !self.is_kept && self.truth != Truth::Unknown
    }

    fn expiry(&self) -> Option<(u64, LogIndex)> {
        let at_ns = self.expires_at_ns.filter(|_| self.truth != Truth::Unknown)?;
        Some((at_ns, self.index))
    }

    /// Rows with a lower weight go first when the table is full. A watch goes before any fault,
    /// unknown ones too: a host whose fault has gone must not look watched and healthy.
    fn weight(&self) -> (u8, Severity, LogIndex) {
        let class = match self.truth {
            Truth::False => 0,
            _ if self.severity < Severity::Warning => 1,
            Truth::Unknown => 2,
            Truth::True => 3,
        };
        (class, self.severity, self.index)
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
        gone: Vec<LogIndex>,
    },
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionTable {
    limits: ConditionLimits,
    rows: BTreeMap<Arc<Subject>, ConditionRow>,
    by_index: BTreeMap<LogIndex, Arc<Subject>>,
    by_weight: BTreeSet<(u8, Severity, LogIndex)>,
    bytes: usize,
    /// Rows that hold or are unknown, and went because the table was full.
    dropped: u64,
    /// How many rows the loss of an agent would make unknown, by agent.
    owned: BTreeMap<OriginId, usize>,
    /// When rows become unknown, and their indices.
    expiring: BTreeSet<(u64, LogIndex)>,
    /// The indices of findings of agents about hosts.
    findings: BTreeSet<LogIndex>,
}

impl ConditionTable {
    /// An empty table.
    pub fn new(limits: ConditionLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Its limits.
    pub fn limits(&self) -> ConditionLimits {
        self.limits
    }

    /// Takes the next event of the log, if it states a condition.
    pub fn apply(&mut self, index: LogIndex, event: SealedRef<'_>) -> Applied {
        let Some(condition) = event.condition() else { return Applied::Ignored };
        let claim = Claim::of(event, condition);
        let subject = condition.subject();
        let counts = |old: &ConditionRow| event.is_counted() || claim.counts_over(&old.claim());
        if self.rows.get(&subject).is_some_and(|old| !counts(old)) {
            return Applied::Ignored;
        }
        let Claim { event: id, source, truth, severity, time_ns, is_kept, clock, .. } = claim;
        let row = ConditionRow {
            index,
            event: id,
            source,
            truth,
            severity,
            action: condition.head().action,
            onset_ns: condition.onset_ns(),
            time_ns,
            expires_at_ns: condition.expires_at_ns(),
            owner: condition.head().provenance.owner,
            is_kept,
            clock,
            bytes: event.unmarked_len(),
        };
        let mut gone: Vec<LogIndex> = self.remove(&subject).iter().map(|old| old.index).collect();
        self.insert(subject, row);
        while self.rows.len() > self.limits.rows || self.bytes > self.limits.bytes {
            let Some((_, _, lightest)) = self.by_weight.first().copied() else { break };
            let Some(subject) = self.by_index.get(&lightest).cloned() else { break };
            let row = self.remove(&subject);
            self.dropped += u64::from(row.as_ref().is_some_and(|row| row.truth != Truth::False));
            gone.extend(row.iter().map(|row| row.index));
        }
        Applied::Counts { gone }
    }

    fn insert(&mut self, subject: Subject, row: ConditionRow) {
        let subject = Arc::new(subject);
        self.bytes += cost(&subject, &row);
        self.by_index.insert(row.index, Arc::clone(&subject));
        self.by_weight.insert(row.weight());
        if row.is_owned() {
            *self.owned.entry(row.owner).or_default() += 1;
        }
        self.expiring.extend(row.expiry());
        if is_finding(&subject, &row) {
            self.findings.insert(row.index);
        }
        self.rows.insert(subject, row);
    }

    fn remove(&mut self, subject: &Subject) -> Option<ConditionRow> {
        let (subject, row) = self.rows.remove_entry(subject)?;
        self.bytes -= cost(&subject, &row);
        self.by_index.remove(&row.index);
        self.by_weight.remove(&row.weight());
        if row.is_owned()
            && let Some(count) = self.owned.get_mut(&row.owner)
        {
            *count -= 1;
            if *count == 0 {
                self.owned.remove(&row.owner);
            }
        }
        if let Some(expiry) = row.expiry() {
            self.expiring.remove(&expiry);
        }
        self.findings.remove(&row.index);
        Some(row)
    }

    /// Forgets the rows up to an index.
    pub(crate) fn forget_until(&mut self, index: LogIndex) {
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

    /// The agents whose loss would make rows unknown.
    pub(crate) fn owners(&self) -> impl Iterator<Item = OriginId> {
        self.owned.keys().copied()
    }

    /// Whether a row has expired that is not unknown yet.
    pub(crate) fn has_expired(&self, now_ns: u64) -> bool {
        self.expiring.first().is_some_and(|(at_ns, _)| *at_ns <= now_ns)
    }

    /// What agents have found out about hosts, as far as it is not over.
    pub(crate) fn findings(&self) -> impl Iterator<Item = (&Subject, &ConditionRow)> {
        let row = |index: &LogIndex| {
            let subject = self.by_index.get(index)?;
            Some((&**subject, self.rows.get(subject)?))
        };
        self.findings.iter().filter_map(row)
    }

    /// The indices of the rows about some hosts after an index, rising.
    pub(crate) fn indices_of(&self, hosts: &[String], after: LogIndex) -> Vec<LogIndex> {
        let of_host = |host: &String| {
            let first = Subject::new(host, "", "");
            let rows = self.rows.range(first..);
            let rows = rows.take_while(|(subject, _)| subject.host().eq_ignore_ascii_case(host));
            rows.map(|(_, row)| row.index).collect::<Vec<LogIndex>>()
        };
        let mut indices: Vec<LogIndex> = hosts.iter().flat_map(of_host).collect();
        indices.retain(|index| *index > after);
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    /// The indices of rows after an index, rising.
    pub fn indices_after(&self, after: LogIndex) -> impl Iterator<Item = LogIndex> {
        self.by_index.range(after.next()..).map(|(index, _)| *index)
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

/// Keys of what agents find out about hosts.
pub(crate) const FINDINGS: [&str; 5] =
    ["NODE_DEAD", "AGENT_LOST", "NODE_UNREACHABLE", "JOURNAL_FAILED", "CERTIFICATE_EXPIRES"];

/// The same of two agents: the component is the one that found it.
pub(crate) const NEIGHBOUR_FINDINGS: [&str; 3] =
    ["AGENT_REFUSED", "MEMBERS_DIFFER", "CLOCKS_DIFFER"];

fn is_finding(subject: &Subject, row: &ConditionRow) -> bool {
    let is_found = match subject.component().is_empty() {
        true => FINDINGS.contains(&subject.key()),
        false => NEIGHBOUR_FINDINGS.contains(&subject.key()),
    };
    row.truth != Truth::False && is_found
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
        EventId { publisher: PublisherId { account: 1, token }, seq: seq.into() }
    }

    fn fan(token: u64, seq: u64, truth: Truth) -> Sealed {
        stated(&Stated { token, seq, truth, ..Stated::default() })
    }

    fn table(events: &[Sealed]) -> ConditionTable {
        let mut table = ConditionTable::default();
        for (index, event) in (1..).zip(events) {
            table.apply(LogIndex::new(index), event.as_ref());
        }
        table
    }

    fn truth(table: &ConditionTable) -> Option<Truth> {
        table.iter().next().map(|(_, row)| row.truth)
    }

    #[test]
    fn a_lost_publisher_is_over_only_where_its_last_event_counts() {
        let lost = |replaced| {
            let provenance = Provenance {
                source: Some(id(1, 1)),
                replaces: Some(id(1, replaced)),
                ..Stated::default().provenance
            };
            let (token, seq, truth) = (9, 9, Truth::Unknown);
            stated(&Stated { token, seq, truth, provenance, ..Stated::default() })
        };
        assert_eq!(truth(&table(&[fan(1, 1, True), lost(1)])), Some(Truth::Unknown));
        assert_eq!(truth(&table(&[fan(1, 1, True), fan(2, 5, True), lost(1)])), Some(True));
        assert_eq!(truth(&table(&[lost(1)])), Some(Truth::Unknown), "a part of the log");
    }

    /// The holder of an agent's key may say that any publisher is lost.
    #[test]
    fn a_lost_publisher_makes_no_statement_worse_and_does_not_outdate_the_next_ones() {
        let lost = |source, severity| {
            let replaces = Some(id(1, 1));
            let provenance =
                Provenance { source: Some(source), replaces, ..Stated::default().provenance };
            let (token, truth) = (9, Truth::Unknown);
            stated(&Stated { token, truth, severity, provenance, ..Stated::default() })
        };
        let well = |severity| {
            let well =
                stated(&Stated { severity: Severity::Info, truth: False, ..Stated::default() });
            truth(&table(&[well, lost(id(1, 1), severity)]))
        };
        assert_eq!(well(Severity::Info), Some(Truth::Unknown));
        assert_eq!(well(Severity::Warning), Some(False), "it was well");
        let forged = lost(id(1, 1 << 62), Severity::Error);
        assert_eq!(truth(&table(&[fan(1, 1, False), forged, fan(1, 2, True)])), Some(True));
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
        assert_eq!(
            rows.iter().next().map(|(_, row)| (row.index.get(), row.source)),
            Some((2, id(1, 6)))
        );
        let cleared = [fan(1, 6, True), repeated, fan(1, 7, False)];
        assert_eq!(truth(&table(&cleared)), Some(False));
    }

    /// Two logs merge: what an agent said first of a lost publisher comes behind what it said last.
    #[test]
    fn older_repetitions_that_a_merge_brings_do_not_count_over_the_loss_of_their_publisher() {
        let source = Provenance { source: Some(id(1, 6)), ..Stated::default().provenance };
        let repeated =
            |token, seq| stated(&Stated { token, seq, provenance: source, ..Stated::default() });
        let lost = |of, token, seq| {
            let provenance = Provenance { replaces: Some(of), ..source };
            stated(&Stated { token, seq, truth: Truth::Unknown, provenance, ..Stated::default() })
        };
        let (original, unknown) = (fan(1, 6, True), lost(id(9, 3), 9, 4));
        let late = [original.clone(), repeated(9, 1), unknown.clone(), repeated(9, 3), original];
        assert_eq!(truth(&table(&late)), Some(Truth::Unknown));
        assert_eq!(truth(&table(&[repeated(8, 1), unknown.clone()])), Some(True), "of another");
        assert_eq!(truth(&table(&[unknown, repeated(8, 1)])), Some(True), "it is there now");
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

    /// An agent on `host` repeats what a publisher stated.
    fn again(host: &str, seq: u64, source: EventId, truth: Truth, stated_ns: u64) -> Sealed {
        let provenance = Provenance { source: Some(source), ..Stated::default().provenance };
        let (token, publisher_host, onset_ns) = (9, host, stated_ns);
        let again = Stated { token, seq, truth, provenance, publisher_host, ..Stated::default() };
        stated(&Stated { host: "node01", onset_ns, ..again })
    }

    /// What a publisher of a host states of node01. The time of an event is its number.
    fn of_host(publisher_host: &str, token: u64, seq: u64, truth: Truth) -> Sealed {
        stated(&Stated { token, seq, truth, publisher_host, host: "node01", ..Stated::default() })
    }

    /// The original was lost or became part of a fold.
    #[test]
    fn a_clear_of_which_only_the_repetition_comes_counts_on_its_host_as_of_when_it_was_stated() {
        let holds = of_host("a", 1, 10, True);
        let clear = |host, stated_ns| again(host, 20, id(2, 15), False, stated_ns);
        assert_eq!(truth(&table(&[holds.clone(), clear("a", 15)])), Some(False));
        assert_eq!(truth(&table(&[holds.clone(), clear("A", 15)])), Some(False), "the same host");
        assert_eq!(truth(&table(&[holds.clone(), clear("b", 15)])), Some(True), "another clock");
        assert_eq!(truth(&table(&[holds.clone(), clear("a", 0)])), Some(True), "who knows when");
        // A repetition undoes nothing that was stated or repeated after the clear.
        for later in [of_host("a", 1, 16, True), again("a", 16, id(1, 10), True, 10)] {
            assert_eq!(truth(&table(&[holds.clone(), later, clear("a", 15)])), Some(True));
        }
        let by_hand = Stated { publisher_host: "a", host: "node01", ..Stated::default() };
        let by_hand = stated(&Stated { is_kept: true, seq: 10, ..by_hand });
        assert_eq!(truth(&table(&[by_hand, clear("a", 15)])), Some(True), "by hand only");
    }

    /// The acting root, on host b, has found a publisher of host a lost. That is an event of b, and
    /// so is what it repeats for a publisher of its own.
    #[test]
    fn a_false_that_the_root_repeats_does_not_end_its_unknown_about_another_host() {
        let provenance = Provenance {
            source: Some(id(1, 10)),
            replaces: Some(id(1, 10)),
            ..Stated::default().provenance
        };
        let lost = Stated { token: 9, seq: 12, truth: Truth::Unknown, ..Stated::default() };
        let lost = Stated { provenance, publisher_host: "b", host: "node01", ..lost };
        let events = [of_host("a", 1, 10, True), stated(&lost)];
        let repeated = again("b", 20, id(2, 15), False, 15);
        let all = table(&[events[0].clone(), events[1].clone(), repeated]);
        assert_eq!(truth(&all), Some(Truth::Unknown));
        let stated_now = of_host("b", 2, 15, False);
        let all = table(&[events[0].clone(), events[1].clone(), stated_now]);
        assert_eq!(truth(&all), Some(False));
    }

    #[test]
    fn a_false_of_another_host_that_a_merge_brings_a_minute_late_never_counts() {
        let at = |account: u64, time_ns, truth| {
            let publisher = PublisherId { account, token: account };
            let event = EventId { publisher, seq: 1.into() };
            let clock = Some(account);
            Claim { clock, ..Claim::new(event, truth, Severity::Error, time_ns) }
        };
        let dead = at(1, 100_000_000_000, True);
        assert!(!at(2, 39_000_000_000, False).counts_over(&dead), "61 s older");
        assert!(at(2, 41_000_000_000, False).counts_over(&dead), "clocks may differ");
        assert!(at(2, 39_000_000_000, True).counts_over(&dead));
    }

    #[test]
    fn what_was_stated_by_hand_is_cleared_by_hand_only() {
        let by_hand = |token, truth| {
            stated(&Stated { token, seq: 1, truth, is_kept: true, ..Stated::default() })
        };
        let mut events = vec![by_hand(1, True), fan(2, 5, True), fan(2, 6, False)];
        assert_eq!(truth(&table(&events)), Some(True), "FANFAIL and NORMAL of a publisher");
        events.push(by_hand(3, False));
        assert_eq!(truth(&table(&events)), Some(False), "another run of ftbctl");
        events.push(fan(2, 7, True));
        assert_eq!(truth(&table(&events)), Some(True));
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
        for index in all.indices_after(0.into()) {
            rest.apply(index, events[index.get() as usize - 1].as_ref());
        }
        assert_eq!(rest, all);
    }

    #[test]
    fn a_full_table_gives_up_what_is_false_first_and_never_grows() {
        let limits = ConditionLimits { rows: 100, bytes: 1 << 20 };
        let mut table = ConditionTable::new(limits);
        let mut add = |seq: u64, truth, severity| {
            let component = format!("fan/{seq}");
            let event = stated(&Stated {
                seq,
                truth,
                severity,
                component: &component,
                ..Stated::default()
            });
            table.apply(seq.into(), event.as_ref())
        };
        for seq in 1..=100 {
            add(seq, if seq == 7 { False } else { True }, Severity::Error);
        }
        let next = 101;
        assert_eq!(add(next, True, Severity::Error), Applied::Counts { gone: vec![7.into()] });
        assert_eq!(
            add(next + 1, True, Severity::Info),
            Applied::Counts { gone: vec![(next + 1).into()] }
        );
        assert_eq!(add(next + 2, True, Severity::Fatal), Applied::Counts { gone: vec![1.into()] });
        assert_eq!((table.len(), table.dropped()), (100, 2));
        assert!(table.bytes() <= limits.bytes, "{}", table.bytes());
        let mut narrow = ConditionTable::new(ConditionLimits { bytes: 4_096, ..limits });
        for seq in 1..=100 {
            let component = format!("fan/{seq}");
            let fan = stated(&Stated { seq, component: &component, ..Stated::default() });
            narrow.apply(seq.into(), fan.as_ref());
        }
        assert!(narrow.bytes() <= 4_096 && narrow.len() > 5, "{}", narrow.len());
        assert_eq!(narrow.dropped(), 100 - narrow.len() as u64);
    }

    /// Else a host whose fault has gone would be watched, with nothing wrong.
    #[test]
    fn a_full_table_gives_up_watches_before_faults_that_are_unknown() {
        let mut table = ConditionTable::new(ConditionLimits { rows: 2, bytes: 1 << 20 });
        let mut add = |seq: u64, key, truth, severity| {
            let row = Stated { seq, key, truth, severity, ..Stated::default() };
            table.apply(seq.into(), stated(&row).as_ref())
        };
        add(1, "FANFAIL", Truth::Unknown, Severity::Fatal);
        add(2, crate::condition::WATCHED, True, Severity::Info);
        let gone = |index: u64| Applied::Counts { gone: vec![index.into()] };
        assert_eq!(add(3, "PSUFAIL", Truth::Unknown, Severity::Error), gone(2), "the watch");
        assert_eq!(add(4, "MEMERR", Truth::Unknown, Severity::Info), gone(4), "no fault");
        assert_eq!(add(5, "OVERTEMP", True, Severity::Warning), gone(3), "what holds stays");
    }

    #[test]
    fn a_site_of_ten_thousand_hosts_with_three_watches_each_has_room_by_default() {
        let mut table = ConditionTable::default();
        let mut index = 0;
        for host in 0..10_000 {
            for space in ["ftb.agent", "ftb.ipmi", "ftb.ib"] {
                index += 1;
                let host = format!("compute-node-{host:05}.cluster.example.org");
                let key = crate::condition::WATCHED;
                let (seq, host, component) = (index, &host[..], space);
                let watch = Stated { seq, host, component, key, ..Stated::default() };
                table.apply(index.into(), stated(&watch).as_ref());
            }
        }
        assert_eq!((table.len(), table.dropped()), (30_000, 0));
        assert!(table.bytes() < table.limits().bytes / 3, "{}", table.bytes());
        let one =
            table.indices_of(&["Compute-node-00007.cluster.example.org".to_owned()], 0.into());
        assert_eq!(one, [22, 23, 24].map(LogIndex::new));
    }
}
