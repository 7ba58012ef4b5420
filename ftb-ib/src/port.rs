//! What is worth telling about the state of one port. A pure state machine: drivers repeat
//! themselves, ports flap, and a port can go down and up again before anybody has looked.
//!
//! The first change is told at once. Changes inside the debounce time after it are only counted;
//! at its end the state is told if it is another than the one told last, and how often the port
//! changed meanwhile.

use crate::facts::PortState;

/// What verbs said just before the state was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// `IBV_EVENT_PORT_ERR`.
    Down,
    /// `IBV_EVENT_PORT_ACTIVE`.
    Up,
}

/// Something to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// The port became unavailable; `flaps` changes before this one were not told.
    Err {
        /// How many.
        flaps: u32,
    },
    /// The port became available; `flaps` changes before this one were not told.
    Active {
        /// How many.
        flaps: u32,
    },
    /// The state changed, its availability did not.
    Info,
    /// The port changed this often within one debounce time, beyond the change told first.
    Flapping {
        /// How many changes were not told.
        changes: u32,
    },
}

/// One port.
#[derive(Debug)]
pub struct PortWatch {
    debounce_ns: u64,
    current: PortState,
    /// Availability as it was told last.
    told_up: bool,
    /// State as it was told last.
    told_state: PortState,
    /// Until when changes of availability are only counted.
    quiet_until_ns: Option<u64>,
    /// Changes since then.
    untold: u32,
    /// Until when other changes wait.
    info_quiet_until_ns: Option<u64>,
}

impl PortWatch {
    /// A port that has just been told to be in that state.
    pub fn new(state: PortState, debounce_ns: u64) -> Self {
        Self {
            debounce_ns,
            current: state,
            told_up: state.is_up(),
            told_state: state,
            quiet_until_ns: None,
            untold: 0,
            info_quiet_until_ns: None,
        }
    }

    /// The state was read, after an event of verbs or without one.
    pub fn observe(&mut self, now_ns: u64, edge: Option<Edge>, state: PortState) -> Vec<Say> {
        let mut say = self.expire(now_ns);
        let mut up = self.current.is_up();
        self.current = state;
        // An edge that contradicts what was known is a change even if the state, read later,
        // shows nothing of it any more. One that agrees is the driver repeating itself.
        let from_edge = match edge {
            Some(Edge::Down) if up => Some(false),
            Some(Edge::Up) if !up => Some(true),
            _ => None,
        };
        for next in from_edge.into_iter().chain([state.is_up()]) {
            if next != up {
                up = next;
                say.extend(self.change(now_ns, next));
            }
        }
        say.extend(self.tell_state(now_ns));
        say
    }

    /// Closes the debounce times that are over.
    pub fn expire(&mut self, now_ns: u64) -> Vec<Say> {
        let mut say = Vec::new();
        if self.info_quiet_until_ns.is_some_and(|until| until <= now_ns) {
            self.info_quiet_until_ns = None;
        }
        if self.quiet_until_ns.is_some_and(|until| until <= now_ns) {
            self.quiet_until_ns = None;
            let flaps = std::mem::take(&mut self.untold);
            if flaps > 1 {
                say.push(Say::Flapping { changes: flaps });
                self.hold(now_ns);
            }
            if self.current.is_up() != self.told_up {
                say.push(self.tell(self.current.is_up(), flaps.saturating_sub(1)));
                self.hold(now_ns);
            }
        }
        say.extend(self.tell_state(now_ns));
        say
    }

