//! Judges one reading of one sensor: good or bad, and why. Stateless.

use super::FindingKind;
use super::limits::{Arrangement, LC, LNC, LNR, Limits, THRESHOLD_NAMES, UC, UNC, UNR, sides};
use crate::bmc::command::RawReading;
use crate::rules::Policy;
use crate::sdr::{
    Factors, Linearization, READING_TYPE_SENSOR_SPECIFIC, RawThresholds, Sensor, SensorClass,
};
use ftb_core::Severity;

/// Event/reading type code of sensors with the states "deasserted" and "asserted".
const READING_TYPE_DIGITAL: u8 = 0x03;
/// State of a processor that shut down because of heat.
const THERMAL_TRIP: u8 = 1;
/// Words in the names of states about heat.
const HEAT_WORDS: [&str; 5] = ["heat", "hot", "therm", "thrm", "temp"];
/// Words in the names of states that are no fault when asserted.
const STATUS_WORDS: [&str; 12] = [
    "ok", "good", "pres", "prsnt", "popul", "occ", "instal", "detect", "status", "enable", "ready",
    "redundan",
];
/// Hysteresis of a thermal margin without a configured one, in degrees.
const TEMPERATURE_HYSTERESIS: f64 = 2.0;
/// Readings below this, in degrees Celsius, show a thermal margin.
const MARGIN_READING: f64 = -10.0;

/// A sensor with its policy and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// The sensor.
    pub sensor: Sensor,
    /// How the sensor is judged.
    pub policy: Policy,
    /// Limits in units of the value, in the order of [`THRESHOLD_NAMES`].
    pub limits: [Option<f64>; 6],
    /// Distance from a limit at which a bad value becomes good again.
    pub hysteresis: f64,
    /// On which side of the value the thresholds of the BMC are.
    arrangement: Arrangement,
    /// Whether the BMC has a threshold.
    has_thresholds: bool,
    /// The part that a fan cools, from rules or records.
    pub cools: Option<String>,
}

impl Watched {
    /// A sensor with its policy and the current thresholds of the BMC.
    pub fn new(sensor: Sensor, policy: Policy, thresholds: RawThresholds) -> Self {
        let mut limits = Limits::NONE;
        let mut hysteresis = 0.0;
        if let Some(factors) = fixed_factors(&sensor) {
            limits = Limits::of(&sensor, &policy, factors, &thresholds);
            hysteresis = record_hysteresis(&sensor, factors, limits.raw);
        }
        let Limits { values: mut limits, arrangement, .. } = limits;
        limits[LC] = policy.lower_critical.or(limits[LC]);
        limits[UC] = policy.upper_critical.or(limits[UC]);
        let has_thresholds = thresholds.values.iter().any(Option::is_some);
        let cools = policy.cools.clone();
        let hysteresis = policy.hysteresis.unwrap_or(hysteresis);
        let is_margin = policy.margin == Some(true);
        let mut watched =
            Self { sensor, policy, limits, hysteresis, arrangement, has_thresholds, cools };
        if is_margin {
            watched.judge_as_margin();
        }
        watched
    }

    /// Judges the sensor as a thermal margin, which counts up to zero, the limit.
    pub fn judge_as_margin(&mut self) {
        self.policy.margin = Some(true);
        if self.upper_limit().is_none() {
            self.limits[UC] = Some(margin_critical(&self.sensor.unit));
        }
        if self.policy.hysteresis.is_none() && self.sensor.hysteresis_up == 0 {
            self.hysteresis = TEMPERATURE_HYSTERESIS;
        }
    }

    /// Whether this value shows a thermal margin without such a name: no processor and no memory
    /// module is that cold.
    pub fn reads_as_margin(&self, value: f64) -> bool {
        self.policy.class == SensorClass::Temperature
            && self.sensor.is_threshold()
            && self.policy.margin.is_none()
            && self.sensor.unit == "degrees C"
            && self.sensor.entity.has_thermal_margin()
            && self.upper_limit().is_none()
            && value < MARGIN_READING
    }

