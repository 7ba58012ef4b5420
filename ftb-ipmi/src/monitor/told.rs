//! What a monitor tells, and the faults that it has told.

use super::{Cause, Watched};
use crate::sdr::SensorClass;
use ftb_core::Severity;
use ftb_rmcp::Controller;

/// What to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Which event.
    pub kind: FindingKind,
    /// How bad.
    pub severity: Severity,
    /// Whose; `None` for the node as a whole.
    pub sensor: Option<Box<Watched>>,
    /// Why.
    pub cause: Option<Cause>,
    /// The reading that decided.
    pub value: Option<f64>,
    /// Readings in a row that were bad (or good).
    pub readings: u32,
    /// How many events of this source it stands for.
    pub count: u32,
    /// Set where an event of the BMC, not a poll, told first.
    pub is_from_event: bool,
    /// Set where nothing lasting is wrong: no clearing follows.
    pub is_momentary: bool,
    /// Which controller behind the BMC it is about.
    pub controller: Option<Controller>,
    /// For a node without fault: how many of its sensors nobody can read.
    pub unread: usize,
    /// Set where it was told before, and still is so.
    pub is_again: bool,
    /// Free text: why a BMC is lost, what the node was before.
    pub note: Option<String>,
}

impl Finding {
    pub(super) fn node(kind: FindingKind, note: Option<String>) -> Self {
        Self {
            kind,
            severity: kind.severity(),
            sensor: None,
            cause: None,
            value: None,
            readings: 0,
            count: 1,
            is_from_event: false,
            is_momentary: false,
            controller: None,
            unread: 0,
            is_again: false,
            note,
        }
    }
}

/// The events of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// A fan failed.
    FanFail,
    /// Too hot, or about to be.
    OverTemp,
    /// The node has no fault (any more).
    Normal,
    /// One sensor's fault is over.
    Cleared,
    /// A power supply failed.
    PsuFail,
    /// A memory error.
    MemErr,
    /// A voltage is out of range.
    Voltage,
    /// A processor failed.
    CpuFail,
    /// A bus error or an NMI.
    Interrupt,
    /// The BMC's event log has no room, or has dropped events.
    LogFull,
    /// It has room again.
    LogCleared,
    /// The BMC does not answer: nothing is known of the node.
    BmcLost,
    /// The BMC answers again.
    BmcBack,
    /// A controller behind the BMC does not answer any more: nothing is known of its sensors.
    ControllerLost,
    /// It answers again.
    ControllerBack,
}

impl FindingKind {
    /// Severity where no rule says another.
    pub fn severity(self) -> Severity {
        match self {
            Self::FanFail
            | Self::OverTemp
            | Self::PsuFail
            | Self::MemErr
            | Self::Voltage
            | Self::CpuFail
            | Self::Interrupt => Severity::Error,
            Self::BmcLost | Self::ControllerLost | Self::LogFull => Severity::Warning,
            Self::Normal
            | Self::Cleared
            | Self::BmcBack
            | Self::ControllerBack
            | Self::LogCleared => Severity::Info,
        }
    }

    /// The fault of a class of sensors; `None` where it is only shown.
    pub fn of_class(class: SensorClass) -> Option<Self> {
        match class {
            SensorClass::Fan => Some(Self::FanFail),
            SensorClass::Temperature | SensorClass::Processor => Some(Self::OverTemp),
            SensorClass::Voltage => Some(Self::Voltage),
            SensorClass::PowerSupply => Some(Self::PsuFail),
            SensorClass::Memory => Some(Self::MemErr),
            SensorClass::Interrupt => Some(Self::Interrupt),
            SensorClass::Other => None,
        }
    }
}

/// A fault that was told and is not over.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// As it was told last, with the reading of now.
    finding: Finding,
    told_ms: u64,
}

impl Fault {
    pub(super) fn new(now_ms: u64, finding: &Finding) -> Self {
        Self { finding: finding.clone(), told_ms: now_ms }
    }

    pub(super) fn severity(&self) -> Severity {
        self.finding.severity
    }

    /// The state that was told, one bit; 0 where it is no state.
    pub(super) fn states(&self) -> u16 {
        match self.finding.cause {
            Some(Cause::State(offset)) => 1_u16.checked_shl(offset.into()).unwrap_or(0),
            _ => 0,
        }
    }

    /// Another bad reading of the same sensor.
    pub(super) fn update(
        &mut self,
        kind: FindingKind,
        cause: Cause,
        value: Option<f64>,
        readings: u32,
    ) {
        (self.finding.kind, self.finding.cause) = (kind, Some(cause));
        self.finding.value = value;
        self.finding.readings = readings;
    }

    /// The fault once more, if it was told that long ago; zero is never.
    pub(super) fn again(&mut self, now_ms: u64, restate_ms: u64) -> Option<Finding> {
        if restate_ms == 0 || now_ms < self.told_ms.saturating_add(restate_ms) {
            return None;
        }
        self.told_ms = now_ms;
        Some(Finding { is_again: true, ..self.finding.clone() })
    }
}
