//! The launcher's part: comparison with peers.
//!
//! | finding | a rank is hung that | after |
//! |---|---|---|
//! | stopped | a signal has stopped | `hang_after` |
//! | debugger | stands still under a debugger: it is only reported | `hang_after` |
//! | unread | stands still and does not read what has arrived | `stall_after` |
//! | io | waits for a file system or a driver | `stall_after` |
//! | steps | counts steps, but none more | `stall_after`, at least 4 times the longest step |
//! | peers | counts no steps, stands still, and is left behind by its peers | see below |
//! | all | is one of all ranks, which all stand still | `stall_after` |
//!
//! Peers leave a rank behind that they need no more: they go on and exchange data all the time, and
//! at most one in four stands still. A rank that waits for its peers looks the same. So it must
//! have shown what it does otherwise: it stands still for `stall_after`, for 30 times as long as
//! ever before, and was watched three times as long before that. Peers that compute, or wait busily
//! for the hung rank, exchange nothing: then nothing is found without steps.
//!
//! While a rank waits for a file system or a driver, `stall_after` passes three times slower for
//! all: such a pause ends more often than not, and peers wait for that rank.
//!
//! The rules further down count only while no rank above them explains why its peers wait. If all
//! ranks have stopped to count steps, the one that differs is named: it computes while the others
//! wait, or waits while the others compute. If all stand still, those in I/O or with unread data
//! are named.

use super::{NodeReport, RankReport, RunState, StepReport};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How much slower [`HangTimes::stall_after`] passes while a rank waits for I/O.
const IO_PATIENCE: u64 = 3;
/// How much longer than the longest step so far a step may take.
const STEP_PATIENCE: u64 = 4;
/// A rank differs from its peers if at most one in this number is as it is.
const ODD_SHARE: usize = 4;
/// How much longer than ever before a rank must stand still that its peers leave behind.
const WAIT_PATIENCE: u64 = 30;
/// How much longer than that it must have been watched before.
const WATCH_PATIENCE: u64 = 3;
/// How long at most the ranks that move may exchange nothing.
const EXCHANGE_GAP: Duration = Duration::from_secs(60);
/// At least this number of its peers must exchange data: one would do so with something else.
const PEERS_MIN: usize = 2;
/// Of the report of a rank that moves.
const ANY_START: u64 = u64::MAX;
/// Most remembered periods of I/O; the oldest go first.
const IO_PERIODS_MAX: usize = 64;
/// Reports count for this number of intervals.
const FRESH: u32 = 5;

/// When a rank counts as hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangTimes {
    /// A rank that is stopped.
    #[serde(with = "humantime_serde")]
    pub hang_after: Duration,
    /// A rank that makes no progress.
    #[serde(with = "humantime_serde")]
    pub stall_after: Duration,
}

impl Default for HangTimes {
    fn default() -> Self {
        Self { hang_after: Duration::from_secs(20), stall_after: Duration::from_secs(600) }
    }
}

impl HangTimes {
    /// Longest interval between two samples.
    const EVERY_MAX: Duration = Duration::from_secs(2);
    /// Looks before a rank counts as hung.
    const LOOKS: u32 = 10;
    /// Shortest interval between two samples.
    const EVERY_MIN: Duration = Duration::from_millis(100);

    /// # Errors
    /// A time is too short.
    pub fn check(&self) -> Result<(), String> {
        let least = Self::EVERY_MIN * Self::LOOKS;
        for (name, time) in [("hang_after", self.hang_after), ("stall_after", self.stall_after)] {
            if time < least {
                return Err(format!("{name} is {time:?}: at least {least:?}"));
            }
        }
        Ok(())
    }

