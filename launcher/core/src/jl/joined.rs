//! Whether the ranks of a job can be saved and moved.
//!
//! Backends whose agents save the ranks (`criu`, `command`) work with any program. With `app` each
//! rank must have joined ftb-job. The NLA sees on the PMI socket which protocol a rank speaks
//! ([`Protocol`]). The JL knows the answer when all ranks have met in a barrier, or after
//! [`JOIN_GRACE`]: a program without PMI never meets. Ranks may join later.

use super::job::Job;
use super::repair::UNSAVED;
use super::{Jl, JlOutput, OnDeath};
use crate::manner::Moves;
use crate::message::Protocol;
use crate::names::{NodeName, Ranks};
use core::time::Duration;
use ftb_core::Now;

/// How long started ranks may take to join ftb-job before requests for them are refused.
pub const JOIN_GRACE: Duration = Duration::from_secs(5);
/// Most ranks that a message names.
const NAMED_MAX: usize = 8;

/// `ranks 0,1 and 6 more`.
fn named(ranks: &[u32]) -> String {
    let shown: Ranks = ranks.iter().take(NAMED_MAX).copied().collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    match ranks.len().saturating_sub(NAMED_MAX) {
        0 => format!("{word} {}", shown.join(",")),
        more => format!("{word} {} and {more} more", shown.join(",")),
    }
}

impl Job {
    /// Records which protocol ranks on a node speak. It never decreases for a process.
    pub(super) fn hear_protocol(&mut self, node: &NodeName, ranks: &Ranks, protocol: Protocol) {
        for rank in ranks.iter() {
            let row = self.ranks.get_mut(rank as usize);
            if let Some(row) = row.filter(|row| row.node == *node) {
                row.protocol = row.protocol.max(protocol);
            }
        }
    }

    /// Whether every rank can be saved and moved.
    pub(super) fn is_movable(&self) -> bool {
        self.agents_save() || self.rows().all(|(_, row)| row.protocol == Protocol::FtbJob)
    }

    /// Why ranks can be neither saved nor moved; `None` if they can.
    pub fn immovable(&self) -> Option<String> {
        if self.config.on_death == OnDeath::Continue {
            return Some(UNSAVED.to_owned());
        }
        if self.is_movable() {
            return None;
        }
        let rows = self.rows().filter(|(_, row)| row.protocol != Protocol::FtbJob);
        let (all, protocols): (Vec<u32>, Vec<Protocol>) =
            rows.map(|(rank, row)| (rank, row.protocol)).unzip();
        let verb = if all.len() == 1 { "has" } else { "have" };
        let pmi = protocols.iter().all(|protocol| *protocol == Protocol::Pmi);
        let also = match (pmi, all.len()) {
            (false, _) => "",
            (true, 1) => " (it speaks PMI only)",
            (true, _) => " (they speak PMI only)",
        };
        let ranks = named(&all);
        Some(format!(
            "{ranks} {verb} not joined ftb-job{also}: run with --backend criu, or link ftb-job"
        ))
    }

    /// Ranks that joined ftb-job and live in pods. CRIU cannot save their connections to the agent.
    fn joined_in_pods(&self) -> Option<String> {
        if self.moves() != Moves::Alone {
            return None;
        }
        let rows = self.rows().filter(|(_, row)| row.protocol == Protocol::FtbJob);
        let all: Vec<u32> = rows.map(|(rank, _)| rank).collect();
        (!all.is_empty()).then(|| named(&all))
    }
}

impl Jl {
    /// Why nothing can be asked of the ranks, if known.
    pub(super) fn refusal(&self) -> Option<String> {
        let known = self.open.is_none() && self.join_ns.is_none();
        if known { self.job.immovable() } else { None }
    }

    /// Why ranks can be neither saved nor moved; `None` if they can, or if it is not known yet.
    pub fn immovable(&self) -> Option<String> {
        if self.immovable_reported { self.job.immovable() } else { None }
    }

    /// The ranks were started: they may join from now on, and get their first set in memory.
    pub(super) fn expect_to_join(&mut self, now: Now) {
        self.join_ns = (!self.job.met).then(|| now.deadline_ns(JOIN_GRACE));
        self.expect_first(now);
    }

    /// Informs the user once that nothing can be asked of the ranks, and of a change.
    pub(super) fn judge(&mut self, now: Now) {
        if self.join_ns.is_some_and(|at| self.job.met || now.mono_ns >= at) {
            self.join_ns = None;
        }
        if self.open.is_some() || self.join_ns.is_some() || self.over() {
            return;
        }
        let words = match (self.job.immovable(), self.immovable_reported) {
            (Some(why), false) => format!(
                "these programs can neither be saved nor moved, and a fault leaves them alone: \
                 {why}"
            ),
            (None, true) if !self.job.agents_save() => {
                "all ranks have joined ftb-job: they can be saved and moved".to_owned()
            }
            (None, false) => match self.job.joined_in_pods() {
                Some(ranks) => format!(
                    "{ranks} joined ftb-job, but live in pods, which cannot be saved with connections \
                     to an agent: run with --backend app"
                ),
                None => return,
            },
            _ => return,
        };
        self.immovable_reported = !self.immovable_reported;
        self.job.tell(words);
        self.job.out.push(JlOutput::Save);
    }
}
