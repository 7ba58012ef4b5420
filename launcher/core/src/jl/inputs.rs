//! Messages of nodes and ranks: checked for sender, start and episode, then passed to the open
//! workflow.

use super::barrier::Arrival;
use super::episode::Transition;
use super::start::{EXIT_TORN_IMAGE, NOT_STARTED};
use super::{Jl, JlOutput, OnDeath, Open, Outcome, Unusable, Workflow};
use crate::manner::Saver;
use crate::message::{
    ExitCause, FromJl, FromNla, FromRank, NlaMessage, Part, Protocol, RankMessage,
};
use crate::migration_state::MigrationState;
use crate::names::{Episode, NodeName, Ranks, SetId};
use crate::warm::ParkedProcesses;
use ftb_core::Now;

impl Jl {
    pub(super) fn on_nla(&mut self, now: Now, says: NlaMessage) {
        let NlaMessage { node, message } = says;
        let Some(row) = self.job.nodes.get_mut(&node) else {
            self.job.refused += 1;
            return;
        };
        // It shows that the launch agent lives, not that requests reach it.
        if let FromNla::Progress(report) = message {
            if !row.lost {
                self.on_progress(now, &node, report);
            }
            return;
        }
        // It says that a launch agent is dead.
        if matches!(message, FromNla::HangLeft { .. }) {
            return;
        }
        row.silences = 0;
        if row.lost && row.arriving {
            if let FromNla::Ready { state, changes, .. } = message {
                self.on_arriving(now, &node, state, changes);
            }
            return;
        }
        if row.lost {
            self.job.refused += 1;
            if !matches!(message, FromNla::Stopped { .. }) {
                let episode = self.job.episode;
                let target = node;
                self.job.publish(FromJl::Evict { episode, target });
            }
            return;
        }
        match &message {
            FromNla::Ready { state, changes, pmi, joined, parked, .. } => {
                self.job.hear_protocol(&node, pmi, Protocol::Pmi);
                self.job.hear_protocol(&node, joined, Protocol::FtbJob);
                self.has_state(&node, *state, *changes);
                self.unheard.remove(&node);
                self.job.hear_parked(&node, parked);
            }
            FromNla::Pmi { ranks, joined, .. } => {
                self.job.hear_protocol(&node, ranks, Protocol::Pmi);
                self.job.hear_protocol(&node, joined, Protocol::FtbJob);
            }
            FromNla::State { to, changes, .. } => self.has_state(&node, *to, *changes),
            _ => {}
        }
        match message {
            FromNla::Pmi { ranks, part, .. } => self.barrier(now, &node, &ranks, part),
            FromNla::Exited { rank, incarnation, how, .. } => {
                self.on_exited(now, &node, rank, incarnation, how)
            }
            FromNla::State { .. } => self.tell_usable(),
            FromNla::Hang { .. } => {}
            message => self.on_answer(now, &node, &message),
        }
    }

    /// An NLA answers a request. Only answers of the open episode count.
    fn on_answer(&mut self, now: Now, node: &NodeName, message: &FromNla) {
        let of = match message {
            FromNla::Launched { episode, .. }
            | FromNla::Protected { episode, .. }
            | FromNla::ProtectFailed { episode, .. }
            | FromNla::LaunchFailed { episode, .. }
            | FromNla::Prepared { episode, .. }
            | FromNla::Pic { episode, .. }
            | FromNla::Copied { episode, .. }
            | FromNla::CopyFailed { episode, .. }
            | FromNla::Restarted { episode, .. }
            | FromNla::Reset { episode }
            | FromNla::Stopped { episode } => Some(*episode),
            _ => None,
        };
        let open = self.open.as_ref().map(|open| open.episode);
        if of.is_some() && of != open {
            // A pod starts its ranks after the answer, so a failure may arrive when the start is
            // closed.
            if let FromNla::LaunchFailed { ranks, incarnation, reason, .. } = message
                && !self.replaces_ranks()
                && self.runs(node, ranks, *incarnation)
            {
                let words = format!("node {node} cannot start rank {ranks}: {reason}");
                return self.end(now, NOT_STARTED, &words);
            }
            self.job.refused += 1;
            if matches!(message, FromNla::Stopped { .. }) {
                self.on_gone(now, node, "its launch agent has left");
            }
            return;
        }
        if self.is_replaced_start(node, message) {
            self.job.refused += 1;
            return;
        }
        self.with_open(now, |handler, context| handler.on_nla(context, node, message));
    }

