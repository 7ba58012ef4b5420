//! What the policy and people want of a JL: the queue of remedies that wait for their turn.

use super::{
    Checkpoint, Jl, Migration, MigrationState, Outcome, Output, Remedy, Request, WANTED_MAX,
    Waiting, Want,
};
use crate::backend::Moves;
use crate::message::{Asked, FromJl};
use crate::names::NodeName;
use ftb_core::Now;
use std::collections::VecDeque;

impl Want {
    /// What a request of a person means.
    pub fn of_request(asked: &Asked) -> Option<Self> {
        let reason = "asked for".to_owned();
        Some(match &asked.what {
            Request::Checkpoint => Self::Checkpoint { reason },
            Request::Migrate(node) => Self::Migrate { node: node.clone(), reason },
            Request::Drain(node) => Self::Drain { node: node.clone(), reason },
            Request::Usable(node) => Self::Usable { node: node.clone() },
            Request::Kill => Self::Kill { code: 143, reason: "it was asked to".to_owned() },
            Request::ResetBreaker => return None,
        })
    }
}

impl Jl {
    pub(super) fn want(&mut self, now: Now, want: Want, asked: Option<u64>) {
        match want {
            Want::Kill { code, reason } => {
                self.end(now, code, &reason);
                self.reply(asked, Outcome::Done, "the job ends");
            }
            Want::Usable { node } => self.usable(&node, asked),
            Want::Drain { node, reason } => self.drain(node, reason, asked),
            want => self.queue(want, asked),
        }
    }

    /// A node with ranks is left. A spare is none any more, until somebody says that it may be used again.
    fn drain(&mut self, node: NodeName, reason: String, asked: Option<u64>) {
        let idle = self.job.ranks_on(&node).is_empty();
        match self.job.nodes.get_mut(&node) {
            Some(row) if idle && !row.lost => {
                row.avoid = true;
                self.job.out.push(Output::Save);
                let words = format!("node {node} has no ranks of the job, and gets none");
                self.reply(asked, Outcome::Done, &words);
            }
            _ => self.queue(Want::Migrate { node, reason }, asked),
        }
    }

    fn reply(&mut self, asked: Option<u64>, outcome: Outcome, words: &str) {
        if let Some(request) = asked {
            self.answer(request, outcome, words.to_owned());
        }
    }

    /// Puts a remedy into the queue; at most one for a node, one checkpoint.
    fn queue(&mut self, want: Want, asked: Option<u64>) {
        if let Err(why) = self.check(&want) {
            self.job.tell(why.clone());
            self.reply(asked, Outcome::Refused, &why);
            return;
        }
        self.reply(asked, Outcome::Accepted, "it is next, or under way");
        self.wanted.push_back(Waiting { want, asked });
        self.job.out.push(Output::Save);
    }

    fn check(&self, want: &Want) -> Result<(), String> {
        if self.wanted.len() >= WANTED_MAX {
            return Err(format!("{WANTED_MAX} remedies wait already"));
        }
        if self.ends() {
            return Err("the job is ending".to_owned());
        }
        match want {
            Want::Migrate { node, .. } => self.check_migrate(node),
            Want::Checkpoint { .. } => {
                let waits = |w: &Waiting| matches!(w.want, Want::Checkpoint { .. });
                if self.wanted.iter().any(waits) {
                    return Err("a checkpoint waits already".to_owned());
                }
                Ok(())
            }
            Want::Drain { .. } | Want::Usable { .. } | Want::Kill { .. } => Ok(()),
        }
    }

    fn check_migrate(&self, node: &NodeName) -> Result<(), String> {
        let Some(row) = self.job.nodes.get(node) else {
            return Err(format!("node {node} is not part of the job"));
        };
        if row.lost {
            return Err(format!("node {node} is lost already"));
        }
        if self.job.ranks_on(node).is_empty() {
            return Err(format!("node {node} has no ranks of the job"));
        }
        let twin =
            |w: &Waiting| matches!(&w.want, Want::Migrate { node: other, .. } if other == node);
        let open = matches!(&self.open, Some(open)
            if matches!(&open.remedy, Remedy::Migration(m) if m.source() == node));
        if open || self.wanted.iter().any(twin) {
            return Err(format!("node {node} is being left already"));
        }
        Ok(())
    }

