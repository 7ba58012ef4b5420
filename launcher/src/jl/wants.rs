//! What the policy and people want of a JL: the queue of remedies that wait for their turn.

use super::{
    By, Checkpoint, FENCE_PATIENCE, Jl, Migration, MigrationState, Outcome, Output, Remedy,
    Request, WANTED_MAX, Waiting, Want,
};
use crate::backend::Moves;
use crate::message::{Asked, FromJl};
use crate::names::{FaultId, NodeName};
use ftb_core::Now;
use std::collections::{BTreeSet, VecDeque};

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

    /// What it is, for people.
    fn words(&self) -> String {
        match self {
            Self::Migrate { node, .. } | Self::Drain { node, .. } => {
                format!("the migration from {node}")
            }
            Self::Checkpoint { .. } => "the checkpoint".to_owned(),
            Self::Usable { node } => format!("the word that node {node} may be used"),
            Self::Kill { .. } => "the end".to_owned(),
        }
    }
}

impl Jl {
    pub(super) fn want(&mut self, now: Now, want: Want, by: By) {
        if let Some(fault) = by.fault() {
            if self.job.faults.is_closed(fault) {
                self.job.refused += 1;
                return;
            }
            self.job.faults.hear(fault);
        }
        match want {
            Want::Kill { code, reason } => {
                self.end(now, code, &reason);
                self.settle(by, Outcome::Done, "the job ends");
            }
            Want::Usable { node } => self.usable(&node, by),
            Want::Drain { node, reason } => self.drain(node, reason, by),
            want => self.queue(want, by),
        }
    }

    /// The faults for which something waits, with the node and the reason: for a policy that knows nothing of them yet.
    pub fn waiting_faults(&self) -> impl Iterator<Item = (FaultId, Option<&NodeName>, &str)> {
        self.wanted.iter().filter_map(|waiting| {
            let fault = waiting.by.fault()?;
            match &waiting.want {
                Want::Migrate { node, reason } | Want::Drain { node, reason } => {
                    Some((fault, Some(node), reason.as_str()))
                }
                Want::Checkpoint { reason } => Some((fault, None, reason.as_str())),
                Want::Usable { .. } | Want::Kill { .. } => None,
            }
        })
    }

    /// What waits because of these faults is called off; what is under way goes to its end.
    pub(super) fn call_off(&mut self, faults: &BTreeSet<FaultId>, reason: &str) {
        let off = |waiting: &Waiting| waiting.by.fault().is_some_and(|of| faults.contains(&of));
        let gone = self.take_waiting(off);
        for waiting in &gone {
            let words = waiting.by.words();
            self.job.tell(format!("{} is called off{words}: {reason}", waiting.want.words()));
            self.settle(waiting.by, Outcome::Refused, reason);
        }
        if !gone.is_empty() {
            self.job.out.push(Output::Save);
        }
    }

    /// Takes out of the queue what `of` says.
    fn take_waiting(&mut self, of: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
        let gone;
        (gone, self.wanted) = core::mem::take(&mut self.wanted).into_iter().partition(of);
        gone
    }

    /// A node with ranks is left. A spare is none any more, until somebody says that it may be used again.
    fn drain(&mut self, node: NodeName, reason: String, by: By) {
        let idle = self.job.ranks_on(&node).is_empty();
        match self.job.nodes.get_mut(&node) {
            Some(row) if idle && !row.lost => {
                row.avoid = true;
                self.job.out.push(Output::Save);
                let words = format!("node {node} has no ranks of the job, and gets none");
                self.settle(by, Outcome::Done, &words);
            }
            _ => self.queue(Want::Migrate { node, reason }, by),
        }
    }

    /// Puts a remedy into the queue; at most one for a node, one checkpoint.
    fn queue(&mut self, want: Want, by: By) {
        if let Err(why) = self.check(&want) {
            self.job.tell(format!("{why}{}", by.words()));
            self.settle(by, Outcome::Refused, &why);
            return;
        }
        self.reply(by, Outcome::Accepted, "it is next, or under way");
        self.wanted.push_back(Waiting { want, by });
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
        while self.open.is_none() && self.job.met && self.unheard.is_empty() && !self.over() {
            if self.waits_for_fence(now) {
                return;
            }
            let Some(Waiting { want, by }) = self.wanted.pop_front() else {
                return;
            };
            match want {
                Want::Migrate { node, reason } => self.migrate(now, node, &reason, by),
                Want::Checkpoint { reason } => self.checkpoint(now, &reason, by),
                Want::Drain { .. } | Want::Usable { .. } | Want::Kill { .. } => {}
            }
        }
    }