    /// The interval of the samples.
    pub fn sample_every(&self) -> Duration {
        (self.hang_after.min(self.stall_after) / Self::LOOKS)
            .clamp(Self::EVERY_MIN, Self::EVERY_MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangKind {
    Stopped,
    Debugger,
    Unread,
    Io,
    Steps,
    Peers,
    All,
}

impl HangKind {
    /// The word in events and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Debugger => "debugger",
            Self::Unread => "unread",
            Self::Io => "io",
            Self::Steps => "steps",
            Self::Peers => "peers",
            Self::All => "all",
        }
    }

    const KINDS: [Self; 7] = [
        Self::Stopped,
        Self::Debugger,
        Self::Unread,
        Self::Io,
        Self::Steps,
        Self::Peers,
        Self::All,
    ];

    /// Whether it is never more than reported: a rank whose peers go on may have done its share.
    pub const fn is_only_reported(self) -> bool {
        matches!(self, Self::Peers)
    }

    /// What stands still, after the name of the rank.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Stopped => "is stopped by a signal",
            Self::Debugger => "is stopped by a debugger",
            Self::Unread => "does not read what has arrived and does nothing else",
            Self::Io => "waits for a file system or a driver",
            Self::Steps => "makes no further step",
            Self::Peers => "stands still while its peers go on and exchange data",
            Self::All => "have made no progress",
        }
    }
}

impl fmt::Display for HangKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for HangKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::KINDS.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| {
            let start: String = text.chars().take(32).collect();
            format!("{start:?} is no kind of hang")
        })
    }
}

/// A hung rank, or all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `None`: all ranks, and none is to blame more than the others.
    pub rank: Option<u32>,
    /// Number of its start.
    pub incarnation: u64,
    pub pid: u32,
    pub kind: HangKind,
    /// Since when, in Unix nanoseconds.
    pub since_ns: u64,
}

/// News of the judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangChange {
    Hung(Finding),
    /// It goes on, has ended, or another finding explains it.
    Over(Finding),
}

/// The judge of one job. Its findings are part of the state on disk; reports are not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HangJudge {
    found: Vec<Finding>,
    /// Whether a rank is under a debugger, by its last report.
    #[serde(skip)]
    is_traced: bool,
    /// The latest report of each rank and when it arrived, in monotonic nanoseconds.
    #[serde(skip)]
    reports: BTreeMap<u32, (u64, RankReport)>,
    /// Before that ranks stood still for a good reason, in monotonic nanoseconds.
    #[serde(skip)]
    since_ns: u64,
    /// When ranks waited for I/O, in monotonic nanoseconds.
    #[serde(skip)]
    io_ns: VecDeque<(u64, u64)>,
    /// When the next look is due.
    #[serde(skip)]
    due_ns: Option<u64>,
    /// The longest time that each rank has stood still and then gone on, in milliseconds.
    #[serde(skip)]
    longest_still: BTreeMap<u32, u64>,
    /// When each rank exchanged data last, in monotonic nanoseconds.
    #[serde(skip)]
    exchanges: BTreeMap<u32, u64>,
    /// Since when, and until when, the ranks that move exchange data, in monotonic nanoseconds.
    #[serde(skip)]
    exchange_ns: Option<(u64, u64)>,
    /// For how long the ranks were watched, in milliseconds.
    #[serde(skip)]
    watched_ms: u64,
}

