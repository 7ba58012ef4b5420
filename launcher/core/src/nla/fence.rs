//! The node's part in fences: it tells when all its ranks are inside, and lets them out when the JL says that all are.
//!
//! One fence has a way out of its own, for ranks in pods. In `MPI_Finalize` MPICH 4.0 waits until each peer has
//! acknowledged its last message (UCX over TCP asks for that), then enters a last fence, in which it acknowledges
//! nothing any more: a rank that is a little later waits for it forever, and so does the fence. (`mpiexec` has the same
//! trouble, from three ranks on.) Who waits there has nothing to tell or to ask any more, and when it is let out it
//! closes its connections, which the others take for the acknowledgement. So it is let out, when it has waited for a
//! while in a fence that looks like that one: see [`PmiServer::at_the_end`](super::pmi::PmiServer::at_the_end).

use super::{Nla, Output, limits};
use crate::message::{FromNla, Part, Protocol};
use crate::wire::PART_BYTES_MAX;
use ftb_core::Now;
use std::collections::BTreeMap;

const NS_PER_MS: u64 = 1_000_000;

/// The parts of a fence's result that have come so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    fence: u64,
    parts: BTreeMap<u32, String>,
}

/// How the line with the milliseconds that ranks have worked begins, in the PMI space of an image.
const WORKED: &str = "worked ";

/// When ranks entered the open fence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    /// When the fence before was complete, or the ranks came from elsewhere; and for how many nanoseconds they had
    /// worked since that fence already then. Unknown before the first fence.
    done_ns: Option<(u64, u64)>,
    /// When the first rank entered, and the last one so far.
    entered_ns: Option<(u64, u64)>,
}

impl Last {
    /// How long ranks have worked since the fence before, in nanoseconds.
    fn worked_ns(&self, until_ns: u64) -> Option<u64> {
        let (done_ns, before_ns) = self.done_ns?;
        Some(until_ns.saturating_sub(done_ns).saturating_add(before_ns))
    }

    /// The same as a line for the image of the ranks; empty where it is unknown.
    pub(super) fn export(&self, now: Now) -> String {
        let line = |ns: u64| format!("{WORKED}{}\n", ns / NS_PER_MS);
        self.worked_ns(now.mono_ns).map(line).unwrap_or_default()
    }

    /// Of ranks that come from an image with this PMI space.
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

    /// The fence is complete.
    fn done(&mut self, now: Now) {
        *self = Self { done_ns: Some((now.mono_ns, 0)), entered_ns: None };
    }
}

impl Nla {
    /// Says that all ranks here are in the fence, when they are: each one that runs is inside.
    pub(super) fn enter_fence(&mut self, now: Now, out: &mut Vec<Output>) {
        let running = self.running();
        let all = !running.is_empty() && running.iter().all(|r| self.pmi.inside().contains(&r));
        if !all {
            self.fence_repeat_ns = None;
            return;
        }
        self.fence_repeat_ns = Some(now.deadline_ns(limits::FENCE_REPEAT));
        let texts = self.pmi.parts(PART_BYTES_MAX);
        let parts = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        for (part, lines) in (0..).zip(texts) {
            out.push(Output::Publish(FromNla::Pmi {
                episode: self.episode,
                ranks: running.clone(),
                joined: self.speaking(Protocol::FtbJob),
                part: Part { fence: self.fence, part, parts, lines },
            }));
        }
    }

    /// A part of what all ranks have put. With the last part the fence is open.
    pub(super) fn fence_result(&mut self, now: Now, part: Part, out: &mut Vec<Output>) {
        if part.fence < self.fence {
            return;
        }
        if self.incoming.fence != part.fence {
            self.incoming = Incoming { fence: part.fence, parts: BTreeMap::new() };
        }
        self.incoming.parts.insert(part.part, part.lines);
        if self.incoming.parts.len() < part.parts as usize {
            return;
        }
        let parts = core::mem::take(&mut self.incoming).parts;
        let lines = parts.values().flat_map(|text| text.lines());
        let released = self.pmi.complete(lines);
        self.fence = part.fence + 1;
        self.fence_repeat_ns = None;
        self.last_fence.done(now);
        let release = |(rank, line)| Output::PmiReply { rank, line };
        out.extend(released.into_iter().map(release));
    }

    /// When ranks are let out of what looks like their last fence.
    pub(super) fn last_fence_ns(&self) -> u64 {
        let Some((first, last)) = self.last_fence.entered_ns else {
            return u64::MAX;
        };
        if !self.restores() || self.pmi.at_the_end().is_empty() {
            return u64::MAX;
        }
        // Others have found that it is the last.
        if self.pmi.some_let_out() {
            return 0;
        }
        let worked_ns = self.last_fence.worked_ns(first).unwrap_or(0);
        let long = u128::from(worked_ns) >= limits::LAST_FENCE_WORK.as_nanos();
        let wait = if long { limits::LAST_FENCE_WAIT } else { limits::EARLY_FENCE_WAIT };
        Now { mono_ns: last, wall_ns: 0 }.deadline_ns(wait)
    }

    pub(super) fn last_fence_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        if now.mono_ns < self.last_fence_ns() {
            return;
        }
        let released = self.pmi.let_out();
        out.push(Output::Note(format!(
            "{} ranks wait in what looks like their last fence: they may go",
            released.len()
        )));
        out.extend(released.into_iter().map(|(rank, line)| Output::PmiReply { rank, line }));
    }
}
