//! When a counter of a port rises too fast. Pure: one watch for one counter of one port.
//!
//! A counter is judged by its increase within a sliding window: against a fixed limit, and, where
//! the rule says so, against the port's own past (the average increase of earlier windows).

use std::collections::VecDeque;
use std::time::Duration;

/// Most samples that one window keeps; closer ones are merged.
const SAMPLES_MAX: usize = 128;
/// Windows that must have passed before the past says anything.
const PAST_WINDOWS_MIN: u32 = 6;
/// Weight of the latest window in the average of the past.
const PAST_WEIGHT: f64 = 1.0 / 16.0;

/// When a counter is too fast.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// An increase of this much within the window is too much.
    pub increase: u64,
    /// The window.
    pub window: Duration,
    /// So is an increase of this many times the average of earlier windows.
    pub surge: Option<f64>,
}

/// How a counter is written by the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Stays at its largest value until it is reset (InfiniBand PortCounters), with so many bits.
    Sticky(u32),
    /// Wraps after 32 or 64 bits: which of them is seen from the values.
    Wrapping,
}

/// By what a counter is too fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// The limit of the rule.
    Limit,
    /// The port's own past, whose average increase per window this is.
    Past(f64),
}

/// A counter crossed its limit, or came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Too fast.
    TooFast {
        /// Increase within the window.
        increase: u64,
        /// What was exceeded, in the same unit.
        limit: f64,
        /// Why.
        basis: Basis,
    },
    /// Below half of its limit again.
    Calm {
        /// Increase within the window.
        increase: u64,
        /// Half of what is too much.
        limit: f64,
    },
    /// The hardware counts no further until somebody resets the counter.
    Stuck {
        /// Its largest value.
        value: u64,
    },
}

/// The increase from one reading to the next, however the counter got there.
pub fn increase(before: u64, now: u64, width: Width) -> u64 {
    if now >= before {
        return now - before;
    }
    if width == Width::Wrapping {
        // Near the end before and near the start now: it wrapped. Anything else is a reset.
        for end in [u64::from(u32::MAX), u64::MAX] {
            let quarter = end / 4;
            if before <= end && before >= end - quarter && now <= quarter {
                return (end - before).saturating_add(now).saturating_add(1);
            }
        }
    }
    // Reset in between: what it has now has come since.
    now
}

/// One counter of one port.
#[derive(Debug)]
pub struct CounterWatch {
    limit: Limit,
    width: Width,
    last: Option<u64>,
    /// Sum of all increases since the watch began.
    total: u64,
    /// (when, total), oldest first: spans the window.
    samples: VecDeque<(u64, u64)>,
    alarmed: Option<f64>,
    stuck: bool,
    past_average: f64,
    past_windows: u32,
    past_from: Option<(u64, u64)>,
}

impl CounterWatch {
    /// A counter of which nothing is known yet.
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

    /// The counter was read. The first reading only says from where to count.
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
            // Half of the fixed limit is the floor: three errors where there used to be one in
            // a day are a multiple, and no news.
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

    /// Takes a whole window into the average; one with an alarm in it is no example.
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
            // This driver counts further than the specification makes it.
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
    fn wraps_and_resets_are_told_apart() {
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
    fn too_fast_is_told_once_and_calm_below_half_of_the_limit() {
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
    fn a_surge_is_measured_against_the_ports_own_past() {
        let mut watch = CounterWatch::new(limit(100, Some(4.0)), Width::Wrapping);
        let mut value = 0;
        for second in 0..600 {
            value += u64::from(second % 6 == 0); // ten a minute
            assert_eq!(watch.observe(second * S, value), None, "at {second} s");
        }
        let mut told = None;
        for second in 600..660 {
            value += 1; // sixty a minute
            told = told.or(watch.observe(second * S, value));
        }
        let Some(Verdict::TooFast { increase, limit, basis: Basis::Past(average) }) = told else {
            panic!("no surge was seen: {told:?}");
        };
        assert!((9.0..11.0).contains(&average), "{average}");
        assert_eq!((increase, limit), (50, 50.0), "at least half of the fixed limit");
    }

    #[test]
    fn a_stuck_counter_is_told_once_and_does_not_look_calm() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Sticky(8));
        watch.observe(0, 200);
        assert!(matches!(watch.observe(S, 255), Some(Verdict::TooFast { increase: 55, .. })));
        assert_eq!(watch.observe(2 * S, 255), Some(Verdict::Stuck { value: 255 }));
        assert_eq!(watch.observe(200 * S, 255), None, "stuck is not calm");
        assert_eq!(watch.observe(201 * S, 0), None);
        assert!(matches!(watch.observe(300 * S, 0), Some(Verdict::Calm { .. })));
    }

    #[test]
    fn a_counter_that_goes_beyond_its_specified_end_does_not_stick() {
        let mut watch = CounterWatch::new(limit(10, None), Width::Sticky(8));
        watch.observe(0, 250);
        assert_eq!(watch.observe(S, 256), None);
        assert_eq!(watch.observe(100 * S, 256), None);
        assert!(matches!(watch.observe(101 * S, 280), Some(Verdict::TooFast { .. })));
    }

    proptest! {
        /// No sequence of readings makes it panic, overrun its memory, or say the same twice.
        #[test]
        fn any_readings_are_survived(
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
