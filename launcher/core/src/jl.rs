//! The job launcher (JL) as a pure state machine. Inputs are messages of nodes and ranks, and
//! requests of the policy and of people. Outputs are requests, answers, state to save, and lines
//! for the user.
//!
//! One episode is open at a time, because each needs all ranks. Other requests wait in a bounded
//! queue, at most one for a node. Each phase of an episode has a deadline and a way back (table in
//! `launcher/core/protocol.md`). The JL repeats each request every second until it is answered, and
//! ignores duplicate answers. The whole state can be saved before each step ([`JlOutput::Save`]),
//! and another JL can take it over ([`JlInput::Adopted`]).

mod api;
mod arrivals;
mod barrier;
mod checkpoint;
mod checkpoint_timer;
mod clocks;
mod config;
mod end;
mod episode;
mod hangs;
mod initiator;
mod inputs;
mod job;
mod joined;
mod memory;
mod migration;
mod node_wait;
mod pending;
mod preview;
mod recovery;
mod remedies;
mod repair;
mod requests;
mod rollback;
mod saving;
mod sooner;
mod start;
#[cfg(test)]
mod tests;
mod workflow;

pub use api::{JlInput, JlOutput, Request};
pub use arrivals::{ADDING_MAX, RETURN_EVERY};
pub use checkpoint_timer::{CheckpointTimer, Interval, IntervalView, MTBF, Source};
pub use config::{Deadlines, JlConfig, MemoryConfig, OnDeath, OnHang};
pub use initiator::{Faults, Initiator};
pub use job::{Job, Node, Rank, Unusable, WhatIf};
pub use joined::JOIN_GRACE;
pub use node_wait::{NO_NODES, NodeWait, WAIT};
pub use pending::Pending;
pub use preview::Preview;
pub use workflow::{Open, Progress, Workflow};

use crate::message::{Answer, Closed, FromJl, Outcome};
use crate::migration_state::MigrationState;
use crate::names::{Episode, NodeName, SetId};
use crate::progress::{Finding, HangJudge};
use crate::repair::Repairs;
use arrivals::Adding;
use checkpoint::Checkpoint;
use core::time::Duration;
use end::End;
use episode::{Context, Handler, Transition};
use ftb_core::Now;
use hangs::Killed;
use job::{SILENCES_MAX, SILENCES_WARN};
use memory::FirstSet;
use migration::Migration;
use remedies::{Remedies, SavePlace};
use requests::QueuedRequest;
use saving::{BeforeRecovery, TakenBack, Unsaved, WaitingRecovery};
use serde::{Deserialize, Serialize};
use start::Start;
use std::collections::{BTreeSet, VecDeque};

/// Interval at which an unanswered request is repeated.
pub const REPEAT: Duration = Duration::from_secs(1);
/// Interval of FTB_JL_ALIVE.
pub const ALIVE: Duration = Duration::from_secs(2);
/// How long a checkpoint by agents waits for ranks in a PMI barrier before it is refused.
pub const BARRIER_PATIENCE: Duration = Duration::from_secs(3);
/// Most queued requests; further ones are refused.
pub const WANTED_MAX: usize = 64;
/// Most numbers of requests that are remembered. The oldest is forgotten: a program repeats its
/// request for the few moments until the first answer.
pub const ASKED_MAX: usize = 1024;
/// Most requests that wait for one node to become a spare; further ones are refused.
pub const USABLE_ASKED_MAX: usize = 16;

