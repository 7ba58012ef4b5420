//! The job launcher as a pure state machine: what nodes, ranks, the policy and people say goes in; requests,
//! answers, state to be saved and words for the user come out.
//!
//! One episode is open at a time, since each of them needs all ranks: others wait in a bounded queue, at most one
//! for a node. Each phase of an episode has a deadline and a way back (the table in `docs/launcher.md`). What
//! the JL asks, it asks again each second until it is answered; what it hears is counted by who said it, never
//! by how often. The whole state can be saved before each step ([`Output::Save`]) and taken over by
//! another JL ([`Input::Adopted`]).

mod checkpoint;
mod end;
mod episode;
mod faults;
mod fence;
mod hear;
mod job;
mod joined;
mod migration;
mod pace;
mod pending;
mod rollback;
mod start;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
mod wants;

pub use episode::{Open, Progress, Remedy};
pub use faults::{By, Faults};
pub use job::{Deadlines, JlConfig, Job, Node, OnDeath, Rank};
pub use joined::JOIN_GRACE;
pub use pace::{Interval, MTBF, Pace, PaceView, Source};
pub use pending::Pending;

use crate::message::{Answer, Closed, FromJl, NlaSays, Outcome, RankSays, Request};
use crate::names::{Episode, FaultId, NodeName, Ranks, SetId};
use crate::nla::MigrationState;
use checkpoint::Checkpoint;
use core::time::Duration;
use end::End;
use episode::{At, Flow, Steps};
use ftb_core::Now;
use job::{SILENCES_MAX, SILENCES_TOLD};
use migration::Migration;
use rollback::Rollback;
use serde::{Deserialize, Serialize};
use start::Start;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often an unanswered request is repeated.
pub const REPEAT: Duration = Duration::from_secs(1);
/// How often the JL shows that it is there.
pub const ALIVE: Duration = Duration::from_secs(2);
/// How long a checkpoint waits for ranks in a PMI fence, in which agents cannot save them; then it is refused.
pub const FENCE_PATIENCE: Duration = Duration::from_secs(3);
/// Most remedies that wait for their turn: beyond, a request is refused.
pub const WANTED_MAX: usize = 64;
/// Most requests that wait for one node to become a spare: beyond, a request is refused.
pub const USABLE_ASKED_MAX: usize = 16;

/// What happens to a JL.
#[derive(Clone, Debug)]
pub enum Input {
    /// Its subscriptions are active and its image server listens there.
    Started {
        /// `host:port`.
        store: String,
    },
    /// The same, for a JL that has taken over the state of another.
    Adopted {
        /// `host:port`.
        store: String,
    },
    /// An NLA speaks.
    Nla(NlaSays),
    /// A rank speaks.
    Rank(RankSays),
    /// The NLA or its node is gone for good.
    Gone {
        /// Which.
        node: NodeName,
        /// How that is known.
        reason: String,
    },
    /// The policy, or a person, wants something.
    Want {
        /// What.
        want: Want,
        /// Who.
        by: By,
    },
    /// The policy has found that something else is to be done about these faults: what still waits for its turn because
    /// of them is called off.
    CallOff {
        /// Which.
        faults: BTreeSet<FaultId>,
        /// What is to be done instead.
        reason: String,
    },
    /// A set is in the store, or could not be brought there.
    Stored {
        /// Of which episode.
        episode: Episode,
        /// Its bytes.
        result: Result<u64, String>,
    },
    /// Forward a signal to all ranks.
    Signal(i32),
    /// Events were missed: ask everybody.
    Gap,
    /// A deadline may have passed.
    Tick,
}