    /// Whether all ranks start or go back, whatever has become of them.
    fn replaces_ranks(&self) -> bool {
        let is_recovery =
            |open: &Open| matches!(open.workflow, Workflow::Start(_) | Workflow::Rollback(_));
        self.open.as_ref().is_some_and(is_recovery)
    }

    /// Whether it answers the request of an earlier start: its ranks count no more.
    fn is_replaced_start(&self, node: &NodeName, message: &FromNla) -> bool {
        match message {
            FromNla::Launched { incarnation, .. } | FromNla::Restarted { incarnation, .. } => {
                *incarnation != self.job.incarnation
            }
            FromNla::LaunchFailed { ranks, incarnation, .. } => {
                *incarnation != self.job.incarnation && !self.runs(node, ranks, *incarnation)
            }
            _ => false,
        }
    }

    /// Whether these ranks belong to that start on that node, and none has ended.
    fn runs(&self, node: &NodeName, ranks: &Ranks, incarnation: u64) -> bool {
        let is = |rank: u32| {
            let known = self.job.ranks.get(rank as usize);
            known.is_some_and(|known| {
                known.node == *node && known.incarnation == incarnation && known.ended.is_none()
            })
        };
        ranks.iter().all(is)
    }

    fn barrier(&mut self, now: Now, node: &NodeName, ranks: &Ranks, part: Part) {
        let episode = self.job.episode;
        let placed = |rank| self.job.ranks.get(rank as usize).is_some_and(|r| r.node == *node);
        if !ranks.iter().all(placed) {
            self.job.refused += 1;
            return;
        }
        let is_closed = |open: &Open| match &open.workflow {
            Workflow::Rollback(rollback) => rollback.is_closed(),
            _ => false,
        };
        let size = match self.open.as_ref().is_some_and(is_closed) {
            true => u32::MAX,
            false => self.job.barrier_size(),
        };
        let members = self.job.members_value();
        let mut messages = Vec::new();
        let to = |node: &NodeName, parts: &[Part]| {
            let repeat = |part: &Part| {
                let message = FromJl::Pmi { episode, part: part.clone() };
                JlOutput::Repeat { node: node.clone(), message }
            };
            parts.iter().map(repeat).collect::<Vec<_>>()
        };
        let barrier = &mut self.job.barrier;
        let complete = match barrier.on_arrival(node, ranks, part.clone(), (size, members)) {
            Arrival::Complete(parts) => {
                let publish = |part: &Part| FromJl::Pmi { episode, part: part.clone() };
                messages.extend(parts.iter().map(publish).map(JlOutput::Publish));
                true
            }
            Arrival::CompleteByNode => {
                let nodes = self.job.nodes.keys();
                let barrier = &self.job.barrier;
                messages.extend(nodes.flat_map(|node| to(node, barrier.result_of(node))));
                true
            }
            Arrival::Again(parts) => {
                messages = to(node, parts);
                false
            }
            Arrival::Waiting => false,
            Arrival::Stale => {
                self.job.refused += 1;
                return;
            }
        };
        if complete {
            self.job.met = true;
            self.job.out.push(JlOutput::Save);
        }
        self.job.out.extend(messages);
        if complete {
            self.with_open(now, |handler, context| handler.on_barrier(context));
            self.on_met(now);
        } else {
            self.with_open(now, |handler, context| handler.on_arrived(context, node));
        }
    }

    fn on_exited(
        &mut self,
        now: Now,
        node: &NodeName,
        rank: u32,
        incarnation: u64,
        how: ExitCause,
    ) {
        let row = self.job.ranks.get_mut(rank as usize);
        let is_it = |row: &&mut super::Rank| {
            row.incarnation == incarnation && row.node == *node && !row.left_out
        };
        let Some(row) = row.filter(is_it) else {
            self.job.refused += 1;
            return;
        };
        if row.ended.is_some() {
            return;
        }
        row.ended = Some(how);
        // A rank that has ended has not arrived at the barrier. The node reports again.
        self.job.barrier.forget(node);
        if self.job.finished() {
            self.finish(now);
            return;
        }
        let well = matches!(how, ExitCause::Exit(0) | ExitCause::Left);
        if !well && !self.ends() {
            self.has_failed(now);
        }
        if how == ExitCause::Exit(EXIT_TORN_IMAGE) && self.restores_in_loop() {
            self.job.put_aside(rank);
        }
        match &self.open {
            Some(_) => self.with_open(now, |handler, context| handler.on_exit(context, rank, how)),
            None if well && self.job.config.on_death == OnDeath::Continue => self.leave(now),
            None if well => {}
            None => self.transition(now, Transition::died(&self.job, rank, how)),
        }
    }

