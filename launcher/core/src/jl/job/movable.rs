//! Which ranks of a job can be saved and moved, and the reason that the user reads if one cannot.
//!
//! When the answer is known: [`crate::jl::joined`].

use super::Job;
use crate::jl::OnDeath;
use crate::manner::Moves;
use crate::message::Protocol;
use crate::names::{NodeName, Ranks};

/// Why a job without sets is neither saved nor moved.
const UNSAVED: &str = "the job goes on without dead ranks (on_death = continue)";
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
    pub(in crate::jl) fn hear_protocol(
        &mut self,
        node: &NodeName,
        ranks: &Ranks,
        protocol: Protocol,
    ) {
        for rank in ranks.iter() {
            let row = self.ranks.get_mut(rank as usize);
            if let Some(row) = row.filter(|row| row.node == *node) {
                row.protocol = row.protocol.max(protocol);
            }
        }
    }

    /// Whether every rank can be saved and moved.
    pub(in crate::jl) fn is_movable(&self) -> bool {
        self.agents_save() || self.rows().all(|(_, row)| row.protocol == Protocol::FtbJob)
    }

    /// Why ranks can be neither saved nor moved; `None` if they can.
    pub(in crate::jl) fn immovable(&self) -> Option<String> {
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
    pub(in crate::jl) fn joined_in_pods(&self) -> Option<String> {
        if self.moves() != Moves::Alone {
            return None;
        }
        let rows = self.rows().filter(|(_, row)| row.protocol == Protocol::FtbJob);
        let all: Vec<u32> = rows.map(|(rank, _)| rank).collect();
        (!all.is_empty()).then(|| named(&all))
    }
}
