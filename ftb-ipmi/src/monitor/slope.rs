//! Prediction: will a rising temperature reach its limit, and when.
//!
//! A line is fitted through the readings of a window (least squares). It is believed only when the
//! readings lie close to it, when the rise has lasted, and when the later half still rises: a job
//! that starts makes temperatures jump and settle, and must not move.

use std::collections::VecDeque;
use std::time::Duration;

/// Most readings kept of one sensor; beyond it every second one is dropped.
const READINGS_MAX: usize = 128;
/// Fewest readings that make a line.
const READINGS_MIN: usize = 6;
/// Share of the rise that the line must explain.
const FIT_MIN: f64 = 0.95;
/// Least rise over the window that is more than noise, in degrees.
const RISE_MIN: f64 = 3.0;
/// The later half must rise at least at this share of the whole slope.
const STILL_RISING: f64 = 0.5;
/// Standard errors around the slope that the earliest and latest moment allow for (95 %).
const ERRORS: f64 = 1.96;

/// When a limit will be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The limit.
    pub limit: f64,
    /// Rise per second.
    pub slope: f64,
    /// Seconds until the limit, best guess.
    pub seconds_left: f64,
    /// The earliest, at 95 %.
    pub seconds_left_min: f64,
    /// The latest, at 95 %.
    pub seconds_left_max: f64,
    /// How much of the readings' spread the line explains, 0 to 100.
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
    /// Notes a reading; time in milliseconds on a clock that never goes back.
    pub(super) fn note(&mut self, now_ms: u64, value: f64, over: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of uptime fit 53 bits")]
        let at = now_ms as f64 / 1000.0;
        // Twice the window is kept, so that after thinning the window is still covered.
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

    /// Forgets everything: after a hole, the past says nothing.
    pub(super) fn clear(&mut self) {
        self.readings.clear();
    }

    /// When the limit will be reached; `None` where nothing says that it will.
    pub(super) fn forecast(&self, limit: f64, over: Duration) -> Option<Forecast> {
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
        let is_rising = line.slope * over >= RISE_MIN && line.fit >= FIT_MIN;
        if !is_rising || recent.slope < line.slope * STILL_RISING {
            return None;
        }
        let left = (limit - line.at_end).max(0.0);
        let slowest = (line.slope - ERRORS * line.slope_error).max(f64::MIN_POSITIVE);
        Some(Forecast {
            limit,
            slope: line.slope,
            seconds_left: left / line.slope,
            seconds_left_min: left / (line.slope + ERRORS * line.slope_error),
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
            slope.note(u64::from(second) * 1000, value(f64::from(second)), OVER);
        }
        slope.forecast(90.0, OVER)
    }

    #[test]
    fn a_steady_rise_says_how_many_seconds_are_left() {
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
    fn a_jump_that_settles_a_calm_and_a_fall_say_nothing() {
        assert_eq!(forecast(40, |t| if t < 30.0 { 40.0 } else { 60.0 }), None);
        assert_eq!(forecast(40, |t| 60.0 - 20.0 * (-(t - 20.0).max(0.0) / 4.0).exp()), None);
        assert_eq!(forecast(40, |t| 50.0 + (t % 2.0)), None);
        assert_eq!(forecast(40, |t| 80.0 - t), None);
        assert_eq!(forecast(40, |_| 50.0), None);
    }

    #[test]
    fn a_short_past_says_nothing_and_a_long_one_is_bounded() {
        assert_eq!(forecast(10, |t| 40.0 + t), None);
        let mut slope = Slope::default();
        for tick in 0..10_000_u32 {
            slope.note(u64::from(tick) * 10, f64::from(tick) / 1000.0, OVER);
            assert!(slope.readings.len() <= READINGS_MAX);
        }
        assert!(slope.forecast(200.0, Duration::from_secs(10)).is_none(), "too slow to matter");
    }
}
