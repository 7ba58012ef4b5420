//! Which conditions the acting root makes unknown: those whose publisher's agent is not in the tree
//! for the grace time, and those that have expired.
//!
//! The check looks at the table and at the members, not at what happened. So a new acting root
//! continues where the one before stopped; only the grace time begins again.

use crate::catalog::names;
use crate::condition::{AGENT_SPACE, Subject, Truth, WATCHED};
use crate::ident::OriginId;
use crate::log::conditions::{ConditionRow, ConditionTable, NEIGHBOUR_FINDINGS};
use crate::numbers::LogIndex;
use crate::time::Now;
use std::collections::{BTreeMap, BTreeSet};

/// Conditions that become unknown in one check; the rest follows after [`BATCH_NS`].
const CHECKED_MAX: usize = 256;
/// The pause after a full check.
const BATCH_NS: u64 = 10_000_000;
/// The time between two checks.
const CHECK_NS: u64 = 1_000_000_000;

/// Agents that own conditions and are not in the tree.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Since when, on the monotonic clock.
    missing: BTreeMap<OriginId, u64>,
    next_ns: Option<u64>,
    /// Findings about hosts whose agents are back, by index, and since when.
    back: BTreeMap<LogIndex, u64>,
    /// Rows up to this one were checked; the statements about them may be on their way.
    after: Option<Subject>,
}

impl Owners {
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Arms or stops the check.
    pub(crate) fn arm(&mut self, now_ns: u64, is_wanted: bool) {
        match is_wanted {
            true => drop(self.next_ns.get_or_insert(now_ns.saturating_add(CHECK_NS))),
            false => *self = Self::default(),
        }
    }

    /// The conditions that become unknown now.
    pub(crate) fn check(
        &mut self,
        now: Now,
        grace_ns: u64,
        table: &ConditionTable,
        present: &BTreeSet<OriginId>,
    ) -> Vec<(Subject, ConditionRow)> {
        self.next_ns = Some(now.mono_ns.saturating_add(CHECK_NS));
        let owners: BTreeSet<OriginId> = table.owners().collect();
        self.missing.retain(|owner, _| owners.contains(owner) && !present.contains(owner));
        for owner in owners.difference(present) {
            self.missing.entry(*owner).or_insert(now.mono_ns);
        }
        let is_lost = |owner: &OriginId| {
            let since = self.missing.get(owner);
            since.is_some_and(|since| since.saturating_add(grace_ns) <= now.mono_ns)
        };
        if !table.has_expired(now.wall_ns) && !self.missing.keys().any(is_lost) {
            self.after = None;
            return Vec::new();
        }
        let has_expired =
            |row: &ConditionRow| row.expires_at_ns.is_some_and(|at_ns| at_ns <= now.wall_ns);
        let due = table.iter().filter(|(_, row)| {
            row.truth != Truth::Unknown
                && (has_expired(row) || row.is_owned() && is_lost(&row.owner))
        });
        let after = self.after.take();
        let rest = due.skip_while(|(subject, _)| after.as_ref().is_some_and(|a| *subject <= a));
        let batch = rest.take(CHECKED_MAX).map(|(subject, row)| (subject.clone(), row.clone()));
        let batch: Vec<(Subject, ConditionRow)> = batch.collect();
        if batch.len() == CHECKED_MAX {
            self.after = batch.last().map(|(subject, _)| subject.clone());
            self.next_ns = Some(now.mono_ns.saturating_add(BATCH_NS));
        }
        batch
    }
}