/// The ranks of one look, with ages that count only since the watch began.
struct Look<'a> {
    reports: &'a [RankReport],
    now_ns: u64,
    io_ns: &'a VecDeque<(u64, u64)>,
    hang_ms: u64,
    stall_ms: u64,
    longest_still: &'a BTreeMap<u32, u64>,
    /// For how long the ranks that move exchange data.
    exchange_ms: u64,
    watched_ms: u64,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl HangJudge {
    pub fn found(&self) -> &[Finding] {
        &self.found
    }

    /// Whether a debugger is attached to a rank, also to one that runs.
    pub fn has_debugger(&self) -> bool {
        self.is_traced || self.found.iter().any(|finding| finding.kind == HangKind::Debugger)
    }

    /// When [`HangJudge::look`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        self.due_ns.unwrap_or(u64::MAX)
    }

    /// A node reports all its running ranks.
    pub fn on_report(&mut self, now: Now, node: &NodeReport) {
        let moves = |rank, steps| {
            let start = RankReport { rank, incarnation: ANY_START, steps, ..RankReport::default() };
            (rank, (now.mono_ns, start))
        };
        let steps = Some(StepReport { still_ms: 0, longest_ms: node.longest_ms });
        self.learn(node);
        self.exchanges.extend(node.exchanging.iter().map(|rank| (rank, now.mono_ns)));
        self.reports.extend(node.moving.iter().map(|rank| moves(rank, None)));
        self.reports.extend(node.stepping.iter().map(|rank| moves(rank, steps)));
        self.reports.extend(node.still.iter().map(|of| (of.rank, (now.mono_ns, *of))));
        self.due_ns.get_or_insert(now.mono_ns);
    }

    /// How long ranks have stood still that go on now. A stop by a signal says nothing about that.
    fn learn(&mut self, node: &NodeReport) {
        let moves = node.moving.iter().chain(node.stepping.iter()).map(|rank| (rank, 0));
        let stands = node.still.iter().map(|report| (report.rank, report.still_ms));
        for (rank, still_ms) in moves.chain(stands) {
            let before = self.reports.get(&rank).map(|(_, report)| report);
            if let Some(before) = before.filter(|before| before.still_ms > still_ms)
                && !matches!(before.state, RunState::Stopped | RunState::Traced)
            {
                let longest_ms = self.longest_still.entry(rank).or_default();
                *longest_ms = before.still_ms.max(*longest_ms);
            }
        }
    }

    /// Ranks stand still at present for a good reason: what happened until now does not count.
    pub fn pause(&mut self, now: Now, times: &HangTimes) {
        self.since_ns = now.mono_ns;
        self.exchange_ns = None;
        self.due_ns = Some(now.deadline_ns(times.sample_every()));
    }

    /// Compares the ranks. `starts` has the start of each rank; `None`: it has ended.
    pub fn look(&mut self, now: Now, times: &HangTimes, starts: &[Option<u64>]) -> Vec<HangChange> {
        let every = times.sample_every();
        self.due_ns = Some(now.deadline_ns(every));
        let oldest_ns = now.mono_ns.saturating_sub(millis(every * FRESH) * 1_000_000);
        let watched_ms = now.mono_ns.saturating_sub(self.since_ns) / 1_000_000;
        let running = || (0..).zip(starts).filter_map(|(rank, start)| Some((rank, (*start)?)));
        let known: Vec<RankReport> = running()
            .filter_map(|(rank, start)| {
                let (at_ns, report) = self.reports.get(&rank)?;
                let is_its = [start, ANY_START].contains(&report.incarnation);
                (is_its && *at_ns >= oldest_ns).then(|| report.since(watched_ms))
            })
            .collect();
        // A rank whose node is silent may move.
        let knows_all = known.len() == running().count();
        self.is_traced = known.iter().any(|report| report.state == RunState::Traced);
        if known.iter().any(|report| report.state == RunState::WaitsForIo) {
            self.has_io(now, every);
        }
        self.has_exchange(now, &known, oldest_ns);
        self.watched_ms = self.watched_ms.saturating_add(millis(every));
        let look = Look {
            reports: &known,
            now_ns: now.mono_ns,
            io_ns: &self.io_ns,
            hang_ms: millis(times.hang_after),
            stall_ms: millis(times.stall_after),
            longest_still: &self.longest_still,
            exchange_ms: self.exchange_ns.map_or(0, |(since, until)| (until - since) / 1_000_000),
            watched_ms: self.watched_ms,
        };
        let found = look.find(knows_all);
        let found = found.into_iter().map(|(report, kind, ms)| Finding {
            rank: report.map(|report| report.rank),
            incarnation: report.map_or(0, |report| report.incarnation),
            pid: report.map_or(0, |report| report.pid),
            kind,
            since_ns: now.wall_ns.saturating_sub(ms.saturating_mul(1_000_000)),
        });
        let found = found.collect();
        let is_unknown = |old: &Finding| match old.rank {
            None => !knows_all,
            Some(rank) => {
                let start = starts.get(rank as usize).copied().flatten();
                start == Some(old.incarnation) && !known.iter().any(|known| known.rank == rank)
            }
        };
        self.change(found, is_unknown)
    }

    /// Whether the ranks that move exchange data: at least half of them.
    fn has_exchange(&mut self, now: Now, known: &[RankReport], oldest_ns: u64) {
        let moving = || known.iter().filter(|report| report.still_ms == 0);
        let is_recent = |rank: &u32| self.exchanges.get(rank).is_some_and(|at| *at >= oldest_ns);
        let exchanging = moving().filter(|report| is_recent(&report.rank)).count();
        let most = exchanging >= PEERS_MIN && 2 * exchanging >= moving().count();
        let gap_ns = millis(EXCHANGE_GAP) * 1_000_000;
        let before =
            self.exchange_ns.filter(|(_, until)| now.mono_ns.saturating_sub(*until) <= gap_ns);
        self.exchange_ns = match before {
            Some((since, _)) if most => Some((since, now.mono_ns)),
            None if most => Some((now.mono_ns, now.mono_ns)),
            before => before,
        };
    }

    /// A rank waits for I/O. Looks that follow each other make one period.
    fn has_io(&mut self, now: Now, every: Duration) {
        let before_ns = now.mono_ns.saturating_sub(millis(every * FRESH) * 1_000_000);
        match self.io_ns.back_mut().filter(|(_, end_ns)| *end_ns >= before_ns) {
            Some((_, end_ns)) => *end_ns = now.mono_ns,
            None => self.io_ns.push_back((before_ns, now.mono_ns)),
        }
        if self.io_ns.len() > IO_PERIODS_MAX {
            self.io_ns.pop_front();
        }
    }

    /// Keeps what was known before with its age, also if no report says whether it is over.
    fn change(
        &mut self,
        mut found: Vec<Finding>,
        is_unknown: impl Fn(&Finding) -> bool,
    ) -> Vec<HangChange> {
        let same = |a: &Finding, b: &Finding| {
            (a.rank, a.incarnation, a.kind) == (b.rank, b.incarnation, b.kind)
        };
        let before = core::mem::take(&mut self.found);
        let mut changes = Vec::new();
        for old in &before {
            match found.iter_mut().find(|new| same(new, old)) {
                Some(new) => *new = *old,
                None if is_unknown(old) => found.push(*old),
                None => changes.push(HangChange::Over(*old)),
            }
        }
        let is_new = |new: &&Finding| !before.iter().any(|old| same(old, new));
        changes.extend(found.iter().filter(is_new).copied().map(HangChange::Hung));
        self.found = found;
        changes
    }
}

