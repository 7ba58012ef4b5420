//! The reported state of one port. A pure state machine: drivers repeat events, ports flap, and a
//! port can go down and up again before its state is read.
//!
//! The first change is reported at once. Changes within the debounce time after it are counted. At
//! its end the number of changes is reported, and the state if it differs from the reported one. A
//! port that flapped is steady when it has not changed for [`STEADY`] debounce times.

use crate::facts::PortState;

/// Debounce times without a change after which a port that flapped is steady.
pub const STEADY: u32 = 30;

/// The event of verbs before the state was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// `IBV_EVENT_PORT_ERR`.
    Down,
    /// `IBV_EVENT_PORT_ACTIVE`.
    Up,
}

/// A report about a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortReport {
    /// The port became unavailable.
    Err {
        /// Changes before this one that were not reported.
        flaps: u32,
    },
    /// The port became available.
    Active {
        /// Changes before this one that were not reported.
        flaps: u32,
    },
    /// The state changed, and the availability did not.
    Info,
    /// The port changed several times within one debounce time.
    Flapping {
        /// Changes after the reported one.
        changes: u32,
    },
    /// The port flapped and has not changed since then.
    Steady,
}

/// The state machine of one port.
#[derive(Debug)]
pub struct PortWatch {
    debounce_ns: u64,
    current: PortState,
    /// The availability reported last.
    reported_up: bool,
    /// The state reported last.
    reported_state: PortState,
    /// End of the debounce time, in which changes of availability are counted.
    quiet_until_ns: Option<u64>,
    /// Changes within the debounce time.
    unreported: u32,
    /// End of the debounce time of other changes.
    info_quiet_until_ns: Option<u64>,
    /// The port flapped: when it is steady, without another change.
    steady_at_ns: Option<u64>,
}

impl PortWatch {
    /// A port whose state was just reported.
    pub fn new(state: PortState, debounce_ns: u64) -> Self {
        Self {
            debounce_ns,
            current: state,
            reported_up: state.is_up(),
            reported_state: state,
            quiet_until_ns: None,
            unreported: 0,
            info_quiet_until_ns: None,
            steady_at_ns: None,
        }
    }

    /// A new reading of the state, after an event of verbs (`edge`) or without one.
    pub fn observe(
        &mut self,
        now_ns: u64,
        edge: Option<Edge>,
        state: PortState,
    ) -> Vec<PortReport> {
        let mut reports = self.expire(now_ns);
        let mut up = self.current.is_up();
        self.current = state;
        // An edge that contradicts the known state is a change, even if the state, read later, does
        // not show it any more. An edge that agrees with it is a repetition by the driver.
        let from_edge = match edge {
            Some(Edge::Down) if up => Some(false),
            Some(Edge::Up) if !up => Some(true),
            _ => None,
        };
        for next in from_edge.into_iter().chain([state.is_up()]) {
            if next != up {
                up = next;
                reports.extend(self.change(now_ns, next));
            }
        }
        reports.extend(self.report_state(now_ns));
        reports
    }

