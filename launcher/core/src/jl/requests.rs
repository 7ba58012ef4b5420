//! The queue of requests of the policy and of people.

use super::clocks::{mono_ns, wall_ns};
use super::remedies::{Choices, SavePlace};
use super::{
    ASKED_MAX, BARRIER_PATIENCE, Checkpoint, Initiator, Jl, JlOutput, Migration, MigrationState,
    Open, Outcome, Pending, Request, USABLE_ASKED_MAX, WANTED_MAX, Workflow,
};
use crate::manner::{Moves, Saver};
use crate::message::{FaultCause, FromJl, TimeLeft};
use crate::names::{Episode, FaultId, NodeName, SetId};
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// How often a checkpoint is tried again for which a rank was behind the loop id.
const LOOP_MISSES_MAX: u32 = 6;
const USABLE_AGAIN: &str = "the node may be used again";

/// A request that waits for its turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct QueuedRequest {
    pub(super) want: Request,
    pub(super) by: Initiator,
    /// The remedy was chosen already, by this.
    #[serde(default)]
    pub(super) left: Option<TimeLeft>,
    /// When the node is predicted to fail, in Unix nanoseconds: for the next launcher.
    #[serde(default)]
    fails_wall_ns: Option<u64>,
}

impl QueuedRequest {
    pub(super) fn new(want: Request, by: Initiator) -> Self {
        Self { want, by, left: None, fails_wall_ns: None }
    }

    /// One of an episode that was taken back.
    pub(super) fn again(want: Request, by: Initiator, left: Option<TimeLeft>) -> Self {
        Self { left, ..Self::new(want, by) }
    }

    /// Remembers by the wall clock when the node is predicted to fail.
    pub(super) fn dated(self, now: Now) -> Self {
        let fails_wall_ns = self.want.fails_ns().map(|fails_ns| wall_ns(now, fails_ns));
        Self { fails_wall_ns, ..self }
    }

    /// The monotonic clock of an earlier launcher means nothing here.
    pub(super) fn adopt(&mut self, now: Now) {
        if let Request::Migrate { fails_ns, .. } = &mut self.want {
            *fails_ns = self.fails_wall_ns.map(|wall_ns| mono_ns(now, wall_ns));
        }
    }
}

/// What is done before a predicted failure.
struct ChosenRemedy {
    /// Where the job is saved before the ranks move; `None`: they move at once.
    saves: Option<SavePlace>,
    numbers: TimeLeft,
    /// Why.
    words: String,
}

impl Jl {
    /// Notes the number of a request. Says whether this JL, or the one before it, has it already:
    /// the requester repeats it until the first answer, which a JL that takes over may not have
    /// sent.
    pub fn is_repeated(&mut self, request: u64) -> bool {
        let by = Initiator::Request(request);
        let is_known = self.asked.contains(&request)
            || self.wanted.iter().any(|queued| queued.by == by)
            || self.open.as_ref().is_some_and(|open| open.by == by)
            || self.adding.iter().any(|adding| adding.by == by)
            || self.job.nodes.values().any(|row| row.asked_usable.contains(&request));
        if !is_known {
            if self.asked.len() >= ASKED_MAX {
                self.asked.pop_front();
            }
            self.asked.push_back(request);
        }
        is_known
    }

    pub(super) fn want(&mut self, now: Now, want: Request, by: Initiator) {
        if let Some(fault) = by.fault() {
            if self.job.faults.is_closed(fault) {
                self.job.refused += 1;
                return;
            }
            self.job.faults.hear(fault);
        }
        match want {
            Request::Kill { code, reason } => {
                self.end(now, code, &reason);
                self.settle(by, Outcome::Done, "the job ends");
            }
            Request::Usable { node } => self.usable(&node, by),
            Request::Drain { node, reason } => self.drain(now, node, reason, by),
            want => self.queue(now, want, by),
        }
    }

    /// A fault that is closed already needs no cause.
    pub(super) fn explain(&mut self, fault: FaultId, cause: FaultCause) {
        if !self.job.faults.is_closed(fault) {
            self.job.faults.explain(fault, cause);
        }
    }

