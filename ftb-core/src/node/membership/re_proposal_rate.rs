//! How much a child may re-propose of events of other hosts.
//!
//! A component that joins another one re-proposes its log: events of any host come up from one
//! agent. The holder of one agent's key could forge events in this way. So a child may do it for
//! [`EXPECTED_NS`] after it, an agent below it, or the acting root is new, and each child has a
//! budget. A child that comes again continues with its own.
//!
//! Responsible for: when, and how many bytes. Not responsible for: how large the budget is, and
//! what becomes of a child that exceeds it ([`super::claims`]).

use crate::ident::Rank;
use std::collections::BTreeMap;

/// How long a child may re-propose after something is new, and the time in which a budget that is
/// used up becomes whole.
const EXPECTED_NS: u64 = 600_000_000_000;
/// Most children of which this is remembered. Beyond it that one goes whose time is over first.
const CHILDREN_MAX: usize = 4_096;

/// What one child may re-propose.
#[derive(Clone, Copy, Default)]
struct ReProposalBudget {
    until_ns: u64,
    /// When it is whole again.
    whole_ns: u64,
    /// How many bytes it has when it is whole; `None`: the agents below the child may be others
    /// since that was known.
    bytes: Option<u64>,
}

impl ReProposalBudget {
    /// Since when it makes no difference.
    fn over_ns(&self) -> u64 {
        self.until_ns.max(self.whole_ns)
    }
}

/// The budgets of all children, by rank.
#[derive(Default)]
pub(super) struct ReProposals(BTreeMap<Rank, ReProposalBudget>);

impl ReProposals {
    /// Something is new: the child may re-propose from now on.
    pub(super) fn expect(&mut self, child: Rank, now_ns: u64) {
        self.make_room(child);
        let budget = self.0.entry(child).or_default();
        budget.until_ns = now_ns.saturating_add(EXPECTED_NS);
        budget.bytes = None;
    }

    fn make_room(&mut self, child: Rank) {
        if self.0.len() >= CHILDREN_MAX && !self.0.contains_key(&child) {
            let first = self.0.iter().min_by_key(|(_, budget)| budget.over_ns());
            first.map(|(rank, _)| *rank).and_then(|rank| self.0.remove(&rank));
        }
    }

    /// A child re-proposes that many bytes. `whole` gives the bytes of its whole budget. Says
    /// whether they count.
    pub(super) fn take(
        &mut self,
        child: Rank,
        bytes: u64,
        now_ns: u64,
        whole: impl FnOnce() -> u64,
    ) -> bool {
        self.is_expected(child, now_ns) && self.take_any(child, bytes, now_ns, whole)
    }

    /// Whether a child may re-propose now.
    pub(super) fn is_expected(&self, child: Rank, now_ns: u64) -> bool {
        self.0.get(&child).is_some_and(|budget| now_ns < budget.until_ns)
    }

    /// As [`Self::take`], of what a child may say at any time.
    pub(super) fn take_any(
        &mut self,
        child: Rank,
        bytes: u64,
        now_ns: u64,
        whole: impl FnOnce() -> u64,
    ) -> bool {
        self.make_room(child);
        let budget = self.0.entry(child).or_default();
        let whole = *budget.bytes.get_or_insert_with(whole);
        let part = u128::from(bytes) * u128::from(EXPECTED_NS) / u128::from(whole.max(1));
        let cost_ns = u64::try_from(part).unwrap_or(u64::MAX);
        let whole_ns = budget.whole_ns.max(now_ns).saturating_add(cost_ns);
        let counts = whole_ns - now_ns <= EXPECTED_NS;
        if counts {
            budget.whole_ns = whole_ns;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: Rank = Rank(1);

    #[test]
    fn a_budget_is_whole_again_after_ten_minutes() {
        let mut children = ReProposals::default();
        assert!(!children.take(CHILD, 1, 1, || 100), "nothing is new");
        children.expect(CHILD, 1);
        assert!(children.take(CHILD, 100, 1, || 100));
        assert!(!children.take(CHILD, 50, 1, || 100));
        children.expect(CHILD, 2);
        assert!(!children.take(CHILD, 50, 2, || 100), "it comes again");
        assert!(children.take(CHILD, 50, 2 + EXPECTED_NS / 2, || 100), "half of it is back");
        children.expect(CHILD, 3 + EXPECTED_NS);
        assert!(children.take(CHILD, 100, 3 + EXPECTED_NS, || 200), "there are more below it");
        assert!(!children.take(CHILD, 1, 3 + 2 * EXPECTED_NS, || 200), "nothing is new any more");
    }

    #[test]
    fn budgets_are_bounded_and_the_last_to_be_over_stay() {
        let mut children = ReProposals::default();
        for rank in 0..10_000 {
            children.expect(Rank(rank), u64::from(rank));
        }
        assert_eq!(children.0.len(), CHILDREN_MAX);
        assert!(children.take(Rank(9_999), 1, 10_000, || 100));
    }
}
