//! The requests of the JL, and the memory that answers duplicates.

use super::saving::Restoring;
use super::{ArmedMigration, Cause, Ending, MigrationState, Nla, NlaOutput, ProcessState, SIGKILL};
use crate::message::{Closed, ExitCause, FromJl, FromNla, Ipt, Launch};
use crate::names::{Episode, NodeName, Ranks, SetId};
use ftb_core::Now;

/// The last answer to each kind of request with its episode; at most six.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    launch: Option<(Episode, FromNla)>,
    migrate: Option<(Episode, FromNla)>,
    /// `None` while the copy runs.
    copy: Option<(Episode, Option<FromNla>)>,
    copying: Option<(SetId, Ranks)>,
    /// `None` while parity or copies are made.
    pub(super) protect: Option<(Episode, SetId, Option<FromNla>)>,
    ipt: Option<(Episode, u64, FromNla)>,
    reset: Option<(Episode, FromNla)>,
}

impl Answers {
    /// After a failed start a repeated request starts again.
    pub(super) fn forget_starts(&mut self) {
        self.launch = None;
        self.ipt = None;
    }

    pub(super) fn keep_launch(&mut self, episode: Episode, answer: FromNla) {
        self.launch = Some((episode, answer));
    }

    pub(super) fn keep_ipt(&mut self, episode: Episode, incarnation: u64, answer: FromNla) {
        self.ipt = Some((episode, incarnation, answer));
    }

    pub(super) fn keep_migrate(&mut self, episode: Episode, answer: FromNla) {
        self.migrate = Some((episode, answer));
    }

    pub(super) fn keep_reset(&mut self, episode: Episode, answer: FromNla) {
        self.reset = Some((episode, answer));
    }
}

fn again(known: Option<&(Episode, FromNla)>, episode: Episode) -> Option<NlaOutput> {
    let (_, answer) = known.filter(|(known, _)| *known == episode)?;
    Some(NlaOutput::Publish(answer.clone()))
}

impl Nla {
    /// Whether an action of `episode` is current. A newer episode replaces the present one.
    pub(super) fn admit(&mut self, episode: Episode) -> bool {
        if episode < self.episode {
            self.refused.stale += 1;
            return false;
        }
        self.episode = episode;
        true
    }

    pub(super) fn on_jl(&mut self, now: Now, message: FromJl, out: &mut Vec<NlaOutput>) {
        match message {
            FromJl::Launch(launch) => self.on_launch(now, &launch, out),
            FromJl::Migrate { episode, source, set, ranks } => {
                self.on_migrate(episode, &source, set, ranks, out);
                self.save_armed(now, out);
            }
            FromJl::MigrateAbort { episode, source, .. } => self.on_abort(episode, &source, out),
            FromJl::Copy { episode, from, target, set, ranks } if target == self.config.node => {
                self.on_copy(episode, from, set, ranks, out)
            }
            FromJl::MigrateIpt(ipt) if ipt.target == self.config.node => {
                self.on_ipt(now, &ipt, out)
            }
            FromJl::Protect(task) if task.target == self.config.node => self.on_protect(task, out),
            FromJl::Gather(task) if task.target == self.config.node => self.on_gather(task, out),
            FromJl::Pmi { part, .. } => self.on_barrier_result(now, part, out),
            FromJl::Reset { episode, barrier, .. } => self.on_reset(now, episode, barrier, out),
            // The ranks receive it themselves.
            FromJl::Rollback { episode, .. } => {
                self.admit(episode);
            }
            FromJl::Usable { episode, target } if target == self.config.node => {
                self.go(episode, Cause::Usable, out);
            }
            FromJl::Evict { episode, target } if target == self.config.node => {
                self.end(now, episode, out);
                self.signal_all(SIGKILL, out);
            }
            FromJl::Prepare { episode, set } => self.on_prepare(now, episode, set, out),
            FromJl::Release { episode } | FromJl::Closed(Closed { episode, .. }) => {
                self.on_release(episode, out)
            }
            FromJl::Checkpoint { episode, set, loop_id } => {
                self.on_checkpoint(now, episode, (set, loop_id), out);
            }
            FromJl::Drop { set, .. } => out.push(NlaOutput::DropSet(set)),
            FromJl::Signal { episode, signal } => {
                if episode > self.signal_episode {
                    self.signal_episode = episode;
                    self.signal_all(signal, out);
                }
            }
            FromJl::Kill { episode, .. } => {
                if !self.ending.as_ref().is_some_and(|ending| ending.leave) {
                    self.end(now, episode, out);
                }
            }
            FromJl::Hang(notice) => self.on_hang(notice, out),
            FromJl::Ask => self.on_ask(now, out),
            FromJl::Copy { .. }
            | FromJl::MigrateIpt(_)
            | FromJl::Protect(_)
            | FromJl::Gather(_)
            | FromJl::Usable { .. }
            | FromJl::Evict { .. }
            | FromJl::Waiting(_)
            | FromJl::Repair { .. }
            | FromJl::Alive => {}
        }
    }

