//! Saving by the node agent, without the ranks' help ([`crate::manner::Saver::Agent`]).
//!
//! A checkpoint has two steps, so that the set is of one moment. When every node is prepared, no
//! rank sends; only then the first rank is saved. A node undoes its preparation on request, at the
//! end of the episode, or after [`limits::PREPARED_MAX`]. A migration saves one node at once, and
//! its ranks are gone afterwards. No rank is saved while a rank of its node waits in a PMI barrier:
//! the reported arrival could not be undone.

use super::barrier::LastBarrier;
use super::{Cause, MigrationState, Nla, NlaOutput, ProcessState, SIGKILL, limits};
use crate::manner::{Moves, Saver};
use crate::message::{ExitCause, FromNla, FromRank, RankMessage};
use crate::names::{Episode, Ranks, SetId};
use ftb_core::Now;

#[derive(Clone, Debug)]
pub(super) struct Saving {
    episode: Episode,
    set: SetId,
    ranks: Ranks,
    /// The ranks are gone when they are saved.
    leave: bool,
    stage: SavingStage,
    /// When the preparation is undone.
    until_ns: u64,
    /// It was cancelled.
    void: bool,
    /// The lowest loop id at which all ranks can be saved.
    loop_id: Option<u64>,
    /// The answers for the ranks.
    said: Vec<RankMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SavingStage {
    Preparing,
    Prepared,
    Saving,
    Over,
}

/// Ranks that are being restored, and the answer that waits for them.
#[derive(Clone, Debug)]
pub(super) struct Restoring {
    /// The episode of the start.
    pub(super) episode: Episode,
    pub(super) incarnation: u64,
    pub(super) ranks: Ranks,
    pub(super) answer: FromNla,
    /// A newer request has replaced it: its result is not reported.
    pub(super) is_void: bool,
}

impl Nla {
    pub(super) fn agent_saves(&self) -> bool {
        self.config.manner.saver != Saver::Ranks
    }

    /// Whether ranks are restored together from an image, not started one by one.
    pub(super) fn restores(&self) -> bool {
        self.config.manner.moves == Moves::Alone
    }

    pub(super) fn saving_deadline_ns(&self) -> u64 {
        let prepared = self.saving.as_ref().filter(|saving| saving.stage == SavingStage::Prepared);
        prepared.map_or(u64::MAX, |saving| saving.until_ns)
    }

    /// Whether it has stopped the ranks to save them, or is about to.
    pub(super) fn saves(&self) -> bool {
        let go_on = |of: &Saving| of.stage == SavingStage::Over && (of.leave || of.failed());
        self.saving.as_ref().is_some_and(|saving| !go_on(saving))
    }

    /// Whether a rank waits in a barrier in which it cannot be saved. One that saves itself does so
    /// behind it.
    fn save_later(&self) -> bool {
        self.config.manner.saver == Saver::Agent && !self.pmi.arrived().is_empty()
    }

    /// FTB_JL_PREPARE. A node without ranks does not answer. With a rank in a barrier it refuses.
    pub(super) fn on_prepare(
        &mut self,
        now: Now,
        episode: Episode,
        set: SetId,
        out: &mut Vec<NlaOutput>,
    ) {
        if !self.agent_saves() || self.ending.is_some() || self.running().is_empty() {
            return;
        }
        if let Some(saving) = &self.saving {
            if saving.episode == episode
                && matches!(saving.stage, SavingStage::Prepared | SavingStage::Over)
            {
                let loop_id = saving.loop_id;
                out.push(NlaOutput::Publish(FromNla::Prepared { episode, loop_id }));
            }
            if saving.episode == episode || saving.stage != SavingStage::Over {
                return;
            }
        }
        if !self.admit(episode) {
            return;
        }
        if self.save_later() {
            self.refuse_in_barrier(episode, set, out);
        } else {
            self.prepare(now, episode, set, false, out);
        }
    }

    /// A rank waits in a barrier, perhaps for a rank that another node has stopped for this
    /// checkpoint. The node refuses at once, so that stopped ranks go on. Otherwise checkpoints at
    /// short intervals could stop the job for good.
    fn refuse_in_barrier(&self, episode: Episode, set: SetId, out: &mut Vec<NlaOutput>) {
        let Some(rank) = self.running().iter().next() else {
            return;
        };
        let reason = "a rank of the node waits for others in a PMI barrier: ask again".to_owned();
        let message = FromRank::CheckpointFailed { set, reason };
        out.push(NlaOutput::PublishFor(RankMessage { episode, rank, message }));
    }