    /// Opens the next remedy when none is open and all ranks have met.
    pub(super) fn next_wanted(&mut self, now: Now) {
        while self.open.is_none() && self.job.met && !self.over {
            let Some(Waiting { want, asked }) = self.wanted.pop_front() else {
                return;
            };
            match want {
                Want::Migrate { node, reason } => self.migrate(now, node, &reason, asked),
                Want::Checkpoint { reason } => self.checkpoint(now, &reason, asked),
                Want::Drain { .. } | Want::Usable { .. } | Want::Kill { .. } => {}
            }
        }
    }

    fn ranks_have_ended(&mut self, asked: Option<u64>) -> bool {
        let ended = self.job.ranks.iter().any(|row| row.ended.is_some());
        if ended {
            let why = "ranks have ended already: there is nothing to save";
            self.reply(asked, Outcome::Refused, why);
        }
        ended
    }

    fn migrate(&mut self, now: Now, node: NodeName, reason: &str, asked: Option<u64>) {
        if self.ranks_have_ended(asked) {
            return;
        }
        if let Err(why) = self.check_migrate(&node) {
            self.reply(asked, Outcome::Refused, &why);
            return;
        }
        if self.job.spare(&[]).is_none() {
            let words = format!(
                "no hot spare is left for the ranks of {node} ({reason}): the job is saved instead"
            );
            self.job.tell(words.clone());
            self.reply(asked, Outcome::Failed, &words);
            self.checkpoint(now, reason, None);
            return;
        }
        self.job.tell(format!("the ranks of {node} move: {reason}"));
        if self.job.moves() == Moves::Anew {
            return self.save_job(now, Some(node), asked);
        }
        let episode = self.job.open();
        let (migration, flow) = Migration::open(&self.job, episode, node);
        self.begin(now, episode, Remedy::Migration(migration), asked, flow);
    }

    fn checkpoint(&mut self, now: Now, reason: &str, asked: Option<u64>) {
        if self.ranks_have_ended(asked) {
            return;
        }
        self.job.tell(format!("the job is saved: {reason}"));
        self.save_job(now, None, asked);
    }

    fn save_job(&mut self, now: Now, leaving: Option<NodeName>, asked: Option<u64>) {
        let episode = self.job.open();
        let (checkpoint, flow) = Checkpoint::open(&self.job, episode, leaving);
        self.begin(now, episode, Remedy::Checkpoint(checkpoint), asked, flow);
    }

    /// The fault of a node is gone: a migration that still waits is called off, an inactive node becomes a
    /// spare (when it is inactive: in the middle of a migration, after it).
    fn usable(&mut self, node: &NodeName, asked: Option<u64>) {
        let Some(row) = self.job.nodes.get_mut(node).filter(|row| !row.lost) else {
            let why = format!("node {node} is not part of the job, or lost");
            self.reply(asked, Outcome::Refused, &why);
            return;
        };
        row.usable = true;
        row.avoid = false;
        let gone: VecDeque<Waiting>;
        (gone, self.wanted) = core::mem::take(&mut self.wanted)
            .into_iter()
            .partition(|w| matches!(&w.want, Want::Migrate { node: n, .. } if n == node));
        for waiting in gone {
            let why = format!("node {node} is well again");
            self.reply(waiting.asked, Outcome::Refused, &why);
        }
        self.reply(asked, Outcome::Done, "the node may be used again");
        self.tell_usable();
    }

    /// Tells inactive nodes that are well again. Repeated with each question until they are spares.
    pub(super) fn tell_usable(&mut self) {
        let episode = self.job.episode;
        let mut told = Vec::new();
        for (name, node) in &mut self.job.nodes {
            match node.state {
                Some(MigrationState::Inactive) if node.usable && !node.lost => {
                    told.push(name.clone());
                }
                Some(MigrationState::Arm) => {}
                _ => node.usable = false,
            }
        }
        let source = match self.open.as_ref().map(|open| &open.remedy) {
            Some(Remedy::Migration(migration)) => Some(migration.source().clone()),
            _ => None,
        };
        for target in told.into_iter().filter(|name| Some(name) != source.as_ref()) {
            self.job.publish(FromJl::Usable { episode, target });
        }
    }
}
