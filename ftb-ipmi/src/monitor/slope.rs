//! Prediction: whether and when a rising temperature reaches its limit.
//!
//! A line is fitted through the readings of a window (least squares). It counts only if the
//! readings are close to it, the rise lasts, and the later half still rises. The start of a job
//! makes temperatures jump and settle; that must not cause a prediction.

use std::collections::VecDeque;
use std::time::Duration;

/// Most readings of one sensor. When full, every second reading is dropped.
const READINGS_MAX: usize = 128;
/// Fewest readings for a line.
const READINGS_MIN: usize = 6;
/// Smallest share of the variance that the line explains.
const FIT_MIN: f64 = 0.95;
/// Smallest rise over the window, in degrees; less counts as noise.
const RISE_MIN: f64 = 3.0;
/// Smallest slope of the later half, as a share of the whole slope.
const STILL_RISING: f64 = 0.5;
/// Standard errors of the slope in the earliest and latest time (95 %).
const ERRORS: f64 = 1.96;

/// A predicted crossing of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The limit.
    pub limit: f64,
    /// Rise per second.
    pub slope: f64,
    /// Seconds until the limit, best estimate.
    pub seconds_left: f64,
    /// The earliest time at 95 %, in seconds.
    pub seconds_left_min: f64,
    /// The latest time at 95 %, in seconds.
    pub seconds_left_max: f64,
    /// Share of the variance that the line explains, 0 to 100.
    pub sure_percent: f64,
}

/// The readings of one sensor.
#[derive(Clone, Debug, Default)]
pub(super) struct Slope {
    readings: VecDeque<(f64, f64)>,
}

/// A fitted line: `value = mean + slope * (time - middle)`.
struct Line {
    slope: f64,
    slope_error: f64,
    fit: f64,
    at_end: f64,
}

