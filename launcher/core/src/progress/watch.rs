//! The node's part: ages from samples.

use super::{NodeReport, RankReport, RankSample, RunState, Sample, StepReport};
use core::time::Duration;
use ftb_core::Now;
use std::collections::BTreeMap;

/// A rank that uses the processor for less than this part of the time stands still: helper threads
/// of libraries wake now and then.
const IDLE_SHARE: u64 = 50;

/// A rank whose sockets have carried data within this time exchanges data.
const EXCHANGE_MS: u64 = 60_000;

#[derive(Clone, Debug)]
struct Watched {
    incarnation: u64,
    last: Sample,
    report: RankReport,
    /// Whether it was stopped since its last step: that says nothing about the length of its steps.
    was_stopped: bool,
    /// Since its sockets carried data, if they have.
    exchange_ms: Option<u64>,
}

/// The ranks of one node. It counts the time between its own samples, at most twice the interval:
/// a launch agent that was itself stopped has seen nothing meanwhile.
#[derive(Clone, Debug, Default)]
pub struct NodeWatch {
    ranks: BTreeMap<u32, Watched>,
    /// Of the last samples, in monotonic nanoseconds.
    at_ns: u64,
}

impl NodeWatch {
    /// Takes the samples of all running ranks.
    pub fn on_samples(&mut self, now: Now, every: Duration, samples: &[RankSample]) -> NodeReport {
        let passed = Duration::from_nanos(now.mono_ns.saturating_sub(self.at_ns)).min(2 * every);
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.at_ns = now.mono_ns;
        let mut before = core::mem::take(&mut self.ranks);
        let mut node = NodeReport::default();
        for RankSample { rank, incarnation, sample } in samples {
            let known = before.remove(rank).filter(|known| known.incarnation == *incarnation);
            let watched = match known {
                Some(known) => known.next(passed_ms, *sample),
                None => Watched::new(*rank, *incarnation, *sample),
            };
            node.add(watched.report);
            if watched.exchange_ms.is_some_and(|ms| ms < EXCHANGE_MS) {
                node.exchanging.0.extend([*rank]);
            }
            self.ranks.insert(*rank, watched);
        }
        node
    }
}

impl NodeReport {
    fn add(&mut self, report: RankReport) {
        let RankReport { rank, state, still_ms, steps, .. } = report;
        self.longest_ms = self.longest_ms.max(steps.map_or(0, |steps| steps.longest_ms));
        match steps {
            _ if state != RunState::Runs || still_ms > 0 => self.still.push(report),
            None => self.moving.0.extend([rank]),
            Some(steps) if steps.still_ms == 0 => self.stepping.0.extend([rank]),
            Some(_) => self.still.push(report),
        }
    }
}

impl Watched {
    fn new(rank: u32, incarnation: u64, sample: Sample) -> Self {
        let steps = (sample.steps > 0).then(StepReport::default);
        let (pid, state) = (sample.pid, sample.state);
        let report = RankReport { rank, incarnation, pid, state, steps, ..RankReport::default() };
        let (was_stopped, exchange_ms) = (false, None);
        Self { incarnation, last: sample, report, was_stopped, exchange_ms }
    }

    fn next(mut self, passed_ms: u64, now: Sample) -> Self {
        let Self { last, report, was_stopped, exchange_ms, .. } = &mut self;
        let is_step = now.steps != last.steps;
        // The kernel carries data also for a rank that stands still.
        *exchange_ms = match now.exchanged != last.exchanged {
            true => Some(0),
            false => exchange_ms.map(|ms| ms.saturating_add(passed_ms)),
        };
        let cpu_ms = now.done.cpu_ms.saturating_sub(last.done.cpu_ms);
        let has_moved = is_step
            || now.switches != last.switches
            || now.done.sent != last.done.sent
            || cpu_ms.saturating_mul(IDLE_SHARE) > passed_ms;
        let older = |ms: u64, is_so: bool| if is_so { ms.saturating_add(passed_ms) } else { 0 };
        report.state_ms = older(report.state_ms, now.state == last.state);
        report.still_ms = older(report.still_ms, !has_moved);
        report.unread_ms = older(report.unread_ms, !has_moved && now.unread > 0);
        *was_stopped |= matches!(now.state, RunState::Stopped | RunState::Traced);
        report.steps = match report.steps {
            Some(StepReport { still_ms, longest_ms }) if is_step => {
                let was_stopped = core::mem::take(was_stopped);
                let longest_ms = longest_ms.max(if was_stopped { 0 } else { still_ms });
                Some(StepReport { still_ms: 0, longest_ms })
            }
            Some(steps) => {
                Some(StepReport { still_ms: steps.still_ms.saturating_add(passed_ms), ..steps })
            }
            None => (now.steps > 0).then(StepReport::default),
        };
        (report.pid, report.state) = (now.pid, now.state);
        self.last = now;
        self
    }
}
