//! Whether a counter of a port rises too fast. Pure: one watch for one counter of one port.
//!
//! The increase within a sliding window is compared with a fixed limit. If the rule has a surge
//! factor, it is also compared with the past of the port (the average increase of earlier windows).

use std::collections::VecDeque;
use std::time::Duration;

/// Most samples of one window; samples closer together are merged.
const SAMPLES_MAX: usize = 128;
/// Windows that must have passed before the past counts.
const PAST_WINDOWS_MIN: u32 = 6;
/// Weight of the latest window in the average of the past.
const PAST_WEIGHT: f64 = 1.0 / 16.0;

/// When a counter rises too fast.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Smallest increase within the window that is too fast.
    pub increase: u64,
    /// The window.
    pub window: Duration,
    /// Smallest multiple of the average of earlier windows that is too fast.
    pub surge: Option<f64>,
}

/// How the hardware counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Stops at its largest value until it is reset (InfiniBand PortCounters). The number of bits.
    Sticky(u32),
    /// Wraps after 32 or 64 bits; the values show which.
    Wrapping,
}

/// Which limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// The limit of the rule.
    Limit,
    /// The past of the port: the average increase per window.
    Past(f64),
}

/// A change in the judgement of a counter.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It rises too fast.
    TooFast {
        /// Increase within the window.
        increase: u64,
        /// The exceeded limit, in the same unit.
        limit: f64,
        /// Which limit that is.
        basis: Basis,
    },
    /// It is below half of its limit again.
    Calm {
        /// Increase within the window.
        increase: u64,
        /// Half of the exceeded limit.
        limit: f64,
    },
    /// The counter is at its maximum and must be reset.
    Stuck {
        /// The maximum.
        value: u64,
    },
}

/// The increase from one reading to the next, with wraps and resets.
pub fn increase(before: u64, now: u64, width: Width) -> u64 {
    if now >= before {
        return now - before;
    }
    if width == Width::Wrapping {
        // From near the end to near the start: a wrap. Otherwise a reset.
        for end in [u64::from(u32::MAX), u64::MAX] {
            let quarter = end / 4;
            if before <= end && before >= end - quarter && now <= quarter {
                return (end - before).saturating_add(now).saturating_add(1);
            }
        }
    }
    // Reset in between: the whole value is new.
    now
}

/// The watch for one counter of one port.
#[derive(Debug)]
pub struct CounterWatch {
    limit: Limit,
    width: Width,
    last: Option<u64>,
    /// Sum of all increases.
    total: u64,
    /// Time and total, oldest first; covers the window.
    samples: VecDeque<(u64, u64)>,
    alarmed: Option<f64>,
    stuck: bool,
    past_average: f64,
    past_windows: u32,
    past_from: Option<(u64, u64)>,
}

impl CounterWatch {
    /// A watch without readings.
    pub fn new(limit: Limit, width: Width) -> Self {
        Self {
            limit,
            width,
            last: None,
            total: 0,
            samples: VecDeque::new(),
            alarmed: None,
            stuck: false,
            past_average: 0.0,
            past_windows: 0,
            past_from: None,
        }
    }

    /// A new reading. The first one is the start value.
    pub fn observe(&mut self, now_ns: u64, value: u64) -> Option<Verdict> {
        if let Some(last) = self.last {
            self.total = self.total.saturating_add(increase(last, value, self.width));
        }
        self.last = Some(value);
        self.remember(now_ns);
        let start = self.samples.front().map_or(self.total, |first| first.1);
        let increase = self.total - start;
        let verdict = self.judge(increase);
        self.learn(now_ns);
        verdict.or_else(|| self.notice_stuck(value))
    }

