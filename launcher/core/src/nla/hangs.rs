//! Hung ranks: looks at the ranks at an interval, reports them to the JL, and states the
//! conditions of those that the JL has found. Ranks die with their launch agent: conditions of a
//! dead one are ended by its guard, or else by the next launch agent of the node.

use super::{Nla, NlaOutput, ProcessState, SIGKILL, StatedHang, limits};
use crate::message::{FromNla, HangNotice};
use crate::names::JobId;
use crate::progress::{HangKind, NodeWatch, RankSample};
use ftb_core::Now;
use std::collections::BTreeMap;

/// Key of the condition of a hung rank.
pub const HUNG: &str = "HUNG";

/// The component of that condition.
pub fn hung_component(job: &JobId, rank: u32) -> String {
    format!("{job} rank {rank}")
}

/// The job and the rank of a component.
fn hung_rank(component: &str) -> Option<(JobId, u32)> {
    let (job, rank) = component.rsplit_once(" rank ")?;
    Some((JobId::new(job).ok()?, rank.parse().ok()?))
}

#[derive(Clone, Debug, Default)]
pub(super) struct Hangs {
    watch: NodeWatch,
    /// When the next look is due, in monotonic nanoseconds.
    due_ns: Option<u64>,
    /// Hung ranks with their start.
    found: BTreeMap<u32, (u64, HangKind)>,
}

impl Hangs {
    pub(super) fn next_deadline_ns(&self) -> u64 {
        self.due_ns.unwrap_or(u64::MAX)
    }
}

impl Nla {
    /// No look at ranks that the agent has stopped itself.
    pub(super) fn sample_tick(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        let every = self.config.sample_every;
        if every.is_zero() || self.running().is_empty() {
            self.hangs.due_ns = None;
            return;
        }
        let due_ns = *self.hangs.due_ns.get_or_insert(now.deadline_ns(every));
        if now.mono_ns < due_ns {
            return;
        }
        self.hangs.due_ns = Some(now.deadline_ns(every));
        if !self.saves() && self.restoring.is_none() && self.ending.is_none() {
            out.push(NlaOutput::Sample);
        }
    }

    pub(super) fn on_sampled(
        &mut self,
        now: Now,
        samples: &[RankSample],
        out: &mut Vec<NlaOutput>,
    ) {
        let report = self.hangs.watch.on_samples(now, self.config.sample_every, samples);
        out.push(NlaOutput::Publish(FromNla::Progress(report)));
    }

    /// FTB_JL_HUNG and FTB_JL_HANG_OVER.
    pub(super) fn on_hang(&mut self, notice: HangNotice, out: &mut Vec<NlaOutput>) {
        let Some(of) = notice.rank.filter(|of| of.node == self.config.node) else {
            return;
        };
        let process = self.processes.get(&of.rank).filter(|p| p.incarnation == of.incarnation);
        if process.is_none_or(|p| p.life != ProcessState::Running) {
            return;
        }
        if notice.is_over {
            return self.hang_over(of.rank, &notice.words, out);
        }
        let found = (of.incarnation, notice.kind);
        if self.hangs.found.insert(of.rank, found) != Some(found) {
            out.push(self.state_hang(of.rank, found, false, &notice.words));
        }
        if notice.kill {
            out.push(NlaOutput::Signal { rank: of.rank, signal: SIGKILL });
        }
    }

    /// The rank goes on or has ended.
    pub(super) fn hang_over(&mut self, rank: u32, words: &str, out: &mut Vec<NlaOutput>) {
        if let Some(found) = self.hangs.found.remove(&rank) {
            out.push(self.state_hang(rank, found, true, words));
        }
    }

    /// Ends the conditions of launch agents that no longer live. An earlier one of this job is
    /// dead. One of another job may live: a live one repeats its condition, which then is known.
    pub(super) fn on_stated(&self, stated: &[StatedHang], out: &mut Vec<NlaOutput>) {
        for StatedHang { component, unknown_for } in stated {
            let Some((job, rank)) = hung_rank(component) else { continue };
            let is_left = match job == self.config.job {
                true => !self.hangs.found.contains_key(&rank),
                false => unknown_for.is_some_and(|time| time >= limits::LEFT_AFTER),
            };
            if is_left {
                out.push(NlaOutput::Publish(FromNla::HangLeft { job, rank }));
            }
        }
    }

    fn state_hang(
        &self,
        rank: u32,
        (incarnation, kind): (u64, HangKind),
        is_over: bool,
        words: &str,
    ) -> NlaOutput {
        let (episode, job, words) = (self.episode, self.config.job.clone(), words.to_owned());
        let hang = FromNla::Hang { episode, rank, incarnation, job, kind, is_over, words };
        NlaOutput::Publish(hang)
    }
}
