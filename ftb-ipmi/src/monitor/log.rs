//! The event log of the BMC: a full log loses later events.

use super::finding::Fault;
use super::{Cause, Finding, FindingKind};
use crate::sdr::READING_TYPE_SENSOR_SPECIFIC;
use crate::sel::{LogState, SensorEvent};

/// Sensor type "event logging disabled".
const EVENT_LOGGING: u8 = 0x10;
/// State "log full" of that sensor type.
const FULL: u8 = 4;

/// The event log of one BMC.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    state: LogState,
    /// The state was read from the BMC.
    is_known: bool,
    /// The open fault, while the log is full.
    fault: Option<Fault>,
}

impl EventLog {
    /// Whether the log is known to accept entries.
    pub(super) fn has_room(&self) -> bool {
        self.is_known && self.state == LogState::HasRoom
    }

    /// A new state of the log; returns a finding if it has changed.
    pub(super) fn on_state(&mut self, now_ms: u64, state: LogState) -> Option<Finding> {
        self.is_known = true;
        if self.state == state {
            return None;
        }
        self.state = state;
        let cause = match state {
            LogState::HasRoom => {
                self.fault = None;
                return Some(Finding::node(FindingKind::LogCleared, None));
            }
            LogState::Full => Cause::Full,
            LogState::Overflowed => Cause::Overflow,
        };
        let mut finding = Finding::node(FindingKind::LogFull, None);
        finding.cause = Some(cause);
        self.fault = Some(Fault::new(now_ms, &finding));
        Some(finding)
    }

    /// An event of any sensor: some BMCs report a full log with an event.
    pub(super) fn on_event(&mut self, now_ms: u64, event: &SensorEvent) -> Option<Finding> {
        let kind = (event.sensor_type, event.reading_type, event.offset);
        if kind != (EVENT_LOGGING, READING_TYPE_SENSOR_SPECIFIC, FULL) {
            return None;
        }
        match (event.is_asserted, self.state) {
            (true, LogState::HasRoom) => self.on_state(now_ms, LogState::Full),
            (true, _) => None,
            (false, _) => self.on_state(now_ms, LogState::HasRoom),
        }
    }

    /// See [`Fault::repeat`].
    pub(super) fn repeat(&mut self, now_ms: u64, restate_ms: u64) -> Option<Finding> {
        self.fault.as_mut()?.repeat(now_ms, restate_ms)
    }
}