    /// The waiting faults with node and reason, for a policy that takes over.
    pub fn waiting_faults(&self) -> impl Iterator<Item = (FaultId, Option<&NodeName>, &str)> {
        let pending = self.pending.iter().filter_map(|pending| {
            Some((pending.by.fault()?, Some(&pending.node), pending.reason.as_str()))
        });
        let wanted = self.wanted.iter().filter_map(|waiting| {
            let fault = waiting.by.fault()?;
            match &waiting.want {
                Request::Migrate { node, reason, .. } | Request::Drain { node, reason } => {
                    Some((fault, Some(node), reason.as_str()))
                }
                Request::Checkpoint { reason }
                | Request::MemoryCheckpoint { reason }
                | Request::DiskCheckpoint { reason } => Some((fault, None, reason.as_str())),
                Request::Usable { .. } | Request::Kill { .. } => None,
            }
        });
        pending.chain(wanted)
    }

    /// Cancels queued requests for these faults. A running workflow goes on.
    pub(super) fn cancel(&mut self, faults: &BTreeSet<FaultId>, reason: &str) {
        let is_off = |by: Initiator| by.fault().is_some_and(|of| faults.contains(&of));
        let pending = self.take_pending(|pending| is_off(pending.by)).into_iter();
        let pending = pending.map(|Pending { node, reason, by, .. }| {
            QueuedRequest::new(Request::Migrate { node, reason, fails_ns: None }, by)
        });
        let mut gone: Vec<QueuedRequest> = pending.collect();
        gone.extend(self.take_waiting(|waiting| is_off(waiting.by)));
        for waiting in &gone {
            let words = self.job.faults.words(waiting.by);
            self.job.tell(format!("{} is cancelled{words}: {reason}", waiting.want.words()));
            self.settle(waiting.by, Outcome::Refused, reason);
        }
        if !gone.is_empty() {
            self.job.out.push(JlOutput::Save);
        }
    }

    /// Removes matching requests from the queue.
    pub(super) fn take_waiting(
        &mut self,
        of: impl Fn(&QueuedRequest) -> bool,
    ) -> VecDeque<QueuedRequest> {
        let gone;
        (gone, self.wanted) = core::mem::take(&mut self.wanted).into_iter().partition(of);
        gone
    }

    /// Leaves a node with ranks. A spare stops to be one until it is marked as usable.
    fn drain(&mut self, now: Now, node: NodeName, reason: String, by: Initiator) {
        let idle = self.job.ranks_on(&node).is_empty();
        match self.job.nodes.get_mut(&node) {
            Some(row) if idle && !row.lost => {
                row.avoid = true;
                self.job.out.push(JlOutput::Save);
                let words = format!("node {node} has no ranks of the job, and gets none");
                self.settle_and_notify(by, Outcome::Done, &words);
            }
            _ => self.queue(now, Request::Migrate { node, reason, fails_ns: None }, by),
        }
    }

    /// Answers a request; of a fault, the user hears it.
    pub(super) fn settle_and_notify(&mut self, by: Initiator, outcome: Outcome, words: &str) {
        if by.fault().is_some() {
            self.job.tell(format!("{words}{}", self.job.faults.words(by)));
        }
        self.settle(by, outcome, words);
    }

    /// Queues a request: at most one for a node, and one checkpoint.
    fn queue(&mut self, now: Now, want: Request, by: Initiator) {
        if let Request::Migrate { node, fails_ns: Some(fails_ns), .. } = &want {
            // It may be queued already, with a later time or none.
            if self.fails_sooner(now, node, *fails_ns) {
                self.job.out.push(JlOutput::Save);
                self.call_off_checkpoint(now);
            }
        }
        if let Err(why) = self.check(&want) {
            self.job.tell(format!("{why}{}", self.job.faults.words(by)));
            self.settle(by, Outcome::Refused, &why);
            return;
        }
        if let Some(why) = self.refusal() {
            return self.refuse(now, want, by, &why);
        }
        let words = match &self.open {
            Some(open) => format!("it is next: {} is under way", open.words()),
            None if !self.job.met => "it waits until all ranks have joined ftb-job".to_owned(),
            None if !self.unheard.is_empty() => "it waits until all nodes have reported".to_owned(),
            None if self.is_unsaved() => "it waits until the state can be saved".to_owned(),
            None => "it is under way".to_owned(),
        };
        self.reply(by, Outcome::Accepted, &words);
        self.enqueue(QueuedRequest::new(want, by).dated(now));
        self.job.out.push(JlOutput::Save);
        self.call_off_checkpoint(now);
    }