/// The reason of a checkpoint that nothing but its interval asks for.
const BY_THE_CLOCK: &str = "it is time";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Jl {
    job: Job,
    open: Option<Open>,
    wanted: VecDeque<QueuedRequest>,
    checkpoint_timer: CheckpointTimer,
    /// Of checkpoints in memory.
    #[serde(default)]
    memory_timer: CheckpointTimer,
    /// Of checkpoints on the disks of the nodes.
    #[serde(default)]
    disk_timer: CheckpointTimer,
    /// Such a checkpoint was due while the job was saved in memory: it is the next.
    #[serde(default)]
    disks_wait: bool,
    #[serde(default)]
    remedies: Remedies,
    #[serde(default)]
    hangs: HangJudge,
    /// Communicators of ranks that go on without dead ones.
    #[serde(default)]
    repairs: Repairs,
    /// Hung ranks that are being killed.
    #[serde(skip)]
    killed: Killed,
    alive_ns: u64,
    ask_ns: u64,
    /// When to ask because events were missed. A delay keeps gaps among the answers from causing
    /// more questions.
    gap_ns: u64,
    /// Faults that cannot be acted on yet.
    #[serde(default)]
    pending: Vec<Pending>,
    /// Requests whose nodes are arriving.
    #[serde(default)]
    adding: Vec<Adding>,
    /// When lost nodes are tried again by a job that waits, in monotonic nanoseconds.
    #[serde(skip)]
    return_ns: Option<u64>,
    /// Until then ranks may still join ftb-job; `None` when all answers are known.
    #[serde(default)]
    join_ns: Option<u64>,
    /// The user was informed that the ranks can be neither saved nor moved.
    #[serde(default, alias = "told_immovable")]
    immovable_reported: bool,
    /// The exit code of a job that is over.
    exit: Option<i32>,
    /// Deadline of a checkpoint that waits for ranks in a PMI barrier, in monotonic nanoseconds.
    #[serde(skip)]
    barrier_until_ns: Option<u64>,
    #[serde(skip)]
    unsaved: Option<Unsaved>,
    #[serde(skip)]
    first_set: FirstSet,
    /// The episode that the last input has opened.
    #[serde(skip)]
    opened: Option<Episode>,
    /// What the recovery that the last input has opened replaces.
    #[serde(skip)]
    before: Option<BeforeRecovery>,
    /// The episode that was taken back because its state could not be saved.
    #[serde(skip)]
    taken_back: Option<TakenBack>,
    /// The first recovery that waits until the state can be saved.
    #[serde(default)]
    recovery: Option<WaitingRecovery>,
    /// After a takeover: nodes that have not reported since. The JL starts no episode before they
    /// do.
    #[serde(skip)]
    unheard: BTreeSet<NodeName>,
    /// Numbers of the last requests, oldest first.
    #[serde(skip)]
    asked: VecDeque<u64>,
}

impl Jl {
    /// A JL with a checked configuration. It starts to act with [`JlInput::Started`].
    pub fn new(config: JlConfig) -> Self {
        Self {
            checkpoint_timer: CheckpointTimer::new(config.interval, config.mtbf),
            memory_timer: CheckpointTimer::new(
                config.memory.as_ref().map_or(Interval::Never, |memory| memory.interval),
                config.mtbf,
            ),
            disk_timer: CheckpointTimer::new(config.disk_interval, config.mtbf),
            disks_wait: false,
            job: Job::new(config),
            remedies: Remedies::default(),
            hangs: HangJudge::default(),
            repairs: Repairs::default(),
            killed: Killed::default(),
            open: None,
            wanted: VecDeque::new(),
            alive_ns: 0,
            ask_ns: 0,
            gap_ns: u64::MAX,
            pending: Vec::new(),
            adding: Vec::new(),
            return_ns: None,
            join_ns: None,
            immovable_reported: false,
            exit: None,
            barrier_until_ns: None,
            unsaved: None,
            first_set: FirstSet::default(),
            opened: None,
            before: None,
            taken_back: None,
            recovery: None,
            unheard: BTreeSet::new(),
            asked: VecDeque::new(),
        }
    }

    /// Continues the numbers of episodes and faults of an earlier run of the job.
    pub fn follow(&mut self, before: &Job) {
        self.job.episode = self.job.episode.max(before.episode);
        self.job.faults.hear(before.faults.newest());
    }

    pub fn job(&self) -> &Job {
        &self.job
    }

    pub fn checkpoint_timer(&self) -> &CheckpointTimer {
        &self.checkpoint_timer
    }

    /// The timer of checkpoints in memory, if there are any.
    pub fn memory_timer(&self) -> Option<&CheckpointTimer> {
        self.job.config.memory.as_ref().map(|_| &self.memory_timer)
    }

    /// The timer of checkpoints on the disks of the nodes, if there are any.
    pub fn disk_timer(&self) -> Option<&CheckpointTimer> {
        self.disk_timer.interval().map(|_| &self.disk_timer)
    }