    fn prepare(
        &mut self,
        now: Now,
        episode: Episode,
        set: SetId,
        leave: bool,
        out: &mut Vec<NlaOutput>,
    ) {
        let ranks = self.running();
        self.saving = Some(Saving {
            episode,
            set: set.clone(),
            ranks: ranks.clone(),
            leave,
            stage: SavingStage::Preparing,
            until_ns: now.deadline_ns(limits::PREPARED_MAX),
            void: false,
            loop_id: None,
            said: Vec::new(),
        });
        out.push(NlaOutput::Prepare { episode, set, ranks });
    }

    /// Saves the ranks of the source of a migration; they leave.
    pub(super) fn save_armed(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        let Some(armed) = &self.armed else {
            return;
        };
        let (episode, set) = (armed.episode, armed.set.clone());
        let busy = self
            .saving
            .as_ref()
            .is_some_and(|saving| saving.episode == episode || saving.stage != SavingStage::Over);
        let here = self.state == MigrationState::Arm && self.restores() && self.agent_saves();
        if here && !busy && !self.save_later() && self.ending.is_none() {
            self.prepare(now, episode, set, true, out);
        }
    }

    /// The ranks are stopped, and all their earlier messages were handled.
    pub(super) fn on_prepared(
        &mut self,
        now: Now,
        episode: Episode,
        result: Result<(), String>,
        out: &mut Vec<NlaOutput>,
    ) {
        let later = self.save_later();
        let known = |saving: &&mut Saving| {
            saving.episode == episode && saving.stage == SavingStage::Preparing
        };
        let Some(saving) = self.saving.as_mut().filter(known) else {
            return;
        };
        if let Err(reason) = result {
            return self.save_failed(&reason, out);
        }
        if saving.void && saving.leave {
            return self.save_failed("it was cancelled", out);
        }
        if saving.void || later {
            // A rank has arrived at a barrier meanwhile, which goes first. The JL asks again.
            self.saving = None;
            out.push(NlaOutput::Release { episode });
            return;
        }
        if saving.leave {
            self.save(now, None, out);
        } else {
            saving.stage = SavingStage::Prepared;
            let loop_id = saving.loop_id;
            out.push(NlaOutput::Publish(FromNla::Prepared { episode, loop_id }));
        }
    }

    /// It is known where the ranks can be saved in `ftb_loop`.
    pub(super) fn on_looping(
        &mut self,
        now: Now,
        episode: Episode,
        loop_id: u64,
        out: &mut Vec<NlaOutput>,
    ) {
        if let Some(saving) = self.saving.as_mut().filter(|saving| saving.episode == episode) {
            saving.loop_id = Some(loop_id);
        }
        self.on_prepared(now, episode, Ok(()), out);
    }

    fn save(&mut self, now: Now, loop_id: Option<u64>, out: &mut Vec<NlaOutput>) {
        let space = self.pmi.export() + &self.last_barrier.export(now);
        let Some(saving) = &mut self.saving else {
            return;
        };
        saving.stage = SavingStage::Saving;
        out.push(NlaOutput::Save {
            episode: saving.episode,
            set: saving.set.clone(),
            ranks: saving.ranks.clone(),
            leave: saving.leave,
            loop_id,
            space,
        });
    }

    /// FTB_CHECKPOINT: every node is prepared.
    pub(super) fn on_checkpoint(
        &mut self,
        now: Now,
        episode: Episode,
        (set, loop_id): (SetId, Option<u64>),
        out: &mut Vec<NlaOutput>,
    ) {
        let known = |saving: &&Saving| saving.episode == episode && !saving.leave;
        let is_loop = self.config.manner.saver == Saver::Loop;
        if is_loop
            && loop_id.is_none()
            && self.saving.as_ref().is_none_or(|of| of.episode < episode)
        {
            return self.save_waiting(now, episode, set, out);
        }
        let Some(saving) = self.saving.as_ref().filter(known) else {
            return;
        };
        match saving.stage {
            SavingStage::Prepared => self.save(now, loop_id, out),
            SavingStage::Over => out.extend(saving.said.iter().cloned().map(NlaOutput::PublishFor)),
            SavingStage::Preparing | SavingStage::Saving => {}
        }
    }