    /// When [`PortWatch::expire`] has something to do, in nanoseconds of the same clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        let info_waits = self.current != self.told_state;
        let info = self.info_quiet_until_ns.filter(|_| info_waits);
        [self.quiet_until_ns, info].into_iter().flatten().min()
    }

    fn change(&mut self, now_ns: u64, up: bool) -> Option<Say> {
        if self.quiet_until_ns.is_some() {
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        self.hold(now_ns);
        Some(self.tell(up, 0))
    }

    fn hold(&mut self, now_ns: u64) {
        if self.debounce_ns > 0 {
            self.quiet_until_ns = Some(now_ns.saturating_add(self.debounce_ns));
        }
    }

    fn tell(&mut self, up: bool, flaps: u32) -> Say {
        self.told_up = up;
        self.told_state = self.current;
        if up { Say::Active { flaps } } else { Say::Err { flaps } }
    }

    /// A change from one unavailable (or available) state to another.
    fn tell_state(&mut self, now_ns: u64) -> Option<Say> {
        let settled = self.current.is_up() == self.told_up;
        if !settled || self.current == self.told_state || self.info_quiet_until_ns.is_some() {
            return None;
        }
        self.told_state = self.current;
        if self.debounce_ns > 0 {
            self.info_quiet_until_ns = Some(now_ns.saturating_add(self.debounce_ns));
        }
        Some(Say::Info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PortState::{Active, Armed, Down, Init};
    use proptest::prelude::*;

    const DEBOUNCE: u64 = 1000;
    const ERR: Say = Say::Err { flaps: 0 };
    const ACTIVE: Say = Say::Active { flaps: 0 };

    #[test]
    fn the_first_change_is_told_at_once_and_a_repeated_one_never() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, Some(Edge::Down), Down), [ERR]);
        assert_eq!(port.observe(1, Some(Edge::Down), Down), []);
        assert_eq!(port.observe(5000, Some(Edge::Up), Active), [ACTIVE]);
        assert_eq!(port.observe(5001, Some(Edge::Up), Active), []);
        assert_eq!(port.expire(6000), []);
        assert_eq!(port.deadline_ns(), None);
    }

    #[test]
    fn a_change_without_an_event_is_found_by_reading() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, None, Down), [ERR]);
        assert_eq!(port.observe(1, Some(Edge::Down), Down), []);
    }

    #[test]
    fn a_blip_that_is_over_before_the_state_is_read_is_told() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, Some(Edge::Down), Active), [ERR]);
        assert_eq!(port.observe(1, Some(Edge::Up), Active), []);
        assert_eq!(port.deadline_ns(), Some(DEBOUNCE));
        assert_eq!(port.expire(DEBOUNCE), [ACTIVE]);
    }

    #[test]
    fn a_flapping_port_is_told_once_a_debounce_time_with_the_count() {
        let mut port = PortWatch::new(Active, DEBOUNCE);
        assert_eq!(port.observe(0, Some(Edge::Down), Down), [ERR]);
        for step in 1..=9 {
            let (edge, state) = match step % 2 {
                1 => (Edge::Up, Active),
                _ => (Edge::Down, Down),
            };
            assert_eq!(port.observe(step, Some(edge), state), []);
        }
        assert_eq!(port.expire(DEBOUNCE), [Say::Flapping { changes: 9 }, Say::Active { flaps: 8 }]);
        // Still flapping: counted on, from where it was told.
        assert_eq!(port.observe(DEBOUNCE + 1, Some(Edge::Down), Down), []);
        assert_eq!(port.observe(DEBOUNCE + 2, Some(Edge::Up), Active), []);
        assert_eq!(port.expire(2 * DEBOUNCE), [Say::Flapping { changes: 2 }]);
        assert_eq!(port.expire(3 * DEBOUNCE), []);
        assert_eq!(port.deadline_ns(), None);
    }

    #[test]
    fn a_link_that_trains_is_told_state_by_state_without_delaying_its_end() {
        let mut port = PortWatch::new(Down, DEBOUNCE);
        assert_eq!(port.observe(0, None, Init), [Say::Info]);
        assert_eq!(port.observe(1, None, Armed), []);
        assert_eq!(port.observe(2, Some(Edge::Up), Active), [ACTIVE]);
        assert_eq!(port.expire(5000), []);
        let mut port = PortWatch::new(Down, DEBOUNCE);
        port.observe(0, None, Init);
        port.observe(1, None, Armed);
        assert_eq!(port.deadline_ns(), Some(DEBOUNCE));
        assert_eq!(port.expire(DEBOUNCE), [Say::Info]);
    }

    #[test]
    fn without_a_debounce_time_every_change_is_told() {
        let mut port = PortWatch::new(Active, 0);
        assert_eq!(port.observe(0, Some(Edge::Down), Active), [ERR, ACTIVE]);
        assert_eq!(port.observe(0, Some(Edge::Down), Down), [ERR]);
        assert_eq!(port.observe(0, Some(Edge::Up), Active), [ACTIVE]);
        assert_eq!(port.deadline_ns(), None);
    }

    proptest! {
        /// Whatever happens, once it is quiet the last thing told is the truth, told and untold
        /// changes add up, and nothing is told twice in a row.
        #[test]
        fn what_was_told_last_is_true_in_the_end(
            steps in proptest::collection::vec((0_u64..1500, 0_u8..3, 1_u32..5), 0..60)
        ) {
            let mut port = PortWatch::new(Active, DEBOUNCE);
            let (mut now, mut told, mut state) = (0, true, Active);
            let mut hear = |say: Vec<Say>| -> Result<(), TestCaseError> {
                for one in say {
                    let up = match one {
                        Say::Err { .. } => false,
                        Say::Active { .. } => true,
                        Say::Info | Say::Flapping { .. } => continue,
                    };
                    prop_assert_ne!(up, told, "told twice");
                    told = up;
                }
                Ok(())
            };
            for (wait, edge, number) in steps {
                now += wait;
                state = PortState::from_number(number);
                let edge = [None, Some(Edge::Down), Some(Edge::Up)][usize::from(edge)];
                hear(port.observe(now, edge, state))?;
            }
            for _ in 0..3 {
                now += DEBOUNCE;
                hear(port.expire(now))?;
            }
            prop_assert_eq!(told, state.is_up());
            prop_assert_eq!(port.deadline_ns(), None);
        }
    }
}