    /// Whether the next remedy is a checkpoint by agents that waits for ranks in a PMI fence. No rank is stopped
    /// meanwhile, so that those which the fence waits for come to it. After [`FENCE_PATIENCE`] the checkpoint is refused.
    fn waits_for_fence(&mut self, now: Now) -> bool {
        let next = self.wanted.front().map(|waiting| &waiting.want);
        let saves = matches!(next, Some(Want::Checkpoint { .. })) && self.job.agents_save();
        if !saves || !self.job.fence.is_entered() || self.some_have_ended() {
            self.fence_until_ns = None;
            return false;
        }
        let until_ns = *self.fence_until_ns.get_or_insert(now.deadline_ns(FENCE_PATIENCE));
        if now.mono_ns < until_ns {
            return true;
        }
        self.fence_until_ns = None;
        if let Some(Waiting { by, .. }) = self.wanted.pop_front() {
            let why = "no checkpoint: ranks wait for others in a PMI fence: ask again";
            self.job.tell(format!("{why}{}", by.words()));
            self.settle(by, Outcome::Refused, why);
            self.job.out.push(Output::Save);
        }
        false
    }

    fn some_have_ended(&self) -> bool {
        self.job.ranks.iter().any(|row| row.ended.is_some())
    }

    fn ranks_have_ended(&mut self, by: By) -> bool {
        let ended = self.some_have_ended();
        if ended {
            let why = "ranks have ended already: there is nothing to save";
            self.settle(by, Outcome::Refused, why);
        }
        ended
    }

    fn migrate(&mut self, now: Now, node: NodeName, reason: &str, by: By) {
        if self.ranks_have_ended(by) {
            return;
        }
        if let Err(why) = self.check_migrate(&node) {
            self.settle(by, Outcome::Refused, &why);
            return;
        }
        if self.job.spare(&[]).is_none() {
            let words = format!(
                "no hot spare is left for the ranks of {node} ({reason}): the job is saved instead"
            );
            self.job.tell(words.clone());
            self.reply(by, Outcome::Failed, &words);
            // A person has the answer; a fault has this remedy now.
            let by = by.fault().map_or(By::Nobody, By::Fault);
            self.checkpoint(now, reason, by);
            return;
        }
        self.job.tell(format!("the ranks of {node} move: {reason}{}", by.words()));
        if self.job.moves() == Moves::Anew {
            return self.save_job(now, Some(node), by);
        }
        let episode = self.job.open();
        let (migration, flow) = Migration::open(&self.job, episode, node);
        self.begin(now, episode, Remedy::Migration(migration), by, flow);
    }

    fn checkpoint(&mut self, now: Now, reason: &str, by: By) {
        if self.ranks_have_ended(by) {
            return;
        }
        self.job.tell(format!("the job is saved: {reason}{}", by.words()));
        self.save_job(now, None, by);
    }

    fn save_job(&mut self, now: Now, leaving: Option<NodeName>, by: By) {
        let episode = self.job.open();
        let (checkpoint, flow) = Checkpoint::open(&self.job, episode, leaving);
        self.begin(now, episode, Remedy::Checkpoint(checkpoint), by, flow);
    }

    /// The fault of a node is gone: a migration that still waits is called off, an inactive node becomes a
    /// spare (when it is inactive: in the middle of a migration, after it).
    fn usable(&mut self, node: &NodeName, by: By) {
        let Some(row) = self.job.nodes.get_mut(node).filter(|row| !row.lost) else {
            let why = format!("node {node} is not part of the job, or lost");
            self.settle(by, Outcome::Refused, &why);
            return;
        };
        row.usable = true;
        row.avoid = false;
        // Nobody says it twice.
        self.job.out.push(Output::Save);
        let why = format!("node {node} is well again");
        let is_its = |w: &Waiting| matches!(&w.want, Want::Migrate { node: n, .. } if n == node);
        for waiting in self.take_waiting(is_its) {
            self.settle(waiting.by, Outcome::Refused, &why);
        }
        self.settle(by, Outcome::Done, "the node may be used again");
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