    /// Saves ranks that wait in their first `ftb_loop`, or come to it.
    fn save_waiting(&mut self, now: Now, episode: Episode, set: SetId, out: &mut Vec<NlaOutput>) {
        if self.ending.is_some() || self.running().is_empty() || !self.admit(episode) {
            return;
        }
        // The order to save needs no order to report before it.
        self.prepare(now, episode, set, false, &mut Vec::new());
        self.save(now, None, out);
    }

    /// The shell has saved the ranks, with these sizes, or has failed.
    pub(super) fn on_saved(
        &mut self,
        episode: Episode,
        result: Result<Vec<(u32, u64)>, String>,
        out: &mut Vec<NlaOutput>,
    ) {
        let known =
            |saving: &&mut Saving| saving.episode == episode && saving.stage == SavingStage::Saving;
        let Some(saving) = self.saving.as_mut().filter(known) else {
            return;
        };
        let sizes = match result {
            Ok(sizes) => sizes,
            Err(reason) => return self.save_failed(&reason, out),
        };
        saving.stage = SavingStage::Over;
        if saving.leave {
            let (ranks, void) = (saving.ranks.clone(), saving.void);
            self.left(&ranks, out);
            // If the migration is over, its first phase is not reported.
            return if void { self.disarm(episode, out) } else { self.check_left(out) };
        }
        let (set, void) = (saving.set.clone(), saving.void);
        let processes = &self.processes;
        let say = |(rank, bytes)| {
            let activity = processes.get(&rank).and_then(|process| process.activity);
            let message = FromRank::CheckpointDone { set: set.clone(), bytes, activity };
            RankMessage { episode, rank, message }
        };
        saving.said = sizes.into_iter().map(say).collect();
        if void {
            self.saving = None;
            out.push(NlaOutput::Release { episode });
        } else {
            out.extend(saving.said.iter().cloned().map(NlaOutput::PublishFor));
        }
    }

    fn left(&mut self, ranks: &Ranks, out: &mut Vec<NlaOutput>) {
        for rank in ranks.iter() {
            let Some(process) = self.processes.get_mut(&rank) else { continue };
            process.life = ProcessState::Ended(ExitCause::Left);
            let incarnation = process.incarnation;
            self.pmi.gone(rank);
            self.hang_over(rank, "the rank has left", out);
            let (episode, how) = (self.episode, ExitCause::Left);
            out.push(NlaOutput::Publish(FromNla::Exited { episode, rank, incarnation, how }));
        }
    }

    /// The ranks go on. One answer for all ranks is enough.
    fn save_failed(&mut self, reason: &str, out: &mut Vec<NlaOutput>) {
        let Some(saving) = &mut self.saving else {
            return;
        };
        let episode = saving.episode;
        saving.stage = SavingStage::Over;
        let rank = saving.ranks.iter().next().unwrap_or_default();
        let message =
            FromRank::CheckpointFailed { set: saving.set.clone(), reason: reason.to_owned() };
        saving.said = vec![RankMessage { episode, rank, message }];
        out.push(NlaOutput::Release { episode });
        out.extend(saving.said.iter().cloned().map(NlaOutput::PublishFor));
    }

    fn disarm(&mut self, episode: Episode, out: &mut Vec<NlaOutput>) {
        let armed = self.armed.as_ref().is_some_and(|armed| armed.episode == episode);
        if armed && self.state == MigrationState::Arm && self.agent_saves() {
            self.go(episode, Cause::Aborted, out);
        }
    }

    /// FTB_MIGRATE_ABORT at the source. A save that has begun is finished first: all ranks leave,
    /// or all stay.
    pub(super) fn abort_save(&mut self, episode: Episode, out: &mut Vec<NlaOutput>) {
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.episode == episode) else {
            let running = self.running();
            let (Some(rank), Some(armed)) = (running.iter().next(), &self.armed) else {
                return;
            };
            let (set, reason) = (armed.set.clone(), "it was cancelled".to_owned());
            let message = FromRank::CheckpointFailed { set, reason };
            out.push(NlaOutput::PublishFor(RankMessage { episode, rank, message }));
            return self.disarm(episode, out);
        };
        match saving.stage {
            SavingStage::Saving => {}
            SavingStage::Preparing | SavingStage::Prepared => saving.void = true,
            SavingStage::Over => {
                out.extend(saving.said.iter().cloned().map(NlaOutput::PublishFor));
                self.disarm(episode, out);
            }
        }
    }

