//! The state of one sensor: debounce, open fault, prediction, unconfirmed events.

use super::finding::Fault;
use super::repeats::{EventStates, Momentary, Unconfirmed};
use super::slope::Slope;
use super::{Cause, Finding, FindingKind, Forecast, Reading, Watched, judge};
use crate::sdr::SensorClass;
use ftb_core::Severity;

#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    pub(super) was_present: bool,
    /// It was read since the start, or since its BMC or controller was lost.
    pub(super) is_read: bool,
    /// Of a sensor without readings: the states that its events report.
    pub(super) states: EventStates,
    /// Readings in a row without a value, of a machine with power.
    pub(super) empty_streak: u32,
    /// A fan that turned at its last reading.
    pub(super) is_turning: bool,
    pub(super) bad_streak: u32,
    good_streak: u32,
    /// The open fault.
    pub(super) open: Option<Fault>,
    pub(super) unconfirmed: Unconfirmed,
    /// The readings show a thermal margin.
    pub(super) is_margin: bool,
    slope: Slope,
    pub(super) momentary: Momentary,
}

impl Track {
    /// Severity of the open fault.
    pub(super) fn severity(&self) -> Option<Severity> {
        self.open.as_ref().map(Fault::severity)
    }

    /// Whether the last reading was good.
    pub(super) fn is_good(&self) -> bool {
        let is_quiet = self.bad_streak == 0 && self.empty_streak == 0;
        self.open.is_none() && is_quiet && self.good_streak > 0
    }

    /// Forgets readings after a time without any.
    pub(super) fn forget_readings(&mut self) {
        self.on_power_off();
        self.is_read = false;
        self.good_streak = 0;
        self.unconfirmed.forget_last();
        self.is_turning = false;
    }

    /// The machine is off: readings neither confirm nor predict a fault.
    pub(super) fn on_power_off(&mut self) {
        (self.bad_streak, self.empty_streak) = (0, 0);
        self.slope.clear();
    }

    /// Counts the events of states that neither the reading nor the open fault explains.
    pub(super) fn count_unexplained(&mut self, events: &Unconfirmed, reading: &Reading) {
        let published = self.open.as_ref().map_or(0, Fault::states);
        for (offset, events) in events.without(reading.states | published) {
            self.momentary.count(offset, events);
        }
    }

    /// A bad reading. Returns a finding if the fault is new, has become worse, or comes sooner.
    pub(super) fn on_bad(
        &mut self,
        now_ms: u64,
        watched: &Watched,
        reading: &Reading,
        cause: Cause,
        is_confirmed: bool,
    ) -> Option<Finding> {
        let kind = judge::kind_of(watched, cause)?;
        self.good_streak = 0;
        self.bad_streak = self.bad_streak.saturating_add(1);
        let severity = severity_of(watched, kind, cause);
        if let Some(fault) = &mut self.open
            && fault.severity() >= severity
        {
            fault.update(kind, cause, reading.value, self.bad_streak);
            return fault.sooner(now_ms);
        }
        if self.bad_streak < watched.policy.debounce && !is_confirmed {
            return None;
        }
        let finding = Finding {
            severity,
            cause: Some(cause),
            value: reading.value,
            readings: self.bad_streak,
            is_from_event: is_confirmed,
            ..Finding::of_sensor(kind, watched).since(now_ms, self.open.as_ref())
        };
        self.open = Some(Fault::new(now_ms, &finding));
        Some(finding)
    }

    /// A good reading. Returns a finding if it ends the open fault.
    pub(super) fn on_good(
        &mut self,
        watched: &Watched,
        reading: &Reading,
        is_confirmed: bool,
    ) -> Option<Finding> {
        self.bad_streak = 0;
        self.good_streak = self.good_streak.saturating_add(1);
        self.open.as_ref()?;
        if self.good_streak < watched.policy.clear_after && !is_confirmed {
            return None;
        }
        self.open = None;
        Some(Finding {
            value: reading.value,
            readings: self.good_streak,
            is_from_event: is_confirmed,
            ..Finding::of_sensor(FindingKind::Cleared, watched)
        })
    }

    /// Adds a temperature, and predicts whether it reaches its limit soon.
    pub(super) fn predict(
        &mut self,
        now_ms: u64,
        watched: &Watched,
        reading: &Reading,
    ) -> Option<Forecast> {
        let policy = &watched.policy;
        let is_heat = policy.class == SensorClass::Temperature && !policy.predict.is_zero();
        let (Some(value), Some(limit), true) = (reading.value, watched.upper_limit(), is_heat)
        else {
            return None;
        };
        self.slope.add(now_ms, value, policy.predict_over);
        let goes_on = self.open.as_ref().is_some_and(Fault::is_predicted);
        let forecast = self.slope.forecast(limit, policy.predict_over, goes_on)?;
        // A published prediction remains until the limit is twice as far away.
        let is_open = self.open.is_some();
        let horizon = policy.predict.as_secs_f64() * if is_open { 2.0 } else { 1.0 };
        (forecast.seconds_left <= horizon).then_some(forecast)
    }
}

/// The severity of a fault, from the rules or the standard.
pub(super) fn severity_of(watched: &Watched, kind: FindingKind, cause: Cause) -> Severity {
    watched.policy.severity.unwrap_or(match cause {
        Cause::State(state) => {
            let sensor = &watched.sensor;
            judge::state_severity(watched.policy.class, sensor.reading_type, state)
        }
        _ => kind.severity(),
    })
}