    /// Whether the sensor has readings, and events that report bad ones.
    pub fn is_polled(&self) -> bool {
        let is_readable = !self.sensor.event_only && !self.sensor.key.owner.is_software();
        is_readable && FindingKind::of_class(self.policy.class).is_some()
    }

    /// Whether a reading can be bad.
    pub fn is_judged(&self) -> bool {
        if !self.sensor.is_threshold() {
            return bad_states(self, self.sensor.reading_type) != 0;
        }
        let (looks_down, looks_up) = sides(self.policy.class);
        let has = |slots: [usize; 2]| slots.iter().any(|slot| self.limits[*slot].is_some());
        self.policy.class == SensorClass::Fan
            || (looks_down && has([LNR, LC]))
            || (looks_up && has([UNR, UC]))
            || (self.has_thresholds && (looks_down || looks_up))
    }

    /// The limit of overheating, for prediction.
    pub fn upper_limit(&self) -> Option<f64> {
        self.limits[UC].or(self.limits[UNR])
    }

    /// Converts a raw reading. `factors` are the factors of this reading, for sensors that need
    /// them.
    pub fn reading(&self, raw: RawReading, factors: Option<&Factors>) -> Reading {
        let value = match (factors.or(fixed_factors(&self.sensor)), raw.value) {
            (Some(factors), Some(byte)) => factors.value(byte),
            _ => None,
        };
        Reading { raw: raw.value, value, states: raw.states }
    }
}

/// The factors of all readings. `None` also for sensors whose factors depend on the reading: their
/// thresholds have no value here, and the comparison by the BMC counts.
fn fixed_factors(sensor: &Sensor) -> Option<&Factors> {
    sensor.factors.as_ref().filter(|factors| factors.linearization != Linearization::PerReading)
}

fn record_hysteresis(sensor: &Sensor, factors: &Factors, threshold: Option<u8>) -> f64 {
    let steps = sensor.hysteresis_up.max(sensor.hysteresis_down);
    // FFh means that the sensor has no hysteresis.
    if steps == 0 || steps == 0xFF {
        return 0.0;
    }
    factors.span(threshold.unwrap_or(1), steps)
}

/// The upper critical limit of a thermal margin without thresholds: five degrees Celsius below the
/// limit.
fn margin_critical(unit: &str) -> f64 {
    match unit {
        "degrees F" => -9.0,
        _ => -5.0,
    }
}

/// A decoded reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The raw byte; `None` if the BMC has no reading.
    pub raw: Option<u8>,
    /// The value; `None` for discrete sensors and without a finite result.
    pub value: Option<f64>,
    /// States, or the comparison by the BMC.
    pub states: u16,
}

/// Why a reading is bad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// At or below a lower limit.
    Below {
        /// Name of the threshold.
        threshold: &'static str,
        /// Value of the threshold, if known.
        limit: Option<f64>,
    },
    /// At or above an upper limit.
    Above {
        /// Name of the threshold.
        threshold: &'static str,
        /// Value of the threshold, if known.
        limit: Option<f64>,
    },
    /// The fan stands still.
    Zero,
    /// The part was present and has no reading any more.
    Absent,
    /// A bad state of a discrete sensor.
    State(u8),
    /// The value will reach its limit.
    Predicted(super::Forecast),
    /// The event log of the BMC is full.
    Full,
    /// The event log is full, and the BMC dropped events.
    Overflow,
}

impl Cause {
    /// The word for tags.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Below { .. } => "below_threshold",
            Self::Above { .. } => "above_threshold",
            Self::Zero => "zero",
            Self::Absent => "absent",
            Self::State(_) => "state",
            Self::Predicted(_) => "predicted",
            Self::Full => "full",
            Self::Overflow => "overflow",
        }
    }
}

/// The judgement on one reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgement {
    /// No limit is crossed.
    Good,
    /// Beyond a non-critical threshold: shown, not published.
    Warning,
    /// A fault.
    Bad(Cause),
    /// The reading is missing.
    Unknown,
}

/// Judges a reading. With `was_bad`, a good value must pass the hysteresis. `was_present`
/// distinguishes a removed part from an empty slot.
pub fn judge(watched: &Watched, reading: &Reading, was_bad: bool, was_present: bool) -> Judgement {
    match watched.sensor.is_threshold() {
        true => judge_value(watched, reading, was_bad, was_present),
        false => judge_states(watched, reading, was_present),
    }
}

