//! Converts the raw thresholds of a sensor into limits of its value, and checks them.
//!
//! Firmware leaves thresholds unset (all 0) and contradicts itself (upper below lower). Such
//! thresholds are ignored: the comparison by the BMC replaces them.

use crate::rules::Policy;
use crate::sdr::{Factors, RawThresholds, Sensor, SensorClass};

/// Names of the six thresholds, in the order of their bits.
pub const THRESHOLD_NAMES: [&str; 6] = [
    "lower_non_critical",
    "lower_critical",
    "lower_non_recoverable",
    "upper_non_critical",
    "upper_critical",
    "upper_non_recoverable",
];

pub(super) const LNC: usize = 0;
pub(super) const LC: usize = 1;
pub(super) const LNR: usize = 2;
pub(super) const UNC: usize = 3;
pub(super) const UC: usize = 4;
pub(super) const UNR: usize = 5;

/// Whether values below the lower limits and above the upper limits are bad.
pub(super) fn sides(class: SensorClass) -> (bool, bool) {
    match class {
        SensorClass::Fan => (true, false),
        SensorClass::Temperature | SensorClass::Processor => (false, true),
        SensorClass::Other => (false, false),
        _ => (true, true),
    }
}

/// On which side of the value the thresholds are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// Lower thresholds are lower limits of the value.
    ByValue,
    /// The value falls while the raw number rises, and thresholds apply to the raw number: upper
    /// thresholds are lower limits of the value.
    ByRaw,
    /// The value falls while the raw number rises, and the meaning of thresholds is unknown.
    Unknown,
}

impl Arrangement {
    /// The thresholds that may be the limit `slot` of the value.
    pub(super) fn slots(self, slot: usize) -> [usize; 2] {
        match self {
            Self::ByValue => [slot; 2],
            Self::ByRaw => [opposite(slot); 2],
            Self::Unknown => [slot, opposite(slot)],
        }
    }
}

/// Limits of the value of a sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) values: [Option<f64>; 6],
    pub(super) arrangement: Arrangement,
    /// A used raw threshold, where the hysteresis is converted.
    pub(super) raw: Option<u8>,
}

impl Limits {
    /// No limits.
    pub(super) const NONE: Self =
        Self { values: [None; 6], arrangement: Arrangement::ByValue, raw: None };

    /// From the thresholds of the BMC or the record.
    pub(super) fn of(
        sensor: &Sensor,
        policy: &Policy,
        factors: &Factors,
        thresholds: &RawThresholds,
    ) -> Self {
        let is_falling = is_falling(factors, thresholds);
        let arrangements: &[Arrangement] = match is_falling {
            true => &[Arrangement::ByRaw, Arrangement::ByValue],
            false => &[Arrangement::ByValue],
        };
        let reader = LimitReader { sensor, policy, factors, range: range(factors) };
        let is_set = thresholds.values.iter().flatten().any(|raw| *raw != 0);
        let sensible: Vec<Self> = arrangements
            .iter()
            .filter(|_| is_set)
            .filter_map(|arrangement| reader.arrange(thresholds, *arrangement))
            .collect();
        let relevant = sensible.iter().find(|limits| limits.has_side_of(policy.class));
        if let Some(limits) = relevant.or(sensible.first()) {
            return *limits;
        }
        if is_falling {
            return Self { arrangement: Arrangement::Unknown, ..Self::NONE };
        }
        Self::NONE
    }

    /// Whether a limit is on a side that counts for this class. A single threshold fits both
    /// arrangements: the right one gives a fan a lower limit.
    fn has_side_of(&self, class: SensorClass) -> bool {
        let (looks_down, looks_up) = sides(class);
        let has = |slots: [usize; 3]| slots.iter().any(|slot| self.values[*slot].is_some());
        (looks_down && has([LNR, LC, LNC])) || (looks_up && has([UNC, UC, UNR]))
    }
}

fn opposite(slot: usize) -> usize {
    (slot + 3) % 6
}

/// Whether the value falls while the raw number rises (a tachometer that counts the period).
fn is_falling(factors: &Factors, thresholds: &RawThresholds) -> bool {
    let set = thresholds.values.iter().flatten().copied();
    set.chain([1, 100]).find_map(|raw| factors.falls_at(raw)).unwrap_or(false)
}

/// The lowest and the highest possible value.
fn range(factors: &Factors) -> (f64, f64) {
    let values = (0..=u8::MAX).filter_map(|raw| factors.value(raw));
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

struct LimitReader<'a> {
    sensor: &'a Sensor,
    policy: &'a Policy,
    factors: &'a Factors,
    range: (f64, f64),
}

impl LimitReader<'_> {
    /// The limits in this arrangement; `None` if they contradict each other. If only unset
    /// thresholds (raw 0) contradict the others, those are ignored.
    fn arrange(&self, thresholds: &RawThresholds, arrangement: Arrangement) -> Option<Limits> {
        [false, true].into_iter().find_map(|is_zero_unset| {
            let mut limits = Limits { arrangement, ..Limits::NONE };
            for slot in 0..limits.values.len() {
                let raw = thresholds.values[arrangement.slots(slot)[0]];
                let raw = raw.filter(|raw| !is_zero_unset || *raw != 0);
                let value = raw.and_then(|raw| self.factors.value(raw));
                limits.values[slot] = value.filter(|value| !self.is_always_crossed(slot, *value));
                if limits.values[slot].is_some() {
                    limits.raw = limits.raw.or(raw);
                }
            }
            is_in_order(&limits.values).then_some(limits)
        })
    }

    /// Whether every reading crosses this limit: it is at the wrong end of the range, or all
    /// temperatures above freezing point are beyond it.
    fn is_always_crossed(&self, slot: usize, value: f64) -> bool {
        let (lowest, highest) = self.range;
        if slot < UNC {
            return value >= highest;
        }
        let is_temperature = self.policy.class == SensorClass::Temperature
            && self.policy.margin != Some(true)
            && self.sensor.unit == "degrees C";
        let may_be_margin = value < 0.0 && self.sensor.entity.has_thermal_margin();
        value <= lowest || (is_temperature && value <= 0.0 && !may_be_margin)
    }
}