    /// Ends debounce times that are over.
    pub fn expire(&mut self, now_ns: u64) -> Vec<PortReport> {
        let mut reports = Vec::new();
        if self.info_quiet_until_ns.is_some_and(|until| until <= now_ns) {
            self.info_quiet_until_ns = None;
        }
        if self.quiet_until_ns.is_some_and(|until| until <= now_ns) {
            self.quiet_until_ns = None;
            let flaps = std::mem::take(&mut self.unreported);
            if flaps > 1 {
                reports.push(PortReport::Flapping { changes: flaps });
                self.hold(now_ns);
                self.steady_at_ns = Some(self.steady_after(now_ns));
            }
            if self.current.is_up() != self.reported_up {
                reports.push(self.report(self.current.is_up(), flaps.saturating_sub(1)));
                self.hold(now_ns);
            }
        }
        if self.steady_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            reports.push(PortReport::Steady);
        }
        reports.extend(self.report_state(now_ns));
        reports
    }

    /// When [`PortWatch::expire`] is due, in nanoseconds of the same clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        let info_waits = self.current != self.reported_state;
        let info = self.info_quiet_until_ns.filter(|_| info_waits);
        [self.quiet_until_ns, self.steady_at_ns, info].into_iter().flatten().min()
    }

    fn steady_after(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.debounce_ns.saturating_mul(STEADY.into()))
    }

    fn change(&mut self, now_ns: u64, up: bool) -> Option<PortReport> {
        self.steady_at_ns = self.steady_at_ns.map(|_| self.steady_after(now_ns));
        if self.quiet_until_ns.is_some() {
            self.unreported = self.unreported.saturating_add(1);
            return None;
        }
        self.hold(now_ns);
        Some(self.report(up, 0))
    }

    fn hold(&mut self, now_ns: u64) {
        if self.debounce_ns > 0 {
            self.quiet_until_ns = Some(now_ns.saturating_add(self.debounce_ns));
        }
    }

    fn report(&mut self, up: bool, flaps: u32) -> PortReport {
        self.reported_up = up;
        self.reported_state = self.current;
        if up { PortReport::Active { flaps } } else { PortReport::Err { flaps } }
    }

    /// Reports a change between two available, or two unavailable, states.
    fn report_state(&mut self, now_ns: u64) -> Option<PortReport> {
        let settled = self.current.is_up() == self.reported_up;
        if !settled || self.current == self.reported_state || self.info_quiet_until_ns.is_some() {
            return None;
        }
        self.reported_state = self.current;
        if self.debounce_ns > 0 {
            self.info_quiet_until_ns = Some(now_ns.saturating_add(self.debounce_ns));
        }
        Some(PortReport::Info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PortState::{Active, Armed, Down, Init};
    use proptest::prelude::*;

    const DEBOUNCE: u64 = 1000;
    const ERR: PortReport = PortReport::Err { flaps: 0 };
    const ACTIVE: PortReport = PortReport::Active { flaps: 0 };

    #[test]
    fn the_first_change_is_reported_at_once_and_a_repeated_event_never() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, Some(Edge::Down), Down), [ERR]);
        assert_eq!(port.observe(1, Some(Edge::Down), Down), []);
        assert_eq!(port.observe(5000, Some(Edge::Up), Active), [ACTIVE]);
        assert_eq!(port.observe(5001, Some(Edge::Up), Active), []);
        assert_eq!(port.expire(6000), []);
        assert_eq!(port.deadline_ns(), None);
    }

    #[test]
    fn a_reading_finds_a_change_without_an_event() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, None, Down), [ERR]);
        assert_eq!(port.observe(1, Some(Edge::Down), Down), []);
    }

    #[test]
    fn a_short_interruption_is_reported_even_if_the_state_shows_none() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, Some(Edge::Down), Active), [ERR]);
        assert_eq!(port.observe(1, Some(Edge::Up), Active), []);
        assert_eq!(port.deadline_ns(), Some(DEBOUNCE));
        assert_eq!(port.expire(DEBOUNCE), [ACTIVE]);
    }

    #[test]
    fn a_flapping_port_is_reported_once_per_debounce_time_with_the_count() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, Some(Edge::Down), Down), [ERR]);
        for step in 1..=9 {
            let (edge, state) = match step % 2 {
                1 => (Edge::Up, Active),
                _ => (Edge::Down, Down),
            };
            assert_eq!(port.observe(step, Some(edge), state), []);
        }
        assert_eq!(
            port.expire(DEBOUNCE),
            [PortReport::Flapping { changes: 9 }, PortReport::Active { flaps: 8 }]
        );
        // The port still flaps: counting starts again after the report.
        assert_eq!(port.observe(DEBOUNCE + 1, Some(Edge::Down), Down), []);
        assert_eq!(port.observe(DEBOUNCE + 2, Some(Edge::Up), Active), []);
        assert_eq!(port.expire(2 * DEBOUNCE), [PortReport::Flapping { changes: 2 }]);
        assert_eq!(port.expire(3 * DEBOUNCE), []);
        assert_eq!(port.deadline_ns(), Some(32 * DEBOUNCE));
        // Another change: the time begins again.
        assert_eq!(port.observe(31 * DEBOUNCE, Some(Edge::Down), Down), [ERR]);
        assert_eq!(port.expire(32 * DEBOUNCE), []);
        assert_eq!(port.expire(61 * DEBOUNCE), [PortReport::Steady]);
        assert_eq!(port.deadline_ns(), None);
    }

    #[test]
    fn intermediate_states_of_a_link_do_not_delay_the_report_of_its_availability() {
        let mut port = PortWatch::new(Down, DEBOUNCE);
        assert_eq!(port.observe(0, None, Init), [PortReport::Info]);
        assert_eq!(port.observe(1, None, Armed), []);
        assert_eq!(port.observe(2, Some(Edge::Up), Active), [ACTIVE]);
        assert_eq!(port.expire(5000), []);
        let mut port = PortWatch::new(Down, DEBOUNCE);
        port.observe(0, None, Init);
        port.observe(1, None, Armed);
        assert_eq!(port.deadline_ns(), Some(DEBOUNCE));
        assert_eq!(port.expire(DEBOUNCE), [PortReport::Info]);
    }

    #[test]
    fn without_a_debounce_time_every_change_is_reported() {
        let mut port = PortWatch::new(Active, 0);
        assert_eq!(port.observe(0, Some(Edge::Down), Active), [ERR, ACTIVE]);
        assert_eq!(port.observe(0, Some(Edge::Down), Down), [ERR]);
        assert_eq!(port.observe(0, Some(Edge::Up), Active), [ACTIVE]);
        assert_eq!(port.deadline_ns(), None);
    }

    proptest! {
        /// After the last debounce time the reported availability is the real one, and no report
        /// repeats the one before.
        #[test]
        fn the_last_report_is_true_in_the_end(
            steps in proptest::collection::vec((0_u64..1500, 0_u8..3, 1_u32..5), 0..60)
        ) {
            let mut port = PortWatch::new(Active, DEBOUNCE);
            let (mut now, mut reported, mut state) = (0, true, Active);
            let mut check = |reports: Vec<PortReport>| -> Result<(), TestCaseError> {
                for report in reports {
                    let up = match report {
                        PortReport::Err { .. } => false,
                        PortReport::Active { .. } => true,
                        PortReport::Info | PortReport::Flapping { .. } | PortReport::Steady => {
                            continue;
                        }
                    };
                    prop_assert_ne!(up, reported, "reported twice");
                    reported = up;
                }
                Ok(())
            };
            for (wait, edge, number) in steps {
                now += wait;
                state = PortState::from_number(number);
                let edge = [None, Some(Edge::Down), Some(Edge::Up)][usize::from(edge)];
                check(port.observe(now, edge, state))?;
            }
            for wait in [1, 1, 1, u64::from(STEADY)] {
                now += wait * DEBOUNCE;
                check(port.expire(now))?;
            }
            prop_assert_eq!(reported, state.is_up());
            prop_assert_eq!(port.deadline_ns(), None);
        }
    }
}
