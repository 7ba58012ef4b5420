//! The end workflow: every NLA ends its ranks and leaves. NLAs that do not leave are killed where
//! possible.

use super::JlOutput;
use super::episode::{Context, Handler, Transition};
use super::job::Job;
use crate::message::{ExitCause, FromJl, FromNla};
use crate::names::{Episode, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    code: i32,
    waiting: BTreeSet<NodeName>,
}

impl End {
    pub(super) fn open(job: &Job, episode: Episode, code: i32, reason: &str) -> (Self, Transition) {
        let end = Self { code, waiting: job.alive().into_iter().collect() };
        if end.waiting.is_empty() {
            return (end, Transition::done("no node launch agent is left"));
        }
        let request = FromJl::Kill { episode, reason: reason.to_owned() };
        let transition = Transition::next("end", job.config.deadlines.end, vec![request]);
        (end, transition)
    }

    /// The exit code of the launcher.
    pub(super) fn code(&self) -> i32 {
        self.code
    }
}

impl Handler for End {
    fn on_nla(
        &mut self,
        context: &mut Context<'_>,
        node: &NodeName,
        message: &FromNla,
    ) -> Transition {
        match message {
            FromNla::Stopped { .. } => self.on_lost(context, node),
            _ => Transition::Stay,
        }
    }

    fn on_exit(&mut self, _: &mut Context<'_>, _rank: u32, _how: ExitCause) -> Transition {
        Transition::Stay
    }

    fn on_lost(&mut self, _: &mut Context<'_>, node: &NodeName) -> Transition {
        self.waiting.remove(node);
        if self.waiting.is_empty() {
            return Transition::done("all node launch agents have left");
        }
        Transition::Stay
    }

    fn on_deadline(&mut self, context: &mut Context<'_>) -> Transition {
        for node in &self.waiting {
            context.job.out.push(JlOutput::KillNla(node.clone()));
        }
        let left: Vec<&str> = self.waiting.iter().map(NodeName::as_str).collect();
        Transition::Close {
            done: false,
            words: format!("no answer from {}: killed", left.join(" ")),
        }
    }

    fn missing(&self) -> Vec<NodeName> {
        self.waiting.iter().cloned().collect()
    }

    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        let all = job.alive().len();
        Some((all.saturating_sub(self.waiting.len()), all))
    }
}
