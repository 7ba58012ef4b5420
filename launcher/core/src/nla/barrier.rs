//! The node's part in PMI barriers: it reports when all its ranks have arrived, and releases them
//! when the JL has the result.
//!
//! Ranks in pods may be released early from their last barrier. In `MPI_Finalize`, MPICH 4.0 over
//! UCX and TCP waits until each peer has acknowledged the last message. Then it enters a last
//! barrier, in which it acknowledges nothing. A slightly later rank waits for it forever, and so
//! does the barrier (`mpiexec` has the same problem from three ranks on). A released rank closes
//! its connections, which its peers take for the acknowledgement.
//! [`PmiServer::at_the_end`](super::pmi::PmiServer::at_the_end) recognises this barrier.

use super::{Nla, NlaOutput, limits};
use crate::message::{FromNla, Part, Protocol};
use crate::wire::PART_BYTES_MAX;
use ftb_core::Now;
use std::collections::BTreeMap;

const NS_PER_MS: u64 = 1_000_000;

/// Received parts of a barrier's result.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    barrier: u64,
    parts: BTreeMap<u32, String>,
}

/// First word of the line with the worked milliseconds, in the PMI space of an image.
const WORKED: &str = "worked ";

/// When ranks arrived at the open barrier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastBarrier {
    /// When the barrier before completed or the ranks were restored, and for how many nanoseconds
    /// they had worked since it. `None` before the first barrier.
    done_ns: Option<(u64, u64)>,
    /// When the first and the last rank arrived.
    entered_ns: Option<(u64, u64)>,
}

impl LastBarrier {
    /// How long ranks have worked since the last barrier, in nanoseconds.
    fn worked_ns(&self, until_ns: u64) -> Option<u64> {
        let (done_ns, before_ns) = self.done_ns?;
        Some(until_ns.saturating_sub(done_ns).saturating_add(before_ns))
    }

    /// The same as a line for the image; empty if unknown.
    pub(super) fn export(&self, now: Now) -> String {
        let line = |ns: u64| format!("{WORKED}{}\n", ns / NS_PER_MS);
        self.worked_ns(now.mono_ns).map(line).unwrap_or_default()
    }

    /// Of ranks restored from an image with this PMI space.
    pub(super) fn import(now: Now, space: &str) -> Self {
        let worked = space.lines().find_map(|line| line.strip_prefix(WORKED)?.parse::<u64>().ok());
        let done_ns = worked.map(|ms| (now.mono_ns, ms.saturating_mul(NS_PER_MS)));
        Self { done_ns, entered_ns: None }
    }

    /// A rank has entered.
    pub(super) fn entered(&mut self, now: Now) {
        let first = self.entered_ns.map_or(now.mono_ns, |(first, _)| first);
        self.entered_ns = Some((first, now.mono_ns));
    }

    /// The barrier is complete.
    fn done(&mut self, now: Now) {
        *self = Self { done_ns: Some((now.mono_ns, 0)), entered_ns: None };
    }
}

impl Nla {
    /// Reports that all running ranks have arrived, once they have.
    pub(super) fn enter_barrier(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        let running = self.running();
        let all = !running.is_empty() && running.iter().all(|r| self.pmi.arrived().contains(&r));
        if !all {
            self.barrier_repeat_ns = None;
            return;
        }
        self.barrier_repeat_ns = Some(now.deadline_ns(limits::BARRIER_REPEAT));
        let texts = self.pmi.parts(PART_BYTES_MAX);
        let parts = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        for (part, lines) in (0..).zip(texts) {
            out.push(NlaOutput::Publish(FromNla::Pmi {
                episode: self.episode,
                ranks: running.clone(),
                joined: self.speaking(Protocol::FtbJob),
                part: Part { barrier: self.barrier, part, parts, lines },
            }));
        }
    }

    /// One part of the result. The last part opens the barrier.
    pub(super) fn on_barrier_result(&mut self, now: Now, part: Part, out: &mut Vec<NlaOutput>) {
        if part.barrier < self.barrier {
            return;
        }
        if self.incoming.barrier != part.barrier {
            self.incoming = Incoming { barrier: part.barrier, parts: BTreeMap::new() };
        }
        self.incoming.parts.insert(part.part, part.lines);
        if self.incoming.parts.len() < part.parts as usize {
            return;
        }
        let parts = core::mem::take(&mut self.incoming).parts;
        let lines = parts.values().flat_map(|text| text.lines());
        let released = self.pmi.complete(lines);
        self.barrier = part.barrier + 1;
        self.barrier_repeat_ns = None;
        self.last_barrier.done(now);
        let release = |(rank, line)| NlaOutput::PmiReply { rank, line };
        out.extend(released.into_iter().map(release));
    }

    /// When ranks are released early.
    pub(super) fn last_barrier_ns(&self) -> u64 {
        let Some((first, last)) = self.last_barrier.entered_ns else {
            return u64::MAX;
        };
        if !self.restores() || self.pmi.at_the_end().is_empty() {
            return u64::MAX;
        }
        // Others were released already: it is the last barrier.
        if self.pmi.some_released_early() {
            return 0;
        }
        let worked_ns = self.last_barrier.worked_ns(first).unwrap_or(0);
        let long = u128::from(worked_ns) >= limits::LAST_BARRIER_WORK.as_nanos();
        let wait = if long { limits::LAST_BARRIER_WAIT } else { limits::EARLY_BARRIER_WAIT };
        Now { mono_ns: last, wall_ns: 0 }.deadline_ns(wait)
    }

    pub(super) fn last_barrier_tick(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        if now.mono_ns < self.last_barrier_ns() {
            return;
        }
        let released = self.pmi.released_early();
        out.push(NlaOutput::Note(format!(
            "{} ranks wait in a barrier that looks like their last: they are released",
            released.len()
        )));
        out.extend(released.into_iter().map(|(rank, line)| NlaOutput::PmiReply { rank, line }));
    }
}