impl Owners {
    /// Findings that are over, each with the event that ends it: the agent of the host is in the
    /// tree, and has declared its watch since then or is there for the grace time. The event that
    /// should have ended it may be lost with a root, or stand before a finding that a merge brought
    /// late. What an agent finds about itself, such as a failed journal, is over when the agent was
    /// started again and does not report it. What an agent that is lost found about another one is
    /// over when that other one is there: its parent compares with it. It is over too when the next
    /// life of the agent that found it is there: that finds it again, if it is so.
    pub(crate) fn over(
        &mut self,
        now_ns: u64,
        grace_ns: u64,
        table: &ConditionTable,
        present: &BTreeSet<OriginId>,
    ) -> Vec<(Subject, &'static str)> {
        let (mut over, mut back) = (Vec::new(), BTreeMap::new());
        for (subject, row) in table.findings() {
            let event = match subject.key() {
                "NODE_DEAD" => names::FTB_NODE_BACK,
                "AGENT_LOST" => names::FTB_AGENT_BACK,
                "NODE_UNREACHABLE" => names::FTB_NODE_REACHABLE,
                "CERTIFICATE_EXPIRES" => names::FTB_CERTIFICATE_RENEWED,
                "AGENT_REFUSED" => names::FTB_AGENT_ACCEPTED,
                "MEMBERS_DIFFER" => names::FTB_MEMBERS_AGREE,
                "CLOCKS_DIFFER" => names::FTB_CLOCKS_AGREE,
                _ => names::FTB_JOURNAL_BACK,
            };
            let is_neighbour = NEIGHBOUR_FINDINGS.contains(&subject.key());
            // Others find these: its own next life, or its next parent.
            let is_again =
                ["JOURNAL_FAILED", "CERTIFICATE_EXPIRES"].contains(&subject.key()) || is_neighbour;
            let holds = !is_again || row.truth == Truth::Unknown;
            let watch_of = |host| {
                let watch = table.get(&Subject::new(host, AGENT_SPACE, WATCHED));
                watch.filter(|w| w.truth == Truth::True && present.contains(&w.owner))
            };
            // An agent publishes with its incarnation as token. The same life states it again.
            let found_by = row.source.publisher.token;
            let finder = || watch_of(subject.component()).filter(|w| w.owner.0 != found_by);
            let watch = watch_of(subject.host()).or_else(|| finder().filter(|_| is_neighbour));
            let Some(watch) = watch.filter(|_| holds) else { continue };
            let since_ns = self.back.get(&row.index).copied().unwrap_or(now_ns);
            if watch.index > row.index || since_ns.saturating_add(grace_ns) <= now_ns {
                over.push((subject.clone(), event));
            }
            back.insert(row.index, since_ns);
        }
        self.back = back;
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Provenance;
    use crate::testing::{Stated, stated};

    const GRACE_NS: u64 = 5_000_000_000;

    fn due(owners: &mut Owners, table: &ConditionTable, at_s: u64, present: &[u64]) -> usize {
        let present = present.iter().map(|origin| OriginId(*origin)).collect();
        let now = Now { mono_ns: at_s * 1_000_000_000, wall_ns: 0 };
        owners.check(now, GRACE_NS, table, &present).len()
    }

    #[test]
    fn conditions_of_an_absent_agent_become_unknown_after_the_grace_time() {
        let mut table = ConditionTable::default();
        table.apply(1.into(), stated(&Stated::default()).as_ref());
        let mut owners = Owners::default();
        assert_eq!(due(&mut owners, &table, 1, &[1]), 0);
        assert_eq!(due(&mut owners, &table, 2, &[7]), 0);
        assert_eq!(due(&mut owners, &table, 6, &[1]), 0, "it is back");
        assert_eq!(due(&mut owners, &table, 7, &[7]), 0, "the time begins again");
        assert_eq!(due(&mut owners, &table, 12, &[7]), 1);
    }

    #[test]
    fn many_conditions_of_a_lost_agent_become_unknown_without_a_pause() {
        let mut table = ConditionTable::default();
        for seq in 1..=600 {
            let component = format!("fan/{seq:03}");
            let fan = Stated { seq, component: &component, ..Stated::default() };
            table.apply(seq.into(), stated(&fan).as_ref());
        }
        let mut owners = Owners::default();
        assert_eq!(due(&mut owners, &table, 1, &[]), 0);
        let counts: Vec<usize> = (0..3).map(|_| due(&mut owners, &table, 9, &[])).collect();
        assert_eq!(counts, [256, 256, 88]);
        assert_eq!(owners.deadline_ns(), Some(10_000_000_000), "then as usual");
    }

    #[test]
    fn a_finding_about_a_host_is_over_when_its_agent_watches_it_again() {
        let watch = |seq, truth| {
            let (component, key) = (AGENT_SPACE, WATCHED);
            stated(&Stated { seq, component, key, truth, ..Stated::default() })
        };
        let dead =
            |truth| stated(&Stated { token: 2, key: "NODE_DEAD", truth, ..Stated::default() });
        let ended = |events: &[crate::sealed::Sealed], present: &[u64]| {
            let mut table = ConditionTable::default();
            for (index, event) in (1..).zip(events) {
                table.apply(LogIndex::new(index), event.as_ref());
            }
            let present = present.iter().map(|origin| OriginId(*origin)).collect();
            let found = Owners::default().over(1, GRACE_NS, &table, &present);
            found.into_iter().map(|(_, event)| event).collect::<Vec<_>>()
        };
        let up = watch(1, Truth::True);
        assert_eq!(ended(&[dead(Truth::True), up.clone()], &[1]), ["FTB_NODE_BACK"]);
        assert!(ended(&[dead(Truth::True), up.clone()], &[]).is_empty(), "it is not in the tree");
        assert!(ended(&[up.clone(), dead(Truth::True)], &[1]).is_empty(), "it died since then");
        assert!(ended(&[dead(Truth::True), watch(1, Truth::Unknown)], &[1]).is_empty());
        assert!(ended(&[dead(Truth::False), up.clone()], &[1]).is_empty());
        // A merge brings the finding behind the watch: it is over when the agent stays.
        let mut table = ConditionTable::default();
        for (index, event) in (1..).zip([up, dead(Truth::True)]) {
            table.apply(LogIndex::new(index), event.as_ref());
        }
        let (mut owners, present) = (Owners::default(), [OriginId(1)].into());
        assert!(owners.over(1, GRACE_NS, &table, &present).is_empty());
        assert!(owners.over(GRACE_NS, GRACE_NS, &table, &present).is_empty());
        assert_eq!(owners.over(GRACE_NS + 1, GRACE_NS, &table, &present).len(), 1);
    }

    #[test]
    fn what_an_agent_finds_about_itself_is_over_when_its_next_life_does_not_find_it() {
        let rows = [
            ("JOURNAL_FAILED", "FTB_JOURNAL_BACK"),
            ("CERTIFICATE_EXPIRES", "FTB_CERTIFICATE_RENEWED"),
        ];
        let neighbours = [
            ("AGENT_REFUSED", "FTB_AGENT_ACCEPTED"),
            ("MEMBERS_DIFFER", "FTB_MEMBERS_AGREE"),
            ("CLOCKS_DIFFER", "FTB_CLOCKS_AGREE"),
        ];
        let rows = rows.map(|row| (row, "")).into_iter();
        for ((key, event), found_by) in rows.chain(neighbours.map(|row| (row, "node01"))) {
            let over = |truth| {
                let (component, watched) = (AGENT_SPACE, WATCHED);
                let up = Stated { seq: 1, component, key: watched, ..Stated::default() };
                let found =
                    Stated { token: 2, key, component: found_by, truth, ..Stated::default() };
                let mut table = ConditionTable::default();
                for (index, event) in (1..).zip([stated(&found), stated(&up)]) {
                    table.apply(LogIndex::new(index), event.as_ref());
                }
                Owners::default().over(1, GRACE_NS, &table, &[OriginId(1)].into())
            };
            assert!(over(Truth::True).is_empty(), "{key}: it holds");
            let ended: Vec<_> = over(Truth::Unknown).into_iter().map(|(_, event)| event).collect();
            assert_eq!(ended, [event]);
        }
    }

    #[test]
    fn what_an_agent_found_about_another_is_over_when_its_next_life_is_there() {
        let over = |key, by_token, origin, present: &[u64]| {
            let found = Stated { key, host: "node09", component: "node01", ..Stated::default() };
            let truth = Truth::Unknown;
            let found = stated(&Stated { token: by_token, truth, ..found });
            let watch = Stated { host: "node01", component: AGENT_SPACE, ..Stated::default() };
            let provenance = Provenance::direct(OriginId(origin));
            let watch = stated(&Stated { token: origin, key: WATCHED, provenance, ..watch });
            let mut table = ConditionTable::default();
            for (index, event) in (1..).zip([found, watch]) {
                table.apply(LogIndex::new(index), event.as_ref());
            }
            let present = present.iter().map(|origin| OriginId(*origin)).collect();
            let over = Owners::default().over(1, GRACE_NS, &table, &present);
            over.into_iter().map(|(_, event)| event).collect::<Vec<_>>()
        };
        assert_eq!(over("AGENT_REFUSED", 7, 8, &[8]), ["FTB_AGENT_ACCEPTED"]);
        assert_eq!(over("MEMBERS_DIFFER", 7, 8, &[8]), ["FTB_MEMBERS_AGREE"]);
        assert!(over("AGENT_REFUSED", 7, 7, &[7]).is_empty(), "it states it again itself");
        assert!(over("AGENT_REFUSED", 7, 8, &[]).is_empty(), "it is not in the tree");
    }
}