fn judge_value(
    watched: &Watched,
    reading: &Reading,
    was_bad: bool,
    was_present: bool,
) -> Judgement {
    let class = watched.policy.class;
    let Some(value) = reading.value else {
        return match (class, reading.raw) {
            (SensorClass::Fan, None) if was_present => Judgement::Bad(Cause::Absent),
            _ => Judgement::Unknown,
        };
    };
    if class == SensorClass::Fan && value <= 0.0 {
        return match watched.policy.zero_is_good {
            true => Judgement::Good,
            false => Judgement::Bad(Cause::Zero),
        };
    }
    let (looks_down, looks_up) = sides(class);
    let slack = if was_bad { watched.hysteresis } else { 0.0 };
    let crossing = Crossing { watched, reading, value, slack };
    let low = looks_down.then(|| crossing.below(&[LNR, LC])).flatten();
    if let Some(cause) = low.or_else(|| looks_up.then(|| crossing.above(&[UNR, UC])).flatten()) {
        return Judgement::Bad(cause);
    }
    let is_low = looks_down && crossing.below(&[LNC]).is_some();
    let is_high = looks_up && crossing.above(&[UNC]).is_some();
    if is_low || is_high { Judgement::Warning } else { Judgement::Good }
}

struct Crossing<'a> {
    watched: &'a Watched,
    reading: &'a Reading,
    value: f64,
    slack: f64,
}

impl Crossing<'_> {
    /// The comparison by the BMC, for a threshold of unknown value.
    fn is_reported(&self, slot: usize) -> bool {
        let is_set = |bit: usize| self.reading.states & (1 << bit) != 0;
        self.watched.limits[slot].is_none()
            && self.watched.arrangement.slots(slot).into_iter().any(is_set)
    }

    fn below(&self, slots: &[usize]) -> Option<Cause> {
        slots.iter().find_map(|slot| {
            let limit = self.watched.limits[*slot];
            let is_crossed = limit.is_some_and(|limit| self.value <= limit + self.slack);
            (is_crossed || self.is_reported(*slot))
                .then_some(Cause::Below { threshold: THRESHOLD_NAMES[*slot], limit })
        })
    }

    fn above(&self, slots: &[usize]) -> Option<Cause> {
        slots.iter().find_map(|slot| {
            let limit = self.watched.limits[*slot];
            let is_crossed = limit.is_some_and(|limit| self.value >= limit - self.slack);
            (is_crossed || self.is_reported(*slot))
                .then_some(Cause::Above { threshold: THRESHOLD_NAMES[*slot], limit })
        })
    }
}

fn judge_states(watched: &Watched, reading: &Reading, was_present: bool) -> Judgement {
    if reading.raw.is_none() {
        return Judgement::Unknown;
    }
    let reading_type = watched.sensor.reading_type;
    let bad = reading.states & bad_states(watched, reading_type);
    if bad != 0 {
        let severest = most_severe(watched.policy.class, reading_type, bad);
        return Judgement::Bad(Cause::State(severest));
    }
    if was_present && !is_present(watched, reading) {
        return Judgement::Bad(Cause::Absent);
    }
    Judgement::Good
}

/// Whether a discrete sensor reports its part as present; `true` if it cannot report that.
pub(super) fn is_present(watched: &Watched, reading: &Reading) -> bool {
    let sensor = &watched.sensor;
    match (watched.policy.class, sensor.reading_type) {
        // Sensor-specific offset 0 of a power supply: presence detected.
        (SensorClass::PowerSupply, 0x6F) => reading.states & 0x01 != 0,
        // Generic type 08h: offset 0 is "absent", offset 1 "present".
        (SensorClass::PowerSupply | SensorClass::Fan, 0x08) => reading.states & 0x02 != 0,
        _ => true,
    }
}

/// The state to report among several: the highest severity, then the lowest number.
fn most_severe(class: SensorClass, reading_type: u8, states: u16) -> u8 {
    let severity = |state: u8| state_severity(class, reading_type, state);
    (0_u8..15)
        .filter(|state| states & (1 << state) != 0)
        .max_by_key(|state| (severity(*state), core::cmp::Reverse(*state)))
        .unwrap_or(0)
}