impl Slope {
    /// Adds a reading. The time in milliseconds must not decrease.
    pub(super) fn add(&mut self, now_ms: u64, value: f64, over: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of uptime fit 53 bits")]
        let at = now_ms as f64 / 1000.0;
        // Keep twice the window, so that the readings still cover it after thinning.
        let keep = over.as_secs_f64() * 2.0;
        while self.readings.front().is_some_and(|(first, _)| at - first > keep) {
            self.readings.pop_front();
        }
        if self.readings.len() >= READINGS_MAX {
            let mut is_kept = false;
            self.readings.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.readings.push_back((at, value));
    }

    /// Forgets all readings, after a time without readings.
    pub(super) fn clear(&mut self) {
        self.readings.clear();
    }

    /// When the limit will be reached; `None` without a lasting rise. `goes_on`: it was predicted
    /// before. A rise that becomes steeper is no straight line for a while.
    pub(super) fn forecast(&self, limit: f64, over: Duration, goes_on: bool) -> Option<Forecast> {
        let (last, _) = *self.readings.back()?;
        let over = over.as_secs_f64();
        let (first, _) = *self.readings.front()?;
        if last - first < over {
            return None;
        }
        let whole: Vec<_> =
            self.readings.iter().copied().filter(|(at, _)| last - at <= over).collect();
        let later: Vec<_> =
            whole.iter().copied().filter(|(at, _)| last - at <= over / 2.0).collect();
        let (line, recent) = (Line::fit(&whole)?, Line::fit(&later)?);
        let is_rising = line.slope * over >= RISE_MIN && (line.fit >= FIT_MIN || goes_on);
        if !is_rising || recent.slope < line.slope * STILL_RISING {
            return None;
        }
        let is_steeper = goes_on && recent.slope > line.slope;
        let line = if is_steeper { recent } else { line };
        let left = (limit - line.at_end).max(0.0);
        // Around a bend the errors of a line say nothing.
        let error = if line.fit >= FIT_MIN { ERRORS * line.slope_error } else { 0.0 };
        let slowest = (line.slope - error).max(f64::MIN_POSITIVE);
        Some(Forecast {
            limit,
            slope: line.slope,
            seconds_left: left / line.slope,
            seconds_left_min: left / (line.slope + error),
            seconds_left_max: left / slowest,
            sure_percent: line.fit * 100.0,
        })
    }
}

impl Line {
    fn fit(points: &[(f64, f64)]) -> Option<Self> {
        if points.len() < READINGS_MIN.div_ceil(2) {
            return None;
        }
        let count = f64::from(u32::try_from(points.len()).ok()?);
        let mean_at = points.iter().map(|(at, _)| at).sum::<f64>() / count;
        let mean = points.iter().map(|(_, value)| value).sum::<f64>() / count;
        let (mut square_at, mut square, mut product) = (0.0, 0.0, 0.0);
        for (at, value) in points {
            square_at += (at - mean_at).powi(2);
            square += (value - mean).powi(2);
            product += (at - mean_at) * (value - mean);
        }
        if square_at <= 0.0 || square <= 0.0 {
            return None;
        }
        let slope = product / square_at;
        let fit = (product * product / (square_at * square)).clamp(0.0, 1.0);
        let spread = (square * (1.0 - fit) / (count - 2.0).max(1.0)).max(0.0);
        let (end, _) = *points.last()?;
        Some(Self {
            slope,
            slope_error: (spread / square_at).sqrt(),
            fit,
            at_end: mean + slope * (end - mean_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Duration = Duration::from_secs(20);

    fn forecast(seconds: u32, value: impl Fn(f64) -> f64) -> Option<Forecast> {
        let mut slope = Slope::default();
        for second in 0..=seconds {
            slope.add(u64::from(second) * 1000, value(f64::from(second)), OVER);
        }
        slope.forecast(90.0, OVER, false)
    }

    #[test]
    fn a_steady_rise_predicts_the_seconds_left() {
        let found = forecast(30, |t| 40.0 + 0.5 * t).expect("a rise of half a degree a second");
        assert!((found.seconds_left - 70.0).abs() < 0.5, "{found:?}");
        assert!(found.sure_percent > 99.0);
        // Whole degrees only, as boards report.
        let steps = forecast(30, |t| (40.0 + 0.5 * t).floor()).expect("a rise in steps");
        assert!((steps.seconds_left - 70.0).abs() < 3.0, "{steps:?}");
        assert!(steps.seconds_left_min < steps.seconds_left);
        assert!(steps.seconds_left_max > steps.seconds_left);
    }

    #[test]
    fn only_a_lasting_rise_gives_a_prediction() {
        assert_eq!(forecast(40, |t| if t < 30.0 { 40.0 } else { 60.0 }), None);
        assert_eq!(forecast(40, |t| 60.0 - 20.0 * (-(t - 20.0).max(0.0) / 4.0).exp()), None);
        assert_eq!(forecast(40, |t| 50.0 + (t % 2.0)), None);
        assert_eq!(forecast(40, |t| 80.0 - t), None);
        assert_eq!(forecast(40, |_| 50.0), None);
    }

    #[test]
    fn a_rise_that_becomes_steeper_goes_on_with_less_time() {
        let bend = |t: f64| if t < 30.0 { 30.0 + 0.5 * t } else { 45.0 + 4.0 * (t - 30.0) };
        let mut slope = Slope::default();
        let mut left = 1000.0;
        for second in 0..=38_u32 {
            let at = f64::from(second);
            slope.add(u64::from(second) * 1000, bend(at), OVER);
            if second < 20 {
                continue;
            }
            let found = slope.forecast(90.0, OVER, true).expect("it rises at each second");
            assert!(found.seconds_left < left, "{second}: {found:?}");
            left = found.seconds_left;
        }
        assert!(left < 6.0, "3.25 s are left: {left}");
        assert_eq!(slope.forecast(90.0, OVER, false), None, "a new one needs a straight line");
    }

    #[test]
    fn a_short_history_gives_no_prediction_and_a_long_one_is_bounded() {
        assert_eq!(forecast(10, |t| 40.0 + t), None);
        let mut slope = Slope::default();
        for tick in 0..10_000_u32 {
            slope.add(u64::from(tick) * 10, f64::from(tick) / 1000.0, OVER);
            assert!(slope.readings.len() <= READINGS_MAX);
        }
        assert!(
            slope.forecast(200.0, Duration::from_secs(10), false).is_none(),
            "too slow to matter"
        );
    }
}
