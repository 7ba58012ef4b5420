//! Controllers behind the BMC: which ones to read in this pass, and which ones are lost. No I/O, no
//! clock: time is counted in passes over all sensors.
//!
//! Sensor records name controllers that many machines lack (a backplane, a second board). A
//! controller that never answered is read at growing intervals and never counts as lost.

use ftb_rmcp::Controller;
use std::collections::BTreeMap;

/// Failures in a row after which a controller that answered before is lost.
const FAILURES_MAX: u32 = 2;
/// Longest pause between two attempts, in passes.
const REST_MAX: u32 = 64;
#[derive(Debug, Default)]
struct Relay {
    has_answered: bool,
    is_lost: bool,
    failures: u32,
    rest: u32,
}

/// The controllers of one BMC; bounded by the number of slave addresses and channels.
#[derive(Debug, Default)]
pub(crate) struct Relays(BTreeMap<Controller, Relay>);

impl Relays {
    /// Begins a pass over all sensors.
    pub(crate) fn begin_pass(&mut self) {
        for relay in self.0.values_mut() {
            relay.rest = relay.rest.saturating_sub(1);
        }
    }

    /// Whether it must not be read in this pass.
    pub(crate) fn is_resting(&self, controller: Controller) -> bool {
        self.0.get(&controller).is_some_and(|relay| relay.rest > 0)
    }

    /// Whether it has ever answered.
    pub(crate) fn has_answered(&self, controller: Controller) -> bool {
        self.0.get(&controller).is_some_and(|relay| relay.has_answered)
    }

    /// `true` if it was lost before.
    pub(crate) fn on_answer(&mut self, controller: Controller) -> bool {
        if controller.is_bmc() {
            return false;
        }
        let relay = self.0.entry(controller).or_default();
        let was_lost = relay.is_lost;
        *relay = Relay { has_answered: true, ..Relay::default() };
        was_lost
    }

    /// `true` if it is lost from now on.
    pub(crate) fn on_failure(&mut self, controller: Controller) -> bool {
        let relay = self.0.entry(controller).or_default();
        relay.rest = 1_u32.checked_shl(relay.failures).unwrap_or(REST_MAX).min(REST_MAX);
        relay.failures = relay.failures.saturating_add(1);
        let is_new = relay.has_answered && !relay.is_lost && relay.failures >= FAILURES_MAX;
        relay.is_lost |= is_new;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKPLANE: Controller = Controller { channel: 0, slave: 0xC0 };

    #[test]
    fn a_controller_that_answered_is_lost_after_two_failures_and_found_again() {
        let mut relays = Relays::default();
        assert!(!relays.on_answer(BACKPLANE));
        assert!(!relays.on_failure(BACKPLANE), "one lost answer does not mean a lost controller");
        assert!(relays.is_resting(BACKPLANE));
        relays.begin_pass();
        assert!(!relays.is_resting(BACKPLANE));
        assert!(relays.on_failure(BACKPLANE));
        relays.begin_pass();
        assert!(relays.is_resting(BACKPLANE), "the second pause is longer");
        relays.begin_pass();
        assert!(!relays.on_failure(BACKPLANE), "reported once");
        assert!(relays.on_answer(BACKPLANE) && !relays.is_resting(BACKPLANE));
        assert!(!relays.on_answer(BACKPLANE));
    }

    #[test]
    fn a_controller_that_never_answered_is_read_at_growing_intervals_and_never_lost() {
        let mut relays = Relays::default();
        let mut reads = 0;
        for _ in 0..1000 {
            relays.begin_pass();
            if !relays.is_resting(BACKPLANE) {
                reads += 1;
                assert!(!relays.on_failure(BACKPLANE));
            }
        }
        assert!((15..30).contains(&reads), "{reads}");
        assert!(!relays.has_answered(BACKPLANE));
    }
}