/// Whether lower limits are below upper ones, and each side is in the order of its names.
fn is_in_order(values: &[Option<f64>; 6]) -> bool {
    let side =
        |slots: [usize; 3]| -> Vec<f64> { slots.iter().filter_map(|slot| values[*slot]).collect() };
    let (lower, upper) = (side([LNR, LC, LNC]), side([UNC, UC, UNR]));
    let is_apart = match (lower.last(), upper.first()) {
        (Some(low), Some(high)) => low < high,
        _ => true,
    };
    lower.is_sorted() && upper.is_sorted() && is_apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdr::{AnalogFormat, Linearization};

    const PERIOD: Factors = Factors {
        format: AnalogFormat::Unsigned,
        linearization: Linearization::Reciprocal,
        m: 1,
        b: 0,
        b_exponent: 0,
        result_exponent: -5,
    };

    fn linear(format: AnalogFormat) -> Factors {
        Factors { format, linearization: Linearization::Linear, result_exponent: 0, ..PERIOD }
    }

    fn limits(sensor_type: u8, factors: Factors, thresholds: [Option<u8>; 6]) -> Limits {
        let mut sensor = crate::sdr::tests::fan();
        (sensor.sensor_type, sensor.unit) = (sensor_type, "degrees C".to_owned());
        let policy = Policy::default_for(&sensor);
        Limits::of(&sensor, &policy, &factors, &RawThresholds { values: thresholds })
    }

    const FAN: u8 = 4;
    const TEMPERATURE: u8 = 1;
    const VOLTAGE: u8 = 2;

    #[test]
    fn unset_and_contradictory_thresholds_give_no_limits() {
        let unsigned = linear(AnalogFormat::Unsigned);
        let signed = linear(AnalogFormat::TwosComplement);
        for (sensor_type, factors, thresholds) in [
            (TEMPERATURE, unsigned, [Some(0); 6]),
            (TEMPERATURE, signed, [None, None, None, None, Some(0), None]),
            (TEMPERATURE, signed, [None, None, None, None, Some(0xFF), None]),
            (VOLTAGE, unsigned, [None, Some(140), None, None, Some(100), None]),
            (VOLTAGE, unsigned, [None, Some(100), None, None, Some(100), None]),
            (TEMPERATURE, unsigned, [None, None, None, Some(90), Some(80), None]),
            (FAN, unsigned, [None, Some(255), None, None, None, None]),
            (FAN, PERIOD, [Some(0), Some(0), None, None, None, None]),
        ] {
            let found = limits(sensor_type, factors, thresholds);
            assert_eq!(found.values, [None; 6], "{sensor_type} {thresholds:?}");
        }
    }

    #[test]
    fn an_unset_threshold_does_not_discard_the_others() {
        let unsigned = linear(AnalogFormat::Unsigned);
        let found = limits(FAN, unsigned, [Some(0), Some(10), Some(5), None, None, None]);
        assert_eq!(found.values, [None, Some(10.0), Some(5.0), None, None, None]);
        let found = limits(TEMPERATURE, unsigned, [None, None, None, Some(80), Some(90), Some(0)]);
        assert_eq!(found.values, [None, None, None, Some(80.0), Some(90.0), None]);
        let found = limits(TEMPERATURE, unsigned, [None, Some(0), None, None, Some(90), None]);
        assert_eq!(found.values, [None, Some(0.0), None, None, Some(90.0), None]);
    }

    #[test]
    fn a_period_counter_has_lower_limits_in_both_arrangements() {
        let low = |thresholds| {
            let found = limits(FAN, PERIOD, thresholds);
            let round = |slot: usize| found.values[slot].map(f64::round);
            (round(LNC), round(LC), found.arrangement)
        };
        let both = (Some(1000.0), Some(500.0));
        let given = |arrangement| (both.0, both.1, arrangement);
        // The period, as a raw number, must not rise above the upper threshold.
        let by_raw = [None, None, None, Some(100), Some(200), None];
        assert_eq!(low(by_raw), given(Arrangement::ByRaw));
        let by_value = [Some(100), Some(200), None, None, None, None];
        assert_eq!(low(by_value), given(Arrangement::ByValue));
        for (slot, arrangement) in [(LC, Arrangement::ByValue), (UC, Arrangement::ByRaw)] {
            let mut alone = [None; 6];
            alone[slot] = Some(200);
            assert_eq!(low(alone), (None, both.1, arrangement));
        }
        let with_upper = [Some(100), Some(200), None, None, Some(10), None];
        assert_eq!(low(with_upper), given(Arrangement::ByValue));
    }

    #[test]
    fn thresholds_of_ordinary_sensors_become_limits() {
        let signed = linear(AnalogFormat::TwosComplement);
        let found = limits(TEMPERATURE, signed, [None, Some(0xFB), None, Some(80), Some(90), None]);
        assert_eq!(found.values, [None, Some(-5.0), None, Some(80.0), Some(90.0), None]);
        let unsigned = linear(AnalogFormat::Unsigned);
        let found = limits(VOLTAGE, unsigned, [None, Some(100), None, Some(140), Some(140), None]);
        assert_eq!(found.values[LC..=UC], [Some(100.0), None, Some(140.0), Some(140.0)]);
    }
}