    /// The ranks can be neither saved nor moved. The fault of a node stays open in case that
    /// changes.
    fn refuse(&mut self, now: Now, want: Request, by: Initiator, why: &str) {
        let words = self.job.faults.words(by);
        match want {
            Request::Migrate { node, reason, fails_ns } if by.fault().is_some() => {
                self.job.tell(format!("the ranks of {node} stay ({reason}){words}: {why}"));
                let fails_wall_ns = fails_ns.map(|fails_ns| wall_ns(now, fails_ns));
                self.keep_pending(Pending { fails_wall_ns, ..Pending::new(node, reason, by) });
            }
            want => {
                let what = want.words();
                self.job.tell(format!("{what} is refused{words}: {why}"));
                self.settle(by, Outcome::Refused, why);
            }
        }
    }

    /// Whether a checkpoint by the clock is possible and none is queued or running.
    pub(super) fn saves_itself(&self) -> bool {
        let waits = |w: &QueuedRequest| w.want.saves();
        let saving = |open: &Open| matches!(open.workflow, Workflow::Checkpoint(_));
        let busy = self.wanted.iter().any(waits) || self.open.as_ref().is_some_and(saving);
        !busy && !self.ends() && !self.is_unsaved() && self.refusal().is_none()
    }

    /// Whether the job is being saved in the memory of its nodes, or is about to.
    pub(super) fn saves_in_memory(&self) -> bool {
        let waits = |w: &QueuedRequest| matches!(w.want, Request::MemoryCheckpoint { .. });
        let saving = |open: &Open| match &open.workflow {
            Workflow::Checkpoint(checkpoint) => checkpoint.set().is_in_memory(),
            _ => false,
        };
        self.wanted.iter().any(waits) || self.open.as_ref().is_some_and(saving)
    }