/// Default severity of a state (table 42-3).
pub(super) fn state_severity(class: SensorClass, reading_type: u8, state: u8) -> Severity {
    if reading_type != READING_TYPE_SENSOR_SPECIFIC {
        return Severity::Error;
    }
    match (class, state) {
        // Corrected errors, and too many of them.
        (SensorClass::Memory, 0 | 5) => Severity::Warning,
        // Internal error, uncorrectable error, uncorrectable machine check.
        (SensorClass::Processor, 0 | 6 | 11) => Severity::Fatal,
        // The diagnostic button, a corrected bus error, a degraded bus.
        (SensorClass::Interrupt, 0 | 7 | 11) => Severity::Warning,
        // Fatal NMI, fatal bus error.
        (SensorClass::Interrupt, 9 | 10) => Severity::Fatal,
        _ => Severity::Error,
    }
}

/// The event of a bad reading; `None` for sensors that are only shown.
pub(super) fn kind_of(watched: &Watched, cause: Cause) -> Option<FindingKind> {
    let of_class = FindingKind::of_class(watched.policy.class)?;
    let is_cpu = watched.policy.class == SensorClass::Processor
        && match (cause, watched.sensor.reading_type) {
            (Cause::State(state), READING_TYPE_SENSOR_SPECIFIC) => state != THERMAL_TRIP,
            (Cause::State(_), READING_TYPE_DIGITAL) => !is_named(watched, &HEAT_WORDS),
            _ => false,
        };
    Some(if is_cpu { FindingKind::CpuFail } else { of_class })
}

/// As [`kind_of`], for a sensor without a record.
pub(super) fn kind_without_record(class: SensorClass, state: u8) -> Option<FindingKind> {
    match class {
        SensorClass::Processor if state != THERMAL_TRIP => Some(FindingKind::CpuFail),
        _ => FindingKind::of_class(class),
    }
}

fn is_named(watched: &Watched, words: &[&str]) -> bool {
    let name = watched.sensor.name.to_lowercase();
    words.iter().any(|word| name.contains(word))
}

/// The states of a discrete sensor that are bad, one bit each.
pub(super) fn bad_states(watched: &Watched, reading_type: u8) -> u16 {
    let policy = &watched.policy;
    if let Some(states) = policy.bad_states {
        return states;
    }
    if policy.class == SensorClass::Other {
        return 0;
    }
    match reading_type {
        READING_TYPE_SENSOR_SPECIFIC => specific_bad_states(watched.sensor.sensor_type),
        // An asserted state is a fault ("CPU1 Overheat"), unless its name is that of a status.
        READING_TYPE_DIGITAL if !is_named(watched, &STATUS_WORDS) => bits(&[1]),
        // Generic: predicted failure, limit exceeded, performance lags.
        0x04..=0x06 => bits(&[1]),
        // Severity: to critical or non-recoverable, from either side.
        0x07 => bits(&[2, 3, 5, 6]),
        // Redundancy lost, or not enough resources without it.
        0x0B => bits(&[1, 5]),
        _ => 0,
    }
}

/// The bad states of table 42-3.
pub(super) fn specific_bad_states(sensor_type: u8) -> u16 {
    match sensor_type {
        // Power supply: failed, failure predicted, input lost, input out of range (two of them).
        0x08 => bits(&[1, 2, 3, 4, 5]),
        // Memory: corrected, uncorrectable, parity, scrub failed, disabled, too many corrected,
        // critically hot.
        0x0C => bits(&[0, 1, 2, 3, 4, 5, 10]),
        // Processor: internal error (IERR), thermal trip, uncorrectable error, uncorrectable
        // machine check.
        0x07 => bits(&[0, 1, 6, 11]),
        // Critical interrupt: NMIs, bus timeouts, parity and system errors, bus errors.
        0x13 => bits(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        _ => 0,
    }
}

fn bits(states: &[u8]) -> u16 {
    states.iter().fold(0, |mask, state| mask | 1 << state)
}
