//! Who started a workflow, and which faults are closed. The policy numbers faults ([`FaultId`]). A
//! fault closes when its workflow has ended or was cancelled. Later actions for a closed fault are
//! refused and counted.

use crate::names::FaultId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Closed faults that are remembered one by one. All older faults count as closed.
pub(super) const CLOSED_MAX: usize = 1024;

/// Who requested something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Initiator {
    /// The clock or a signal: there is no answer.
    #[default]
    Internal,
    /// A person or a program that expects an answer.
    Request(u64),
    /// The policy, for this fault.
    Fault(FaultId),
}

impl Initiator {
    pub(super) fn fault(self) -> Option<FaultId> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Internal | Self::Request(_) => None,
        }
    }

    pub(super) fn request(self) -> Option<u64> {
        match self {
            Self::Request(request) => Some(request),
            Self::Internal | Self::Fault(_) => None,
        }
    }

    /// ` (fault 3)`, for display.
    pub(super) fn words(self) -> String {
        self.fault().map(|fault| format!(" (fault {fault})")).unwrap_or_default()
    }
}

/// Closed faults, and the newest known fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Faults {
    newest: FaultId,
    /// All up to this one are closed.
    below: FaultId,
    closed: BTreeSet<FaultId>,
}

impl Faults {
    /// The newest known fault. Another policy continues after it.
    pub fn newest(&self) -> FaultId {
        self.newest
    }

    /// Whether an action for that fault is too late.
    pub fn is_closed(&self, fault: FaultId) -> bool {
        fault <= self.below || self.closed.contains(&fault)
    }

    pub(super) fn hear(&mut self, fault: FaultId) {
        self.newest = self.newest.max(fault);
    }

    pub(super) fn close(&mut self, fault: FaultId) {
        self.hear(fault);
        if fault > self.below {
            self.closed.insert(fault);
        }
        while self.closed.len() > CLOSED_MAX {
            self.below = self.closed.pop_first().unwrap_or(self.below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_faults_stay_closed_and_take_no_more_room() {
        let mut faults = Faults::default();
        faults.close(FaultId(2));
        assert!(faults.is_closed(FaultId(2)) && !faults.is_closed(FaultId(1)));
        for fault in 3..3000 {
            faults.close(FaultId(fault));
        }
        assert_eq!(faults.closed.len(), CLOSED_MAX);
        assert!((0..3000).all(|fault| faults.is_closed(FaultId(fault))));
        assert!(!faults.is_closed(FaultId(3000)) && faults.newest() == FaultId(2999));
    }
}