    fn on_ask(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        out.push(self.ready());
        for (rank, process) in &self.processes {
            if let ProcessState::Ended(how) = process.life {
                out.push(NlaOutput::Publish(FromNla::Exited {
                    episode: self.episode,
                    rank: *rank,
                    incarnation: process.incarnation,
                    how,
                }));
            }
        }
        if self.barrier_repeat_ns.is_some() {
            self.enter_barrier(now, out);
        }
    }

    fn on_launch(&mut self, now: Now, launch: &Launch, out: &mut Vec<NlaOutput>) {
        if let Some(output) = again(self.answers.launch.as_ref(), launch.episode) {
            out.push(output);
            return;
        }
        if !self.admit(launch.episode) || self.ending.is_some() {
            return;
        }
        if self.restores_still((launch.episode, launch.incarnation), out) {
            return;
        }
        let none = Ranks::default();
        let ranks = launch.placement.get(&self.config.node).unwrap_or(&none);
        let cause = if ranks.is_empty() { Cause::LaunchedElsewhere } else { Cause::LaunchedHere };
        if !self.go(launch.episode, cause, out) {
            return;
        }
        self.processes.clear();
        self.new_space(launch.size, &launch.placement, launch.barrier);
        (self.size, self.set_size) = (launch.size, launch.set_size);
        let (episode, incarnation) = (launch.episode, launch.incarnation);
        self.start(now, (episode, incarnation), ranks, launch.set.as_ref(), out);
        let answer = FromNla::Launched { episode, incarnation, ranks: ranks.clone() };
        let restored = launch.set.is_some() && self.restores();
        self.answer_start((episode, incarnation), ranks, answer, restored, out);
    }

    fn on_migrate(
        &mut self,
        episode: Episode,
        source: &NodeName,
        set: SetId,
        ranks: Ranks,
        out: &mut Vec<NlaOutput>,
    ) {
        if *source != self.config.node {
            self.admit(episode);
            return;
        }
        if let Some(output) = again(self.answers.migrate.as_ref(), episode) {
            out.push(output);
            return;
        }
        let known = self.armed.as_ref().is_some_and(|a| a.episode == episode);
        if known || !self.admit(episode) || !self.go(episode, Cause::MigrateFromHere, out) {
            return;
        }
        self.armed = Some(ArmedMigration { episode, set, ranks });
        self.check_left(out);
    }

    fn on_abort(&mut self, episode: Episode, source: &NodeName, out: &mut Vec<NlaOutput>) {
        let armed = self.armed.as_ref().is_some_and(|a| a.episode == episode);
        if *source != self.config.node || episode != self.episode || !armed {
            self.refused.stale += u64::from(*source == self.config.node);
            return;
        }
        match self.state {
            MigrationState::Arm if self.agent_saves() => self.abort_save(episode, out),
            MigrationState::Arm => {
                self.go(episode, Cause::Aborted, out);
            }
            MigrationState::Inactive => {
                out.extend(again(self.answers.migrate.as_ref(), episode));
            }
            MigrationState::Ready | MigrationState::Spare => {}
        }
    }

    fn on_copy(
        &mut self,
        episode: Episode,
        from: Option<NodeName>,
        set: SetId,
        ranks: Ranks,
        out: &mut Vec<NlaOutput>,
    ) {
        if self.begins_copy(episode, &set, &ranks, out) {
            out.push(NlaOutput::Copy { episode, from, set, ranks });
        }
    }

    /// Whether a copy is to begin; a repeated request is answered.
    pub(super) fn begins_copy(
        &mut self,
        episode: Episode,
        set: &SetId,
        ranks: &Ranks,
        out: &mut Vec<NlaOutput>,
    ) -> bool {
        if let Some((known, answer)) = &self.answers.copy
            && *known == episode
        {
            match answer {
                // One at a time: the JL repeats the other request.
                None => return false,
                Some(FromNla::Copied { set: of, ranks: had, .. }) if of == set && had == ranks => {
                    out.extend(answer.clone().map(NlaOutput::Publish));
                    return false;
                }
                Some(_) => {}
            }
        }
        if !self.admit(episode) {
            return false;
        }
        self.answers.copy = Some((episode, None));
        self.answers.copying = Some((set.clone(), ranks.clone()));
        true
    }

