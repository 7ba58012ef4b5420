//! Which conditions the acting root makes unknown: those whose publisher's agent is not in the tree
//! for the grace time, and those that have expired.
//!
//! The check looks at the table and at the members, not at what happened. So a new acting root
//! continues where the one before stopped; only the grace time begins again.

use crate::condition::{Subject, Truth};
use crate::ident::OriginId;
use crate::log::conditions::{ConditionRow, ConditionTable};
use crate::time::Now;
use std::collections::{BTreeMap, BTreeSet};

/// Conditions that become unknown in one check; the rest follows with the next.
const CHECKED_MAX: usize = 256;
/// The time between two checks.
const CHECK_NS: u64 = 1_000_000_000;

/// Agents that own conditions and are not in the tree.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Since when, on the monotonic clock.
    missing: BTreeMap<OriginId, u64>,
    next_ns: Option<u64>,
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
        let owned = |row: &ConditionRow| !row.is_kept && row.truth != Truth::Unknown;
        let owners: BTreeSet<OriginId> =
            table.iter().filter(|(_, row)| owned(row)).map(|(_, row)| row.owner).collect();
        self.missing.retain(|owner, _| owners.contains(owner) && !present.contains(owner));
        for owner in owners.difference(present) {
            self.missing.entry(*owner).or_insert(now.mono_ns);
        }
        let is_lost = |owner: &OriginId| {
            let since = self.missing.get(owner);
            since.is_some_and(|since| since.saturating_add(grace_ns) <= now.mono_ns)
        };
        let has_expired =
            |row: &ConditionRow| row.expires_at_ns.is_some_and(|at_ns| at_ns <= now.wall_ns);
        let due = table.iter().filter(|(_, row)| {
            row.truth != Truth::Unknown && (has_expired(row) || owned(row) && is_lost(&row.owner))
        });
        due.take(CHECKED_MAX).map(|(subject, row)| (subject.clone(), row.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        table.apply(1, stated(&Stated::default()).as_ref());
        let mut owners = Owners::default();
        assert_eq!(due(&mut owners, &table, 1, &[1]), 0);
        assert_eq!(due(&mut owners, &table, 2, &[7]), 0);
        assert_eq!(due(&mut owners, &table, 6, &[1]), 0, "it is back");
        assert_eq!(due(&mut owners, &table, 7, &[7]), 0, "the time begins again");
        assert_eq!(due(&mut owners, &table, 12, &[7]), 1);
    }
}