    /// FTB_JL_RELEASE, or the episode is over: with it all before it. A repeated one changes
    /// nothing.
    pub(super) fn on_release(&mut self, episode: Episode, out: &mut Vec<NlaOutput>) {
        let is_loop = self.config.manner.saver == Saver::Loop;
        let known = self.saving.as_ref().filter(|saving| saving.episode <= episode);
        let busy =
            known.is_some_and(|s| matches!(s.stage, SavingStage::Preparing | SavingStage::Saving));
        if !busy {
            self.disarm(episode, out);
        }
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.episode <= episode) else {
            return;
        };
        let episode = saving.episode;
        match saving.stage {
            // Ranks may never come to their next `ftb_loop`, or to that of the checkpoint.
            SavingStage::Preparing | SavingStage::Saving if is_loop => {
                return self.save_failed("it was cancelled", out);
            }
            SavingStage::Preparing | SavingStage::Saving => saving.void = true,
            SavingStage::Prepared => out.push(NlaOutput::Release { episode }),
            SavingStage::Over if saving.leave || saving.failed() => {}
            SavingStage::Over => out.push(NlaOutput::Release { episode }),
        }
        if matches!(saving.stage, SavingStage::Prepared | SavingStage::Over) {
            self.saving = None;
        }
    }

    /// The checkpoint did not follow in time.
    pub(super) fn saving_tick(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        if now.mono_ns < self.saving_deadline_ns() {
            return;
        }
        out.push(NlaOutput::Note(
            "prepared for a checkpoint that did not come: the ranks go on".into(),
        ));
        self.save_failed("it did not come in time", out);
    }

    pub(super) fn on_restored(
        &mut self,
        now: Now,
        incarnation: u64,
        result: Result<String, String>,
        out: &mut Vec<NlaOutput>,
    ) {
        let due = self.restoring.take_if(|restoring| restoring.incarnation == incarnation);
        let Some(Restoring { episode, ranks, answer, is_void, .. }) = due else {
            return;
        };
        // A signal for them may have come before they were restored.
        if result.is_ok() && (is_void || self.ending.is_some()) {
            self.signal_all(SIGKILL, out);
        }
        match result {
            Ok(_) if is_void => {}
            Ok(space) => {
                self.pmi.import(&space);
                self.last_barrier = LastBarrier::import(now, &space);
                self.keep_start(&answer);
                out.push(NlaOutput::Publish(answer));
            }
            Err(reason) => {
                for rank in ranks.iter() {
                    self.processes.remove(&rank);
                }
                self.answers.forget_starts();
                if is_void {
                    return;
                }
                let failed = FromNla::LaunchFailed { episode, incarnation, ranks, reason };
                out.push(NlaOutput::Publish(failed));
            }
        }
    }

    /// A newer request replaces the start whose ranks are being restored: nothing waits for it.
    pub(super) fn cancel_restore(&mut self, out: &mut Vec<NlaOutput>) {
        if let Some(restoring) = self.restoring.as_mut().filter(|restoring| !restoring.is_void) {
            restoring.is_void = true;
            let incarnation = restoring.incarnation;
            out.push(NlaOutput::CancelRestore { incarnation });
        }
    }

    /// Whether ranks are being restored, so that a start must wait. One of an older start is
    /// cancelled.
    pub(super) fn restores_still(
        &mut self,
        start: (Episode, u64),
        out: &mut Vec<NlaOutput>,
    ) -> bool {
        let Some(restoring) = &self.restoring else {
            return false;
        };
        if (restoring.episode, restoring.incarnation) < start {
            self.cancel_restore(out);
        }
        true
    }
}

impl Saving {
    fn failed(&self) -> bool {
        self.said.iter().any(|says| matches!(says.message, FromRank::CheckpointFailed { .. }))
    }
}
