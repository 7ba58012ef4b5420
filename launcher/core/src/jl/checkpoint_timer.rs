//! When the job is saved by the clock: at a fixed interval, or at the optimum interval.
//!
//! The optimum follows from the cost of a checkpoint and the mean time between failures. The cost
//! is measured: the time for which ranks were stopped. The mean time between failures starts with
//! the configured value; observed failures and running time correct it. The formula is J. T.
//! Daly's, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006);
//! its first term is J. W. Young's (1974).
//!
//! Pure. Not responsible for saving.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};

/// First checkpoint with `Auto`: its cost is unknown until then.
const FIRST: Duration = Duration::from_secs(20);
/// Default mean time between failures.
pub const MTBF: Duration = Duration::from_secs(24 * 3600);
/// The interval is at least this many times the duration of the last checkpoint.
const REST: u32 = 2;

/// When the job is saved by the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Interval {
    /// Only on request.
    #[default]
    Never,
    /// At the optimum interval.
    Auto,
    Every(Duration),
}

impl FromStr for Interval {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            "auto" => Ok(Self::Auto),
            text => match humantime::parse_duration(text) {
                Ok(every) if !every.is_zero() => Ok(Self::Every(every)),
                Ok(_) => {
                    Err("an interval of 0 would save the job without end: never, auto, or 10m"
                        .to_owned())
                }
                Err(_) => {
                    let start: String = text.chars().take(32).collect();
                    Err(format!("{start:?} is no interval: never, auto, or a time as 10m"))
                }
            },
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Auto => f.write_str("auto"),
            Self::Every(every) => humantime::format_duration(*every).fmt(f),
        }
    }
}

impl TryFrom<String> for Interval {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Interval> for String {
    fn from(interval: Interval) -> Self {
        interval.to_string()
    }
}

/// The interval with the least loss, for this cost and mean time between failures.
fn optimum(cost: Duration, mtbf: Duration) -> Duration {
    let (c, m) = (cost.as_secs_f64(), mtbf.as_secs_f64());
    // Saving takes longer than the possible loss: Daly's other branch.
    if c >= 2.0 * m {
        return mtbf;
    }
    let ratio = c / (2.0 * m);
    let best = (2.0 * c * m).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - c;
    Duration::try_from_secs_f64(best).unwrap_or(mtbf)
}

/// The reason for the interval in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Only on request.
    Never,
    Clock,
    /// `Auto` before the first checkpoint.
    First,
    /// Daly's optimum.
    Optimum,
    /// The optimum is below the least interval: twice the duration of the last checkpoint.
    Rest,
}

/// The interval in force and its inputs, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IntervalView {
    pub source: Source,
    /// `None`: the job is not saved by the clock.
    pub interval_ms: Option<u64>,
    /// Measured time for which ranks stand still in a checkpoint.
    pub cost_ms: Option<u64>,
    /// Duration of the last checkpoint, until it was in the store.
    pub took_ms: Option<u64>,
    /// Configured and observed mean time between failures, combined.
    pub mtbf_ms: u64,
    pub failures: u32,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// For display; whole seconds where it is long.