    /// Hung ranks.
    pub fn hung(&self) -> &[Finding] {
        self.hangs.found()
    }

    pub fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Whether it waits for launch agents; no rank runs yet.
    pub fn gathers(&self) -> bool {
        let open = self.open().map(|open| &open.workflow);
        matches!(open, Some(Workflow::Start(start)) if start.gathers())
    }

    /// Nodes that have not reported since this JL took over.
    pub fn unheard(&self) -> &BTreeSet<NodeName> {
        &self.unheard
    }

    pub fn over(&self) -> bool {
        self.exit.is_some()
    }

    /// When [`JlInput::Tick`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let open = self.open.as_ref();
        let workflow = open.map_or(u64::MAX, |open| open.deadline_ns.min(open.repeat_ns));
        let barrier = self.barrier_until_ns.unwrap_or(u64::MAX);
        let join = self.join_ns.unwrap_or(u64::MAX);
        let clock = self.alive_ns.min(self.ask_ns).min(self.gap_ns).min(join).min(barrier);
        let hangs = self.hangs.next_deadline_ns();
        let saving = self.save_again_ns();
        let timers = self.checkpoint_timer.due_ns().min(self.memory_timer.due_ns());
        let timers = timers.min(self.disk_timer.due_ns()).min(self.first_set_ns());
        workflow.min(clock).min(timers).min(hangs).min(saving).min(self.arrivals_ns())
    }

    pub fn handle(&mut self, now: Now, input: JlInput, out: &mut Vec<JlOutput>) {
        if let Some(code) = self.exit {
            // The earlier JL may have died before it reported the end.
            if matches!(input, JlInput::Adopted) {
                out.push(JlOutput::Exit(code));
            }
            return;
        }
        if let JlInput::Unusable { node, why } = &input
            && self.job.episode == Episode(0)
        {
            // The job has not begun: nothing but its placement may follow.
            self.on_unusable(now, node, why.clone());
            return self.put_out(out);
        }
        let (opened, before) = (self.opened.take(), self.before.take());
        let cannot_save = matches!(input, JlInput::SaveFailed { .. });
        match input {
            JlInput::Started => self.on_started(now),
            JlInput::Adopted => self.on_adopted(now),
            JlInput::Nla(says) => self.on_nla(now, says),
            JlInput::Rank(says) => self.on_rank(now, &says),
            JlInput::Gone { node, reason } => self.on_gone(now, &node, &reason),
            JlInput::Unusable { node, why } => self.on_unusable(now, &node, why),
            JlInput::Request { want, by } => self.want(now, want, by),
            JlInput::Sooner { fault, node, fails_ns } => {
                self.on_sooner(now, fault, &node, fails_ns);
            }
            JlInput::Add { nodes, racks, by } => self.add(now, &nodes, racks, by),
            JlInput::Explained { fault, cause } => return self.explain(fault, cause),
            JlInput::Cancel { faults, reason } => self.cancel(&faults, &reason),
            JlInput::Stored { episode, result } => self.on_stored(now, episode, result),
            JlInput::SaveFailed { why } => self.on_save_failed(now, &why, (opened, before)),
            JlInput::Saved => self.on_saved(now),
            JlInput::Signal(signal) => {
                let episode = self.job.open();
                self.job.publish(FromJl::Signal { episode, signal });
            }
            JlInput::Gap => self.gap_ns = self.gap_ns.min(now.deadline_ns(REPEAT)),
            JlInput::Tick => {}
        }
        self.on_tick(now);
        self.end_wait(now);
        self.look_for_hangs(now);
        self.judge(now);
        self.next_wanted(now);
        self.put_out(out);
        if cannot_save {
            out.retain(|output| *output != JlOutput::Save);
        }
    }

    /// Saves the state once, before every other output: an output must never precede the state that
    /// caused it.
    fn put_out(&mut self, out: &mut Vec<JlOutput>) {
        let all = core::mem::take(&mut self.job.out);
        if all.contains(&JlOutput::Save) {
            out.push(JlOutput::Save);
        }
        out.extend(all.into_iter().filter(|output| *output != JlOutput::Save));
    }

    fn on_started(&mut self, now: Now) {
        self.begin_timers(now);
        self.ask_ns = now.deadline_ns(self.job.ask_every());
        let episode = self.job.open();
        let (start, transition) = Start::first(&mut self.job);
        let by = Initiator::Internal;
        self.begin(now, episode, Workflow::Start(start), by, transition, "the job was submitted");
        self.notify_on_hang();
    }

    fn begin_timers(&mut self, now: Now) {
        self.checkpoint_timer.begin(now);
        self.memory_timer.begin(now);
        self.disk_timer.begin(now);
    }

    /// A rank or a node with ranks has failed.
    fn has_failed(&mut self, now: Now) {
        self.checkpoint_timer.failed(now);
        self.memory_timer.failed(now);
        self.disk_timer.failed(now);
        self.disks_wait = false;
    }

    /// Deadlines of the earlier JL are meaningless on this clock. The open phase gets its full time
    /// again, and its requests are repeated.
    fn on_adopted(&mut self, now: Now) {
        let started =
            self.open.is_some() || self.job.nodes.values().any(|node| node.state.is_some());
        if !started {
            // The earlier JL died before its first step.
            return self.on_started(now);
        }
        self.begin_timers(now);
        self.expect_to_join(now);
        self.alive_ns = 0;
        self.ask_ns = now.deadline_ns(self.job.ask_every());
        for node in self.job.nodes.values_mut() {
            node.silences = 0;
        }
        self.unheard = self.job.alive().into_iter().collect();
        self.wanted.iter_mut().for_each(|waiting| waiting.adopt(now));
        self.release();
        self.job.publish(FromJl::Ask);
        self.tell_usable();
        if let Some(open) = &mut self.open {
            open.phase_ns = now.mono_ns;
            open.deadline_ns = now.deadline_ns(Duration::from_millis(open.phase_deadline_ms));
            open.repeat_ns = now.mono_ns;
        }
        self.with_open(now, |handler, context| handler.on_adopted(context));
        self.adopt_arrivals(now);
        self.recover_at_last(now);
    }

    fn on_tick(&mut self, now: Now) {
        self.save_again(now);
        self.arrivals_tick(now);
        if now.mono_ns >= self.alive_ns {
            self.alive_ns = now.deadline_ns(ALIVE);
            self.job.publish(FromJl::Alive);
            self.repeat_repairs();
        }
        if now.mono_ns >= self.gap_ns {
            self.gap_ns = u64::MAX;
            self.job.publish(FromJl::Ask);
        }
        if now.mono_ns >= self.ask_ns {
            self.ask_ns = now.deadline_ns(self.job.ask_every());
            self.ask(now);
        }
        self.timers_tick(now);
        self.first_set_tick(now);
        let Some(open) = &mut self.open else {
            return;
        };
        if now.mono_ns >= open.deadline_ns {
            // A way back that stays in the phase gets the full time again.
            open.deadline_ns = now.deadline_ns(Duration::from_millis(open.phase_deadline_ms));
            self.with_open(now, |handler, context| handler.on_deadline(context));
        } else if now.mono_ns >= open.repeat_ns {
            open.repeat_ns = now.deadline_ns(REPEAT);
            for request in open.requests.clone() {
                self.job.publish(request);
            }
        }
    }

    /// The job is saved by the clock. Where several levels are due, the store has its turn: the
    /// others come again sooner. Memory bears the loss of nodes and goes before the disks, whose
    /// turn is the next then.
    fn timers_tick(&mut self, now: Now) {
        let (store, memory) = (self.checkpoint_timer.take(now), self.memory_timer.take(now));
        let have_waited = core::mem::take(&mut self.disks_wait);
        let disks = self.disk_timer.take(now) || have_waited;
        if !self.saves_itself() {
            self.disks_wait = disks && self.saves_in_memory();
            return;
        }
        let reason = BY_THE_CLOCK.to_owned();
        let want = if store {
            Request::Checkpoint { reason }
        } else if memory && !have_waited {
            self.disks_wait = disks;
            Request::MemoryCheckpoint { reason }
        } else if disks {
            Request::DiskCheckpoint { reason }
        } else {
            return;
        };
        self.want(now, want, Initiator::Internal);
    }

    /// Repeats that no rank is being saved. Neither FTB_JL_RELEASE nor the end of an episode has an
    /// answer, and a launcher may die before it has published them.
    fn release(&mut self) {
        if self.open.is_none() && self.job.agents_save() {
            let episode = self.job.episode;
            self.job.publish(FromJl::Release { episode });
        }
    }

    /// Asks every NLA. Nodes that missed too many questions are lost.
    ///
    /// It counts questions, not time: a JL that was stopped, or a host that slept, must not declare
    /// nodes lost.
    fn ask(&mut self, now: Now) {
        self.release();
        self.job.publish(FromJl::Ask);
        let every = self.job.ask_every();
        let (mut silent, mut doubted) = (Vec::new(), Vec::new());
        for (name, node) in &mut self.job.nodes {
            if node.state.is_some() && !node.lost {
                node.silences += 1;
                match node.silences {
                    SILENCES_WARN => doubted.push(name.clone()),
                    silences if silences > SILENCES_MAX => silent.push(name.clone()),
                    _ => {}
                }
            }
        }
        let of = |silences: u32| every * silences.saturating_sub(1);
        for node in doubted {
            let (since, rest) = (of(SILENCES_WARN), of(SILENCES_MAX - SILENCES_WARN + 2));
            self.job.tell(format!(
                "the launch agent of node {node} has not answered for {since:?}: its node counts \
                 as lost after {rest:?} more"
            ));
        }
        let ends = self.ends();
        for node in silent {
            // An NLA that left by itself needs no kill; one that hangs does.
            if ends {
                self.job.out.push(JlOutput::KillNla(node.clone()));
            }
            let reason = format!("its launch agent does not answer for {:?}", of(SILENCES_MAX + 1));
            self.on_gone(now, &node, &reason);
        }
        self.tell_usable();
    }

    /// Passes an input to the open workflow and follows its transition.
    fn with_open(
        &mut self,
        now: Now,
        run: impl FnOnce(&mut dyn Handler, &mut Context<'_>) -> Transition,
    ) {
        let Some(open) = &mut self.open else {
            return;
        };
        let before = self.job.out.len();
        let mut context = Context { job: &mut self.job, episode: open.episode };
        let transition = run(open.workflow.handler(), &mut context);
        let name = open.name(&self.job);
        for output in self.job.out.iter_mut().skip(before) {
            if let JlOutput::Notify(words) = output {
                *words = format!("{name}: {words}");
            }
        }
        self.transition(now, transition);
    }

    /// Informs the user about the open episode, if there is one.
    fn tell_of_open(&mut self, words: &str) {
        let name = self.open.as_ref().map(|open| format!("{}: ", open.name(&self.job)));
        self.job.tell(format!("{}{words}", name.unwrap_or_default()));
    }

    fn transition(&mut self, now: Now, transition: Transition) {
        match transition {
            Transition::Stay => {}
            Transition::Next { phase, deadline, requests } => {
                self.enter(now, phase, deadline, requests)
            }
            Transition::Close { done, words } => self.close(now, done, words),
            Transition::Again { words } => self.again(now, words),
            Transition::Died { code, reason } => self.died(now, code, &reason),
            Transition::Restart { code, reason } => self.recover(now, code, &reason),
            Transition::Overdue { reason } => self.overdue(now, &reason),
            Transition::Wait { node } => self.wait_for_nodes(now, &node),
            Transition::Lost(nodes) => {
                for node in nodes {
                    self.on_gone(now, &node, "its launch agent did not answer in time");
                }
            }
            Transition::End { code, words } => self.end(now, code, &words),
        }
    }

    fn begin(
        &mut self,
        now: Now,
        episode: Episode,
        workflow: Workflow,
        by: Initiator,
        transition: Transition,
        why: &str,
    ) {
        self.opened = Some(episode);
        self.open = Some(Open::new(episode, workflow, by, why));
        self.transition(now, transition);
    }

    fn enter(&mut self, now: Now, phase: &str, deadline: Duration, requests: Vec<FromJl>) {
        let Some(open) = &mut self.open else {
            return;
        };
        open.leave_phase(now.mono_ns);
        open.phase = phase.to_owned();
        open.phase_ns = now.mono_ns;
        open.phase_deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        open.deadline_ns = now.deadline_ns(deadline);
        open.repeat_ns = if requests.is_empty() { u64::MAX } else { now.deadline_ns(REPEAT) };
        open.requests.clone_from(&requests);
        self.job.out.push(JlOutput::Save);
        for request in requests {
            self.job.publish(request);
        }
    }

    /// Closes the open episode. Later messages of it are refused.
    fn close(&mut self, now: Now, done: bool, words: String) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.leave_phase(now.mono_ns);
        let episode = open.episode;
        self.drop_images(&open, done);
        if let Workflow::Migration(migration) = &open.workflow
            && migration.found_no_spare()
            && open.by.fault().is_some()
        {
            let node = migration.source().clone();
            self.keep_pending(Pending {
                tried: migration.tried().to_vec(),
                fails_wall_ns: open.fails_wall_ns,
                ..Pending::new(node, open.reason.clone(), open.by)
            });
        }
        // A fault that closes forgets its cause.
        let (name, fault) = (open.name(&self.job), open.fault());
        let cause = fault.and_then(|fault| self.job.faults.cause(fault)).cloned();
        self.settle_closed(now, &open, done, &words);
        let has_started = matches!(open.workflow, Workflow::Start(_));
        if has_started {
            self.expect_to_join(now);
        }
        match &open.workflow {
            Workflow::Checkpoint(of) if done => self.has_saved(now, of.set(), &open),
            Workflow::Migration(_) if done => self.remedies.has_moved(open.took()),
            _ => {}
        }
        let phases = open.phases_text();
        // Checkpoints on the nodes may follow each other every few seconds.
        let on_nodes = matches!(&open.workflow, Workflow::Checkpoint(of) if of.set().is_on_nodes());
        if !(done && on_nodes && open.why == BY_THE_CLOCK) {
            self.job.tell(format!("{name}: {words} [{phases}]"));
        }
        self.job.out.push(JlOutput::Save);
        self.job.publish(FromJl::Closed(Closed {
            episode,
            kind: open.workflow.kind().to_owned(),
            done,
            words,
            phases,
            fault,
            cause,
            choice: open.workflow.choice(),
            why: open.why,
            left: open.left,
        }));
        // The source of a migration may be usable again.
        self.tell_usable();
        self.expect_protection(now);
        if has_started && done {
            self.on_started_well(now);
        }
        if let Workflow::End(end) = &open.workflow {
            self.exit = Some(end.code());
            self.job.out.push(JlOutput::Exit(end.code()));
        }
    }

    /// A checkpoint is done: what it took counts for the next ones.
    fn has_saved(&mut self, now: Now, set: &SetId, open: &Open) {
        let place = SavePlace::of(set);
        let timer = match place {
            SavePlace::Memory => &mut self.memory_timer,
            SavePlace::Disks => &mut self.disk_timer,
            SavePlace::Store => &mut self.checkpoint_timer,
        };
        self.remedies.has_saved(place, open.took());
        timer.saved(now, open.stood_still(), open.took());
    }

    /// Answers the request; closes the fault unless it waits for a spare.
    fn settle(&mut self, by: Initiator, outcome: Outcome, words: &str) {
        self.reply(by, outcome, words);
        if let Some(fault) = by.fault().filter(|_| !self.is_pending(by)) {
            self.job.faults.close(fault);
        }
    }

    fn reply(&mut self, by: Initiator, outcome: Outcome, words: &str) {
        if let Some(request) = by.request() {
            let answer = Answer { request, outcome, words: words.to_owned() };
            self.job.out.push(JlOutput::Answer(answer));
        }
    }

    /// Ends the job; the open episode is closed as failed.
    fn end(&mut self, now: Now, code: i32, words: &str) {
        if self.ends() {
            return;
        }
        self.job.tell(format!("the job ends: {words}"));
        self.close(now, false, format!("the job ends: {words}"));
        for waiting in core::mem::take(&mut self.wanted) {
            self.settle(waiting.by, Outcome::Refused, "the job ends");
        }
        for pending in core::mem::take(&mut self.pending) {
            self.settle(pending.by, Outcome::Refused, "the job ends");
        }
        self.refuse_adding();
        let episode = self.job.open();
        let (end, transition) = End::open(&self.job, episode, code, words);
        self.begin(now, episode, Workflow::End(end), Initiator::Internal, transition, words);
    }
}
