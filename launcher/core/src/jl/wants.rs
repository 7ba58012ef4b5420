//! What the policy and people want of a JL: the queue of remedies that wait for their turn.

use super::{
    By, Checkpoint, FENCE_PATIENCE, Jl, Migration, MigrationState, Open, Outcome, Output, Pending,
    Remedy, Request, USABLE_ASKED_MAX, WANTED_MAX, Waiting, Want,
};
use crate::manner::Moves;
use crate::message::{Asked, FromJl};
use crate::names::{FaultId, NodeName};
use ftb_core::Now;
use std::collections::{BTreeSet, VecDeque};

/// The answer to a request that a node may be used again, when it is so.
const USABLE_AGAIN: &str = "the node may be used again";

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
        let pending = self.pending.iter().filter_map(|pending| {
            Some((pending.by.fault()?, Some(&pending.node), pending.reason.as_str()))
        });
        let wanted = self.wanted.iter().filter_map(|waiting| {
            let fault = waiting.by.fault()?;
            match &waiting.want {
                Want::Migrate { node, reason } | Want::Drain { node, reason } => {
                    Some((fault, Some(node), reason.as_str()))
                }
                Want::Checkpoint { reason } => Some((fault, None, reason.as_str())),
                Want::Usable { .. } | Want::Kill { .. } => None,
            }
        });
        pending.chain(wanted)
    }

    /// What waits because of these faults is called off; what is under way goes to its end.
    pub(super) fn call_off(&mut self, faults: &BTreeSet<FaultId>, reason: &str) {
        let is_off = |by: By| by.fault().is_some_and(|of| faults.contains(&of));
        let pending = self.take_pending(|pending| is_off(pending.by)).into_iter();
        let pending = pending.map(|Pending { node, reason, by, .. }| Waiting {
            want: Want::Migrate { node, reason },
            by,
        });
        let mut gone: Vec<Waiting> = pending.collect();
        gone.extend(self.take_waiting(|waiting| is_off(waiting.by)));
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
        if let Some(why) = self.refusal() {
            return self.refuse(want, by, &why);
        }
        let words = match &self.open {
            Some(open) => format!("it is next: {} is under way", open.words()),
            None if !self.job.met => "it waits until all ranks have joined ftb-job".to_owned(),
            None if !self.unheard.is_empty() => "it waits until all nodes are heard".to_owned(),
            None => "it is under way".to_owned(),
        };
        self.reply(by, Outcome::Accepted, &words);
        self.wanted.push_back(Waiting { want, by });
        self.job.out.push(Output::Save);
    }

    /// The ranks can neither be saved nor moved. A fault of a node stays open, should that change.
    fn refuse(&mut self, want: Want, by: By, why: &str) {
        let words = by.words();
        match want {
            Want::Migrate { node, reason } if by.fault().is_some() => {
                self.job.tell(format!("the ranks of {node} stay ({reason}){words}: {why}"));
                self.keep_pending(node, reason, by, Vec::new());
            }
            want => {
                let what = want.words();
                self.job.tell(format!("{what} is refused{words}: {why}"));
                self.settle(by, Outcome::Refused, why);
            }
        }
    }

    /// Whether a checkpoint by the clock makes sense: it can be done, and no other waits or is
    /// under way.
    pub(super) fn saves_itself(&self) -> bool {
        let waits = |w: &Waiting| matches!(w.want, Want::Checkpoint { .. });
        let saving = |open: &Open| matches!(open.remedy, Remedy::Checkpoint(_));
        let busy = self.wanted.iter().any(waits) || self.open.as_ref().is_some_and(saving);
        !busy && !self.ends() && self.refusal().is_none()
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
        self.resume_pending();
        while self.open.is_none() && self.unheard.is_empty() && !self.over() {
            let refusal = self.refusal();
            let met = self.job.met || refusal.is_some();
            if !met || self.waits_for_fence(now) {
                return;
            }
            let Some(Waiting { want, by }) = self.wanted.pop_front() else {
                return;
            };
            if let Some(why) = refusal {
                self.refuse(want, by, &why);
                continue;
            }
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
            return self.without_spare(now, node, reason, by);
        }
        self.job.tell(format!("the ranks of {node} move: {reason}{}", by.words()));
        if self.job.moves() == Moves::Anew {
            return self.save_job(now, Some(node), by);
        }
        let episode = self.job.open();
        let (migration, flow) = Migration::open(&self.job, episode, node);
        self.begin(now, episode, Remedy::Migration(migration), by, flow);
        if let Some(open) = &mut self.open {
            reason.clone_into(&mut open.reason);
        }
    }

    /// The job is saved instead. A person has the answer; a fault stays open until a spare appears.
    fn without_spare(&mut self, now: Now, node: NodeName, reason: &str, by: By) {
        let words = format!(
            "no hot spare is left for the ranks of {node} ({reason}): the job is saved instead"
        );
        let fault = by.fault().map_or(By::Nobody, By::Fault);
        if fault == By::Nobody {
            self.job.tell(words.clone());
        } else {
            self.job.tell(format!("{words}, and they move when there is a spare{}", by.words()));
            self.keep_pending(node, reason.to_owned(), by, Vec::new());
        }
        self.reply(by, Outcome::Failed, &words);
        self.checkpoint(now, reason, fault);
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
        let returns = row.state == Some(MigrationState::Inactive);
        let full = row.asked_usable.len() >= USABLE_ASKED_MAX;
        if let Some(request) = by.request().filter(|_| returns && !full) {
            row.asked_usable.push(request);
        }
        // Nobody says it twice.
        self.job.out.push(Output::Save);
        let why = format!("node {node} is well again");
        let is_its = |w: &Waiting| matches!(&w.want, Want::Migrate { node: n, .. } if n == node);
        for waiting in self.take_waiting(is_its) {
            self.settle(waiting.by, Outcome::Refused, &why);
        }
        for pending in self.take_pending(|pending| pending.node == *node) {
            let words = pending.by.words();
            self.job.tell(format!("the ranks of {node} stay{words}: {why}"));
            self.settle(pending.by, Outcome::Refused, &why);
        }
        self.forget_tried(node);
        match returns {
            true if full => {
                self.reply(by, Outcome::Refused, "others wait for the same: see status")
            }
            true => self.reply(by, Outcome::Accepted, "the node becomes a spare"),
            false => self.settle(by, Outcome::Done, USABLE_AGAIN),
        }
        self.tell_usable();
    }

    /// A node has come to a state. One that is no longer inactive is shown as what it is, and who
    /// has asked for that has the answer.
    pub(super) fn has_state(&mut self, node: &NodeName, state: MigrationState) {
        let Some(row) = self.job.nodes.get_mut(node) else {
            return;
        };
        let before = row.state.replace(state);
        if before != Some(MigrationState::Inactive) || state == MigrationState::Inactive {
            return;
        }
        let asked = core::mem::take(&mut row.asked_usable);
        self.job.out.push(Output::Save);
        self.answer_usable(&asked, Outcome::Done, USABLE_AGAIN);
    }

    pub(super) fn answer_usable(&mut self, asked: &[u64], outcome: Outcome, words: &str) {
        for request in asked {
            self.reply(By::Request(*request), outcome, words);
        }
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
