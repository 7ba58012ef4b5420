//! The initiator of a workflow, and which faults are closed. The policy numbers faults
//! ([`FaultId`]). A fault closes when its workflow has ended or was cancelled. Later actions for a
//! closed fault are refused and counted.

use crate::message::FaultCause;
use crate::names::FaultId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Closed faults that are remembered one by one. All older faults count as closed.
pub(super) const CLOSED_MAX: usize = 1024;

/// Most open faults whose causes are remembered.
const CAUSES_MAX: usize = 1024;

/// The source of a request.
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
}

/// Closed faults, the causes of open ones, and the newest known fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Faults {
    newest: FaultId,
    /// Of open faults; of the newest ones only.
    #[serde(default)]
    causes: BTreeMap<FaultId, FaultCause>,
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

    /// The policy acts because of this.
    pub(super) fn explain(&mut self, fault: FaultId, cause: FaultCause) {
        self.causes.insert(fault, cause);
        while self.causes.len() > CAUSES_MAX {
            self.causes.pop_first();
        }
    }

    pub(super) fn cause(&self, fault: FaultId) -> Option<&FaultCause> {
        self.causes.get(&fault)
    }

    /// ` (fault 3: FTB_IPMI_FANFAIL on node03, rule fan failed)`, for display.
    pub(super) fn words(&self, by: Initiator) -> String {
        let Some(fault) = by.fault() else { return String::new() };
        match self.cause(fault) {
            Some(cause) => format!(" ({})", cause.words(fault)),
            None => format!(" (fault {fault})"),
        }
    }

    pub(super) fn hear(&mut self, fault: FaultId) {
        self.newest = self.newest.max(fault);
    }

    pub(super) fn close(&mut self, fault: FaultId) {
        self.hear(fault);
        self.causes.remove(&fault);
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