    fn remember(&mut self, now_ns: u64) {
        let window_ns = u64::try_from(self.limit.window.as_nanos()).unwrap_or(u64::MAX);
        let step_ns = window_ns / SAMPLES_MAX as u64;
        let close = |from: &(u64, u64)| now_ns.saturating_sub(from.0) < step_ns;
        // The oldest sample is the base of the sum and stays; the newest is moved forward.
        let merge =
            self.samples.len() > 1 && self.samples.get(self.samples.len() - 2).is_some_and(close);
        if merge {
            self.samples.pop_back();
        }
        self.samples.push_back((now_ns, self.total));
        // The base is the newest sample that is at least one window old.
        while self.samples.get(1).is_some_and(|second| now_ns.saturating_sub(second.0) >= window_ns)
        {
            self.samples.pop_front();
        }
    }

    fn judge(&mut self, increase: u64) -> Option<Verdict> {
        let measured = increase as f64;
        if let Some(limit) = self.alarmed {
            if measured < limit / 2.0 && !self.stuck {
                self.alarmed = None;
                return Some(Verdict::Calm { increase, limit: limit / 2.0 });
            }
            return None;
        }
        let fixed = self.limit.increase as f64;
        let past = self.limit.surge.filter(|_| self.knows_its_past());
        let (limit, basis) = match past {
            // At least half of the fixed limit: three errors after one error a day are a multiple,
            // but no surge.
            Some(factor) if (factor * self.past_average).max(fixed / 2.0) < fixed => {
                ((factor * self.past_average).max(fixed / 2.0), Basis::Past(self.past_average))
            }
            _ => (fixed, Basis::Limit),
        };
        if measured < limit {
            return None;
        }
        self.alarmed = Some(limit);
        Some(Verdict::TooFast {
            increase,
            limit,
            basis: if measured >= fixed { Basis::Limit } else { basis },
        })
    }

    fn knows_its_past(&self) -> bool {
        self.past_windows >= PAST_WINDOWS_MIN
    }

    /// Adds a whole window to the average, unless it contains an alarm.
    fn learn(&mut self, now_ns: u64) {
        let window_ns = u64::try_from(self.limit.window.as_nanos()).unwrap_or(u64::MAX);
        if self.alarmed.is_some() {
            self.past_from = None;
            return;
        }
        let (since, total) = *self.past_from.get_or_insert((now_ns, self.total));
        if now_ns.saturating_sub(since) < window_ns {
            return;
        }
        let increase = (self.total - total) as f64;
        let weight = match self.past_windows {
            0 => 1.0,
            _ => PAST_WEIGHT,
        };
        self.past_average += (increase - self.past_average) * weight;
        self.past_windows = self.past_windows.saturating_add(1);
        self.past_from = Some((now_ns, self.total));
    }

