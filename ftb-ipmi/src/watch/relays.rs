//! Controllers behind the BMC: whom to ask in this pass, and who is lost. No I/O, no clock: time is
//! counted in passes over all sensors.
//!
//! Records name controllers that many machines do not have (a backplane, a second board): who has
//! never answered is asked ever more seldom, and missed by nobody.

use crate::bmc::BmcError;
use ftb_rmcp::Controller;
use std::collections::BTreeMap;

/// Failures in a row that make a controller which has answered before a lost one.
const FAILURES_MAX: u32 = 2;
/// Longest rest between two attempts, in passes.
const REST_MAX: u32 = 64;
/// Completion codes by which a BMC (or the kernel's driver) says that nobody was reached: bus lost,
/// bus error, not acknowledged, timed out, destination unavailable.
const NOT_REACHED: [u8; 5] = [0x81, 0x82, 0x83, 0xC3, 0xD3];

/// Whether an error says that a controller behind the BMC was not reached.
pub(crate) fn is_unreached(controller: Controller, error: &BmcError) -> bool {
    let is_refused = error.code().is_some_and(|code| NOT_REACHED.contains(&code));
    !controller.is_bmc() && (is_refused || matches!(error, BmcError::Relay { .. }))
}

#[derive(Debug, Default)]
struct Relay {
    has_answered: bool,
    is_lost: bool,
    failures: u32,
    rest: u32,
}

/// All of one BMC: at most as many as there are slave addresses and channels.
#[derive(Debug, Default)]
pub(crate) struct Relays(BTreeMap<Controller, Relay>);

impl Relays {
    /// A pass over all sensors begins.
    pub(crate) fn begin_pass(&mut self) {
        for relay in self.0.values_mut() {
            relay.rest = relay.rest.saturating_sub(1);
        }
    }

    /// Whether it is not to be asked in this pass.
    pub(crate) fn is_resting(&self, controller: Controller) -> bool {
        self.0.get(&controller).is_some_and(|relay| relay.rest > 0)
    }

    /// Whether it has ever answered: then it is missed.
    pub(crate) fn is_missed(&self, controller: Controller) -> bool {
        self.0.get(&controller).is_some_and(|relay| relay.has_answered)
    }

    /// It answered; `true` when it was lost before.
    pub(crate) fn answered(&mut self, controller: Controller) -> bool {
        if controller.is_bmc() {
            return false;
        }
        let relay = self.0.entry(controller).or_default();
        let was_lost = relay.is_lost;
        *relay = Relay { has_answered: true, ..Relay::default() };
        was_lost
    }

    /// It was not reached; `true` when it counts as lost from now on.
    pub(crate) fn failed(&mut self, controller: Controller) -> bool {
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
    fn who_has_answered_is_lost_after_two_failures_and_found_again() {
        let mut relays = Relays::default();
        assert!(!relays.answered(BACKPLANE));
        assert!(!relays.failed(BACKPLANE), "one lost answer is no lost controller");
        assert!(relays.is_resting(BACKPLANE));
        relays.begin_pass();
        assert!(!relays.is_resting(BACKPLANE));
        assert!(relays.failed(BACKPLANE));
        relays.begin_pass();
        assert!(relays.is_resting(BACKPLANE), "the second rest is longer");
        relays.begin_pass();
        assert!(!relays.failed(BACKPLANE), "told once");
        assert!(relays.answered(BACKPLANE) && !relays.is_resting(BACKPLANE));
        assert!(!relays.answered(BACKPLANE));
    }

    #[test]
    fn who_never_answered_is_asked_ever_more_seldom_and_never_lost() {
        let mut relays = Relays::default();
        let mut asked = 0;
        for _ in 0..1000 {
            relays.begin_pass();
            if !relays.is_resting(BACKPLANE) {
                asked += 1;
                assert!(!relays.failed(BACKPLANE));
            }
        }
        assert!((15..30).contains(&asked), "{asked}");
        assert!(!relays.is_missed(BACKPLANE));
    }
}
