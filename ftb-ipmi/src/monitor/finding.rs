//! Findings of a monitor, their conditions, and open faults.

use super::{Cause, Watched};
use crate::sdr::SensorClass;
use ftb_core::Severity;
use ftb_core::condition::RecommendedAction;
use ftb_rmcp::Controller;
use std::time::Duration;

/// The key of the condition of a controller behind the BMC that does not answer.
pub const CONTROLLER_LOST: &str = "CONTROLLER_LOST";
/// The key of the condition of a BMC whose event log is full.
pub const LOG_FULL: &str = "SEL_FULL";

/// A prediction is published again if more than this part of the time left is gone.
const SOONER_PART: u64 = 4;
/// Time between two publications of a prediction.
const SOONER_EVERY_MS: u64 = 5_000;

/// A finding of the monitor; it becomes one event.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The event.
    pub kind: FindingKind,
    /// Severity of the event.
    pub severity: Severity,
    /// The sensor; `None` for the whole node.
    pub sensor: Option<Box<Watched>>,
    /// Why the reading is bad.
    pub cause: Option<Cause>,
    /// The decisive reading.
    pub value: Option<f64>,
    /// Bad (or good) readings in a row.
    pub readings: u32,
    /// Number of events that this finding represents.
    pub count: u32,
    /// An event of the BMC, not a poll, confirmed the finding.
    pub is_from_event: bool,
    /// No lasting fault: no clearing follows.
    pub is_momentary: bool,
    /// The controller behind the BMC that is lost or back.
    pub controller: Option<Controller>,
    /// For a node without fault: the number of unreadable sensors.
    pub unread: usize,
    /// A repetition of an open fault.
    pub is_repeat: bool,
    /// How long the fault was open before, in milliseconds.
    pub age_ms: u64,
    /// Free text: why a BMC is lost, or the previous health of the node.
    pub note: Option<String>,
    /// What the event states about the condition of the sensor.
    pub statement: Statement,
    /// The sensor number of firmware, which has no sensor record.
    pub firmware: Option<u8>,
    /// The condition of an earlier life of this program that the finding is about.
    pub former: Option<Box<FormerCondition>>,
}

/// What the event of a finding states about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    /// It holds, or is over. The sensor or the BMC also says when it is over.
    Lasting,
    /// It holds until a person clears it: no reading and no event says that it is over.
    Kept,
    /// Nothing.
    Nothing,
}

/// A condition that an earlier life of this program has stated, and that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerCondition {
    /// The sensor or other component.
    pub component: String,
    /// The key, in upper case.
    pub key: String,
    /// How bad it is.
    pub severity: Severity,
    /// Since when, in Unix nanoseconds.
    pub onset_ns: u64,
    /// The event that stated it.
    pub kind: FindingKind,
    /// The states of its sensor, one bit each, if only events report them and that life has saved
    /// it; 0: that life did not know which.
    pub event_states: Option<u16>,
}

impl Finding {
    /// A finding about the whole node.
    pub(crate) fn node(kind: FindingKind, note: Option<String>) -> Self {
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
            is_repeat: false,
            age_ms: 0,
            note,
            statement: Statement::Lasting,
            firmware: None,
            former: None,
        }
    }

    /// A finding about a sensor.
    pub(super) fn of_sensor(kind: FindingKind, watched: &Watched) -> Self {
        Self { sensor: Some(Box::new(watched.clone())), ..Self::node(kind, None) }
    }

    /// The same: an open fault has become worse, and its condition holds since it began.
    pub(super) fn since(self, now_ms: u64, fault: Option<&Fault>) -> Self {
        let Some(fault) = fault else { return self };
        let former = fault.finding.former.clone();
        Self { age_ms: now_ms.saturating_sub(fault.began_ms), former, ..self }
    }
}

/// Key and recommended action of the condition of a sensor. A sensor has one condition, named after
/// its class.
pub fn condition_of_class(class: SensorClass) -> (&'static str, RecommendedAction) {
    match class {
        SensorClass::Fan => ("FANFAIL", RecommendedAction::Migrate),
        SensorClass::Temperature => ("OVERTEMP", RecommendedAction::Migrate),
        SensorClass::Processor => ("CPUFAIL", RecommendedAction::Migrate),
        SensorClass::Voltage => ("VOLTAGE", RecommendedAction::Migrate),
        SensorClass::PowerSupply => ("PSUFAIL", RecommendedAction::Replace),
        SensorClass::Memory => ("MEMERR", RecommendedAction::Replace),
        SensorClass::Interrupt => ("CRITICAL_INTERRUPT", RecommendedAction::Watch),
        SensorClass::Other => ("SENSOR", RecommendedAction::Watch),
    }
}

/// Key and recommended action of a kept condition: the part is broken until it is replaced. `None`
/// for findings of other kinds.
pub fn kept_condition(kind: FindingKind) -> Option<(&'static str, RecommendedAction)> {
    match kind {
        FindingKind::MemErr => Some(("MEMERR", RecommendedAction::Replace)),
        FindingKind::CpuFail => Some(("CPUFAIL", RecommendedAction::Replace)),
        // A thermal trip has turned the machine off: its cooling has failed.
        FindingKind::OverTemp => Some(("OVERTEMP", RecommendedAction::Replace)),
        _ => None,
    }
}

