//! Who wanted a remedy, and which faults are closed. The policy numbers what it sees ([`FaultId`]); a fault is closed here
//! when its remedy has ended or was called off, and an action that still comes of it is refused and counted, as one of a
//! closed episode is.

use crate::names::FaultId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most closed faults that are remembered one by one: all older ones count as closed too.
pub(super) const CLOSED_MAX: usize = 1024;

/// Who wants something of a JL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// Nobody who could be answered: the clock, a signal.
    #[default]
    Nobody,
    /// A person or a program, that is to be answered.
    Request(u64),
    /// The policy, because of this fault.
    Fault(FaultId),
}

impl By {
    /// The fault, if it is one.
    pub(super) fn fault(self) -> Option<FaultId> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Nobody | Self::Request(_) => None,
        }
    }

    /// The request, if it is one.
    pub(super) fn request(self) -> Option<u64> {
        match self {
            Self::Request(request) => Some(request),
            Self::Nobody | Self::Fault(_) => None,
        }
    }

    /// ` (fault 3)`, for people.
    pub(super) fn words(self) -> String {
        self.fault().map(|fault| format!(" (fault {fault})")).unwrap_or_default()
    }
}

/// Faults that are closed, and the newest that was heard of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Faults {
    newest: FaultId,
    /// All up to this one are closed.
    below: FaultId,
    closed: BTreeSet<FaultId>,
}

impl Faults {
    /// The newest that was heard of: those of another policy come behind it.
    pub fn newest(&self) -> FaultId {
        self.newest
    }

    /// Whether an action of that fault comes too late.
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
    fn what_is_closed_stays_closed_and_takes_no_more_room() {
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
