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
    /// Rows that had been dropped from the full table when that was reported.
    dropped_reported: u64,
}

impl Conditions {
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let deadlines = [self.statements.deadline_ns(), self.owners.deadline_ns()];
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
        std::mem::replace(&mut self.repeated_in, (log, parent)) != (log, parent)
    }

    /// Rows that were dropped from the table and not reported.
    pub(crate) fn take_dropped(&mut self, dropped: u64) -> u64 {
        let reported = std::mem::replace(&mut self.dropped_reported, dropped);
        dropped.saturating_sub(reported)
    }
}
