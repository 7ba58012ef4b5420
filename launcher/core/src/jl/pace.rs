//! When the job is saved by itself: at fixed intervals, or as often as pays.
//!
//! What pays follows from two numbers: what a checkpoint costs, and how often something fails. The cost is measured:
//! how long the ranks stood still in the last ones. The time between failures is at first what was said, and with every
//! failure, and every hour without one, more what is seen. The interval is that of J. T. Daly, "A higher order estimate
//! of the optimum checkpoint interval for restart dumps" (2006), whose first term is J. W. Young's (1974).
//!
//! Pure; not responsible for saving.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};

/// The first checkpoint of a job that is saved as often as pays: until then its cost is not known.
const FIRST: Duration = Duration::from_secs(60);
/// The time between failures where nothing is said.
pub const MTBF: Duration = Duration::from_secs(24 * 3600);
/// A job is not saved more often than the last checkpoint took, until it was in the store, so many times.
const REST: u32 = 2;

/// How often a job is saved by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Interval {
    /// Only when it is asked to.
    #[default]
    Never,
    /// As often as pays.
    Auto,
    /// That often.
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

/// The interval between checkpoints that loses least, for their cost and the mean time between failures.
fn optimum(cost: Duration, mtbf: Duration) -> Duration {
    let (c, m) = (cost.as_secs_f64(), mtbf.as_secs_f64());
    // Saving takes longer than what could be lost: Daly's other branch.
    if c >= 2.0 * m {
        return mtbf;
    }
    let ratio = c / (2.0 * m);
    let best = (2.0 * c * m).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - c;
    Duration::try_from_secs_f64(best).unwrap_or(mtbf)
}

/// Where the interval in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Nobody wants the job to be saved by itself.
    Never,
    /// It was said.
    Clock,
    /// It is to be as often as pays, and no checkpoint has been seen yet.
    First,
    /// Daly's optimum, of the measured cost and the rate of failures.
    Optimum,
    /// The optimum is below the rest that the job gets: twice the time until the last checkpoint was in the store.
    Rest,
}

/// The interval in force and what it follows from, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaceView {
    /// Where it comes from.
    pub source: Source,
    /// The interval; none where the job is not saved by itself.
    pub interval_ms: Option<u64>,
    /// How long the ranks stand still in a checkpoint, as measured.
    pub cost_ms: Option<u64>,
    /// How long the last one took until it was in the store.
    pub took_ms: Option<u64>,
    /// The mean time between failures, of what was said and what is seen.
    pub mtbf_ms: u64,
    /// Failures seen.
    pub failures: u32,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// For people: whole seconds where it is long.
fn words(ms: u64) -> String {
    let ms = if ms >= 10_000 { ms / 1000 * 1000 } else { ms };
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

impl fmt::Display for PaceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = words(self.interval_ms.unwrap_or_default());
        let cost = words(self.cost_ms.unwrap_or_default());
        match self.source {
            Source::Never => f.write_str("only when asked to"),
            Source::Clock => write!(f, "every {every}, as was said"),
            Source::First => write!(f, "first after {every}: what it costs is not known yet"),
            Source::Optimum => write!(
                f,
                "every {every}, as pays: it costs {cost}, a failure is expected every {} ({} seen)",
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

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pace {
    interval: Interval,
    mtbf: Duration,
    /// How long the ranks stand still in a checkpoint; a newer measurement counts as much as all before it.
    cost: Option<Duration>,
    /// How long the last one took until it was in the store.
    took: Duration,
    /// How long the job is under way, and since when that was not added up.
    ran: Duration,
    since_ns: u64,
    failures: u32,
    due_ns: u64,
}

impl Pace {
    /// Nothing is known yet but what was said of the time between failures.
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

    /// The clock begins here, or is another than before.
    pub(super) fn begin(&mut self, now: Now) {
        self.since_ns = now.mono_ns;
        self.arm(now);
    }

    /// When a checkpoint is due, in monotonic nanoseconds.
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether one is due; the next is then an interval away.
    pub(super) fn take(&mut self, now: Now) -> bool {
        let due = now.mono_ns >= self.due_ns;
        if due {
            self.arm(now);
        }
        due
    }

    /// A checkpoint is in the store: the ranks stood still for `cost`, all of it took `took`.
    pub(super) fn saved(&mut self, now: Now, cost: Duration, took: Duration) {
        self.cost = Some(self.cost.map_or(cost, |before| (before + cost) / 2));
        self.took = took;
        self.arm(now);
    }

    /// A rank or a node has died.
    pub(super) fn failed(&mut self, now: Now) {
        self.failures += 1;
        self.arm(now);
    }

    /// Between two checkpoints, as of now; `None`: never.
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

    /// All of it, to be shown.
    pub fn view(&self) -> PaceView {
        let (source, interval) = self.sourced();
        PaceView {
            source,
            interval_ms: interval.map(millis),
            cost_ms: self.cost.map(millis),
            took_ms: self.cost.map(|_| millis(self.took)),
            mtbf_ms: millis(self.mtbf()),
            failures: self.failures,
        }
    }

    /// What was said counts as one failure in that time; then every failure and all the time that was seen.
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

    /// The waste of an interval: checkpoints, and half an interval with its checkpoint lost a failure.
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
    fn what_is_seen_counts_more_and_more() {
        let mut pace = Pace::new(Interval::Auto, 24 * HOUR);
        pace.begin(at(HOUR));
        assert_eq!(pace.due_ns(), at(HOUR + FIRST).mono_ns);
        assert!(!pace.take(at(HOUR)));
        assert!(pace.take(at(HOUR + FIRST)));
        pace.saved(at(HOUR + FIRST), Duration::from_secs(2), Duration::from_secs(5));
        let calm = pace.interval().unwrap();
        for _ in 0..11 {
            pace.failed(at(HOUR + FIRST));
        }
        let wild = pace.interval().unwrap();
        assert!(wild < calm / 3, "{calm:?} {wild:?}");
        pace.failed(at(13 * HOUR));
        assert_eq!(pace.mtbf(), (24 * HOUR + 12 * HOUR) / 13);
        assert_eq!(
            pace.view().to_string(),
            "every 3m 18s, as pays: it costs 2s, a failure is expected every 2h 46m 9s (12 seen)"
        );
        // Cheaper checkpoints come more often, but never without a rest.
        pace.saved(at(13 * HOUR), Duration::ZERO, 2 * HOUR);
        assert_eq!(pace.interval(), Some(4 * HOUR));
        assert_eq!(pace.view().source, Source::Rest);
    }

    #[test]
    fn the_interval_is_shown_with_where_it_comes_from() {
        let view = |interval| Pace::new(interval, 24 * HOUR).view();
        let (never, clock, first) =
            (view(Interval::Never), view(Interval::Every(HOUR)), view(Interval::Auto));
        assert_eq!((never.source, never.interval_ms), (Source::Never, None));
        assert_eq!(never.to_string(), "only when asked to");
        assert_eq!((clock.source, clock.interval_ms), (Source::Clock, Some(3_600_000)));
        assert_eq!(clock.to_string(), "every 1h, as was said");
        assert_eq!((first.source, first.cost_ms), (Source::First, None));
        assert_eq!(first.to_string(), "first after 1m: what it costs is not known yet");
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
