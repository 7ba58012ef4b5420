//! The timers of a node.
//!
//! A timer that one event arms has a time in the table. Every other timer follows from the state of
//! a part. [`Node`](super::Node) computes both in one place, and expires them in the order of
//! [`Timer::ALL`].

/// What happens when time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A heartbeat is due on a link, a link is silent, or its peer has not said hello.
    Links,
    /// A dial has no answer.
    Dial,
    /// A hello has no answer.
    Hello,
    /// The search asks twice as many agents at once.
    WidenSearch,
    /// The search has found no parent.
    EndSearch,
    /// Agents that were busy are asked again.
    RetryBusy,
    /// A better parent is looked for.
    BetterParent,
    /// A client's question for the tree has no answer.
    TreeQuery,
    /// Neighbours have not answered a request for the path of an event.
    Trace,
    /// Probes of a suspicion have no answer, or the acting root probes an expected member again.
    Suspicion,
    /// The acting root sends its membership snapshot.
    Snapshot,
    /// A new root compares the members with the snapshot of the root before.
    Reconcile,
    /// A new root has waited for a log.
    AwaitLog,
    /// No agent has re-proposed what other epochs have logged.
    Fork,
    /// No agent has brought the entries that the journal could not read.
    Unreadable,
    /// A history request has no answer.
    HistoryRequest,
    /// Confirmed events have been kept for the grace time.
    OutboxGrace,
    /// Events wait too long until they are on disk.
    Settle,
    /// Quiet subscriptions learn their position.
    Covered,
    /// A fold leaves.
    Fold,
    /// The acting root appends the fold of a group.
    Group,
    /// Subscribers learn of events that storm control shed.
    StormGap,
    /// Publishers learn that their events are acknowledged.
    DelayedAck,
    /// Conditions are repeated, or become unknown.
    Conditions,
    /// Unconfirmed events are sent again.
    Resend,
    /// Filters that have come or gone are merged.
    MergeInterest,
    /// A standby acknowledges nothing, or may be standby again.
    Standby,
    /// A journal acknowledges nothing.
    Journal,
    /// Clients of a user that published too fast are read again.
    UserRate,
    /// What two agents did not have in common is over.
    Findings,
}

impl Timer {
    /// All timers, in the order in which they expire.
    pub(crate) const ALL: [Self; 30] = [
        Self::Links,
        Self::Dial,
        Self::Hello,
        Self::WidenSearch,
        Self::EndSearch,
        Self::RetryBusy,
        Self::BetterParent,
        Self::TreeQuery,
        Self::Trace,
        Self::Reconcile,
        Self::Snapshot,
        Self::Suspicion,
        Self::AwaitLog,
        Self::Unreadable,
        Self::Fork,
        Self::HistoryRequest,
        Self::OutboxGrace,
        Self::Settle,
        Self::Covered,
        Self::Fold,
        Self::Group,
        Self::StormGap,
        Self::DelayedAck,
        Self::Conditions,
        Self::Resend,
        Self::MergeInterest,
        Self::Standby,
        Self::Journal,
        Self::Findings,
        Self::UserRate,
    ];
}

/// The timers that one event arms, on the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct TimerTable([Option<u64>; Timer::ALL.len()]);

impl TimerTable {
    fn slot(&mut self, timer: Timer) -> &mut Option<u64> {
        &mut self.0[timer as usize]
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<u64> {
        self.0[timer as usize]
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    pub(crate) fn set(&mut self, timer: Timer, at_ns: u64) {
        *self.slot(timer) = Some(at_ns);
    }

    /// Keeps the earlier of two times.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at_ns: u64) {
        let slot = self.slot(timer);
        *slot = Some(slot.map_or(at_ns, |set_ns| set_ns.min(at_ns)));
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        *self.slot(timer) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timer_has_a_slot_of_its_own() {
        let mut table = TimerTable::default();
        for timer in Timer::ALL {
            assert!(!table.is_set(timer), "{timer:?}");
            table.set(timer, 7);
            table.set_earlier(timer, 9);
            assert_eq!(table.get(timer), Some(7), "{timer:?}");
        }
        table.stop(Timer::Resend);
        let set = Timer::ALL.into_iter().filter(|timer| table.is_set(*timer)).count();
        assert_eq!(set, Timer::ALL.len() - 1);
    }
}