    fn check(&self, want: &Request) -> Result<(), String> {
        if self.wanted.len() >= WANTED_MAX {
            return Err(format!("{WANTED_MAX} requests are queued already"));
        }
        if self.ends() {
            return Err("the job is ending".to_owned());
        }
        match want {
            Request::Migrate { node, .. } => self.check_migrate(node),
            Request::Checkpoint { .. } => {
                let waits = |w: &QueuedRequest| matches!(w.want, Request::Checkpoint { .. });
                if self.wanted.iter().any(waits) {
                    return Err("a checkpoint waits already".to_owned());
                }
                Ok(())
            }
            Request::MemoryCheckpoint { .. } if self.job.config.memory.is_none() => {
                Err("the job saves nothing in memory (--memory)".to_owned())
            }
            Request::MemoryCheckpoint { .. }
            | Request::DiskCheckpoint { .. }
            | Request::Drain { .. }
            | Request::Usable { .. }
            | Request::Kill { .. } => Ok(()),
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
        let twin = |queued: &QueuedRequest| {
            let want = &queued.want;
            matches!(want, Request::Migrate { node: other, .. } if other == node)
        };
        let open = matches!(&self.open, Some(open)
            if matches!(&open.workflow, Workflow::Migration(m) if m.source() == node));
        if open || self.wanted.iter().any(twin) {
            return Err(format!("node {node} is being left already"));
        }
        Ok(())
    }

    /// Starts the next request when no episode is open and all ranks have met.
    pub(super) fn next_wanted(&mut self, now: Now) {
        if self.is_unsaved() {
            return;
        }
        self.resume_pending(now);
        while self.open.is_none() && self.unheard.is_empty() && !self.over() {
            let refusal = self.refusal();
            let met = self.job.met || refusal.is_some();
            if !met || self.waits_for_barrier(now) {
                return;
            }
            let Some(QueuedRequest { want, by, left, .. }) = self.wanted.pop_front() else {
                return;
            };
            if let Some(why) = refusal {
                self.refuse(now, want, by, &why);
                continue;
            }
            match want {
                Request::Migrate { node, reason, fails_ns } => {
                    self.migrate(now, node, &reason, (fails_ns, left), by)
                }
                Request::Checkpoint { reason } => self.checkpoint(now, &reason, by, &reason),
                Request::MemoryCheckpoint { reason } => {
                    self.save_in(SavePlace::Memory, now, by, &reason)
                }
                Request::DiskCheckpoint { reason } => {
                    self.save_in(SavePlace::Disks, now, by, &reason)
                }
                Request::Drain { .. } | Request::Usable { .. } | Request::Kill { .. } => {}
            }
        }
    }

    /// Whether the next request is a checkpoint by agents that waits for ranks in a PMI barrier. No
    /// rank is stopped meanwhile. The checkpoint is refused after [`BARRIER_PATIENCE`].
    fn waits_for_barrier(&mut self, now: Now) -> bool {
        let next = self.wanted.front().map(|waiting| &waiting.want);
        let saves = next.is_some_and(Request::saves) && self.job.saver() == Saver::Agent;
        if !saves || !self.job.barrier.is_entered() || self.some_have_ended() {
            self.barrier_until_ns = None;
            return false;
        }
        let until_ns = *self.barrier_until_ns.get_or_insert(now.deadline_ns(BARRIER_PATIENCE));
        if now.mono_ns < until_ns {
            return true;
        }
        self.barrier_until_ns = None;
        if let Some(QueuedRequest { by, .. }) = self.wanted.pop_front() {
            let why = "no checkpoint: ranks wait for others in a PMI barrier: ask again";
            self.job.tell(format!("{why}{}", self.job.faults.words(by)));
            self.settle(by, Outcome::Refused, why);
            self.job.out.push(JlOutput::Save);
        }
        false
    }

    fn some_have_ended(&self) -> bool {
        self.job.rows().any(|(_, row)| row.ended.is_some())
    }

    fn ranks_have_ended(&mut self, by: Initiator) -> bool {
        let ended = self.some_have_ended();
        if ended {
            let why = "ranks have ended already: there is nothing to save";
            self.settle_and_notify(by, Outcome::Refused, why);
        }
        ended
    }

    fn migrate(
        &mut self,
        now: Now,
        node: NodeName,
        reason: &str,
        (fails_ns, mut left): (Option<u64>, Option<TimeLeft>),
        by: Initiator,
    ) {
        if self.ranks_have_ended(by) {
            return;
        }
        if let Err(why) = self.check_migrate(&node) {
            return self.settle_and_notify(by, Outcome::Refused, &why);
        }
        // It may be chosen already: the job was saved, and the ranks move now.
        let remedy = fails_ns.filter(|_| left.is_none());
        let remedy = remedy.map(|fails_ns| self.remedy(now, &node, fails_ns, by));
        let fails_wall_ns = fails_ns.map(|fails_ns| wall_ns(now, fails_ns));
        if self.job.spare(&[]).is_none() {
            let pending = Pending::new(node, reason.to_owned(), by);
            return self.without_spare(now, Pending { fails_wall_ns, ..pending }, remedy);
        }
        let mut why = self.job.spares_words(&[]);
        if let Some(ChosenRemedy { saves, numbers, words }) = remedy {
            why = format!("{words}; {why}");
            left = Some(numbers);
            if let Some(place) = saves {
                let reason = reason.to_owned();
                let want = Request::Migrate { node, reason, fails_ns };
                let queued = QueuedRequest { left, ..QueuedRequest::new(want, by) };
                self.wanted.push_front(queued.dated(now));
                self.save_in(place, now, Initiator::Internal, &why);
                if let Some(open) = &mut self.open {
                    (open.left, open.before) = (left, by.fault());
                }
                return;
            }
        }
        let words = self.job.faults.words(by);
        self.job.tell(format!("the ranks of {node} move: {reason}{words}; {why}"));
        if self.job.moves() == Moves::Anew {
            self.save_job(now, Some(node), by, &why);
        } else {
            let episode = self.job.open();
            let (migration, transition) = Migration::open(&self.job, episode, node);
            self.begin(now, episode, Workflow::Migration(migration), by, transition, &why);
        }
        if let Some(open) = &mut self.open {
            reason.clone_into(&mut open.reason);
            (open.left, open.fails_wall_ns) = (left, fails_wall_ns);
        }
    }

    /// The remedies that the job has now.
    pub(super) fn choices(&self) -> Choices {
        Choices {
            moves: self.job.spare(&[]).is_some(),
            anew: self.job.moves() == Moves::Anew,
            in_memory: self.job.can_protect() && self.job.goes_on_from_memory(),
        }
    }

    /// What fits into the time before a predicted failure. The user reads it.
    fn remedy(&mut self, now: Now, node: &NodeName, fails_ns: u64, by: Initiator) -> ChosenRemedy {
        let time = Duration::from_nanos(fails_ns.saturating_sub(now.mono_ns));
        let (remedy, numbers, chosen) = self.remedies.choose(time, self.choices());
        let words = self.job.faults.words(by);
        let when = match time.is_zero() {
            true => "may fail at any time".to_owned(),
            false => format!("fails in {time:.1?} or later"),
        };
        self.job.tell(format!("{node} {when}{words}: {chosen}"));
        let words = format!("it {when}: {chosen}");
        ChosenRemedy { saves: remedy.saves(), numbers, words }
    }

    fn save_in(&mut self, place: SavePlace, now: Now, by: Initiator, why: &str) {
        match place {
            SavePlace::Store => self.save_job(now, None, by, why),
            SavePlace::Memory => self.save_on_nodes(now, SetId::of_memory, by, why),
            SavePlace::Disks => self.save_on_nodes(now, SetId::of_disks, by, why),
        }
    }

    /// Without a spare the job is saved instead. A person gets an answer; a fault stays open until
    /// a spare appears.
    fn without_spare(&mut self, now: Now, pending: Pending, remedy: Option<ChosenRemedy>) {
        let (Pending { node, by, .. }, reason) = (&pending, &pending.reason.clone());
        let by = *by;
        let why = self.job.spares_words(&[]);
        let words = format!(
            "no hot spare is left for the ranks of {node} ({reason}; {why}): the job is saved \
             instead"
        );
        let fault = by.fault().map_or(Initiator::Internal, Initiator::Fault);
        if fault == Initiator::Internal {
            self.job.tell(words.clone());
        } else {
            let of = self.job.faults.words(by);
            self.job.tell(format!("{words}, and they move when there is a spare{of}"));
            self.keep_pending(pending);
        }
        self.reply(by, Outcome::Failed, &words);
        let why = format!("no hot spare is left: {why}");
        let Some(ChosenRemedy { saves, numbers, words }) = remedy else {
            return self.checkpoint(now, reason, fault, &why);
        };
        let of = self.job.faults.words(fault);
        self.job.tell(format!("the job is saved: {reason}{of}"));
        self.save_in(saves.unwrap_or(SavePlace::Store), now, fault, &format!("{words}; {why}"));
        if let Some(open) = &mut self.open {
            open.left = Some(numbers);
        }
    }

    fn checkpoint(&mut self, now: Now, reason: &str, by: Initiator, why: &str) {
        if self.ranks_have_ended(by) {
            return;
        }
        let words = self.job.faults.words(by);
        self.job.tell(format!("the job is saved: {reason}{words}"));
        self.save_job(now, None, by, why);
    }

    /// Saves the job in the memory or on the disks of its nodes.
    fn save_on_nodes(&mut self, now: Now, set_of: fn(Episode) -> SetId, by: Initiator, why: &str) {
        if !self.ranks_have_ended(by) {
            self.save(now, set_of, None, by, why);
        }
    }

    fn save_job(&mut self, now: Now, leaving: Option<NodeName>, by: Initiator, why: &str) {
        self.save(now, SetId::of_checkpoint, leaving, by, why);
    }

    fn save(
        &mut self,
        now: Now,
        set_of: fn(Episode) -> SetId,
        leaving: Option<NodeName>,
        by: Initiator,
        why: &str,
    ) {
        let episode = self.job.open();
        let set = set_of(episode);
        let (checkpoint, transition) = Checkpoint::open(&mut self.job, episode, set, leaving);
        self.begin(now, episode, Workflow::Checkpoint(checkpoint), by, transition, why);
    }

    /// An episode is closed: answers its request, unless it is tried again.
    pub(super) fn settle_closed(&mut self, now: Now, open: &Open, done: bool, words: &str) {
        if !self.asks_again(now, open, done) {
            let outcome = if done { Outcome::Done } else { Outcome::Failed };
            self.settle(open.by, outcome, words);
        }
    }

    /// Whether a checkpoint for which a rank was behind the loop id is tried again. Each time its
    /// launch agent gives the order more time.
    fn asks_again(&mut self, now: Now, open: &Open, done: bool) -> bool {
        let Workflow::Checkpoint(checkpoint) = &open.workflow else { return false };
        let want = checkpoint.again(&open.reason, open.fails_ns(now));
        let Some(want) = want.filter(|_| !done) else { return false };
        if self.job.loop_misses >= LOOP_MISSES_MAX {
            self.job.loop_misses = 0;
            return false;
        }
        self.job.loop_misses += 1;
        self.wanted.push_front(QueuedRequest::again(want, open.by, open.left).dated(now));
        true
    }

    /// The fault of a node has passed. Its queued migration is cancelled; an inactive node becomes
    /// a spare, at the latest after an open migration.
    fn usable(&mut self, node: &NodeName, by: Initiator) {
        if let Some(row) = self.job.nodes.get_mut(node).filter(|row| row.lost) {
            // It counts when the node returns.
            row.unusable = None;
            self.job.out.push(JlOutput::Save);
        }
        let Some(row) = self.job.nodes.get_mut(node).filter(|row| !row.lost) else {
            let why = format!("node {node} is not part of the job, or lost");
            self.settle(by, Outcome::Refused, &why);
            return;
        };
        row.usable = true;
        row.avoid = false;
        let was_unusable = row.unusable.take().is_some();
        let returns = row.state == Some(MigrationState::Inactive);
        let full = row.asked_usable.len() >= USABLE_ASKED_MAX;
        if let Some(request) = by.request().filter(|_| returns && !full) {
            row.asked_usable.push(request);
        }
        // The event comes only once.
        self.job.out.push(JlOutput::Save);
        if was_unusable {
            self.job.tell(format!("node {node} may get ranks again"));
        }
        let why = format!("node {node} is well again");
        let is_its =
            |w: &QueuedRequest| matches!(&w.want, Request::Migrate { node: n, .. } if n == node);
        for waiting in self.take_waiting(is_its) {
            self.settle(waiting.by, Outcome::Refused, &why);
        }
        for pending in self.take_pending(|pending| pending.node == *node) {
            let words = self.job.faults.words(pending.by);
            self.job.tell(format!("the ranks of {node} stay{words}: {why}"));
            self.settle(pending.by, Outcome::Refused, &why);
        }
        self.forget_tried(node);
        match returns {
            true if full => {
                self.reply(by, Outcome::Refused, "too many requests wait for this node: see status")
            }
            true => self.reply(by, Outcome::Accepted, "the node becomes a spare"),
            false => self.settle(by, Outcome::Done, USABLE_AGAIN),
        }
        self.tell_usable();
    }

    /// A node reports its state. Requests that wait for a spare are answered.
    pub(super) fn has_state(&mut self, node: &NodeName, state: MigrationState, changes: u64) {
        let row = self.job.nodes.get_mut(node).filter(|row| changes >= row.changes);
        let Some(row) = row else {
            return;
        };
        row.changes = changes;
        let before = row.state.replace(state);
        if before != Some(MigrationState::Inactive) || state == MigrationState::Inactive {
            return;
        }
        let asked = core::mem::take(&mut row.asked_usable);
        self.job.out.push(JlOutput::Save);
        self.answer_usable(&asked, Outcome::Done, USABLE_AGAIN);
    }

    pub(super) fn answer_usable(&mut self, asked: &[u64], outcome: Outcome, words: &str) {
        for request in asked {
            self.reply(Initiator::Request(*request), outcome, words);
        }
    }

    /// Informs inactive nodes that are usable again; repeated with each question until they are
    /// spares.
    pub(super) fn tell_usable(&mut self) {
        let episode = self.job.episode;
        let mut reported = Vec::new();
        for (name, node) in &mut self.job.nodes {
            match node.state {
                Some(MigrationState::Inactive) if node.usable && !node.lost => {
                    reported.push(name.clone());
                }
                Some(MigrationState::Arm) => {}
                _ => node.usable = false,
            }
        }
        let source = match self.open.as_ref().map(|open| &open.workflow) {
            Some(Workflow::Migration(migration)) => Some(migration.source().clone()),
            _ => None,
        };
        for target in reported.into_iter().filter(|name| Some(name) != source.as_ref()) {
            self.job.publish(FromJl::Usable { episode, target });
        }
    }
}