impl RankReport {
    /// With ages of at most `watched_ms`.
    fn since(&self, watched_ms: u64) -> Self {
        let steps = self
            .steps
            .map(|steps| StepReport { still_ms: steps.still_ms.min(watched_ms), ..steps });
        Self {
            state_ms: self.state_ms.min(watched_ms),
            still_ms: self.still_ms.min(watched_ms),
            unread_ms: self.unread_ms.min(watched_ms),
            steps,
            ..*self
        }
    }
}

/// A hung rank, or none for all; what it is; for how many milliseconds.
type Found<'a> = (Option<&'a RankReport>, HangKind, u64);

impl<'a> Look<'a> {
    fn find(&self, knows_all: bool) -> Vec<Found<'a>> {
        let by_signal = self.by_signal();
        if !by_signal.is_empty() {
            return by_signal;
        }
        // A stop or a debugger that does not count yet may explain everything else.
        let is_stopped =
            |report: &RankReport| matches!(report.state, RunState::Stopped | RunState::Traced);
        if self.reports.iter().any(is_stopped) {
            return Vec::new();
        }
        let blocked = self.blocked();
        if !blocked.is_empty() {
            return blocked;
        }
        // All may wait for a rank whose node is silent.
        let by_steps = if knows_all { self.by_steps() } else { Vec::new() };
        if !by_steps.is_empty() || !knows_all {
            return by_steps;
        }
        let left_behind = self.left_behind();
        if !left_behind.is_empty() {
            return left_behind;
        }
        self.all_still()
    }

    fn by_signal(&self) -> Vec<Found<'a>> {
        let found = self.reports.iter().filter_map(|report| {
            let (kind, ms) = match report.state {
                RunState::Stopped => (HangKind::Stopped, report.state_ms.min(report.still_ms)),
                RunState::Traced => (HangKind::Debugger, report.still_ms),
                RunState::Runs | RunState::WaitsForIo => return None,
            };
            (ms >= self.hang_ms).then_some((Some(report), kind, ms))
        });
        found.collect()
    }

    /// Whether something has lasted for that time too long.
    fn is_stall(&self, ms: u64) -> bool {
        self.counted(ms) >= self.stall_ms
    }

    /// The part of the last `ms` that counts.
    fn counted(&self, ms: u64) -> u64 {
        let since_ns = self.now_ns.saturating_sub(ms.saturating_mul(1_000_000));
        let in_io = self.io_ns.iter().map(|(begin, end)| end.saturating_sub(since_ns.max(*begin)));
        let in_io_ms = in_io.sum::<u64>() / 1_000_000;
        ms.saturating_sub(in_io_ms - in_io_ms / IO_PATIENCE)
    }

    /// Ranks that wait for something else than a message.
    fn blocked(&self) -> Vec<Found<'a>> {
        let found = self.reports.iter().filter_map(|report| {
            let (kind, ms) = match report.state {
                RunState::WaitsForIo => (HangKind::Io, report.state_ms.min(report.still_ms)),
                _ => (HangKind::Unread, report.unread_ms),
            };
            self.is_stall(ms).then_some((Some(report), kind, ms))
        });
        found.collect()
    }

    fn by_steps(&self) -> Vec<Found<'a>> {
        let counting = || self.reports.iter().filter_map(|report| Some((report, report.steps?)));
        let longest_ms = counting().map(|(_, steps)| steps.longest_ms).max().unwrap_or(0);
        let least_ms = self.stall_ms.max(longest_ms.saturating_mul(STEP_PATIENCE));
        let named = |report, ms| (Some(report), HangKind::Steps, ms);
        let stalled: Vec<(&RankReport, u64)> = counting()
            .filter(|(_, steps)| self.counted(steps.still_ms) >= least_ms)
            .map(|(report, steps)| (report, steps.still_ms))
            .collect();
        if stalled.is_empty() || stalled.len() < counting().count() {
            return stalled.into_iter().map(|(report, ms)| named(report, ms)).collect();
        }
        // The peers of a hung rank all wait in the same way.
        let waits = |report: &RankReport| report.still_ms >= self.hang_ms;
        let (waiting, busy): (Vec<_>, Vec<_>) =
            stalled.iter().copied().partition(|(report, _)| waits(report));
        let few = |some: &[_]| !some.is_empty() && some.len() * ODD_SHARE <= stalled.len().max(4);
        let odd = match () {
            () if few(&busy) && !waiting.is_empty() => busy,
            () if few(&waiting) && !busy.is_empty() => waiting,
            () => {
                let ms = stalled.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
                return vec![(None, HangKind::All, ms)];
            }
        };
        odd.into_iter().map(|(report, ms)| named(report, ms)).collect()
    }

    /// Ranks that stand still as never before, while their peers go on.
    fn left_behind(&self) -> Vec<Found<'a>> {
        let stands = |report: &&RankReport| report.still_ms >= self.hang_ms;
        let still: Vec<&RankReport> = self.reports.iter().filter(stands).collect();
        let is_left = |report: &&RankReport| {
            let longest_ms = self.longest_still.get(&report.rank).copied().unwrap_or(0);
            let least_ms = self.stall_ms.max(longest_ms.saturating_mul(WAIT_PATIENCE));
            let before_ms = self.watched_ms.saturating_sub(report.still_ms);
            report.steps.is_none()
                && self.counted(report.still_ms).min(self.exchange_ms) >= least_ms
                && before_ms >= least_ms.saturating_mul(WATCH_PATIENCE)
        };
        if still.len() * ODD_SHARE > self.reports.len() {
            return Vec::new();
        }
        let left = still.into_iter().filter(is_left);
        left.map(|report| (Some(report), HangKind::Peers, report.still_ms)).collect()
    }

    /// All ranks, or those among them that do not wait for a message.
    fn all_still(&self) -> Vec<Found<'a>> {
        let least = self.reports.iter().map(|report| report.still_ms).min();
        let Some(ms) = least.filter(|ms| self.is_stall(*ms)) else {
            return Vec::new();
        };
        let kind = |report: &RankReport| match report.state {
            RunState::WaitsForIo => Some(HangKind::Io),
            _ => (report.unread_ms > 0).then_some(HangKind::Unread),
        };
        let odd = self.reports.iter().filter_map(|report| Some((Some(report), kind(report)?, ms)));
        let odd: Vec<Found<'a>> = odd.collect();
        let names_some = !odd.is_empty() && odd.len() < self.reports.len();
        if names_some { odd } else { vec![(None, HangKind::All, ms)] }
    }
}