fn words(ms: u64) -> String {
    let ms = if ms >= 10_000 { ms / 1000 * 1000 } else { ms };
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

impl fmt::Display for IntervalView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = words(self.interval_ms.unwrap_or_default());
        let cost = words(self.cost_ms.unwrap_or_default());
        match self.source {
            Source::Never => f.write_str("only on request"),
            Source::Clock => write!(f, "every {every}, as configured"),
            Source::First => write!(f, "first after {every}: its cost is not known yet"),
            Source::Optimum => write!(
                f,
                "every {every}, the optimum: it costs {cost}, a failure is expected every {} ({} \
                 seen)",
                words(self.mtbf_ms),
                self.failures
            ),
            Source::Rest => write!(
                f,
                "every {every}, twice the time that the last one took until it was in the store"
            ),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointTimer {
    interval: Interval,
    mtbf: Duration,
    /// Smoothed: a new measurement weighs as much as all earlier ones.
    cost: Option<Duration>,
    /// Duration of the last checkpoint, until it was in the store.
    took: Duration,
    /// Running time, and the moment up to which it is added up.
    ran: Duration,
    since_ns: u64,
    failures: u32,
    due_ns: u64,
}

impl Default for CheckpointTimer {
    fn default() -> Self {
        Self::new(Interval::Never, MTBF)
    }
}

impl CheckpointTimer {
    pub(super) fn new(interval: Interval, mtbf: Duration) -> Self {
        Self {
            interval,
            mtbf,
            cost: None,
            took: Duration::ZERO,
            ran: Duration::ZERO,
            since_ns: 0,
            failures: 0,
            due_ns: u64::MAX,
        }
    }

    /// The clock starts here, or has changed.
    pub(super) fn begin(&mut self, now: Now) {
        self.since_ns = now.mono_ns;
        self.arm(now);
    }

    /// When a checkpoint is due, in monotonic nanoseconds.
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether a checkpoint is due; if so, the next one is an interval away.
    pub(super) fn take(&mut self, now: Now) -> bool {
        let due = now.mono_ns >= self.due_ns;
        if due {
            self.arm(now);
        }
        due
    }

    /// A checkpoint is in the store. Ranks stood still for `cost`; all of it took `took`.
    pub(super) fn saved(&mut self, now: Now, cost: Duration, took: Duration) {
        self.cost = Some(self.cost.map_or(cost, |before| (before + cost) / 2));
        self.took = took;
        self.arm(now);
    }

    pub(super) fn failed(&mut self, now: Now) {
        self.failures += 1;
        self.arm(now);
    }

    /// The interval as of now; `None`: never.
    pub fn interval(&self) -> Option<Duration> {
        self.sourced().1
    }

    fn sourced(&self) -> (Source, Option<Duration>) {
        match (self.interval, self.cost) {
            (Interval::Never, _) => (Source::Never, None),
            (Interval::Every(every), _) => (Source::Clock, Some(every)),
            (Interval::Auto, None) => (Source::First, Some(FIRST)),
            (Interval::Auto, Some(cost)) => {
                let best = optimum(cost, self.mtbf()).max(Duration::from_secs(1));
                let rest = self.took.saturating_mul(REST);
                if rest > best { (Source::Rest, Some(rest)) } else { (Source::Optimum, Some(best)) }
            }
        }
    }

    pub fn view(&self) -> IntervalView {
        let (source, interval) = self.sourced();
        IntervalView {
            source,
            interval_ms: interval.map(millis),
            cost_ms: self.cost.map(millis),
            took_ms: self.cost.map(|_| millis(self.took)),
            mtbf_ms: millis(self.mtbf()),
            failures: self.failures,
        }
    }

    /// The configured value counts as one failure in that time, beside the observed failures and
    /// time.
    pub fn mtbf(&self) -> Duration {
        self.mtbf.saturating_add(self.ran) / (1 + self.failures)
    }

    fn arm(&mut self, now: Now) {
        self.ran += Duration::from_nanos(now.mono_ns.saturating_sub(self.since_ns));
        self.since_ns = now.mono_ns;
        self.due_ns = self.interval().map_or(u64::MAX, |interval| now.deadline_ns(interval));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(after: Duration) -> Now {
        Now { mono_ns: after.as_nanos() as u64, wall_ns: 0 }
    }

    /// Cost of an interval: its checkpoints, and half an interval with its checkpoint for each
    /// failure.
    fn waste(interval: f64, cost: f64, mtbf: f64) -> f64 {
        cost / interval + (interval + cost) / (2.0 * mtbf)
    }

    #[test]
    fn the_optimum_is_where_the_waste_is_least() {
        for (cost, mtbf) in [(1.0, 3600.0), (30.0, 86_400.0), (60.0, 7200.0)] {
            let best = optimum(Duration::from_secs_f64(cost), Duration::from_secs_f64(mtbf));
            let least = waste(best.as_secs_f64(), cost, mtbf);
            for factor in [0.5, 2.0] {
                assert!(least < waste(best.as_secs_f64() * factor, cost, mtbf), "{cost} {mtbf}");
            }
        }
        // Young's: the square root of 2 * 60 s * 24 h is 3,220 s; Daly's is that + 20 s - 60 s.
        let best = optimum(Duration::from_secs(60), 24 * HOUR).as_secs();
        assert_eq!(best, 3180);
        assert_eq!(optimum(3 * HOUR, HOUR), HOUR);
    }

    #[test]
    fn observed_failures_outweigh_the_configured_mtbf() {
        let mut checkpoint_timer = CheckpointTimer::new(Interval::Auto, 24 * HOUR);
        checkpoint_timer.begin(at(HOUR));
        assert_eq!(checkpoint_timer.due_ns(), at(HOUR + FIRST).mono_ns);
        assert!(!checkpoint_timer.take(at(HOUR)));
        assert!(checkpoint_timer.take(at(HOUR + FIRST)));
        checkpoint_timer.saved(at(HOUR + FIRST), Duration::from_secs(2), Duration::from_secs(5));
        let calm = checkpoint_timer.interval().unwrap();
        for _ in 0..11 {
            checkpoint_timer.failed(at(HOUR + FIRST));
        }
        let wild = checkpoint_timer.interval().unwrap();
        assert!(wild < calm / 3, "{calm:?} {wild:?}");
        checkpoint_timer.failed(at(13 * HOUR));
        assert_eq!(checkpoint_timer.mtbf(), (24 * HOUR + 12 * HOUR) / 13);
        assert_eq!(
            checkpoint_timer.view().to_string(),
            "every 3m 18s, the optimum: it costs 2s, a failure is expected every 2h 46m 9s (12 \
             seen)"
        );
        // Cheaper checkpoints come more often, but keep the least interval.
        checkpoint_timer.saved(at(13 * HOUR), Duration::ZERO, 2 * HOUR);
        assert_eq!(checkpoint_timer.interval(), Some(4 * HOUR));
        assert_eq!(checkpoint_timer.view().source, Source::Rest);
    }

    #[test]
    fn the_interval_is_shown_with_where_it_comes_from() {
        let view = |interval| CheckpointTimer::new(interval, 24 * HOUR).view();
        let (never, clock, first) =
            (view(Interval::Never), view(Interval::Every(HOUR)), view(Interval::Auto));
        assert_eq!((never.source, never.interval_ms), (Source::Never, None));
        assert_eq!(never.to_string(), "only on request");
        assert_eq!((clock.source, clock.interval_ms), (Source::Clock, Some(3_600_000)));
        assert_eq!(clock.to_string(), "every 1h, as configured");
        assert_eq!((first.source, first.cost_ms), (Source::First, None));
        assert_eq!(first.to_string(), "first after 20s: its cost is not known yet");
    }

    #[test]
    fn an_interval_is_read_and_written() {
        for text in ["never", "auto", "10m"] {
            assert_eq!(text.parse::<Interval>().unwrap().to_string(), text);
        }
        for bad in ["0s", "often", "-1m", ""] {
            assert!(bad.parse::<Interval>().unwrap_err().contains("auto"), "{bad}");
        }
    }
}
