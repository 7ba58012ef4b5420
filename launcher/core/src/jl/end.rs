//! The end of a job: every NLA ends its ranks and leaves; those that do not are killed where that can be.

use super::Output;
use super::episode::{At, Flow, Steps};
use super::job::Job;
use crate::message::{FromJl, FromNla, How};
use crate::names::{Episode, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    code: i32,
    waiting: BTreeSet<NodeName>,
}

impl End {
    pub(super) fn open(job: &Job, episode: Episode, code: i32, reason: &str) -> (Self, Flow) {
        let end = Self { code, waiting: job.alive().into_iter().collect() };
        if end.waiting.is_empty() {
            return (end, Flow::done("no node launch agent is left"));
        }
        let request = FromJl::Kill { episode, reason: reason.to_owned() };
        let flow = Flow::next("end", job.config.deadlines.end, vec![request]);
        (end, flow)
    }

    /// The exit code of the launcher.
    pub(super) fn code(&self) -> i32 {
        self.code
    }
}

impl Steps for End {
    fn on_nla(&mut self, at: &mut At<'_>, node: &NodeName, message: &FromNla) -> Flow {
        match message {
            FromNla::Stopped { .. } => self.on_lost(at, node),
            _ => Flow::Stay,
        }
    }

    fn on_exit(&mut self, _: &mut At<'_>, _rank: u32, _how: How) -> Flow {
        Flow::Stay
    }

    fn on_lost(&mut self, _: &mut At<'_>, node: &NodeName) -> Flow {
        self.waiting.remove(node);
        if self.waiting.is_empty() {
            return Flow::done("all node launch agents have left");
        }
        Flow::Stay
    }

    fn on_deadline(&mut self, at: &mut At<'_>) -> Flow {
        for node in &self.waiting {
            at.job.out.push(Output::KillNla(node.clone()));
        }
        let left: Vec<&str> = self.waiting.iter().map(NodeName::as_str).collect();
        Flow::Close { done: false, words: format!("no answer from {}: killed", left.join(" ")) }
    }

    fn missing(&self) -> Vec<NodeName> {
        self.waiting.iter().cloned().collect()
    }

    /// Nodes that have left, of how many.
    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        let all = job.alive().len();
        Some((all.saturating_sub(self.waiting.len()), all))
    }
}
