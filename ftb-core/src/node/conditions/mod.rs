//! Conditions at an agent: what its clients state, and which conditions become unknown.
//!
//! Not responsible for: the table ([`crate::log::conditions`]), and how statements travel.

mod owners;
mod statements;

pub use statements::{STATEMENT_BYTES_MAX, STATEMENT_USER_BYTES_MAX};

use crate::node::api::LinkId;
use crate::position::Epoch;
use owners::Owners;
use statements::Statements;

/// What an agent has to do with conditions.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    statements: Statements,
    owners: Owners,
    /// The log and the parent by which the statements were repeated last.
    repeated_in: (Option<Epoch>, Option<LinkId>),
    /// Log or parent have changed: a merge may yet bring older statements, also of an earlier life
    /// of this agent. So the statements are repeated once more.
    repeats_again: bool,
    /// Rows that had been dropped from the full table when that was reported.
    dropped_reported: u64,
    /// When this agent declares that it watches its host; `None`: it is in no tree yet, or has
    /// declared it.
    declare_at_ns: Option<u64>,
    is_declared: bool,
    /// Subjects that were cleared without ever being stated, and not reported.
    unset: u64,
    unset_quiet_until_ns: u64,
}

/// The shortest time between two reports of subjects that were cleared without being stated.
const UNSET_QUIET_NS: u64 = 10_000_000_000;

impl Conditions {
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let declare = self.declare_at_ns;
        let deadlines = [self.statements.deadline_ns(), self.owners.deadline_ns(), declare];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.statements.bytes()
    }

    /// What clients here state.
    pub(crate) fn statements(&mut self) -> &mut Statements {
        &mut self.statements
    }

    /// What the acting root makes unknown.
    pub(crate) fn owners(&mut self) -> &mut Owners {
        &mut self.owners
    }

    /// Whether log or parent differ from those of the last call.
    pub(crate) fn has_moved(&mut self, log: Option<Epoch>, parent: Option<LinkId>) -> bool {
        let has_moved = std::mem::replace(&mut self.repeated_in, (log, parent)) != (log, parent);
        self.repeats_again |= has_moved;
        has_moved
    }

    /// Statements are repeated at the latest `later_ns` from now, and `again_ns` after those that
    /// followed a change of log or parent.
    pub(crate) fn arm_repeats(&mut self, now_ns: u64, again_ns: u64, later_ns: u64) {
        let pause_ns = if self.repeats_again { again_ns } else { later_ns };
        if self.statements.arm(now_ns.saturating_add(pause_ns)) {
            self.repeats_again = false;
        }
    }

    /// The agent is in a tree: it declares its watch then, once.
    pub(crate) fn plan_declaration(&mut self, at_ns: u64) {
        if !self.is_declared {
            self.declare_at_ns.get_or_insert(at_ns);
        }
    }

    /// Whether the declaration is due now.
    pub(crate) fn take_declaration(&mut self, now_ns: u64) -> bool {
        let is_due = self.declare_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some();
        self.is_declared |= is_due;
        is_due
    }

    /// A subject was cleared that had never been stated. Gives the number of those that are
    /// reported now; `None`: not yet.
    pub(crate) fn on_unset(&mut self, now_ns: u64) -> Option<u64> {
        self.unset += 1;
        if now_ns < self.unset_quiet_until_ns {
            return None;
        }
        self.unset_quiet_until_ns = now_ns.saturating_add(UNSET_QUIET_NS);
        Some(std::mem::take(&mut self.unset))
    }

    /// Rows that were dropped from the table and not reported.
    pub(crate) fn take_dropped(&mut self, dropped: u64) -> u64 {
        let reported = std::mem::replace(&mut self.dropped_reported, dropped);
        dropped.saturating_sub(reported)
    }
}
