//! Processes that wait for a rank to replace ([`crate::warm`]), as the job knows them.

use super::Job;
use crate::jl::JlOutput;
use crate::names::{NodeName, Ranks};
use crate::warm::ParkedProcesses;

impl Job {
    /// A node reports its parked processes. Adoptions and losses are for the user.
    pub(in crate::jl) fn hear_parked(&mut self, node: &NodeName, parked: &ParkedProcesses) {
        let Some(row) = self.nodes.get_mut(node).filter(|row| row.parked != *parked) else {
            return;
        };
        let before = core::mem::replace(&mut row.parked, parked.clone());
        let is_new = |(rank, pid): &(&u32, &u32)| before.adopted.get(rank) != Some(pid);
        let adopted: Ranks = parked.adopted.iter().filter(is_new).map(|(rank, _)| *rank).collect();
        if !adopted.is_empty() {
            let ranks = adopted.brief();
            self.tell(format!("node {node}: parked processes have become rank {ranks}"));
        }
        if !parked.problem.is_empty() && parked.problem != before.problem {
            let (waiting, wanted) = (parked.waiting.len(), parked.wanted);
            let problem = &parked.problem;
            self.tell(format!("node {node}: {problem}; {waiting} of {wanted} are parked"));
        }
        self.out.push(JlOutput::Save);
    }
}