/// Something that the policy or a person wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// Move the ranks away from that node.
    Migrate {
        /// Which.
        node: NodeName,
        /// Why.
        reason: String,
    },
    /// The same, or where it has none: it gets none.
    Drain {
        /// Which.
        node: NodeName,
        /// Why.
        reason: String,
    },
    /// Save the job.
    Checkpoint {
        /// Why.
        reason: String,
    },
    /// The node may be used again.
    Usable {
        /// Which.
        node: NodeName,
    },
    /// End the job.
    Kill {
        /// With this exit code.
        code: i32,
        /// Why.
        reason: String,
    },
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write the state to disk ([`Jl`] is serialisable), fsynced, before anything that follows.
    Save,
    /// Publish.
    Publish(FromJl),
    /// Fetch these images into the store, verify them and commit the set; answered by [`Input::Stored`].
    Store {
        /// The checkpoint.
        episode: Episode,
        /// The set.
        set: SetId,
        /// Image server and ranks of each node.
        from: BTreeMap<NodeName, (String, Ranks)>,
    },
    /// Delete a set from the store.
    DropStored(SetId),
    /// Kill that NLA by force, where the shell can.
    KillNla(NodeName),
    /// Answer a request.
    Answer(Answer),
    /// A line for the user.
    Tell(String),
    /// The job is over: exit with this code.
    Exit(i32),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    want: Want,
    by: By,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Jl {
    job: Job,
    open: Option<Open>,
    wanted: VecDeque<Waiting>,
    pace: Pace,
    alive_ns: u64,
    ask_ns: u64,
    /// When to ask because events were missed: not at once, or gaps among the answers would breed questions.
    gap_ns: u64,
    /// Faults that cannot be acted on yet.
    #[serde(default)]
    pending: Vec<Pending>,
    /// Until then the ranks may still join ftb-job; none when it is known who has.
    #[serde(default)]
    join_ns: Option<u64>,
    /// It was told that the ranks can neither be saved nor moved.
    #[serde(default)]
    told_immovable: bool,
    /// The exit code of a job that is over.
    exit: Option<i32>,
    /// Until when the next checkpoint waits for ranks in a PMI fence, in monotonic nanoseconds.
    #[serde(skip)]
    fence_until_ns: Option<u64>,
    /// Of a JL that has taken over: nodes that have said nothing since, and may be in another state by now. It begins
    /// nothing new before.
    #[serde(skip)]
    unheard: BTreeSet<NodeName>,
}

impl Jl {
    /// A JL with a checked configuration; it acts from [`Input::Started`] on.
    pub fn new(config: JlConfig) -> Self {
        Self {
            pace: Pace::new(config.interval, config.mtbf),
            job: Job::new(config),
            open: None,
            wanted: VecDeque::new(),
            alive_ns: 0,
            ask_ns: 0,
            gap_ns: u64::MAX,
            pending: Vec::new(),
            join_ns: None,
            told_immovable: false,
            exit: None,
            fence_until_ns: None,
            unheard: BTreeSet::new(),
        }
    }

    /// The job was run before: episodes and faults of this run come behind those.
    pub fn follow(&mut self, before: &Job) {
        self.job.episode = self.job.episode.max(before.episode);
        self.job.faults.hear(before.faults.newest());
    }

    /// What it knows.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// When it saves the job by itself.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// What it is at.
    pub fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Whether it waits for launch agents to come up: nothing of the job runs yet.
    pub fn gathers(&self) -> bool {
        matches!(self.open(), Some(Open { remedy: Remedy::Start(start), .. }) if start.gathers())
    }

    /// Nodes that have said nothing since this JL took over.
    pub fn unheard(&self) -> &BTreeSet<NodeName> {
        &self.unheard
    }

    /// Whether the job is over.
    pub fn over(&self) -> bool {
        self.exit.is_some()
    }

