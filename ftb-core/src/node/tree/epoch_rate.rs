//! How often a child may make this agent follow a higher epoch.
//!
//! An agent that hears of a higher epoch passes it up, and the acting root opens one above it: all
//! agents say anew where they resume. Merges of logs do that, a few times in a row. The holder of
//! one agent's key could do it with each frame. So each child has a budget. What is beyond it
//! waits: the child says it again in its next heartbeat or hello. A child that goes on to raise the
//! epoch meanwhile is refused.
//!
//! Not responsible for: which numbers are plausible ([`super::plausible`]).

use crate::ident::Rank;
use std::collections::BTreeMap;

/// Epochs that a child may raise in a row.
const BURST: u32 = 4;
/// The time after which it may raise one more.
const REFILL_NS: u64 = 10_000_000_000;
/// Further epochs that it may say while it must wait: several agents below it may be in a merge.
const WAITING_MAX: u32 = 16;
/// Most agents of which this is remembered. Beyond it those go that may raise the epoch soonest.
const AGENTS_MAX: usize = 4_096;

/// What comes of a higher epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raise {
    /// It counts.
    Counts,
    /// It counts when it is said again later.
    Waits,
    /// No honest agent raises the epoch that often.
    Refused,
}

/// One agent.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// How much of the burst is used at `at_ns`, as the time until it is whole again.
    used_ns: u64,
    at_ns: u64,
    /// The highest epoch that it has said.
    highest: u64,
    /// How many it has said while it had to wait.
    waiting: u32,
}

impl Budget {
    fn refill(&mut self, now_ns: u64) {
        self.used_ns = self.used_ns.saturating_sub(now_ns.saturating_sub(self.at_ns));
        self.at_ns = now_ns;
    }

    fn raise(&mut self, epoch: u64, now_ns: u64) -> Raise {
        self.refill(now_ns);
        let is_further = epoch > self.highest;
        self.highest = self.highest.max(epoch);
        if self.used_ns <= u64::from(BURST - 1) * REFILL_NS {
            self.used_ns += REFILL_NS;
            self.waiting = 0;
            return Raise::Counts;
        }
        self.waiting += u32::from(is_further);
        if self.waiting > WAITING_MAX { Raise::Refused } else { Raise::Waits }
    }
}

/// The budgets, by rank: an agent that comes again continues with its own.
#[derive(Debug, Default)]
pub(super) struct EpochRates(BTreeMap<Rank, Budget>);

impl EpochRates {
    /// An agent says an epoch that is higher than all that are known here.
    pub(super) fn raise(&mut self, rank: Rank, epoch: u64, now_ns: u64) -> Raise {
        if self.0.len() >= AGENTS_MAX && !self.0.contains_key(&rank) {
            self.0.values_mut().for_each(|budget| budget.refill(now_ns));
            let soonest = self.0.iter().min_by_key(|(_, budget)| budget.used_ns);
            soonest.map(|(rank, _)| *rank).and_then(|rank| self.0.remove(&rank));
        }
        let fresh = Budget { used_ns: 0, at_ns: now_ns, highest: 0, waiting: 0 };
        self.0.entry(rank).or_insert(fresh).raise(epoch, now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: Rank = Rank(1);

    #[test]
    fn a_child_raises_four_epochs_in_a_row_and_then_one_in_ten_seconds() {
        let mut rates = EpochRates::default();
        let mut raise = |epoch, at_s: u64| rates.raise(CHILD, epoch, at_s * 1_000_000_000);
        for epoch in 1..=4 {
            assert_eq!(raise(epoch, 1), Raise::Counts);
        }
        for _ in 0..100 {
            assert_eq!(raise(5, 2), Raise::Waits, "it says the same again and again");
        }
        assert_eq!(raise(5, 11), Raise::Counts);
        assert_eq!(raise(6, 12), Raise::Waits);
        assert_eq!(raise(6, 21), Raise::Counts);
        for (at_s, epoch) in (7..=10).map(|epoch| (100 + epoch, epoch)) {
            assert_eq!(raise(epoch, at_s), Raise::Counts, "the budget is whole again");
        }
    }

    #[test]
    fn a_child_that_raises_the_epoch_while_it_must_wait_is_refused() {
        let mut rates = EpochRates::default();
        let said: Vec<Raise> = (1..=21).map(|epoch| rates.raise(CHILD, epoch, 1)).collect();
        assert_eq!(said.iter().filter(|raise| **raise == Raise::Counts).count(), 4);
        assert_eq!(said.iter().filter(|raise| **raise == Raise::Waits).count(), 16);
        assert_eq!(said.last(), Some(&Raise::Refused));
        assert_eq!(rates.raise(Rank(2), 22, 1), Raise::Counts, "another child has its own");
    }

    #[test]
    fn budgets_are_bounded() {
        let mut rates = EpochRates::default();
        for rank in 0..10_000 {
            assert_eq!(rates.raise(Rank(rank), u64::from(rank), 1), Raise::Counts);
        }
        assert_eq!(rates.0.len(), AGENTS_MAX);
    }
}