    /// Whether ranks restore themselves in `ftb_loop`: after the end of the start, which handles
    /// images that are refused before.
    fn restores_in_loop(&self) -> bool {
        let works = match &self.open {
            None => true,
            Some(open) => matches!(open.workflow, Workflow::Checkpoint(_)),
        };
        works && self.job.restarts > 0 && self.job.config.manner.saver == Saver::Loop
    }

    pub(super) fn ends(&self) -> bool {
        matches!(&self.open, Some(open) if matches!(open.workflow, Workflow::End(_)))
    }

    fn finish(&mut self, now: Now) {
        self.end(now, 0, "every rank has ended well");
    }

    pub(super) fn on_rank(&mut self, now: Now, says: &RankMessage) {
        let open = self.open.as_ref().map(|open| open.episode);
        let row = self.job.ranks.get(says.rank as usize);
        let known = row.is_some_and(|row| !row.left_out);
        if let FromRank::Repair(call) = &says.message
            && known
        {
            return self.on_repair(says.rank, call);
        }
        if open != Some(says.episode) || !known {
            let late = !matches!(says.message, FromRank::Suspended | FromRank::Resumed);
            self.job.refused += u64::from(late || !known);
            return;
        }
        self.with_open(now, |handler, context| handler.on_rank(context, says.rank, &says.message));
    }

    pub(super) fn on_gone(&mut self, now: Now, node: &NodeName, reason: &str) {
        self.does_not_arrive(node, reason);
        let Some(row) = self.job.nodes.get_mut(node).filter(|row| !row.lost) else {
            return;
        };
        row.lost = true;
        row.parked = ParkedProcesses::default();
        reason.clone_into(&mut row.lost_why);
        let asked = core::mem::take(&mut row.asked_usable);
        self.answer_usable(&asked, Outcome::Refused, &format!("node {node} is lost"));
        self.unheard.remove(node);
        self.job.barrier.forget(node);
        let ending = self.ends();
        if !ending {
            self.job.tell(format!("node {node} is lost: {reason}"));
            self.job.out.push(JlOutput::KillNla(node.clone()));
        }
        let bears = !self.job.ranks_on(node).is_empty();
        let early = matches!(&self.open, Some(open) if matches!(open.workflow, Workflow::Start(_)));
        if bears && !ending {
            self.has_failed(now);
        }
        if !bears && !ending {
            self.job.lost_without_ranks(node);
            self.expect_protection(now);
        }
        let stops = self.job.config.on_death == OnDeath::Stop && !early && !ending;
        if self.open.is_none() || (bears && stops) {
            if bears {
                let why = self.job.why_lost(node);
                let reason = format!("node {node} was lost with its ranks{why}");
                self.transition(now, Transition::Died { code: 1, reason });
            }
            return;
        }
        self.with_open(now, |handler, context| handler.on_lost(context, node));
    }

    /// A fault of a node. Its ranks, if it has some, are the policy's business.
    pub(super) fn on_unusable(&mut self, now: Now, node: &NodeName, why: Unusable) {
        let Some(row) = self.job.nodes.get_mut(node) else {
            return;
        };
        if row.lost {
            // It counts when the node returns.
            row.unusable = Some(why);
            return self.job.out.push(JlOutput::Save);
        }
        let runs = row.state == Some(MigrationState::Ready);
        let words = format!("node {node} gets no ranks: {}", why.why);
        if row.unusable.replace(why.clone()) == Some(why) {
            return;
        }
        if !runs {
            self.job.tell(words);
        }
        self.job.out.push(JlOutput::Save);
        self.with_open(now, |handler, context| handler.on_unusable(context, node));
    }

    pub(super) fn on_stored(&mut self, now: Now, episode: Episode, result: Result<u64, String>) {
        if self.open.as_ref().is_none_or(|open| open.episode != episode) {
            self.job.refused += 1;
            // The episode was closed while the set was being stored: the set does not count and is
            // deleted.
            let set = SetId::of_checkpoint(episode);
            if result.is_ok() && !self.job.sets.contains(&set) {
                self.job.out.push(JlOutput::DropStored(set));
            }
            return;
        }
        self.with_open(now, |handler, context| handler.on_stored(context, result));
    }
}