/// The events of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// A fan failed.
    FanFail,
    /// Too hot, or about to be.
    OverTemp,
    /// The node has no fault.
    Normal,
    /// The fault of a sensor is over.
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
    /// The event log of the BMC is full, or dropped events.
    LogFull,
    /// The event log accepts entries again.
    LogCleared,
    /// The node is powered off.
    ChassisOff,
    /// The node is powered on.
    ChassisOn,
    /// The BMC does not answer: the health of the node is unknown.
    BmcLost,
    /// The BMC answers again.
    BmcBack,
    /// A controller behind the BMC does not answer: the state of its sensors is unknown.
    ControllerLost,
    /// The controller behind the BMC answers again.
    ControllerBack,
}

impl FindingKind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::FanFail,
        Self::OverTemp,
        Self::Normal,
        Self::Cleared,
        Self::PsuFail,
        Self::MemErr,
        Self::Voltage,
        Self::CpuFail,
        Self::Interrupt,
        Self::LogFull,
        Self::LogCleared,
        Self::ChassisOff,
        Self::ChassisOn,
        Self::BmcLost,
        Self::BmcBack,
        Self::ControllerLost,
        Self::ControllerBack,
    ];

    /// Default severity.
    pub fn severity(self) -> Severity {
        match self {
            Self::FanFail
            | Self::OverTemp
            | Self::PsuFail
            | Self::MemErr
            | Self::Voltage
            | Self::CpuFail
            | Self::ChassisOff
            | Self::Interrupt => Severity::Error,
            Self::BmcLost | Self::ControllerLost | Self::LogFull => Severity::Warning,
            Self::Normal
            | Self::Cleared
            | Self::BmcBack
            | Self::ChassisOn
            | Self::ControllerBack
            | Self::LogCleared => Severity::Info,
        }
    }

    /// The fault of a class of sensors; `None` for sensors that are only shown.
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

/// An open fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The published finding, with the latest reading.
    finding: Finding,
    published_ms: u64,
    /// When it was published first.
    began_ms: u64,
    /// When it reaches its limit at the earliest, as it was published; `None`: it has.
    fails_ms: Option<u64>,
}

/// When a predicted fault reaches its limit at the earliest.
fn fails_ms(now_ms: u64, cause: Option<Cause>) -> Option<u64> {
    let Some(Cause::Predicted(forecast)) = cause else { return None };
    let left = Duration::try_from_secs_f64(forecast.seconds_left_min).unwrap_or(Duration::MAX);
    Some(now_ms.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
}

impl Fault {
    pub(super) fn new(now_ms: u64, finding: &Finding) -> Self {
        Self {
            finding: finding.clone(),
            published_ms: now_ms,
            began_ms: now_ms.saturating_sub(finding.age_ms),
            fails_ms: fails_ms(now_ms, finding.cause),
        }
    }

    /// An earlier life of this program has stated its condition: it holds since then.
    pub(super) fn continue_former(&mut self, row: FormerCondition) {
        self.finding.former = Some(Box::new(row));
    }

    pub(super) fn severity(&self) -> Severity {
        self.finding.severity
    }

    /// Its limit is not reached yet.
    pub(super) fn is_predicted(&self) -> bool {
        matches!(self.finding.cause, Some(Cause::Predicted(_)))
    }

    /// The published state as one bit; 0 for causes without a state.
    pub(super) fn states(&self) -> u16 {
        match self.finding.cause {
            Some(Cause::State(offset)) => 1_u16.checked_shl(offset.into()).unwrap_or(0),
            _ => 0,
        }
    }

    /// Records another bad reading.
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

    /// The fault again, if the last publication is `restate_ms` ago; zero means never.
    pub(super) fn repeat(&mut self, now_ms: u64, restate_ms: u64) -> Option<Finding> {
        let is_due = now_ms >= self.published_ms.saturating_add(restate_ms);
        (restate_ms != 0 && is_due).then(|| self.again(now_ms))
    }

    /// The fault again, if its limit is reached before the time that was published: now, or in much
    /// less time.
    pub(super) fn sooner(&mut self, now_ms: u64) -> Option<Finding> {
        let published_ms = self.fails_ms?;
        let is_sooner = match fails_ms(now_ms, self.finding.cause) {
            Some(fails_ms) => {
                let rest_ms = published_ms.saturating_sub(now_ms);
                let is_much = fails_ms < published_ms.saturating_sub(rest_ms / SOONER_PART);
                is_much && now_ms >= self.published_ms.saturating_add(SOONER_EVERY_MS)
            }
            None => true,
        };
        is_sooner.then(|| self.again(now_ms))
    }

    /// The fault as it is now.
    pub(super) fn again(&mut self, now_ms: u64) -> Finding {
        self.published_ms = now_ms;
        self.fails_ms = fails_ms(now_ms, self.finding.cause);
        let age_ms = now_ms.saturating_sub(self.began_ms);
        Finding { is_repeat: true, age_ms, ..self.finding.clone() }
    }
}