    pub(super) fn on_copy_ended(
        &mut self,
        episode: Episode,
        result: Result<u64, String>,
        out: &mut Vec<NlaOutput>,
    ) {
        let known = matches!(&self.answers.copy, Some((known, None)) if *known == episode);
        let (true, Some((set, ranks))) = (known, self.answers.copying.take()) else {
            return;
        };
        let answer = match result {
            Ok(bytes) => FromNla::Copied { episode, set, ranks, bytes },
            Err(reason) => FromNla::CopyFailed { episode, set, ranks, reason },
        };
        self.answers.copy = Some((episode, Some(answer.clone())));
        out.push(NlaOutput::Publish(answer));
    }

    fn on_ipt(&mut self, now: Now, ipt: &Ipt, out: &mut Vec<NlaOutput>) {
        if let Some((episode, incarnation, answer)) = &self.answers.ipt
            && *episode == ipt.episode
            && *incarnation == ipt.incarnation
        {
            out.push(NlaOutput::Publish(answer.clone()));
            return;
        }
        if !self.admit(ipt.episode) || self.ending.is_some() {
            return;
        }
        if self.restores_still((ipt.episode, ipt.incarnation), out) {
            return;
        }
        let running = self.running();
        if ipt.ranks.iter().any(|rank| running.has(rank)) {
            out.push(NlaOutput::Note(format!(
                "episode {}: asked to start ranks that run here: refused",
                ipt.episode
            )));
            self.refused.state += 1;
            return;
        }
        // Ranks wait for the result of a barrier that is complete. It travels on another path than
        // this request, and would not reach them any more: they get it first, on their report. The
        // JL repeats the request.
        if ipt.barrier > self.barrier && !self.pmi.arrived().is_empty() {
            return self.enter_barrier(now, out);
        }
        if !self.go(ipt.episode, Cause::StartHere, out) {
            return;
        }
        self.barrier = self.barrier.max(ipt.barrier);
        // These images are of the present number of ranks.
        self.set_size = None;
        let start = (ipt.episode, ipt.incarnation);
        self.start(now, start, &ipt.ranks, Some(&ipt.set), out);
        let answer = FromNla::Restarted {
            episode: ipt.episode,
            incarnation: ipt.incarnation,
            ranks: ipt.ranks.clone(),
        };
        let restored = self.restores();
        self.answer_start(start, &ipt.ranks, answer, restored, out);
    }

    /// Restored ranks run when the shell says so: the answer waits for that.
    fn answer_start(
        &mut self,
        (episode, incarnation): (Episode, u64),
        ranks: &Ranks,
        answer: FromNla,
        restored: bool,
        out: &mut Vec<NlaOutput>,
    ) {
        if restored && !ranks.is_empty() {
            let (ranks, is_void) = (ranks.clone(), false);
            self.restoring = Some(Restoring { episode, incarnation, ranks, answer, is_void });
            return;
        }
        self.keep_start(&answer);
        out.push(NlaOutput::Publish(answer));
    }

    /// Keeps an answer for duplicates.
    pub(super) fn keep_start(&mut self, answer: &FromNla) {
        match answer {
            FromNla::Launched { episode, .. } => self.answers.keep_launch(*episode, answer.clone()),
            FromNla::Restarted { episode, incarnation, .. } => {
                self.answers.keep_ipt(*episode, *incarnation, answer.clone());
            }
            _ => {}
        }
    }

    fn on_reset(&mut self, now: Now, episode: Episode, barrier: u64, out: &mut Vec<NlaOutput>) {
        if let Some(output) = again(self.answers.reset.as_ref(), episode) {
            out.push(output);
            return;
        }
        if self.ending.is_some() || !self.admit(episode) || !self.go(episode, Cause::Reset, out) {
            return;
        }
        self.pmi.reset();
        self.barrier = self.barrier.max(barrier);
        self.barrier_repeat_ns = None;
        self.ending = Some(Ending { episode, kill_ns: now.mono_ns, killed: true, leave: false });
        self.cancel_restore(out);
        self.signal_all(SIGKILL, out);
    }

    /// Whether a rank has left for a migration.
    pub fn has_left(&self, rank: u32) -> bool {
        let process = self.processes.get(&rank);
        process.is_some_and(|p| p.life == ProcessState::Ended(ExitCause::Left))
    }
}