    fn notice_stuck(&mut self, value: u64) -> Option<Verdict> {
        let Width::Sticky(bits) = self.width else {
            return None;
        };
        let largest = match bits {
            64.. => u64::MAX,
            bits => (1 << bits) - 1,
        };
        if value > largest {
            // This driver counts beyond the maximum of the specification.
            self.width = Width::Wrapping;
        }
        let was = std::mem::replace(&mut self.stuck, value == largest);
        (self.stuck && !was).then_some(Verdict::Stuck { value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn limit(increase: u64, surge: Option<f64>) -> Limit {
        Limit { increase, window: Duration::from_secs(60), surge }
    }

    #[test]
    fn wraps_and_resets_are_distinguished() {
        let wrap32 = u64::from(u32::MAX);
        assert_eq!(increase(5, 9, Width::Wrapping), 4);
        assert_eq!(increase(wrap32 - 1, 3, Width::Wrapping), 5);
        assert_eq!(increase(u64::MAX - 1, 3, Width::Wrapping), 5);
        assert_eq!(increase(1000, 3, Width::Wrapping), 3, "a reset");
        assert_eq!(increase(wrap32 - 1, 3, Width::Sticky(32)), 3, "sticks");
        assert_eq!(increase(wrap32 + 9, 3, Width::Wrapping), 3, "a reset");
    }

    #[test]
    fn the_value_at_the_start_is_not_an_increase() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Wrapping);
        assert_eq!(watch.observe(0, 1_000_000), None);
        assert_eq!(watch.observe(S, 1_000_009), None);
        assert!(matches!(
            watch.observe(2 * S, 1_000_010),
            Some(Verdict::TooFast { increase: 10, limit: 10.0, basis: Basis::Limit })
        ));
    }

    #[test]
    fn too_fast_is_reported_once_and_calm_below_half_of_the_limit() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Wrapping);
        watch.observe(0, 0);
        assert!(watch.observe(S, 20).is_some());
        assert_eq!(watch.observe(2 * S, 40), None);
        assert_eq!(watch.observe(30 * S, 40), None, "still in the window");
        // The increases have left the window by now; six remain, above half of the limit.
        assert_eq!(watch.observe(80 * S, 46), None);
        assert!(matches!(watch.observe(150 * S, 47), Some(Verdict::Calm { increase: 1, .. })));
        assert_eq!(watch.observe(151 * S, 47), None);
    }

    #[test]
    fn slow_errors_never_add_up() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Wrapping);
        for minute in 0..1000_u64 {
            assert_eq!(watch.observe(minute * 60 * S, minute * 5), None);
        }
    }

    #[test]
    fn a_surge_is_measured_against_the_past_of_the_port() {
        let mut watch = CounterWatch::new(limit(100, Some(4.0)), Width::Wrapping);
        let mut value = 0;
        for second in 0..600 {
            value += u64::from(second % 6 == 0); // ten a minute
            assert_eq!(watch.observe(second * S, value), None, "at {second} s");
        }
        let mut verdict = None;
        for second in 600..660 {
            value += 1; // sixty a minute
            verdict = verdict.or(watch.observe(second * S, value));
        }
        let Some(Verdict::TooFast { increase, limit, basis: Basis::Past(average) }) = verdict
        else {
            panic!("no surge was seen: {verdict:?}");
        };
        assert!((9.0..11.0).contains(&average), "{average}");
        assert_eq!((increase, limit), (50, 50.0), "at least half of the fixed limit");
    }

    #[test]
    fn a_counter_at_its_maximum_is_reported_once_and_is_not_calm() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Sticky(8));
        watch.observe(0, 200);
        assert!(matches!(watch.observe(S, 255), Some(Verdict::TooFast { increase: 55, .. })));
        assert_eq!(watch.observe(2 * S, 255), Some(Verdict::Stuck { value: 255 }));
        assert_eq!(watch.observe(200 * S, 255), None, "stuck is not calm");
        assert_eq!(watch.observe(201 * S, 0), None);
        assert!(matches!(watch.observe(300 * S, 0), Some(Verdict::Calm { .. })));
    }

    #[test]
    fn a_counter_beyond_its_specified_maximum_goes_on() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Sticky(8));
        watch.observe(0, 250);
        assert_eq!(watch.observe(S, 256), None);
        assert_eq!(watch.observe(100 * S, 256), None);
        assert!(matches!(watch.observe(101 * S, 280), Some(Verdict::TooFast { .. })));
    }

    proptest! {
        /// No sequence of readings causes a panic, unbounded memory, or a repeated verdict.
        #[test]
        fn any_readings_keep_the_watch_consistent(
            readings in proptest::collection::vec((0_u64..40 * S, any::<u64>()), 0..400)
        ) {
            let mut watch = CounterWatch::new(limit(10, Some(3.0)), Width::Wrapping);
            let (mut now, mut alarmed) = (0_u64, false);
            for (wait, value) in readings {
                now += wait;
                match watch.observe(now, value) {
                    Some(Verdict::TooFast { .. }) => { prop_assert!(!alarmed); alarmed = true; }
                    Some(Verdict::Calm { .. }) => { prop_assert!(alarmed); alarmed = false; }
                    _ => {}
                }
                prop_assert!(watch.samples.len() <= SAMPLES_MAX + 2);
            }
        }
    }
}
