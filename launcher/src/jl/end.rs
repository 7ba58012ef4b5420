//! The end of a job: every NLA ends its ranks and leaves; those that do not are killed where that can be.

use super::Output;
use super::episode::Flow;
use super::job::Job;
use crate::message::{FromJl, FromNla};
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
    /// Nodes that have left, of how many.
    pub(super) fn progress(&self, job: &Job) -> (usize, usize) {
        let all = job.alive().len();
        (all.saturating_sub(self.waiting.len()), all)
    }

    pub(super) fn open(job: &Job, episode: Episode, code: i32, reason: &str) -> (Self, Flow) {
        let end = Self { code, waiting: job.alive().into_iter().collect() };
        let request = FromJl::Kill { episode, reason: reason.to_owned() };
        let flow = Flow::next("end", job.config.deadlines.end, vec![request]);
        (end, flow)
    }

    /// The exit code of the launcher.
    pub(super) fn code(&self) -> i32 {
        self.code
    }

    pub(super) fn on_nla(&mut self, node: &NodeName, message: &FromNla) -> Flow {
        if matches!(message, FromNla::Stopped { .. }) {
            return self.gone(node);
        }
        Flow::Stay
    }

    pub(super) fn gone(&mut self, node: &NodeName) -> Flow {
        self.waiting.remove(node);
        if self.waiting.is_empty() {
            return Flow::done("all node launch agents have left");
        }
        Flow::Stay
    }

    pub(super) fn on_deadline(&mut self, job: &mut Job) -> Flow {
        for node in &self.waiting {
            job.out.push(Output::KillNla(node.clone()));
        }
        let left: Vec<&str> = self.waiting.iter().map(NodeName::as_str).collect();
        Flow::Close { done: false, words: format!("no answer from {}: killed", left.join(" ")) }
    }
}