    /// The next moment at which [`Input::Tick`] is wanted, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let open = self.open.as_ref();
        let remedy = open.map_or(u64::MAX, |open| open.deadline_ns.min(open.repeat_ns));
        let fence = self.fence_until_ns.unwrap_or(u64::MAX);
        let join = self.join_ns.unwrap_or(u64::MAX);
        let clock = self.alive_ns.min(self.ask_ns).min(self.gap_ns).min(join).min(fence);
        remedy.min(clock).min(self.pace.due_ns())
    }

    /// One input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if let Some(code) = self.exit {
            // The JL before this one may have died before it could say so.
            if matches!(input, Input::Adopted { .. }) {
                out.push(Output::Exit(code));
            }
            return;
        }
        match input {
            Input::Started { store } => self.started(now, store),
            Input::Adopted { store } => self.adopted(now, store),
            Input::Nla(says) => self.on_nla(now, says),
            Input::Rank(says) => self.on_rank(now, &says),
            Input::Gone { node, reason } => self.lost(now, &node, &reason),
            Input::Want { want, by } => self.want(now, want, by),
            Input::CallOff { faults, reason } => self.call_off(&faults, &reason),
            Input::Stored { episode, result } => self.stored(now, episode, result),
            Input::Signal(signal) => {
                let episode = self.job.open();
                self.job.publish(FromJl::Signal { episode, signal });
            }
            Input::Gap => self.gap_ns = self.gap_ns.min(now.deadline_ns(REPEAT)),
            Input::Tick => {}
        }
        self.tick(now);
        self.judge(now);
        self.next_wanted(now);
        self.put_out(out);
    }

    /// The state is saved once, as it is now, and before anything else: what is deleted or asked for because of it may not
    /// come true for a JL that takes over an older one.
    fn put_out(&mut self, out: &mut Vec<Output>) {
        let all = core::mem::take(&mut self.job.out);
        if all.contains(&Output::Save) {
            out.push(Output::Save);
        }
        out.extend(all.into_iter().filter(|output| *output != Output::Save));
    }

    fn started(&mut self, now: Now, store: String) {
        self.job.store = store;
        self.pace.begin(now);
        self.ask_ns = now.deadline_ns(self.job.ask_every());
        let episode = self.job.open();
        let (start, flow) = Start::first(&mut self.job);
        self.begin(now, episode, Remedy::Start(start), By::Nobody, flow);
    }

    /// The deadlines of before mean nothing on this clock: the open phase gets its full time again, and its
    /// requests are repeated; who has done them already says so.
    fn adopted(&mut self, now: Now, store: String) {
        let begun = self.open.is_some() || self.job.nodes.values().any(|node| node.state.is_some());
        if !begun {
            // The JL before this one has died before its first step.
            return self.started(now, store);
        }
        self.job.store = store;
        self.pace.begin(now);
        self.expect_to_join(now);
        self.alive_ns = 0;
        self.ask_ns = now.deadline_ns(self.job.ask_every());
        for node in self.job.nodes.values_mut() {
            node.silences = 0;
        }
        self.unheard = self.job.alive().into_iter().collect();
        self.job.publish(FromJl::Ask);
        self.tell_usable();
        if let Some(open) = &mut self.open {
            open.phase_ns = now.mono_ns;
            open.deadline_ns = now.deadline_ns(Duration::from_millis(open.phase_deadline_ms));
            open.repeat_ns = now.mono_ns;
        }
        self.with_open(now, |steps, at| steps.on_adopted(at));
    }

    fn tick(&mut self, now: Now) {
        if now.mono_ns >= self.alive_ns {
            self.alive_ns = now.deadline_ns(ALIVE);
            self.job.publish(FromJl::Alive);
        }
        if now.mono_ns >= self.gap_ns {
            self.gap_ns = u64::MAX;
            self.job.publish(FromJl::Ask);
        }
        if now.mono_ns >= self.ask_ns {
            self.ask_ns = now.deadline_ns(self.job.ask_every());
            self.ask(now);
        }
        if self.pace.take(now) && self.saves_itself() {
            let reason = "it is time".to_owned();
            self.want(now, Want::Checkpoint { reason }, By::Nobody);
        }
        let Some(open) = &mut self.open else {
            return;
        };
        if now.mono_ns >= open.deadline_ns {
            // Should the way back leave the phase as it is, its time runs anew.
            open.deadline_ns = now.deadline_ns(Duration::from_millis(open.phase_deadline_ms));
            self.with_open(now, |steps, at| steps.on_deadline(at));
        } else if now.mono_ns >= open.repeat_ns {
            open.repeat_ns = now.deadline_ns(REPEAT);
            for request in open.requests.clone() {
                self.job.publish(request);
            }
        }
    }

    /// Asks every NLA; those that were silent too often are lost. Nodes that became usable are told.
    ///
    /// Questions are counted, not time: a JL that was stopped itself, or a machine that has slept, condemns nobody.
    fn ask(&mut self, now: Now) {
        self.job.publish(FromJl::Ask);
        let every = self.job.ask_every();
        let (mut silent, mut doubted) = (Vec::new(), Vec::new());
        for (name, node) in &mut self.job.nodes {
            if node.state.is_some() && !node.lost {
                node.silences += 1;
                match node.silences {
                    SILENCES_TOLD => doubted.push(name.clone()),
                    silences if silences > SILENCES_MAX => silent.push(name.clone()),
                    _ => {}
                }
            }
        }
        let of = |silences: u32| every * silences.saturating_sub(1);
        for node in doubted {
            let (since, rest) = (of(SILENCES_TOLD), of(SILENCES_MAX - SILENCES_TOLD + 2));
            self.job.tell(format!(
                "the launch agent of node {node} has not answered for {since:?}: its node counts as lost after {rest:?} more"
            ));
        }
        let ends = self.ends();
        for node in silent {
            // Whoever has left by itself needs that not; one that hangs would stay.
            if ends {
                self.job.out.push(Output::KillNla(node.clone()));
            }
            let reason = format!("its launch agent does not answer for {:?}", of(SILENCES_MAX + 1));
            self.lost(now, &node, &reason);
        }
        self.tell_usable();
    }

    /// Runs the open remedy on something, then does what it wants.
    fn with_open(&mut self, now: Now, run: impl FnOnce(&mut dyn Steps, &mut At<'_>) -> Flow) {
        let Some(open) = &mut self.open else {
            return;
        };
        let mut at = At { job: &mut self.job, episode: open.episode };
        let flow = run(open.remedy.steps(), &mut at);
        self.flow(now, flow);
    }

    fn flow(&mut self, now: Now, flow: Flow) {
        match flow {
            Flow::Stay => {}
            Flow::Next { phase, deadline, requests } => self.enter(now, phase, deadline, requests),
            Flow::Close { done, words } => self.close(now, done, words),
            Flow::Again { words } => self.again(now, words),
            Flow::Died { code, reason } => self.died(now, code, &reason),
            Flow::Restart { code, reason } => self.recover(now, code, &reason),
            Flow::Overdue { reason } => self.overdue(now, &reason),
            Flow::Lost(nodes) => {
                for node in nodes {
                    self.lost(now, &node, "its launch agent did not answer in time");
                }
            }
            Flow::End { code, words } => self.end(now, code, &words),
        }
    }

    fn begin(&mut self, now: Now, episode: Episode, remedy: Remedy, by: By, flow: Flow) {
        self.open = Some(Open::new(episode, remedy, by));
        self.flow(now, flow);
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
        self.job.out.push(Output::Save);
        for request in requests {
            self.job.publish(request);
        }
    }

    /// Closes the open episode: from now on whatever comes of it is late.
    fn close(&mut self, now: Now, done: bool, words: String) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.leave_phase(now.mono_ns);
        let episode = open.episode;
        let served = match &open.remedy {
            Remedy::Migration(migration) => Some(migration.set()),
            Remedy::Checkpoint(checkpoint) if !done => Some(checkpoint.set()),
            _ => None,
        };
        if let Some(set) = served.cloned() {
            self.job.publish(FromJl::Drop { episode, set });
        }
        let outcome = if done { Outcome::Done } else { Outcome::Failed };
        if let Remedy::Migration(migration) = &open.remedy
            && migration.found_no_spare()
            && open.by.fault().is_some()
        {
            let (node, tried) = (migration.source().clone(), migration.tried().to_vec());
            self.keep_pending(node, open.reason.clone(), open.by, tried);
        }
        self.settle(open.by, outcome, &words);
        if matches!(open.remedy, Remedy::Start(_)) {
            self.expect_to_join(now);
        }
        if let (Remedy::Checkpoint(_), true) = (&open.remedy, done) {
            let (cost, took) = open.checkpoint_took();
            self.pace.saved(now, cost, took);
        }
        let phases = open.phases_text();
        let fault = open.by.words();
        self.job.tell(format!("{} {episode}{fault}: {words} [{phases}]", open.remedy.kind()));
        self.job.out.push(Output::Save);
        self.job.publish(FromJl::Closed(Closed {
            episode,
            kind: open.remedy.kind().to_owned(),
            done,
            words,
            phases,
            fault: open.by.fault(),
        }));
        // The source of a migration may be well again by now.
        self.tell_usable();
        if let Remedy::End(end) = &open.remedy {
            self.exit = Some(end.code());
            self.job.out.push(Output::Exit(end.code()));
        }
    }

    /// It is settled what becomes of something that was wanted: a person is told, a fault is closed
    /// unless it waits for a spare.
    fn settle(&mut self, by: By, outcome: Outcome, words: &str) {
        self.reply(by, outcome, words);
        if let Some(fault) = by.fault().filter(|_| !self.is_pending(by)) {
            self.job.faults.close(fault);
        }
    }

    fn reply(&mut self, by: By, outcome: Outcome, words: &str) {
        if let Some(request) = by.request() {
            let answer = Answer { request, outcome, words: words.to_owned() };
            self.job.out.push(Output::Answer(answer));
        }
    }

    /// Ends the job: whatever is open is given up.
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
        let episode = self.job.open();
        let (end, flow) = End::open(&self.job, episode, code, words);
        self.begin(now, episode, Remedy::End(end), By::Nobody, flow);
    }

    /// The job starts again from its last set, because it is to be elsewhere.
    fn again(&mut self, now: Now, words: String) {
        self.close(now, true, words.clone());
        let Some(set) = self.job.sets.last().cloned() else {
            return;
        };
        let episode = self.job.open();
        let (start, flow) = Start::again(&mut self.job, episode, set, &words);
        self.begin(now, episode, Remedy::Start(start), By::Nobody, flow);
    }

    /// A rank has died, or a node with its ranks: what was open is over, and the policy says what follows.
    fn died(&mut self, now: Now, code: i32, reason: &str) {
        match self.job.config.on_death {
            OnDeath::Rollback | OnDeath::Restart | OnDeath::Shrink => {
                self.recover(now, code, reason)
            }
            OnDeath::Stop => self.end(now, code, reason),
        }
    }

    /// Ranks have not reacted in time. They may only be slow, so that never ends the job: it goes
    /// back to its last set where there is one and recoveries are left, else it is waited for them.
    fn overdue(&mut self, now: Now, reason: &str) {
        let counts =
            !matches!(&self.open, Some(open) if matches!(open.remedy, Remedy::Rollback(_)));
        let spent = counts && self.job.restarts >= self.job.config.restarts_max;
        if self.job.sets.is_empty() || spent {
            self.job.tell(format!("{reason}: the launcher waits for them"));
            return;
        }
        self.recover(now, 1, reason);
    }

    /// Recovers the job from its last set, in place where that can be. Without a set, or without progress since too
    /// many recoveries, it ends; its sets stay in the store.
    fn recover(&mut self, now: Now, code: i32, reason: &str) {
        let Some(set) = self.job.sets.last().cloned() else {
            self.end(now, code, &format!("{reason}; there is no set to restart from"));
            return;
        };
        let (settled, again) = match self.open.as_ref().map(|open| &open.remedy) {
            // While ranks are coming or going nobody knows where each of them is.
            None | Some(Remedy::Checkpoint(_)) => (true, false),
            Some(Remedy::Rollback(rollback)) if rollback.has_met() => (true, false),
            // A restart because going back in place has failed belongs to the same attempt.
            Some(Remedy::Rollback(_)) => (false, true),
            Some(Remedy::Start(_) | Remedy::Migration(_) | Remedy::End(_)) => (false, false),
        };
        if !again && self.job.restarts >= self.job.config.restarts_max {
            let restarts = self.job.restarts;
            let words = format!("{reason}; {restarts} recoveries without a new set in between");
            self.end(now, code, &words);
            return;
        }
        self.job.restarts += u32::from(!again);
        self.close(now, false, reason.to_owned());
        let episode = self.job.open();
        if settled && self.job.keeps_images() {
            match Rollback::open(&mut self.job, episode, set.clone()) {
                Ok((rollback, flow)) => {
                    self.job.tell(format!("{reason}: the job goes back to set {set} in place"));
                    return self.begin(now, episode, Remedy::Rollback(rollback), By::Nobody, flow);
                }
                Err(why) => self.job.tell(format!("the job cannot go back in place: {why}")),
            }
        }
        self.job.tell(format!("{reason}: the job restarts from set {set}"));
        let (start, flow) = Start::again(&mut self.job, episode, set, reason);
        self.begin(now, episode, Remedy::Start(start), By::Nobody, flow);
    }
}
